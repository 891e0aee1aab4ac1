"""The scheduler's status writes: pod conditions and nominated nodes, pod group conditions, and Events.

Status writes never slow a bind. Unsent changes of one pod's status are merged into one; for Events see ``event_recorder``.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from moorage.api.core import Pod, PodCondition, PodSpec
from moorage.api.meta import is_older
from moorage.api.pod_groups import Condition, PodGroup, find_condition
from moorage.api.releases import CURRENT, Release
from moorage.basis.printable import clip
from moorage.core.cycle.decision import Decision
from moorage.errors import ClusterError
from moorage.framework.effects import Evict
from moorage.framework.verdicts import Code
from moorage.live.runtime.event_recorder import Recorder
from moorage.live.runtime.ports import Clock, ClusterWriter, EventNote, StatusChange, WallClock
from moorage.state.pod_info import PodInfo

_STATUS_WRITERS = 4
#: The answers to changes of a status are kept without what they do not tell of.
_NO_SPEC = PodSpec()
#: The longest message of a condition, in characters; the API rejects longer ones where it checks their length.
MOST_MESSAGE = 32_768


class StatusWriter:
    """Writes pod status, group conditions and Events, each in its own tasks.

    ``release`` has the text of a victim's Event, and the reason of a pod's condition after an error.
    """

    def __init__(
        self, cluster: ClusterWriter, clock: Clock, wall: WallClock, report: Callable[[str], None], release: Release = CURRENT
    ) -> None:
        self._cluster, self._wall, self._report, self._release = cluster, wall, report, release
        self._recorder = Recorder(cluster, clock, wall, report)
        self._changes: OrderedDict[str, tuple[Pod, StatusChange]] = OrderedDict()
        #: Pods and groups as the API server answered the last change of their status: watches may report it later.
        self._answered: dict[str, Pod] = {}
        self._answered_groups: dict[str, PodGroup] = {}
        #: Pods that are bound or gone while their status is written.
        self._forgotten: set[str] = set()
        #: Pod UID → a future that completes when the status write under way ends.
        self._writing: dict[str, asyncio.Future[None]] = {}
        self._of_groups: OrderedDict[tuple[str, str], tuple[PodGroup, Condition]] = OrderedDict()
        #: Pod groups that are scheduled by now, by UID, each with the types of the conditions that say so.
        self._scheduled_groups: dict[str, set[str]] = {}
        #: The UIDs of pods whose node is to be published before they are bound.
        self._expected: set[str] = set()
        self._group_news = asyncio.Event()
        self._news = asyncio.Event()
        #: Pulsed when a queued change leaves the queue.
        self._taken = asyncio.Event()

    @property
    def dropped(self) -> int:
        """The number of events that did not fit in the queue or that the API server rejected."""
        return self._recorder.dropped

    def use_core_events(self) -> None:
        """Write Events of core/v1 from now on, because ``events.k8s.io/v1`` is not served."""
        self._recorder.use_core_events()

    # -- called by the loop and the executor ------------------------------------------------------------------------------

    def failed(self, decision: Decision) -> None:
        """Report why a pod was not scheduled: a Warning event and the condition PodScheduled."""
        pod = decision.pod.pod
        self._recorder.note(
            EventNote(pod, "Warning", "FailedScheduling", "Scheduling", decision.message, reporter=pod.spec.scheduler_name)
        )
        condition = failure_condition(decision, self._wall(), self._release.error_reason, self._latest(pod))
        if condition is not None:
            self.change(pod, StatusChange(condition))

    def skipped(self, pod: Pod) -> None:
        """Report that a pod is skipped because it is being deleted."""
        text = f"skip schedule deleting pod: {pod.key}"
        self._recorder.note(EventNote(pod, "Warning", "FailedScheduling", "Scheduling", text, reporter=pod.spec.scheduler_name))

    def announce(self, pod: Pod, reason: str, text: str) -> None:
        """Report why a pod that has a node waits."""
        self._recorder.note(EventNote(pod, "Normal", reason, "Scheduling", text, reporter=pod.spec.scheduler_name))

    def preempted(self, effect: Evict, remark: str = "") -> None:
        """Report which preemptor a victim was evicted for.

        kube-scheduler tries to set the preemptor as the event's related object, which fails for a pod: only events of victims
        of a pod group have one.
        """
        victim, preemptor, group = effect.victim, effect.preemptor, effect.group
        text = self._release.preempted_text.format(uid=preemptor.uid, key=preemptor.key, node=victim.spec.node_name)
        if group is not None:
            text = f"Preempted by podgroup {group.metadata.uid} on node cluster"
        reporter = preemptor.spec.scheduler_name
        self._recorder.note(
            EventNote(victim.pod, "Normal", "Preempted", "Preempting", text + remark, related=group, reporter=reporter)
        )

    def change(self, pod: Pod, change: StatusChange) -> None:
        """Queue a change of a pod's status, merged with an earlier one that is not sent yet."""
        _, before = self._changes.get(pod.uid, (pod, StatusChange()))
        merged = StatusChange(
            change.condition or before.condition, before.nominated if change.nominated is None else change.nominated
        )
        self._changes[pod.uid] = (pod, merged)
        self._news.set()

    def expect(self, pod: Pod, node: str) -> None:
        """Queue the publication of the node of a pod whose binding takes time; it is sent before the pod is bound."""
        self._expected.add(pod.uid)
        self.change(pod, StatusChange(nominated=node))

    def expects(self, uid: str) -> bool:
        """Return whether the node of a pod is still to be published."""
        return uid in self._expected

    def _latest(self, pod: Pod) -> Pod:
        """Return the newest known version of a pod: this one, or the answer to the last change of its status."""
        known = self._answered.get(pod.uid)
        if known is None or not is_older(pod.metadata.resource_version, known.metadata.resource_version):
            self._answered.pop(pod.uid, None)
            return pod
        return known

    def _latest_group(self, group: PodGroup) -> PodGroup:
        known = self._answered_groups.get(group.metadata.uid)
        if known is None or not is_older(group.metadata.resource_version, known.metadata.resource_version):
            self._answered_groups.pop(group.metadata.uid, None)
            return group
        return known

    def say_of_group(self, group: PodGroup, condition: Condition) -> None:
        """Queue a pod group's condition; it replaces an earlier one that is not sent yet.

        A group that was scheduled once stays so, also while the group that the decision read does not show it yet.
        """
        group = self._latest_group(group)
        scheduled = self._scheduled_groups.setdefault(group.metadata.uid, set())
        if condition.type in scheduled and condition.status != "True":
            return
        if condition.status == "True":
            scheduled.add(condition.type)
        held = find_condition(group, condition.type)
        turned = held is None or held.status != condition.status
        when = in_seconds(self._wall()) if held is None or turned else held.last_transition_time
        self._of_groups[group.key, condition.type] = (group, replace(condition, last_transition_time=when))
        self._group_news.set()

    def forget(self, uid: str) -> None:
        """Drop the queued status change of a pod that is bound or gone."""
        if self._changes.pop(uid, None) is not None:
            self._pulse()
        self._expected.discard(uid)
        self._answered.pop(uid, None)
        if uid in self._writing:
            self._forgotten.add(uid)

    def forget_group(self, uid: str) -> None:
        """Forget a pod group that is gone."""
        self._answered_groups.pop(uid, None)
        self._scheduled_groups.pop(uid, None)

    @property
    def is_quiet(self) -> bool:
        """True if no change of a pod's status is queued or being written."""
        return not (self._changes or self._writing)

    def is_writing(self, uid: str) -> bool:
        """Return whether a status change of a pod is being written."""
        return uid in self._writing

    async def sent(self, uid: str) -> None:
        """Wait until the queued status change of a pod, if there is one, is answered."""
        while uid in self._changes or uid in self._writing:
            if uid in self._changes:
                self._changes.move_to_end(uid, last=False)
            if uid in self._writing:
                await asyncio.shield(self._writing[uid])
            else:
                await self._taken.wait()

    async def settle(self, uid: str) -> None:
        """Drop the queued status change of a pod that is about to be bound, and wait for one that is being written.

        Otherwise the condition of a failed attempt could be written after the bind, and stay. A node that is to be published
        is sent first.
        """
        if uid in self._expected:
            await self.sent(uid)
        self.forget(uid)
        while uid in self._writing:
            await asyncio.shield(self._writing[uid])

    def bound(self, binds: Iterable[tuple[PodInfo, str]]) -> None:
        """Report bound pods with their nodes."""
        self._recorder.note_all([
            EventNote(
                pod.pod, "Normal", "Scheduled", "Binding", f"Successfully assigned {pod.key} to {node}",
                reporter=pod.spec.scheduler_name,
            )
            for pod, node in binds
        ])  # fmt: skip

    # -- tasks -------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_STATUS_WRITERS):
                tasks.create_task(self._write_status())
            tasks.create_task(self._write_groups())
            tasks.create_task(self._recorder.run())

    async def flush(self, patience_s: float) -> None:
        """Write the queued events, for at most ``patience_s``, and drop status changes: the next leader writes its own."""
        self._changes.clear()
        self._pulse()
        self._of_groups.clear()
        await self._recorder.flush(patience_s)

    def _pulse(self) -> None:
        """Wake those that wait for a queued change."""
        self._taken.set()
        self._taken.clear()

    async def _write_status(self) -> None:
        while True:
            while (uid := next((one for one in self._changes if one not in self._writing), None)) is None:
                self._news.clear()
                await self._news.wait()
            pod, change = self._changes.pop(uid)
            done = self._writing[uid] = asyncio.get_running_loop().create_future()
            self._expected.discard(uid)
            self._pulse()
            try:
                answer = await self._cluster.patch_status(self._latest(pod), change)
                if uid not in self._forgotten:
                    self._answered[uid] = replace(answer, spec=_NO_SPEC)
            except ClusterError as error:
                if error.status not in {404, 409}:
                    self._report(f"status of {pod.key}: {error}")
            finally:
                del self._writing[uid]
                self._forgotten.discard(uid)
                done.set_result(None)
                if uid in self._changes:
                    self._news.set()

    async def _write_groups(self) -> None:
        """Write conditions of pod groups one after the other: there are few, and the last one must win."""
        while True:
            while not self._of_groups:
                self._group_news.clear()
                await self._group_news.wait()
            _, (group, condition) = self._of_groups.popitem(last=False)
            try:
                group = self._latest_group(group)
                self._answered_groups[group.metadata.uid] = await self._cluster.patch_group(group, condition)
            except ClusterError as error:
                self._scheduled_groups.pop(group.metadata.uid, None)
                if error.status not in {404, 409}:
                    self._report(f"status of pod group {group.key}: {error}")


def failure_condition(
    decision: Decision, wall: str, error_reason: str = CURRENT.error_reason, latest: Pod | None = None
) -> PodCondition | None:
    """Return the condition for a failed attempt; None if the pod's status already has it.

    ``error_reason``: the reason if the attempt ended in an error before it chose a node. ``latest``: the pod's newest version,
    if a later one is known than that of the decision.
    """
    reason = "Unschedulable" if decision.code is not Code.ERROR else "SchedulerError"
    if decision.code is Code.ERROR and decision.refused_after is None:
        reason = error_reason
    pod = decision.pod.pod
    message = decision.message
    wanted = PodCondition(
        type="PodScheduled", status="False", reason=reason,
        message=message if len(message) <= MOST_MESSAGE else clip(message, MOST_MESSAGE),
        last_transition_time=in_seconds(wall),
        observed_generation=pod.metadata.generation,
    )  # fmt: skip
    held = pod if latest is None else latest
    old = next((one for one in held.status.conditions if one.type == wanted.type), None)
    if old is not None and old.status == wanted.status:
        wanted = replace(wanted, last_transition_time=old.last_transition_time)
    # A different observedGeneration alone is no reason to write; servers before 1.33 do not keep it.
    same = old is not None and replace(wanted, observed_generation=old.observed_generation) == old
    return None if same else wanted


def in_seconds(wall: str) -> str:
    """Return a time without the fraction of its second: conditions hold whole seconds."""
    second, dot, _ = wall.partition(".")
    return f"{second}Z" if dot else wall
