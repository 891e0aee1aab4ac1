"""Load a scheduler configuration and describe the result in the form of the recorded answers of kube-scheduler.

An answer is ``{name, refused, faults: [{field, detail}], profiles}``; profiles map a scheduler name to its extension points,
and those to the plugins in their order, score plugins with their weights.
"""

from __future__ import annotations

from typing import Any

from moorage.config.api_versions import v1_of
from moorage.config.loader import load
from moorage.config.profiles import ResolvedProfile, resolve
from moorage.errors import ConfigError, MoorageError
from moorage.framework.features import FeatureGates
from moorage.plugins import builtin_registry

__all__ = ["answer"]


def answer(name: str, text: str, gates: FeatureGates | None = None) -> dict[str, Any]:
    """Return the answer for one document; ``name`` is copied into it."""
    gates = gates or FeatureGates()
    registry, version = builtin_registry(gates.release), v1_of(gates.emulated)
    try:
        profiles = resolve(load(text.encode("utf-8", "surrogatepass"), name, registry, gates), registry, gates, version)
    except ConfigError as error:
        faults = [{"field": fault.field, "detail": fault.body} for fault in error.faults]
        return {"name": name, "refused": True, "faults": faults, "profiles": {}}
    except MoorageError as error:
        return {"name": name, "refused": True, "faults": [{"field": "", "detail": str(error)}], "profiles": {}}
    return {"name": name, "refused": False, "faults": [], "profiles": {one.scheduler_name: _points(one) for one in profiles}}


def _points(profile: ResolvedProfile) -> dict[str, list[Any]]:
    return {
        point: [[name, profile.weights[name]] for name in names] if point == "score" else list(names)
        for point, names in profile.points.items()
    }
