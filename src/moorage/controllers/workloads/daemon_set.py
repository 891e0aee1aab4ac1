"""The daemon set controller: one pod on each eligible node, and rolling updates node by node.

Source  kubernetes, pkg/controller/daemon: daemon_controller.go and update.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from moorage.api.core import ENDED_PHASES, Node, PodSpec
from moorage.api.decode import decode
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.kind_names import DAEMON_SETS, NODES, PODS
from moorage.controllers.machinery.object_fields import (
    age_order,
    annotations_of,
    is_ending,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    phase_of,
    ready_since,
    selector_of,
    spec_of,
    status_of,
    uid_of,
)
from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.ownership import claim, keys_by_owner, pod_of_template
from moorage.controllers.machinery.proportions import scaled
from moorage.controllers.machinery.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step
from moorage.controllers.workloads.controller_revisions import RevisionHistory, history_of
from moorage.controllers.workloads.daemon_nodes import DRIVES_AWAY, daemon_tolerations, runs_on
from moorage.controllers.workloads.missing_pods import REVISION_HASH

__all__ = ["DaemonSets"]

_BURST: Final = 250
_GENERATION: Final = "deprecated.daemonset.template.generation"
#: Delays before a failed daemon pod is replaced, in seconds.
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 900.0


class DaemonSets:
    """Keeps, for each node, how often pods failed and when an ended pod may be deleted, and so replaced."""

    name = "daemonset-controller"

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, Node]] = {}
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is not NODES:
            return keys_by_owner(event, world, PODS, DAEMON_SETS)
        if event.new is None:
            self._nodes.pop(name_of(event.latest), None)
        if event.old is not None and event.new is not None and _relevant(event.old) == _relevant(event.new):
            return ()
        return [key_of(one) for one in world.all(DAEMON_SETS)]

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        held = world.find(DAEMON_SETS, key)
        if held is None or is_ending(held):
            return
        claimed = claim(PODS, DAEMON_SETS, held, selector_of(spec_of(held).get("selector")), world)
        yield from claimed.steps
        history = history_of(DAEMON_SETS, held, world)
        yield from history.steps
        sync = _Sync(held, claimed.held, [self._read(one) for one in world.all(NODES)], history, now)
        yield from self._failed(sync)
        changes = [*sync.placed(), *sync.rolled()]
        if world.is_closing(namespace_of(held)):
            changes = [step for step in changes if not isinstance(step, Create)]
        yield from changes[:_BURST]
        if len(changes) > _BURST:
            yield Later(0)
        if not any(isinstance(step, (Create, DeleteStep)) for step in changes):
            yield from sync.status_steps()
        yield from history.truncated(int(spec_of(held).get("revisionHistoryLimit", 10)), sync.revisions_in_use())

    def _read(self, node: Document) -> Node:
        version = node["metadata"].get("resourceVersion", "")
        known = self._nodes.get(name_of(node))
        if known is None or known[0] != version:
            known = self._nodes[name_of(node)] = version, decode(node, Node, "")
        return known[1]

    def _failed(self, sync: _Sync) -> Iterator[Step]:
        """Delete ended pods, with a delay that grows on the same node."""
        for node, pod in sync.ended():
            place = uid_of(sync.held), node
            count, due = self._failures.get(place, (0, 0.0))
            if sync.now < due:
                yield Later(due - sync.now)
                continue
            if due and sync.now - due > 2 * _LONGEST_WAIT_S:
                count = 0
            self._failures[place] = count + 1, sync.now + min(_FIRST_WAIT_S * 2.0 ** min(count, 16), _LONGEST_WAIT_S)
            word = "Failed" if phase_of(pod) == "Failed" else "Succeeded"
            verb = "kill" if word == "Failed" else "delete"
            text = f"Found {word.lower()} daemon pod {key_of(pod)} on node {node}, will try to {verb} it"
            yield EventStep(DAEMON_SETS, sync.held, "Warning" if word == "Failed" else "Normal", f"{word}DaemonPod", text)
            yield DeleteStep(PODS, pod)


def _relevant(node: Document) -> tuple[Any, Any, Any]:
    return labels_of(node), spec_of(node).get("taints"), spec_of(node).get("unschedulable")


class _Sync:
    """One reconcile of a daemon set: its pods by node, and the nodes that should have one."""

    def __init__(self, held: Document, pods: list[Document], nodes: list[Node], history: RevisionHistory, now: float) -> None:
        self.held, self.now = held, now
        self.spec = spec_of(held)
        self.mark = labels_of(history.update)[REVISION_HASH]
        read = decode(spec_of(self.spec.get("template") or {}), PodSpec, "")
        comes, stays = runs_on(read), runs_on(read, DRIVES_AWAY)
        self.wanted = {node.name: comes(node) for node in nodes}
        self.borne = {node.name: stays(node) for node in nodes}
        self.by_node: dict[str, list[Document]] = {}
        for pod in sorted(pods, key=age_order):
            if node := _node_of(pod):
                self.by_node.setdefault(node, []).append(pod)
        self._tolerations = msgspec.json.decode(msgspec.json.encode(daemon_tolerations(read)))
        rolling = (self.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        desired = sum(self.wanted.values())
        self.surge = scaled(rolling.get("maxSurge", 0), desired, up=True)
        unavailable = scaled(rolling.get("maxUnavailable", 1), desired, up=True)
        self.unavailable = unavailable if unavailable or self.surge else 1

    def _alive(self, node: str) -> list[Document]:
        """Return the pods on a node that neither ended nor are being deleted."""
        return [pod for pod in self.by_node.get(node, ()) if not is_ending(pod) and phase_of(pod) not in ENDED_PHASES]

    def ended(self) -> Iterator[tuple[str, Document]]:
        for node, pods in self.by_node.items():
            for pod in pods:
                if phase_of(pod) in ENDED_PHASES and not is_ending(pod) and self.borne.get(node):
                    yield node, pod

    def placed(self) -> Iterator[Step]:
        """Yield the creation of missing pods and the deletion of misplaced and duplicate ones."""
        for node, wanted in self.wanted.items():
            pods = self._alive(node)
            if wanted and not self.by_node.get(node):
                yield Create(PODS, self._pod(node), owner=(DAEMON_SETS, self.held))
            elif not self.borne[node]:
                yield from self._deleted(pods)
            elif not self.surge:
                yield from self._deleted(pods[1:])
        gone = (pods for node, pods in self.by_node.items() if node not in self.wanted)
        for pods in gone:
            yield from self._deleted(pod for pod in pods if not is_ending(pod))

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
            yield Create(PODS, self._pod(node), owner=(DAEMON_SETS, self.held))

    def _deleted(self, pods: Iterable[Document]) -> Iterator[Step]:
        for pod in pods:
            yield DeleteStep(PODS, pod)
            yield EventStep(DAEMON_SETS, self.held, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    def _is_new(self, pod: Document) -> bool:
        return labels_of(pod).get(REVISION_HASH) == self.mark

    def _is_available(self, pod: Document) -> bool:
        since = ready_since(pod)
        return since is not None and self.now - since >= int(self.spec.get("minReadySeconds") or 0)

    def _pod(self, node: str) -> Document:
        pod = pod_of_template(DAEMON_SETS, self.held, self.spec.get("template") or {}, generateName=f"{name_of(self.held)}-")
        labels = {**pod["metadata"].get("labels", {}), REVISION_HASH: self.mark}
        if (generation := annotations_of(self.held).get(_GENERATION)) is not None:
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
        marks = {labels_of(pod).get(REVISION_HASH, "") for pods in self.by_node.values() for pod in pods}
        return {f"{name_of(self.held)}-{mark}" for mark in marks}

    def status_steps(self) -> Iterator[Step]:
        """Yield the status update, and a later reconcile for when the next pod becomes available."""
        served = {node: self._alive(node) for node, wanted in self.wanted.items() if wanted}
        first = {node: max(pods, key=self._is_new) for node, pods in served.items() if pods}
        ready = [pod for pod in first.values() if ready_since(pod) is not None]
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
        if status != status_of(self.held):
            yield SetStatus(DAEMON_SETS, self.held, status)
        least_s = int(self.spec.get("minReadySeconds") or 0)
        waits = [since + least_s - self.now for pod in ready if (since := ready_since(pod)) is not None]
        if left := [wait for wait in waits if wait > 0]:
            yield Later(min(left))


def _node_of(pod: Document) -> str:
    """Return the node that a daemon pod is bound to or was created for."""
    if node := spec_of(pod).get("nodeName"):
        return str(node)
    affinity = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for asked in term.get("matchFields") or ():
            if asked.get("key") == "metadata.name" and len(asked.get("values") or ()) == 1:
                return str(asked["values"][0])
    return ""
