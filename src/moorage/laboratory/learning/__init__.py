"""Learning to schedule: Gymnasium environments on the engine, and a search for plugin weights. Needs the extra ``gym``."""

from moorage.laboratory.learning.placement import require_gymnasium

require_gymnasium()

from moorage.laboratory.learning.placement import PlacementEnv  # noqa: E402
from moorage.laboratory.learning.weights import (  # noqa: E402  # noqa: E402
    DEFAULT_PLUGINS,
    SearchResult,
    WeightsEnv,
    configuration_of_weights,
    cross_entropy_search,
)

__all__ = ["DEFAULT_PLUGINS", "PlacementEnv", "SearchResult", "WeightsEnv", "configuration_of_weights", "cross_entropy_search"]
