"""Files to plain data: YAML or JSON, one document or many, sound or hostile.

``read_documents`` looks at the first character, as kubectl does: a brace means JSON, and where that turns out not to be
JSON after all, a small file gets a second chance as YAML, whose flow style looks alike. What comes out are dicts, lists
and scalars that JSON could hold, each document with the line it starts on; ``decode`` makes objects of them.

Whatever is wrong with the input, the answer is an InputError whose message opens with ``where:line:``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from moorage.api import json_tree
from moorage.api.json_tree import JsonSyntaxError, loads_strict_json
from moorage.api.text_encoding import to_utf8
from moorage.errors import InputError

__all__ = ["Document", "loads_strict_json", "read_documents", "read_first_yaml", "read_json", "read_yaml"]

#: JSON that is not JSON is tried as YAML up to this size; beyond it, it is surely a damaged dump.
_SECOND_CHANCE = 1 << 20
_JSON_LIKE = re.compile(rb'\s*(\{\s*["}]|\[\s*["{\[0-9])')


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file and the line it starts on, counted from 1."""

    data: Any
    line: int


def read_yaml(data: bytes | str, where: str, *, strict: bool = False) -> Iterator[Document]:
    """Yield the documents of a YAML stream, leaving out empty ones. ``strict`` refuses duplicate keys."""
    return _documents(_yaml(data, where, strict))


def read_first_yaml(data: bytes | str, where: str, *, strict: bool = False) -> Any:
    """Return the first document of a YAML stream, None for one that is empty. What comes after it is not looked at."""
    return next((tree for tree, _ in _yaml(data, where, strict)), None)


def _yaml(data: bytes | str, where: str, strict: bool) -> Iterator[tuple[Any, int]]:
    from moorage.api import yaml_tree  # it takes long to import, and much input is JSON

    return yaml_tree.read_tree(to_utf8(data, where), where, strict=strict)


def read_json(data: bytes | str, where: str, *, strict: bool = False) -> Iterator[Document]:
    """Yield the documents of JSON text, of which there may be several in a row. ``strict`` refuses duplicate fields."""
    return _documents(json_tree.read_tree(to_utf8(data, where), where, strict=strict))


def read_documents(data: bytes | str, where: str, *, strict: bool = False) -> Iterator[Document]:
    """Yield the documents of a file that is YAML or JSON."""
    text = to_utf8(data, where)
    if text.lstrip(b" \t\r\n")[:1] not in (b"{", b"["):
        yield from read_yaml(text, where, strict=strict)
        return
    try:
        yield from read_json(text, where, strict=strict)
    except JsonSyntaxError as error:
        if error.after > 1 or len(text) > _SECOND_CHANCE:
            raise
        yield from _rest_as_yaml(text, where, strict, error)


def _rest_as_yaml(text: bytes, where: str, strict: bool, error: JsonSyntaxError) -> Iterator[Document]:
    """Read as YAML what is not JSON. Where that fails too, the error is in the terms of what the text looks like."""
    documents = read_yaml(text, where, strict=strict)
    try:
        yield from islice(documents, error.after, None)
    except InputError as yaml_error:
        raise (error if _JSON_LIKE.match(text) else yaml_error) from None


def _documents(trees: Iterator[tuple[Any, int]]) -> Iterator[Document]:
    return (Document(data, line) for data, line in trees if data is not None)
