"""The base of plugin arguments, and the number types that their wire form knows."""

from __future__ import annotations

from typing import Annotated, Self, TypeAlias

import msgspec

from moorage.errors import Fault
from moorage.framework.features import FeatureGates

__all__ = ["Duration", "Int32", "PluginArgs"]

#: An integer that the wire form holds in 32 bits; a larger one cannot be decoded.
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
#: Seconds here, a text such as ``"1m30s"`` on the wire.
Duration: TypeAlias = Annotated[float, msgspec.Meta(extra={"wire": "duration"})]


class PluginArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Arguments of a plugin, as ``pluginConfig[].args`` spells them. Fields carry the API's defaults."""

    def completed(self, gates: FeatureGates) -> Self:
        """Return the arguments with those defaults that hang on the gates or on what was given; asked before ``faults``."""
        del gates
        return self

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        """Return what is wrong with the values, in upstream's order; ``path`` leads to ``args``."""
        del path, gates
        return []
