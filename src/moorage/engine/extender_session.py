"""The attempt that asks extenders: what is out, what has come, and when it is too late to wait any longer.

There is one at a time, because the next pod must see where this one went. It decides on the cluster as it was when it began:
what happens to objects meanwhile is kept back here until it has ended.
"""

from __future__ import annotations

from typing import Final

from moorage.cycle.decision import Decision
from moorage.cycle.extender_wire import shown
from moorage.cycle.extenders import Answer, Asking
from moorage.engine.facts import Answered, Gone, Query, Seen
from moorage.engine.group_outcome import GroupOutcome, QueuedGroup
from moorage.framework.effects import Question
from moorage.queue.queued import QueuedPod

__all__ = ["Conversation"]

#: Seconds beyond an extender's own time after which an answer is not waited for: whoever had to bring it has failed.
_GRACE_S: Final = 1.0
#: Go's words for it.
_TOO_LATE: Final = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


class Conversation:
    """An attempt that goes on whenever all that it asked is answered; ``entity`` is its pod or group, None if there is none."""

    def __init__(self) -> None:
        self.entity: QueuedPod | QueuedGroup | None = None
        #: What is to be asked and was not handed over yet.
        self.queries: list[Query] = []
        self._attempt: Asking[Decision | GroupOutcome] | None = None
        self._begun = False
        self._tickets = 0
        self._deadline = 0.0
        self._out: dict[int, Question] = {}
        self._answers: dict[int, Answer] = {}
        self._kept_back: list[Seen | Gone] = []

    def begin(self, entity: QueuedPod | QueuedGroup, attempt: Asking[Decision | GroupOutcome]) -> None:
        self.entity, self._attempt, self._begun = entity, attempt, False

    def take(self, fact: Seen | Gone | Answered) -> None:
        """Take in an answer, or keep back what happened to an object."""
        if not isinstance(fact, Answered):
            self._kept_back.append(fact)
        elif fact.ticket in self._out:
            self._answers[fact.ticket] = Answer(fact.body, fact.error)

    def go_on(self, now: float) -> Decision | GroupOutcome | None:
        """Go on as far as possible; None if the attempt has to wait."""
        if self._attempt is None or now < self.due(now):
            return None
        try:
            questions = self._attempt.send(self._all_answers()) if self._begun else next(self._attempt)
        except StopIteration as end:
            came_to: Decision | GroupOutcome = end.value
            return came_to
        self._begun = True
        self._out = dict(enumerate(questions, self._tickets + 1))
        self._tickets += len(questions)
        self._answers = {}
        self._deadline = now + max(question.timeout_s for question in questions) + _GRACE_S
        self.queries += [Query(ticket, question) for ticket, question in self._out.items()]
        return None

    def due(self, now: float) -> float:
        """Return when the attempt can go on at the latest."""
        return now if len(self._answers) == len(self._out) else self._deadline

    def end(self) -> list[Seen | Gone]:
        """End the attempt, wherever it is. Returns what was kept back."""
        if self._attempt is not None:
            self._attempt.close()
        kept_back, self._kept_back = self._kept_back, []
        self.entity = self._attempt = None
        self.queries, self._out, self._answers = [], {}, {}
        return kept_back

    def _all_answers(self) -> tuple[Answer, ...]:
        return tuple(
            self._answers.get(ticket) or Answer(error=f'Post "{shown(question.url)}": {_TOO_LATE}')
            for ticket, question in self._out.items()
        )
