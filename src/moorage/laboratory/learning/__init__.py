"""Learning to schedule: Gymnasium environments on the engine, and a search for plugin weights. Needs the extra ``gym``."""

from importlib.util import find_spec

from moorage.errors import InputError

if find_spec("gymnasium") is None:
    raise InputError("moorage.laboratory.learning needs Gymnasium: pip install gymnasium")

from gymnasium import register

from moorage.laboratory.learning.cross_entropy import SearchResult, cross_entropy_search
from moorage.laboratory.learning.placement import PlacementEnv
from moorage.laboratory.learning.weights import DEFAULT_PLUGINS, WeightsEnv, configuration_of_weights

__all__ = ["DEFAULT_PLUGINS", "PlacementEnv", "SearchResult", "WeightsEnv", "configuration_of_weights", "cross_entropy_search"]

# ``gymnasium.make("moorage.laboratory.learning:moorage/Placement-v0", objects=…, arrivals=…)`` imports this module first.
register("moorage/Placement-v0", "moorage.laboratory.learning:PlacementEnv")
register("moorage/Weights-v0", "moorage.laboratory.learning:WeightsEnv")
