"""Gates: conditions on a comparison that fail a pipeline, such as ``pending > +0`` or ``wait.p99 > +10%``.

A threshold with a sign is relative to A, one without is absolute. A gate names what is *not* wanted: it fails when its
condition holds beyond chance, or with ``strict`` where it may hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from moorage.basis import table_of
from moorage.basis.printable import close_to
from moorage.errors import InputError
from moorage.report.certainty import (
    ENOUGH_EQUAL,
    differences,
    holm,
    is_certain,
    p_above,
    p_of_mean,
    t_interval,
)

# The metrics of runs: their titles, how values are formatted, and whether more is better.


class MetricKind(NamedTuple):
    """``unit``: count, seconds, share, number or price. ``better``: -1 if less is better, 1 if more is, 0 if neither."""

    unit: str
    better: int = -1


_METRICS: Final[Mapping[str, Any]] = table_of("moorage.report", "metrics.toml")
#: What is known of metrics, by the first part of their names.
_KINDS: Final[Mapping[str, Mapping[str, Any]]] = _METRICS["kinds"]
_TITLES: Final[Mapping[str, str]] = _METRICS["titles"]
#: Metric → the words for less and for more of it, and the noun that is counted; and other metrics to mention.
COUNTED: Final[Mapping[str, tuple[str, str, str]]] = _METRICS["counted"]
OTHERS: Final[Sequence[str]] = _METRICS["summary"]["others"]
#: Values below this round to 0 and get no sign.
_NOTHING: Final = 0.0005


def kind_of(name: str) -> MetricKind:
    """Return the kind of a metric. For a name that ends in %, it is a share."""
    if name.endswith("%"):
        return MetricKind("share")
    known = _KINDS.get(name.partition(".")[0], {"unit": "number", "better": 0})
    return MetricKind(known["unit"], known.get("better", -1))


def title_of(name: str) -> str:
    """Return the title of a metric in a table: ``cpu used`` for ``utilisation.cpu``."""
    base = name.removesuffix(".mean")
    over_time = " over time" if base != name else ""
    if base in _TITLES:
        return _TITLES[base] + over_time
    head, _, rest = base.partition(".")
    known = _KINDS.get(head, {})
    if "before" in known:
        return f"{known['before']} {rest or 'mean'}"
    if "after" in known and rest:
        return f"{rest} {known['after']}{over_time}"
    return f"{head} {rest}".strip() + over_time


def amount_text(name: str, value: float | None) -> str:
    """Write a value of a metric: ``12``, ``1.2s``, ``38.2%``, ``0.083``, ``never`` for an infinite wait."""
    if value is None:
        return "?"
    unit = kind_of(name).unit
    if abs(value) < _NOTHING:
        value = 0.0
    if math.isinf(value):
        return "never" if unit == "seconds" else "∞"
    if unit == "share":
        return f"{100 * value:.1f}%"
    if unit == "seconds":
        return f"{_short(value, 3)}s"
    return _short(value, {"count": 1, "price": 4}.get(unit, 3))


def _short(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def difference_text(name: str, value: float | None) -> str:
    """Write a difference with its sign."""
    text = amount_text(name, value)
    if value is not None and math.isinf(value) and kind_of(name).unit == "seconds":
        return "never" if value > 0 else "ends"
    return text if value is None or text.startswith("-") or not text.strip("0.%s") else f"+{text}"


#: The gate that fails when a pod is pending that was not pending before.
NEW_PENDING: Final = "new-pending"
_GATE: Final = re.compile(r"\s*([A-Za-z][\w./-]*)\s*(>=|<=|>|<)\s*([+-]?)\s*(\d+(?:\.\d+)?)\s*(%|s|ms)?\s*")
_ALIASES: Final = {NEW_PENDING: "newPending"}


class MetricComparison(Struct, frozen=True):
    """A metric of A and of B: means over the seeds, and the mean difference with its interval.

    ``a``           None if there is no A
    ``difference``  None without A, and where pairs differ by plus and minus infinity
    ``interval``    Student's 95 % interval of the difference; None for one pair, for equal differences and infinite ones
    ``exact``       chance has no part in the difference: the pairs are equal, and they are five or do not depend on the seed
    ``p``           exact by flipping signs up to 20 pairs, then Student's
    ``of_a``, ``of_b``  the values of the runs, pair by pair
    """

    name: str
    b: float
    a: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    exact: bool = False
    p: float | None = None
    of_a: tuple[float, ...] = ()
    of_b: tuple[float, ...] = ()

    @property
    def runs(self) -> int:
        """How many pairs of runs there are, or how many runs of B."""
        return max(len(self.of_b), 1)

    @property
    def range_of(self) -> tuple[float, float]:
        """The least and the largest difference of a pair."""
        found = differences(self.of_a, self.of_b) if self.of_a else [self.difference or 0.0]
        return min(found), max(found)

    @property
    def range_of_b(self) -> tuple[float, float]:
        """The least and the largest value of B."""
        return min(self.of_b, default=self.b), max(self.of_b, default=self.b)

    @property
    def interval_of_b(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the mean of B."""
        return t_interval(self.of_b)

    @property
    def chance(self) -> float:
        """The two-sided p of the difference by Student's t: 0 where chance has no part in it, 1 for one pair."""
        if self.exact:
            return 0.0
        return p_of_mean(differences(self.of_a, self.of_b)) if len(self.of_a) > 1 else 1.0

    @property
    def may_be_zero(self) -> bool:
        """Whether chance may explain the difference; of one pair, that is not known."""
        if self.exact:
            return False
        low, high = self.interval or self.range_of
        return self.runs < ENOUGH_EQUAL if self.interval is None else low <= 0 <= high

    def bounds(self, *, relative: bool) -> tuple[float, float]:
        """Return the interval of the difference, or of B; without an interval, the least and the largest value."""
        if relative:
            return self.interval or self.range_of
        return self.interval_of_b or self.range_of_b


class PipelineGate(Struct, frozen=True):
    """A condition: ``metric`` ``operator`` ``value``. ``relative``: to A; ``percent``: of A, or of all."""

    text: str
    metric: str
    operator: str = ">"
    value: float = 0.0
    relative: bool = False
    percent: bool = False


class GateResult(Struct, frozen=True):
    """Whether a gate passed, with the figures."""

    gate: str
    passed: bool
    text: str
    metric: str = ""

    def __bool__(self) -> bool:
        return self.passed


def parse_gate(text: str) -> PipelineGate:
    """Parse the text of a gate.

    Raises  InputError
    """
    if text.strip() in (NEW_PENDING, "newPending"):
        return PipelineGate(NEW_PENDING, "newPending")
    found = _GATE.fullmatch(text)
    if found is None:
        raise InputError(
            f"{text!r} is no gate; write a metric, a comparison and a threshold: 'pending > +0', 'wait.p99 > +10%',"
            f" 'nodesUsed > 40', 'moved > 5%', or {NEW_PENDING}"
        )
    metric, operator, sign, number, unit = found.groups()
    name = _ALIASES.get(metric, metric)
    value = float(number) * {"%": 0.01, "ms": 0.001}.get(unit, 1.0) * (-1 if sign == "-" else 1)
    kind = kind_of(name).unit
    if unit in {"s", "ms"} and kind != "seconds":
        raise InputError(f"gate {text!r}: {name} is no time")
    if unit == "%" and not sign and kind != "share" and name.partition(".")[0] != "moved":
        raise InputError(f"gate {text!r}: {name} is no share; +10% is relative to A, a number without % is absolute")
    return PipelineGate(" ".join(text.split()), name, operator, value, bool(sign), unit == "%")


def evaluate(gate: PipelineGate, metrics: Mapping[str, MetricComparison], *, strict: bool = False) -> GateResult:
    """Return whether a gate passes. ``moved`` in percent is looked up as ``moved%``.

    Raises  InputError for a metric that is not in the comparison, and for a relative gate without A
    """
    return evaluate_all([gate], metrics, strict=strict)[0]


#: The chance that a gate fails although its condition does not hold: one end of a 95 % interval.
_FALSE_ALARM: Final = 0.025


def evaluate_all(
    gates: Sequence[PipelineGate], metrics: Mapping[str, MetricComparison], *, strict: bool = False
) -> tuple[GateResult, ...]:
    """Return whether each gate passes; together, they fail falsely as rarely as one gate does alone (Holm).

    A gate fails if its whole 95 % interval is beyond the threshold, with ``strict`` if any part of it is. Where chance has no
    part in a metric, and with one run, its value decides.

    Raises  InputError for a metric that is not in the comparison, and for a relative gate without A
    """
    held = [_measured(gate, metrics) for gate in gates]
    chances = {str(at): _chance(gate, found) for at, (gate, found) in enumerate(zip(gates, held, strict=True))}
    failing = holm({at: chance for at, chance in chances.items() if chance is not None}, _FALSE_ALARM)
    results = []
    for at, (gate, found) in enumerate(zip(gates, held, strict=True)):
        chance = chances[str(at)]
        failed = _may_be_beyond(gate, found) if chance is None or strict else str(at) in failing
        corrected = not failed and chance is not None and chance <= _FALSE_ALARM
        more = f", and with {len(chances)} gates that may be chance" if corrected else ""
        results.append(GateResult(gate.text, not failed, _text(gate, found, more), gate.metric))
    return tuple(results)


def _measured(gate: PipelineGate, metrics: Mapping[str, MetricComparison]) -> MetricComparison:
    key = f"{gate.metric}%" if gate.percent and not gate.relative and gate.metric.startswith("moved") else gate.metric
    found = metrics.get(key)
    if found is None:
        names = sorted(name for name in metrics if not name.endswith("%"))
        close = close_to(gate.metric, names)
        raise InputError(f"gate {gate.text!r}: no metric {gate.metric}" + (close or f"; there are {', '.join(names)}"))
    if found.a is None and (gate.relative or gate.metric in {"newPending", "moved"}):
        raise InputError(f"gate {gate.text!r} compares with a stored run: give --baseline REPORT")
    return found


def _excess(gate: PipelineGate, found: MetricComparison) -> list[float]:
    """Return by how much each run is beyond the threshold, and below 0 where it is not."""
    if not gate.relative:
        beyond = differences([gate.value] * found.runs, found.of_b or (found.b,))
    elif not gate.percent:
        held = differences(found.of_a, found.of_b) if found.of_a else [found.difference or 0.0]
        beyond = differences([gate.value] * len(held), held)
    else:
        beyond = [_beyond_share(gate.value, a, b) for a, b in zip(found.of_a, found.of_b, strict=True)]
    return [-one for one in beyond] if gate.operator in {"<", "<="} else beyond


def _beyond_share(share: float, a: float, b: float) -> float:
    """Return by how much b is beyond a and this share of it. Beyond what is infinite is nothing, on the side of the share."""
    if math.isinf(a):
        return -math.copysign(math.inf, share) if share else (0.0 if a == b else b)
    return differences([a], [b], 1.0 + share)[0]


def _chance(gate: PipelineGate, found: MetricComparison) -> float | None:
    """Return the p of a gate's condition; None where the runs leave nothing to chance, or are one."""
    excess = _excess(gate, found)
    of_a = found.of_a if gate.relative else (0.0,) * found.runs
    return None if len(excess) == 1 or is_certain(of_a, found.of_b) else p_above(excess)


def _may_be_beyond(gate: PipelineGate, found: MetricComparison) -> bool:
    """Return whether any part of the interval is beyond the threshold; of equal runs, and of one, the value."""
    excess = _excess(gate, found)
    _, high = t_interval(excess) or (0.0, max(excess))
    return high > 0 or (high == 0 and gate.operator in {">=", "<="})


def _threshold(gate: PipelineGate, a: float | None) -> float:
    if not gate.relative or not gate.percent:
        return gate.value
    assert a is not None
    return math.copysign(math.inf, gate.value) if math.isinf(a) else gate.value * a


def _text(gate: PipelineGate, found: MetricComparison, more: str) -> str:
    """Return the figures of a gate in one line."""
    if found.a is None:
        return f"{gate.metric} is {amount_text(found.name, found.b)}; the gate is {gate.text}"
    parts = [f"{gate.metric}: A {amount_text(found.name, found.a)}, B {amount_text(found.name, found.b)}"]
    if not found.name.endswith("%"):
        parts.append(f"difference {difference_text(found.name, found.difference)} ({_certainty(found)})")
    if gate.relative and gate.percent:
        parts.append(f"threshold {difference_text(found.name, _threshold(gate, found.a))}")
    return f"{', '.join(parts)}; the gate is {gate.text}{more}"


def _certainty(found: MetricComparison) -> str:
    if found.runs == 1:
        return ONE_RUN
    if found.exact:
        return f"exact, n={found.runs}"
    low, high = found.interval or found.range_of
    what = "95% interval" if found.interval is not None else "pairs"
    p = "" if found.p is None else f", p={p_text(found.p)}"
    return f"{what} {difference_text(found.name, low)} … {difference_text(found.name, high)}, n={found.runs}{p}"


#: What stands in place of an interval where there is one run of each side.
ONE_RUN: Final = "one run"


def p_text(p: float) -> str:
    """Write a p with two digits: ``0.0020``, ``0.38``, ``<0.0001``."""
    return "<0.0001" if p < 0.0001 else f"{p:.2g}"
