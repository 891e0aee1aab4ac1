"""Everything Moorage raises on purpose, in one small tree.

    MoorageError                 something a user can act on; the program prints one line and exits 1
    ├── InputError               a file, document or object that cannot be read as what it claims to be
    ├── ConfigError              a scheduler configuration that was refused; carries every fault found
    ├── PluginError              a plugin broke its contract (score out of range, wrong type, raised)
    │   └── AttemptError         a plugin cannot judge a pod, because what it was given makes no sense
    ├── ClusterError             the API server refused a request, or could not be asked; says whether it may have been done
    ├── StateError               the caller's account of the cluster contradicts itself (a pod assumed twice)
    └── CopyError                an object that cannot be copied or pickled; a TypeError, too

"Does not fit" is never an exception: see ``moorage.framework.verdicts``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from moorage.printable import clip, one_line

__all__ = [
    "UNREACHABLE",
    "AttemptError",
    "Bare",
    "ClusterError",
    "ConfigError",
    "CopyError",
    "Fault",
    "InputError",
    "MoorageError",
    "PluginError",
    "StateError",
]


@dataclass(frozen=True, slots=True)
class Bare:
    """A value that is shown as it stands, without quotes; nothing at all where it is empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a document, and where.

    ``kind`` is one of the field-error kinds of the Kubernetes API: ``Invalid value``, ``Required value``,
    ``Duplicate value``, ``Unsupported value``, ``Forbidden``, ``Not found``, ``Too long``, ``Too many``, ``Internal error``;
    or ``Strict decoding error`` for a field that is unknown or stands twice.
    ``field`` is a path such as ``profiles[0].pluginConfig[1].args.hardPodAffinityWeight``.
    """

    kind: str
    field: str
    detail: str = ""
    value: object = None

    @property
    def body(self) -> str:
        """The fault without its place, as the Kubernetes API words it."""
        shown = "" if self.kind in _WITHOUT_VALUE or self.value == Bare("") else f": {_show(self.value)}"
        return f"{self.kind}{shown}" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return f"{self.field}: {self.body}" if self.field else self.body


_WITHOUT_VALUE = frozenset(["Required value", "Forbidden", "Strict decoding error", "Too long", "Internal error"])


def _show(value: object) -> str:
    if isinstance(value, Bare):
        return value.text
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else str(value)


class MoorageError(Exception):
    """Base of all errors that are meant for a user's eyes.

    Each argument is one line of the message. What a line quotes of names, files and answers is escaped: it cannot start
    another line or steer a terminal.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(map(one_line, lines)))


class InputError(MoorageError):
    """A file, a document or an object that cannot be read as what it claims to be.

    The message starts with the place: ``cluster.yaml:12: …`` or ``cluster.yaml: Pod default/web: spec.containers: …``.
    """


class ConfigError(MoorageError):
    """A scheduler configuration that was refused. ``faults`` holds all that was found, in document order."""

    def __init__(self, message: str, faults: Iterable[Fault] = ()) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__(message, *(f"  {fault}" for fault in self.faults))


class PluginError(MoorageError):
    """A plugin broke its contract. Ends one scheduling attempt, never the program. The message is cut at 1 KiB."""

    def __init__(self, plugin: str, message: str) -> None:
        self.plugin = plugin
        super().__init__(clip(f"plugin {plugin} {message}"))


class AttemptError(PluginError):
    """A plugin cannot judge a pod: a claim or a class it needs makes no sense.

    The text is kube-scheduler's own and goes to the API as it is, so it is escaped only where it is printed.
    """

    def __init__(self, plugin: str, text: str) -> None:
        self.plugin = plugin
        Exception.__init__(self, text)


#: The reason of errors where nobody was there to be asked.
UNREACHABLE: Final = "Unreachable"


class ClusterError(MoorageError):
    """A request that the API server refused or never answered.

    ``status`` is the HTTP status, 0 if none came; ``reason`` the API's word for it (``Conflict``, ``Expired``), "" if it gave
    none, or ``UNREACHABLE`` where not even a connection was made. ``retry_after_s`` is what the server asked for.
    ``said`` is the server's own words as they came, if it had any, without ours about the request; the message is cut at 1 KiB.
    ``sent`` is False where a write of several requests failed before the first that writes.
    """

    sent = True

    def __init__(
        self, message: str, status: int = 0, reason: str = "", retry_after_s: float | None = None, said: str = ""
    ) -> None:
        self.said = said or message
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(clip(message))

    @property
    def may_have_happened(self) -> bool:
        """True if the request may have been carried out all the same: no reply came, or one from a server in trouble."""
        return self.sent and (self.status == 0 or self.status >= 500)

    @property
    def is_expired(self) -> bool:
        """True if the version asked for is no longer kept: list anew."""
        return self.status == 410 or self.reason in {"Expired", "Gone"}


class StateError(MoorageError):
    """Facts about the cluster that contradict each other, such as one pod assumed twice."""


class CopyError(MoorageError, TypeError):
    """An object that cannot be copied or pickled, because others hold on to it. The message says what works instead."""
