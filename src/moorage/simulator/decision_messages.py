"""Messages of decisions: those of copies of a pod, which fail alike, are made once."""

from __future__ import annotations

from moorage.core.cycle.decision import Decision


class Messages:
    """Returns the message of a decision, and remembers the last one that was made from verdicts."""

    def __init__(self) -> None:
        self._last: Decision | None = None
        self._text = ""

    def of(self, decision: Decision) -> str:
        """Return ``decision.message``."""
        if decision.verdicts is None or decision.node is not None:
            return decision.message
        if self._last is None or not _fails_like(decision, self._last):
            text = decision.message
            self._last, self._text = decision, self._text if text == self._text else text
        return self._text


def _fails_like(one: Decision, other: Decision) -> bool:
    """Return whether everything that the message of a decision is made from is the same."""
    return (
        one.verdicts is other.verdicts
        and one.post_filter is other.post_filter
        and one.error is other.error
        and one.group is other.group
        and one.refused_after is other.refused_after
        and one.among == other.among
        and one.release is other.release
    )
