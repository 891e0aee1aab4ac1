"""A dump as a file: a List of the objects that scheduling reads, and a record of how it was taken.

Only fields that scheduling reads are written, so environments, arguments, data and managed fields never get into a dump. Only
annotations that scheduling or a controller reads remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from moorage.basis.inputs.cleaned_objects import KINDS, ObjectCleaner, find_kind
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import find_objects
from moorage.laboratory.redact.live_dump import Unread
from moorage.simulator.cluster_input import DUMP_RECORD, DumpRecord, UnreadKind

__all__ = ["DumpWriter"]

_DECODERS: Final = {kind.slot: msgspec.json.Decoder(kind.type) for kind in KINDS}
_encode = msgspec.json.Encoder().encode


class DumpWriter:
    """Collects the objects of pages as they arrive; ``kept`` names annotations to keep in addition."""

    def __init__(self, kept: Iterable[str] = ()) -> None:
        self._cleaner = ObjectCleaner(kept)
        #: The JSON of each object.
        self.items: list[bytes] = []
        #: Kind → number of objects.
        self.counts: dict[str, int] = {}

    def take(self, page: InputFile) -> None:
        """Add the objects of a page.

        Raises  InputError for what cannot be read
        """
        for found in find_objects(page):
            kind = find_kind(found.api_version, found.kind)
            payload = found.payload if isinstance(found.payload, dict) else bytes(found.payload)
            if kind is None:
                item = _encode(self._cleaner.custom(found.api_version, found.kind, payload))
            else:
                obj = msgspec.convert(payload, kind.type) if isinstance(payload, dict) else _DECODERS[kind.slot].decode(payload)
                item = self._cleaner.json(kind, found.api_version, obj)
            self.items.append(item)
            self.counts[found.kind] = self.counts.get(found.kind, 0) + 1

    def parts(self, server: str, taken_at: str, missing: Iterable[Unread], version: str = "") -> Iterator[bytes]:
        """Yield the file in parts: one line for each object, the record first. ``version``: that of the API server."""
        record = DumpRecord(
            taken_at=taken_at,
            server=server,
            server_version=version,
            not_read=tuple(UnreadKind(one.plural, one.why) for one in missing),
        )
        head = {"apiVersion": DUMP_RECORD.api_version, "kind": DUMP_RECORD.kind, **msgspec.to_builtins(record)}
        yield b'{"apiVersion":"v1","kind":"List","items":[\n'
        yield _encode(head)
        for item in self.items:
            yield b",\n"
            yield item
        yield b"\n]}\n"
