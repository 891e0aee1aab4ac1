"""The feature gates of each release, from the table ``gates.toml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate
from moorage.basis import table_of

_STAGES: Final = {"alpha": ALPHA, "beta": BETA, "ga": STABLE}
#: The first minor release of which gates check the gates that they need.
_CHECKS_NEEDS: Final = 35
_NEVER: Final = 1000


class ReleaseGates(NamedTuple):
    """The gates of a minor release: those that change decisions, those of the others that need a gate, and the others."""

    deciding: Mapping[str, Gate]
    dependent: Mapping[str, Gate]
    inert: frozenset[str]


@cache
def gates_of(series: str) -> ReleaseGates:
    """Return the gates of a minor release such as ``1.36``."""
    minor = _minor(series)
    inert = frozenset([name for name, spans in _inert().items() if any(minor in one for one in spans)])
    return ReleaseGates(dict(_gates("deciding", minor)), dict(_gates("dependent", minor)), inert)


@cache
def gates_table() -> Mapping[str, Mapping[str, str]]:
    """Return ``gates.toml``."""
    return table_of("moorage.api.releases", "gates.toml")


def _gates(section: str, minor: int) -> Iterator[tuple[str, Gate]]:
    for name, history in _histories(section).items():
        last = [step for begin, step in history if begin <= minor]
        if last and last[-1] != "gone":
            yield name, gate_of(last[-1], gates_table()["needs"].get(name, "") if minor >= _CHECKS_NEEDS else "")


@cache
def _histories(section: str) -> Mapping[str, list[tuple[int, str]]]:
    """Return, by gate, what it became in which minor release."""
    found = {}
    for name, history in gates_table()[section].items():
        steps = [step.partition(" ") for step in history.split(", ")]
        found[name] = [(_minor(series), step) for series, _, step in steps]
    return found


@cache
def _inert() -> Mapping[str, list[range]]:
    """Return, by gate that changes nothing, the minor releases that have it."""
    return {name: [_releases_in(one) for one in spans.split(", ")] for name, spans in gates_table()["inert"].items()}


@cache
def gate_of(step: str, needs: str = "") -> Gate:
    """Return the gate that a step of a history describes, such as ``beta off``."""
    stage, *traits = step.split()
    is_on = "on" in traits or (stage != "alpha" and "off" not in traits)
    return Gate(is_on, _STAGES[stage], "locked" in traits, tuple(needs.split()))


@cache
def _releases_in(span: str) -> range:
    """Return the minor releases of a span such as ``1.30-1.32``, ``1.30-`` or ``1.30``."""
    first, dash, last = span.partition("-")
    return range(_minor(first), _minor(last) + 1 if last else _NEVER if dash else _minor(first) + 1)


def _minor(series: str) -> int:
    return int(series.partition(".")[2])
