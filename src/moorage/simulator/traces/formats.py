"""The registry of trace formats, with the files that each reads. To add one, write its module and list it here."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.api.core import Node
from moorage.basis import table_of
from moorage.basis.printable import close_to
from moorage.errors import InputError
from moorage.framework.registry import load
from moorage.simulator.cluster_reader import STRICT_RULES, read
from moorage.simulator.trace import Trace

#: Files of nodes with these endings hold Kubernetes objects, whatever the format of the trace.
_MANIFESTS: Final = (".yaml", ".yml", ".yaml.gz", ".yml.gz")


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A published form of a trace.

    ``reader``  ``module:function`` that takes the file of pods and the file of nodes, or None for it
    ``pods``    describes the file of pods, and ``nodes`` that of nodes; empty: the format has none
    """

    title: str
    reader: str
    pods: str
    nodes: str = ""
    needs_nodes: bool = False

    def read(self, pods: str, nodes: str | None) -> Trace:
        """Read the files."""
        module, _, name = self.reader.partition(":")
        function: Callable[[str, str | None], Trace] = getattr(importlib.import_module(module), name)
        return function(pods, nodes)


FORMATS: Final[Mapping[str, TraceFormat]] = {
    name: TraceFormat(**row) for name, row in table_of("moorage.simulator.traces", "formats.toml").items()
}


def is_function(format_name: str) -> bool:
    """Return whether a trace comes from a function of the user: ``module:function`` or ``file.py:function``."""
    return ":" in format_name


def read_trace(
    format_name: str, pods: str | os.PathLike[str] | None = None, nodes: str | os.PathLike[str] | None = None
) -> Trace:
    """Read a trace.

    ``format_name``  one of ``FORMATS``; or ``module:function`` or ``file.py:function``, a function that returns a ``Trace``, or
                     nodes and arrivals as ``Trace.of`` takes them. It is called with ``pods`` and ``nodes`` as far as it has
                     parameters for them
    ``nodes``        the format's own file, or manifests of nodes (YAML or a folder; JSON where it has no file)

    Raises  InputError for an unknown format, for files of another format, and for a function that returns no trace
    """
    path = None if nodes is None else os.fspath(nodes)
    if is_function(format_name):
        return _made(format_name, None if pods is None else os.fspath(pods), path)
    known = FORMATS.get(format_name)
    if known is None:
        raise InputError(
            f"{format_name}: no such format of traces{close_to(format_name, FORMATS.keys())}; the formats are"
            f" {', '.join(FORMATS)}, or module:function of your own"
        )
    if pods is None:
        raise InputError(f"{format_name}: needs the file of pods: {known.pods}")
    own = path is not None and (not known.nodes or path.lower().endswith(_MANIFESTS) or Path(path).is_dir())
    if known.needs_nodes and (path is None or own):
        where = format_name if path is None else f"{path}: {format_name}"
        raise InputError(f"{where}: needs the file of nodes: {known.nodes}")
    trace = known.read(os.fspath(pods), None if own else path)
    return trace.with_nodes(_manifests(path)) if own and path is not None else trace


def _made(reference: str, pods: str | None, nodes: str | None) -> Trace:
    """Return the trace of a user's function."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    function = load(reference, "--trace")
    if not callable(function):
        raise InputError(f"{reference}: expected a function that returns a trace")
    try:
        taken = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.KEYWORD_ONLY]
    except (TypeError, ValueError):
        taken = []
    found = function(*(pods, nodes)[: len(taken)])
    if isinstance(found, Trace):
        trace = found
    elif isinstance(found, tuple) and len(found) == 2:
        trace = Trace.of(*found)
    else:
        raise InputError(f"{reference}: expected a Trace, or a pair of nodes and arrivals; found {type(found).__name__}")
    return trace if trace.nodes or nodes is None else trace.with_nodes(_manifests(nodes))


def _manifests(path: str) -> tuple[Node, ...]:
    nodes = read([path], rules=STRICT_RULES).nodes
    if not nodes:
        raise InputError(f"{path}: no node in these manifests")
    return nodes
