"""Selectors in access reviews: their validation, and errors for requirements that cannot be parsed.

RBAC decides without selectors. A selector that cannot be parsed does not fail a review; its status names it.

Source  kubernetes, pkg/apis/authorization/validation; pkg/registry/authorization/util/helpers.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from moorage.api.names import check_label_value
from moorage.api.selectors import SelectorError, parse_selector
from moorage.api.validation.faults import forbidden, invalid, label_name, named, required
from moorage.apiserver.storage.list_selection import field_terms
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.statuses import ApiError
from moorage.errors import Fault

__all__ = ["selector_errors", "selector_faults"]

Faults = Iterator[Fault]
_PATH: Final = "spec.resourceAttributes"
_WITH_VALUES: Final = frozenset(["In", "NotIn"])
_WITHOUT_VALUES: Final = frozenset(["DoesNotExist", "Exists"])
_KINDS: Final = ("fieldSelector", "labelSelector")


def selector_faults(attributes: Document) -> Faults:
    """Yield the faults of the selectors in the resource attributes of a review."""
    for kind in _KINDS:
        selector, path = attributes.get(kind), f"{_PATH}.{kind}"
        if selector is None:
            continue
        raw, asked = selector.get("rawSelector"), selector.get("requirements")
        if raw and asked:
            yield invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
        if not raw and not asked:
            yield required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required")
        for i, one in enumerate(asked or ()):
            yield from _requirement_faults(f"{path}.requirements[{i}]", one, is_label=kind == "labelSelector")


def _requirement_faults(path: str, asked: Document, *, is_label: bool) -> Faults:
    key, operator, values = asked.get("key") or "", asked.get("operator"), asked.get("values") or ()
    if not is_label and not key:
        yield required(f"{path}.key", "must be specified")
    if operator in _WITH_VALUES and not values:
        yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    if operator in _WITHOUT_VALUES and values:
        yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    if is_label:
        yield from label_name(f"{path}.key", key)
        for i, value in enumerate(values):
            yield from named(f"{path}.values[{i}]", value, check_label_value)


def selector_errors(attributes: Document) -> str:
    """Return an error for each selector that the decision ignores, at least in part, because it cannot be parsed."""
    ignored = [f"{_PATH}.{kind} {how}" for kind in _KINDS if (how := _ignored(kind, attributes.get(kind) or {}))]
    return "; ".join(ignored)


def _ignored(kind: str, selector: Document) -> str:
    asked, raw = selector.get("requirements") or (), selector.get("rawSelector")
    if asked:
        read = [_IS_READ[kind](one) for one in asked]
        parsed, is_whole = any(read), all(read)
    else:
        parsed, is_whole = False, not raw or _is_selector(kind, raw)
    return "" if is_whole else f"{'partially ' if parsed else ''}ignored due to parse error"


def _is_selector(kind: str, raw: str) -> bool:
    try:
        _PARSERS[kind](raw)
    except (ApiError, SelectorError):
        return False
    return True


_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {"fieldSelector": field_terms, "labelSelector": parse_selector}
#: By kind of selector: returns whether a valid requirement is evaluated. Those on fields must have exactly one value.
_IS_READ: Final[Mapping[str, Callable[[Document], bool]]] = {
    "fieldSelector": lambda one: one.get("operator") in _WITH_VALUES and len(one.get("values") or ()) == 1,
    "labelSelector": lambda one: one.get("operator") in _WITH_VALUES | _WITHOUT_VALUES,
}
