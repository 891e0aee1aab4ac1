"""What the scheduler believes of the cluster and of its queue, and how facts change it.

Objects come and go in any order, late, twice, or under the name of another. UIDs tell pods apart. A pod on its way to a node is
a ``Binding``: what others do to it meanwhile is noted there, and room that it need not keep is given back at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from moorage.api.core import ENDED_PHASES, Namespace, Node, Pod
from moorage.api.meta import Value, is_older
from moorage.api.pod_groups import PodGroup
from moorage.engine.answers import Answers
from moorage.engine.binding_cycle import Binding
from moorage.engine.custom_kinds import NamedKinds, named_kinds
from moorage.engine.facts import Gone, Seen, WriteLost, Wrote
from moorage.engine.dropped_fields import pod_reader
from moorage.framework.events import ClusterEvent
from moorage.framework.features import FeatureGates
from moorage.framework.profile import Profile
from moorage.queue import (
    ASSIGNED_POD_DELETE,
    UNSCHEDULED_POD_ADD,
    SchedulingQueue,
    assigned_pod_events,
    node_events,
    object_events,
)
from moorage.state.cluster import Cluster, Snapshot, object_key
from moorage.state.pod_info import PodInfo

__all__ = ["Believer"]


class Believer(ABC):
    """The cluster as far as it is known, whose turn it is, and who is on the way to a node."""

    def __init__(self, gates: FeatureGates) -> None:
        self.gates = gates
        self.cluster = Cluster(keep_groups=gates["GenericWorkload"])
        self.queue: SchedulingQueue
        self.profiles: Mapping[str, Profile] = {}
        self.now = 0.0
        #: Grows with every change of the state: two attempts at the same revision come to the same decision.
        self.revision = 0
        #: Grows with every fact: unlike ``revision``, not with what the scheduler assumes and takes back.
        self.facts = 0
        #: Every pod on its way from decision to binding, and of these the ones that no work is under way for.
        self._bindings: dict[str, Binding] = {}
        self._held: dict[str, Binding] = {}
        #: ``namespace/name`` → UID of the pod that has the name now.
        self._named: dict[str, str] = {}
        self._read = pod_reader(gates)
        self._answers = Answers()

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster.snapshot

    @property
    def named_kinds(self) -> NamedKinds:
        """The kinds of their own that plugins want to be told of."""
        return named_kinds(self.profiles.values())

    @abstractmethod
    def _end_held(self, binding: Binding) -> None:
        """End an attempt that nothing is under way for, because the pod needs no node any more."""

    def _changed(self, fact: Seen | Gone) -> None:
        """Take in what happened to an object.

        Raises  QuantityError for a placed pod whose requests cannot be read; the fact is then as good as never told
        """
        self.revision += 1
        self.facts += 1
        obj = fact.obj
        if isinstance(obj, Pod):
            if isinstance(fact, Gone) or obj.status.phase in ENDED_PHASES:
                self._pod_gone(obj)
            else:
                self._pod_seen(self._readable(PodInfo(self._read(obj))), fact.as_of)
        elif isinstance(obj, Node):
            self._node(obj, gone=isinstance(fact, Gone))
        elif isinstance(obj, PodGroup) and self.cluster.groups is None:
            return  # nobody listens for them
        elif isinstance(fact, Gone):
            self._answers.end(obj)
            self._tell(object_events(old := self._drop(obj), None), old, None)
        elif not self._answers.is_outdated(obj):
            self._answers.end(obj)
            self._tell(object_events(old := self._keep(obj), obj), old, obj)

    def _wrote(self, fact: Wrote) -> None:
        """Take in what the API server answered to a write, and let the plugin know."""
        obj = fact.obj
        if obj is not None and self._answers.take(obj, self.cluster.objects(type(obj)).get(object_key(obj)), made=fact.made):
            self.revision += 1
            self.facts += 1
            self._tell(object_events(old := self._keep(obj), obj), old, obj)
        fact.settled()

    def _write_lost(self, fact: WriteLost) -> None:
        """Take back what was answered, unless a watch has told of the object since."""
        if self._answers.is_open(fact.obj):
            self._answers.end(fact.obj)
            self._changed(Gone(fact.obj) if fact.found is None else Seen(fact.found))

    def is_unheard(self, obj: Value) -> bool:
        """Say of what the API server answered to a write whether no watch has told of it yet."""
        return self._answers.is_open(obj)

    def _readable(self, pod: PodInfo) -> PodInfo:
        """Return the pod, having read what it takes of its node: a fact that makes no sense must not be half taken in."""
        if pod.spec.node_name and pod.uid not in self.cluster.assumed:  # what is assumed was read before
            pod.needs  # noqa: B018 (worked out here, and kept)
        return pod

    def _keep(self, obj: Value) -> Value | None:
        if isinstance(obj, Namespace):
            return self.cluster.set_namespace(obj)
        return self.cluster.set_object(obj)

    def _drop(self, obj: Value) -> Value | None:
        if isinstance(obj, Namespace):
            return self.cluster.remove_namespace(obj.metadata.name)
        return self.cluster.remove_object(obj)

    def _tell(self, events: Iterable[ClusterEvent], old: object, new: object) -> None:
        for event in events:
            self.queue.event(event, old, new, self.now)

    def _node(self, node: Node, *, gone: bool) -> None:
        old = self.cluster.remove_node(node.name) if gone else self.cluster.set_node(node)
        new = None if gone else node
        if old is not None or new is not None:
            self._tell(node_events(old, new, self.gates), old, new)

    def _pod_seen(self, pod: PodInfo, as_of: str) -> None:
        holder = self._named.get(pod.key)
        if holder != pod.uid:
            if holder is not None:
                self._uid_gone(holder, self._last_known(holder) or pod)
            self._named[pod.key] = pod.uid
        if pod.spec.node_name:
            self._placed(pod)
        elif pod.spec.scheduler_name in self.profiles:
            self._pending(pod, as_of)

    def _placed(self, pod: PodInfo) -> None:
        """A pod is on a node: ours confirmed, somebody else's, or one that changed where it is."""
        node = pod.spec.node_name
        binding = self._bindings.get(pod.uid)
        if binding is not None:
            binding.bound_to = node
        self.queue.delete(pod, self.now, bound=True)
        assumed_on = self.cluster.assumed.get(pod.uid)
        before = self.cluster.place(pod, node)
        if assumed_on is not None:
            if assumed_on != node and before is not None:
                self.queue.event(ASSIGNED_POD_DELETE, before.on(assumed_on), None, self.now)
            before = None
        self._tell(assigned_pod_events(before, pod, self.gates), before, pod)
        if pod.uid in self._held:
            self._end_held(self._held[pod.uid])

    def _pending(self, pod: PodInfo, as_of: str) -> None:
        placed = self.cluster.pod(pod.uid)
        if placed is not None and self._lost_its_node(placed, as_of or pod.pod.metadata.resource_version):
            self._uid_gone(pod.uid, placed)
        binding = self._bindings.get(pod.uid)
        if binding is not None:
            binding.latest = pod
            if binding.withdrawn and not pod.terminating:
                binding.returned, binding.bound_to = True, ""
            if pod.terminating:
                self._withdraw(binding)
        elif self.cluster.node_of(pod.uid) is None:  # else an older version came late: a bound pod stays bound
            if self.cluster.groups is not None:
                self.cluster.groups.note(pod)
            known = self.queue.get(pod.uid)
            if known is not None:
                self.queue.update(known.pod, pod, self.now)
                return
            self.queue.add(pod, self.now)
            if self.gates["GangScheduling"]:
                self.queue.event(UNSCHEDULED_POD_ADD, None, pod, self.now)

    def _lost_its_node(self, placed: PodInfo, now: str) -> bool:
        """True if the API server has told of a binding, and shows the pod without one at a later version: it lost it."""
        return not self.cluster.is_assumed(placed.uid) and is_older(placed.pod.metadata.resource_version, now)

    def _pod_gone(self, pod: Pod) -> None:
        info = PodInfo(pod)
        if self._named.get(info.key) == info.uid:
            del self._named[info.key]
        self._uid_gone(info.uid, info)

    def _uid_gone(self, uid: str, last: PodInfo) -> None:
        binding = self._bindings.get(uid)
        if binding is not None:
            self._withdraw(binding)
        placed = self.cluster.remove_pod(uid)
        if self.cluster.groups is not None:
            self.cluster.groups.drop(placed or last)
        if placed is not None:
            self._tell([ASSIGNED_POD_DELETE], placed, None)
        if last.uid == uid:
            self.queue.delete(last, self.now)

    def _last_known(self, uid: str) -> PodInfo | None:
        queued = self.queue.get(uid)
        return self.cluster.pod(uid) if queued is None else queued.pod

    def _withdraw(self, binding: Binding) -> None:
        """A pod was deleted on its way to its node: free the room at once. What is under way ends in its own time."""
        binding.withdrawn = True
        self._free(binding)
        if binding.pod.uid in self._held:
            self._end_held(binding)

    def _free(self, binding: Binding) -> None:
        """Take back the assumption, if it is still one, and wake those who may use the room."""
        pod = self.cluster.forget(binding.pod.uid)
        if pod is not None:
            self.revision += 1
            self.queue.event(ASSIGNED_POD_DELETE, pod.on(binding.node), None, self.now)
