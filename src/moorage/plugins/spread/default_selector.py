"""The default selector of a pod: the selectors of its services and of its controller, combined.

Default topology spread constraints use it, because they have no selector of their own.

Source  kube-scheduler 1.36, plugins/helper/spread.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.core import ReplicationController, Service
from moorage.api.meta import LabelSelector, OwnerReference
from moorage.api.selectors import Requirement, Selector, SelectorError, compile_label_selector, selector_from_map
from moorage.api.workloads import ReplicaSet, StatefulSet
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["OWNING_KINDS", "controller_of", "default_selector"]


_EMPTY: Final = Selector()
#: The kinds of objects that contribute to a pod's default selector.
OWNING_KINDS: Final = (Service, ReplicationController, ReplicaSet, StatefulSet)


def default_selector(pod: PodInfo, snapshot: Snapshot) -> Selector:
    """Return the combined selectors of the pod's services and its controller; empty if there are none."""
    if not pod.metadata.owner_references and not snapshot.objects(Service):
        return _EMPTY
    labels: dict[str, str] = {}
    for service in snapshot.services_selecting(pod):
        labels |= service.spec.selector
    owner = controller_of(pod)
    if owner is None:
        return selector_from_map(labels) if labels else _EMPTY
    key = f"{pod.namespace}/{owner.name}"
    match owner.api_version, owner.kind:
        case "v1", "ReplicationController":
            controller = snapshot.objects(ReplicationController).get(key)
            return selector_from_map(labels | controller.spec.selector if controller else labels)
        case "apps/v1", "ReplicaSet":
            replica_set = snapshot.objects(ReplicaSet).get(key)
            more = _requirements(replica_set.spec.selector) if replica_set else ()
        case "apps/v1", "StatefulSet":
            stateful_set = snapshot.objects(StatefulSet).get(key)
            more = _requirements(stateful_set.spec.selector) if stateful_set else ()
        case _:
            more = ()
    return Selector((*selector_from_map(labels).requirements, *more))


def controller_of(pod: PodInfo) -> OwnerReference | None:
    """Return the owner reference of the pod's controller, if any."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def _requirements(selector: LabelSelector | None) -> tuple[Requirement, ...]:
    """Return the requirements of a selector; none if it is absent or malformed."""
    try:
        return compile_label_selector(selector).requirements
    except SelectorError:
        return ()
