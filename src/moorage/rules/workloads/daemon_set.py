"""The daemon set controller: one pod on each eligible node, and rolling updates node by node.

Source  kubernetes, pkg/controller/daemon: daemon_controller.go and update.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api import core
from moorage.api.decode import decode
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.node_selectors import compile_node_selector, find_untolerated, required_nodes
from moorage.api.selectors import selector_from_map
from moorage.api.workloads import DaemonSet
from moorage.rules.workloads.controller_revisions import RevisionHistory, history_of
from moorage.rules.workloads.missing_pods import REVISION_HASH
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import claim, keys_by_owner, pod_of_template
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step

# Which nodes run the pods of a daemon set, and the node affinity that binds each pod to its node.
#
# A daemon set has no replica count. Its controller creates one pod for each eligible node, judged by node selector, required
# node affinity and taints, and leaves binding to the scheduler: it replaces the pod's required node affinity with one that
# names the node.
#
# Source  kubernetes, pkg/controller/daemon/daemon_controller.go and util/daemonset_util.go

#: Taint effects that keep new daemon pods off a node, and those that evict running ones.
KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
DRIVES_AWAY: Final = frozenset({"NoExecute"})
_TOLERATED: Final = {
    "not-ready": "NoExecute", "unreachable": "NoExecute", "disk-pressure": "NoSchedule", "memory-pressure": "NoSchedule",
    "pid-pressure": "NoSchedule", "unschedulable": "NoSchedule",
}  # fmt: skip
_TOLERATED_ON_HOST_NETWORK: Final = {"network-unavailable": "NoSchedule"}


def daemon_tolerations(spec: core.PodSpec) -> tuple[core.Toleration, ...]:
    """Return the tolerations of a daemon pod: its template's, and those for common node conditions."""
    tolerations = list(spec.tolerations)
    for name, effect in (_TOLERATED | _TOLERATED_ON_HOST_NETWORK if spec.host_network else _TOLERATED).items():
        added = core.Toleration(key=f"node.kubernetes.io/{name}", operator="Exists", effect=effect)
        same = [i for i, one in enumerate(tolerations) if replace(one, toleration_seconds=None) == added]
        if same:
            tolerations[same[0]] = added
        else:
            tolerations.append(added)
    return tuple(tolerations)


def pod_template(daemon_set: DaemonSet, revision: str) -> core.PodTemplateSpec:
    """Return the template that the controller creates pods from."""
    template = daemon_set.spec.template
    labels = {**template.metadata.labels, "controller-revision-hash": revision}
    generation = daemon_set.metadata.annotations.get("deprecated.daemonset.template.generation")
    if generation is not None:
        labels["pod-template-generation"] = generation
    return replace(
        template,
        metadata=replace(template.metadata, labels=labels),
        spec=replace(template.spec, tolerations=daemon_tolerations(template.spec)),
    )


def runs_on(spec: core.PodSpec, effects: frozenset[str] = KEEPS_AWAY) -> Callable[[core.Node], bool]:
    """Return a predicate that is True for nodes on which a daemon pod of this spec should run.

    The pod must tolerate taints with one of ``effects``.
    """
    selector = selector_from_map(spec.node_selector)
    required = required_nodes(spec)
    matcher = None if required is None else compile_node_selector(required)
    tolerated: dict[tuple[core.Taint, ...], bool] = {}
    tolerations = daemon_tolerations(spec)

    def tolerates(taints: tuple[core.Taint, ...]) -> bool:
        if taints not in tolerated:
            tolerated[taints] = find_untolerated(taints, tolerations, effects) is None
        return tolerated[taints]

    def judge(node: core.Node) -> bool:
        if spec.node_name and spec.node_name != node.name:
            return False
        if not selector.matches(node.labels) or (matcher is not None and not matcher.matches(node.labels, node.name)):
            return False
        return tolerates(node.spec.taints)

    return judge


def tied_to(pod: core.Pod, node_name: str) -> core.Pod:
    """Return the pod with a required node affinity for one node. Other affinities and preferences are kept."""
    names = core.NodeSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
    required = core.NodeSelector(node_selector_terms=(core.NodeSelectorTerm(match_fields=(names,)),))
    affinity = pod.spec.affinity or core.Affinity()
    node_affinity = replace(
        affinity.node_affinity or core.NodeAffinity(), required_during_scheduling_ignored_during_execution=required
    )
    return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=node_affinity)))


def pod_node(pod: core.Pod) -> str:
    """Return the node that a daemon pod is bound to or was created for; "" if it names none.

    Source  pkg/controller/daemon/util/daemonset_util.go, GetTargetNodeName
    """
    if pod.spec.node_name:
        return pod.spec.node_name
    required = required_nodes(pod.spec)
    for term in required.node_selector_terms if required else ():
        for asked in term.match_fields:
            if asked.key == "metadata.name" and asked.operator == "In" and len(asked.values) == 1:
                return asked.values[0]
    return ""


def nodes_in_need(daemon_set: DaemonSet, nodes: Iterable[core.Node], held: Iterable[core.Pod]) -> list[core.Node]:
    """Return the nodes that lack a pod of the daemon set, in the given order. Ended pods are replaced."""
    served = {pod_node(pod) for pod in held if pod.status.phase not in core.ENDED_PHASES}
    judge = runs_on(daemon_set.spec.template.spec)
    return [node for node in nodes if node.name not in served and judge(node)]


_BURST: Final = 250
_GENERATION: Final = "deprecated.daemonset.template.generation"
#: Delays before a failed daemon pod is replaced, in seconds.
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 900.0


class DaemonSets:
    """Keeps, for each node, how often pods failed and when an ended pod may be deleted, and so replaced."""

    name = "daemonset-controller"

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, core.Node]] = {}
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is not k8s.NODES:
            return keys_by_owner(event, world, k8s.PODS, k8s.DAEMON_SETS)
        if event.new is None:
            self._nodes.pop(k8s.name_of(event.latest), None)
        if event.old is not None and event.new is not None and _relevant(event.old) == _relevant(event.new):
            return ()
        return [k8s.key_of(one) for one in world.all(k8s.DAEMON_SETS)]

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        held = world.find(k8s.DAEMON_SETS, key)
        if held is None or k8s.is_ending(held):
            return
        claimed = claim(k8s.PODS, k8s.DAEMON_SETS, held, k8s.selector_of(k8s.spec_of(held).get("selector")), world)
        yield from claimed.steps
        history = history_of(k8s.DAEMON_SETS, held, world)
        yield from history.steps
        sync = _Sync(held, claimed.held, [self._read(one) for one in world.all(k8s.NODES)], history, now)
        yield from self._failed(sync)
        changes = [*sync.placed(), *sync.rolled()]
        if world.is_closing(k8s.namespace_of(held)):
            changes = [step for step in changes if not isinstance(step, Create)]
        yield from changes[:_BURST]
        if len(changes) > _BURST:
            yield Later(0)
        if not any(isinstance(step, (Create, DeleteStep)) for step in changes):
            yield from sync.status_steps()
        yield from history.truncated(int(k8s.spec_of(held).get("revisionHistoryLimit", 10)), sync.revisions_in_use())

    def _read(self, node: Document) -> core.Node:
        version = node["metadata"].get("resourceVersion", "")
        known = self._nodes.get(k8s.name_of(node))
        if known is None or known[0] != version:
            known = self._nodes[k8s.name_of(node)] = version, decode(node, core.Node, "")
        return known[1]

    def _failed(self, sync: _Sync) -> Iterator[Step]:
        """Delete ended pods, with a delay that grows on the same node."""
        for node, pod in sync.ended():
            place = k8s.uid_of(sync.held), node
            count, due = self._failures.get(place, (0, 0.0))
            if sync.now < due:
                yield Later(due - sync.now)
                continue
            if due and sync.now - due > 2 * _LONGEST_WAIT_S:
                count = 0
            self._failures[place] = count + 1, sync.now + min(_FIRST_WAIT_S * 2.0 ** min(count, 16), _LONGEST_WAIT_S)
            word = "Failed" if k8s.phase_of(pod) == "Failed" else "Succeeded"
            verb = "kill" if word == "Failed" else "delete"
            text = f"Found {word.lower()} daemon pod {k8s.key_of(pod)} on node {node}, will try to {verb} it"
            yield EventStep(k8s.DAEMON_SETS, sync.held, "Warning" if word == "Failed" else "Normal", f"{word}DaemonPod", text)
            yield DeleteStep(k8s.PODS, pod)


def _relevant(node: Document) -> tuple[Any, Any, Any]:
    return k8s.labels_of(node), k8s.spec_of(node).get("taints"), k8s.spec_of(node).get("unschedulable")


class _Sync:
    """One reconcile of a daemon set: its pods by node, and the nodes that should have one."""

    def __init__(
        self, held: Document, pods: list[Document], nodes: list[core.Node], history: RevisionHistory, now: float
    ) -> None:
        self.held, self.now = held, now
        self.spec = k8s.spec_of(held)
        self.mark = k8s.labels_of(history.update)[REVISION_HASH]
        read = decode(k8s.spec_of(self.spec.get("template") or {}), core.PodSpec, "")
        comes, stays = runs_on(read), runs_on(read, DRIVES_AWAY)
        self.wanted = {node.name: comes(node) for node in nodes}
        self.borne = {node.name: stays(node) for node in nodes}
        self.by_node: dict[str, list[Document]] = {}
        for pod in sorted(pods, key=k8s.age_order):
            if node := _node_of(pod):
                self.by_node.setdefault(node, []).append(pod)
        self._tolerations = msgspec.json.decode(msgspec.json.encode(daemon_tolerations(read)))
        rolling = (self.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        desired = sum(self.wanted.values())
        self.surge = k8s.scaled(rolling.get("maxSurge", 0), desired, up=True)
        unavailable = k8s.scaled(rolling.get("maxUnavailable", 1), desired, up=True)
        self.unavailable = unavailable if unavailable or self.surge else 1

    def _alive(self, node: str) -> list[Document]:
        """Return the pods on a node that neither ended nor are being deleted."""
        return [pod for pod in self.by_node.get(node, ()) if k8s.is_active(pod)]

    def ended(self) -> Iterator[tuple[str, Document]]:
        for node, pods in self.by_node.items():
            for pod in pods:
                if k8s.phase_of(pod) in core.ENDED_PHASES and not k8s.is_ending(pod) and self.borne.get(node):
                    yield node, pod

    def placed(self) -> Iterator[Step]:
        """Yield the creation of missing pods and the deletion of misplaced and duplicate ones."""
        for node, wanted in self.wanted.items():
            pods = self._alive(node)
            if wanted and not self.by_node.get(node):
                yield Create(k8s.PODS, self._pod(node), owner=(k8s.DAEMON_SETS, self.held))
            elif not self.borne[node]:
                yield from self._deleted(pods)
            elif not self.surge:
                yield from self._deleted(pods[1:])
        gone = (pods for node, pods in self.by_node.items() if node not in self.wanted)
        for pods in gone:
            yield from self._deleted(pod for pod in pods if not k8s.is_ending(pod))

    def rolled(self) -> Iterator[Step]:
        """Yield the steps that move nodes to the current template, within the limits of the update strategy."""
        if (self.spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        yield from self._surged() if self.surge else self._replaced()

    def _replaced(self) -> Iterator[Step]:
        room = self.unavailable
        candidates = []
        for node, wanted in self.wanted.items():
            pods = self._alive(node)
            available = any(map(self._is_available, pods))
            if wanted and not available:
                room -= 1
            old = [pod for pod in pods if not self._is_new(pod)]
            if old and available:
                candidates += old
            elif old:
                yield from self._deleted(old)
        yield from self._deleted(candidates[: max(0, room)])

    def _surged(self) -> Iterator[Step]:
        """Create a new pod next to the old one, and delete the old one when the new one is available."""
        room = self.surge
        lacking = []
        for node, wanted in self.wanted.items():
            pods = self._alive(node)
            new, old = [pod for pod in pods if self._is_new(pod)], [pod for pod in pods if not self._is_new(pod)]
            yield from self._deleted([*old[1:], *new[1:]])
            if old and new:
                if self._is_available(new[0]):
                    yield from self._deleted(old[:1])
                else:
                    room -= 1
            elif old and wanted:
                if not self._is_available(old[0]):
                    yield from self._deleted(old)
                lacking.append(node)
        for node in lacking[: max(0, room)]:
            yield Create(k8s.PODS, self._pod(node), owner=(k8s.DAEMON_SETS, self.held))

    def _deleted(self, pods: Iterable[Document]) -> Iterator[Step]:
        for pod in pods:
            yield DeleteStep(k8s.PODS, pod)
            yield EventStep(k8s.DAEMON_SETS, self.held, "Normal", "SuccessfulDelete", f"Deleted pod: {k8s.name_of(pod)}")

    def _is_new(self, pod: Document) -> bool:
        return k8s.labels_of(pod).get(REVISION_HASH) == self.mark

    def _is_available(self, pod: Document) -> bool:
        since = k8s.ready_since(pod)
        return since is not None and self.now - since >= int(self.spec.get("minReadySeconds") or 0)

    def _pod(self, node: str) -> Document:
        pod = pod_of_template(
            k8s.DAEMON_SETS, self.held, self.spec.get("template") or {}, generateName=f"{k8s.name_of(self.held)}-"
        )
        labels = {**pod["metadata"].get("labels", {}), REVISION_HASH: self.mark}
        if (generation := k8s.annotations_of(self.held).get(_GENERATION)) is not None:
            labels["pod-template-generation"] = generation
        pod["metadata"]["labels"] = labels
        affinity = pod["spec"].get("affinity") or {}
        names = {"key": "metadata.name", "operator": "In", "values": [node]}
        required = {"nodeSelectorTerms": [{"matchFields": [names]}]}
        by_node = {**(affinity.get("nodeAffinity") or {}), "requiredDuringSchedulingIgnoredDuringExecution": required}
        pod["spec"] |= {"affinity": {**affinity, "nodeAffinity": by_node}, "tolerations": self._tolerations}
        return pod

    # -- status ---------------------------------------------------------------------------------------------------------

    def revisions_in_use(self) -> set[str]:
        marks = {k8s.labels_of(pod).get(REVISION_HASH, "") for pods in self.by_node.values() for pod in pods}
        return {f"{k8s.name_of(self.held)}-{mark}" for mark in marks}

    def status_steps(self) -> Iterator[Step]:
        """Yield the status update, and a later reconcile for when the next pod becomes available."""
        served = {node: self._alive(node) for node, wanted in self.wanted.items() if wanted}
        first = {node: max(pods, key=self._is_new) for node, pods in served.items() if pods}
        ready = [pod for pod in first.values() if k8s.ready_since(pod) is not None]
        available = sum(map(self._is_available, first.values()))
        status = {
            "currentNumberScheduled": len(first),
            "numberMisscheduled": sum(bool(self._alive(node)) for node, wanted in self.wanted.items() if not wanted),
            "desiredNumberScheduled": len(served),
            "numberReady": len(ready),
            "updatedNumberScheduled": sum(map(self._is_new, first.values())),
            "numberAvailable": available,
            "numberUnavailable": len(served) - available,
            "observedGeneration": self.held["metadata"].get("generation", 0),
        }
        always = {"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"}
        status = {name: value for name, value in status.items() if value or name in always}
        if status != k8s.status_of(self.held):
            yield SetStatus(k8s.DAEMON_SETS, self.held, status)
        least_s = int(self.spec.get("minReadySeconds") or 0)
        waits = [since + least_s - self.now for pod in ready if (since := k8s.ready_since(pod)) is not None]
        if left := [wait for wait in waits if wait > 0]:
            yield Later(min(left))


def _node_of(pod: Document) -> str:
    """Return the node that a daemon pod is bound to or was created for."""
    if node := k8s.spec_of(pod).get("nodeName"):
        return str(node)
    affinity = (k8s.spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for asked in term.get("matchFields") or ():
            if asked.get("key") == "metadata.name" and len(asked.get("values") or ()) == 1:
                return str(asked["values"][0])
    return ""
