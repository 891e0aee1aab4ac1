"""The base of plugin arguments."""

from __future__ import annotations

import msgspec

from moorage.errors import Fault
from moorage.framework.features import FeatureGates

__all__ = ["PluginArgs"]


class PluginArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Arguments of a plugin, as ``pluginConfig[].args`` spells them. Fields carry the API's defaults."""

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        """Return what is wrong with the values, in upstream's order; ``path`` leads to ``args``."""
        del path, gates
        return []
