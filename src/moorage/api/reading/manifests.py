"""Files to plain data: YAML or JSON, one document or many, valid or hostile.

``read_documents`` looks at the first character, as kubectl does: a brace means JSON. If a small file then turns out not to be
JSON, it is parsed as YAML, whose flow style looks similar. The result is dicts, lists and scalars that JSON can hold, each
document with the line it starts on; ``decode`` turns them into objects.

Every fault of the input is an InputError whose message starts with ``where:line:``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from moorage.api.reading import json_tree
from moorage.api.reading.json_tree import JsonSyntaxError, loads_strict_json
from moorage.api.reading.text_encoding import to_utf8
from moorage.errors import InputError

__all__ = ["Document", "loads_strict_json", "read_documents", "read_first_yaml", "read_json", "read_yaml"]

#: Up to this size, text that fails as JSON is parsed as YAML; beyond it, it is most likely a damaged dump.
_SECOND_CHANCE = 1 << 20
_JSON_LIKE = re.compile(rb'\s*(\{\s*["}]|\[\s*["{\[0-9])')


#: Receives messages about duplicate keys.
OnRepeat: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file and the line it starts on, counted from 1."""

    data: Any
    line: int


def read_yaml(data: bytes | str, where: str, *, strict: bool = False, on_repeat: OnRepeat | None = None) -> Iterator[Document]:
    """Yield the documents of a YAML stream without empty ones.

    ``strict`` rejects duplicate keys. Otherwise the last value wins, and ``on_repeat`` receives a message for each.
    """
    return _documents(_yaml(data, where, strict, on_repeat))


def read_first_yaml(data: bytes | str, where: str, *, strict: bool = False) -> Any:
    """Return the first document of a YAML stream, None if it is empty. The rest is not parsed."""
    return next((tree for tree, _ in _yaml(data, where, strict)), None)


def _yaml(data: bytes | str, where: str, strict: bool, on_repeat: OnRepeat | None = None) -> Iterator[tuple[Any, int]]:
    from moorage.api.reading import yaml_tree

    return yaml_tree.read_tree(to_utf8(data, where), where, strict=strict, on_repeat=on_repeat)


def read_json(data: bytes | str, where: str, *, strict: bool = False, on_repeat: OnRepeat | None = None) -> Iterator[Document]:
    """Yield the documents of JSON text, which may hold several in a row; see ``read_yaml``."""
    return _documents(json_tree.read_tree(to_utf8(data, where), where, strict=strict, on_repeat=on_repeat))


def read_documents(
    data: bytes | str, where: str, *, strict: bool = False, on_repeat: OnRepeat | None = None
) -> Iterator[Document]:
    """Yield the documents of a file in YAML or JSON; see ``read_yaml``."""
    text = to_utf8(data, where)
    if text.lstrip(b" \t\r\n")[:1] not in (b"{", b"["):
        yield from read_yaml(text, where, strict=strict, on_repeat=on_repeat)
        return
    try:
        yield from read_json(text, where, strict=strict, on_repeat=on_repeat)
    except JsonSyntaxError as error:
        if error.after > 1 or len(text) > _SECOND_CHANCE:
            raise
        yield from _rest_as_yaml(read_yaml(text, where, strict=strict, on_repeat=on_repeat), text, error)


def _rest_as_yaml(documents: Iterator[Document], text: bytes, error: JsonSyntaxError) -> Iterator[Document]:
    """Parse as YAML what is not JSON. If that fails too, raise the error of the format that the text resembles."""
    try:
        yield from islice(documents, error.after, None)
    except InputError as yaml_error:
        raise (error if _JSON_LIKE.match(text) else yaml_error) from None


def _documents(trees: Iterator[tuple[Any, int]]) -> Iterator[Document]:
    return (Document(data, line) for data, line in trees if data is not None)
