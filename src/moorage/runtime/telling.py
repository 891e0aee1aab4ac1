"""What the scheduler tells people: conditions and nominations in pods' status, and events.

None of it may slow a bind. Changes of one pod's status that were not sent yet are merged into one; events wait in a bounded
queue, and what does not fit is dropped and counted. An event that says the same as one of the last minutes is not repeated.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

from msgspec.structs import replace

from moorage.api.core import Pod, PodCondition
from moorage.cycle.decision import Decision
from moorage.errors import ClusterError
from moorage.framework.verdicts import Code
from moorage.runtime.ports import Clock, Cluster, Note, StatusChange, WallClock

__all__ = ["NOTE_LIMIT", "Teller", "failure_condition", "shortened"]

#: The API takes no longer texts for events; in characters.
NOTE_LIMIT = 1024
_EVENTS_WAITING = 1000
_REPEAT_AFTER_S = 360.0
_REMEMBERED = 4096
_STATUS_WRITERS = 4
_SUFFIX = " ..."


class Teller:
    """Sends status changes and events, each over its own lane."""

    def __init__(self, cluster: Cluster, clock: Clock, wall: WallClock, report: Callable[[str], None]) -> None:
        self._cluster, self._clock, self._wall, self._report = cluster, clock, wall, report
        self._changes: OrderedDict[str, tuple[Pod, StatusChange]] = OrderedDict()
        self._notes: deque[Note] = deque()
        self._said: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._news = asyncio.Event()
        self._note_news = asyncio.Event()
        #: Events that did not fit, or that the API server did not take.
        self.dropped = 0

    # -- what others call; nothing here waits -----------------------------------------------------------------------------

    def failed(self, decision: Decision) -> None:
        """Say why a pod is not on its way to a node: a Warning event, and the condition PodScheduled."""
        pod = decision.pod.pod
        self.note(Note(pod, "Warning", "FailedScheduling", "Scheduling", decision.message))
        condition = failure_condition(decision, self._wall())
        if condition is not None:
            self.change(pod, StatusChange(condition))

    def change(self, pod: Pod, change: StatusChange) -> None:
        """Change a pod's status some time soon; what was asked for earlier and not sent yet is merged in."""
        _, before = self._changes.get(pod.uid, (pod, StatusChange()))
        merged = StatusChange(
            change.condition or before.condition, before.nominated if change.nominated is None else change.nominated
        )
        self._changes[pod.uid] = (pod, merged)
        self._news.set()

    def forget(self, uid: str) -> None:
        """Drop what was to be written about a pod: it has a node now, or is gone."""
        self._changes.pop(uid, None)

    def note(self, note: Note) -> None:
        """Tell people, unless they were told just that within six minutes."""
        said = (note.regarding.uid, note.reason, note.text)
        now = self._clock()
        if now - self._said.get(said, float("-inf")) < _REPEAT_AFTER_S:
            return
        self._said[said] = now
        self._said.move_to_end(said)
        while len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        if len(self._notes) >= _EVENTS_WAITING:
            self.dropped += 1
            return
        self._notes.append(note)
        self._note_news.set()

    # -- the lanes ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_STATUS_WRITERS):
                tasks.create_task(self._write_status())
            tasks.create_task(self._send_notes())

    async def _write_status(self) -> None:
        while True:
            while not self._changes:
                self._news.clear()
                await self._news.wait()
            _, (pod, change) = self._changes.popitem(last=False)
            try:
                await self._cluster.patch_status(pod, change)
            except ClusterError as error:
                if error.status not in {404, 409}:
                    self._report(f"status of {pod.key}: {error}")

    async def _send_notes(self) -> None:
        while True:
            while not self._notes:
                self._note_news.clear()
                await self._note_news.wait()
            note = self._notes.popleft()
            try:
                await self._cluster.record(Note(*_with_short_text(note)))
            except ClusterError as error:
                self.dropped += 1
                self._report(f"event {note.reason} of {note.regarding.key}: {error}")


def failure_condition(decision: Decision, wall: str) -> PodCondition | None:
    """Return the condition that a failed attempt leaves in the pod's status; None if it says so already."""
    reason = "Unschedulable" if decision.code is not Code.ERROR else "SchedulerError"
    wanted = PodCondition(
        type="PodScheduled", status="False", reason=reason, message=decision.message, last_transition_time=wall
    )
    old = next((one for one in decision.pod.pod.status.conditions if one.type == wanted.type), None)
    if old is not None and old.status == wanted.status:
        wanted = replace(wanted, last_transition_time=old.last_transition_time)
    return None if wanted == old else wanted


def shortened(text: str) -> str:
    """Return at most as much of a text as the API takes as an event's note."""
    return text if len(text) <= NOTE_LIMIT else text[: NOTE_LIMIT - len(_SUFFIX)] + _SUFFIX


def _with_short_text(note: Note) -> tuple[Pod, str, str, str, str, Pod | None]:
    return note.regarding, note.kind, note.reason, note.action, shortened(note.text), note.related
