"""Pages about the process: its flags (/flagz), its status (/statusz), and the stacks of its tasks.

The text form follows Kubernetes' own; JSON and YAML are ``config.k8s.io`` objects, for clients that request one by name in
``Accept``.

Source  apiserver/pkg/server/flagz and statusz
"""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["ProgramInfo", "accepted", "flags_document", "flags_text", "stacks", "status_document", "status_text"]

_NAME: Final = "kube-scheduler"
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for "
    "debugging purposes only."
)
_TEXT: Final = ("text/plain", "")
_OBJECTS: Final = frozenset(["application/json", "application/yaml"])
_VERSIONS: Final = frozenset(["v1beta1", "v1alpha1"])


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """Facts about this process: its version, the emulated release, its start time, and the paths that it serves."""

    version: str
    release: str
    python: str
    started: datetime
    paths: Sequence[str]


def accepted(accept: str, kind: str) -> tuple[str, str] | None:
    """Return the media type and object version to respond with, "" for text; None if nothing acceptable is available."""
    if not accept.strip():
        return _TEXT
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        given = dict(piece.partition("=")[::2] for piece in parameters)
        if media in _OBJECTS and given.get("as") == kind and given.get("g") == "config.k8s.io":
            return (media, given["v"]) if given.get("v") in _VERSIONS else None
        if media in {"text/plain", "text/*", "*/*"}:
            return _TEXT
    return None


def _head(page: str) -> str:
    return f"\n{_NAME} {page}\n{_WARNING}\n"


def flags_text(flags: Mapping[str, str]) -> str:
    """Return the flags as text."""
    return _head("flagz") + "".join(f"{name}={flags[name]}\n" for name in sorted(flags))


def flags_document(flags: Mapping[str, str], version: str) -> dict[str, Any]:
    """Return the flags as an object."""
    return {**_typed("Flagz", version), "flags": dict(sorted(flags.items()))}


def status_text(program: ProgramInfo, now: datetime) -> str:
    """Return the status of the program as text."""
    up = _uptime(program, now)
    lines = [
        f"Started:  {program.started.astimezone(UTC):%a %b %e %H:%M:%S UTC %Y}",
        f"Up:  {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec",
        f"Python version:  {program.python}",
        f"Binary version:  {program.version}",
        f"Emulation version:  {program.release}",
        f"Paths:  {' '.join(program.paths)}",
    ]
    return _head("statusz") + "\n" + "\n".join(lines) + "\n"


def status_document(program: ProgramInfo, now: datetime, version: str) -> dict[str, Any]:
    """Return the status of the program as an object."""
    return {
        **_typed("Statusz", version),
        "startTime": program.started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "uptimeSeconds": _uptime(program, now),
        "goVersion": f"python{program.python}",
        "binaryVersion": program.version,
        "emulationVersion": program.release,
        "paths": list(program.paths),
    }


def _uptime(program: ProgramInfo, now: datetime) -> int:
    return max(0, int((now - program.started).total_seconds()))


def _typed(kind: str, version: str) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": f"config.k8s.io/{version}", "metadata": {"name": _NAME}}


def stacks() -> str:
    """Return the stacks of every task of the running loop and of every other thread."""
    out = io.StringIO()
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    out.write(f"{len(tasks)} tasks\n")
    for task in tasks:
        out.write(f"\ntask {task.get_name()}\n")
        for frame in task.get_stack(limit=20):
            out.write(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}\n")
    frames = sys._current_frames()
    own = threading.get_ident()
    for thread in threading.enumerate():
        standing = frames.get(thread.ident or 0)
        if thread.ident != own and standing is not None:
            out.write(f"\nthread {thread.name}\n{''.join(traceback.format_stack(standing))}")
    return out.getvalue()
