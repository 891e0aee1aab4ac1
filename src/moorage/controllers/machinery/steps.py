"""What a controller may want done, as values; the manager carries them out in order and stops at the first that fails.

Documents in a step belong to whoever carries it out. A step on an object that is there means that very object, by its uid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["Create", "DeleteAll", "DeleteStep", "EventStep", "Later", "SetStatus", "Step", "Update"]


@dataclass(frozen=True, slots=True)
class Create:
    """Make an object; one of that name may be there already if ``or_keep``. ``owner`` is told of it by an Event.

    ``told`` is what that says, and how it begins where the object was refused, if not as most controllers have it.

    ``otherwise`` returns what is to be done where it is refused, given the reason in words.
    """

    kind: ServedKind
    document: Document
    or_keep: bool = False
    owner: tuple[ServedKind, Document] | None = None
    told: tuple[str, str] | None = None
    otherwise: Callable[[str], SetStatus] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Replace all of an object but its status, or what one of its other paths is for."""

    kind: ServedKind
    document: Document
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Replace the status of ``document``, which is the object as it is known."""

    kind: ServedKind
    document: Document
    status: Document


@dataclass(frozen=True, slots=True)
class DeleteStep:
    kind: ServedKind
    document: Document
    grace_s: int | None = None
    propagation: str = ""


@dataclass(frozen=True, slots=True)
class DeleteAll:
    """Delete every object of a kind in a namespace, each in its own time, and have what it owns go after it."""

    kind: ServedKind
    namespace: str


@dataclass(frozen=True, slots=True)
class EventStep:
    """Tell people, as an Event about ``document``. ``type`` is Normal or Warning."""

    kind: ServedKind
    document: Document
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Later:
    """Look at the same object again after so many seconds, whether or not anything happens to it."""

    delay_s: float


Step: TypeAlias = Create | Update | SetStatus | DeleteStep | DeleteAll | EventStep | Later
