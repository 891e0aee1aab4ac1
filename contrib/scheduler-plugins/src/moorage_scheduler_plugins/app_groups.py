"""Applications whose workloads depend on each other: the kinds AppGroup and NetworkTopology.

Source  scheduler-plugins 903da7df82cb, pkg/networkaware/util/util.go
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moorage.api.custom_objects import CustomObject
from moorage.state.view import PodInfo, Snapshot

APP_GROUPS: Final = "appgroups.v1alpha1.appgroup.diktyo.x-k8s.io"
NETWORK_TOPOLOGIES: Final = "networktopologies.v1alpha1.networktopology.diktyo.x-k8s.io"
LABEL: Final = "appgroup.diktyo.x-k8s.io"
WORKLOAD_LABEL: Final = "appgroup.diktyo.x-k8s.io.workload"


def group_of(pod: PodInfo) -> str:
    """Return the name of a pod's application; "" for none."""
    return pod.labels.get(LABEL, "")


def workload_of(pod: PodInfo) -> str:
    """Return the selector of a pod's workload; "" for none."""
    return pod.labels.get(WORKLOAD_LABEL, "")


def found_in(snapshot: Snapshot, kind: str, name: str, namespaces: Iterable[str]) -> CustomObject | None:
    """Return the object of the first of these namespaces that has one of this name."""
    known = snapshot.custom(kind)
    return next((one for namespace in namespaces if (one := known.get(f"{namespace}/{name}")) is not None), None)
