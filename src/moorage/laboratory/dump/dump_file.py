"""A dump as a file: a List of the objects that scheduling reads, and a record of how it was taken.

Only fields that scheduling reads are written, so environments, arguments, data and managed fields never get into a dump.
Only annotations that scheduling or a controller reads remain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from moorage.api.decode import decode
from moorage.basis.inputs.cleaned_objects import ObjectCleaner
from moorage.basis.inputs.components import (
    components_of,
    kept_component,
    kept_config_map,
)
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import find_objects, plain_object
from moorage.basis.inputs.simulated_kinds import find_kind, list_parts
from moorage.errors import InputError
from moorage.simulator.cluster_input import DUMP_RECORD, DumpRecord, UnreadKind

_encode = msgspec.json.Encoder().encode


class DumpWriter:
    """Collects the objects of pages as they arrive; ``kept`` names annotations to keep in addition."""

    def __init__(self, kept: Iterable[str] = ()) -> None:
        self._cleaner = ObjectCleaner(kept)
        #: The JSON of each object.
        self.items: list[bytes] = []
        #: Kind → number of objects.
        self.counts: dict[str, int] = {}
        #: Objects that cannot be read: the plural of the kind, and the reason.
        self.unread: list[tuple[str, str]] = []

    def take(self, page: InputFile) -> None:
        """Add the objects of a page that can be read.

        Raises  InputError for what is no list of objects
        """
        for found in find_objects(page):
            kind = find_kind(found.api_version, found.kind)
            payload = found.payload if isinstance(found.payload, dict) else bytes(found.payload)
            if found.kind == "ConfigMap" and found.api_version == "v1":
                if (document := kept_config_map(plain_object(found))) is None:
                    continue
                item = _encode(document)
            elif kind is None:
                item = _encode(self._cleaner.custom(found.api_version, found.kind, payload))
            else:
                try:
                    obj = decode(payload, kind.type, found.where)
                except InputError as error:
                    self.unread.append((kind.resource, str(error)))
                    continue
                item = self._cleaner.json(kind, found.api_version, obj)
            self.items.append(item)
            namespace = (
                str((plain_object(found).get("metadata") or {}).get("namespace") or "") if found.kind == "Deployment" else ""
            )
            self.items += [_encode(kept_component(one, namespace)) for one in components_of(found)]
            self.counts[found.kind] = self.counts.get(found.kind, 0) + 1

    def parts(self, server: str, taken_at: str, missing: Iterable[UnreadKind], version: str = "") -> Iterator[bytes]:
        """Yield the file in parts: one line for each object, the record first. ``version``: that of the API server."""
        unreadable = Counter(kind for kind, _ in self.unread)
        record = DumpRecord(
            taken_at=taken_at,
            server=server,
            server_version=version,
            not_read=(*missing, *(UnreadKind(kind, "unreadable", n) for kind, n in unreadable.items())),
        )
        head = {"apiVersion": DUMP_RECORD.api_version, "kind": DUMP_RECORD.kind, **msgspec.to_builtins(record)}
        yield from list_parts((_encode(head), *self.items))
