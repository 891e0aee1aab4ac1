"""Changes of JSON texts that leave what they do not change as it came: bytes, unknown fields, order and numbers.

An API server compares some fields as texts (the opaque parameters of claims), and numbers beyond 64 bits or the precision of a
float do not survive decoding. So only the objects on the way to a change are read; all other values are copied as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from moorage.api.reading.json_tree import UNREADABLE
from moorage.errors import ClusterError

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode: Final = msgspec.json.encode


def fields_of(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object, each as its text.

    Raises  ClusterError if the text is not an object
    """
    try:
        return _fields(text)
    except UNREADABLE as error:
        raise ClusterError(f"the API server's answer is not a JSON object: {error}") from None


def items_of(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """Return the items of a JSON list, each as its text; none if it is not a list."""
    try:
        return _items(text)
    except UNREADABLE:
        return []


class ChangedList(list[Any]):
    """A list that replaces another. ``kept``: for each item, its place in the list before if it was there, else None."""

    def __init__(self, before: Sequence[Any], items: Sequence[Any]) -> None:
        super().__init__(items)
        left = dict(enumerate(before))
        self.kept: list[int | None] = []
        for item in items:
            place = next((at for at, one in left.items() if one == item), None)
            left.pop(-1 if place is None else place, None)
            self.kept.append(place)


def change_between(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that turns one object into the other; a list that differs is a ``ChangedList``."""
    change: dict[str, Any] = dict.fromkeys(key for key in old if key not in new)
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := change_between(before, value):
                change[key] = inner
        elif value != before or key not in old:
            lists = isinstance(value, list | tuple) and isinstance(before, list | tuple)
            change[key] = ChangedList(before or (), value) if lists else value
    return change


def merged(text: bytes | msgspec.Raw, change: Mapping[str, Any]) -> bytes:
    """Return a JSON object with a merge patch applied: None removes a field, a mapping is merged, anything else replaces.

    Values of the patch may be ``msgspec.Raw``: they are written as they are. The kept items of a ``ChangedList`` are copied.
    """
    fields: dict[str, Any] = dict(fields_of(text))
    for name, value in change.items():
        held = fields.get(name)
        if value is None:
            fields.pop(name, None)
        elif isinstance(value, ChangedList):
            items = items_of(held) if held is not None else []
            kept = zip(value, value.kept, strict=True)
            fields[name] = [item if at is None or at >= len(items) else items[at] for item, at in kept]
        elif not isinstance(value, Mapping):
            fields[name] = value
        elif held is not None and bytes(held)[:1] == b"{":
            fields[name] = msgspec.Raw(merged(held, value))
        else:
            fields[name] = _without_nulls(value)
    return _encode(fields)


def at(text: bytes | msgspec.Raw, *path: str) -> msgspec.Raw | None:
    """Return the text of a field below an object; None if it is not there."""
    found: msgspec.Raw | None = msgspec.Raw(bytes(text))
    for name in path:
        if found is None or bytes(found)[:1] != b"{":
            return None
        found = fields_of(found).get(name)
    return found


def _without_nulls(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch as the value that it makes where nothing was."""
    return {
        name: _without_nulls(value) if isinstance(value, Mapping) else value
        for name, value in change.items()
        if value is not None
    }
