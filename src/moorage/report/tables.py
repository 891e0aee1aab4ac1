"""A run as text for people: pods placed, pending (and why) and preempted, and how full the cluster is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.printable import one_line
from moorage.report.claim_report import claim_tables
from moorage.report.columns import columns, human
from moorage.report.group_report import group_table
from moorage.report.outcome import PodOutcome, Run
from moorage.report.refused_report import refused_lines
from moorage.report.style import paragraph

__all__ = ["EVERY_POD", "headline", "render"]

#: The plain table lists up to this many pods; with more, it sums up by workload.
EVERY_POD = 100
#: How many names are shown before the rest is only counted.
_NAMES = 3


def render(run: Run, *, wide: bool = False) -> str:
    """Return the run's tables. ``wide`` lists every pod with more columns, and every node."""
    parts = ["\n".join([headline(run), *_changes(run), *_waits(run)])]
    placed = run.in_state("Placed", "Finished")
    if placed:
        parts.append(_each(placed, wide=wide) if wide or len(placed) <= EVERY_POD else _by_workload(placed))
    pending = run.in_state("Pending")
    if pending:
        parts.append("\n".join(["Pending:", *_why(pending, wide=wide)]))
    if run.refused:
        parts.append("\n".join(["Not created:", *refused_lines(run.refused)]))
    preempted = run.in_state("Preempted")
    if preempted:
        parts.append("\n".join(["Preempted:", _preempted(preempted)]))
    if run.lost:
        parts.append("\n".join(["Deleted with their node:", _lost(run.lost, wide=wide)]))
    if run.groups:
        parts.append(group_table(run.groups, wide=wide))
    parts += claim_tables(run.volumes, run.devices, wide=wide)
    if run.nodes:
        parts.append("\n".join(["Cluster at the end:", _utilisation(run)]))
    if wide and run.nodes:
        parts.append(_nodes(run))
    if run.notes:
        parts.append("\n".join(["About the input:", *(f"  {note.text}" for note in run.notes)]))
    return "\n\n".join(parts) + "\n"


def headline(run: Run) -> str:
    """Return the first line: how many pods came to which end."""
    return f"{_counts(run)} (kube-scheduler {run.release} semantics, seed {run.seed})"


def _changes(run: Run) -> Iterator[str]:
    """Yield how it was without the changes, and the changes."""
    if run.before is not None:
        yield paragraph(f"before: {_counts(run.before)}", indent="  ", hanging="    ")
        yield paragraph(one_line(f"with the changes: {' · '.join(run.changes)}"), indent="  ", hanging="    ")


def _counts(run: Run) -> str:
    counts = {state: len(run.in_state(state)) for state in ("Placed", "Finished", "Pending", "Preempted")}
    said = [f"{count} {state.lower()}" for state, count in counts.items() if count] or ["no pods to place"]
    said += [f"{run.not_created} not created"] if run.refused else []
    said += [f"{len(run.lost)} deleted with their node"] if run.lost else []
    nodes = f"{len(run.nodes)} node{'s' if len(run.nodes) != 1 else ''}"
    return f"{', '.join(said)} on {nodes}"


def _waits(run: Run) -> Iterator[str]:
    """Yield a line on the pods that were placed after waiting."""
    waits = sorted(
        pod.placed_s - pod.arrived_s for pod in run.pods if pod.placed_s is not None and pod.placed_s > pod.arrived_s
    )
    if len(waits) == 1:
        yield f"1 pod waited for its place: {seconds(waits[0])} of simulated time"
    elif waits:
        middle, longest = seconds(waits[(len(waits) - 1) // 2]), seconds(waits[-1])
        yield f"{len(waits)} pods waited for their places: half of them up to {middle}, the longest {longest} of simulated time"


def _each(pods: Iterable[PodOutcome], *, wide: bool) -> str:
    if not wide:
        return columns(
            ["NAMESPACE", "NAME", "NODE", "REQUESTS"],
            [[p.namespace, p.name, p.node, _requests(p)] for p in pods],
        )
    return columns(
        ["NAMESPACE", "NAME", "NODE", "REQUESTS", "PRIORITY", "SCHEDULER", "ATTEMPTS", "ARRIVED", "PLACED"],
        [
            [
                p.namespace, p.name, p.node, _requests(p), str(p.priority), p.scheduler_name, str(p.attempts),
                seconds(p.arrived_s), seconds(p.placed_s),
            ]
            for p in pods
        ],
        right=(4, 6, 7, 8),
    )  # fmt: skip


def _requests(pod: PodOutcome) -> str:
    return ",".join(f"{name}={human(name, amount)}" for name, amount in pod.requests.items()) or "-"


def seconds(value: float | None) -> str:
    """Write a time in seconds; an empty string for None."""
    return "" if value is None else f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _by_workload(pods: Iterable[PodOutcome]) -> str:
    groups: dict[tuple[str, str], list[PodOutcome]] = {}
    for pod in pods:
        groups.setdefault((pod.namespace, pod.workload or "(no controller)"), []).append(pod)
    rows = [[namespace, workload, str(len(group)), _spread(group)] for (namespace, workload), group in groups.items()]
    table = columns(["NAMESPACE", "WORKLOAD", "PODS", "NODES"], rows, right=(2,))
    return f"{table}\n(use -o wide for every pod)"


def _spread(pods: list[PodOutcome]) -> str:
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.node] = counts.get(pod.node, 0) + 1
    if len(counts) > _NAMES:
        most = max(counts.values())
        return f"{len(counts)} nodes" + (f", up to {most} on one" if most > 1 else "")
    fullest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{node} x{count}" if count > 1 else node for node, count in fullest)


def _why(pods: Iterable[PodOutcome], *, wide: bool) -> Iterator[str]:
    """Yield pending pods with their message; pods that share one are listed together."""
    groups: dict[str, list[PodOutcome]] = {}
    for pod in pods:
        groups.setdefault(pod.message, []).append(pod)
    for message, group in groups.items():
        names = [f"{p.namespace}/{p.name}" + (f" (nominated to {p.nominated})" if p.nominated else "") for p in group]
        shown = names if wide else names[:_NAMES]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        yield f"  {one_line(', '.join(shown))}{more}"
        yield paragraph(one_line(message) or "not tried", indent="    ", hanging="      ")


def _preempted(pods: Iterable[PodOutcome]) -> str:
    rows = [[p.namespace, p.name, p.node, p.preempted_by, p.replaced_by or "-"] for p in pods]
    return columns(["NAMESPACE", "NAME", "NODE", "BY", "REPLACED BY"], rows)


def _lost(pods: tuple[PodOutcome, ...], *, wide: bool) -> str:
    if not wide and len(pods) > EVERY_POD:
        return _by_workload(pods)
    rows = [[p.namespace, p.name, p.node, p.replaced_by or "-"] for p in pods]
    return columns(["NAMESPACE", "NAME", "NODE", "REPLACED BY"], rows)


def _utilisation(run: Run) -> str:
    """Return the table of allocatable and requested resources, with peaks if pods have finished."""
    peaks = run.peaks() if run.in_state("Finished") else {}
    rows = []
    for resource, (offered, asked) in run.totals().items():
        row = [resource, human(resource, offered), human(resource, asked), _percent(asked, offered)]
        most = peaks.get(resource, 0)
        rows.append([*row, human(resource, most), _percent(most, offered)] if peaks else row)
    header = ["RESOURCE", "ALLOCATABLE", "REQUESTED", "USED", *(["PEAK", "PEAK USED"] if peaks else [])]
    return columns(header, rows, right=range(1, len(header)))


def _percent(asked: int, offered: int) -> str:
    return f"{100 * asked / offered:.1f}%" if offered else "-"


def _nodes(run: Run) -> str:
    rows = [
        [
            node.name,
            f"{node.pods}/{node.allowed_pods}",
            str(node.placed),
            *(
                _share(resource, node.requested.get(resource, 0), node.allocatable.get(resource, 0))
                for resource in ("cpu", "memory")
            ),
            ",".join(
                f"{name}={node.requested.get(name, 0)}/{amount}"
                for name, amount in node.allocatable.items()
                if "/" in name and amount
            ),
        ]
        for node in run.nodes
    ]
    return columns(["NODE", "PODS", "NEW", "CPU", "MEMORY", "EXTENDED"], rows, right=(1, 2))


def _share(resource: str, asked: int, offered: int) -> str:
    percent = f" ({100 * asked / offered:.0f}%)" if offered else ""
    return f"{human(resource, asked)}/{human(resource, offered)}{percent}"
