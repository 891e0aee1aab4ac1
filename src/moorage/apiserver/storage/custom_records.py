"""Objects of custom kinds in each of their versions.

An object is stored once, in the storage version of its kind. With the conversion strategy None, all versions have the same
fields: only ``apiVersion`` changes, and fields that the other version does not have are dropped.

Source  apiextensions-apiserver, pkg/apiserver/conversion/nop_converter.go; customresource_handler.go
"""

from __future__ import annotations

from moorage.apiserver.schema.custom_objects import apply_defaults, drop_unknown_fields
from moorage.apiserver.vocabulary.records import Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["convert_record", "reread_record"]


def convert_record(kind: ServedKind, source: ServedKind, record: Record) -> Record:
    """Return an object of the kind ``source`` in another version of that kind."""
    if kind.custom is None or source.custom is None or kind is source:
        return record
    body = _with_version(record.body, kind, source) if kind.custom.schema is source.custom.schema else None
    if body is None:
        document = record.document()
        document["apiVersion"] = kind.api_version
        drop_unknown_fields(kind.custom.schema, document)
        return Record.of(kind, document, record.version)
    if kind.fields == source.fields:
        return Record(record.namespace, record.name, record.version, record.labels, record.fields, body)
    return Record.read(kind, body, record.version)


def _with_version(body: bytes, kind: ServedKind, source: ServedKind) -> bytes | None:
    """Return the bytes of an object with another ``apiVersion``; None if it does not begin with its kind and version."""
    start = f'{{"kind":"{source.kind}","apiVersion":"{source.api_version}",'.encode()
    if not body.startswith(start):
        return None
    return f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode() + body[len(start) :]


def reread_record(kind: ServedKind, record: Record) -> Record:
    """Return a stored object as a changed definition reads it: in the storage version, with its fields and defaults."""
    if kind.custom is None:
        return record
    document = record.document()
    document["apiVersion"], document["kind"] = kind.api_version, kind.kind
    drop_unknown_fields(kind.custom.schema, document)
    apply_defaults(kind.custom.schema, document)
    return Record.of(kind, document, record.version)
