"""Limit the number of values in a body, as each value takes time and memory, even if it is small.

Valid objects of the maximum size stay below the limit. JSON is checked before it is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moorage.api.documents.statuses import ApiError

#: Maximum number of list items, field names and field values in a body.
MAX_VALUES: Final = 200_000
_MARKS: Final = (b",", b":", b"{", b"[")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
#: Up to 1000 strings, each with the text before it; one match examines them all.
_RUN: Final = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.)*+"){1,1000}', re.DOTALL)
#: Size in bytes below which a YAML or protobuf body cannot exceed the limit.
_SHORT: Final = 64 << 10


def count_marks(text: bytes) -> int:
    """Return the number of JSON punctuation marks before or between values. There is at most one more value."""
    return sum(map(text.count, _MARKS))


def check_text(body: bytes) -> None:
    """Check that a JSON body does not contain too many values.

    Raises  ApiError 413
    """
    if count_marks(body) > MAX_VALUES and sum(map(count_marks, _unquoted(body))) > MAX_VALUES:
        raise _too_many()


def _unquoted(body: bytes) -> Iterator[bytes]:
    """Yield the text of a body without its strings, in pieces."""
    end = 0
    while run := _RUN.match(body, end):
        yield _STRING.sub(b"", run[0])
        end = run.end()
    yield body[end:]


def check_values(document: Any, size: int) -> None:
    """Check that a document decoded from ``size`` bytes does not contain too many values.

    Raises  ApiError 413
    """
    if size < _SHORT:
        return
    left, lists = MAX_VALUES, [[document]]
    while lists:
        values = lists.pop()
        left -= len(values)
        if left < 0:
            raise _too_many()
        lists += [_members(one) for one in values if isinstance(one, dict | list)]


def _members(held: Any) -> list[Any]:
    return [*held, *held.values()] if isinstance(held, dict) else held


def _too_many() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_VALUES} values")
