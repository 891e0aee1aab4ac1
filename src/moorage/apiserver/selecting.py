"""What a list or a watch asks for: a namespace, labels and fields.

A field selector knows equality and inequality only, over the fields that a kind offers; anything else is refused in the
API server's words.

Source  apimachinery, pkg/fields/selector.go; kubernetes, pkg/apis/core/v1/conversion.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.api.selectors import EVERYTHING, Selector, SelectorError, parse_selector
from moorage.apiserver.kinds import Kind
from moorage.apiserver.records import Record
from moorage.apiserver.statuses import bad_request, quoted

__all__ = ["ALL", "FieldTerm", "Selection", "parse_fields", "selection"]

_OPERATOR: Final = re.compile(r"!=|==|=")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class FieldTerm(NamedTuple):
    path: str
    value: str
    equal: bool = True

    def matches(self, record: Record) -> bool:
        match self.path:
            case "metadata.name":
                held = record.name
            case "metadata.namespace":
                held = record.namespace
            case _:
                held = record.fields.get(self.path, "")
        return (held == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a kind that are asked for. A namespace of None stands for all of them."""

    namespace: str | None = None
    labels: Selector = EVERYTHING
    fields: tuple[FieldTerm, ...] = ()

    @property
    def is_everything(self) -> bool:
        """True when nothing but the namespace narrows it."""
        return not self.fields and self.labels.is_empty

    def matches(self, record: Record) -> bool:
        if self.namespace is not None and record.namespace != self.namespace:
            return False
        if not self.labels.is_empty and not self.labels.matches(record.labels):
            return False
        return all(term.matches(record) for term in self.fields)


ALL: Final = Selection()


def selection(kind: Kind, namespace: str | None, labels: str, fields: str) -> Selection:
    """Return the selection that a request's texts spell.

    Raises  ApiError 400 with the API server's words
    """
    try:
        chosen = parse_selector(labels) if labels else EVERYTHING
    except SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from None
    return Selection(namespace, chosen, parse_fields(kind, fields) if fields else ())


def parse_fields(kind: Kind, text: str) -> tuple[FieldTerm, ...]:
    """Return the terms of a field selector such as ``spec.nodeName=n1,status.phase!=Running``.

    Raises  ApiError 400
    """
    terms = []
    for part in _split(text):
        if not part:
            continue
        found = _OPERATOR.search(part)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path, value = part[: found.start()], part[found.end() :]
        _check_path(kind, path)
        terms.append(FieldTerm(path, _unescaped(value), found[0] != "!="))
    return tuple(terms)


def _split(text: str) -> list[str]:
    """Split at commas that no backslash stands before."""
    return re.split(r"(?<!\\)(?:\\\\)*,", text) if "\\" in text else text.split(",")


def _unescaped(value: str) -> str:
    for found in _ESCAPE.finditer(value):
        if found[1] not in "\\,=":
            raise bad_request(f"invalid field selector: invalid escape sequence: {found[0]}")
    return _ESCAPE.sub(r"\1", value)


def _check_path(kind: Kind, path: str) -> None:
    if path == "metadata.name" or (path == "metadata.namespace" and kind.namespaced) or path in kind.field_defaults:
        return
    why = (
        f"field label not supported: {path}"
        if kind.fields
        else f'{quoted(path)} is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    raise bad_request(why)
