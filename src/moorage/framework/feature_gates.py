"""The feature gates, as a plugin is given them: in ``Handle.gates``, and for the check of its arguments."""

from moorage.api.feature_gates import FeatureGates

__all__ = ["FeatureGates"]
