"""What a release makes of a pod: older ones do not see what came later."""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.core import Pod
from moorage.api.old_pods import OldFields, as_kept_by_1_21
from moorage.framework.features import TODAY, FeatureGates

__all__ = ["pod_reader"]


def pod_reader(gates: FeatureGates) -> Callable[[Pod], Pod]:
    """Return what takes a pod as it was written to what the gates' release knows of it."""
    if gates.release == TODAY:
        return lambda pod: pod
    fields = OldFields(
        namespace_selector=gates["PodAffinityNamespaceSelector"],
        overhead=gates["PodOverhead"],
        local_storage=gates["LocalStorageCapacityIsolation"],
        ephemeral_volumes=gates["GenericEphemeralVolume"],
    )
    return lambda pod: as_kept_by_1_21(pod, fields)
