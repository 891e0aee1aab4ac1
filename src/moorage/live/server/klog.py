"""The log in the format of Kubernetes' programs: klog's text lines, or one JSON object per line.

    I1121 03:04:05.000006    4711 following.py:52] "Attempting to schedule pod" pod="default/web-0"
    {"ts":1763694245000.006,"caller":"runtime/attempt_metrics.py:52","msg":"Attempting to schedule pod","v":3,"pod":{…}}

``-v`` sets the verbosity and ``--vmodule`` that of single files. Plugins that use Python's ``logging`` write to the same log
(``adopt_other_loggers``). Control characters and line breaks in values are escaped. An error is cut at 1 KiB, except faults in
a configuration, and a warning at 2 KiB.

Source  klog/v2, internal/buffer/buffer.go and internal/serialize/keyvalues.go; component-base/logs/json/json.go
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePath
from types import FrameType
from typing import Any, Final, TextIO

from moorage.basis.printable import MOST_BYTES, clip, escape_json, is_printable, some_lines
from moorage.errors import ConfigError, InputError
from moorage.live.runtime.attempt_metrics import Log, Ref

FORMATS: Final = ("json", "text")
_MOST_LEVEL: Final = 2**31 - 1
#: Maximum length of a warning, which may quote one text of a server or plugin, in bytes.
_SENTENCE: Final = 2 * MOST_BYTES
#: Limits of a traceback that a plugin logs: frames of each exception, and lines in total.
_FRAMES: Final = 16
_LINES: Final = 64


class Klog(Log):
    """Writes line by line, unbuffered; lines that cannot be written are lost. ``splits``: only errors go to standard error, all
    other lines to standard output.
    """

    def __init__(
        self, *, verbosity: int = 0, style: str = "text", vmodule: str = "", stream: TextIO | None = None,
        now: Callable[[], float] = time.time, splits: bool = False,
    ) -> None:  # fmt: skip
        if style not in FORMATS:
            raise InputError(f'format: Invalid value: "{style}": Unsupported log format')
        if vmodule and style != "text":
            raise InputError("vmodule: Forbidden: Only supported for text log format")
        self._style, self._stream, self._now, self._splits = style, stream, now, splits
        self._patterns = read_vmodule(vmodule)
        self.verbosity = verbosity
        self._pid = f"{os.getpid():>7}"
        #: The last written second and its text, as there are many lines per second.
        self._second = (-1, "")

    @property
    def verbosity(self) -> int:
        return self._verbosity

    @verbosity.setter
    def verbosity(self, level: int) -> None:
        if not 0 <= level <= _MOST_LEVEL:
            raise InputError(f"-v: {level} is not a log level; use 0-{_MOST_LEVEL}")
        self._verbosity = level
        self._loudest = max([level, *(one for _, one in self._patterns)])

    # -- logging - ------------------------------------------------------------------------------------------------------

    def shows(self, level: int) -> bool:
        return level <= self._loudest

    def info(self, level: int, message: str, **facts: object) -> None:
        if level > self._loudest:
            return
        caller = sys._getframe(1)
        if level <= self._verbosity or level <= self._level_for(caller):
            self._write("I", message, facts, caller, level)

    def warning(self, message: str, **facts: object) -> None:
        self._write("W", _cut(message, _SENTENCE), facts, sys._getframe(1), 0, plain=not facts)

    def error(self, error: object, message: str, **facts: object) -> None:
        said = {} if error is None else {"err": error}
        self._write("E", message, {**said, **facts}, sys._getframe(1), None)

    def line(self, level: int, text: str) -> None:
        """Log a sentence without key-value pairs, which klog writes unquoted."""
        if level <= self._verbosity:
            self._write("I", text, {}, sys._getframe(1), level, plain=True)

    # -- writing - ------------------------------------------------------------------------------------------------------

    def _level_for(self, caller: FrameType) -> int:
        name = _name(caller.f_code.co_filename).removesuffix(".py")
        return next((level for pattern, level in self._patterns if fnmatchcase(name, pattern)), -1)

    def _write(
        self, kind: str, message: str, facts: Mapping[str, object], caller: FrameType, level: int | None, *, plain: bool = False
    ) -> None:
        if "err" in facts:
            facts = {**facts, "err": _bounded(facts["err"])}
        self.put(kind, message, facts, caller.f_code.co_filename, caller.f_lineno, level, plain=plain)

    def put(
        self, kind: str, message: str, facts: Mapping[str, object], path: str, number: int, level: int | None, *,
        plain: bool = False,
    ) -> None:  # fmt: skip
        """Write a line with a severity (I, W or E) and a source position. ``plain``: unquoted, if it is a single line."""
        now = self._now()
        if self._style == "json":
            text = _as_json(now, message, facts, path, number, level)
        else:
            head = f"{kind}{self._moment(now)} {self._pid} {_name(path)}:{number}]"
            said = message if plain and is_printable(message) else _quoted(message)
            text = f"{head} {said}{_as_text(facts)}"
        stream = self._stream or (sys.stdout if self._splits and kind != "E" else sys.stderr)
        try:
            stream.write(text + "\n")
            stream.flush()
        except (OSError, ValueError):
            return  # the log is closed, and there is no other place to report that

    def _moment(self, now: float) -> str:
        second = int(now)
        if second != self._second[0]:
            self._second = (second, time.strftime("%m%d %H:%M:%S", time.localtime(second)))
        return f"{self._second[1]}.{int((now - second) * 1e6):06d}"


@cache
def _name(path: str) -> str:
    """Return the last part of a path; cached, because a few files write many lines."""
    return PurePath(path).name


def read_vmodule(text: str) -> tuple[tuple[str, int], ...]:
    """Parse ``file=N,other*=M``: patterns of file names without ``.py``, with their levels.

    Raises  InputError
    """
    found: list[tuple[str, int]] = []
    for part in filter(None, text.split(",")):
        pattern, _, level = part.partition("=")
        if not pattern or not level.isdecimal():
            raise InputError(
                f'invalid argument "{text}" for "--vmodule" flag: syntax error: expect comma-separated list of filename=N'
            )
        found.append((pattern, int(level)))
    return tuple(found)


# -- klog's text --------------------------------------------------------------------------------------------------------


def _as_text(facts: Mapping[str, object]) -> str:
    return "".join(f" {name}={_shown(value)}" for name, value in facts.items())


def _shown(value: object) -> str:
    if isinstance(value, (Ref, str, Exception)):
        text = str(value)
        if "\n" not in text:
            return _quoted(text)
        lines = "\n".join(f"\t{line}" for line in some_lines(text).removesuffix("\n").split("\n"))
        return f"<\n{lines}\n >"
    return escape_json(json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")))


def _quoted(text: str) -> str:
    """Quote as Go does: printable characters stay as they are."""
    if is_printable(text) and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(c) or (c if is_printable(c) else _escaped(c)) for c in text) + '"'


_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v",
}  # fmt: skip


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# -- JSON ---------------------------------------------------------------------------------------------------------------


def _as_json(now: float, message: str, facts: Mapping[str, object], path: str, number: int, level: int | None) -> str:
    folder = path.rpartition("/")[0].rpartition("/")[2]
    line: dict[str, Any] = {"ts": round(now * 1000, 4), "caller": f"{folder}/{_name(path)}:{number}"}
    line["msg"] = message
    if level is not None:
        line["v"] = level
    line.update({name: _plain(value) for name, value in facts.items()})
    return escape_json(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def _bounded(error: object) -> str:
    """Return an error's text: cut for errors of a server or a plugin, complete for faults in a configuration."""
    text = str(error)
    return text if isinstance(error, (ConfigError, InputError)) else _cut(text)


def _cut(text: str, most: int = MOST_BYTES) -> str:
    """Return a text cut so that it takes at most ``most`` bytes when quoted, escapes of unprintable characters included."""
    shown, limit = text, most
    while len(shown) > most or len(_quoted(shown).encode("utf-8", "replace")) > most + len('""'):
        shown, limit = clip(text, limit), limit * 3 // 4
    return shown


def _plain(value: object) -> object:
    if isinstance(value, Ref):
        named = {"name": value.name}
        return {**named, "namespace": value.namespace} if value.namespace else named
    if isinstance(value, (list, tuple, set, frozenset)):
        values = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [_plain(one) for one in values]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# -- Python's own logging -----------------------------------------------------------------------------------------------


class _Relay(logging.Handler):
    def __init__(self, log: Klog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception as error:  # a plugin's format and arguments may not fit together
            message = f"{record.msg!r} could not be formatted: {error}"
        message = _cut(message)
        facts: dict[str, object] = {"logger": clip(record.name)}
        if record.exc_info and record.exc_info[1] is not None:
            facts["err"] = _traceback(record.exc_info[1])
        kind = "E" if record.levelno >= logging.ERROR else "W" if record.levelno >= logging.WARNING else "I"
        self._log.put(kind, message, facts, record.pathname, record.lineno, None if kind == "E" else 0)


def _traceback(error: BaseException) -> str:
    """Return the end of a traceback within the limits: enough lines to find the place."""
    lines = "".join(traceback.format_exception(error, limit=-_FRAMES)).rstrip("\n").split("\n")
    return "\n".join(clip(line) for line in lines[-_LINES:])


def adopt_other_loggers(log: Klog) -> logging.Handler:
    """Send the records of Python's ``logging`` to ``log``: warnings always, info from ``-v=4``, debug from ``-v=6``."""
    relay = _Relay(log)
    root = logging.getLogger()
    root.addHandler(relay)
    root.setLevel(logging.DEBUG if log.shows(6) else logging.INFO if log.shows(4) else logging.WARNING)
    return relay
