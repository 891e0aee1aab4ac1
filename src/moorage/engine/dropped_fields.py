"""Drops fields of a pod that a release does not know or whose feature gate is off.

Pod-level resource requests are an example: while their gate is off they count neither for pending pods nor for placed ones.

Source  kube-scheduler 1.36, framework/types.go, NodeInfo.update, PodInfo.CalculateResource
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.pod_fields_1_21 import OldFields, as_kept_by_1_21
from moorage.framework.features import FeatureGates

__all__ = ["pod_reader"]


def pod_reader(gates: FeatureGates) -> Callable[[Pod], Pod]:
    """Return what takes a pod as it was written to what the gates' release knows of it."""
    if not gates.emulated.drops_later_pod_fields:
        return _reader_of_today(gates)
    fields = OldFields(
        namespace_selector=gates["PodAffinityNamespaceSelector"],
        overhead=gates["PodOverhead"],
        local_storage=gates["LocalStorageCapacityIsolation"],
        ephemeral_volumes=gates["GenericEphemeralVolume"],
    )
    return lambda pod: as_kept_by_1_21(pod, fields)


def _reader_of_today(gates: FeatureGates) -> Callable[[Pod], Pod]:
    if not gates["PodLevelResources"]:
        return _without_level
    if not gates["InPlacePodLevelResourcesVerticalScaling"]:
        return _without_level_status
    return lambda pod: pod


def _without_level(pod: Pod) -> Pod:
    return pod if pod.spec.resources is None else replace(pod, spec=replace(pod.spec, resources=None))


def _without_level_status(pod: Pod) -> Pod:
    if pod.status.resources is None:
        return pod
    return replace(pod, status=replace(pod.status, resources=None))
