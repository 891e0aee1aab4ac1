"""Predict the outcome of simple container commands: ``sleep 30``, ``false``, ``sh -c 'sleep 5; exit 3'``.

Simulated nodes run no containers, yet many commands in test clusters only wait and exit. A command is understood if every
statement in it sleeps, prints, exits or does nothing. Anything else (a variable, a pipe, a branch, another program) makes the
whole command unknown: no prediction is better than a wrong one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

__all__ = ["CommandOutcome", "outcome_of"]

_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
#: Images without an entry point, whose arguments are the command: ``kubectl run … -- sleep 30``.
_COMMANDLESS: Final = frozenset(
    ["alpine", "almalinux", "amazonlinux", "archlinux", "busybox", "centos", "debian", "fedora", "rockylinux", "ubuntu"]
)
_UNITS_S: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
#: Shell syntax that is not understood.
_MORE: Final = re.compile(r"[;&|<>()]+|.*(?:`|\$\().*", re.DOTALL)
_FOREVER_S: Final = float("inf")


class CommandOutcome(NamedTuple):
    """How long a container runs, None for unlimited, and its exit code."""

    run_s: float | None
    exit_code: int


class _Statement(NamedTuple):
    lasts_s: float
    code: int
    ends: bool = False


def outcome_of(container: Mapping[str, Any]) -> CommandOutcome | None:
    """Return the predicted outcome of a container, None if its image or command gives no prediction."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        image = str(container.get("image", "")).rpartition("/")[2].partition("@")[0].partition(":")[0]
        if image == "pause" and not words:
            return CommandOutcome(None, 0)
        if image not in _COMMANDLESS:
            return None
    return _played(_script(words[2]) if _is_script(words) else [("", words)])


def _is_script(words: Sequence[str]) -> bool:
    return len(words) >= 3 and _program(words[0]) in _SHELLS and words[1] == "-c"


def _program(path: str) -> str:
    return path.rpartition("/")[2] if path.startswith(("/bin/", "/usr/bin/")) else path


def _script(text: str) -> list[tuple[str, list[str]]]:
    """Return the statements of a script, each with the operator before it; a statement without words is not understood."""
    lexer = shlex.shlex(text.strip().replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=";&|<>()")
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return [("", [])]  # an unterminated quote
    made: list[tuple[str, list[str]]] = [("", [])]
    for word in words:
        if word == "&&" or not word.strip(";"):
            made.append((word, []))
        else:
            made[-1][1].append(word)
    return [one for one in made if one[1]] or [("", [])]


def _statement(words: Sequence[str]) -> _Statement | None:
    if not words or any(_MORE.fullmatch(word) for word in words):
        return None
    match _program(words[0]), list(words[1:]):
        case (("true" | ":" | "echo" | "printf"), _):
            return _Statement(0.0, 0)
        case "false", _:
            return _Statement(0.0, 1)
        case "exit", [] | [_] as given:
            code = given[0] if given else "0"
            return _Statement(0.0, int(code), True) if code.isdecimal() and len(code) < 4 and int(code) < 256 else None
        case "sleep", [_, *_] as spans:
            lasts_s = [_span_s(one) for one in spans]
            return _Statement(sum(one for one in lasts_s if one is not None), 0) if None not in lasts_s else None
    return None


def _span_s(text: str) -> float | None:
    if text in {"inf", "infinity"}:
        return _FOREVER_S
    found = _SPAN.fullmatch(text)
    return float(found[1]) * _UNITS_S[found[2]] if found else None


def _played(statements: Iterable[tuple[str, Sequence[str]]]) -> CommandOutcome | None:
    lasted_s, code = 0.0, 0
    for joint, words in statements:
        one = _statement(words)
        if one is None:
            return None
        if joint == "&&" and code:
            continue
        lasted_s, code = lasted_s + one.lasts_s, one.code
        if lasted_s == _FOREVER_S:
            return CommandOutcome(None, 0)
        if one.ends:
            break
    return CommandOutcome(lasted_s, code)
