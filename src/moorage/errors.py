"""All errors that Moorage raises deliberately, in one small tree.

    MoorageError                 something a user can act on; the program prints one line and exits 1
    ├── InputError               an unreadable or invalid file, document or object
    ├── ConfigError              a rejected scheduler configuration; carries every fault
    ├── PluginError              a plugin broke its contract (score out of range, wrong type, raised)
    │   └── AttemptError         a plugin cannot evaluate a pod, because an object it needs is invalid
    ├── ClusterError             the API server rejected a request or did not respond; says whether it may have been executed
    ├── LoopError                a simulation that goes on without time passing
    ├── StateError               the caller reports contradictory facts (a pod assumed twice)
    └── CopyError                an object that cannot be copied or pickled; also a TypeError

"Does not fit" is never an exception: see ``moorage.framework.verdicts``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moorage.basis.printable import clip, one_line

__all__ = [
    "RAISED",
    "UNREACHABLE",
    "AttemptError",
    "Bare",
    "ClusterError",
    "ConfigError",
    "CopyError",
    "Fault",
    "InputError",
    "LoopError",
    "MoorageError",
    "PluginError",
    "StateError",
]


#: What the code of a plugin raises that ends its attempt and not the program: ``sys.exit`` in a plugin ends nothing else.
RAISED: Final = (Exception, SystemExit)


@dataclass(frozen=True, slots=True)
class Bare:
    """A value that is printed without quotes, and not at all if it is empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a document: its kind, the field, the value and the reason.

    ``kind`` is one of the field-error kinds of the Kubernetes API: ``Invalid value``, ``Required value``,
    ``Duplicate value``, ``Unsupported value``, ``Forbidden``, ``Not found``, ``Too long``, ``Too many``, ``Internal error``;
    or ``Strict decoding error`` for an unknown or duplicate field.
    ``field`` is a path such as ``profiles[0].pluginConfig[1].args.hardPodAffinityWeight``.
    """

    kind: str
    field: str
    detail: str = ""
    value: object = None

    @property
    def body(self) -> str:
        """The fault without its field, in the words of the Kubernetes API."""
        shown = "" if self.kind in _WITHOUT_VALUE or self.value == Bare("") else f": {_show(self.value)}"
        return f"{self.kind}{shown}" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return f"{self.field}: {self.body}" if self.field else self.body


#: Of a longer text a message shows so many characters.
_MOST_SHOWN = 10_000
_WITHOUT_VALUE = frozenset(["Required value", "Forbidden", "Strict decoding error", "Too long", "Internal error"])


def _show(value: object) -> str:
    if isinstance(value, Bare):
        return value.text
    if isinstance(value, str) and len(value) > _MOST_SHOWN:
        value = f"{value[:_MOST_SHOWN]}…"
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return text if isinstance(value, str) else text.translate(_HTML)


#: Characters that Go escapes in the JSON of structs, lists and maps.
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def _plain(value: object) -> object:
    import msgspec  # a tenth of the time to start; only faults of structs need it

    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else str(value)


class MoorageError(Exception):
    """Base of all errors that are shown to users.

    Each argument is one line of the message. Names, files and responses quoted in a line are escaped, so that they cannot
    contain line breaks or terminal control sequences.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(map(one_line, lines)))


class InputError(MoorageError):
    """An unreadable or invalid file, document or object.

    The message starts with the place: ``cluster.yaml:12: …`` or ``cluster.yaml: Pod default/web: spec.containers: …``.
    """


class ConfigError(MoorageError):
    """A rejected scheduler configuration. ``faults`` holds all faults, in document order."""

    def __init__(self, message: str, faults: Iterable[Fault] = ()) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__(message, *(f"  {fault}" for fault in self.faults))


class PluginError(MoorageError):
    """A plugin violated its contract. Ends one scheduling attempt, never the program. The message is cut at 1 KiB."""

    def __init__(self, plugin: str, message: str) -> None:
        self.plugin = plugin
        super().__init__(clip(f"plugin {plugin} {message}"))


class AttemptError(PluginError):
    """A plugin cannot evaluate a pod: a claim or a class that it needs is invalid.

    The text is kube-scheduler's own. It is sent to the API unescaped, and escaped only when it is printed.
    """

    def __init__(self, plugin: str, text: str) -> None:
        self.plugin = plugin
        Exception.__init__(self, text)


class LoopError(MoorageError):
    """A simulation goes on without time passing: plugins, or events, make each other act again and again in one instant."""


#: The ``reason`` of a ClusterError if no connection to the server was made.
UNREACHABLE: Final = "Unreachable"


class ClusterError(MoorageError):
    """A request that the API server rejected or did not respond to.

    ``status`` is the HTTP status, 0 without a response; ``reason`` the API's reason (``Conflict``, ``Expired``), "" without
    one, or ``UNREACHABLE`` where no connection was made. ``retry_after_s`` is the server's Retry-After. ``said`` is the
    server's own message without our text about the request; the message is cut at 1 KiB. ``sent`` is False if a write of
    several requests failed before the first one that writes.
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
        """True if the request may have been executed: there was no response, or a server error."""
        return self.sent and (self.status == 0 or self.status >= 500)

    @property
    def passes(self) -> bool:
        """True for errors that kube-scheduler expects to pass: a conflict, an internal error, an unavailable server.

        Source  kube-scheduler, util/utils.go, Retriable
        """
        return self.status in {409, 503} or self.reason in {"InternalError", UNREACHABLE}

    @property
    def is_expired(self) -> bool:
        """True if the requested version is no longer available: list again."""
        return self.status == 410 or self.reason in {"Expired", "Gone"}


class StateError(MoorageError):
    """Contradictory facts about the cluster, such as a pod that is assumed twice."""


class CopyError(MoorageError, TypeError):
    """An object that cannot be copied or pickled because it shares state with others. The message says what to use instead."""
