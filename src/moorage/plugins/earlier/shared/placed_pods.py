"""Queueing hints of releases in which a pod that is only nominated to a node does not count.

Source    kube-scheduler 1.35, plugins/interpodaffinity/plugin.go and podtopologyspread/plugin.go; 1.32, the same of nodeports,
          noderesources and nodevolumelimits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from moorage.api.selectors import EVERYTHING
from moorage.framework.events import Hint, Resource, Wake
from moorage.framework.points import EnqueueExtensions
from moorage.state.affinity_terms import AffinityTerms
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import AffinityTerm, PodInfo, WeightedTerm


class WokenByPlacedPods(EnqueueExtensions):
    """A mixin whose ``wakes_on`` ignores events of other pods unless they are placed. List it before the plugin's class."""

    def wakes_on(self) -> Iterator[Wake]:
        return for_placed_pods(super().wakes_on())  # type: ignore[safe-super]  # of the plugin, the next base


def for_placed_pods(wakes: Iterable[Wake]) -> Iterator[Wake]:
    """Yield the wakes with hints that ignore events of other pods unless these are placed."""
    for wake in wakes:
        yield (
            replace(wake, when=_if_placed(wake.when)) if wake.event.resource is Resource.POD and wake.when is not None else wake
        )


def _if_placed(hint: Hint) -> Hint:
    def placed(pod: PodInfo, old: Any, new: Any) -> bool:
        changed = [one for one in (old, new) if one is not None]
        return all(one.spec.node_name or one.uid == pod.uid for one in changed) and hint(pod, old, new)

    return placed


# -- selected namespaces -----------------------------------------------------------------------------------------------
# The namespaces that terms of an incoming pod select, up to 1.33: those that the terms' namespace selectors match.
#
# From 1.34 on, kube-scheduler matches the selector against an empty set of labels as well (``affinity_counts.resolved``).
#
# Source    kube-scheduler 1.33.3, plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty


def with_namespaces_found(pod: PodInfo, snapshot: Snapshot) -> PodInfo:
    """Return the pod with the namespace selectors of its own terms resolved to namespaces."""
    terms = (pod.required_affinity, pod.required_anti_affinity, pod.preferred_affinity, pod.preferred_anti_affinity)
    if all(_plain(term).namespace_selector is None for kind in terms for term in kind):
        return pod
    required, required_anti, preferred, preferred_anti = terms
    return pod.with_affinity_terms(
        AffinityTerms(
            tuple(with_namespaces(term, snapshot) for term in required),
            tuple(with_namespaces(term, snapshot) for term in required_anti),
            tuple(WeightedTerm(weight, with_namespaces(term, snapshot)) for weight, term in preferred),
            tuple(WeightedTerm(weight, with_namespaces(term, snapshot)) for weight, term in preferred_anti),
        )
    )


def _plain(term: AffinityTerm | WeightedTerm) -> AffinityTerm:
    return term.term if isinstance(term, WeightedTerm) else term


def with_namespaces(term: AffinityTerm, snapshot: Snapshot) -> AffinityTerm:
    """Return the term with its namespace selector resolved to namespaces."""
    over = term.namespace_selector
    if over is None or over == EVERYTHING:
        return term
    return term._replace(namespaces=term.namespaces | snapshot.namespaces_selected(over), namespace_selector=None)
