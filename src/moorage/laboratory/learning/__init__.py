"""Learning to schedule: Gymnasium environments on the engine, and a search for plugin weights. Needs the extra ``gym``."""

from moorage.laboratory.learning.observations import require_gymnasium

require_gymnasium()

from moorage.laboratory.learning.placement import PlacementEnv  # noqa: E402
from moorage.laboratory.learning.search import SearchResult, cross_entropy_search  # noqa: E402
from moorage.laboratory.learning.weights import DEFAULT_PLUGINS, WeightsEnv, configuration_of_weights  # noqa: E402

__all__ = ["DEFAULT_PLUGINS", "PlacementEnv", "SearchResult", "WeightsEnv", "configuration_of_weights", "cross_entropy_search"]
