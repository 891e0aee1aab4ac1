"""Why a pod group waits as a whole, how much of it fits where, and what starts it.

The cluster is at rest: all pending pods were tried. Arithmetic says how many pods of the group fit in each domain; if plugins
count other pods too, the engine places them there one after another. If all pods of the group are equal and no such plugin
reads them, arithmetic also says what a change leads to. Otherwise the change is made, the group is tried, and the change is
taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from moorage.api.pod_groups import CompositePodGroup, GangSchedulingPolicy, PodGroup
from moorage.api.workloads import PodDisruptionBudget
from moorage.basis.printable import counted, some
from moorage.core.cycle.search import SearchScope
from moorage.core.extenders.consultation import without_asking
from moorage.core.groups.group_cycle import GroupCycle, QueuedGroup
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.errors import InputError, MoorageError
from moorage.framework.changes import Change
from moorage.framework.placements import GroupInfo
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.explain.gang_moves import MadeRoom, RoomSearch
from moorage.laboratory.explain.gang_room import Filling, GangRoom, classes_of
from moorage.plugins.gang_scheduling import GangScheduling
from moorage.report.answer import AnswerRequest, Proof
from moorage.report.short_names import some_pods
from moorage.report.workload_explanation import GangDomain, GangExplanation, GangPart, GangWay
from moorage.simulator.owners import controller_kind
from moorage.state.group_trees import below, root_of
from moorage.state.pod_groups import group_key
from moorage.state.view import IntArray, PodInfo

_TOPOLOGY: Final = "TopologyAwareWorkloadScheduling"
_KINDS: Final = frozenset({"podgroup", "podgroups", "pg", "podgroup.scheduling.k8s.io"})
_TREE_KINDS: Final = frozenset({"compositepodgroup", "compositepodgroups", "cpg", "compositepodgroup.scheduling.k8s.io"})
#: How many domains the engine fills, those that could hold most first.
_MOST_FILLED: Final = 3
#: The most nodes that are added in a trial.
_MOST_ADDED: Final = 64
_SUMMARIES: Final = {
    "scheduled": "runs: {placed} of its {pods} pods have a node",
    "missing": "cannot start: no PodGroup of this name exists, and its pods wait for it",
    "incomplete": "cannot start: {there} of the {least} pods that go together are there",
    "preempting": "starts once the pods that it preempts have left",
    "fits": "waits, although the {needed} pods that it needs fit together now",
    "tree": "waits for other groups of its tree, {root}: the {needed} pods that it needs fit together now",
    "never": "can never start here: {holds} of the {needed} pods that it needs, even without other pods",
    "waiting": "cannot start: {largest} of the {needed} pods that it needs fit together",
}


def group_named(cluster: Cluster, name: str, namespace: str = "") -> str | None:
    """Return ``namespace/name`` of the group that ``podgroup/[NAMESPACE/]NAME`` names; None if there is none.

    ``compositepodgroup/NAME`` names the first group below it that has waiting pods, or else the first.

    Raises  InputError if several namespaces have one, or groups are disabled
    """
    kind, _, rest = name.partition("/")
    space, _, short = rest.rpartition("/")
    space = space or namespace
    is_tree = kind.lower() in _TREE_KINDS
    if kind.lower() not in _KINDS and not is_tree:
        return None
    known = {obj.key for obj in cluster.objects() if isinstance(obj, CompositePodGroup if is_tree else PodGroup)}
    known |= {key for pod in cluster.simulation.pods.values() if not is_tree and (key := group_key(PodInfo(pod)))}
    found = sorted(key for key in known if key == f"{space}/{short}" or (not space and key.endswith(f"/{short}")))
    if len(found) > 1:
        raise InputError(f"{name} is in {counted(len(found), 'namespace')}: {some(found)}; give -n NAMESPACE")
    if found and cluster.scheduler.cluster.groups is None:
        gates = [gate for gate in ("GenericWorkload", "GangScheduling") if gate in cluster.scheduler.gates.emulated.gates]
        opened = ",".join(f"{gate}=true" for gate in gates)
        raise InputError(f"{name}: pods are scheduled one by one unless pod groups are enabled: --feature-gates={opened}")
    if not found or not is_tree:
        return found[0] if found else None
    snapshot = cluster.snapshot
    leaves = [leaf.key for leaf in below(snapshot.objects(CompositePodGroup)[found[0]], snapshot).leaves()]
    return min(leaves, key=lambda key: not getattr(snapshot.group(key), "unscheduled", ()), default=None)


def explain_group(
    cluster: Cluster, key: str, request: AnswerRequest | None = None, *, probes: int = 200, budget: TimeBudget | None = None
) -> GangExplanation:
    """Return why a group, ``namespace/name``, of a cluster at rest waits. Nothing changes.

    ``probes``  how many changes are tried at most; 0: none
    """
    request = request or AnswerRequest(release=cluster.scheduler.gates.release, seeds=(cluster.options.seed,))
    return _Gang(cluster, key, probes, budget or TimeBudget()).explained(request)


class _Filler(GroupCycle):
    """Places the pods of a group on some rows, each with the earlier ones there, and takes all of it back."""

    def nodes_on(self, rows: IntArray) -> dict[str, str]:
        """Return the nodes that pods find, by UID."""
        outcome = without_asking(self._one_by_one(SearchScope(rows, post_filter=False)))
        return {one.queued.pod.uid: one.node for one in outcome.tried if one.node is not None}


@dataclass
class _Gang:
    """One group. ``waiting`` are its pods that can be tried, ``held`` those that something else holds back, by what that is."""

    cluster: Cluster
    key: str
    probes: int
    budget: TimeBudget
    runs: int = 0
    ways: list[GangWay] = field(default_factory=list)
    waiting: list[PodInfo] = field(default_factory=list)
    held: dict[str, list[PodInfo]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        snapshot = self.cluster.snapshot
        self._requests = ChangeRequests(self.cluster.present())
        self.group, self.members = snapshot.objects(PodGroup).get(self.key), snapshot.group(self.key)
        self.placed = {} if self.members is None else dict(self.members.nodes)
        for pod in () if self.members is None else self.members.unscheduled:
            why = self._held_by(pod)
            (self.held.setdefault(why, []) if why else self.waiting).append(pod)
        self.waiting.sort(key=self._turn)
        self.least = (None if self.group is None else self.group.min_count) or 1
        self.absent = max(0, self.least - len(self.placed) - len(self.waiting))
        self.needed = max(0, self.least - len(self.placed))
        keys = self.group.topology_keys if self.group is not None and self.cluster.scheduler.gates[_TOPOLOGY] else ()
        self.topology = next(iter(keys), None)
        root = self.group and self.cluster.scheduler.gates.serves("CompositePodGroup") and root_of(self.group, snapshot)
        self.tree = below(root, snapshot) if isinstance(root, CompositePodGroup) else None

    def _turn(self, pod: PodInfo) -> tuple[float, ...]:
        """Sort key of the waiting pods: as they are tried."""
        queued = self.cluster.scheduler.queue.get(pod.uid)
        return (-pod.priority, *((queued.initial_attempt or 0.0, queued.initial_order) if queued else ()))

    def _held_by(self, pod: PodInfo) -> str:
        scheduler = self.cluster.scheduler
        if pod.spec.scheduler_name not in scheduler.profiles:
            return f"scheduler {pod.spec.scheduler_name} has no profile here"
        queued = scheduler.queue.get(pod.uid)
        if queued is None or not queued.gated or queued.gated_by == GangScheduling.name:
            return ""
        return f"held by {', '.join(gate.name for gate in pod.spec.scheduling_gates) or queued.gated_by}"

    # -- the answer --------------------------------------------------------------------------------------------------------

    def explained(self, request: AnswerRequest) -> GangExplanation:
        if self.group is None or not self.waiting:
            state = "missing" if self.group is None else "incomplete" if self.needed else "scheduled"
            return self._answer(request, state, {}, {"parts": tuple(self._held_parts())})
        profile = self.cluster.scheduler.profiles[self.waiting[0].spec.scheduler_name]
        expected = [*self.waiting, *([self.waiting[0]] * self.absent)]  # those that do not exist yet are as the first
        room = GangRoom(classes_of(profile, expected, self.cluster.snapshot), self.cluster.snapshot, self.topology, self.placed)
        now, ever, closed = room.now(), room.ever(), self._closed(room)
        usable = [at for at in range(len(room.domains)) if at not in closed]
        if not room.is_exact:
            self._fill(room, now, usable)
        wanted = self.needed or len(self.waiting)
        best = max(usable, key=lambda at: (int(now.fits[at]), int(now.most[at])), default=None)
        largest, at_most = int(now.fits[usable].max(initial=0)), int(now.most[usable].max(initial=0))
        limit = int(ever.most[usable].max(initial=0))
        state = self._state(largest, limit, wanted)
        named = "the cluster" if self.topology is None else f"any one {self.topology.rpartition('/')[2]}"
        fields = {
            "needed": wanted, "largest": largest, "at_most": at_most, "domain": "" if best is None else room.domains[best],
            "parts": tuple(self._parts(room, now, best, state)),
            "domains": tuple(sorted(self._domains(room, now, ever, closed, state), key=_by_room)),
        }  # fmt: skip
        if self.probes and state in {"waiting", "never", "incomplete"}:  # last: a trial may replace the state
            self._search(state, room, now, ever, usable, wanted)
        holds = f"{named} holds {f'at most {limit}' if limit else 'none'}"
        return self._answer(request, state, {"largest": largest or "none", "needed": wanted, "holds": holds}, fields)

    def _state(self, largest: int, limit: int, wanted: int) -> str:
        if not self.needed:
            return "scheduled"
        if self.absent:
            return "incomplete"
        if any(self.cluster.scheduler.queue.nomination(pod.uid) for pod in self.waiting):
            return "preempting"
        return ("fits" if self.tree is None else "tree") if largest >= wanted else "never" if limit < wanted else "waiting"

    def _answer(
        self, request: AnswerRequest, state: str, texts: Mapping[str, object], fields: Mapping[str, Any]
    ) -> GangExplanation:
        namespace, _, name = self.key.partition("/")
        there, last = len(self.placed) + len(self.waiting), self.cluster.simulation.groups.get(self.key)
        pods = there + sum(map(len, self.held.values()))
        texts = {**texts, "pods": pods, "there": there, "root": "" if self.tree is None else self.tree.group.key}
        said = _SUMMARIES[state].format(placed=len(self.placed), least=self.least, **texts)
        return GangExplanation(
            request=request, summary=f"{self.key} {said}.", namespace=namespace, name=name, state=state,
            proof=Proof("bound" if state == "never" else "run", runs=self.runs), stopped=self.budget.stopped,
            min_count=None if self.group is None else self.group.min_count, pods=pods, placed=len(self.placed),
            priority=0 if self.group is None else self.group.priority, topology_key=self.topology or "",
            message="" if last is None else last.message, ways=tuple(self.ways),
            nodes=tuple(node.name for node in self.cluster.snapshot.table.nodes), **fields,
        )  # fmt: skip

    def _closed(self, room: GangRoom) -> dict[int, str]:
        """Return the domains that the group cannot use because it has pods elsewhere."""
        if self.topology is None or not self.placed:
            return {}
        table = self.cluster.snapshot.table
        used = {int(room.domain[table.row_of[node]]) for node in self.placed.values() if node in table.row_of}
        names = ", ".join(room.domains[at] for at in sorted(used) if at >= 0) or "no domain"
        return {at: f"its placed pods are in {names}" for at in range(len(room.domains)) if used != {at}}

    def _domains(
        self, room: GangRoom, now: Filling, ever: Filling, closed: Mapping[int, str], state: str
    ) -> Iterator[GangDomain]:
        lasts = state == "never"
        is_open = np.logical_or.reduce([one.open_ever if lasts else one.open_now for one in room.classes])
        for at, name in enumerate(room.domains):
            among = room.domain == at
            stops = dict(room.stops(at, ever if lasts else now, ever=lasts).most_common(4))
            yield GangDomain(
                name, int(among.sum()), int((is_open & among).sum()), int(now.fits[at]), int(now.most[at]), int(ever.most[at]),
                stops, closed.get(at, ""),
            )  # fmt: skip

    # -- the engine ----------------------------------------------------------------------------------------------------------

    def _fill(self, room: GangRoom, filling: Filling, usable: Sequence[int]) -> None:
        """Let the engine place the pods in the domains that could hold most, and put the numbers into the filling."""
        filling.counts[:] = best = 0
        for at in sorted(usable, key=lambda at: -int(filling.most[at]))[:_MOST_FILLED]:
            if best >= int(filling.most[at]) or self.budget.is_over():
                break
            found = self._nodes_in(room, at)
            filling.counts[at] = [sum(pod.uid in found for pod in one.pods) for one in room.classes]
            best = max(best, len(found))

    def _nodes_in(self, room: GangRoom, domain: int, added: Sequence[int] = ()) -> dict[str, str]:
        """Return the nodes that pods of the group find in a domain and on added rows, by UID: the engine places them."""
        scheduler, (namespace, _, name) = self.cluster.scheduler, self.key.partition("/")
        state, profile = scheduler.state, scheduler.profiles[self.waiting[0].spec.scheduler_name]
        found = [one for pod in self.waiting if (one := scheduler.queue.get(pod.uid)) is not None]
        group = QueuedGroup(GroupInfo(namespace, name, tuple(one.pod for one in found)), profile, tuple(found))
        self.runs += 1
        with self.cluster.transaction():
            filler = _Filler(
                group, scheduler.cycle, state.cluster, state.queue, False, False, state.now, lambda *_: None, lambda _: None
            )
            rows = [np.flatnonzero(room.domain == domain), np.array(added, dtype=np.intp)]
            return filler.nodes_on(np.concatenate(rows))

    def _tried(self) -> int:
        """Try the group, and return how many more of its pods have a node then."""
        self.runs += 1
        assert self.members is not None
        before = self.members.scheduled_count
        self.cluster.schedule([self.waiting[0].uid])
        return self.members.scheduled_count - before

    # -- who waits for whom --------------------------------------------------------------------------------------------------

    def _parts(self, room: GangRoom, now: Filling, best: int | None, state: str) -> Iterator[GangPart]:
        if self.placed and self.members is not None:
            names = tuple(pod.name for uid in self.placed if (pod := self.members.pod(uid)) is not None)
            yield GangPart("placed", len(names), names)
        counts = [0] * len(room.classes) if best is None else now.counts[best].tolist()
        split = [(one, one.pods[:count], one.pods[count:]) for one, count in zip(room.classes, counts, strict=True)]
        fit = list(dict.fromkeys(pod.name for _, some, _ in split for pod in some))
        rest = list(dict.fromkeys(pod.name for _, _, some in split for pod in some if pod.name not in fit))
        if not fit or not rest or state not in {"waiting", "never"}:
            why = ""
        elif len(room.classes) > 1:
            why = f"{'waits' if len(fit) == 1 else 'wait'} for {some_pods(rest)}"
        else:
            lacking = max(self.needed - len(fit), 1)
            why = f"{'waits' if len(fit) == 1 else 'wait'} for {lacking} more, for which there is no node beside them"
        if fit:
            yield GangPart("fits", len(fit), tuple(fit), why)
        if rest and (len(room.classes) > 1 or not fit):
            alone = not any(one.judged.feasible.any() for one, _, some in split if some)
            yield GangPart("blocked", len(rest), tuple(rest), "no node, even alone" if alone else "no node beside the others")
        yield from self._held_parts()
        yield from self._tree_parts()

    def _tree_parts(self) -> Iterator[GangPart]:
        """Yield the groups of the tree, those above before those below, each with how its last attempt ended."""
        for node in () if self.tree is None else self.tree.nodes():
            last = None if node.children else self.cluster.simulation.groups.get(node.group.key)
            within = "".join(f", within one {key}" for key in node.group.topology_keys[:1])
            found = f"; {last.could_go} found a node" if last is not None and last.could_go else ""
            of = f" of its {counted(len(node.children), 'group')}" if node.children else ""
            why = f"{node.group.key}: at least {node.needed}{of} together{within}{found}"
            yield GangPart("tree" if of else "group", sum(map(len, node.pods(self.cluster.snapshot))), (), why)

    def _held_parts(self) -> Iterator[GangPart]:
        for why, pods in self.held.items():
            yield GangPart("held", len(pods), tuple(pod.name for pod in pods), why)
        if missing := self.absent - sum(map(len, self.held.values())):
            yield GangPart("absent", missing, (), "not created")

    # -- what starts it ------------------------------------------------------------------------------------------------------

    def _search(self, state: str, room: GangRoom, now: Filling, ever: Filling, usable: Sequence[int], wanted: int) -> None:
        if state == "incomplete":
            if (missing := self.absent - sum(map(len, self.held.values()))) > 0:
                self.ways.append(GangWay("create", f"create {counted(missing, 'more pod')} of the group"))
            for why, pods in self.held.items():
                self.ways.append(GangWay("release", f"release {some_pods([pod.name for pod in pods])}: {why}"))
            return
        possible = [at for at in usable if int(ever.most[at]) >= wanted]
        if possible:
            self._wait(room, wanted)
            self._make_room(room, possible, wanted)
        if (largest := int(now.fits[usable].max(initial=0))) and self.group is not None and self.group.min_count:
            self._fewer(room, largest, self.group, max(usable, key=lambda at: int(now.fits[at])))
        self._grow(room, now, usable, wanted)

    def _wait(self, room: GangRoom, wanted: int) -> None:
        """Wait for pods that are being deleted."""
        rows = enumerate(self.cluster.snapshot.table.pods)
        leaving = [(pod, row) for row, on_row in rows for pod in on_row.values() if pod.terminating]
        free = room.without(leaving)
        placed = int(room.filled(free, [one.open_ever for one in room.classes]).fits.max(initial=0)) if leaving else 0
        if placed >= wanted and not room.is_plain:
            with self.cluster.transaction():
                self.cluster.evict(*[pod.uid for pod, _ in leaving], grace_s=0)
                placed = self._tried()
        if placed >= wanted:
            self.ways.append(
                GangWay("wait", f"wait for {counted(len(leaving), 'pod')} to leave that are being deleted", placed)
            )

    def _make_room(self, room: GangRoom, possible: Sequence[int], wanted: int) -> None:
        """Let the fewest other pods move or leave."""
        budgets = Budgets(self.cluster.snapshot.objects(PodDisruptionBudget).values())

        def attempt(pods: Sequence[PodInfo], domain: int) -> MadeRoom | None:
            return self._without(pods, room, domain, wanted)

        found = RoomSearch(room, wanted, possible, budgets, attempt, self.probes, self.budget).fewest()
        if found is None:
            return
        moved, evicted = ([pod.key for pod in pods] for pods in (found.moved, found.evicted))
        parts = [f"{verb} {some_pods(keys)}" for verb, keys in (("move", moved), ("evict", evicted)) if keys]
        proof = "no fewer are enough" if found.at_least == found.size else f"fewer than {found.at_least} are not enough"
        where = f" from {found.domain}" if self.topology is not None else ""
        text = f"{' and '.join(parts)}{where}: {counted(found.size, 'pod')}; {proof}"
        commands = tuple(f"kubectl delete pod -n {pod.namespace} {pod.name}" for pod in (*found.moved, *found.evicted))
        room_way = GangWay("room", text, found.placed, found.domain, tuple(moved), tuple(evicted), found.at_least, commands)
        self.ways.append(room_way)

    def _without(self, pods: Sequence[PodInfo], room: GangRoom, domain: int, wanted: int) -> MadeRoom | None:
        """Let pods leave, place the group in a domain, then the pods again. One of higher priority must find another node."""
        cluster, own = self.cluster, 0 if self.group is None else self.group.priority
        row_of = cluster.snapshot.table.row_of
        free = room.without((pod, row_of[cluster.snapshot.where(pod.uid) or ""]) for pod in pods)
        if self._requests.refusal([Change("cluster", "evict", f"pod/{pod.key}") for pod in pods]):
            return None
        with cluster.transaction():
            again: dict[str, str] = {}
            for pod in pods:
                arrivals = cluster.simulation.arrivals
                cluster.evict(pod.uid, grace_s=0)
                again |= {new.uid: pod.uid for new in cluster.simulation.arrived_after(arrivals)}
            spots = zip([pod.uid for pod in self.waiting], self._spots(room, free, domain), strict=False)
            nodes = dict(spots) if room.is_plain else self._nodes_in(room, domain)
            if len(nodes) < wanted:
                return None
            for uid, node in nodes.items():
                cluster.bind(uid, node)
            order = sorted(again, key=lambda uid: -(cluster.pod(uid).spec.priority or 0))
            found = {again[uid] for uid, one in zip(order, cluster.schedule(order), strict=True) if one.node}
        if any(pod.priority > own and pod.uid not in found for pod in pods):
            return None
        moved = tuple(pod for pod in pods if pod.uid in found)
        return MadeRoom(room.domains[domain], len(nodes), moved, tuple(pod for pod in pods if pod.uid not in found))

    def _spots(self, room: GangRoom, free: IntArray, domain: int) -> Iterator[str]:
        """Yield a node for each pod of the only class that fits in a domain."""
        fits = np.where(room.domain == domain, room.capacity(0, free, room.classes[0].open_ever), 0)
        for row in np.flatnonzero(fits).tolist():
            yield from [self.cluster.snapshot.table.nodes[row].name] * int(fits[row])

    def _fewer(self, room: GangRoom, placed: int, group: PodGroup, domain: int) -> None:
        """Let fewer pods go together."""
        if not room.is_plain:
            placed = len(self._nodes_in(room, domain))
        if not placed:
            return
        least = len(self.placed) + placed
        frozen = "GangScheduling" in self.cluster.scheduler.gates.emulated.gates
        if not frozen and self._requests.why_not_patched(group, _with_least(group, least)):
            return
        text = f"minCount {least} instead of {self.least}: {counted(placed, 'pod')} start{'s' if placed == 1 else ''} now"
        text += "; the group has to be created again" if frozen else ""
        patch = f'{{"spec":{{"schedulingPolicy":{{"gang":{{"minCount":{least}}}}}}}}}'
        command = f"kubectl patch podgroup -n {group.metadata.namespace} {group.name} --type=merge -p='{patch}'"
        self.ways.append(GangWay("fewer", text, placed, commands=() if frozen else (command,)))

    def _grow(self, room: GangRoom, now: Filling, usable: Sequence[int], wanted: int) -> None:
        """Add nodes like the one that holds most pods, in the domain where fewest are enough."""
        holds = np.minimum.reduce([room.capacity(at, room.free_ever, one.open_ever) for at, one in enumerate(room.classes)])
        found: list[tuple[int, int]] = []
        for at in usable:
            rows = np.flatnonzero((room.domain == at) & (holds > 0))
            if len(rows):
                row = int(rows[np.argmax(holds[rows])])
                found.append((-(-(wanted - int(now.fits[at])) // int(holds[row])), row))
        count, row = min(found, default=(_MOST_ADDED + 1, 0))
        if count > _MOST_ADDED:
            return
        like = self.cluster.snapshot.table.nodes[row].name
        if self._requests.refusal([Change("cluster", "add-node", f"node/{like}-new-1", "", None, f"like {like}")]):
            return
        way = GangWay("grow", f"add {counted(count, 'node')} like {like}", wanted, room.domains[int(room.domain[row])])
        placed = wanted if room.is_plain else 0
        with suppress(MoorageError), self.cluster.transaction():
            if not room.is_plain:
                arrivals = self.cluster.simulation.arrivals
                for number in range(1, count + 1):
                    self.cluster.apply(Change("cluster", "add-node", f"node/{like}-new-{number}", "", None, f"like {like}"))
                self.cluster.schedule(
                    [pod.uid for pod in self.cluster.simulation.arrived_after(arrivals) if controller_kind(pod) == "DaemonSet"]
                )
                row_of = self.cluster.snapshot.table.row_of
                added = [row_of[f"{like}-new-{number}"] for number in range(1, count + 1)]
                placed = len(self._nodes_in(room, int(room.domain[row]), added))
        if placed >= wanted:
            self.ways.append(way)


def _with_least(group: PodGroup, least: int) -> PodGroup:
    """Return a group of which so few pods have to fit together."""
    policy = replace(group.spec.scheduling_policy, gang=GangSchedulingPolicy(min_count=least))
    return replace(group, spec=replace(group.spec, scheduling_policy=policy))


def _by_room(one: GangDomain) -> tuple[bool, int, int, str]:
    """Sort key: domains that the group can use first, those that hold most of it first."""
    return bool(one.closed), -one.fits, -one.ever, one.name
