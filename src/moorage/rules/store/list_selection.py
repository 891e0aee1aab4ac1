"""The selection of a list or watch: namespace, label selector and field selector.

Field selectors support equality and inequality on the fields that a kind offers; others are rejected with
kube-apiserver's message.

Source  apimachinery, pkg/fields/selector.go; kubernetes, pkg/apis/core/v1/conversion.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import ServedKind
from moorage.api.documents.statuses import bad_request, quoted
from moorage.api.selectors import EVERYTHING, Selector, SelectorError, parse_selector

_OPERATOR: Final = re.compile(r"!=|==|=")
#: An escape sequence in a value, or a character that must be escaped.
_PIECE: Final = re.compile(r"\\(.?)|([,=])", re.DOTALL)
_BETWEEN: Final = re.compile(r"(?<!\\)(?:\\\\)*,")


class FieldTerm(NamedTuple):
    path: str
    value: str
    equal: bool = True

    def matches(self, record: Record) -> bool:
        return (_field_of(record, self.path) == self.value) is self.equal


def _field_of(record: Record, path: str) -> str:
    match path:
        case "metadata.name":
            return record.name
        case "metadata.namespace":
            return record.namespace
        case _:
            return record.fields.get(path, "")


class _NoneOf(NamedTuple):
    """All inequalities of one field."""

    path: str
    values: frozenset[str]

    def matches(self, record: Record) -> bool:
        return _field_of(record, self.path) not in self.values


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected objects of a kind. A namespace of None selects all namespaces."""

    namespace: str | None = None
    labels: Selector = EVERYTHING
    fields: tuple[FieldTerm | _NoneOf, ...] = ()

    @property
    def is_everything(self) -> bool:
        """True if nothing but the namespace restricts the selection."""
        return not self.fields and self.labels.is_empty

    def matches(self, record: Record) -> bool:
        if self.namespace is not None and record.namespace != self.namespace:
            return False
        for term in self.fields:  # a loop takes half the time of all(), and each change is matched against every watch
            if not term.matches(record):
                return False
        return self.labels is EVERYTHING or self.labels.matches(record.labels)


ALL: Final = Selection()


def selection(kind: ServedKind, namespace: str | None, labels: str, fields: str) -> Selection:
    """Return the selection for the texts of a request.

    Raises  ApiError 400 with kube-apiserver's message
    """
    label_selector = check_selector(labels) if labels else EVERYTHING
    return Selection(namespace, label_selector, _condensed(parse_fields(kind, fields)) if fields else ())


def check_selector(labels: str) -> Selector:
    """Return the label selector of a request.

    Raises  ApiError 400 with kube-apiserver's message
    """
    try:
        return parse_selector(labels)
    except SelectorError as error:
        raise bad_request(str(error)) from None


def _condensed(terms: tuple[FieldTerm, ...]) -> tuple[FieldTerm | _NoneOf, ...]:
    """Return equivalent terms, at most three for each field, because every object is matched against all of them."""
    equal: dict[str, dict[str, FieldTerm]] = {}
    unequal: dict[str, set[str]] = {}
    for term in terms:
        if not term.equal:
            unequal.setdefault(term.path, set()).add(term.value)
        elif len(some := equal.setdefault(term.path, {})) < 2:  # two different values never match, so more are not needed
            some[term.value] = term
    kept = [term for some in equal.values() for term in some.values()]
    return (*kept, *(_NoneOf(path, frozenset(values)) for path, values in unequal.items()))


def parse_fields(kind: ServedKind, text: str) -> tuple[FieldTerm, ...]:
    """Return the terms of a field selector such as ``spec.nodeName=n1,status.phase!=Running``.

    Raises  ApiError 400
    """
    terms = field_terms(text)
    for term in terms:
        _check_path(kind, term.path)
    return terms


def field_terms(text: str) -> tuple[FieldTerm, ...]:
    """Return the terms of a field selector, whatever their fields.

    Raises  ApiError 400
    """
    terms = [_term(part, text) for part in (_BETWEEN.split(text) if "\\" in text else text.split(",")) if part]
    return tuple(term for term in terms if term.path or term.value)


def _term(part: str, text: str) -> FieldTerm:
    found = _OPERATOR.search(part)
    if found is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
    return FieldTerm(part[: found.start()], _unescaped(part[found.end() :]), found[0] != "!=")


def _unescaped(value: str) -> str:
    for found in _PIECE.finditer(value):
        escape, bare = found.groups()
        if bare is not None:
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(bare)}")
        if escape not in {"\\", ",", "="}:
            raise bad_request(f"invalid field selector: invalid escape sequence: \\{escape}")
    return _PIECE.sub(r"\1", value)


def _check_path(kind: ServedKind, path: str) -> None:
    if path == "metadata.name" or path in kind.field_defaults:
        return
    if path == "metadata.namespace" and (kind.namespaced or (not kind.fields and kind.custom is None)):
        return
    match kind.native:
        case "Job":
            raise bad_request(f"field label {quoted(path)} not supported for Job")
        case "ResourceSlice":
            raise bad_request(f"field label not supported for {kind.api_version}, Kind={kind.kind}: {path}")
        case _ if kind.fields or kind.custom is not None:
            raise bad_request(f"field label not supported: {path}")
        case _:
            raise bad_request(f'{quoted(path)} is not a known field selector: only "metadata.name", "metadata.namespace"')
