"""The least change for a pod of a live scheduler: it is searched for in a copy of the cluster, in another thread.

The first search makes the copy. It is kept, and later searches only report to it the objects that changed since. The event loop
only collects references to these objects, which never change themselves.

When Python's cycle collector runs next, it would hold up all threads to look at the new copy. So the copy is frozen: the
collector ignores it. That is possible a few times, because memory of cycles in earlier copies is then not freed either.
Further copies are released after their search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from threading import Lock
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from moorage.api.core import Namespace, Node, Object, Pod, ReplicationController, Service
from moorage.api.gc_pause import collector_paused
from moorage.api.workloads import PodDisruptionBudget, ReplicaSet, StatefulSet
from moorage.core.config.scheduler_document import Loaded
from moorage.core.engine.facts import Gone, Seen
from moorage.core.engine.scheduler import Scheduler
from moorage.framework.profile import Profile
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.change.least_change import ChangeLimits
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.cluster_objects import cluster_input, is_simulated
from moorage.laboratory.explain.explained_changes import CHANGEABLE, with_changes
from moorage.laboratory.explain.explanation import Findings, Subject, find_now
from moorage.laboratory.explain.pod_state import ExplainedState
from moorage.laboratory.trial.cluster_trials import ClusterTrials
from moorage.report.explanation import ExplainRequest, Explanation
from moorage.simulator.simulate import Options

#: What changed of each kind: objects by key, None for those that are gone. All reports have the same kinds in the same order.
Report: TypeAlias = Sequence[Mapping[str, Object | None]]

_LATE: Final = "the search for changes reached its time limit; moorage explain --live has none"
#: Kinds whose changes are reported to the copy. In a copy, controllers of volumes and devices act at once, and may have decided
#: otherwise than those of the cluster: after changes of such objects, the copy is made again.
_FOLLOWED: Final = (Pod, Node, Namespace, Service, PodDisruptionBudget, ReplicaSet, StatefulSet, ReplicationController)
#: The number of facts after which the history of the copy begins again with the present objects.
_MOST_FACTS: Final = 20_000
#: How many copies in turn are kept.
_MOST_KEPT: Final = 3


class LiveCopy:
    """A copy of a live cluster, as it was reported. Threads take turns. Extenders are not asked.

    ``on_made`` is called when a copy that is kept was made, before the collector may look at it.
    """

    def __init__(self, loaded: Loaded, seed: int, on_made: Callable[[], None] = lambda: None) -> None:
        self._turn, self._on_made = Lock(), on_made
        self._made = 0
        self._options = Options(seed=seed, skip_extenders=True, reconfigure=lambda _: loaded)
        self._cluster: Cluster | None = None
        #: Reports that no search has read.
        self._reports: deque[Report] = deque()
        #: The objects of each kind that were reported and read, by key, in the order in which they came.
        self._known: list[dict[str, Object]] = []
        #: Pods that are counted on a node that is not reported yet, by UID: the pod as reported, and on the node.
        self._assumed: dict[str, tuple[Pod, Pod]] = {}
        #: The names of nodes that were deleted, or that pods are on and that were not reported.
        self._lost: set[str] = set()
        self._facts = 0

    def report(self, report: Report) -> None:
        """Report new, changed and deleted objects of the API server; at first all. This may be called while a search runs."""
        self._reports.append(report)

    def with_changes(self, found: Explanation, assumed: Mapping[str, str], budget: TimeBudget) -> Explanation:
        """Return an explanation with the changes that would place its pod, if it may have any, found within a budget.

        ``assumed`` has the nodes of pods whose bindings the API server has not reported, by UID.
        """
        if found.outcome not in CHANGEABLE:
            return found
        with self._turn, collector_paused():  # a collection holds up all threads
            try:
                cluster = self._follow(assumed)
                trials = ClusterTrials(cluster, found.request.pod)
                explained = with_changes(found, trials, cluster.present(), ChangeLimits(budget=budget))
            except BaseException:
                self._drop()
                raise
            if self._made > _MOST_KEPT:
                self._drop()
        if explained.stopped is None:
            return explained
        return replace(explained, request=replace(explained.request, notes=(*explained.request.notes, _LATE)))

    def drop(self) -> None:
        """Release the copy. The next search makes another one."""
        with self._turn:
            self._drop()

    def _drop(self) -> None:
        cluster, self._cluster = self._cluster, None
        self._assumed, self._lost, self._facts = {}, set(), 0
        if cluster is not None:
            cluster.simulation.release()

    # -- following the cluster ------------------------------------------------------------------------------------------------

    def _follow(self, assumed: Mapping[str, str]) -> Cluster:
        """Return the copy, in the state that was reported."""
        fresh, gone = self._read()
        if self._cluster is None or not all(map(self._is_followed, [*fresh, *gone])):
            return self._begin(assumed)
        facts = [*self._changes(fresh, gone), *self._assumptions(fresh, gone, assumed)]
        if facts:
            self._facts += len(facts)
            self._cluster.tell(facts)
            self._note_missing(fresh)
        if self._facts > _MOST_FACTS:
            self._facts = 0
            self._cluster.shorten_history()
        return self._cluster

    def _read(self) -> tuple[list[Object], list[Object]]:
        """Read the reports. Return the objects that are new or changed, and those that they replace or that are gone."""
        if not self._known and self._reports:
            first = self._reports.popleft()
            self._known = [{key: obj for key, obj in objects.items() if obj is not None} for objects in first]
        before: list[dict[str, Object | None]] = [{} for _ in self._known]
        while self._reports:
            for known, objects, was in zip(self._known, self._reports.popleft(), before, strict=True):
                for key, obj in objects.items():
                    old = known.get(key)
                    was.setdefault(key, old)
                    if old is not None and (obj is None or obj.metadata.uid != old.metadata.uid):
                        del known[key]
                    if obj is not None:
                        known[key] = obj
        changed = [(old, known.get(key)) for known, was in zip(self._known, before, strict=True) for key, old in was.items()]
        fresh = [now for old, now in changed if now is not None and now is not old]
        return fresh, [old for old, now in changed if old is not None and now is not old]

    def _begin(self, assumed: Mapping[str, str]) -> Cluster:
        self._drop()
        objects = [obj for known in self._known for obj in known.values()]
        pods = (obj for obj in objects if isinstance(obj, Pod) and obj.metadata.uid in assumed and not obj.spec.node_name)
        self._assumed = {pod.metadata.uid: (pod, _on(pod, assumed[pod.metadata.uid])) for pod in pods} if assumed else {}
        instead = {id(pod): placed for pod, placed in self._assumed.values()}
        held = list(chain.from_iterable(some for kind, some in groupby(objects, type) if is_simulated(kind)))
        if instead:
            held = [instead.get(id(obj), obj) for obj in held]
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
        return isinstance(obj, _FOLLOWED) or not is_simulated(type(obj))

    def _changes(self, fresh: Iterable[Object], gone: Iterable[Object]) -> Iterator[Seen | Gone]:
        """Yield what happened to objects: deletions, then new and changed ones, of these pods last."""
        simulated = [obj for obj in fresh if is_simulated(type(obj))]
        still = {(type(obj), obj.key, obj.metadata.uid) for obj in simulated}
        for obj in gone:
            if is_simulated(type(obj)) and (type(obj), obj.key, obj.metadata.uid) not in still:
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


def _on(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


# -- live explanation --------------------------------------------------------------------------------------------------
# Explain a pod in the state of a live scheduler. Nothing changes, and no changes are searched for.
#
# What needs the state is found first, and another thread can do the rest.

#: Said by answers that could have changes.
_UNSEARCHED: Final = "changes that would place the pod were not searched for; leave changes=0 out of the address"


def explain_live(
    scheduler: Scheduler, profiles: Mapping[str, Profile], pod: Pod, *, taken_at: str, notes: tuple[str, ...] = ()
) -> Findings:
    """Find why a pod is pending or, if it has a node, where it would go if it were scheduled again now.

    ``profiles`` are used instead of the scheduler's own, which may record the time of each call.
    """
    request = ExplainRequest(
        pod=pod.key, release=scheduler.gates.release, seeds=(scheduler.cycle.seed,), taken_at=taken_at, notes=notes
    )
    return find_now(ExplainedState(scheduler, profiles, scheduler.now), Subject(request, pod))


def cause_document(scheduler: Scheduler, profiles: Mapping[str, Profile], pod: Pod) -> dict[str, Any]:
    """Return the document of the explanation of a pod in the state of a scheduler, without changes."""
    return explain_live(scheduler, profiles, pod, taken_at="").finished().to_dict()


def may_change(found: Findings) -> bool:
    """Return whether changes could be searched for, as the pod has no node."""
    return found.explanation.outcome in CHANGEABLE


def unsearched(found: Explanation) -> Explanation:
    """Return an explanation with the note that no changes were searched for, if there could be any."""
    if found.outcome not in CHANGEABLE:
        return found
    return replace(found, request=replace(found.request, notes=(*found.request.notes, _UNSEARCHED)))
