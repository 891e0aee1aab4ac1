"""What changed, in order, for readers that keep something of their own and come back from time to time."""

from __future__ import annotations

__all__ = ["Journal"]


class Journal:
    """Keys of objects of one kind in the order they came, changed or went. A reader remembers a ``position``."""

    #: Entries kept; a reader that is further behind has to look at everything.
    keep = 65_536

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._dropped = 0
        self.position = 0

    def note(self, key: str) -> None:
        self._keys.append(key)
        self.position += 1
        if len(self._keys) >= 2 * self.keep:
            del self._keys[: self.keep]
            self._dropped += self.keep

    def since(self, position: int) -> list[str] | None:
        """Return the keys noted since ``position``, with repeats; None when that is no longer known."""
        return None if position < self._dropped else self._keys[position - self._dropped :]
