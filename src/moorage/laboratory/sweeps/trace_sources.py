"""Traces as an axis of a grid: the files, and the steps that change the trace before each run.

    traces:
      busy: {format: openb, pods: pods.csv, nodes: nodes.csv, shuffle: true, scaleTo: {gpu: 1.3}, lifetimes: 3600}

Random steps use the seed of the run.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from moorage.errors import InputError, MoorageError
from moorage.framework.registry import load
from moorage.laboratory.sweeps.grid_document import GridField
from moorage.simulator.trace import Trace
from moorage.simulator.traces.formats import FORMATS, is_function, read_trace
from moorage.simulator.traces.streams import open_bytes

_FIELDS: Final = (
    "format",
    "pods",
    "nodes",
    "between",
    "head",
    "shuffle",
    "scaleTo",
    "inflate",
    "lifetimes",
    "stay",
    "podsApart",
)
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class TraceSource:
    """A trace in files, and the steps to apply, in order. ``content`` is the digest of the files."""

    digest: str
    content: str
    format_name: str
    pods: str | None = None
    nodes: str | None = None
    between: tuple[float, float] | None = None
    head: int | None = None
    shuffle: bool = False
    scale: tuple[str, float] | None = None
    inflate: float | None = None
    lifetimes: float | None = None
    stay: bool = False
    pods_apart: bool = False

    @property
    def files(self) -> tuple[str, str, str | None, str | None]:
        """The files to read."""
        return self.content, self.format_name, self.pods, self.nodes

    def trace(self, seed: int) -> Trace:
        """Return the trace for a run, after the steps.

        Raises  InputError, also if a file has changed
        """
        found = _read(self.files)
        if self.pods_apart:
            found = found.with_pods_apart()
        if self.between is not None:
            found = found.between(*self.between)
        if self.head is not None:
            found = found.head(self.head)
        if self.shuffle:
            found = found.shuffle(seed)
        if self.inflate is not None:
            found = found.inflate(self.inflate, seed)
        if self.scale is not None:
            found = found.scale_to(**{self.scale[0]: self.scale[1]}, seed=seed)
        if self.lifetimes is not None:
            found = found.with_lifetimes(self.lifetimes, seed=seed)
        return found.with_lifetimes(None) if self.stay else found


@lru_cache(maxsize=2)
def _read(files: tuple[str, str, str | None, str | None]) -> Trace:
    content, name, pods, nodes = files
    if _content(name, pods, nodes) != content:
        raise InputError(f"{pods or name}: the content has changed since the sweep began")
    return read_trace(name, pods, nodes)


def _content(name: str, pods: str | None, nodes: str | None) -> str:
    """Return the digest of a trace: of its files and, where a function makes it, of the function's module."""
    files = [path for path in (pods, nodes) if path is not None]
    if is_function(name):
        source = inspect.getsourcefile(load(name, "format"))
        files += [source] if source else []
    return _digest(files)


def _digest(paths: list[str]) -> str:
    hasher = blake2b(digest_size=16)
    for path in paths:
        if os.path.isdir(path):
            inside = [os.path.join(path, name) for name in sorted(os.listdir(path))]
            hasher.update(_digest([one for one in inside if os.path.isfile(one)]).encode())
            continue
        with open_bytes(path) as file:
            while part := file.read(_CHUNK):
                hasher.update(part)
        hasher.update(b"\0end")
    return hasher.hexdigest()


def read_trace_source(given: GridField, path: Callable[[str], str]) -> TraceSource:
    """Read a trace of a grid. ``path`` makes paths absolute.

    Raises  InputError
    """
    if isinstance(given.value, Trace):
        raise given.fault("a trace of a program has no digest; give its files, or run it in a function of your own")
    fields = {name: one for name, one in given.fields(_FIELDS).items() if one.value is not None}
    name = fields["format"].text() if "format" in fields else ""
    if not name or ("pods" not in fields and not is_function(name)):
        raise given.fault(f"expected format ({', '.join(FORMATS)}, or file.py:function) and pods, a file")
    if name not in FORMATS and not is_function(name):
        raise fields["format"].fault(f"no such format; the formats are {', '.join(FORMATS)}, or file.py:function")
    file, _, function = name.rpartition(":")
    name = f"{path(file)}:{function}" if file.endswith(".py") else name
    pods, nodes = (path(fields[one].text()) if one in fields else None for one in ("pods", "nodes"))
    try:
        content = _content(name, pods, nodes)
    except MoorageError as error:
        raise given.fault(str(error)) from None
    steps = _steps(fields)
    steps_digest = blake2b(repr((name, sorted(steps.items()))).encode(), digest_size=8).hexdigest()
    return TraceSource(f"{content}{steps_digest}", content, name, pods, nodes, **steps)


def _steps(fields: dict[str, GridField]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in fields.items():
        if name in {"shuffle", "stay", "podsApart"}:
            found["pods_apart" if name == "podsApart" else name] = one.flag()
        elif name in {"inflate", "lifetimes"}:
            found[name] = _number(one)
        elif name == "head":
            if not isinstance(one.value, int) or isinstance(one.value, bool) or one.value < 1:
                raise one.fault("expected a number of pods")
            found[name] = one.value
        elif name == "between":
            ends = [_number(end) for end in one.items()]
            if len(ends) != 2 or ends[0] >= ends[1]:
                raise one.fault("expected two times in seconds, the earlier first")
            found[name] = (ends[0], ends[1])
        elif name == "scaleTo":
            parts = one.fields(("cpu", "memory", "gpu"))
            if len(parts) != 1:
                raise one.fault("expected one of cpu, memory, gpu")
            [(resource, share)] = parts.items()
            found["scale"] = (resource, _number(share))
    return found


def _number(given: GridField) -> float:
    value = given.value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise given.fault("expected a number of at least 0")
    return float(value)
