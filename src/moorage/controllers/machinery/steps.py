"""The steps of a controller, as values; the manager executes them in order and stops at the first that fails.

The executor owns the documents in a step. A step on an existing object applies only to the object with the same UID.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["Create", "DeleteAll", "DeleteStep", "EventStep", "ExecutableStep", "Later", "SetStatus", "Step", "Update"]


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; with ``or_keep`` an existing object of that name is no error. ``owner`` gets an event about the result.

    ``event_texts``: the message of that event on success, and the prefix of its message on failure; None for the usual texts.
    ``otherwise`` returns the step to execute on failure, given the error's text.
    """

    kind: ServedKind
    document: Document
    or_keep: bool = False
    owner: tuple[ServedKind, Document] | None = None
    event_texts: tuple[str, str] | None = None
    otherwise: Callable[[str], SetStatus] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Replace an object except its status, or the part that ``subresource`` covers."""

    kind: ServedKind
    document: Document
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Replace the status of ``document``, the object in its last known state."""

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
    """Delete every object of a kind in a namespace, each with its grace period and its dependents in the background.

    Objects that are being deleted stay as they are.
    """

    kind: ServedKind
    namespace: str


@dataclass(frozen=True, slots=True)
class EventStep:
    """Record a Kubernetes event about ``document``. ``type`` is Normal or Warning."""

    kind: ServedKind
    document: Document
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Later:
    """Reconcile the same key again after ``delay_s`` seconds, even without an event."""

    delay_s: float


#: A step on one object.
ExecutableStep: TypeAlias = Create | Update | SetStatus | DeleteStep | EventStep
Step: TypeAlias = ExecutableStep | DeleteAll | Later
