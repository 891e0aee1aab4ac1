"""Count how many instances of a pod fit, and find why the next one does not and which changes would help.

The count is a run of the engine: pods are created one after the other, each when the one before is bound, as cluster-capacity
does. Pending pods are placed first. All of this happens in transactions that are rolled back. The upper bound is arithmetic and
needs no run; if the two are equal, no other order fits more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Node, Object, Pod
from moorage.api.pod_requests import amount
from moorage.basis.printable import counted as in_words
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.amount_text import with_amount
from moorage.laboratory.budget import BudgetSpentError, TimeBudget
from moorage.laboratory.capacity import capacity_bound
from moorage.laboratory.capacity.capacity_bound import Room
from moorage.laboratory.capacity.capacity_templates import CapacityTemplate
from moorage.laboratory.edit.changes import apply
from moorage.laboratory.explain.refusals import phrase
from moorage.laboratory.explain.verdicts import EveryVerdict, verdicts_now
from moorage.laboratory.node_groups import group_nodes, groups_by_node
from moorage.laboratory.plan.node_types import add_nodes, admitted, like_node, policies_of
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.report.capacity import Capacity, CapacityGain, CapacityGroup, CapacityPart, StopReason
from moorage.state.view import IntArray

# The result of a count by group of nodes: instances, free amounts, and why the next instance does not fit.

#: Resource → the free amount on each row.
Free: TypeAlias = Mapping[str, IntArray]
_INSUFFICIENT = "Insufficient "
_TOO_MANY = "Too many pods"


def groups_of(
    nodes: Sequence[Node], room: capacity_bound.Room, after: Free, per_node: Mapping[str, int], last: EveryVerdict | None
) -> Iterator[CapacityGroup]:
    """Yield the groups of nodes, those that take instances first. Other nodes are grouped by the plugins that refuse them.

    ``room`` is the room for the first instance, ``after`` the free amounts now, and ``last`` are the verdicts for the instance
    that found no node.
    """
    first = room.judged
    group = groups_by_node(nodes)
    rows: dict[Hashable, list[int]] = {}
    for row, node in enumerate(nodes):
        takes = bool(room.open_rows[row]) or node.name in per_node
        why: Hashable = () if takes else tuple((status.plugin, status.reasons) for status in first.statuses(row))
        rows.setdefault((not takes, group[node.name], why), []).append(row)
    found = [_group(str(key[1]), members, nodes, after, per_node, first if key[0] else last, eligible=not key[0])
             for key, members in rows.items() if isinstance(key, tuple)]  # fmt: skip
    yield from sorted(found, key=lambda one: (not one.eligible, -one.instances))


def _group(
    name: str,
    rows: list[int],
    nodes: Sequence[Node],
    after: Free,
    per_node: Mapping[str, int],
    judged: EveryVerdict | None,
    *,
    eligible: bool,
) -> CapacityGroup:
    each = sorted((per_node.get(nodes[row].name, 0) for row in rows), reverse=True)
    left = {resource: (int(free[rows].min()), int(free[rows].max())) for resource, free in after.items()}
    stops = () if judged is None else tuple(_stops(judged, rows))
    return CapacityGroup(name, tuple(nodes[row].name for row in rows), sum(each), tuple(each), left, stops, eligible)


def binding_of(room: capacity_bound.Room, last: EveryVerdict | None) -> list[StopReason]:
    """Return why nodes that accepted the first instance refuse the next one, the most frequent reason first."""
    if last is None:
        return []
    rows = np.flatnonzero(room.open_rows & (room.per_row > 0)).tolist()
    return _stops(last, rows)


def _stops(judged: EveryVerdict, rows: Sequence[int]) -> list[StopReason]:
    """Return the reasons for which plugins refuse these rows, the most frequent first."""
    counts: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        for status in judged.statuses(row):
            for reason in status.reasons or ("",):
                counts.setdefault((status.plugin or "", reason), []).append(row)
    found = [
        StopReason(plugin, reason, len(held), _resource(plugin, reason), _detail(judged, plugin, held[0]))
        for (plugin, reason), held in counts.items()
    ]
    return sorted(found, key=lambda one: -one.nodes)


def _resource(plugin: str, reason: str) -> str:
    if plugin != capacity_bound.FIT:
        return ""
    return "pods" if reason == _TOO_MANY else reason.removeprefix(_INSUFFICIENT)


def _detail(judged: EveryVerdict, plugin: str, row: int) -> str:
    if plugin == capacity_bound.FIT:
        return ""
    for one in judged.refusing:
        if one.name == plugin:
            why: Any = judged.why(one, row)
            return "" if why is None else phrase(why)
    return ""


def exhausted_of(room: capacity_bound.Room, after: Free, nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """Return, for each node that accepted the first instance, the resources that are too short for one more."""
    found: dict[str, tuple[str, ...]] = {}
    for row in np.flatnonzero(room.open_rows & (room.per_row > 0)).tolist():
        short = tuple(name for name, need in room.needs.items() if need and after[name][row] < need)
        if short:
            found[nodes[row].name] = short
    return found


def stranded_of(room: capacity_bound.Room, after: Free, per_node: Mapping[str, int], nodes: Sequence[Node]) -> dict[str, int]:
    """Return the free amount of each resource on the nodes that take instances."""
    takes = room.open_rows | np.array([node.name in per_node for node in nodes], dtype=bool)
    return {name: int(np.clip(free[takes], 0, None).sum()) for name, free in after.items() if name != "pods"}


@dataclass(frozen=True, slots=True)
class CapacityQuestion:
    """What to count.

    ``parts``    the templates, each with the number of its pods in a unit; a single template counts pods
    ``replicas`` the question is whether these numbers of pods fit, once
    ``limit``    stop after so many instances; 0: no limit
    ``pending``  place pending pods first; otherwise leave them out
    ``preempt``  let instances evict pods of lower priority
    ``quota``    respect resource quotas
    ``gains``    compute how many more instances some changes would give
    ``budget``   ends the count, the counts with other seeds, or the search for gains, when it is spent
    """

    parts: tuple[tuple[CapacityTemplate, int], ...]
    replicas: bool = False
    limit: int = 0
    seeds: tuple[int, ...] = (0,)
    pending: bool = True
    preempt: bool = False
    gains: bool = True
    quota: bool = True
    progress: Callable[[str], None] = field(default=lambda text: None)
    budget: TimeBudget = field(default_factory=TimeBudget)


def capacity_of(cluster: AskedCluster, request: AnswerRequest, question: CapacityQuestion) -> Capacity:
    """Return how many instances fit. The cluster is unchanged afterwards.

    Raises  InputError
    """
    names = [(template.pod.namespace, template.name) for template, _ in question.parts]
    if len(set(names)) < len(names):
        raise InputError("two templates of a mix have the same name; give each another one")
    found: Capacity | None = None
    counts: dict[str, int] = {}
    budget = question.budget.part()
    for seed in question.seeds:
        if found is not None and budget.is_over():
            budget.leave(f"the numbers with {in_words(len(question.seeds) - len(counts), 'more seed')}")
            break
        with cluster.transaction():
            cycle = cluster.simulation.scheduler.cycle
            before, cycle.seed = cycle.seed, seed
            try:
                study = CapacityStudy(cluster, question, seed, budget)
                if found is None:
                    found = study.answer(request)
                    counts[str(seed)] = found.instances
                else:
                    question.progress(f"seed {seed} …")
                    again = study.count()
                    if again.stop.kind == capacity_bound.STOPPED:
                        budget.leave(f"the numbers with {in_words(len(question.seeds) - len(counts), 'more seed')}")
                        break
                    counts[str(seed)] = again.instances
            finally:
                cycle.seed = before
    assert found is not None
    return replace(found, per_seed=counts, stopped=budget.stopped).summed_up()


@dataclass
class _Counted:
    """The result of a count: whole units, the pods of the last, incomplete one, and why the count ended."""

    placed: list[tuple[int, capacity_bound.Placed]]
    stop: capacity_bound.Stop
    instances: int = 0
    partial: list[tuple[int, capacity_bound.Placed]] = field(default_factory=list)
    left_over: dict[int, int] = field(default_factory=dict)


class CapacityStudy:
    """One count and all values of its answer, in a transaction of the cluster."""

    def __init__(self, cluster: AskedCluster, question: CapacityQuestion, seed: int, budget: TimeBudget) -> None:
        self.cluster = cluster
        self.question = question
        self.seed = seed
        self.budget = budget
        self.pending: tuple[str, ...] = ()
        if question.pending:
            question.progress("placing pending pods …")
            cluster.run()
            self.pending = tuple(pod.key for pod in cluster.simulation.pending_pods())
        self.objects = cluster.objects()
        self.policies = policies_of(self.objects)
        self.notes: list[str] = []
        self.templates = [self._admitted(template) for template, _ in question.parts]
        self.units = [count for _, count in question.parts]

    def _admitted(self, template: CapacityTemplate) -> CapacityTemplate:
        """Return the template after admission. Its scheduler must be one of the profiles."""
        around, _ = admitted(template.around, self.policies)
        (pod,), notes = admitted([template.pod], [*self.policies, *policies_of(around)])
        assert isinstance(pod, Pod)
        self.notes += notes
        profiles = self.cluster.simulation.scheduler.profiles
        if pod.spec.scheduler_name not in profiles:
            name = "default-scheduler" if "default-scheduler" in profiles else next(iter(profiles))
            self.notes.append(f"no profile has the name {pod.spec.scheduler_name}: {name} places {template.name}")
            pod = replace(pod, spec=replace(pod.spec, scheduler_name=name))
        return CapacityTemplate(template.name, pod, template.kind, tuple(around), template.numbered)

    # -- counting --------------------------------------------------------------------------------------------------------

    def count(self, limit: int | None = None) -> _Counted:
        """Place instances in the present state, until one finds no node."""
        simulation = self.cluster.simulation
        simulation.scheduler.cycle.seed = self.seed  # a rollback may have replaced the simulation
        names = {pod.key for pod in simulation.pods.values()}
        simulation.tell([Seen(obj) for template in self.templates for obj in template.around])
        quota = capacity_bound.quotas_of(self.objects, alike=len(self.templates) == 1) if self.question.quota else None
        counter = capacity_bound.InstanceCounter(simulation, quota=quota, preempt=self.question.preempt)
        streams = [template.instances(names.__contains__) for template in self.templates]
        place = [_placing(counter, stream) for stream in streams]
        return self._replicas(place) if self.question.replicas else self._until_full(place, limit or self.question.limit)

    def _until_full(self, place: list[Callable[[], capacity_bound.Placed | capacity_bound.Stop]], limit: int) -> _Counted:
        counted = _Counted([], capacity_bound.Stop(capacity_bound.LIMIT_REACHED, f"Maximum number of pods simulated: {limit}"))
        while not limit or counted.instances < limit:
            if counted.instances and self.budget.is_over():
                counted.stop = capacity_bound.Stop(capacity_bound.STOPPED, "")
                return counted
            unit: list[tuple[int, capacity_bound.Placed]] = []
            for at, count in enumerate(self.units):
                for _ in range(count):
                    placed = place[at]()
                    if isinstance(placed, capacity_bound.Stop):
                        counted.stop, counted.partial = placed, unit
                        return counted
                    unit.append((at, placed))
            counted.placed += unit
            counted.instances += 1
        return counted

    def _replicas(self, place: list[Callable[[], capacity_bound.Placed | capacity_bound.Stop]]) -> _Counted:
        """Place the number of pods of each template; retry those that found no node as long as others are placed."""
        counted = _Counted(
            [], capacity_bound.Stop(capacity_bound.LIMIT_REACHED, "all pods fit"), left_over=dict(enumerate(self.units))
        )
        progress = True
        while progress:
            progress = False
            for at in counted.left_over:
                while counted.left_over[at]:
                    if counted.placed and self.budget.is_over():
                        counted.stop, counted.instances = capacity_bound.Stop(capacity_bound.STOPPED, ""), len(counted.placed)
                        return counted
                    placed = place[at]()
                    if isinstance(placed, capacity_bound.Stop):
                        counted.stop = placed
                        break
                    counted.placed.append((at, placed))
                    counted.left_over[at] -= 1
                    progress = True
            progress = progress and any(counted.left_over.values())
        if not any(counted.left_over.values()):
            counted.stop = capacity_bound.Stop(capacity_bound.LIMIT_REACHED, "all pods fit")
        counted.instances = len(counted.placed)
        return counted

    # -- the answer ------------------------------------------------------------------------------------------------------

    def answer(self, request: AnswerRequest) -> Capacity:
        self.question.progress("counting …")
        rooms = [self._room(template) for template in self.templates]
        with self.cluster.transaction():
            counted = self.count()
            values = self._described(counted, rooms)
        assumptions = [Assumption("input", note) for note in dict.fromkeys(self.notes)]
        if counted.stop.kind == capacity_bound.STOPPED:
            self.budget.leave("how many more fit" if not self.question.replicas else "whether the other pods fit")
        elif not self.question.replicas and self.question.gains:
            found = GainSearch(self).find(values["per_group"], rooms, counted.instances, self.units)
            values["gains"], values["skipped_gains"] = found
        return Capacity(request=request, summary="", assumptions=tuple(assumptions), pending=self.pending, **values).summed_up()

    def recount(self) -> int:
        """Return the number of instances now.

        Raises  BudgetSpentError
        """
        again = self.count()
        if again.stop.kind == capacity_bound.STOPPED:
            raise BudgetSpentError
        return again.instances

    def bound_now(self) -> int | None:
        """Return the upper bound now; None for a mix."""
        return self._room(self.templates[0]).bound if len(self.templates) == 1 else None

    def _judged(self, pod: Pod) -> EveryVerdict:
        simulation = self.cluster.simulation
        return verdicts_now(simulation.scheduler, simulation.pods.get(pod.metadata.uid, pod))

    def _room(self, template: CapacityTemplate) -> capacity_bound.Room:
        """Return the room for the first instance in the present state."""
        why = ""
        if self.question.preempt:
            why = "instances may evict pods"
        elif template.numbered is not None:
            why = "each instance has claims of its own"
        elif self.cluster.simulation.scheduler.cycle.extenders:
            why = "extenders decide as well"
        elif len(self.templates) > 1 or self.units != [1]:
            why = "a mix of templates is counted"
        names = {pod.key for pod in self.cluster.simulation.pods.values()}
        pod, needs = next(template.instances(names.__contains__))
        if not (template.around or needs or pod.spec.volumes or pod.spec.resource_claims):
            return capacity_bound.room_for(self._judged(pod), why)
        with self.cluster.transaction():  # claims have to exist before the plugins run
            self.cluster.simulation.tell(map(Seen, (*template.around, *needs, pod)))
            return capacity_bound.room_for(self._judged(pod), why)

    def _described(self, counted: _Counted, rooms: list[capacity_bound.Room]) -> dict[str, Any]:
        """Return the fields of the answer that depend on the state in which no further instance fits."""
        blocked = counted.stop.pod
        subject = self._part_of(blocked)
        last = self._judged(blocked) if blocked is not None and counted.stop.kind == capacity_bound.UNSCHEDULABLE else None
        self._roll_back(counted.partial)
        room = rooms[subject]
        after = room.free_in(self.cluster.simulation.scheduler.snapshot)
        per_node = Counter(placed.node for _, placed in counted.placed)
        table = self.cluster.simulation.scheduler.snapshot.table
        parts = tuple(self._part(at, counted, rooms[at]) for at in range(len(self.templates)))
        bound = None if self.question.replicas else room.bound
        return {
            "parts": parts,
            "instances": counted.instances,
            "per_node": {node.name: per_node[node.name] for node in table.nodes if per_node[node.name]},
            "fail_type": counted.stop.kind,
            "message": counted.stop.message,
            "upper_bound": bound,
            "no_bound": "" if bound is not None else room.why_none,
            "per_group": tuple(groups_of(table.nodes, room, after, per_node, last)),
            "binding": tuple(binding_of(room, last)),
            "exhausted": exhausted_of(room, after, table.nodes) if last is not None else {},
            "stranded": stranded_of(room, after, per_node, table.nodes) if last is not None else {},
            "blocked_by": "" if blocked is None else blocked.key,
            "unplaced": tuple(placed.pod.key for _, placed in counted.partial),
            "preempted": tuple(key for _, placed in counted.placed for key in placed.victims),
            "proof": Proof("bound" if bound == counted.instances else "run", runs=len(self.question.seeds)),
        }

    def _part_of(self, pod: Pod | None) -> int:
        if pod is None:
            return 0
        specs = [template.name for template in self.templates]
        return next((at for at, name in enumerate(specs) if pod.name.rpartition("-")[0] == name), 0)

    def _part(self, at: int, counted: _Counted, room: capacity_bound.Room) -> CapacityPart:
        template, replicas = self.templates[at], self.question.replicas
        return CapacityPart(
            template=template.name,
            kind=template.kind,
            requests={name: amount for name, amount in room.needs.items() if name != "pods"},
            placed=sum(part == at for part, _ in counted.placed),
            per_unit=1 if replicas else self.units[at],
            asked=self.units[at] if replicas else None,
            left_over=counted.left_over.get(at) if replicas else None,
        )

    def _roll_back(self, partial: Iterable[tuple[int, capacity_bound.Placed]]) -> None:
        """Remove the pods of an incomplete unit."""
        simulation = self.cluster.simulation
        for _, placed in reversed(list(partial)):
            if simulation.scheduler.cluster.is_assumed(placed.pod.uid):
                simulation.scheduler.cluster.forget(placed.pod.uid)
            else:
                simulation.delete(placed.pod.uid)


def _placing(
    counter: capacity_bound.InstanceCounter, stream: Iterator[tuple[Pod, tuple[Object, ...]]]
) -> Callable[[], capacity_bound.Placed | capacity_bound.Stop]:
    """Return a function that places the next instance of a template; an instance that found no node is tried again."""
    waiting: list[tuple[Pod, tuple[Object, ...]]] = []

    def place() -> capacity_bound.Placed | capacity_bound.Stop:
        pod, needs = waiting.pop() if waiting else next(stream)
        placed = counter.place(pod, needs)
        if isinstance(placed, capacity_bound.Stop):
            waiting.append((pod, needs))
        return placed

    return place


# -- gains -------------------------------------------------------------------------------------------------------------
# How many instances changes would add: one more node of each group, 10% more of each resource, or uncordoned nodes.
#
# Each gain is computed in the changed cluster: by the engine if there are few instances, else by arithmetic, which is exact if
# the count equals the upper bound.


#: Maximum number of instances to place by the engine to find gains; beyond it, gains come from arithmetic or are left out.
MOST_INSTANCES: Final = 10_000
#: The largest cluster, in nodes, for which the engine computes gains.
MOST_NODES: Final = 1_000
#: Maximum number of groups of which a node is added.
MOST_GROUPS: Final = 12


class GainSearch:
    """Makes changes in a cluster at rest, counts instances, and rolls the changes back."""

    def __init__(self, study: CapacityStudy) -> None:
        self._study, self._cluster, self._budget = study, study.cluster, study.budget

    def find(
        self, groups: Sequence[CapacityGroup], rooms: Sequence[Room], instances: int, units: Sequence[int]
    ) -> tuple[tuple[CapacityGain, ...], str]:
        """Return the gains, and why some are left out."""
        wanted = list(self._changes(groups, rooms))
        bound = rooms[0].bound if len(rooms) == 1 else None
        exact = bound is not None and bound == instances
        cost = (instances * sum(units) + 100) * len(wanted)
        nodes = len(self._cluster.simulation.scheduler.snapshot.table)
        by_engine = cost <= MOST_INSTANCES and nodes <= MOST_NODES
        if not by_engine and not exact:
            return (), f"gains would take {cost} more placements"
        found: list[CapacityGain] = []
        for number, (gain, make) in enumerate(wanted, 1):
            self._study.question.progress(f"gain {number} of {len(wanted)} …")
            if not by_engine and gain.change == "resource":
                more = rooms[0].bound_with(gain.resource, _tenths(self._nodes, gain.resource)) - instances
                found.append(replace(gain, more=more, proof="bound"))
                continue
            try:
                self._budget.check()
                with self._cluster.transaction():
                    make()
                    after = self._study.recount() if by_engine else self._study.bound_now() or 0
            except BudgetSpentError:
                self._budget.leave(f"what {in_words(len(wanted) - number + 1, 'more change')} would gain")
                break
            found.append(replace(gain, more=after - instances, proof="run" if by_engine else "bound"))
        return tuple(found), ""

    @property
    def _nodes(self) -> list[Node]:
        return list(self._cluster.simulation.scheduler.snapshot.table.nodes)

    def _changes(
        self, groups: Sequence[CapacityGroup], rooms: Sequence[Room]
    ) -> Iterator[tuple[CapacityGain, Callable[[], None]]]:
        nodes = self._nodes
        if not nodes:
            return
        taken = {node.name for node in nodes}
        for group in group_nodes(nodes)[:MOST_GROUPS]:
            pattern = next((node for node in group.nodes if not node.spec.unschedulable), group.nodes[0])
            name = next(free for free in (f"{pattern.name}-new", f"{pattern.name}-new-1") if free not in taken)
            fresh = like_node(pattern, name)
            yield CapacityGain("node", 0, group=group.name, nodes=(pattern.name,)), partial(self._add, fresh)
        for resource in dict.fromkeys(name for room in rooms for name, need in room.needs.items() if need and name != "pods"):
            yield CapacityGain("resource", 0, resource=resource), partial(self._enlarge, resource)
        for held in groups:
            cordoned = [node for node in nodes if node.name in held.nodes and node.spec.unschedulable]
            if cordoned and not held.eligible:
                names = tuple(node.name for node in cordoned)
                gain = CapacityGain("uncordon", 0, group=held.group, nodes=names)
                yield gain, partial(self._uncordon, cordoned)

    def _add(self, node: Node) -> None:
        add_nodes(self._cluster.simulation, [node], self._study.policies)

    def _enlarge(self, resource: str) -> None:
        """Give every node 10% more of a resource, rounded down."""
        nodes = self._nodes
        more = _tenths(nodes, resource)
        self._cluster.simulation.tell([
            Seen(_with(node, resource, amount(resource, node.status.allocatable[resource]) + extra))
            for node, extra in zip(nodes, more, strict=True) if extra
        ])  # fmt: skip

    def _uncordon(self, nodes: Sequence[Node]) -> None:
        changed = [apply([node], Change("node", "uncordon", f"node/{node.name}"))[0] for node in nodes]
        self._cluster.simulation.tell([Seen(node) for node in changed])


def _tenths(nodes: Sequence[Node], resource: str) -> list[int]:
    return [amount(resource, node.status.allocatable.get(resource, 0)) // 10 for node in nodes]


def _with(node: Node, resource: str, count: int) -> Node:
    return replace(node, status=replace(node.status, allocatable=with_amount(node.status.allocatable, resource, count)))
