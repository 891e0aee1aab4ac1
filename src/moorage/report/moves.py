"""What a descheduler's cycles and other requests change, as text and as documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from msgspec import Struct

from moorage.basis.printable import counted, one_line
from moorage.report.answer import Answer
from moorage.report.short_names import some_pods
from moorage.report.style import columns, human, item, paragraph

#: How many lines of a kind the text shows without -o wide.
_SHOWN = 8

DescheduleOutcome = Literal["moves", "stays", "pending", "lost"]


class DescheduledPod(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An eviction. ``outcome``: whether the replacement moves, stays on the node, is pending, or nothing replaces the pod."""

    pod: str
    profile: str
    plugin: str
    node: str
    outcome: DescheduleOutcome
    to: str = ""
    replacement: str = ""
    why: str = ""


class CycleReport(Struct, frozen=True, rename="camel", kw_only=True):
    """One cycle. ``refused``: evictions by the limit or the budget that refused them; ``pending``: more pods than at first."""

    number: int
    at_seconds: float
    evicted: tuple[DescheduledPod, ...] = ()
    refused: Mapping[str, int] = {}
    errors: tuple[str, ...] = ()
    pending: int = 0


class NodeClass(Struct, frozen=True, rename="camel"):
    """A node as a plugin sees it before the first cycle: its ``category``, and what its pods use, in percent by resource."""

    plugin: str
    node: str
    category: str
    shares: Mapping[str, float]


class OscillatingPod(Struct, frozen=True, rename="camel"):
    """A pod that is evicted again after its replacement was placed; ``nodes``: those it was evicted from."""

    pod: str
    evictions: int
    nodes: tuple[str, ...]


def deschedule_summary(cycles: Sequence[CycleReport], again: Sequence[OscillatingPod], pending: Sequence[str]) -> str:
    """Return the first line: how many pods are evicted, where they go, and whether it ends."""
    total = Counter(pod.outcome for one in cycles for pod in one.evicted)
    if not total:
        why = next((error for one in cycles for error in one.errors), "")
        return f"{counted(len(cycles), 'cycle')} evict{'s' * (len(cycles) == 1)} no pod{f': {why}' if why else '.'}"
    words: dict[DescheduleOutcome, str] = {
        "moves": "move", "stays": "come back to their node", "pending": "have no node for their replacement",
        "lost": "are not replaced",
    }  # fmt: skip
    fates = ", ".join(f"{total[key]} {word}" for key, word in words.items() if total[key])
    last = max(one.number for one in cycles if one.evicted)
    if last < len(cycles):
        end = f"Nothing is evicted after cycle {last}"
    else:
        end = f"The evictions go on in the last of {counted(len(cycles), 'cycle')}"
    repeated = f"; {counted(len(again), 'pod')} {'is' if len(again) == 1 else 'are'} evicted more than once" if again else ""
    stay = f"; {counted(len(pending), 'pod')} {'is' if len(pending) == 1 else 'are'} pending in the end" if pending else ""
    return f"{counted(total.total(), 'eviction')}: {fates}. {end}{repeated}{stay}."


class DescheduleReport(Answer, frozen=True, kw_only=True):
    """The answer. ``protected``: pods on nodes by the first reason why DefaultEvictor protects them, before the first cycle.

    ``nodes_in_use``  nodes with pods other than those of daemon sets, before and after
    ``classes``       the nodes as plugins for utilization see them; ``idle``: why such a plugin does nothing, in its words
    """

    KIND = "DescheduleReport"

    cycles: tuple[CycleReport, ...] = ()
    oscillating: tuple[OscillatingPod, ...] = ()
    pending: tuple[str, ...] = ()
    protected: Mapping[str, int] = {}
    classes: tuple[NodeClass, ...] = ()
    idle: tuple[str, ...] = ()
    nodes_in_use: tuple[int, int] = (0, 0)
    asked_cycles: int = 10

    @property
    def settles(self) -> bool:
        """Whether the last cycle evicts nothing."""
        return not self.cycles[-1].evicted

    @property
    def holds(self) -> bool | None:
        """Yes if the evictions come to an end and leave no pod pending; undecided if cycles are missing."""
        if self.pending:
            return False
        return None if len(self.cycles) < self.asked_cycles else self.settles

    def _answer(self) -> dict[str, Any]:
        before, after = self.nodes_in_use
        in_use = {"before": before, "after": after}
        return self._shown("cycles", "oscillating", "pending", "protected", "classes", "idle", "settles", nodesInUse=in_use)

    def _node_names(self) -> set[str]:
        return {name for one in self.cycles for pod in one.evicted for name in (pod.node, pod.to) if name}

    def _blocks(self, *, wide: bool) -> Iterable[str]:
        parts = self._cycle_rows(), self._plugins(), self._evictions(wide), self._again(wide), self._kept(wide), self._end(wide)
        return map("\n".join, (*parts[:1], self._node_classes(wide), *parts[1:]))

    def _node_classes(self, wide: bool) -> Iterator[str]:
        """Yield the classes of nodes by plugin, the fullest first; without ``wide`` only where a plugin does nothing."""
        yield from (item(f"! {why}") for why in self.idle)
        plugins = {one.plugin for one in self.classes} if wide else {why.partition(":")[0] for why in self.idle}
        listed = [one for one in self.classes if one.plugin in plugins]
        names = list(dict.fromkeys(name for one in listed for name in one.shares))
        listed.sort(key=lambda one: (one.plugin, -max(one.shares.values(), default=0.0), one.node))
        shown = listed if wide else listed[:_SHOWN]
        rows = [
            [one_line(one.node), one.category, *(f"{one.shares[name]:.1f}%" if name in one.shares else "" for name in names)]
            for one in shown
        ]
        if rows:
            yield columns(["NODE", "CLASS", *(name.upper() for name in names)], rows, right=range(2, 2 + len(names))).rstrip(
                "\n"
            )
        if len(shown) < len(listed):
            yield f"  and {len(listed) - len(shown)} more: -o wide"

    def _cycle_rows(self) -> Iterator[str]:
        rows = []
        for one in self.cycles:
            fate = Counter(pod.outcome for pod in one.evicted)
            counts = (fate["moves"], fate["stays"], fate["pending"] + fate["lost"], sum(one.refused.values()))
            rows.append(
                [str(one.number), f"{one.at_seconds:g}s", str(len(one.evicted)), *(str(n) if n else "" for n in counts)]
            )
        head = ["CYCLE", "AT", "EVICTED", "MOVE", "COME BACK", "NO NODE", "REFUSED"]
        yield columns(head, rows, right=range(7)).rstrip("\n")

    def _plugins(self) -> Iterator[str]:
        found = Counter((pod.profile, pod.plugin) for one in self.cycles for pod in one.evicted)
        if found:
            profiles = len({profile for profile, _ in found}) > 1
            rows = [
                [f"{profile}/{plugin}" if profiles else plugin, str(number)]
                for (profile, plugin), number in found.most_common()
            ]
            yield columns(["PLUGIN", "EVICTED"], rows, right=[1]).rstrip("\n")

    def _evictions(self, wide: bool) -> Iterator[str]:
        listed = [(one.number, pod) for one in self.cycles for pod in one.evicted]
        signs = {"moves": "✓", "stays": "!", "pending": "✗", "lost": "✗"}
        words = {"pending": "pending", "lost": "not replaced"}
        rows = [
            [signs[pod.outcome], str(number), one_line(pod.pod), one_line(pod.node), one_line(pod.to) or words[pod.outcome]]
            for number, pod in (listed if wide else listed[:_SHOWN])
        ]
        if rows:
            yield columns(["", "CYCLE", "POD", "FROM", "TO"], rows).rstrip("\n")
        if len(rows) < len(listed):
            yield f"  and {len(listed) - len(rows)} more: -o wide"
        reasons: dict[str, list[str]] = {}
        for _, pod in listed:
            reasons.setdefault(pod.why, []).append(pod.replacement or pod.pod)
        yield from (item(f"✗ {some_pods(pods)}: {why}") for why, pods in reasons.items() if why)

    def _again(self, wide: bool) -> Iterator[str]:
        for one in self.oscillating if wide else self.oscillating[:_SHOWN]:
            path = " → ".join(one.nodes)
            yield item(f"! {one.pod} is evicted {one.evictions} times: {path}")
        if not wide and len(self.oscillating) > _SHOWN:
            yield f"  and {len(self.oscillating) - _SHOWN} more: -o wide"

    def _kept(self, wide: bool) -> Iterator[str]:
        refused = sum((Counter(one.refused) for one in self.cycles), Counter[str]())
        for why, number in refused.most_common(None if wide else 3):
            yield item(f"refused ×{number}: {why}")  # noqa: RUF001
        for error in dict.fromkeys(error for one in self.cycles for error in one.errors):
            yield item(f"! {error}")
        for why, number in list(self.protected.items())[: None if wide else 4]:
            yield item(f"protected ×{number}: {why}")  # noqa: RUF001

    def _end(self, wide: bool) -> Iterator[str]:
        before, after = self.nodes_in_use
        yield f"  nodes in use: {before} before, {after} after"
        if self.pending:
            yield item(f"✗ pending: {some_pods(self.pending)}")
        for one in self.assumptions if wide else ():
            yield item(f"Assumed: {one.name}: {one.value}")


# -- rightsize report --------------------------------------------------------------------------------------------------

#: How many changes the text shows without -o wide.
_RIGHTSIZE_REPORT_SHOWN = 12


class RequestChange(Struct, frozen=True, rename="camel"):
    """Another request of a container, in millicores or bytes. ``measured``: how many of the workload's pods were."""

    workload: str
    container: str
    resource: str
    before: int
    after: int
    pods: int
    measured: int
    step: int


class NodePressure(Struct, frozen=True, rename="camel"):
    """The node that is fullest by measured use, its share, and how many nodes are above 90 %."""

    resource: str
    node: str
    share: float
    above: int


class RightsizeStep(Struct, frozen=True, rename="camel"):
    """The cluster after a step. ``requested``: amounts of all pods; ``removed``: nodes that can go; ``saved``: their price."""

    number: int
    what: str
    changes: Mapping[str, int]
    pods: int
    requested: Mapping[str, int]
    nodes: int
    removed: tuple[str, ...]
    saved: float | None
    pressure: tuple[NodePressure, ...]


def rightsize_summary(steps: Sequence[RightsizeStep], unit: str) -> str:
    """Return the first line: what the last step frees more than the requests as they are."""
    first, last = steps[0], steps[-1]
    if not sum(last.changes.values()):
        return "No request changes: usage gives no reason to."
    freed = len(last.removed) - len(first.removed)
    deltas = ((name, amount - first.requested[name]) for name, amount in last.requested.items())
    amounts = ", ".join(f"{human(name, abs(d))} {name} {'less' if d < 0 else 'more'}" for name, d in deltas if d)
    saved = "" if last.saved is None else f", which saves {last.saved - (first.saved or 0):g} {unit}"
    what = f"{counted(freed, 'node')} more can go{saved}" if freed > 0 else "no more node can go"
    already = f", beside {len(first.removed)} that can go already" if first.removed else ""
    changed = f"{counted(last.pods, 'pod')} with other requests, {amounts or 'as much in all'}"
    return f"{what[:1].upper()}{what[1:]}{already}: {changed}."


class RightsizeReport(Answer, frozen=True, kw_only=True):
    """The answer. ``unmeasured``: workloads of which nothing is known; ``unit``: that of prices, if there are any."""

    KIND: ClassVar[str] = "RightsizeReport"

    changes: tuple[RequestChange, ...] = ()
    steps: tuple[RightsizeStep, ...] = ()
    unmeasured: tuple[str, ...] = ()
    unit: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether a change of requests frees a node; undecided if the search ended early."""
        freed = len(self.steps[-1].removed) > len(self.steps[0].removed)
        return True if freed else None if self.stopped is not None else False

    def _answer(self) -> dict[str, Any]:
        return self._shown("changes", "steps", "unmeasured", **({"unit": self.unit} if self.unit else {}))

    def _node_names(self) -> set[str]:
        return {name for one in self.steps for name in (*one.removed, *(held.node for held in one.pressure))}

    def _blocks(self, *, wide: bool) -> Iterable[str]:
        return map("\n".join, (self._steps(), self._changes(wide), self._end(wide)))

    def _steps(self) -> Iterator[str]:
        rows = []
        for one in self.steps:
            asked = [human(name, one.requested[name]) for name in ("cpu", "memory")]
            full = {held.resource: f"{held.share:.0%}" for held in one.pressure}
            money = [] if not self.unit else [f"{one.saved:g}" if one.saved is not None else ""]
            fullest = (full.get(name, "") for name in ("cpu", "memory"))
            rows.append([str(one.number), str(one.pods), *asked, str(len(one.removed)), *money, *fullest])
        money = ["SAVED"] if self.unit else []
        head = ["STEP", "PODS", "CPU", "MEMORY", "NODES GO", *money, "FULLEST CPU", "MEMORY"]
        yield columns(head, rows, right=range(len(head))).rstrip("\n")
        for one in self.steps:
            up, down = one.changes["raised"], one.changes["lowered"]
            named = f" ({counted(up, 'request')} raised, {down} lowered)" if up or down else ""
            yield paragraph(f"{one.number}  {one.what}{named}", indent="  ", hanging="     ")

    def _changes(self, wide: bool) -> Iterator[str]:
        listed = self.changes if wide else self.changes[:_RIGHTSIZE_REPORT_SHOWN]
        rows = [
            [str(one.step), one_line(one.workload), one_line(one.container), f"{one.pods}", one.resource,
             f"{human(one.resource, one.before)} → {human(one.resource, one.after)}"]
            for one in listed
        ]  # fmt: skip
        if rows:
            yield columns(["STEP", "WORKLOAD", "CONTAINER", "PODS", "", "REQUEST"], rows).rstrip("\n")
        if len(rows) < len(self.changes):
            yield f"  and {len(self.changes) - len(rows)} more: -o wide"

    def _end(self, wide: bool) -> Iterator[str]:
        if self.unmeasured:
            names = some_pods(self.unmeasured)
            yield item(f"! nothing is known of {counted(len(self.unmeasured), 'workload')}: {names}")
        for one in self.steps[-1].pressure:
            if one.above:
                text = f"! {counted(one.above, 'node')} above 90 % of {one.resource} by measured use, {one.node} the fullest"
                yield item(text)
        for assumed in self.assumptions if wide else ():
            yield item(f"Assumed: {assumed.name}: {assumed.value}")
