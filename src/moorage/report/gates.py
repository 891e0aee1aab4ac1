"""Gates: conditions on a comparison that fail a pipeline, such as ``pending > +0`` or ``wait.p99 > +10%``.

A threshold with a sign is relative to A, one without is absolute. A gate names what is *not* wanted: it fails when its
condition holds for the whole interval, or with ``strict`` for any part of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from moorage.basis import table_of
from moorage.errors import InputError

# -- metric names ------------------------------------------------------------------------------------------------------
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
        return f"{known['before']} {rest}"
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
    ``exact``       every pair has the same difference, so it does not depend on chance
    ``range_of``    the least and the largest difference of a pair, and ``range_of_b`` the same of B
    """

    name: str
    b: float
    a: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    exact: bool = True
    p: float | None = None
    range_of: tuple[float, float] = (0.0, 0.0)
    interval_of_b: tuple[float, float] | None = None
    range_of_b: tuple[float, float] = (0.0, 0.0)

    @property
    def may_be_zero(self) -> bool:
        """Whether chance may explain the difference."""
        low, high = self.interval or self.range_of
        return not self.exact and low <= 0 <= high

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
    key = f"{gate.metric}%" if gate.percent and not gate.relative and gate.metric.startswith("moved") else gate.metric
    found = metrics.get(key)
    if found is None:
        names = sorted(name for name in metrics if not name.endswith("%"))
        raise InputError(f"gate {gate.text!r}: no metric {gate.metric}; there are {', '.join(names)}")
    if found.a is None and (gate.relative or gate.metric in {"newPending", "moved"}):
        raise InputError(f"gate {gate.text!r} compares with a stored run: give --baseline REPORT")
    low, high = found.bounds(relative=gate.relative)
    threshold = _threshold(gate, found.a)
    failed = _is_beyond(gate.operator, low, high, threshold, strict=strict)
    return GateResult(gate.text, not failed, _text(gate, found, threshold), gate.metric)


def _threshold(gate: PipelineGate, a: float | None) -> float:
    if not gate.relative or not gate.percent:
        return gate.value
    assert a is not None
    return math.copysign(math.inf, gate.value) if math.isinf(a) else gate.value * a


def _is_beyond(operator: str, low: float, high: float, threshold: float, *, strict: bool) -> bool:
    """Return whether the interval is beyond the threshold: all of it, or with ``strict`` any part."""
    if operator in {">", ">="}:
        edge = high if strict else low
        return edge > threshold or (operator == ">=" and edge == threshold)
    edge = low if strict else high
    return edge < threshold or (operator == "<=" and edge == threshold)


def _text(gate: PipelineGate, found: MetricComparison, threshold: float) -> str:
    """Return the figures of a gate in one line."""
    if found.a is None:
        return f"{gate.metric} is {amount_text(found.name, found.b)}; the gate is {gate.text}"
    parts = [f"{gate.metric}: A {amount_text(found.name, found.a)}, B {amount_text(found.name, found.b)}"]
    if not found.name.endswith("%"):
        parts.append(f"difference {difference_text(found.name, found.difference)} ({_certainty(found)})")
    if gate.relative and gate.percent:
        parts.append(f"threshold {difference_text(found.name, threshold)}")
    return ", ".join(parts) + f"; the gate is {gate.text}"


def _certainty(found: MetricComparison) -> str:
    if found.exact:
        return "exact"
    low, high = found.interval or found.range_of
    what = "95% interval" if found.interval is not None else "pairs"
    return f"{what} {difference_text(found.name, low)} … {difference_text(found.name, high)}"


# -- run values --------------------------------------------------------------------------------------------------------
# The measurements of one run, in the form of comparisons and stored reports.


class UnplacedPod(Struct, frozen=True):
    """A pod that stays pending: ``namespace/name``, its workload, why, and the plugins that refuse it."""

    pod: str
    workload: str = ""
    message: str = ""
    plugins: tuple[str, ...] = ()


class MeasuredRun(Struct, frozen=True):
    """One run. A metric that is infinite, such as the wait of a pod that stays pending, is ``math.inf``.

    ``placements``  the node of each pod that the run was to place, empty for those without one; None: not known
    ``speed``       decisions per CPU second, which differ from run to run
    """

    seed: int
    release: str
    metrics: Mapping[str, float]
    pending: tuple[UnplacedPod, ...] = ()
    placements: Mapping[str, str] | None = None
    speed: float = 0.0
    notes: tuple[str, ...] = ()


class RunMeasures(Struct, frozen=True):
    """The measurements of a simulation, and its comparison with an earlier one.

    ``digest``       of the input; empty for a trace
    ``gates``        the results of the requested gates
    ``new_pending``  pods that were not pending before
    ``against``      the run that this one was compared with; empty: none
    """

    digest: str
    run: MeasuredRun
    gates: tuple[GateResult, ...] = ()
    new_pending: tuple[UnplacedPod, ...] = ()
    against: str = ""


def json_number(value: float | None, *, exactly: bool = False) -> float | int | None:
    """Return a number for JSON: whole numbers as such, None for what is infinite or undefined; else nine decimals, or all."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else value if exactly else round(value, 9)
