"""Load a scheduler configuration and describe the result in the form of the recorded answers of kube-scheduler.

An answer is ``{name, refused, faults: [{field, detail}], profiles}``; profiles map a scheduler name to its extension points,
and those to the plugins in their order, score plugins with their weights.
"""

from __future__ import annotations

from typing import Any

from moorage.api.feature_gates import FeatureGates
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.api_versions import ApiVersion
from moorage.core.config.profiles import ResolvedProfile
from moorage.core.config.show import listed
from moorage.errors import ConfigError, MoorageError

__all__ = ["answer"]


def answer(name: str, text: str, gates: FeatureGates | None = None) -> dict[str, Any]:
    """Return the answer for one document; ``name`` is copied into it."""
    gates = gates or FeatureGates()
    config = text.encode("utf-8", "surrogatepass")
    try:
        loaded = load_source(ConfigSource(config, name, emulate=gates.release, open_gates=gates))
    except ConfigError as error:
        faults = [{"field": fault.field, "detail": fault.body} for fault in error.faults]
        return {"name": name, "refused": True, "faults": faults, "profiles": {}}
    except MoorageError as error:
        return {"name": name, "refused": True, "faults": [{"field": "", "detail": str(error)}], "profiles": {}}
    profiles = {one.scheduler_name: _points(one, loaded.version) for one in loaded.profiles}
    return {"name": name, "refused": False, "faults": [], "profiles": profiles}


def _points(profile: ResolvedProfile, version: ApiVersion) -> dict[str, list[Any]]:
    points = {point: listed(profile, point, version) for point in profile.points}
    return {
        point: [[name, profile.weights[name]] for name in names] if point == "score" else names
        for point, names in points.items()
    }
