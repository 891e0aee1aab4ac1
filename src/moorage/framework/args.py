"""The base class of plugin arguments, and the number types of their wire form."""

from __future__ import annotations

from typing import Annotated, Self, TypeAlias

import msgspec

from moorage.errors import Fault
from moorage.framework.feature_gates import FeatureGates

#: A 32-bit integer on the wire; decoding rejects a larger one.
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
#: Seconds in Python, a text such as ``"1m30s"`` on the wire.
Duration: TypeAlias = Annotated[float, msgspec.Meta(extra={"wire": "duration"})]


class PluginArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Arguments of a plugin, as ``pluginConfig[].args`` spells them. Fields carry the API's defaults."""

    def completed(self, gates: FeatureGates) -> Self:
        """Return the arguments with the defaults that depend on gates or other arguments; called before ``faults``."""
        return self

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        """Return the faults of the values, in upstream's order; ``path`` is the field path of ``args``."""
        return []
