"""The API server's answers to our own writes, until a watch reports them.

An answer takes effect at once: devices that were just allocated to a claim are not free. Until a watch reports the answer, the
versions that watches report are older than it and are ignored.

Source  kube-scheduler 1.36, util/assumecache/assume_cache.go, which keeps an answer until a watch reports it
"""

from __future__ import annotations

from typing import Any

from moorage.api.meta import Object, is_older

__all__ = ["Answers"]


class Answers:
    """Answers by kind and key. Answers whose version is not a number cannot be compared and are not kept."""

    def __init__(self) -> None:
        self._open: dict[tuple[type[Object], str], Object] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, obj: Object, known: Object | None, *, made: bool) -> bool:
        """Record an answer. Returns False if it is older than ``known``, the version in the cluster."""
        if known is None and not made:  # a watch has reported its deletion already
            return False
        version = _version(obj)
        if known is not None and (_version(known) == version or is_older(version, _version(known))):
            return False
        if version.isdecimal():
            self._open[_place(obj)] = obj
        return True

    def is_outdated(self, obj: Object) -> bool:
        """Return True if a version that a watch reports is older than an answer."""
        answer = self._open.get(_place(obj)) if self._open else None
        return answer is not None and is_older(_version(obj), _version(answer))

    def is_open(self, obj: Object) -> bool:
        """Return True while no watch has reported this answer, and no later answer has replaced it."""
        return self._open.get(_place(obj)) is obj

    def end(self, obj: Object) -> None:
        """Forget the answer for an object, because a watch reported the object or its deletion."""
        if self._open:
            self._open.pop(_place(obj), None)


def _place(obj: Object) -> tuple[type[Object], str]:
    return type(obj), obj.key


def _version(obj: Any) -> str:
    version: str = obj.metadata.resource_version
    return version
