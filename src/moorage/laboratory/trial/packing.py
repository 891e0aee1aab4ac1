"""Encode objects as bytes to be pickled: smaller and faster than pickled structs, and decoded without loss."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

from moorage.api.custom_objects import CustomObject, custom_type
from moorage.api.meta import Object

__all__ = ["Packed", "pack", "unpack"]

#: The type of an object, or the name of its custom kind, and its content.
Packed: TypeAlias = tuple[type[Object] | str, bytes]

_encode = msgspec.msgpack.Encoder().encode


def pack(obj: Object) -> Packed:
    """Return an object as bytes."""
    return (obj.resource if isinstance(obj, CustomObject) else type(obj)), _encode(obj)


def unpack(packed: Packed) -> Object:
    """Return the object that ``pack`` encoded."""
    kind, content = packed
    found: Any = msgspec.msgpack.decode(content, type=custom_type(kind) if isinstance(kind, str) else kind)
    return cast(Object, found)
