"""How objects that are added, changed or deleted change the cluster, the queue and the bindings.

Events arrive in any order, late, twice, or for a pod that reuses the name of a deleted one. UIDs identify pods. Events for a
pod in its binding cycle are recorded on its ``Binding``, and resources that the pod no longer needs are released at once.

Source  kube-scheduler, eventhandlers.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from moorage.api.core import ENDED_PHASES, Namespace, Node, Pod
from moorage.api.devices import ResourceSlice
from moorage.api.meta import Object, is_older
from moorage.api.pod_groups import CompositePodGroup, PodGroup
from moorage.api.quantity import QuantityError
from moorage.core.engine.binding_cycle import BindingCycle
from moorage.core.engine.engine_state import EngineState
from moorage.core.engine.facts import Gone, Seen, WriteLost, Wrote
from moorage.core.queue import ASSIGNED_POD_DELETE, UNSCHEDULED_POD_ADD, assigned_pod_events, node_events, object_events
from moorage.errors import RAISED, PluginError
from moorage.framework.dropped_fields import pod_reader
from moorage.framework.events import ClusterEvent
from moorage.framework.plugin_runner import failure_text
from moorage.state.pod_info import PodInfo, infos_of
from moorage.state.pod_names import PodNames

# The API server's answers to our own writes, until a watch reports them.
#
# An answer takes effect at once: devices that were just allocated to a claim are not free. Until a watch reports the answer,
# the versions that watches report are older than it and are ignored.
#
# Source  kube-scheduler 1.36, util/assumecache/assume_cache.go, which keeps an answer until a watch reports it


class Answers:
    """Answers by kind and key. Answers whose version is not a number cannot be compared and are not kept."""

    def __init__(self) -> None:
        self._open: dict[tuple[type[Object], str], Object] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, obj: Object, known: Object | None, *, made: bool) -> bool:
        """Record an answer. Returns False if it is older than ``known``, the version in the cluster."""
        if known is None and not made:  # a watch has reported its deletion already
            return False
        version = _version(obj)
        if known is not None and (_version(known) == version or is_older(version, _version(known))):
            return False
        if version.isdecimal():
            self._open[_place(obj)] = obj
        return True

    def is_outdated(self, obj: Object) -> bool:
        """Return True if a version that a watch reports is older than an answer."""
        answer = self._open.get(_place(obj)) if self._open else None
        return answer is not None and is_older(_version(obj), _version(answer))

    def is_open(self, obj: Object) -> bool:
        """Return True while no watch has reported this answer, and no later answer has replaced it."""
        return self._open.get(_place(obj)) is obj

    def end(self, obj: Object) -> None:
        """Forget the answer for an object, because a watch reported the object or its deletion."""
        if self._open:
            self._open.pop(_place(obj), None)


def _place(obj: Object) -> tuple[type[Object], str]:
    return type(obj), obj.key


def _version(obj: Any) -> str:
    version: str = obj.metadata.resource_version
    return version


class EventHandlers:
    """Applies object events to the engine's state and wakes the pods they may help."""

    def __init__(self, state: EngineState, binding_cycle: BindingCycle) -> None:
        self._state = state
        self._cluster = state.cluster
        self._queue = state.queue
        self._bindings = state.bindings
        self._binding_cycle = binding_cycle
        #: The pods that have names now.
        self.names = PodNames()
        self._read = pod_reader(state.gates)
        self._gangs = state.gates["GangScheduling"]
        self._has_trees = state.gates.serves("CompositePodGroup")
        #: Answers to our writes that no watch has reported yet.
        self.answers = Answers()
        #: Plugins that follow pods, and the UIDs of the pods that they know.
        self._followers = {name: call for one in state.profiles.values() for name, call in one.followers.items()}
        self._followed: set[str] = set()

    def handle(self, fact: Seen | Gone) -> None:
        """Apply one event.

        Raises  QuantityError for a placed pod whose requests cannot be parsed; the event is then ignored
        """
        state, obj = self._state, fact.obj
        state.revision += 1
        state.facts += 1
        if isinstance(obj, Pod):
            if self._followers:
                self._tell_followers(obj, gone=isinstance(fact, Gone) or obj.status.phase in ENDED_PHASES)
            if isinstance(fact, Gone) or obj.status.phase in ENDED_PHASES:
                self._pod_deleted(obj)
            else:
                pod = PodInfo(self._read(obj))
                if pod.spec.node_name and pod.uid not in self._cluster.assumed:  # an assumed pod was parsed before
                    pod.needs  # noqa: B018 (raises here, so that an event that cannot be applied changes nothing)
                self._pod_changed(pod, fact.as_of)
        elif isinstance(obj, Node):
            self._node_changed(obj, deleted=isinstance(fact, Gone))
        elif isinstance(obj, PodGroup) and self._cluster.groups is None:
            return  # the gate GenericWorkload is closed
        elif isinstance(fact, Gone):
            self.answers.end(obj)
            self._wake_after(self._remove(obj), None)
            self._regroup(obj)
        elif not self.answers.is_outdated(obj):
            self.answers.end(obj)
            old = self._set(obj)
            if old is None or getattr(old, "parent_key", None) != getattr(obj, "parent_key", None):
                self._regroup(obj)
            self._wake_after(old, obj)

    def _tell_followers(self, obj: Pod, *, gone: bool) -> None:
        """Tell the plugins that follow pods of one that comes, changes or goes."""
        old = self._last_version(obj.metadata.uid)
        new = None if gone else PodInfo(self._read(obj))
        if gone and old is None and obj.metadata.uid not in self._followed:
            return
        (self._followed.discard if gone else self._followed.add)(obj.metadata.uid)
        for name, follow in self._followers.items():
            try:
                follow(old or (PodInfo(obj) if gone else None), new)
            except RAISED as error:
                self._state.outbox.fault(PluginError(name, f"failed in pod_changed: {failure_text(error)}"))

    def _wake_after(self, old: Object | None, new: Object | None) -> None:
        """Report the change of an object to the queue."""
        if self._queue.heeds_events:
            rules_count = self._state.gates["DRADeviceTaintRules"]
            slices = self._cluster.snapshot.objects(ResourceSlice).values() if rules_count else ()
            self._wake(object_events(old, new, slices), old, new)

    def _regroup(self, obj: Object) -> None:
        """Queue pods with the right tree after a group changed, where groups may be parts of trees, or without it."""
        if self._has_trees and isinstance(obj, (PodGroup, CompositePodGroup)):
            self._queue.regroup(self._state.now)
        if isinstance(obj, PodGroup) and obj.key not in self._cluster.snapshot.objects(PodGroup):
            self._queue.end_without(obj.key, self._state.now)

    def add_placed(self, pods: Sequence[Pod]) -> bool:
        """Do the same as ``handle`` for many pods on nodes that have not ended, if all are new and the queue is empty.

        Return False, with nothing changed, if that is not so, or if a pod's requests cannot be parsed.
        """
        names = None if self._followers else self._new_names(pods)
        if names is None or len(self._queue) or self._queue.nominated or self._bindings.by_uid or self._bindings.held:
            return False
        try:
            infos = infos_of(list(map(self._read, pods)))
        except QuantityError:
            return False
        self.names.take(names)
        self._cluster.place_all(infos)
        self._state.revision += len(pods)
        self._state.facts += len(pods)
        return True

    def add_waiting(self, pods: Sequence[Pod]) -> bool:
        """Do the same as ``handle`` for many pods without a node that wait for this scheduler, if all are new.

        Return False, with nothing changed, if that is not so, or if there may be pod groups.
        """
        if self._gangs or self._cluster.groups is not None or self._followers:
            return False
        names = self._new_names(pods)
        if names is None:
            return False
        by_uid, known = self._bindings.by_uid, self._queue.get
        if by_uid and not by_uid.keys().isdisjoint(names.uids()):
            return False
        if len(self._queue) and any(known(uid) is not None for _, _, uid in names):
            return False
        self.names.take(names)
        self._state.revision += len(pods)
        self._state.facts += len(pods)
        self._queue.add_new(map(PodInfo, map(self._read, pods)), self._state.now)
        return True

    def confirm(self, facts: Sequence[Seen], start: int) -> int:
        """Do the same as ``handle`` for bound pods that only confirm their assumptions, from index ``start`` on.

        ``facts`` are about pods. Return how many were taken: those up to the first that needs ``handle``.
        """
        state, cluster, queue, by_uid = self._state, self._cluster, self._queue, self._bindings.by_uid
        if self._bindings.held or queue.heeds_events or queue.nominated or self._followers:
            return 0
        assumed, names, read, count = cluster.assumed, self.names, self._read, 0
        for fact in islice(facts, start, None):
            pod: Any = fact.obj
            meta, node = pod.metadata, pod.spec.node_name
            uid = meta.uid
            if assumed.get(uid) != node or pod.status.phase in ENDED_PHASES or queue.get(uid) is not None:
                break
            if names.get(meta.namespace, meta.name) != uid or not cluster.place_assumed(PodInfo(read(pod)), node):
                break
            binding = by_uid.get(uid)
            if binding is not None:
                binding.bound_to = node
            count += 1
        state.revision += count
        state.facts += count
        return count

    def _new_names(self, pods: Sequence[Pod]) -> PodNames | None:
        """Return the names of pods, if no UID and no name occurs twice or is known."""
        names = self.names.of_new(pods)
        placed = self._cluster.uids
        return names if names is not None and (not placed or placed.isdisjoint(names.uids())) else None

    def wrote(self, fact: Wrote) -> None:
        """Apply the API server's answer to one of our writes, and tell the plugin that ordered it."""
        obj = fact.obj
        if obj is not None and self.answers.take(obj, self._cluster.objects(type(obj)).get(obj.key), made=fact.made):
            self._state.revision += 1
            self._state.facts += 1
            self._wake_after(self._set(obj), obj)
        fact.settled()

    def write_lost(self, fact: WriteLost) -> None:
        """Replace a lost answer with the object that the API server has, unless a watch has reported the object since."""
        if self.answers.is_open(fact.obj):
            self.answers.end(fact.obj)
            self.handle(Gone(fact.obj) if fact.found is None else Seen(fact.found))

    # -- nodes and other objects -----------------------------------------------------------------------------------------

    def _set(self, obj: Object) -> Object | None:
        if isinstance(obj, Namespace):
            return self._cluster.set_namespace(obj)
        return self._cluster.set_object(obj)

    def _remove(self, obj: Object) -> Object | None:
        if isinstance(obj, Namespace):
            return self._cluster.remove_namespace(obj.metadata.name)
        return self._cluster.remove_object(obj)

    def _node_changed(self, node: Node, *, deleted: bool) -> None:
        old = self._cluster.remove_node(node.name) if deleted else self._cluster.set_node(node)
        new = None if deleted else node
        if (old is not None or new is not None) and self._queue.heeds_events:
            self._wake(node_events(old, new, self._state.gates), old, new)

    def _wake(self, events: Iterable[ClusterEvent], old: object, new: object) -> None:
        for event in events:
            self._queue.event(event, old, new, self._state.now)

    # -- pods ------------------------------------------------------------------------------------------------------------

    def _pod_changed(self, pod: PodInfo, as_of: str) -> None:
        holder = self.names.get(pod.namespace, pod.name)
        if holder != pod.uid:
            if holder is not None:
                self._uid_deleted(holder, self._last_version(holder) or pod)
            self.names.put(pod.namespace, pod.name, pod.uid)
        if pod.spec.node_name:
            self._assigned(pod)
        elif pod.spec.scheduler_name in self._state.profiles:
            self._unassigned(pod, as_of)

    def _assigned(self, pod: PodInfo) -> None:
        """Apply a pod that has a node: ours is confirmed, another scheduler's is added, or a placed pod changed."""
        node = pod.spec.node_name
        binding = self._bindings.by_uid.get(pod.uid)
        if binding is not None:
            binding.bound_to = node
        self._queue.delete(pod, self._state.now, bound=True)
        assumed_on = self._cluster.assumed.get(pod.uid)
        before = self._cluster.place(pod, node)
        if assumed_on is not None:
            if assumed_on != node and before is not None:
                self._queue.event(ASSIGNED_POD_DELETE, before.on(assumed_on), None, self._state.now)
            before = None
        if self._queue.heeds_events:
            self._wake(assigned_pod_events(before, pod, self._state.gates), before, pod)
        if pod.uid in self._bindings.held:
            self._binding_cycle.end_held(self._bindings.held[pod.uid])

    def _unassigned(self, pod: PodInfo, as_of: str) -> None:
        uid = pod.uid
        placed = self._cluster.pod(uid)
        if placed is not None and self._lost_its_node(placed, as_of or pod.pod.metadata.resource_version):
            self._uid_deleted(uid, placed)
        binding = self._bindings.by_uid.get(uid)
        if binding is not None:
            binding.latest = pod
            if binding.withdrawn and not pod.terminating:
                binding.returned, binding.bound_to = True, ""
            if pod.terminating:
                self._binding_cycle.withdraw(binding)
        elif (
            placed is None or self._cluster.node_of(pod.uid) is None
        ):  # otherwise an older version arrived late: a bound pod stays bound
            self._to_queue(pod)

    def _to_queue(self, pod: PodInfo) -> None:
        if self._cluster.groups is not None:
            self._cluster.groups.note(pod)
        queued = self._queue.get(pod.uid)
        if queued is not None:
            self._queue.update(queued.pod, pod, self._state.now)
            return
        self._queue.add(pod, self._state.now)
        if self._gangs:
            self._queue.event(UNSCHEDULED_POD_ADD, None, pod, self._state.now)

    def _lost_its_node(self, placed: PodInfo, version: str) -> bool:
        """Return True if the API server reported a binding and shows the pod without a node at a later version."""
        return not self._cluster.is_assumed(placed.uid) and is_older(placed.pod.metadata.resource_version, version)

    def _pod_deleted(self, pod: Pod) -> None:
        info = PodInfo(pod)
        self.names.drop(info.namespace, info.name, info.uid)
        self._uid_deleted(info.uid, info)

    def forget(self, pods: Iterable[Pod]) -> None:
        """Remove deleted pods. Reports nothing and wakes no pod: call it only while no pod waits."""
        for pod in pods:
            uid = pod.metadata.uid
            self.names.drop(pod.metadata.namespace, pod.metadata.name, uid)
            placed = self._cluster.remove_pod(uid)
            if placed is not None and self._cluster.groups is not None:
                self._cluster.groups.drop(placed)
            self._state.facts += 1
        self._state.revision += 1

    def _uid_deleted(self, uid: str, last: PodInfo) -> None:
        binding = self._bindings.by_uid.get(uid)
        if binding is not None:
            self._binding_cycle.withdraw(binding)
        assumed_on = self._cluster.assumed.get(uid)
        placed = self._cluster.remove_pod(uid)
        if self._cluster.groups is not None:
            self._cluster.groups.drop(placed or last)
        if placed is not None and self._queue.heeds_events:
            # An assumed pod has no node name yet, and hints ignore the deletion of a pod without one.
            self._wake([ASSIGNED_POD_DELETE], placed if assumed_on is None else placed.on(assumed_on), None)
        if last.uid == uid:
            self._queue.delete(last, self._state.now)

    def _last_version(self, uid: str) -> PodInfo | None:
        queued = self._queue.get(uid)
        return self._cluster.pod(uid) if queued is None else queued.pod
