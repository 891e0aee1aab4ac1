"""The least change for a pod of a live scheduler: it is searched for in a copy of the cluster, in another thread.

The first search makes the copy. It is kept, and later searches only report to it the objects that changed since. The event loop
only collects references to objects, which never change.

When Python's cycle collector runs next, it would hold up all threads to look at the new copy. So the copy is frozen: the
collector ignores it. That is possible a few times, because memory of cycles in earlier copies is then not freed either.
Further copies are released after their search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, count
from operator import is_not
from threading import Lock
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Namespace, Node, Pod, ReplicationController, Service
from moorage.api.gc_pause import collector_paused
from moorage.api.meta import Object
from moorage.api.workloads import PodDisruptionBudget, ReplicaSet, StatefulSet
from moorage.config.scheduler_document import Loaded
from moorage.engine.facts import Gone, Seen
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.cluster_trials import ClusterTrials
from moorage.laboratory.explained_changes import CHANGEABLE, ChangeLimits, with_changes
from moorage.laboratory.present import cluster_input, is_simulated
from moorage.report.explanation import Explanation
from moorage.simulator.simulate import Options

__all__ = ["LiveCopy"]

_LATE: Final = "the search for changes reached its time limit; moorage explain --live has none"
#: Kinds whose changes are reported to the copy. In a copy, controllers of volumes and devices act at once, and may have decided
#: otherwise than those of the cluster: after changes of such objects, the copy is made again.
_FOLLOWED: Final = (Pod, Node, Namespace, Service, PodDisruptionBudget, ReplicaSet, StatefulSet, ReplicationController)
#: The number of facts after which the history of the copy begins again with the present objects.
_MOST_FACTS: Final = 20_000
#: How many copies in turn are kept.
_MOST_KEPT: Final = 3


class LiveCopy:
    """A copy of a live cluster. Threads take turns. Extenders are not asked.

    ``on_made`` is called when a copy that is kept was made, before the collector may look at it.
    """

    def __init__(self, loaded: Loaded, seed: int, on_made: Callable[[], None] = lambda: None) -> None:
        self._turn, self._on_made = Lock(), on_made
        self._made = 0
        self._options = Options(seed=seed, skip_extenders=True, reconfigure=lambda _: loaded)
        self._cluster: Cluster | None = None
        #: The objects that were reported.
        self._objects: Sequence[Object] = ()
        #: Pods that are counted on a node that is not reported yet, by UID: the pod as reported, and on the node.
        self._assumed: dict[str, tuple[Pod, Pod]] = {}
        #: The names of nodes that were deleted, or that pods are on and that were not reported.
        self._lost: set[str] = set()
        self._facts = 0

    def with_changes(
        self, found: Explanation, objects: Sequence[Object], assumed: Mapping[str, str], is_late: Callable[[], bool]
    ) -> Explanation:
        """Return an explanation with the changes that would place its pod, if it may have any, until ``is_late``.

        ``objects`` are those of the API server; ``assumed`` has the nodes of pods whose bindings it has not reported, by UID.
        """
        if found.outcome not in CHANGEABLE:
            return found
        with self._turn, collector_paused():  # a collection holds up all threads
            try:
                cluster = self._follow(objects, assumed)
                trials = ClusterTrials(cluster, found.request.pod)
                explained = with_changes(found, trials, cluster.present(), ChangeLimits(is_late=is_late))
            except BaseException:
                self._drop()
                raise
            if self._made > _MOST_KEPT:
                self._drop()
        if not is_late():
            return explained
        return replace(explained, request=replace(explained.request, notes=(*explained.request.notes, _LATE)))

    def drop(self) -> None:
        """Release the copy. The next search makes another one."""
        with self._turn:
            self._drop()

    def _drop(self) -> None:
        cluster, self._cluster = self._cluster, None
        self._objects, self._assumed, self._lost, self._facts = (), {}, set(), 0
        if cluster is not None:
            cluster.simulation.release()

    # -- following the cluster ------------------------------------------------------------------------------------------------

    def _follow(self, objects: Sequence[Object], assumed: Mapping[str, str]) -> Cluster:
        """Return the copy, in the state of these objects."""
        fresh, gone = _difference(self._objects, objects)
        if self._cluster is None or not all(map(self._is_followed, [*fresh, *gone])):
            return self._begin(objects, assumed)
        facts = [*self._changes(fresh, gone), *self._assumptions(fresh, gone, assumed)]
        self._objects = objects
        if facts:
            self._facts += len(facts)
            self._cluster.tell(facts)
            self._note_missing(fresh)
        if self._facts > _MOST_FACTS:
            self._facts = 0
            self._cluster.shorten_history()
        return self._cluster

    def _begin(self, objects: Sequence[Object], assumed: Mapping[str, str]) -> Cluster:
        self._drop()
        self._objects = objects
        pods = [obj for obj in objects if isinstance(obj, Pod) and obj.metadata.uid in assumed and not obj.spec.node_name]
        self._assumed = {pod.metadata.uid: (pod, _on(pod, assumed[pod.metadata.uid])) for pod in pods}
        instead = {id(pod): placed for pod, placed in self._assumed.values()}
        held = [instead.get(id(obj), obj) for obj in objects if is_simulated(obj)]
        self._cluster = Cluster(cluster_input(held), self._options)
        self._note_missing(held)
        self._made += 1
        if self._made <= _MOST_KEPT:
            self._on_made()
        return self._cluster

    def _note_missing(self, objects: Iterable[Object]) -> None:
        """Note the nodes that pods are on and that the copy does not have."""
        assert self._cluster is not None
        nodes = {obj.spec.node_name for obj in objects if isinstance(obj, Pod)} - {""}
        self._lost |= nodes - self._cluster.snapshot.table.row_of.keys()

    def _is_followed(self, obj: Object) -> bool:
        """Return whether a change of an object can be reported to the copy.

        A node that comes back cannot: in the copy, the pods of a missing node are gone as well.
        """
        if isinstance(obj, Node):
            return obj.metadata.name not in self._lost
        return isinstance(obj, _FOLLOWED) or not is_simulated(obj)

    def _changes(self, fresh: Iterable[Object], gone: Iterable[Object]) -> Iterator[Seen | Gone]:
        """Yield what happened to objects: deletions, then new and changed ones, of these pods last."""
        simulated = [obj for obj in fresh if is_simulated(obj)]
        still = {(type(obj), obj.key, obj.metadata.uid) for obj in simulated}
        for obj in gone:
            if is_simulated(obj) and (type(obj), obj.key, obj.metadata.uid) not in still:
                held = self._assumed.get(obj.metadata.uid)
                yield Gone(obj if held is None else held[1])
                if isinstance(obj, Node):
                    self._lost.add(obj.metadata.name)
        for obj in sorted(simulated, key=lambda one: isinstance(one, Pod)):
            held = self._assumed.get(obj.metadata.uid)
            if held is not None and isinstance(obj, Pod) and obj.spec.node_name != held[1].spec.node_name:
                yield Gone(held[1])
            yield Seen(obj)

    def _assumptions(
        self, fresh: Iterable[Object], gone: Iterable[Object], assumed: Mapping[str, str]
    ) -> Iterator[Seen | Gone]:
        """Yield facts about pods that are counted on another node than the API server has reported, now or before."""
        changed = {obj.metadata.uid for obj in (*fresh, *gone) if isinstance(obj, Pod)}
        reported = {obj.metadata.uid: obj for obj in fresh if isinstance(obj, Pod)}
        before, self._assumed = self._assumed, {}
        for uid, (pod, placed) in before.items():
            if uid not in changed and assumed.get(uid) == placed.spec.node_name:
                self._assumed[uid] = pod, placed
            elif uid not in changed:
                yield Gone(placed)
                yield Seen(pod)
        assert self._cluster is not None
        pods = self._cluster.simulation.pods
        for uid, node in assumed.items():
            known = reported.get(uid) or (before[uid][0] if uid in before else pods.get(uid))
            if uid not in self._assumed and known is not None and not known.spec.node_name:
                self._assumed[uid] = known, _on(known, node)
                yield Seen(self._assumed[uid][1])


def _difference(before: Sequence[Object], now: Sequence[Object]) -> tuple[list[Object], list[Object]]:
    """Return the objects that only the second sequence has, and those that only the first one has, each in its order.

    Most objects have kept their places.
    """
    places = list(compress(count(), map(is_not, before, now)))
    both = min(len(before), len(now))
    old, new = [before[at] for at in places] + [*before[both:]], [now[at] for at in places] + [*now[both:]]
    olds, news = set(map(id, old)), set(map(id, new))
    return [obj for obj in new if id(obj) not in olds], [obj for obj in old if id(obj) not in news]


def _on(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))
