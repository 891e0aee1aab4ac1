"""All pending pods together: their causes, the ways to place the pods of each cause, and the changes that place them all.

A way is what places the first pod of a group, made for all its pods: the same correction of each pod, or further nodes, moves
and repairs of the same kind until no more pods get a node. Changes that turn out not to be needed are dropped again. Groups are
treated one after another, each with the way that was chosen for the earlier ones.

In a small cluster, a second search tries sets for all pods in the order of their cost, as the search for one pod does. What it
finds costs less than the chosen ways, or proves that no set of the known changes does.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Final, NamedTuple

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.errors import MoorageError
from moorage.framework.changes import Change
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.change.advice import Advice
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.change.change_sets import does_more, field_of, is_numeric, sort_key
from moorage.laboratory.change.change_text import describe, scales_together, workload_of
from moorage.laboratory.change.effects import all_who_make, effects_of, who_makes
from moorage.laboratory.change.least_change import ChangeLimits, ChangeSearch, Remedy, find_least_change
from moorage.laboratory.change.offers import FEW_NODES, ChangeSet, Offers
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.costs import Costs
from moorage.laboratory.edit.changes import LEAVING
from moorage.laboratory.edit.pod_changes import request_of
from moorage.laboratory.explain.explained_changes import atom_of
from moorage.laboratory.explain.pending_in_input import REFUSED
from moorage.laboratory.trial.cluster_trials import ClusterTrials
from moorage.laboratory.trial.trials import Trial, in_order
from moorage.report.answer import Proof
from moorage.report.explanation import Explanation
from moorage.report.explanation_values import AtomReport
from moorage.report.pending_report import PendingGroup, PendingWay
from moorage.simulator.owners import controller_kind, controller_of

#: How many ways are tried for a group, and as many more as it takes until one places all its pods.
_WAYS: Final = 3
#: The least share of the time in which ways are searched for. In the rest they are made for all pods: so much for each.
_SEARCHED: Final = 0.6
_MADE: Final = 0.05
#: With more changes, none is dropped again: that takes a run of the whole group for each.
_MOST_DROPPED: Final = 12
#: The largest problem for which the smallest set is searched, and how many sets are tried.
_MOST_PODS: Final = 12
_MOST_SETS: Final = 300
#: Changes of pods that are no change of their template.
_OF_ONE_POD: Final = frozenset(["surge", "scale", "evict", "move", "wait"])
#: More than the rounding of a sum of costs.
_ROUNDING: Final = 0.001


def grouped(found: Iterable[Explanation]) -> list[tuple[str, list[Explanation]]]:
    """Return explanations by cause: pods of one group, or that the same requirements keep off all nodes."""
    held: dict[object, list[Explanation]] = {}
    for one in found:
        terms = one.eligible_conflict or next(iter(one.conflicts), ())
        whole = not terms or one.standing.name == "group"
        key: object = _cause(one) if whole else (one.outcome, frozenset((term.plugin, term.term) for term in terms))
        held.setdefault(key, []).append(one)
    return [(_cause(some[0]), some) for some in held.values()]


def _cause(one: Explanation) -> str:
    """Return the summary without the name of the pod; of a pod in a group, what its group lacks."""
    if one.standing.name == "group":
        return f"{one.standing.text}; {one.standing.causes[0]}"
    if one.standing.text.startswith(REFUSED):
        return f"{REFUSED}; scheduled now, it would be placed"
    return one.summary.partition(": ")[2].rstrip(".") or one.summary


class PendingSearch:
    """Finds what to do about the groups of a cluster at rest, in turn. The chosen changes stay made in the cluster."""

    def __init__(self, cluster: Cluster, limits: ChangeLimits) -> None:
        self._cluster = cluster
        self._costs = (limits.costs or Costs()).with_nodes(cluster.present())
        self._limits = replace(limits, costs=self._costs)
        self._requests = ChangeRequests(cluster.present())
        self._preempted: dict[str, None] = {}  # the pods that made way since this was cleared
        self._is_cut = False  # the time was over before the latest search had ended
        #: What the dearest pod costs alone, of those that no other pod can help: a set for all pods costs no less.
        self.least = 0.0
        self._is_untouched = True
        self._chosen: list[Change] = []
        self._chosen_preempted: dict[str, None] = {}
        self.placed = 0
        self.runs = 0

    def group(self, cause: str, pods: Sequence[str], budget: TimeBudget) -> PendingGroup:
        """Return what to do about the pods of a group, and do the best of it."""
        before = self._place(pods)
        self._is_untouched &= not before
        waiting = [key for key in pods if key not in before]
        self.placed += len(before)
        if not waiting:
            return PendingGroup(cause, tuple(pods), 0)
        found: list[tuple[PendingWay, list[Change]]] = []
        remedies = self._remedies(waiting[0], budget.part(max(_SEARCHED, 1 - _MADE * len(waiting))))
        for at, remedy in enumerate(remedies):
            if at >= _WAYS and any(way.placed == len(waiting) for way, _ in found):
                break
            self._preempted.clear()
            with self._cluster.transaction():
                made, placed = self._spread(remedy, waiting, budget)
            unified = self._unified(made)
            if unified != made:
                self._preempted.clear()
                with self._cluster.transaction():
                    made, placed = unified, self._made(unified, waiting)
            preempted = tuple(self._preempted)
            if 1 < len(made) <= _MOST_DROPPED and not budget.is_over():
                made = self._needed(made, waiting, len(placed))
            if placed:
                found.append((self._way(remedy, made, len(placed), preempted), made))
        ways = [  # without those that place fewer pods than another one, at a higher cost for each
            (one, made) for one, made in found
            if not any(one.placed < by.placed and one.cost * by.placed >= by.cost * one.placed for by, _ in found)
        ]  # fmt: skip
        if not ways:
            return PendingGroup(cause, tuple(pods), len(waiting), searched=not self._is_cut)
        best = min(range(len(ways)), key=lambda at: (-ways[at][0].placed, ways[at][0].cost))
        self._is_untouched = False
        self._chosen += ways[best][1]
        self._preempted.clear()
        self._cluster.apply(*ways[best][1])
        self.placed += len(self._place(waiting))
        self._chosen_preempted |= self._preempted
        shown = tuple(replace(way, chosen=at == best) for at, (way, _) in enumerate(ways))
        return PendingGroup(cause, tuple(pods), len(waiting), shown)

    def _remedies(self, key: str, budget: TimeBudget) -> list[Remedy]:
        """Return the cheapest remedy of each kind for a pod."""
        found = find_least_change(self._trials(key), self._cluster.present(), replace(self._limits, budget=budget))
        self.runs += found.runs
        self._is_cut = budget.is_over()
        if found.proof == "exhaustive" and found.remedies and self._is_untouched and _is_apart(self._cluster.pod(key)):
            self.least = max(self.least, found.remedies[0].cost)
        first: dict[str, Remedy] = {}
        for one in found.remedies:
            first.setdefault(one.kind, one)
        return list(first.values())

    def _trials(self, key: str) -> ClusterTrials:
        return self._cluster.trials_of(key, self._costs)[0]

    def _spread(self, remedy: Remedy, pods: Sequence[str], budget: TimeBudget) -> tuple[list[Change], list[str]]:
        """Make a remedy of the first pod for all pods. Return the changes, and the pods that have a node then."""
        made: list[Change] = []
        placed: list[str] = []
        for key in pods:
            more = () if self._place([key]) else self._again(remedy, key, made, budget, pods)
            if more is None:
                continue
            made += more
            placed.append(key)
        return made, placed

    def _made(self, changes: Sequence[Change], pods: Sequence[str]) -> list[str]:
        """Make changes. Return the pods that have a node then."""
        self.runs += 1
        if self._limits.untouched.holds_any(changes, self._cluster.present()):
            return []
        try:
            self._cluster.apply(*changes)
        except MoorageError:
            return []
        return self._place(pods)

    def _template_of(self, change: Change) -> object:
        """Return what a change is made in: the template of a workload for all its pods, or its target."""
        if change.owner != "pod" or not change.target.startswith("pod/") or change.verb in _OF_ONE_POD:
            return change.target
        key = change.target.removeprefix("pod/")
        pod = self._cluster.simulation.pod_named(key)
        workload = None if pod is None else workload_of(pod, self._cluster.present())
        return change.target if pod is None or workload is None else (pod.namespace, workload)

    def _unified(self, changes: Sequence[Change]) -> list[Change]:
        """Return changes in which the pods of a template have one value of each number: the strongest of them."""
        strongest: dict[object, Change] = {}
        for one in changes:
            place = (self._template_of(one), one.verb, one.path)
            if is_numeric(one) and (place not in strongest or does_more(one, strongest[place])):
                strongest[place] = one
        return [
            one if (best := strongest.get((self._template_of(one), one.verb, one.path))) is None else replace(one, new=best.new)
            for one in changes
        ]

    def _once(self, changes: Iterable[Change]) -> list[Change]:
        """Return changes with those of one template once: it is changed once, however many pods follow."""
        found: dict[object, Change] = {}
        for one in changes:
            found.setdefault(self._request_of(one), one)
        return list(found.values())

    def _request_of(self, change: Change) -> object:
        """Return what is equal for changes that are one request: those of a template, or the change itself."""
        template = self._template_of(change)
        return change if template == change.target else (template, change.verb, change.path, str(change.new))

    def _is_asked(self, change: Change, made: Sequence[Change]) -> bool:
        """Return whether a change is no further request: its template was changed so for an earlier pod."""
        request = self._request_of(change)
        return request is not change and any(self._request_of(one) == request for one in reversed(made))

    def _price(self, changes: Iterable[Change], preempted: int = 0) -> float:
        """Return the cost of changes, those of one template once, and of the pods that are preempted then."""
        return round(self._costs.sum_of(self._once(changes)) + self._costs.table["disturbs.preempted"] * preempted, 6)

    def _again(
        self, remedy: Remedy, key: str, made: Sequence[Change], budget: TimeBudget, pods: Collection[str]
    ) -> list[Change] | None:
        """Place a further pod by changes like those of a remedy, and return them; None if that is not possible.

        None of these ``pods`` leaves for another of them.
        """
        known = set(map(field_of, made))
        like = [one for change in remedy.changes if field_of(one := self._for(change, key, made)) not in known]
        if self._try(like, key, made):
            return like
        if all(one.owner in {"pod", "config"} or one.verb == "add-node" for one in remedy.changes) or budget.is_over():
            return None
        verbs = {one.verb for one in remedy.changes}
        limits = replace(self._limits, alternatives=0, budget=budget, all_changes=False)
        found = find_least_change(self._trials(key), self._cluster.present(), limits, verbs)
        self.runs += found.runs
        theirs = {f"pod/{one}" for one in pods}
        fair = (
            one for one in found.remedies if not any(some.verb in LEAVING and some.target in theirs for some in one.changes)
        )
        return next((list(one.changes) for one in fair if self._try(one.changes, key, made)), None)

    def _for(self, change: Change, key: str, made: Sequence[Change]) -> Change:
        """Return a change of the first pod as one of another pod; a further node gets a name of its own."""
        if change.owner == "pod" and change.verb != "surge":
            change = replace(change, target=f"pod/{key}")
            if change.verb == "request" and isinstance(change.new, int):
                asked = request_of(self._cluster.pod(key), change.path.removeprefix("requests."))
                change = replace(change, old=asked, new=min(asked, change.new))
        elif change.verb == "add-node":
            taken = {one.target for one in made}
            number = 2
            name = change.target
            while name in taken:
                name, number = f"{change.target}-{number}", number + 1
            change = replace(change, target=name)
        return change

    def _try(self, changes: Sequence[Change], key: str, made: Sequence[Change]) -> bool:
        """Make changes after others, and keep them if they place the pod and the API server accepts them."""
        self.runs += 1
        around = self._cluster.present()  # with what was made before
        if self._limits.untouched.holds_any(changes, around):
            return False
        more = [one for one in changes if not self._is_asked(one, made)]
        if more and ChangeRequests(around).refusal(more):
            return False
        with self._cluster.transaction() as trial:
            try:
                self._cluster.apply(*changes)
            except MoorageError:
                return False
            if not self._place([key]):
                return False
            trial.commit()
        return True

    def _needed(self, made: list[Change], pods: Sequence[str], number: int) -> list[Change]:
        """Return the changes without those that are not needed for as many pods."""
        kept = list(made)
        for one in made:
            fewer = [other for other in kept if other is not one]
            with self._cluster.transaction():
                self.runs += 1
                self._cluster.apply(*fewer)
                if len(self._place(pods)) >= number:
                    kept = fewer
        return kept

    def _place(self, pods: Sequence[str]) -> list[str]:
        """Try pods in turn. Return those that get a node, some of them after a preemption."""
        left = set(self._left(pods))
        return [key for key in pods if key not in left]

    def _left(self, pods: Sequence[str], *, keeps: bool = False) -> list[str]:
        """Try pods in turn, and those that are left again for as long as that helps. Return those without a node."""
        before, left = list(pods), [key for key in pods if not self._is_placed(key, keeps=keeps)]
        while left and len(left) < len(before) and any(map(self._follows, left)):
            before, left = left, [key for key in left if not self._is_placed(key, keeps=keeps)]
        return left

    def _follows(self, key: str) -> bool:
        """Return whether other pods can help a pod to a node by coming to one themselves."""
        pod = self._cluster.simulation.pod_named(key)
        return pod is not None and not _is_apart(pod)

    def _is_placed(self, key: str, *, keeps: bool = False) -> bool:
        """Try a pod; ``keeps``: it preempts no pod that nothing creates again."""
        if (held := self._cluster.simulation.pod_named(key)) is None or held.spec.node_name:
            return held is not None  # another pod of these may have preempted it
        (first,) = self._cluster.schedule([key])
        if first.victims and self._limits.untouched.holds_pods(first.victims, self._cluster.present()):
            return False
        pods = (self._cluster.pod(victim) for victim in first.victims if keeps)
        if first.node is None and first.nominated and first.victims and all(controller_of(one.metadata) for one in pods):
            self._cluster.apply(*(Change("cluster", "evict", f"pod/{victim}") for victim in first.victims))
            self._preempted |= dict.fromkeys(first.victims)
            (first,) = self._cluster.schedule([key])
        return first.node is not None

    def _way(self, remedy: Remedy, made: Sequence[Change], placed: int, preempted: tuple[str, ...]) -> PendingWay:
        made = scales_together(made)
        priced = [self._costs.price(change) for change in self._once(made)]
        around = self._cluster.present()
        commands = ChangeRequests(around).commands(made)
        cost = self._price(made, len(preempted))
        effects = tuple(effects_of(made, Trial(displaced=preempted), around, self._costs.prices))
        who = all_who_make(made, around)
        return PendingWay(remedy.kind, cost, who, tuple(map(atom_of, priced)), commands, placed, effects=effects)

    def is_small(self, pods: Sequence[str]) -> bool:
        """Return whether the smallest set for these pods can be searched for."""
        return len(pods) <= _MOST_PODS and len(self._cluster.snapshot.table) <= FEW_NODES

    def together(
        self, groups: Sequence[PendingGroup], pods: Sequence[str], budget: TimeBudget
    ) -> tuple[list[PendingGroup], list[PendingWay], Proof]:
        """Return the groups with their chosen ways, what places all pods, and the proof that nothing cheaper does.

        In a small cluster, what ``group`` made has been rolled back.
        """
        chosen = [way for one in groups for way in one.ways if way.chosen]
        if not chosen:
            return list(groups), [], Proof("run", runs=self.runs)
        cost = min(round(sum(way.cost for way in chosen), 6), self._price(self._chosen, len(self._chosen_preempted)))
        most = cost if self.placed == sum(len(one.pods) for one in groups) else float("inf")
        found = self.smallest(pods, most, budget.part(0.5)) if self.is_small(pods) else SmallestSet(None, self.least, ())
        if found.changes is None:
            kind = "exhaustive" if found.cost == cost else "bounded"
            return list(groups), chosen, Proof(kind, runs=self.runs, lower_bound=found.cost)
        self.placed = len(pods)
        made = {_what(atom) for _, atom in found.atoms}
        marked = [
            replace(one, ways=tuple(replace(way, chosen=made >= set(map(_what, way.atoms))) for way in one.ways))
            for one in groups
        ]
        by_who: dict[str, list[AtomReport]] = {}
        for who, atom in found.atoms:
            by_who.setdefault(who, []).append(atom)
        effects = tuple(effects_of(list(found.changes), Trial(), self._cluster.present(), self._costs.prices))
        ways = [
            PendingWay("", round(sum(a.cost for a in some), 6), who, tuple(some), (), len(pods), chosen=True, effects=effects)
            for who, some in by_who.items()
        ]
        return marked, ways, Proof("exhaustive", runs=self.runs, lower_bound=found.cost)

    def smallest(self, pods: Sequence[str], most: float, budget: TimeBudget) -> SmallestSet:
        """Return the cheapest set that places all pods, if it costs less than ``most``; nothing of it is made."""
        heap: list[tuple[float, object, int, ChangeSet]] = [(0.0, (0, ()), 0, frozenset())]
        seen, serial = {frozenset[Change]()}, count(1)
        for _ in range(_MOST_SETS):
            if not heap or heap[0][0] >= most - _ROUNDING:
                return SmallestSet(None, most, ())
            if budget.is_over():
                budget.leave("a cheaper set for all pods")
                break
            cost, key, _, changes = heapq.heappop(heap)
            self._preempted.clear()
            found = self._tried(changes, pods)
            if found is not None and not found:
                if self._requests.refusal(changes):
                    continue
                due = self._cost_in(changes, pods, len(self._preempted))
                if due > cost + _ROUNDING:
                    heapq.heappush(heap, (due, key, next(serial), changes))
                    continue
                once = self._once(changes)
                priced = sorted(map(self._costs.price, once), key=lambda one: (one.owner, describe(one)))
                around = self._cluster.present()
                by = tuple(who_makes(one, around) for one in priced)
                return SmallestSet(changes, cost, tuple(zip(by, map(atom_of, priced), strict=True)))
            for search, offers in found or ():
                for one in search.following(changes, offers, self._limits.may):
                    more = self._of_templates(one, pods)
                    if self._limits.untouched.holds_any(more, self._cluster.present()):
                        continue
                    if more not in seen and (due := self._cost_in(more, pods)) < most and not search.broken_by(more):
                        seen.add(more)
                        heapq.heappush(heap, (due, sort_key(more), next(serial), more))
        return SmallestSet(None, max(self.least, heap[0][0] if heap else most), ())

    def _cost_in(self, changes: ChangeSet, pods: Sequence[str], preempted: int = 0) -> float:
        """Return the cost of changes for all pods, with what they disturb."""
        disturbed = 0.0
        if any(one.verb == "evict" for one in changes):
            search = ChangeSearch.over(self._trials(pods[0]), self._cluster.present(), probes=0, costs=self._costs)
            disturbed = search.cost_of(changes) - self._costs.sum_of(changes)
        return round(self._price(changes, preempted) + disturbed, 6)

    def _of_templates(self, changes: ChangeSet, pods: Sequence[str]) -> ChangeSet:
        """Return changes with those of a pod made for all waiting pods of its workload: they have one template."""
        around = self._cluster.present()
        owners = {key: (key.partition("/")[0], workload_of(self._cluster.pod(key), around)) for key in pods}
        found = set(changes)
        for one in changes:
            key = one.target.removeprefix("pod/")
            if one.owner == "pod" and one.verb not in {"surge", "ungate"} and owners.get(key, ("", None))[1] is not None:
                found |= {self._for(one, other, ()) for other in pods if owners[other] == owners[key]}
        return frozenset(found)

    def _tried(self, changes: ChangeSet, pods: Sequence[str]) -> list[tuple[ChangeSearch, Offers]] | None:
        """Try all pods after some changes. Return what else would help: nothing if all have a node; None if it cannot be.

        Every set that places all places the first pod that is left: it is looked at alone, and after all others. If others can
        help it by coming to a node, they are looked at too. Pods that replace evicted ones have to find a node as well.
        """
        self.runs += 1
        with self._cluster.transaction():
            simulation = self._cluster.simulation
            before = simulation.arrivals
            try:
                self._cluster.apply(*in_order(changes))
            except MoorageError:
                return None
            fresh = [one for one in simulation.arrived_after(before) if not one.spec.node_name]
            self._cluster.schedule([one.uid for one in fresh if controller_kind(one) == "DaemonSet"])
            with self._cluster.transaction():
                left = self._left(pods, keeps=True)
                if any(simulation.pod_named(key) is None for key in pods):
                    return None
                if not left:
                    arrived = [one.uid for one in simulation.arrived_after(before) if not one.spec.node_name]
                    return [] if all(one.node for one in self._cluster.schedule(arrived)) else None
                first = left if self._follows(left[0]) else left[:1]
                after = [self._look(key) for key in first]
            return [one for one in (*map(self._look, first), *after) if one is not None]

    def _look(self, key: str) -> tuple[ChangeSearch, Offers] | None:
        """Return what would help a pod now, with the search that knows its advice; None if it has a node or finds one."""
        pod = self._cluster.simulation.pod_named(key)
        if pod is None or pod.spec.node_name:
            return None
        trials, around = self._trials(key), self._cluster.present()
        offers = trials.attempt(()).offers
        if offers is None:
            return None
        search = ChangeSearch.over(trials, around, probes=self._limits.probes, costs=self._costs)
        search.advice = Advice(around, key, self._costs, everything=self._limits.all_changes)
        return search, offers


def _what(atom: AtomReport) -> tuple[str, str]:
    """Return what a change says, and of which object; the changes of pods are those of their templates."""
    return ("" if atom.owner == "pod" else atom.target), atom.text


def _is_apart(pod: Pod) -> bool:
    """Return whether no other pod can help this one to a node by coming to one itself."""
    spec, affinity = pod.spec, pod.spec.affinity
    attracted = affinity is not None and affinity.pod_affinity is not None
    spread = any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints)
    return not (attracted or spread or spec.resource_claims or spec.scheduling_group)


class SmallestSet(NamedTuple):
    """The answer for all pods: the changes, with who makes each; None if none was found. No set costs less than ``cost``."""

    changes: ChangeSet | None
    cost: float
    atoms: tuple[tuple[str, AtomReport], ...]
