"""Objects of custom kinds in each of their versions.

An object is stored once, in the storage version of its kind. With the conversion strategy None, all versions have the same
fields: only ``apiVersion`` changes, and fields that the other version does not have are dropped. With the strategy Webhook,
a program of the user converts them.

Source  apiextensions-apiserver, pkg/apiserver/conversion/nop_converter.go; customresource_handler.go
"""

from __future__ import annotations

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import (
    ConversionWebhook,
    ServedKind,
)
from moorage.api.schema import custom_kinds
from moorage.api.schema.versions import convert, is_renamed
from moorage.rules.store.conversion_webhooks import convert_by_webhook


def convert_record(kind: ServedKind, source: ServedKind, record: Record) -> Record:
    """Return an object of the kind ``source`` in another version of that kind."""
    if kind is source:
        return record
    if kind.custom is not None and kind.custom.webhook is not None:
        return _converted_elsewhere(kind, source, record, kind.custom.webhook)
    schemas = [one.custom and one.custom.schema for one in (kind, source)]
    is_same = schemas[0] is schemas[1] if kind.custom is not None else all(map(is_renamed, (kind, source)))
    body = _with_version(record.body, kind, source) if is_same else None
    if body is None:
        document = record.document()
        if kind.custom is None:
            convert(kind, source, document)
        else:
            document["apiVersion"] = kind.api_version
            custom_kinds.drop_unknown_fields(kind.custom.schema, document)
        return Record.of(kind, document, record.version)
    if kind.fields == source.fields:
        return Record(record.namespace, record.name, record.version, record.labels, record.fields, body)
    return Record.read(kind, body, record.version)


def _converted_elsewhere(kind: ServedKind, source: ServedKind, record: Record, webhook: ConversionWebhook) -> Record:
    """Return an object in another version, as the webhook of its definition converts it.

    Raises  ApiError 500 if the webhook cannot be reached or gives no answer
    """
    made = convert_by_webhook(webhook, kind, source, record.document())
    if kind.custom is not None:
        custom_kinds.drop_unknown_fields(kind.custom.schema, made)
        custom_kinds.apply_defaults(kind.custom.schema, made)
    return Record.of(kind, made, record.version)


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
    custom_kinds.drop_unknown_fields(kind.custom.schema, document)
    custom_kinds.apply_defaults(kind.custom.schema, document)
    return Record.of(kind, document, record.version)
