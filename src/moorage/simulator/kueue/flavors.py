"""Flavors: which flavor each resource of a workload gets, and in which mode.

For each pod set and group of resources the flavors are tried in the queue's order. The queue says at which mode the search
stops; otherwise the best flavor wins. The search remembers where it stopped, and goes on from there next time.

Source  Kueue, pkg/scheduler/flavorassigner
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from moorage.api.core import NodeSelector, NodeSelectorTerm, PodSpec
from moorage.api.node_selectors import compile_node_selector, find_untolerated, required_nodes
from moorage.api.pod_requests import add_amounts
from moorage.report.queue_report import amount_text
from moorage.simulator.kueue.objects import ClusterQueue, Flavor, ResourceGroup
from moorage.simulator.kueue.quota import lowest_subtree
from moorage.simulator.kueue.topology import TopologyTree, find_places
from moorage.simulator.kueue.topology_requests import PlacementRequest, TopologyPlacement
from moorage.simulator.kueue.workloads import Amounts, Assigned, Key, PodSet, ScanState, Workload, rank_of

_T = TypeVar("_T")
_NO_EXECUTION: Final = frozenset({"NoSchedule", "NoExecute"})


class Mode(IntEnum):
    """What must happen before a flavor can be used, from worst to best. By preemption: without victims, own ones, of others."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    DEFERRED_FIT = 4
    FIT = 5

    @property
    def preempts(self) -> bool:
        return Mode.NO_FIT < self < Mode.DEFERRED_FIT


#: Reasons of the condition QuotaReserved, from none to the gravest. What was tried with a flavor has the number of its reason.
_REASONS: Final = ("", "TopologyPlacementFailed", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor")
_TOPOLOGY, _WAITING, _TOO_LARGE, _NO_FLAVOR = range(1, 5)


class Grade(NamedTuple):
    """How well a flavor suits: its mode, and how deep the queue borrows with it."""

    mode: Mode
    height: int

    def rank(self, queue: ClusterQueue) -> tuple[int, ...]:
        """Return what a queue compares flavors by; that of the best is the largest."""
        if self.mode is Mode.NO_FIT:
            return ()
        pair = (self.mode, -self.height) if queue.prefers_borrowing else (-self.height, self.mode)
        return (self.mode is not Mode.NO_CANDIDATES, *pair)


#: Asks whether preemption could make room: (key, amount) → what it could do, and how deep the queue then borrows.
Oracle = Callable[[Key, int], Grade]


@dataclass(slots=True)
class ChosenFlavor:
    """The flavor of one resource."""

    flavor: str
    mode: Mode
    borrows: int
    tried: int = 0


@dataclass(slots=True)
class _PodSetChoice:
    name: str
    count: int
    requests: dict[str, int]
    flavors: dict[str, ChosenFlavor]
    reasons: list[str]
    attempts: dict[str, int]
    placed: TopologyPlacement | None = None
    placed_in: str = ""
    delayed: str = ""
    error: str = ""

    @property
    def mode(self) -> Mode:
        if self.error:
            return Mode.NO_FIT
        if not self.reasons:
            return Mode.FIT
        if not self.flavors:
            return Mode.NO_FIT
        return min(chosen.mode for chosen in self.flavors.values())


@dataclass(slots=True)
class Assignment:
    """Flavors for all pod sets of a workload, or as far as the search came.

    ``borrows``  the height of the subtree that the quota is borrowed from; 0 if none is
    ``usage``    the quota that the workload would hold
    ``guessed``  whether what preemption could do was not asked, as only ``borrows`` depends on it
    """

    scan: ScanState
    pod_sets: list[_PodSetChoice] = field(default_factory=list)
    borrows: int = 0
    usage: Amounts = field(default_factory=dict)
    forced: Mode | None = None
    no_fit_reason: str = ""
    guessed: bool = False

    @property
    def mode(self) -> Mode:
        if not self.pod_sets:
            return Mode.NO_FIT
        if self.forced is not None:
            return self.forced
        return min(one.mode for one in self.pod_sets)

    def set_mode(self, mode: Mode, name: str | None = None) -> None:
        """Set the mode of a pod set, or of all, and with it of the whole."""
        self.forced = mode
        for one in self.pod_sets:
            if name in {None, one.name}:
                for chosen in one.flavors.values():
                    chosen.mode = mode

    def placements(self, workload: Workload) -> list[tuple[str, TopologyPlacement, Mapping[str, int]]]:
        """Return the new placements, with their flavors and the requests of one pod."""
        requests = {one.name: one.requests for one in workload.pod_sets}
        return [(one.placed_in, one.placed, requests[one.name]) for one in self.pod_sets if one.placed and one.placed_in]

    def note_placed(self, found: Mapping[str, TopologyPlacement], asked: Mapping[str, Sequence[PlacementRequest]]) -> None:
        """Keep the placements of the pod sets."""
        flavors = {request.name: flavor for flavor, requests in asked.items() for request in requests}
        for one in self.pod_sets:
            if one.name in found:
                one.placed, one.placed_in, one.delayed = found[one.name], flavors[one.name], one.delayed and "Ready"

    def message(self) -> str:
        if failed := [one for one in self.pod_sets if one.error]:
            return f"failed to assign flavors to pod set {failed[0].name}: {failed[0].error}"
        parts = [
            f"couldn't assign flavors to pod set {one.name}: {', '.join(sorted(one.reasons))}"
            for one in self.pod_sets
            if one.reasons
        ]
        return "; ".join(parts)

    def admission(self) -> tuple[Assigned, ...]:
        chosen = self.flavors_by_pod_set()
        used = [{resource: one.requests.get(resource, 0) for resource in one.flavors} for one in self.pod_sets]
        return tuple(
            Assigned(one.name, one.count, chosen[one.name], usage, one.placed, one.delayed)
            for one, usage in zip(self.pod_sets, used, strict=True)
        )

    def flavors_by_pod_set(self) -> dict[str, dict[str, str]]:
        return {one.name: {resource: chosen.flavor for resource, chosen in one.flavors.items()} for one in self.pod_sets}

    def needing_preemption(self) -> frozenset[Key]:
        return frozenset(
            (chosen.flavor, resource)
            for one in self.pod_sets
            for resource, chosen in one.flavors.items()
            if chosen.mode.preempts
        )

    def total_requests(self, workload: Workload) -> Amounts:
        """Return the quota that the workload needs: like ``usage``, without resources that it does not ask for."""
        total: Amounts = {}
        for one, pod_set in zip(self.pod_sets, workload.pod_sets, strict=False):
            asked = {name: amount for name, amount in pod_set.counted.items() if amount and name in one.flavors}
            add_amounts(total, {(one.flavors[name].flavor, name): amount for name, amount in asked.items()}, one.count)
        return total


def assign_flavors(
    workload: Workload, queue: ClusterQueue, flavors: Mapping[str, Flavor], oracle: Oracle, cycle: int, *,
    fair: bool = False, counts: Sequence[int] | None = None, trees: Mapping[str, TopologyTree] = MappingProxyType({}),
    guess: bool = False,
) -> Assignment:  # fmt: skip
    """Choose flavors, and places in topologies, for ``counts`` pods; ``guess``: do not ask about the only flavor left."""
    assignment = Assignment(ScanState([], queue.generation, cycle, workload.shape))
    search = _Search(workload, queue, flavors, oracle, fair, assignment, trees, guess)
    wanted: list[tuple[int, dict[str, int]]] = []
    groups: dict[str, list[int]] = {}
    for index, pod_set in enumerate(workload.pod_sets):
        count = pod_set.count if counts is None else counts[index]
        wanted.append((count, {resource: amount * count for resource, amount in pod_set.counted.items()}))
        if queue.group_of("pods") is not None:
            wanted[-1][1]["pods"] = count
        group = pod_set.topology.group if pod_set.topology is not None else None
        groups.setdefault(str(index) if group is None else group, []).append(index)
    for members in groups.values():
        if workload.admission:
            together = [_held(workload.admission[index], None if counts is None else counts[index]) for index in members]
        else:
            together = search.pod_sets(members, [wanted[index] for index in members])
        for choice in together:
            assignment.pod_sets.append(choice)
            for resource, chosen in choice.flavors.items():
                assignment.borrows = max(assignment.borrows, chosen.borrows)
                key = (chosen.flavor, resource)
                assignment.usage[key] = assignment.usage.get(key, 0) + choice.requests.get(resource, 0)
            assignment.scan.tried.append({resource: chosen.tried for resource, chosen in choice.flavors.items()})
        if any(choice.requests and not choice.flavors for choice in together):
            break
    if assignment.mode is not Mode.NO_FIT and (trees or any(one.topology is not None for one in workload.pod_sets)):
        _place(assignment, workload, queue, trees)
    if assignment.mode is Mode.NO_FIT:
        assignment.no_fit_reason = _no_fit_reason(assignment, queue)
    return assignment


def most_pods(pod_sets: Sequence[PodSet], attempt: Callable[[list[int]], _T | None]) -> _T | None:
    """Return the first answer of an attempt to admit fewer pods, from all down to the least counts; None without one."""
    room = [one.count - (one.count if one.min_count is None else one.min_count) for one in pod_sets]
    total, found = sum(room), dict[int, _T | None]()

    def fits(step: int) -> bool:
        counts = [one.count - more * step // total for one, more in zip(pod_sets, room, strict=True)]
        found[step] = attempt(counts)
        return found[step] is not None

    return found.get(bisect_left(range(total + 1), True, key=fits)) if total else None


def _held(held: Assigned, count: int | None) -> _PodSetChoice:
    """Return the choice of a pod set that holds quota and only waits for its places."""
    number = held.count if count is None else count
    requests = {resource: amount // max(held.count, 1) * number for resource, amount in held.usage.items()}
    flavors = {resource: ChosenFlavor(flavor, Mode.FIT, 0) for resource, flavor in held.flavors.items()}
    return _PodSetChoice(held.name, number, requests, flavors, [], {}, held.placed, "", held.delayed if count is None else "")


@dataclass(slots=True)
class _Search:
    workload: Workload
    queue: ClusterQueue
    flavors: Mapping[str, Flavor]
    oracle: Oracle
    fair: bool
    assignment: Assignment
    trees: Mapping[str, TopologyTree]
    guess: bool

    def pod_sets(self, members: Sequence[int], wanted: Sequence[tuple[int, dict[str, int]]]) -> list[_PodSetChoice]:
        """Choose for pod sets that share their flavors: what each asks for counts together."""
        if len(members) == 1:
            return [self.pod_set(members, *wanted[0])]
        total: dict[str, int] = {}
        for _, requests in wanted:
            add_amounts(total, requests)
        whole = self.pod_set(members, 0, total)
        found = []
        for index, (count, requests) in zip(members, wanted, strict=True):
            kept = {resource: chosen for resource, chosen in whole.flavors.items() if resource in requests}
            if not requests:
                kept = {resource: chosen for resource, chosen in whole.flavors.items() if chosen.flavor in self.trees}
            name = self.workload.pod_sets[index].name
            flavors = {resource: replace(chosen) for resource, chosen in kept.items()}
            found.append(_PodSetChoice(name, count, requests, flavors, list(whole.reasons), dict(whole.attempts)))
        return found

    def pod_set(self, members: Sequence[int], count: int, requests: dict[str, int]) -> _PodSetChoice:
        choice = _PodSetChoice(self.workload.pod_sets[members[0]].name, count, requests, {}, [], {})
        for resource in sorted(requests, key=rank_of):
            group = self.queue.group_of(resource)
            if resource in choice.flavors or (group is None and (not requests[resource] or self.queue.lenient)):
                continue
            unavailable = dict[str, ChosenFlavor](), [f"resource {resource} unavailable in ClusterQueue"]
            found, reasons = self._group(members, resource, requests, group, choice.attempts) if group else unavailable
            if not found:
                choice.flavors, choice.reasons = {}, reasons
                return choice
            choice.flavors.update(found)
            choice.reasons += reasons
        choice.flavors = {resource: chosen for resource, chosen in choice.flavors.items() if resource in requests}
        return choice

    def _group(
        self, members: Sequence[int], resource: str, requests: Mapping[str, int], group: ResourceGroup, attempts: dict[str, int]
    ) -> tuple[dict[str, ChosenFlavor], list[str]]:
        """Choose one flavor for the resources of a group. Return it, and why not all is well; ``attempts``: what was tried."""
        reasons: list[str] = []
        best: dict[str, ChosenFlavor] = {}
        best_grade, tried = Grade(Mode.NO_FIT, 0), -1
        asked = {name: requests[name] for name in sorted(requests, key=rank_of) if name in group.resources}
        scan = self.workload.scan
        for at in range(scan.next_flavor(members[0], resource) if scan else 0, len(group.flavors)):
            tried, flavor = at, group.flavors[at]
            if (refusal := self._refusal(flavor, members, resource, group)) is not None:
                text, counted = refusal
                reasons.append(text)
                if counted:
                    attempts[flavor] = _NO_FLAVOR
                continue
            guess = self.guess and at == len(group.flavors) - 1 and not best
            found, grade, texts, attempts[flavor] = self._flavor(flavor, asked, guess=guess)
            reasons += texts
            stops = self._stops(grade)
            if stops or grade.rank(self.queue) > best_grade.rank(self.queue):
                best, best_grade = found, grade
            if stops:
                break
        for chosen in best.values():
            chosen.tried = -1 if tried == len(group.flavors) - 1 else tried
        return best, [] if best_grade.mode is Mode.FIT else reasons

    def _flavor(
        self, flavor: str, asked: Mapping[str, int], *, guess: bool
    ) -> tuple[dict[str, ChosenFlavor], Grade, list[str], int]:  # fmt: skip
        """Return the flavor for each resource, the worst of their grades, texts about what does not fit, and the reason."""
        found: dict[str, ChosenFlavor] = {}
        texts: list[str] = []
        grade, why = Grade(Mode.FIT, 0), 0
        for resource, amount in asked.items():
            mine, text, reason = self._quota((flavor, resource), amount, guess=guess)
            if guess and mine.height and mine.mode is Mode.FIT and not self.queue.prefers_borrowing:
                return self._flavor(flavor, asked, guess=False)  # preemption may be better than to borrow
            if text:
                texts.append(text)
            why = max(why, reason)
            grade = min(grade, mine, key=lambda one: one.rank(self.queue))
            found[resource] = ChosenFlavor(flavor, *mine)
        return found, grade, texts, why

    def _quota(self, key: Key, amount: int, *, guess: bool) -> tuple[Grade, str, int]:
        """Return how the amount fits into the quota, and if it does not fit a text and a reason."""
        flavor, resource = key
        before, nominal, rules = self.assignment.usage.get(key, 0), self.queue.quota(key).nominal, self.queue.preemption
        total, most, free = before + amount, self.queue.potential(key), self.queue.free(key)
        if total > most:
            text = (
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests "
                f"({amount_text(resource, before)}) + current podset request ({amount_text(resource, amount)}) > maximum "
                f"capacity ({amount_text(resource, most)})"
            )
            return Grade(Mode.NO_FIT, 0), text, _TOO_LARGE
        height, may_reclaim = lowest_subtree(self.queue, key, total)
        if total <= free:
            return Grade(Mode.FIT, height), "", 0
        text = f"insufficient unused quota for {resource} in flavor {flavor}, {amount_text(resource, total - free)} more needed"
        may_borrow = rules.borrow != "Never" or (self.fair and rules.reclaim != "Never")
        if not (may_reclaim or nominal >= total or may_borrow):
            return Grade(Mode.NO_FIT, height), text, _WAITING
        self.assignment.guessed |= guess
        return Grade(Mode.NO_CANDIDATES, height) if guess else self.oracle(key, total), text, 0

    def _stops(self, grade: Grade) -> bool:
        if grade.mode <= Mode.NO_CANDIDATES or (grade.mode is not Mode.FIT and not self.queue.stop_if_preempting):
            return False
        return grade.height == 0 or self.queue.stop_if_borrowing

    def _refusal(
        self, flavor: str, members: Sequence[int], resource: str, group: ResourceGroup
    ) -> tuple[str, bool] | None:  # fmt: skip
        """Return why a flavor is passed over, and whether that counts as an attempt."""
        first = self.workload.pod_sets[members[0]]
        if self.workload.nominated and self.workload.nominated[first.name].get(resource) != flavor:
            return f"skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}", False
        for index in members:
            one, kind = self.workload.pod_sets[index], self.flavors.get(flavor)
            refused = None if kind is None else self._topology_refusal(one, kind, group)
            refused = refused or refusal_of(kind, flavor, one.spec)
            if refused is not None:
                return refused, True
        return None

    def _topology_refusal(self, pod_set: PodSet, flavor: Flavor, group: ResourceGroup) -> str | None:
        """Return why a flavor has not the topology that a pod set asks for."""
        asked = pod_set.topology
        if asked is None or not asked.is_explicit:
            if self.queue.topology_only or not flavor.topology:
                return None
            return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
        if not flavor.topology:
            overlaps = not group.resources.isdisjoint(pod_set.requests)
            return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling' if overlaps else None
        tree = self.trees.get(flavor.name)
        if tree is None:
            return f'Flavor "{flavor.name}" information missing in TAS cache'
        return None if tree.has_levels(asked) else f'Flavor "{flavor.name}" does not contain the requested level'


def placement_requests(
    assignment: Assignment, workload: Workload, queue: ClusterQueue, trees: Mapping[str, TopologyTree]
) -> dict[str, list[PlacementRequest]]:
    """Return what must be placed in topologies, by flavor; a pod set without one such flavor is in error."""
    chosen = {one.name: one for one in assignment.pod_sets}
    asked: dict[str, list[PlacementRequest]] = {}
    for one in workload.pod_sets:
        explicit = one.topology is not None and one.topology.is_explicit
        choice = chosen.get(one.name)
        if choice is None or choice.error or choice.placed is not None or not choice.count:
            continue
        if not (explicit or queue.topology_only):
            continue
        flavors = sorted({each.flavor for each in choice.flavors.values() if each.flavor in trees})
        if len(flavors) == 1 and (queue.is_remote or (not workload.admission and flavors[0] in queue.delayed)):
            choice.delayed = "Pending"
            continue
        if len(flavors) == 1:
            request = PlacementRequest(one.name, choice.count, one.requests, one.spec, one.topology, not explicit)
            asked.setdefault(flavors[0], []).append(request)
            continue
        choice.error = f"more than one TAS flavor assigned: {', '.join(flavors)}" if flavors else "no TAS flavor assigned"
        if not any(flavor in trees for group in queue.groups for flavor in group.flavors):
            choice.error = "workload requires Topology, but there is no TAS cache information"
        assignment.forced = None
    return asked


def _place(assignment: Assignment, workload: Workload, queue: ClusterQueue, trees: Mapping[str, TopologyTree]) -> None:
    """Find places for a workload that has quota, or could have it by preemption."""
    asked = placement_requests(assignment, workload, queue, trees)
    choices = {one.name: one for one in assignment.pod_sets}
    if assignment.mode is Mode.FIT:
        found, failed = find_places(asked, trees)
        if failed is None:
            assignment.note_placed(found, asked)
        else:
            choices[failed[0]].reasons.append(failed[2])
            assignment.set_mode(Mode.PREEMPT, failed[0])
    if assignment.mode.preempts:
        _, failed = find_places(asked, trees, empty=True)
        if failed is not None:
            choices[failed[0]].attempts[failed[1]] = _TOPOLOGY
            assignment.set_mode(Mode.NO_FIT, failed[0])
        else:
            for request in (each for requests in asked.values() for each in requests):
                assignment.set_mode(Mode.PREEMPT, request.name)


def refusal_of(kind: Flavor | None, name: str, spec: PodSpec) -> str | None:
    """Return why pods cannot have a flavor, whatever its quota; None if they can."""
    if kind is None:
        return f"flavor {name} not found"
    taint = find_untolerated(kind.taints, (*spec.tolerations, *kind.tolerations), _NO_EXECUTION, numeric=True)
    if taint is not None:
        shown = "{" + " ".join((taint.key, taint.value, taint.effect, "<nil>")) + "}"
        return f"untolerated taint {shown} in flavor {name}"
    return None if _labels_match(spec, kind.labels) else f"flavor {name} doesn't match node affinity"


def _labels_match(spec: PodSpec, labels: Mapping[str, str]) -> bool:
    """Return whether the pod's node selector and affinity match, as far as they are about the flavor's labels."""
    if any(labels[key] != wanted for key, wanted in spec.node_selector.items() if key in labels):
        return False
    if (selector := required_nodes(spec)) is None:
        return True
    terms = []
    for term in selector.node_selector_terms:
        known = tuple(one for one in term.match_expressions if one.key in labels)
        if not known:
            return True
        terms.append(NodeSelectorTerm(match_expressions=known))
    return not terms or compile_node_selector(NodeSelector(node_selector_terms=tuple(terms))).matches(labels, "")


def _no_fit_reason(assignment: Assignment, queue: ClusterQueue) -> str:
    """Return the reason that stands for the whole: of each group its mildest, of all groups and pod sets the gravest."""
    overall = 0
    for one in assignment.pod_sets:
        if one.mode is not Mode.NO_FIT:
            continue
        mildest: dict[object, int] = {}
        for flavor, why in one.attempts.items():
            if why:
                place = next((group for group in queue.groups if flavor in group.flavors), flavor)
                mildest[place] = min(why, mildest.get(place, why))
        overall = max(overall, 0 if one.attempts else _NO_FLAVOR, *mildest.values())
    return _REASONS[overall]
