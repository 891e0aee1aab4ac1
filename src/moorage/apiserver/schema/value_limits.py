"""How many values a body may hold: each takes time and memory, however few bytes it is written in.

An object that is as large as objects may be, and whose fields have names, holds fewer. JSON is looked at before it is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moorage.apiserver.vocabulary.statuses import ApiError

__all__ = ["MAX_VALUES", "check_text", "check_values", "count_marks"]

#: The most items of lists, and names and values of fields, that a body may hold.
MAX_VALUES: Final = 200_000
_MARKS: Final = (b",", b":", b"{", b"[")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
#: Some strings and what stands before each, as much as is looked at in one call.
_RUN: Final = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.)*+"){1,1000}', re.DOTALL)
#: A body of fewer bytes, in YAML or protobuf, cannot hold so many.
_SHORT: Final = 64 << 10


def count_marks(text: bytes) -> int:
    """Return how often a text has what begins or parts values in JSON. There are no more values than that, and one."""
    return sum(map(text.count, _MARKS))


def check_text(body: bytes) -> None:
    """Check that a body in JSON does not hold too many values.

    Raises  ApiError 413
    """
    if count_marks(body) > MAX_VALUES and sum(map(count_marks, _unquoted(body))) > MAX_VALUES:
        raise _too_many()


def _unquoted(body: bytes) -> Iterator[bytes]:
    """Yield a text without its strings, piece by piece."""
    end = 0
    while run := _RUN.match(body, end):
        yield _STRING.sub(b"", run[0])
        end = run.end()
    yield body[end:]


def check_values(document: Any, size: int) -> None:
    """Check that a document, which was read from so many bytes, does not hold too many values.

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
        lists.extend(map(_values_of, filter(_holds_values, values)))


def _holds_values(value: Any) -> bool:
    return isinstance(value, (dict, list))


def _values_of(held: Any) -> list[Any]:
    return [*held, *held.values()] if isinstance(held, dict) else held


def _too_many() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_VALUES} values")
