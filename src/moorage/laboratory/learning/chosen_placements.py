"""A simulation in which the caller chooses the node of each pod: the engine runs the queue, the filters and the clock.

A pod that fits nowhere fails as usual: PostFilter runs, and the pod waits for an event that helps it. A pod that fits
somewhere waits for ``place``. The engine itself places pods of pod groups; the caller does not choose for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from moorage.api.core import Pod
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Feasible, Quick
from moorage.core.cycle.search import SearchScope
from moorage.core.cycle.sheets import Sheets
from moorage.core.engine.facts import Seen
from moorage.core.engine.placer import Found
from moorage.core.preemption.what_if import Nominated
from moorage.core.queue import QueuePlace
from moorage.framework.profile import Profile
from moorage.simulator.filtering import fitting_rows
from moorage.simulator.pod_records import PodRecord
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.view import PodInfo, Snapshot


class _ChosenPath(Sheets):
    """A cached path that returns the caller's choice."""

    choice: Quick | None = None

    def decide_known(
        self, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated = MappingProxyType({})
    ) -> Quick | None:
        return self.choice


class _OneChoice(Cycle):
    """A cycle whose fast path returns the caller's choice."""

    chosen: _ChosenPath | None = None
    choice: Quick | None = None

    def at_once(self, profile: Profile) -> Sheets:
        chosen = self.chosen = self.chosen or _ChosenPath(profile)
        chosen.choice = self.choice
        return chosen


class OpenChoice:
    """A pod that waits for a choice. ``rows`` is a mask of the node table's rows; it is valid until something changes."""

    __slots__ = ("_known", "pod", "rows")

    def __init__(self, pod: PodInfo, rows: npt.NDArray[np.bool_], known: Feasible | None) -> None:
        self.pod, self.rows, self._known = pod, rows, known

    def quick(self, row: int) -> Quick | None:
        """Return the decision for a row, for the fast path; None if the answers of the pod's class are not cached."""
        return None if self._known is None else Quick(row, self._known.number, self._known.found)


class ChosenPlacements(SimulatedCluster):
    """A simulated cluster whose caller chooses nodes; see the module's description."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chooser = _OneChoice()
        #: The engine's count of facts after a placement that the fast path completed; -1 after anything else.
        self._facts = -1
        self._unscored: dict[str, Profile] = {}
        #: The first pods of the last episode, by UID, if they can be put back; and the number of all pods at that time.
        self._first: dict[str, PodInfo] = {}
        self._population = 0

    def next_choice(self) -> OpenChoice | None:
        """Let time pass until a pod that fits somewhere is first in the queue; None if nothing more can happen."""
        scheduler = self.scheduler
        while True:
            if scheduler.state.facts != self._facts or (self._events and self._events[0][0] <= self.now):
                self._process_due()
            queued = scheduler.queue.first_active(self.now)
            if queued is None:
                self._facts = -1
                if not self._deliver() and not self._advance():
                    return None
                continue
            choice = None if scheduler.state.is_in_group(queued.pod) else self._choice_for(queued.pod)
            if choice is not None:
                return choice
            self._facts = -1
            scheduler.step(self.now)
            self._deliver()

    def _choice_for(self, pod: PodInfo) -> OpenChoice | None:
        scheduler = self.scheduler
        if pod.terminating or scheduler.cluster.node_of(pod.uid) is not None:
            return None
        known = None
        if not scheduler.queue.nominated:
            known = scheduler.cycle.path(self._profile_of(pod.spec.scheduler_name)).feasible(pod, scheduler.snapshot)
        if known is not None:
            return OpenChoice(pod, known.rows, known) if known.number else None
        rows = np.zeros(len(scheduler.snapshot.table), dtype=np.bool_)
        rows[fitting_rows(scheduler, pod)] = True
        return OpenChoice(pod, rows, None) if rows.any() else None

    def _profile_of(self, name: str) -> Profile:
        """Return the profile of a scheduler name without Score plugins, which a choice does not need."""
        found = self._unscored.get(name)
        if found is None:
            found = self._unscored[name] = self.scheduler.profiles[name].without_scores()
        return found

    def place(self, choice: OpenChoice, row: int) -> bool:
        """Schedule the pod with this row as the only candidate. Return whether it was bound; a closed row refuses it."""
        scheduler, pod = self.scheduler, choice.pod
        is_open = 0 <= row < len(choice.rows) and bool(choice.rows[row])
        if is_open:
            self._chooser.choice = choice.quick(row)
            found = scheduler.lane.find(self._chooser, self.now)
            if isinstance(found, Found) and found.pod is pod:
                facts = scheduler.state.facts
                scheduler.state.placer.assume(found)
                self._note(found.decision)
                quiet = scheduler.state.facts == facts
                scheduler.state.placer.confirm(found, self._bound(pod.pod, found.node))
                self._facts = facts + 1 if quiet else -1
                return True
        self._facts = -1
        self.attempt(pod.pod, SearchScope(np.array([row] if is_open else [], dtype=np.intp), post_filter=False))
        now = self.pods.get(pod.uid)
        return now is not None and bool(now.spec.node_name)

    # -- beginning again -------------------------------------------------------------------------------------------------

    def begin(self, pods: Sequence[Pod]) -> None:
        """Begin an episode: add the pods that arrive at time 0."""
        self.tell([Seen(pod) for pod in pods])
        self._first, self._population = self._untried(pods), len(self._pods)

    def begin_again(self, kept: frozenset[str], pods: Sequence[Pod]) -> bool:
        """Begin another episode: keep the placed pods with the UIDs ``kept``, and add the pods that arrive at time 0.

        Return False if the initial state cannot be restored: a pod to keep was deleted, or more than pods changed.
        """
        if kept <= self._pods.keys() and self._put_back(pods):
            return True
        if not self._restore(kept):
            return False
        self.begin(pods)
        return True

    def _untried(self, pods: Sequence[Pod]) -> dict[str, PodInfo]:
        """Return the pods in the queue, by UID; empty if ``_put_back`` cannot put them back."""
        queue, cluster = self.scheduler.queue, self.scheduler.cluster
        if cluster.groups is not None or queue.nominated or len(queue) != len(pods):
            return {}
        found = [queue.get(pod.metadata.uid) for pod in pods]
        first: dict[str, PodInfo] = {}
        for pod, queued in zip(pods, found, strict=True):
            active = queued is not None and queued.place is QueuePlace.ACTIVE and not queued.attempts
            if queued is None or not active or queued.pod.pod is not pod or not _is_plain(pod):
                return {}
            first[queued.uid] = queued.pod
        return first

    def _put_back(self, pods: Sequence[Pod]) -> bool:
        """Move the pods of the last episode back to the queue. Return False, and change nothing, if that is impossible."""
        first, scheduler, state = self._first, self.scheduler, self.scheduler.state
        infos = [info for pod in pods if (info := first.get(pod.metadata.uid)) is not None and info.pod is pod]
        if not infos or not len(infos) == len(pods) == len(first):
            return False
        if len(self._pods) != self._population or not first.keys() <= self._pods.keys():
            return False  # other pods came, or some ended or were evicted
        if self._waiting_work or state.bindings.by_uid or scheduler.queue.nominated:
            return False
        self._clear()
        queue, cluster = scheduler.queue, scheduler.cluster
        for info in infos:
            uid = info.uid
            if cluster.remove_pod(uid) is None:
                queue.delete(info, 0.0)
            del self._pods[uid]
            self._arrivals += 1
            self._pods[uid], self._came[uid] = info.pod, self._arrivals
            self.records[uid] = PodRecord(info.pod, 0.0)
            queue.put_back(info, 0.0)
        self.arrived += len(infos)
        state.facts += 2 * len(infos)
        state.revision += 2 * len(infos)
        return True

    def _clear(self) -> None:
        """Drop scheduled events and records, and set the time to 0."""
        self._facts, self._may_fit, self.now = -1, "", 0.0
        self._events.clear()
        for book in (self.durations, self.records, self.victims, self._last_attempts, self._timeouts):
            book.clear()

    def _restore(self, kept: frozenset[str]) -> bool:
        """Delete all pods except those with the UIDs ``kept``, drop scheduled events, and set the time to 0.

        Return False if the initial state cannot be restored: a pod to keep was deleted, or more than pods changed.
        """
        if not kept <= self._pods.keys() or self._waiting_work or self.scheduler.state.bindings.by_uid:
            return False
        self._clear()
        placed = self.scheduler.cluster.uids
        for uid in [uid for uid, pod in self._pods.items() if uid not in kept and not (uid in placed and _is_plain(pod))]:
            self.delete(uid)
        if len(self.scheduler.queue):
            return False
        gone = [pod for uid, pod in self._pods.items() if uid not in kept]
        self.scheduler.event_handlers.forget(gone)
        for pod in gone:
            del self._pods[pod.metadata.uid], self._came[pod.metadata.uid]
            self._named.put(pod.metadata.namespace, pod.metadata.name, None)
        return True


def _is_plain(pod: Pod) -> bool:
    """Return True if the pod has no claims or volumes, so that no controller acts when it is deleted."""
    return not (pod.spec.resource_claims or pod.spec.volumes)
