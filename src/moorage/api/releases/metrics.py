"""The metrics of each release, from ``metrics.toml``: the one truth for ``/metrics`` and for comparisons of releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from moorage.api.releases import RELEASES
from moorage.basis import table_of


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of buckets as Prometheus' Go client computes them: each is the previous one times the factor."""
    bounds = []
    for _ in range(count):
        bounds.append(start)
        start *= factor
    return tuple(bounds)


@dataclass(frozen=True, slots=True)
class Spec:
    """Name, help, labels and buckets of a metric. ``stability``: ``ALPHA``, ``BETA`` or ``STABLE``; "" for Moorage's own.

    ``hidden``      counted but not shown: the emulated release does not have it, or hides it because it is ``deprecated``
    ``deprecated``  the release that deprecated it, such as ``1.23.0``
    ``gate``        the feature gate that must be open for it to be shown
    ``of``          the metric whose values it shows under an earlier name
    """

    name: str
    help: str
    stability: str = "ALPHA"
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    hidden: bool = False
    deprecated: str = ""
    gate: str = ""
    of: str = ""

    @property
    def text(self) -> str:
        since = f"(Deprecated since {self.deprecated}) " if self.deprecated else ""
        return f"[{self.stability}] {since}{self.help}" if self.stability else self.help


#: The minor release whose metrics the table has as a whole.
_WHOLE: Final = RELEASES["1.36"].minor


@cache
def metrics_of(release: str) -> Mapping[str, Spec]:
    """Return the metrics of a release: those of 1.36 by their name there, hidden where the release lacks them, and those that
    only other releases have."""
    return _of_series(RELEASES[release].minor)


def own_metrics() -> dict[str, Spec]:
    """Return Moorage's own metrics."""
    return {name: Spec(name, row["help"], "", tuple(row.get("labels", ()))) for name, row in _table()["moorage"].items()}


@cache
def _of_series(minor: int) -> Mapping[str, Spec]:
    found = dict(_of_series(minor + (1 if minor < _WHOLE else -1))) if minor != _WHOLE else {}
    rows = _table().get(f"1.{minor}", {})
    for name in rows.get("gone", ()):
        del found[name]
    found |= {name: replace(found[name], hidden=True) for name in rows.get("hidden", ())}
    for name, row in rows.items():
        if isinstance(row, dict):
            base = replace(_of_series(_WHOLE)[row["of"]], name=name) if "of" in row else Spec(name, "")
            found[name] = replace(found.get(name, base), **{field: _value(given) for field, given in row.items()})
    return found


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    return table_of("moorage.api.releases", "metrics.toml")


def _value(given: Any) -> Any:
    match given:
        case {"exponential": [start, factor, count]}:
            return exponential(start, factor, count)
        case list():
            return tuple(given)
    return given
