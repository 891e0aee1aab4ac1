"""NodeAffinity: reject nodes that the pod's nodeSelector or required node affinity excludes; prefer its preferred nodes.

``addedAffinity`` in the plugin's arguments applies to every pod of the profile, in addition to the pod's own affinity. If every
required term names nodes (``matchFields`` on ``metadata.name``), PreFilter narrows the search to those nodes.

Reads     nodeSelector, nodeAffinity; labels and names of nodes
Rejects   nodes that do not match; preemption does not help
Scores    the summed weights of the preferred terms that match, scaled so that the best node gets 100
Wakes on  a matching node added; a node whose new labels match
Source    kube-scheduler 1.36, plugins/nodeaffinity/node_affinity.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from moorage.api import core
from moorage.api.feature_gates import FeatureGates
from moorage.api.selectors import NodeTerm, SelectorError, aggregate, compile_node_selector, compile_node_term
from moorage.errors import AttemptError, Fault
from moorage.framework import points
from moorage.framework.args import PluginArgs
from moorage.framework.changes import Detail, RefusingPlugin, Remedies, TermsPlugin
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import SKIP, Hold, Narrow, Reject, Skip
from moorage.plugins.affinity.node_affinity_reasons import explained, refusing_terms
from moorage.plugins.affinity.node_affinity_remedies import (
    remedies_of_added_affinity,
    remedies_of_affinity,
    remedies_of_selector,
)
from moorage.plugins.shared.default_normalize import default_normalize
from moorage.state.node_matching import required_node_affinity, required_node_affinity_rows, rows_matching, rows_matching_term
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word: people search their events for them.
REASON = "node(s) didn't match Pod's node affinity/selector"
REASON_ADDED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"
NODE_ADDED_OR_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)


_NO_AFFINITY = core.NodeAffinity()


class PreferredTerm(NamedTuple):
    """A compiled preferred term and the weight that a matching node gets."""

    weight: int
    term: NodeTerm


class NodeAffinityArgs(PluginArgs, frozen=True):
    """``addedAffinity`` applies to every pod of the profile, in addition to the pod's own affinity."""

    added_affinity: core.NodeAffinity | None = None

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        if self.added_affinity is None:
            return []
        at = f"{path}.addedAffinity" if path else "addedAffinity"
        faults: list[Fault] = []
        required = self.added_affinity.required_during_scheduling_ignored_during_execution
        if required is not None:
            terms = compile_node_selector(required, f"{at}.requiredDuringSchedulingIgnoredDuringExecution").terms
            faults += [fault for term in terms for fault in term.faults]
        preferred = self.added_affinity.preferred_during_scheduling_ignored_during_execution
        weighted = _weighted(preferred, f"{at}.preferredDuringSchedulingIgnoredDuringExecution")
        return faults + [fault for one in weighted for fault in one.term.faults]


def signature(pod: PodInfo) -> points.Signature:
    """Return what the plugin reads of a pod."""
    return {
        "spec.nodeSelector": tuple(sorted(pod.spec.node_selector.items())),
        "spec.affinity.nodeAffinity": _affinity(pod),
    }


def _only_nodes(pod: PodInfo) -> frozenset[str] | None:
    """Return the names of the nodes that PreFilter narrows the search to; None if it does not narrow it."""
    required = _affinity(pod).required_during_scheduling_ignored_during_execution
    return None if required is None else nodes_named(required)


def _only_node(pod: PodInfo) -> str | None:
    """Return the node name in the pod's affinity if there is nothing else in it, as in DaemonSet pods; None otherwise."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None:
        return None
    on_nodes = affinity.node_affinity
    if on_nodes is None or on_nodes.preferred_during_scheduling_ignored_during_execution:
        return None
    return _lone_name(on_nodes.required_during_scheduling_ignored_during_execution)


def _without_affinity(pod: PodInfo) -> core.Pod:
    return replace(pod.pod, spec=replace(pod.spec, affinity=None))


class NodeAffinity(
    points.PreFilterPlugin[PodInfo],
    RefusingPlugin[PodInfo],
    points.FilterNodePlugin[PodInfo],
    points.PreScorePlugin[tuple[PreferredTerm, ...]],
    points.ScorePlugin[tuple[PreferredTerm, ...] | PodInfo],
    points.ScoreExtensions[object],
    TermsPlugin[object],
):
    """The plugin. Its Filter state is the pod itself: the pod's affinity is compiled once for all equal pods."""

    name = "NodeAffinity"
    Args = NodeAffinityArgs

    def __init__(self, args: NodeAffinityArgs | None = None) -> None:
        args = args or NodeAffinityArgs()
        if faults := args.faults("", FeatureGates()):
            raise SelectorError(aggregate(faults))
        added = args.added_affinity or _NO_AFFINITY
        required = added.required_during_scheduling_ignored_during_execution
        self._added = None if required is None else compile_node_selector(required)
        self._added_terms = () if required is None else required.node_selector_terms
        preferred = added.preferred_during_scheduling_ignored_during_execution
        self._added_preferred = _strictly_compiled(preferred)
        # Terms of weight zero score nothing, but their presence keeps the plugin from being skipped.
        self._prefers = bool(preferred)

    @property
    def reuse(self) -> points.Reuse:
        pins = points.Pins(_only_node, _without_affinity)
        return points.Reuse(points.Scope.NODE, self._signature, signature_reads=(), narrows_to=_only_nodes, pins=pins)

    def _signature(self, pod: PodInfo) -> points.Signature:
        has_none = pod.spec.affinity is None and not pod.spec.node_selector
        return points.NOTHING_TO_DO if has_none and self._added is None and not self._prefers else signature(pod)

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodInfo | Skip | Hold | Narrow[PodInfo]:
        affinity = _affinity(pod)
        required = affinity.required_during_scheduling_ignored_during_execution
        if required is None and self._added is None and not pod.spec.node_selector:
            return SKIP
        names = None if required is None else nodes_named(required)
        if names is None:
            return pod
        return Narrow(names, pod) if names else Hold.because(REASON_CONFLICT, unresolvable=True)

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        matching = required_node_affinity_rows(pod, nodes)
        if self._added is None:
            yield Reject(~matching, REASON, unresolvable=True)
            return
        enforced = rows_matching(self._added, nodes)
        yield Reject(~enforced, REASON_ADDED, unresolvable=True)
        yield Reject(enforced & ~matching, REASON, unresolvable=True)

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        if self._added is not None and not self._added.matches(node.labels, node.name):
            return Hold.because(REASON_ADDED, unresolvable=True)
        only = (
            None if pod.spec.node_selector else _lone_name(_affinity(pod).required_during_scheduling_ignored_during_execution)
        )
        if only is not None and only == node.name:  # spares compiling the affinity
            return None
        return None if required_node_affinity(pod).matches(node.node) else Hold.because(REASON, unresolvable=True)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        return explained(pod, node.first.node, self._added)

    def terms(self, state: object, pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        return refusing_terms(pod, nodes, self._added)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> tuple[PreferredTerm, ...] | Skip:
        preferred = _affinity(pod).preferred_during_scheduling_ignored_during_execution
        if not preferred and not self._prefers:
            return SKIP
        try:
            return preferred_terms(pod)
        except SelectorError as error:
            raise AttemptError(self.name, f'running PreScore plugin "{self.name}": {error}') from error

    def score(self, preferred: tuple[PreferredTerm, ...] | PodInfo, nodes: NodeView) -> IntArray:
        if isinstance(preferred, PodInfo):  # PreScore is disabled
            preferred = preferred_terms(preferred)
        sums = nodes.zeros()
        for weight, term in (*self._added_preferred, *preferred):
            sums += weight * rows_matching_term(term, nodes)
        return sums

    def normalize(self, preferred: object, scores: IntArray) -> IntArray:
        return default_normalize(scores)

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        found = node.first.node
        if self._added is not None and not self._added.matches(found.labels, found.name):
            yield from remedies_of_added_affinity(pod, found, self._added_terms)
        yield from remedies_of_selector(pod, found)
        required = _affinity(pod).required_during_scheduling_ignored_during_execution
        if required is not None and not rows_matching(compile_node_selector(required), node)[0]:
            yield from remedies_of_affinity(pod, found, required.node_selector_terms)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(NODE_ADDED_OR_CHANGED, when=self._now_matches, by_shape=True)

    def _now_matches(self, pod: PodInfo, old: core.Node | None, new: core.Node) -> bool:
        """Wider than upstream's hint, which misses a node that always matched the pod and now matches ``addedAffinity``."""
        if self._added is not None and not self._added.matches(new.labels, new.name):
            return False
        required = required_node_affinity(pod)
        if required.error(new) is not None:
            return True
        if not required.matches(new):
            return False
        added_before = old is not None and (self._added is None or self._added.matches(old.labels, old.name))
        return old is None or not (added_before and required.matches(old))


def _affinity(pod: PodInfo) -> core.NodeAffinity:
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    return affinity or _NO_AFFINITY


def _lone_name(required: core.NodeSelector | None) -> str | None:
    """Return the node name that a selector asks for, if it asks for nothing else, as for pods of a DaemonSet; else None."""
    if required is None or len(required.node_selector_terms) != 1:
        return None
    term = required.node_selector_terms[0]
    if term.match_expressions or len(term.match_fields) != 1:
        return None
    asked = term.match_fields[0]
    return asked.values[0] if asked.key == "metadata.name" and asked.operator == "In" and len(asked.values) == 1 else None


def preferred_terms(pod: PodInfo) -> tuple[PreferredTerm, ...]:
    """Return the pod's own preferred terms, compiled.

    Raises  SelectorError, in upstream's words, if a term is malformed
    """
    return _strictly_compiled(_affinity(pod).preferred_during_scheduling_ignored_during_execution)


def nodes_named(selector: core.NodeSelector) -> frozenset[str] | None:
    """Return the node names that a selector restricts the pod to, or None if some term does not select by name.

    An empty set means that every term contradicts itself.
    """
    if not selector.node_selector_terms:
        return None
    names: set[str] = set()
    for term in selector.node_selector_terms:
        asked = [set(one.values) for one in term.match_fields if one.key == "metadata.name" and one.operator == "In"]
        if not asked:
            return None
        names |= set.intersection(*asked)
    return frozenset(names)


def _weighted(terms: Iterable[core.PreferredSchedulingTerm], path: str = "") -> tuple[PreferredTerm, ...]:
    """Compile preferred terms. Terms of weight zero and empty terms are skipped without being parsed."""
    compiled = ((one.weight, compile_node_term(one.preference, f"{path}[{i}]")) for i, one in enumerate(terms) if one.weight)
    return tuple(PreferredTerm(weight, term) for weight, term in compiled if term is not None)


@lru_cache(maxsize=4096)
def _strictly_compiled(terms: tuple[core.PreferredSchedulingTerm, ...]) -> tuple[PreferredTerm, ...]:
    """Compile preferred terms, which must all be valid; required terms are read more leniently.

    Raises  SelectorError, in upstream's words, if a term is malformed
    """
    weighted = _weighted(terms)
    faults = [fault for one in weighted for fault in one.term.faults]
    if faults:
        raise SelectorError(aggregate(faults))
    return weighted
