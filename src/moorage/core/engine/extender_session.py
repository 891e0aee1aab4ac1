"""The attempt that waits for extenders: which questions are out, which answers have arrived, and the deadline.

There is one at a time, because the next pod must see where this one went. It decides on the cluster as it was at its start:
object events are held back until it ends.
"""

from __future__ import annotations

from typing import Final

from moorage.core.engine.attempt import SchedulingAttempt
from moorage.core.engine.facts import Answered, Gone, Query, Seen
from moorage.core.engine.outbox import Outbox
from moorage.core.extenders.consultation import Asking, ExtenderAnswer
from moorage.core.extenders.wire import shown
from moorage.framework.effects import Question

#: Seconds beyond an extender's own timeout after which the engine stops waiting: the driver failed to bring the answer.
_GRACE_S: Final = 1.0
#: Go's text for a client timeout.
_TIMED_OUT: Final = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


class ExtenderSession:
    """Runs one attempt that may ask extenders. ``attempt`` is None while none is running."""

    def __init__(self, outbox: Outbox) -> None:
        self.attempt: SchedulingAttempt | None = None
        self._outbox = outbox
        self._running: Asking[None] | None = None
        self._started = False
        self._tickets = 0
        self._deadline = 0.0
        self._open: dict[int, Question] = {}
        self._answers: dict[int, ExtenderAnswer] = {}
        self._held_back: list[Seen | Gone] = []

    def begin(self, attempt: SchedulingAttempt) -> None:
        """Start an attempt. ``resume`` runs it."""
        self.attempt, self._running, self._started = attempt, attempt.run(), False

    def take(self, fact: Seen | Gone | Answered) -> None:
        """Record an answer, or hold back an object event."""
        if not isinstance(fact, Answered):
            self._held_back.append(fact)
        elif fact.ticket in self._open:
            self._answers[fact.ticket] = ExtenderAnswer(fact.body, fact.error)

    def resume(self, now: float) -> bool:
        """Run the attempt until it ends or asks again. Returns True if it ended.

        Raises  any exception of the attempt
        """
        if self._running is None or now < self.due(now):
            return False
        try:
            questions = self._running.send(self._all_answers()) if self._started else next(self._running)
        except StopIteration:
            return True
        self._started = True
        self._open = dict(enumerate(questions, self._tickets + 1))
        self._tickets += len(questions)
        self._answers = {}
        self._deadline = now + max(question.timeout_s for question in questions) + _GRACE_S
        for ticket, question in self._open.items():
            self._outbox.put(Query(ticket, question))
        return False

    def due(self, now: float) -> float:
        """Return when the attempt continues, in engine seconds: now if all answers are in, else the deadline."""
        return now if len(self._answers) == len(self._open) else self._deadline

    def end(self) -> list[Seen | Gone]:
        """End the attempt, whether it is finished or not. Returns the events that were held back."""
        if self._running is not None:
            self._running.close()
            self._outbox.retract(lambda output: isinstance(output, Query))
        held_back, self._held_back = self._held_back, []
        self.attempt = self._running = None
        self._open, self._answers = {}, {}
        return held_back

    def _all_answers(self) -> tuple[ExtenderAnswer, ...]:
        return tuple(
            self._answers.get(ticket) or ExtenderAnswer(error=f'Post "{shown(question.url)}": {_TIMED_OUT}')
            for ticket, question in self._open.items()
        )
