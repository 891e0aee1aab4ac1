"""The record that ``moorage dump`` writes into a dump: when and where it was taken, and what could not be read."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from moorage.api.decode import decode
from moorage.inputs.objects import FoundObject

__all__ = ["DUMP_RECORD", "DumpRecord", "UnreadKind", "read_record"]


class _Name(NamedTuple):
    api_version: str
    kind: str


DUMP_RECORD: Final = _Name("moorage.dev/v1", "DumpRecord")


class UnreadKind(Struct, frozen=True):
    """A kind, by its plural, that could not be read: it is ``forbidden`` or ``not served``."""

    kind: str
    why: str


class DumpRecord(Struct, frozen=True, rename="camel"):
    """How a dump was taken."""

    metadata: dict[str, str] = msgspec.field(default_factory=lambda: {"name": "dump"})
    taken_at: str = ""
    server: str = ""
    server_version: str = ""
    not_read: tuple[UnreadKind, ...] = ()

    def notes(self) -> list[str]:
        """Return notes for the user of the dump, one sentence a line."""
        where = f"taken from {self.server}" if self.server else "taken"
        return [
            *([f"{where} at {self.taken_at}"] if self.taken_at else []),
            *(f"{one.kind} were not read: {one.why}" for one in self.not_read),
        ]


def read_record(found: FoundObject) -> DumpRecord:
    """Return the record in a dump.

    Raises  InputError
    """
    return decode(found.payload if isinstance(found.payload, dict) else bytes(found.payload), DumpRecord, found.where)
