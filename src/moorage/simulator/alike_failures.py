"""Waiting pods that are alike fail together: where nothing differs, their attempts are counted and not made.

A pod that ends wakes all pods that wait for room. In a crowded cluster that is hundreds of attempts for each end, of which one
or none finds a place. Pods of one shape get one answer in one state of the cluster, so a shape that no node has room for is
judged once, on the rows that changed, and its pods stay parked as if each had been tried: the same counts, the same order, the
same backoff. A pod of a shape that there is room for is tried as always, in its turn; then its shape is judged again.

That is done only where an attempt could have no other effect: no extender, plugin of the user, nominated pod, group or callback
that wants each decision; all pods of the shape were tried since nodes last changed; nothing but the fit of resources depends on
the pods of a node; and no pod has a lower priority, so that preemption has no victim.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from moorage.core.cycle.decision import Decision
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue.queued_pod import QueuedPod
from moorage.core.queue.scheduling_queue import Woken
from moorage.core.queue.unschedulable_pods import ShapeGroup
from moorage.simulator.decision_messages import Messages
from moorage.simulator.pod_records import LastAttempt, PodRecord, State


class FailingAlike:
    """The pods of a simulation that fail together. Nothing happens while ``is_on`` is False.

    ``woken``: pods that were woken in one moment and are still parked, in the order of their turns.
    """

    def __init__(self, scheduler: Scheduler, records: dict[str, PodRecord], last: dict[str, LastAttempt]) -> None:
        self._scheduler, self._records, self._last = scheduler, records, last
        self.is_on = False
        self.woken: deque[Woken] = deque()
        #: The groups of ``woken`` for which there is no room, and the others, with the state in which they were judged.
        self._failing: set[ShapeGroup] = set()
        self._open: dict[ShapeGroup, int] = {}
        #: UID → the version of the nodes when the pod was last tried and failed.
        self._tried_on: dict[str, int] = {}
        #: Pods whose message is that of an earlier attempt.
        self._stale: dict[str, QueuedPod] = {}
        self._least_priority = 0
        self._on_repeats: Callable[[int], None] | None = None

    def begin(self, priorities: Iterable[int], on_repeats: Callable[[int], None] | None) -> None:
        """Begin a run without an end, of a cluster with pods of these priorities."""
        self.is_on, self._on_repeats = True, on_repeats
        self._least_priority = min(priorities, default=1 << 31)

    def end(self, messages: Messages, now: float) -> None:
        """End the run: complete the messages of pods that stay pending."""
        if not self.is_on:
            return
        self._move_rest(now)
        self.is_on = False
        state = self._scheduler.state
        for uid, queued in self._stale.items():
            record, last = self._records.get(uid), self._last.get(uid)
            if record is None or record.state != State.PENDING or last is None or last.revision != state.revision:
                continue  # another attempt follows
            profile = self._scheduler.profiles[queued.pod.spec.scheduler_name]
            record.message = messages.of(self._scheduler.cycle.decide(profile, queued.pod, state.cluster.snapshot))
        self._stale.clear()
        self._tried_on.clear()

    def see(self, priority: int) -> None:
        """Note the priority of a pod that arrives."""
        self._least_priority = min(self._least_priority, priority)

    def note(self, decision: Decision) -> None:
        """Note a decision, before it is entered in the books."""
        uid = decision.pod.uid
        self._stale.pop(uid, None)
        if decision.node is None and decision.error is None and decision.verdicts is not None and _has_no_effect(decision):
            self._tried_on[uid] = self._scheduler.snapshot.table.changes.nodes
        else:
            self._tried_on.pop(uid, None)

    # -- one moment ----------------------------------------------------------------------------------------------------

    def begin_moment(self, now: float) -> None:
        """Begin to tell the facts of one moment."""
        self._move_rest(now)
        self._scheduler.queue.begin_moment()

    def end_moment(self, now: float) -> None:
        """Let the first pods that cannot be placed fail."""
        found = self._scheduler.queue.end_moment(now)
        if found:
            self.woken.extend(found)
            self._failing.clear()
            self._open.clear()
            self.go_on(now)

    def go_on(self, now: float) -> bool:
        """Let pods fail up to the first that may be placed, and move that one. Return False if there is none."""
        woken, failing, queue = self.woken, self._failing, self._scheduler.queue
        records, last, stale = self._records, self._last, self._stale
        state = self._scheduler.state
        shared = LastAttempt(state.revision, state.facts, 1)
        failed, is_moved = 0, False
        while woken and not is_moved:
            queued, group, _ = one = woken.popleft()
            if group not in failing and not self._fails(group):
                queue.move((one,), now)
                is_moved = True
                continue
            queue.fail_again(queued, now)
            uid = queued.pod.uid
            records[uid].attempts += 1
            before = last[uid]
            last[uid] = shared if before.facts != shared.facts else LastAttempt(shared.revision, shared.facts, before.times + 1)
            stale[uid] = queued
            failed += 1
        if failed and self._on_repeats is not None:
            self._on_repeats(failed)
        return is_moved

    def _move_rest(self, now: float) -> None:
        """Let the pods that were not tried yet be tried as usual."""
        if self.woken:
            self._scheduler.queue.move(self.woken, now)
            self.woken.clear()

    def _fails(self, group: ShapeGroup) -> bool:
        """Return whether the pods of a shape would fail as they did before; if so, they do until the next moment."""
        revision = self._scheduler.state.revision
        if self._open.get(group) == revision:
            return False
        if self._has_no_room(group):
            self._failing.add(group)
            return True
        self._open[group] = revision
        return False

    def _has_no_room(self, group: ShapeGroup) -> bool:
        scheduler = self._scheduler
        state = scheduler.state
        first = next(iter(group.pods.values()), None)
        if first is None or first.pending_plugins or state.bindings.held or scheduler.queue.nominated:
            return False
        pod = first.pod
        if pod.priority > self._least_priority or pod.terminating:
            return False
        nodes, tried = scheduler.snapshot.table.changes.nodes, self._tried_on
        if any(tried.get(uid) != nodes for uid in group.pods):
            return False
        path = scheduler.cycle.at_once(scheduler.profiles[pod.spec.scheduler_name])
        return path is not None and path.lacks_room(pod, scheduler.snapshot)


def _has_no_effect(decision: Decision) -> bool:
    found = decision.post_filter
    return found is None or not (found.victims or found.nominated or found.effects or found.displaced)
