"""Moorage: the Kubernetes scheduler in Python.

The library offers what the command does: ``moorage.read(paths)`` reads a cluster, ``moorage.simulate_cluster(cluster,
Options())`` places its pods, ``moorage.simulate(objects)`` takes objects as they are. ``moorage.Cluster`` answers questions
about a cluster and can change it; ``moorage.Simulation`` runs it in virtual time. Modules are imported when they are first
used. Packages also have a short import path: ``moorage.dynamics`` is ``moorage.laboratory.dynamics``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.laboratory.cluster import Cluster
    from moorage.laboratory.comparison import compare
    from moorage.laboratory.dynamics.simulation import Simulation
    from moorage.laboratory.plan.node_types import NodeType
    from moorage.laboratory.redact.redaction import redact
    from moorage.laboratory.sweeps.sweep import sweep
    from moorage.simulator.cluster_reader import read
    from moorage.simulator.cluster_run import simulate_cluster
    from moorage.simulator.simulate import Options, kinds_named, simulate
    from moorage.simulator.traces.formats import read_trace

__version__ = "0.2.0"
__all__ = [
    "Cluster", "NodeType", "Options", "Simulation", "__version__",
    "compare", "kinds_named", "read", "read_trace", "redact", "simulate", "simulate_cluster", "sweep",
]  # fmt: skip

_FOUND_IN: Mapping[str, str] = {
    "Cluster": "moorage.laboratory.cluster",
    "NodeType": "moorage.laboratory.plan.node_types",
    "Options": "moorage.simulator.simulate",
    "Simulation": "moorage.laboratory.dynamics.simulation",
    "compare": "moorage.laboratory.comparison",
    "kinds_named": "moorage.simulator.simulate",
    "read": "moorage.simulator.cluster_reader",
    "read_trace": "moorage.simulator.traces.formats",
    "redact": "moorage.laboratory.redact.redaction",
    "simulate": "moorage.simulator.simulate",
    "simulate_cluster": "moorage.simulator.cluster_run",
    "sweep": "moorage.laboratory.sweeps.sweep",
}

#: Short import path, below ``moorage`` → package.
_STANDS_IN: Mapping[str, str] = {
    "apiserver": "moorage.cluster.apiserver",
    "autoscalers": "moorage.simulator.autoscalers",
    "cel": "moorage.api.cel",
    "cli": "moorage.interfaces.cli",
    "client": "moorage.basis.client",
    "config": "moorage.core.config",
    "controllers": "moorage.cluster.controllers",
    "cycle": "moorage.core.cycle",
    "dynamics": "moorage.laboratory.dynamics",
    "engine": "moorage.core.engine",
    "framework.features": "moorage.api.feature_gates",
    "gpu_sharing": "moorage.plugins.gpu_sharing",
    "inputs": "moorage.basis.inputs",
    "kueue": "moorage.simulator.kueue",
    "learning": "moorage.laboratory.learning",
    "plots": "moorage.interfaces.plots",
    "plugins.scoring_strategies": "moorage.plugins.resources.scoring_strategies",
    "printable": "moorage.basis.printable",
    "queue": "moorage.core.queue",
    "releases": "moorage.api.releases",
    "runtime": "moorage.live.runtime",
    "server": "moorage.live.server",
    "sweeps": "moorage.laboratory.sweeps",
    "traces": "moorage.simulator.traces",
    "web": "moorage.interfaces.web",
}


def __getattr__(name: str) -> Any:
    if name not in _FOUND_IN:
        raise AttributeError(f"module 'moorage' has no attribute {name!r}")
    return getattr(importlib.import_module(_FOUND_IN[name]), name)


class _ShortPaths:
    """Find a module by a short path, and give the package's own, so that classes compare and patches hold."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        first, _, rest = name.partition(".")
        package, _, inner = (rest, "", "") if rest in _STANDS_IN else rest.partition(".")
        if first != "moorage" or package not in _STANDS_IN:
            return None
        return ModuleSpec(name, self, origin=f"{_STANDS_IN[package]}.{inner}".rstrip("."))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Loading has given the module the spec of the short path; it keeps its own.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


if not any(type(finder).__name__ == _ShortPaths.__name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _ShortPaths())  # before the finder of files, which would load a second copy
