"""``Capacity``: how many instances of a pod fit, and why the next one does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.basis.printable import counted, one_line, some
from moorage.report.answer import Answer, ending
from moorage.report.style import WIDTH, amounts_text, cells, columns, human, item, paragraph


class StopReason(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A reason why nodes take no further instance. ``resource`` is the one that is exhausted, if any.

    ``nodes``  the number of nodes with this reason; ``detail`` describes what was found on the first of them
    """

    plugin: str
    reason: str
    nodes: int = 0
    resource: str = ""
    detail: str = ""


class CapacityGroup(Struct, frozen=True, rename="camel"):
    """Nodes of one group with the same result.

    ``each``      the number of instances on each node, the largest first
    ``left``      the least and the largest free amount on a node, by resource
    ``eligible``  whether these nodes take instances at all
    """

    group: str
    nodes: tuple[str, ...]
    instances: int
    each: tuple[int, ...]
    left: Mapping[str, tuple[int, int]]
    stopped_by: tuple[StopReason, ...]
    eligible: bool


class CapacityGain(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The gain of a change: ``node`` (one more of a group), ``resource`` (10% more on every node) or ``uncordon``.

    ``more``   instances gained
    ``proof``  ``run`` or ``bound``
    """

    change: str
    more: int
    group: str = ""
    resource: str = ""
    nodes: tuple[str, ...] = ()
    proof: str = "run"


class CapacityPart(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One template: ``per_unit`` of its pods are in a unit. ``asked`` pods were to fit, and ``left_over`` of them do not."""

    template: str
    kind: str
    requests: Mapping[str, int]
    placed: int
    per_unit: int
    asked: int | None = None
    left_over: int | None = None


class Capacity(Answer, frozen=True, kw_only=True):
    """The answer of ``moorage capacity``.

    ``instances``     how many fit; for a mix, how many whole units
    ``per_node``      pods placed, by node
    ``fail_type``     Unschedulable, LimitReached or Quota; Stopped if the count ended early, so that more may fit
    ``message``       the event of the pod that found no node
    ``upper_bound``   the most that fit, however nodes are chosen; None if there is no bound, for the reason ``no_bound``
    ``binding``       why the next instance does not fit on nodes that took the first one
    ``exhausted``     the resources that are too short for one more instance, by node
    ``stranded``      the free amount on eligible nodes that no instance can use, by resource
    ``per_seed``      instances by seed
    ``blocked_by``    the pod that found no node; ``unplaced`` the pods of the unit that was rolled back
    ``preempted``     pods that were evicted for instances
    ``skipped_gains`` why some gains were not computed
    """

    KIND = "Capacity"

    parts: tuple[CapacityPart, ...]
    instances: int
    per_node: Mapping[str, int]
    fail_type: str
    message: str = ""
    per_group: tuple[CapacityGroup, ...] = ()
    upper_bound: int | None = None
    no_bound: str = ""
    binding: tuple[StopReason, ...] = ()
    gains: tuple[CapacityGain, ...] = ()
    exhausted: Mapping[str, tuple[str, ...]] = {}
    stranded: Mapping[str, int] = {}
    per_seed: Mapping[str, int] = {}
    blocked_by: str = ""
    unplaced: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    skipped_gains: str = ""
    pending: tuple[str, ...] = ()

    @property
    def holds(self) -> bool | None:
        """Whether all pods that were asked for fit, or at least one instance; None if that is not known."""
        if any(part.asked is not None for part in self.parts):
            if not any(part.left_over for part in self.parts):
                return True
            return None if self.fail_type == "Stopped" else False
        return self.instances > 0

    def summed_up(self) -> Capacity:
        """Return the answer with its summary set."""
        return replace(self, summary=capacity_summary(self))

    def _answer(self) -> dict[str, Any]:
        counts = list(self.per_seed.values())
        return self._shown(
            "instances", "per_node", "per_group", "fail_type", "message", "upper_bound", "binding", "gains", "exhausted",
            "stranded", "blocked_by", "unplaced", "preempted", templates=self.parts,
            bySeed={"min": min(counts), "max": max(counts), "instances": self.per_seed} if counts else {},
        )  # fmt: skip

    def _node_names(self) -> Collection[str]:
        return [name for group in self.per_group for name in group.nodes]

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        yield _parts(self)
        yield _groups(self, wide=wide)
        yield _nodes(self) if wide else ""
        yield "\n".join(_endings(self, wide=wide))
        yield ending(_certainty(self), wide=wide)


# -- capacity text -----------------------------------------------------------------------------------------------------
# A capacity as text: the number first, then the groups of nodes, what would help, and how certain the number is.

#: How many groups are shown before the rest is counted, and on how many nodes instances are listed one by one.
_GROUPS, _EACH = 12, 8
#: Plugin → the everyday word for what it checks.
_WORDS: Mapping[str, str] = {
    "NodeUnschedulable": "cordoned", "TaintToleration": "taint", "NodeAffinity": "node affinity", "NodeName": "nodeName",
    "NodePorts": "host port", "PodTopologySpread": "spread", "InterPodAffinity": "pod affinity or anti-affinity",
}  # fmt: skip


def capacity_summary(capacity: Capacity) -> str:
    """Return the answer in one sentence."""
    if any(part.asked is not None for part in capacity.parts):
        return _yes_or_no(capacity)
    what, unit = _what(capacity), "instance" if _is_single(capacity) else "unit"
    if not capacity.instances:
        return f"No {unit} of {what} fits: {_reasons_of_none(capacity)}."
    more = f"{capacity.instances} more {unit}s of {what} fit" if capacity.instances > 1 else f"1 more {unit} of {what} fits"
    if capacity.fail_type == "Stopped":
        bound = "" if capacity.upper_bound is None else f", and at most {capacity.upper_bound}"
        return f"At least {more}{bound}: not counted to the end."
    if capacity.fail_type == "LimitReached":
        return f"{more}, which is the limit asked for; more may fit."
    if capacity.fail_type == "Quota":
        return f"{more}; then {capacity.message}."
    return f"{more}; then {_stop(capacity)}."


def _yes_or_no(capacity: Capacity) -> str:
    asked = " and ".join(f"{part.asked} {part.template}" for part in capacity.parts)
    left = [f"{part.left_over} {part.template}" for part in capacity.parts if part.left_over]
    if not left:
        return f"Yes: {asked} fit."
    if capacity.fail_type == "Stopped":
        return f"Undecided: of {asked}, {' and '.join(left)} were not tried."
    return f"No: of {asked}, {' and '.join(left)} find no node."


def _is_single(capacity: Capacity) -> bool:
    return len(capacity.parts) == 1 and capacity.parts[0].per_unit == 1


def _what(capacity: Capacity) -> str:
    if _is_single(capacity):
        return capacity.parts[0].template
    return " + ".join(f"{part.per_unit} {part.template}" for part in capacity.parts)


def _reasons_of_none(capacity: Capacity) -> str:
    if capacity.fail_type == "Quota":
        return capacity.message
    stops = _merged(one for group in capacity.per_group for one in group.stopped_by)
    return _on_nodes(stops) or capacity.message or "there are no nodes"


def _stop(capacity: Capacity) -> str:
    """Return why the next instance does not fit: ``cpu is exhausted on all 5 eligible nodes``."""
    stops = _merged(capacity.binding)
    eligible = sum(len(group.nodes) for group in capacity.per_group if group.eligible)
    words = list(stops)
    if len(words) == 1 and capacity.binding[0].resource and stops[words[0]] == eligible:
        every = f"all {eligible} eligible nodes" if eligible > 1 else "the only eligible node"
        return f"{words[0]} is exhausted on {every}"
    if not words:
        return f"no node accepts another: {capacity.message}" if capacity.message else "no node accepts another"
    return f"no node accepts another: {_on_nodes(stops)}"


def _on_nodes(stops: Mapping[str, int]) -> str:
    ordered = sorted(stops.items(), key=lambda one: -one[1])
    return ", ".join(f"{word} on {counted(nodes, 'node')}" for word, nodes in ordered)


def _merged(stops: Iterator[StopReason] | Sequence[StopReason]) -> dict[str, int]:
    """Return the number of nodes by the reason, in words, why they take no more instances."""
    found: dict[str, int] = {}
    for one in stops:
        word = _word(one)
        found[word] = found.get(word, 0) + one.nodes
    return found


def _word(one: StopReason) -> str:
    return one_line(one.resource or _WORDS.get(one.plugin, one.plugin) or one.reason)


def _parts(capacity: Capacity) -> str:
    if len(capacity.parts) < 2:
        return ""
    asked = any(part.asked is not None for part in capacity.parts)
    rows = [["TEMPLATE", "PLACED", "LEFT OVER", "REQUESTS"], *(_part(part) for part in capacity.parts)]
    kept = rows if asked else [[cell for at, cell in enumerate(row) if at != 2] for row in rows]
    return cells(kept, (40, 8, 9, WIDTH) if asked else (40, 8, WIDTH))


def _part(part: CapacityPart) -> list[str]:
    left = "" if part.left_over is None else str(part.left_over)
    return [one_line(part.template), str(part.placed), left, one_line(amounts_text(part.requests))]


def _groups(capacity: Capacity, *, wide: bool) -> str:
    groups = capacity.per_group if wide else capacity.per_group[:_GROUPS]
    if not groups:
        return ""
    resource = _main_resource(capacity)
    head = ["GROUP", "NODES", "FIT", "EACH", f"{resource.upper()} LEFT", "STOPPED BY"]
    rows = [head, *(_group_row(group, capacity, resource, wide=wide) for group in groups)]
    more = len(capacity.per_group) - len(groups)
    return cells(_right(rows, (1, 2)), (24, 6, 6, 22, 22, WIDTH)) + (f"\n  and {more} more groups: -o wide" if more else "")


def _nodes(capacity: Capacity) -> str:
    """Return the nodes that take instances, with the resources that are too short for one more."""
    names = [name for group in capacity.per_group if group.eligible for name in group.nodes]
    if not names:
        return ""
    rows = [
        [one_line(name), str(capacity.per_node.get(name, 0)), one_line(", ".join(capacity.exhausted.get(name, ())))]
        for name in names
    ]
    return cells(_right([["NODE", "FIT", "EXHAUSTED"], *rows], (1,)), (50, 8, WIDTH))


def _right(rows: list[list[str]], at: Sequence[int]) -> list[list[str]]:
    widths = {column: max(len(row[column]) for row in rows) for column in at}
    return [[cell.rjust(widths[i]) if i in widths else cell for i, cell in enumerate(row)] for row in rows]


def _main_resource(capacity: Capacity) -> str:
    """Return the resource that runs out first, or cpu."""
    known = next((one.resource for one in capacity.binding if one.resource and one.resource != "pods"), "")
    held = [name for group in capacity.per_group for name in group.left]
    return known or ("cpu" if "cpu" in held or not held else held[0])


def _group_row(group: CapacityGroup, capacity: Capacity, resource: str, *, wide: bool) -> list[str]:
    low, high = group.left.get(resource, (0, 0))
    left = "" if resource not in group.left else human(resource, low)
    if human(resource, low) != human(resource, high):
        left += f" … {human(resource, high)}"
    return [one_line(group.group), str(len(group.nodes)), str(group.instances), _each(group, wide=wide), left,
            _stopped(group, capacity, wide=wide)]  # fmt: skip


def _each(group: CapacityGroup, *, wide: bool) -> str:
    if not group.instances:
        return ""
    if len(group.each) <= _EACH or wide:
        return " ".join(map(str, group.each))
    return f"{group.each[-1]} … {group.each[0]}"


def _stopped(group: CapacityGroup, capacity: Capacity, *, wide: bool) -> str:
    gain = next((one for one in capacity.gains if one.change == "uncordon" and set(one.nodes) <= set(group.nodes)), None)
    if not group.eligible and gain is not None:
        return f"✗ cordoned: uncordon {one_line(some(gain.nodes))} → +{gain.more}"
    if group.eligible:
        return ", ".join(dict.fromkeys(map(_word, group.stopped_by)))
    said: dict[str, str] = {}
    for one in group.stopped_by:
        text = _refusal(one)
        said.setdefault(one.detail or _word(one), text if wide else text.partition(";")[0])
    return f"✗ {', '.join(said.values())}"


def _refusal(one: StopReason) -> str:
    word = _word(one)
    return f"{word}: {one_line(one.detail)}" if one.detail not in {"", word} and not one.resource else word


def _endings(capacity: Capacity, *, wide: bool) -> Iterator[str]:
    gains = [one for one in capacity.gains if one.change != "uncordon"]
    said = [_gain(one) for one in gains if wide or one.more]
    if gains and not said:
        said = ["Neither one more node of a group nor 10% more of a resource makes room for another."]
    stranded = {name: left for name, left in capacity.stranded.items() if left}
    if stranded:
        said.append(f"Stranded: {amounts_text(stranded)}.")
    if said:
        yield paragraph(one_line("  ".join(said)), indent="  ", hanging="  ")
    if capacity.skipped_gains:
        yield item(f"What would help was not computed: {capacity.skipped_gains}.")
    if capacity.blocked_by and len(capacity.parts) > 1:
        partial = f"; {some(capacity.unplaced)} of its unit rolled back" if capacity.unplaced else ""
        yield item(f"Blocked by {capacity.blocked_by}{partial}.")
    if capacity.preempted:
        yield item(f"Preempted: {some(capacity.preempted)}.")
    if capacity.pending:
        yield item(f"Pending before and after: {some(capacity.pending)}.")
    if len(capacity.per_seed) > 1:
        low, high = min(capacity.per_seed.values()), max(capacity.per_seed.values())
        yield f"  With {len(capacity.per_seed)} seeds: {low if low == high else f'{low} … {high}'}."
    if wide and capacity.message and capacity.fail_type == "Unschedulable":
        yield item(f"Event: {capacity.message}")
    for one in capacity.assumptions:
        yield item(f"Assumed: {one.value}")


def _gain(one: CapacityGain) -> str:
    what = f"One more {one.group} node" if one.change == "node" else f"10% more {one.resource}"
    return f"{what}: +{one.more}." if one.more >= 0 else f"{what}: {one.more}."


def _certainty(capacity: Capacity) -> str:
    if any(part.asked is not None for part in capacity.parts):
        return "Verified by a run of the engine, each pod in turn."
    if capacity.proof.kind == "bound":
        return "Equal to the upper bound by arithmetic: no other placement fits more."
    if capacity.upper_bound is not None:
        return f"Verified by a run of the engine; by arithmetic, at most {counted(capacity.upper_bound, 'instance')} fit."
    why = f"; no bound by arithmetic: {one_line(capacity.no_bound)}" if capacity.no_bound else ""
    return f"Verified by a run of the engine{why}."


# -- capacity history --------------------------------------------------------------------------------------------------


def capacity_history(found: Sequence[Capacity]) -> str:
    """Return a table with a row for each dump and template, the oldest first; dumps without a date keep their order."""
    rows = [
        [
            one.request.taken_at, some(one.request.files), " + ".join(f"{part.template}" for part in one.parts),
            str(one.instances), "" if one.upper_bound is None else str(one.upper_bound), _what_stopped(one),
        ]
        for one in found
    ]  # fmt: skip
    if all(row[0] for row in rows):
        rows.sort(key=lambda row: row[0])
    return columns(["TAKEN", "DUMP", "TEMPLATE", "FIT", "AT MOST", "STOPPED BY"], rows, right=(3, 4)) + "\n"


def _what_stopped(one: Capacity) -> str:
    if one.fail_type != "Unschedulable":
        return one.fail_type
    return ", ".join(dict.fromkeys(stop.resource or stop.plugin for stop in one.binding)) or "no node accepts it"
