"""What the selectors of a release make of attributes that are lists."""

from __future__ import annotations

from moorage.api.cel.list_attributes import Lists
from moorage.api.feature_gates import FeatureGates

_GATE = "DRAListTypeAttributes"


def lists_in_selectors(gates: FeatureGates) -> Lists:
    """Return what stored selectors make of lists: more, in a release that has the gate, than new ones while it is closed."""
    if gates[_GATE] or gates.emulated.selectors_see_lists:
        return Lists.SUPPORTED
    return Lists.UNSUPPORTED if _GATE in gates.emulated.gates else Lists.UNKNOWN
