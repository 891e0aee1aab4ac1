"""The selector of a pod's siblings in 1.21, and the zones over which they are spread.

Services, replication controllers, replica sets and stateful sets of the pod's namespace count if their selectors match the pod.
(The current plugin uses the controller that the pod names.)

Source  kube-scheduler 1.21, plugins/helper/spread.go; client-go, listers/{core,apps}/v1/*_expansion.go
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from moorage.api.core import LabelSelector, ReplicationController
from moorage.api.selectors import NOTHING, Requirement, Selector, SelectorError, compile_label_selector, selector_from_map
from moorage.api.workloads import ReplicaSet, StatefulSet
from moorage.state.counts import Counts, MatchTerm, PodMatcher
from moorage.state.view import NodeView, PodInfo, Snapshot


def sibling_selector(pod: PodInfo, snapshot: Snapshot) -> Selector:
    """Return the combined selectors of everything that selects the pod; empty if nothing does."""
    labels: dict[str, str] = {}
    for service in snapshot.services_selecting(pod):
        labels |= service.spec.selector
    if not pod.labels:
        return selector_from_map(labels)
    for controller in snapshot.objects(ReplicationController).values():
        requirement = controller.spec.selector
        if (
            controller.metadata.namespace == pod.namespace
            and requirement
            and selector_from_map(requirement).matches(pod.labels)
        ):
            labels |= requirement
    replica_sets = (
        one.spec.selector for one in snapshot.objects(ReplicaSet).values() if one.metadata.namespace == pod.namespace
    )
    stateful_sets = (
        one.spec.selector for one in snapshot.objects(StatefulSet).values() if one.metadata.namespace == pod.namespace
    )
    more = (*_requirements_of(replica_sets, pod), *_requirements_of(stateful_sets, pod))
    return Selector((*selector_from_map(labels).requirements, *more))


def _requirements_of(selectors: Iterable[LabelSelector | None], pod: PodInfo) -> tuple[Requirement, ...]:
    """Return the requirements of the selectors that match the pod; empty if a selector that may match it is malformed."""
    candidates = [one for one in selectors if one is not None and one.match_labels.items() <= pod.labels.items()]
    try:
        compiled = [compile_label_selector(selector) for selector in candidates]
    except SelectorError:
        return ()
    return tuple(requirement for one in compiled if one.matches(pod.labels) for requirement in one.requirements)


def live_pods(namespace: str, selector: Selector, nodes: NodeView) -> Counts:
    """Return the number of pods on each row that a namespace and a selector match, without terminating pods."""
    if selector == NOTHING:
        return np.zeros(len(nodes), dtype=np.int32)
    return nodes.pods_matching(PodMatcher((MatchTerm(frozenset([namespace]), selector),), live_only=True))
