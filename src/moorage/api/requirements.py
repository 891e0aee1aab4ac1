"""Requirements: the parts of a selector, each on one label, and their validation.

A requirement depends only on one label's value or absence, so code that holds labels as columns evaluates it once per distinct
value. Requirements are frozen and their values sorted, so equal requirements are equal objects.

Source  apimachinery, pkg/labels/selector.go, Requirement and NewRequirement
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from moorage.api.names import check_label_value, check_qualified_name
from moorage.api.quantity import parse_int64
from moorage.errors import Fault, InputError

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


class SelectorError(InputError):
    """A selector is invalid; the texts are apimachinery's."""


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """A requirement on one label. ``values`` are sorted, without repeats; operators are the API's names."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    _known: frozenset[str] = field(init=False, repr=False, compare=False)
    _bound: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = frozenset(self.values)
        compares = self.operator in {"Gt", "Lt"} and len(values) == 1
        if len(self.values) > 1:
            object.__setattr__(self, "values", tuple(sorted(values)))
        object.__setattr__(self, "_known", values)
        object.__setattr__(self, "_bound", parse_int64(self.values[0]) if compares else None)

    def matches(self, value: str | None) -> bool:
        """Match one label's value; None means that the label is absent."""
        match self.operator:
            case "In":
                return value is not None and value in self._known
            case "NotIn":
                return value is None or value not in self._known
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return False

    def _compares(self, value: str | None) -> bool:
        number = None if value is None else parse_int64(value)
        if number is None or self._bound is None:
            return False
        return number > self._bound if self.operator == "Gt" else number < self._bound

    def __str__(self) -> str:
        match self.operator:
            case "In" | "NotIn" if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'In' else '!='}{self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "Gt" | "Lt":
                return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{','.join(self.values)}"
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return self.key


def aggregate(faults: Iterable[object]) -> str:
    """Join error texts as Go's aggregate error does: a single one as it is, several in brackets, without repeats."""
    unique = list(dict.fromkeys(map(str, faults)))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def requirement_faults(key: str, operator: str, values: tuple[str, ...], path: str = "") -> list[Fault]:
    """Return the faults of one requirement, in apimachinery's words (pkg/labels, NewRequirement).

    ``path`` is the path of the requirement, such as ``matchExpressions[0]``.
    """
    at = f"{path}." if path else ""
    faults = []
    if wrong := check_qualified_name(key):
        faults.append(invalid(f"{at}key", key, "; ".join(wrong)))
    faults += _value_count_faults(operator, values, at)
    for i, value in enumerate(values):
        if wrong := check_label_value(value):
            faults.append(invalid(f"{at}values[{i}][{key}]", value, "; ".join(wrong)))
    return faults


def _value_count_faults(operator: str, values: tuple[str, ...], at: str) -> list[Fault]:
    match operator:
        case "In" | "NotIn":
            return [] if values else [invalid(f"{at}values", values, "for 'in', 'notin' operators, values set can't be empty")]
        case "Exists" | "DoesNotExist":
            why = "values set must be empty for exists and does not exist"
            return [invalid(f"{at}values", values, why)] if values else []
        case "Gt" | "Lt":
            faults = []
            if len(values) != 1:
                faults.append(invalid(f"{at}values", values, "for 'Gt', 'Lt' operators, exactly one value is required"))
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            faults += [invalid(f"{at}values[{i}]", value, why) for i, value in enumerate(values) if parse_int64(value) is None]
            return faults
        case _:
            return [not_supported(f"{at}operator", operator, NODE_OPERATORS)]


def invalid(path: str, found: str | tuple[str, ...], why: str) -> Fault:
    """Return an ``Invalid value`` fault. An empty list shows as "null", as Go prints a nil slice."""
    return Fault("Invalid value", path, why, found if found or isinstance(found, str) else None)


def not_supported(path: str, found: str, supported: Iterable[str]) -> Fault:
    """Return an ``Unsupported value`` fault."""
    return Fault("Unsupported value", path, f"supported values: {', '.join(map(quoted, supported))}", found)


def quoted(text: str) -> str:
    """Return a text in double quotes."""
    return json.dumps(text, ensure_ascii=False)
