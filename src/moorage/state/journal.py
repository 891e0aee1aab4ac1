"""The journal: keys of changed objects, in order, for readers that update a cache from it."""

from __future__ import annotations


class Journal:
    """Keys of objects of one kind in the order they were added, updated or deleted. A reader keeps a ``position``."""

    #: The least number of entries that are kept; a reader that is further behind must read all objects.
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
        """Return the keys noted since ``position``, with repeats; None if some of them have been dropped."""
        return None if position < self._dropped else self._keys[position - self._dropped :]
