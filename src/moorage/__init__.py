"""Moorage: the Kubernetes scheduler in Python.

The library offers what the command does: ``moorage.read(paths)`` reads a cluster, ``moorage.simulate_cluster(cluster,
Options())`` places its pods, ``moorage.simulate(objects)`` takes objects as they are. ``moorage.Cluster`` answers questions
about a cluster and can change it; ``moorage.Simulation`` runs it in virtual time. Modules are imported when they are first
used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
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


def __getattr__(name: str) -> Any:
    if name not in _FOUND_IN:
        raise AttributeError(f"module 'moorage' has no attribute {name!r}")
    return getattr(importlib.import_module(_FOUND_IN[name]), name)
