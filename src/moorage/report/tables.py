"""A run as text for people: what is pending and why, what changed, where pods are placed, and how full the cluster is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from moorage.api.releases import CURRENT, RELEASES
from moorage.basis.printable import one_line, some
from moorage.report.claims_and_groups import claim_tables, group_table
from moorage.report.narrowing import EVERY, Narrowing
from moorage.report.obstacles import obstacle_lines
from moorage.report.outcome import PodOutcome, Run
from moorage.report.run_document import refused_lines
from moorage.report.short_names import shared_end, some_pods
from moorage.report.style import PLAIN, Style, columns, fitted, human, item, lines_of, paragraph

#: Up to this many pods without a controller are listed one by one; more are summed up. So are changed and deleted pods.
FEW_PODS = 20
#: How many names are shown before the rest is only counted.
_NAMES = 3
#: The share in use from which a resource is shown as scarce.
_SCARCE_PERCENT = 90.0


def render(run: Run, *, wide: bool = False, style: Style = PLAIN, narrowing: Narrowing = EVERY) -> str:
    """Return the run's tables. ``wide`` lists every pod with more columns, and every node.

    ``narrowing`` says which pods are listed; counts and the use of the cluster are those of the whole run.
    """
    end = shared_end([node.name for node in run.nodes])
    with lines_of(style.width if style.fits else None, end):
        return _rendered(run, style, narrowing, end, wide=wide)


def _rendered(run: Run, style: Style, narrowing: Narrowing, end: str, *, wide: bool) -> str:
    listed = narrowing.narrowed(run)
    parts = [
        "\n".join(
            [_styled_headline(run, style), *_changes(run), *_waits(run), *_narrowed(run, listed, narrowing), *_ending(end)]
        ),
        *_first(listed, style, wide=wide),
    ]
    placed = listed.in_state("Placed", "Finished")
    if placed:
        table = _each(placed, style) if wide else _by_workload(placed, style)
        parts.append(_section("Placed:", table, style))
    if listed.groups:
        parts.append(group_table(listed.groups, wide=wide, style=style))
    parts += claim_tables(listed.volumes, listed.devices, wide=wide, style=style)
    if run.nodes:
        parts.append(_section("Cluster at the end:", _utilisation(run, style), style))
    if wide and run.nodes:
        parts.append(_nodes(run, style))
    if run.notes:
        notes = "\n".join(fitted(note.text, indent="  ", hanging="    ") for note in run.notes)
        parts.append(_section("About the input:", notes, style))
    return "\n\n".join(parts) + "\n"


def _first(run: Run, style: Style, *, wide: bool) -> Iterator[str]:
    """Yield the most important tables: pods whose node changed, and pods without a node."""
    if run.before is not None and (moved := _differing(run.before, run)):
        yield _section("Changed:", _changed(moved, style, wide=wide), style)
    if pending := run.in_state("Pending"):
        yield _section("Pending:", "\n".join(_why(pending, style, wide=wide)), style)
    if run.refused:
        yield _section("Not created:", "\n".join(refused_lines(run.refused, style)), style)
    if preempted := run.in_state("Preempted"):
        yield _section("Preempted:", _preempted(preempted, style), style)
    if run.lost:
        yield _section("Deleted with their node:", _lost(run.lost, style, wide=wide), style)


def _section(title: str, text: str, style: Style) -> str:
    return f"{style.bold(title)}\n{text}"


def headline(run: Run) -> str:
    """Return the first line: the number of pods in each state."""
    return _styled_headline(run, PLAIN)


def _styled_headline(run: Run, style: Style) -> str:
    basis = RELEASES.get(run.release, CURRENT).basis
    semantics = f"(kube-scheduler {run.release} semantics{basis}, seed {run.seed})"
    is_long = style.fits and len(_counts(run, PLAIN)) + len(semantics) >= style.width
    return f"{_counts(run, style)}{f'{chr(10)}  ' if is_long else ' '}{style.dim(semantics)}"


def _changes(run: Run) -> Iterator[str]:
    """Yield the first line of the run without the changes, and the changes."""
    if run.before is not None:
        yield paragraph(f"before: {_counts(run.before, PLAIN)}", indent="  ", hanging="    ")
        yield item(f"with the changes: {' · '.join(run.changes)}")


def _narrowed(run: Run, listed: Run, narrowing: Narrowing) -> Iterator[str]:
    if narrowing:
        yield f"{len(listed.pods)} of {len(run.pods)} pods are listed: {narrowing}"


def _ending(end: str) -> Iterator[str]:
    """Yield the end that the names of all nodes share, which tables leave out."""
    if end:
        yield f"nodes …{end}"


def _counts(run: Run, style: Style) -> str:
    paint = {"Placed": style.green, "Finished": style.green, "Pending": style.red, "Preempted": style.yellow}
    counts = {state: len(run.in_state(state)) for state in paint}
    said = [paint[state](f"{count} {state.lower()}") for state, count in counts.items() if count] or ["no pods to place"]
    said += [style.red(f"{run.not_created} not created")] if run.refused else []
    said += [style.yellow(f"{len(run.lost)} deleted with their node")] if run.lost else []
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


# -- pods ------------------------------------------------------------------------------------------------------------------


def _each(pods: Iterable[PodOutcome], style: Style) -> str:
    return columns(
        ["NAMESPACE", "NAME", "NODE", "REQUESTS", "PRIORITY", "SCHEDULER", "ATTEMPTS", "ARRIVED", "PLACED"],
        [
            [
                p.namespace, p.name, p.node, _requests(p), str(p.priority), p.scheduler_name, str(p.attempts),
                seconds(p.arrived_s), seconds(p.placed_s),
            ]
            for p in pods
        ],
        right=(4, 6, 7, 8), style=style,
    )  # fmt: skip


def _requests(pod: PodOutcome) -> str:
    return ",".join(f"{name}={human(name, amount)}" for name, amount in pod.requests.items()) or "-"


def seconds(value: float | None) -> str:
    """Write a time in seconds; an empty string for None."""
    return "" if value is None else f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _by_workload(pods: tuple[PodOutcome, ...], style: Style) -> str:
    """Return a table with a row for each workload, and one for each pod without a controller unless there are many."""
    single = sum(not pod.workload for pod in pods) <= FEW_PODS
    groups: dict[tuple[str, str], list[PodOutcome]] = {}
    for pod in pods:
        alone = f"Pod/{pod.name}" if single else "(no controller)"
        groups.setdefault((pod.namespace, pod.workload or alone), []).append(pod)
    rows = [
        [namespace, workload, str(len(group)), _requests_of_each(group), _spread(group)]
        for (namespace, workload), group in groups.items()
    ]
    table = columns(["NAMESPACE", "WORKLOAD", "PODS", "EACH REQUESTS", "NODES"], rows, right=(2,), style=style)
    more = any(len(group) > 1 for group in groups.values())
    return f"{table}\n{style.dim('(-o wide lists every pod)')}" if more else table


def _requests_of_each(pods: list[PodOutcome]) -> str:
    alike = all(pod.requests == pods[0].requests for pod in pods)
    return _requests(pods[0]) if alike else "(various)"


def _spread(pods: list[PodOutcome]) -> str:
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.node] = counts.get(pod.node, 0) + 1
    if len(counts) > _NAMES:
        most = max(counts.values())
        return f"{len(counts)} nodes" + (f", up to {most} on one" if most > 1 else "")
    fullest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{node} x{count}" if count > 1 else node for node, count in fullest)


def _why(pods: Iterable[PodOutcome], style: Style, *, wide: bool) -> Iterator[str]:
    """Yield pending pods with their message; pods that share one are listed together, the message of most pods first."""
    groups: dict[str, list[PodOutcome]] = {}
    for pod in pods:
        groups.setdefault(pod.message, []).append(pod)
    for message, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        names = [f"{p.namespace}/{p.name}" + (f" (nominated to {p.nominated})" if p.nominated else "") for p in group]
        shown = fitted(one_line(_listed(names, group, wide=wide)), indent="  ", hanging="    ")
        yield "\n".join(map(style.red, shown.split("\n")))
        yield from obstacle_lines(message or "not tried", style=style)


def _listed(names: list[str], pods: list[PodOutcome], *, wide: bool) -> str:
    """Return names of pods, the first few without ``wide``; pods of one workload may be one name."""
    if wide:
        return ", ".join(names)
    return some_pods(names) if all(pod.workload for pod in pods) else some(names)


def _preempted(pods: Iterable[PodOutcome], style: Style) -> str:
    rows = [[p.namespace, p.name, p.node, p.preempted_by, p.replaced_by or "-"] for p in pods]
    return columns(["NAMESPACE", "NAME", "NODE", "BY", "REPLACED BY"], rows, style=style)


def _lost(pods: tuple[PodOutcome, ...], style: Style, *, wide: bool) -> str:
    if not wide and len(pods) > FEW_PODS:
        return _by_workload(pods, style)
    rows = [[p.namespace, p.name, p.node, p.replaced_by or "-"] for p in pods]
    return columns(["NAMESPACE", "NAME", "NODE", "REPLACED BY"], rows, style=style)


# -- what the changes did ----------------------------------------------------------------------------------------------------


def _differing(before: Run, after: Run) -> list[tuple[PodOutcome, PodOutcome]]:
    """Return the pods of both runs whose node or state at the end differs."""
    earlier: Mapping[tuple[str, str], PodOutcome] = {(pod.namespace, pod.name): pod for pod in before.pods}
    pairs = ((earlier[key], pod) for pod in after.pods if (key := (pod.namespace, pod.name)) in earlier)
    return [(was, now) for was, now in pairs if _end(was) != _end(now)]


def _end(pod: PodOutcome) -> str:
    return pod.node if pod.state in {"Placed", "Finished"} else pod.state.lower()


def _changed(moved: list[tuple[PodOutcome, PodOutcome]], style: Style, *, wide: bool) -> str:
    shown = moved if wide else moved[:FEW_PODS]
    rows = [[now.namespace, now.name, _end(was), _end(now)] for was, now in shown]
    table = columns(["NAMESPACE", "NAME", "BEFORE", "NOW"], rows, style=style)
    left = len(moved) - len(shown)
    return f"{table}\n{style.dim(f'and {left} more (-o wide lists all)')}" if left else table


# -- nodes -----------------------------------------------------------------------------------------------------------------


def _utilisation(run: Run, style: Style) -> str:
    """Return the table of allocatable and requested resources, with peaks if pods have finished."""
    peaks = run.peaks() if run.in_state("Finished") else {}
    rows = []
    for resource, (offered, asked) in run.totals().items():
        row = [resource, human(resource, offered), human(resource, asked), _percent(asked, offered)]
        most = peaks.get(resource, 0)
        rows.append([*row, human(resource, most), _percent(most, offered)] if peaks else row)
    header = ["RESOURCE", "ALLOCATABLE", "REQUESTED", "USED", *(["PEAK", "PEAK USED"] if peaks else [])]

    def scarce(cell: str) -> str:
        number = cell.strip().removesuffix("%")
        return style.yellow(cell) if number != "-" and float(number) >= _SCARCE_PERCENT else cell

    return columns(header, rows, right=range(1, len(header)), style=style, paint={3: scarce, 5: scarce})


def _percent(asked: int, offered: int) -> str:
    return f"{100 * asked / offered:.1f}%" if offered else "-"


def _nodes(run: Run, style: Style) -> str:
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
    return columns(["NODE", "PODS", "NEW", "CPU", "MEMORY", "EXTENDED"], rows, right=(1, 2), style=style)


def _share(resource: str, asked: int, offered: int) -> str:
    percent = f" ({100 * asked / offered:.0f}%)" if offered else ""
    return f"{human(resource, asked)}/{human(resource, offered)}{percent}"
