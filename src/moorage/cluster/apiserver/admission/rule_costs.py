"""Limit the estimated cost of rules of custom kinds: of each rule, and of all rules of a definition together.

Source  apiextensions-apiserver, pkg/apis/apiextensions/validation: cel_validation.go, validation.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from moorage.api.cel.estimated_sizes import product, total
from moorage.api.validation.faults import forbidden
from moorage.cluster.apiserver.vocabulary.served_kinds import Schema
from moorage.errors import Fault

__all__ = ["RuleCosts", "elements_below"]

#: The cost limits of one expression and of all expressions of a schema.
_PER_EXPRESSION: Final = 10_000_000
_PER_SCHEMA: Final = 100_000_000
#: Maximum number of expressions that faults name: the most expensive ones, if they cost at least a hundredth of the limit.
_MOST_NAMED: Final = 4
_NAMED_SHARE: Final = _PER_SCHEMA // 100
_ADVICE: Final = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared"
)
_OF_SCHEMA: Final = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"


class RuleCosts:
    """The cost of a schema's expressions. ``is_stored``: the schema has not changed, so only the total is limited."""

    def __init__(self, *, is_stored: bool) -> None:
        self._is_stored = is_stored
        self._total = 0
        self._dearest: list[tuple[int, str]] = []

    def add(self, path: str, cost: int, what: str) -> Iterator[Fault]:
        """Add an expression, and yield its fault if it costs too much alone. ``what`` names its cost in messages."""
        if cost > _PER_EXPRESSION and not self._is_stored:
            yield forbidden(path, _exceeded(what, cost, _PER_EXPRESSION))
        self._total = total(self._total, cost)
        if cost >= _NAMED_SHARE:
            self._dearest = sorted([*self._dearest, (cost, path)], key=lambda one: -one[0])[:_MOST_NAMED]

    def faults(self, path: str) -> Iterator[Fault]:
        """Yield the faults of a schema whose expressions cost too much together."""
        if self._total > _PER_SCHEMA:
            yield from (forbidden(where, _OF_SCHEMA) for _, where in self._dearest)
            what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
            yield forbidden(path, _exceeded(what, self._total, _PER_SCHEMA))


def elements_below(schema: Schema, count: int | None) -> int | None:
    """Return the maximum number of values of a schema's direct parts, given the number of its own values; None: no limit."""
    limit: int | None = 1
    if schema.get("type") == "array":
        limit = schema.get("maxItems")
    elif schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping | bool):
        limit = schema.get("maxProperties")
    return None if count is None or limit is None else product(count, max(limit, 0))


def _exceeded(what: str, cost: int, limit: int) -> str:
    times = cost / limit
    shown = "more than 100x" if times > 100 else f"{times:f}x" if times < 1.5 else f"{times:.1f}x"
    return f"{what} exceeds budget by factor of {shown} ({_ADVICE})"
