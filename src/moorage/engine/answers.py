"""What the API server answered to our own writes, for as long as no watch has told of it.

An answer is known before the watch tells of it, and must count at once: devices that were just given to a claim are not free.
What the watch tells meanwhile is older than the answer, and is passed over.

Source  kube-scheduler 1.36, util/assumecache/assume_cache.go; it keeps an answer for ever if no watch tells of it
"""

from __future__ import annotations

from typing import Any

from moorage.api.meta import Value, is_older
from moorage.state.cluster import object_key

__all__ = ["Answers"]


class Answers:
    """Answers by kind and key. Of versions that are no numbers nothing can be said, so that those are not kept."""

    def __init__(self) -> None:
        self._open: dict[tuple[type[Value], str], Value] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, obj: Value, known: Value | None, *, made: bool) -> bool:
        """Take an answer; False if it is old news. ``known``: how the object looks so far."""
        if known is None and not made:  # a watch has told already that it is gone
            return False
        version = _version(obj)
        if known is not None and (_version(known) == version or is_older(version, _version(known))):
            return False
        if version.isdecimal():
            self._open[_place(obj)] = obj
        return True

    def is_outdated(self, obj: Value) -> bool:
        """Say of what a watch tells whether it is older than an answer."""
        answer = self._open.get(_place(obj)) if self._open else None
        return answer is not None and is_older(_version(obj), _version(answer))

    def is_open(self, obj: Value) -> bool:
        """Say whether this very answer is still waiting for a watch to tell of it."""
        return self._open.get(_place(obj)) is obj

    def end(self, obj: Value) -> None:
        """Take note that a watch told of an object: that it looks like this, or is gone."""
        if self._open:
            self._open.pop(_place(obj), None)


def _place(obj: Value) -> tuple[type[Value], str]:
    return type(obj), object_key(obj)


def _version(obj: Any) -> str:
    version: str = obj.metadata.resource_version
    return version
