"""Lose nodes and let their pods be replaced, in a transaction of the cluster.

``deleted``: the node objects and their pods are deleted at once, and controllers replace the pods. ``unreachable``: the nodes
are tainted and not ready; their pods are deleted when their tolerations end, but the pod objects stay, as no kubelet confirms
the deletion. So a StatefulSet does not replace its pods, and the nodes still count as topology domains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Node, NodeCondition, Pod, Taint
from moorage.api.node_selectors import tolerates
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.laboratory.edit.edits import no_such_node
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.history import Ran, Told
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.report.plan import MovedPod
from moorage.report.survival_report import NodeLoss
from moorage.simulator.owners import controller_kind, is_mirror
from moorage.simulator.pod_records import PodRecord, State
from moorage.simulator.replacements import REPLACING_ELSEWHERE, replacement
from moorage.state.pod_info import PodInfo

FailureMode: TypeAlias = Literal["deleted", "unreachable"]

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_TAINTS: Final = tuple(Taint(key=UNREACHABLE, effect=effect) for effect in ("NoSchedule", "NoExecute"))
#: The seconds for which pods tolerate the taint, by the toleration that admission adds.
_TOLERATED_S: Final = 300.0


def class_of(pod: Pod) -> str:
    """Return the priority class of a pod, or else its priority as text; "" for a pod without either."""
    return pod.spec.priority_class_name or (str(pod.priority) if pod.priority else "")


def pods_by_node(simulation: RecordedSimulation) -> dict[str, list[str]]:
    """Return the UIDs of the pods of each node, in order of arrival."""
    found: dict[str, list[str]] = {}
    for pod in simulation.pods_in_order():
        if pod.spec.node_name:
            found.setdefault(pod.spec.node_name, []).append(pod.metadata.uid)
    return found


@dataclass
class NodeFailures:
    """Failures of one cluster at rest. Open a transaction around each."""

    cluster: AskedCluster

    def __post_init__(self) -> None:
        self.on_node = pods_by_node(self.cluster.simulation)
        nodes = self.cluster.simulation.scheduler.cluster.table.nodes
        self._cordoned = [node.metadata.name for node in nodes if node.spec.unschedulable]

    def pods_of(self, nodes: Iterable[str]) -> list[Pod]:
        pods = self.cluster.simulation.pods
        return [pods[uid] for name in nodes for uid in self.on_node.get(name, ())]

    def lose(self, lost: str, nodes: Sequence[str], mode: FailureMode = "deleted", *, follows: bool = False) -> NodeLoss:
        """Lose nodes, let time pass until nothing more happens, and return the outcome; ``follows``: for each pod too.

        Raises  InputError for a node that does not exist
        """
        before = frozenset(self.cluster.simulation.victims)
        held = self.pods_of(nodes)
        objects = list(self._objects(nodes))
        if mode == "deleted":
            made, stuck = self._delete(held, objects), list[Pod]()
        else:
            made, stuck = self._cut_off(held, objects)
        self.cluster._step(Ran(None))
        loss = self._outcome(lost, nodes, held, made, stuck, before, mode)
        return replace(loss, moved=tuple(self._moved(held, made))) if follows else loss

    def _moved(self, held: Sequence[Pod], made: Mapping[str, Pod]) -> Iterator[MovedPod]:
        """Yield the replaced and lost pods of the nodes, each with the node of its last replacement; "" if none is placed."""
        simulation = self.cluster.simulation
        for pod in held:
            fresh = made.get(pod.metadata.uid)
            record = None if fresh is None else simulation.records.get(fresh.metadata.uid)
            if record is not None or _is_bare(pod):
                last = None if record is None else _last(simulation, record)
                yield MovedPod(
                    pod.key, pod.spec.node_name, last.node if last is not None and last.state == State.PLACED else ""
                )

    def _objects(self, nodes: Iterable[str]) -> Iterator[Node]:
        table = self.cluster.simulation.scheduler.cluster.table
        for name in nodes:
            row = table.row_of.get(name)
            if row is None:
                raise InputError(no_such_node(name, table.row_of))
            yield table.nodes[row]

    # -- deleted ---------------------------------------------------------------------------------------------------------

    def _delete(self, held: Sequence[Pod], nodes: Sequence[Node]) -> dict[str, Pod]:
        """Delete nodes with their pods; return the replacements by the UID of the old pod."""
        made = {pod.metadata.uid: fresh for pod in held if (fresh := replacement_of(pod)) is not None}
        self.cluster._step(Told((*map(Gone, held), *map(Gone, nodes), *map(Seen, made.values()))))
        return made

    # -- unreachable -----------------------------------------------------------------------------------------------------

    def _cut_off(self, held: Sequence[Pod], nodes: Sequence[Node]) -> tuple[dict[str, Pod], list[Pod]]:
        """Taint nodes and delete their pods as the tolerations end; return the replacements and the pods that are stuck."""
        began = self.cluster.simulation.now
        self.cluster._step(Told(tuple(Seen(unreachable_node(node)) for node in nodes)))
        made: dict[str, Pod] = {}
        stuck: list[Pod] = []
        due = [(began + after_s, pod) for pod in held if (after_s := tolerated_s(pod)) is not None]
        for time_s in sorted({time_s for time_s, _ in due}):
            self.cluster._step(Ran(time_s))
            facts: list[Seen | Gone] = []
            for pod in [pod for when, pod in due if when == time_s]:
                facts += self._leaves(pod, made, stuck)
            self.cluster._step(Told(tuple(facts)))
        return made, stuck

    def _leaves(self, pod: Pod, made: dict[str, Pod], stuck: list[Pod]) -> list[Seen | Gone]:
        now = self.cluster.simulation.pods.get(pod.metadata.uid)
        if now is None or now.metadata.deletion_timestamp is not None or now.status.phase in ENDED_PHASES:
            return []
        marked = Seen(self.cluster.simulation.leaving(now))
        if controller_kind(pod) == "StatefulSet":
            stuck.append(pod)
            return [marked]
        fresh = replacement_of(pod)
        if fresh is None:
            return [marked]
        made[pod.metadata.uid] = fresh
        return [marked, Seen(fresh)]

    # -- what came of it -------------------------------------------------------------------------------------------------

    def _outcome(
        self, lost: str, nodes: Sequence[str], held: Sequence[Pod], made: dict[str, Pod], stuck: Sequence[Pod],
        before: frozenset[str], mode: FailureMode,
    ) -> NodeLoss:  # fmt: skip
        simulation = self.cluster.simulation
        victims = [record for uid, record in simulation.victims.items() if uid not in before]
        records = [simulation.records.get(pod.metadata.uid) for pod in made.values()]
        own = [_last(simulation, record) for record in records if record is not None]
        others = [_last(simulation, record) for record in victims if record.replaced]
        pending = list({id(one): one for one in (*own, *others) if one.state == State.PENDING}.values())
        gone = [pod for pod in held if _is_bare(pod) and (mode == "deleted" or tolerated_s(pod) is not None)]
        gone += [one.pod for one in victims if one.state == State.PREEMPTED and _is_bare(one.pod)]
        needs = [PodInfo(one.pod).requests for one in pending]
        free_cpu, free_memory = (self._free(name, nodes) for name in ("cpu", "memory"))
        return NodeLoss(
            lost,
            tuple(nodes),
            len(held),
            pending=tuple(dict.fromkeys(one.pod.key for one in pending)),
            lost_for_good=tuple(dict.fromkeys(pod.key for pod in gone)),
            preempted=tuple(one.pod.key for one in victims if one.state == State.PREEMPTED),
            stuck=tuple(pod.key for pod in stuck),
            moves=sum(one.state == State.PLACED for one in own),
            by_priority=dict(Counter(class_of(one.pod) for one in pending)),
            pending_cpu_milli=sum(one.get("cpu", 0) for one in needs),
            pending_memory_bytes=sum(one.get("memory", 0) for one in needs),
            free_cpu_milli=free_cpu,
            free_memory_bytes=free_memory,
            why=pending[0].message or None if pending else None,
        )

    @property
    def has_cordoned(self) -> bool:
        """Whether nodes are cordoned."""
        return bool(self._cordoned)

    def without_harm(self, lost: str, nodes: Sequence[str], made: Sequence[Pod]) -> NodeLoss:
        """Return the outcome of a loss, before it happens, if all replacements find nodes that are not cordoned."""
        held = self.pods_of(nodes)
        needs = [PodInfo(pod).requests for pod in made]
        return NodeLoss(
            lost,
            tuple(nodes),
            len(held),
            lost_for_good=tuple(dict.fromkeys(pod.key for pod in held if _is_bare(pod))),
            moves=len(made),
            free_cpu_milli=self._free("cpu", nodes) - sum(one.get("cpu", 0) for one in needs),
            free_memory_bytes=self._free("memory", nodes) - sum(one.get("memory", 0) for one in needs),
        )

    def _free(self, resource: str, lost: Sequence[str]) -> int:
        """Return the free amount of a resource on schedulable nodes."""
        table = self.cluster.simulation.scheduler.cluster.table
        left = (table.allocatable(resource).view - table.requested(resource).view).clip(min=0)
        closed = [table.row_of[name] for name in {*self._cordoned, *lost} if name in table.row_of]
        return int(left.sum() - left[closed].sum())


def replacement_of(pod: Pod) -> Pod | None:
    """Return the pod that a controller creates in place of one whose node is lost."""
    if pod.status.phase in ENDED_PHASES or is_mirror(pod):
        return None
    if pod.metadata.deletion_timestamp is not None and controller_kind(pod) != "StatefulSet":
        return None  # it was replaced when its deletion began
    return replacement(pod, REPLACING_ELSEWHERE)


def _is_bare(pod: Pod) -> bool:
    """Return True for a pod that is lost for good when it is deleted."""
    if pod.status.phase in ENDED_PHASES or is_mirror(pod) or pod.metadata.deletion_timestamp is not None:
        return False
    return controller_kind(pod) not in {*REPLACING_ELSEWHERE, "DaemonSet"}


def _last(simulation: RecordedSimulation, record: PodRecord) -> PodRecord:
    """Return the last replacement of a pod."""
    for _ in range(100):
        if not record.replaced:
            break
        then = simulation.pod_named(f"{record.pod.namespace}/{record.replaced}")
        after = None if then is None else simulation.records.get(then.metadata.uid)
        if after is None or after is record:
            break
        record = after
    return record


def unreachable_node(node: Node) -> Node:
    """Return a node as the node lifecycle controller marks it when its kubelet stops reporting."""
    return _marked(node, _TAINTS, NodeCondition(type="Ready", status="Unknown", reason="NodeStatusUnknown"))


def reachable_node(node: Node) -> Node:
    """Return a node as the node lifecycle controller marks it when its kubelet reports again."""
    return _marked(node, (), NodeCondition(type="Ready", status="True", reason="KubeletReady"))


def _marked(node: Node, taints: tuple[Taint, ...], ready: NodeCondition) -> Node:
    others = (taint for taint in node.spec.taints if taint.key != UNREACHABLE)
    conditions = (one for one in node.status.conditions if one.type != "Ready")
    spec, status = replace(node.spec, taints=(*others, *taints)), replace(node.status, conditions=(*conditions, ready))
    return replace(node, spec=spec, status=status)


def tolerated_s(pod: Pod) -> float | None:
    """Return how long a pod stays on an unreachable node, in seconds; None: for good."""
    if is_mirror(pod) or controller_kind(pod) == "DaemonSet":
        return None
    found = [one for one in pod.spec.tolerations if tolerates(one, _TAINTS[-1])]
    if not found:
        return _TOLERATED_S
    return None if found[0].toleration_seconds is None else float(max(0, found[0].toleration_seconds))
