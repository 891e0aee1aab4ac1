"""The result of a sweep as text for people and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from moorage.basis.printable import counted, one_line
from moorage.laboratory.sweeps.grid import SEED, Label, version
from moorage.laboratory.sweeps.jobs import FailedRun
from moorage.laboratory.sweeps.results import MetricSummary, SweepBaseline, SweepGroup, SweepResult, baseline_of
from moorage.report.answer import plain, stopped_text
from moorage.report.comparison import interval_text
from moorage.report.gates import MetricComparison, amount_text, difference_text, json_number, title_of
from moorage.report.run_document import API_VERSION
from moorage.report.style import columns, paragraph

__all__ = ["headline_of", "sweep_document", "sweep_text"]

#: How many failed runs are listed.
_LISTED: Final = 10


def headline_of(found: SweepResult) -> str:
    """Return the first line: the number of runs, how many came from the store, and how many failed."""
    seeds = next((len(axis.values) for axis in found.grid.axes if axis.name == SEED), 1)
    points = counted(len(found.grid) // seeds, "point")
    stored = len(found) - found.made
    made = f"{found.made} made now, {stored} from the store" if stored else "all made now" if found.made else "none to make"
    lost = f", {len(found.failed)} failed" if found.failed else ""
    runs = counted(len(found), "run") if found.stopped is None else f"{len(found)} of {counted(len(found.grid), 'run')}"
    return f"{runs}: {points}, {counted(seeds, 'seed')} each; {made}{lost}."


def sweep_text(found: SweepResult) -> str:
    """Return a table for each metric: the points, their means, and the differences from the baseline."""
    baseline = baseline_of(found.grid, found.against)
    groups = found.groups()
    names = list(dict.fromkeys(name for group in groups for name in group.metrics))
    parts = [headline_of(found)]
    if found.stopped is not None:
        parts[0] += "\n" + paragraph(one_line(stopped_text(found.stopped)), indent="  ", hanging="    ")
    parts += [f"{title_of(name)}\n{_table(name, groups, found, baseline)}" for name in names]
    if found.failed:
        parts.append("\n".join(_failures(found.failed)))
    return "\n\n".join(parts) + "\n"


def _table(name: str, groups: Sequence[SweepGroup], found: SweepResult, baseline: SweepBaseline | None) -> str:
    axes = [axis.name for axis in found.grid.axes if axis.name != SEED and axis.varies]
    header = [*axes, "MEAN", "DEVIATION", "95% INTERVAL"]
    if baseline is not None:
        header += [f"AGAINST {one_line(str(baseline))}", "95% INTERVAL"]
    rows = [_row(name, group, axes, with_difference=baseline is not None) for group in groups if name in group.metrics]
    table = columns(header, rows, right=(len(axes), len(axes) + 1, len(axes) + 3))
    return "\n".join(f"  {line}".rstrip() for line in table.splitlines())


def _row(name: str, group: SweepGroup, axes: Sequence[str], *, with_difference: bool) -> list[str]:
    one = group.metrics[name]
    cells = [*(str(group.labels[axis]) for axis in axes), amount_text(name, one.mean), _deviation(name, one), _ends(name, one)]
    if not with_difference:
        return cells
    change = one.difference
    return [*cells, *(("", "") if change is None else (difference_text(name, change.difference), interval_text(change)))]


def _deviation(name: str, one: MetricSummary) -> str:
    return "" if one.deviation is None else amount_text(name, one.deviation)


def _ends(name: str, one: MetricSummary) -> str:
    low, high = one.interval or (one.least, one.most)
    if low == high:
        return ""
    return f"{'' if one.interval else 'seeds '}{amount_text(name, low)} … {amount_text(name, high)}"


def _failures(failed: Sequence[FailedRun]) -> Iterator[str]:
    yield f"{counted(len(failed), 'run')} failed:"
    for one in failed[:_LISTED]:
        place = " ".join(f"{name}={label}" for name, label in one.labels.items())
        yield one_line(f"  ✗ {place}: {one.message}")
    if len(failed) > _LISTED:
        yield f"  and {len(failed) - _LISTED} more"


# -- the document --------------------------------------------------------------------------------------------------------


def sweep_document(found: SweepResult) -> dict[str, Any]:
    """Return the result as plain data; docs/reference/sweep.schema.json describes it."""
    baseline = baseline_of(found.grid, found.against)
    return {
        "apiVersion": API_VERSION,
        "kind": "Sweep",
        "version": version(),
        "digest": found.grid.digest,
        "summary": headline_of(found),
        **({} if found.stopped is None else {"stopped": plain(found.stopped)}),
        "axes": [{"name": axis.name, "values": [one.label for one in axis.values]} for axis in found.grid.axes],
        **({} if baseline is None else {"baseline": {"axis": baseline.axis, "value": baseline.label}}),
        "groups": [_group(group) for group in found.groups()],
        "runs": [
            {"key": run.key, "point": dict(run.labels), "metrics": {n: json_number(v) for n, v in run.metrics.items()}}
            for run in found.all
        ],
        "failed": [{"key": one.key, "point": dict(one.labels), "message": one.message} for one in found.failed],
    }


def _group(group: SweepGroup) -> dict[str, Any]:
    labels: dict[str, Label] = dict(group.labels)
    return {"point": labels, "metrics": {name: _metric(one) for name, one in group.metrics.items()}}


def _metric(one: MetricSummary) -> dict[str, Any]:
    return {
        "seeds": one.seeds,
        "mean": json_number(one.mean),
        "deviation": json_number(one.deviation),
        "interval": _pair(one.interval),
        "range": _pair((one.least, one.most)),
        **({} if one.difference is None else {"difference": _difference(one.difference)}),
    }


def _difference(change: MetricComparison) -> dict[str, Any]:
    return {
        "mean": json_number(change.difference),
        "interval": _pair(change.interval),
        "exact": change.exact,
        "p": json_number(change.p),
    }


def _pair(ends: tuple[float, float] | None) -> list[float | int | None] | None:
    return None if ends is None else [json_number(end) for end in ends]
