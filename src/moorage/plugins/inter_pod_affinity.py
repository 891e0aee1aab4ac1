"""InterPodAffinity: place a pod in the topology domains of pods it has affinity to, and away from anti-affinity.

A term applies to a whole topology domain: all nodes that share the value of a label. All required affinity terms must hold,
each in its domain, with pods that match every term. An anti-affinity term, the pod's own or a placed pod's, makes the whole
domain infeasible. If the pod matches its own affinity terms and no placed pod does, every node with the labels is feasible.

Reads     podAffinity, podAntiAffinity, labels, namespace; labels of namespaces; counts of placed pods and of their terms
Rejects   nodes whose domains lack the pods that the affinity terms match: preemption does not help; nodes whose domains hold
          pods that violate anti-affinity, either way: preemption may help
Scores    weights of preferred terms, the pod's own and those of placed pods that match it, and ``hardPodAffinityWeight`` for
          required affinity of placed pods; normalized so that the lowest sum gets 0, the highest 100
Wakes on  a matching pod added or relabelled, a conflicting one deleted or relabelled; the pod's own labels; a node added, or
          its topology labels changed
Source    kube-scheduler 1.36, plugins/interpodaffinity/*.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn

from moorage.api.core import Namespace, Node
from moorage.api.feature_gates import FeatureGates
from moorage.errors import Fault
from moorage.framework import points
from moorage.framework.answer_forms import FollowedScores
from moorage.framework.args import Int32, PluginArgs
from moorage.framework.changes import Detail, RefusingPlugin, Remedies, TermsPlugin
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Hold, Reject, Skip
from moorage.plugins.affinity import affinity_counts
from moorage.plugins.affinity.affinity_reasons import explained, refusing_terms
from moorage.plugins.affinity.affinity_remedies import remedies_of_neighbours
from moorage.plugins.shared.no_pre_score import NoPreScoreError
from moorage.state.counts import MatchTerm
from moorage.state.pod_info import AffinityTerm, PodInfo
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, Snapshot, domain_ids

# kube-scheduler's own texts, kept word for word: people search their events for them.
REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"

POD_CHANGED = ClusterEvent(Resource.POD, Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL)
NODE_ADDED_OR_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """``hardPodAffinityWeight`` is the weight of a placed pod's required affinity to the incoming pod.

    ``ignorePreferredTermsOfExistingPods`` skips scoring for a pod that has no preferred terms itself.
    """

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        weight = self.hard_pod_affinity_weight
        if 0 <= weight <= 100:
            return []
        at = f"{path}." if path else ""
        return [Fault("Invalid value", f"{at}hardPodAffinityWeight", "not in valid range [0, 100]", weight)]


def signature_of(pod: PodInfo) -> points.Signature:
    """Return what the plugin reads of a pod."""
    return {
        "metadata.namespace": pod.namespace,
        "metadata.labels": tuple(sorted(pod.labels.items())),
        "spec.affinity.podAffinity": (pod.required_affinity, pod.preferred_affinity, pod.affinity_fault),
        "spec.affinity.podAntiAffinity": (pod.required_anti_affinity, pod.preferred_anti_affinity),
    }


def _domain_scores(weights: affinity_counts.AffinityWeights, nodes: NodeView) -> tuple[str, IntArray] | FollowedScores | None:
    if isinstance(weights, affinity_counts.FollowedWeights):
        return weights.answer
    return next(iter(weights.items())) if len(weights) == 1 else None


def _idle(pod: PodInfo, snapshot: Snapshot) -> points.Idle:
    """Return idle for a pod without terms if no term of a placed pod selects it, until terms or namespaces change."""
    kinds = snapshot.table.held_terms
    logs = (*kinds, snapshot.changes_of(Namespace))
    if pod.has_affinity:
        return points.Idle(now=False, until=logs)
    for terms in kinds:
        if terms.position and terms.select(pod, snapshot.namespace_labels(pod.namespace)):
            return points.Idle(now=False, until=logs)
    return points.Idle(now=True, until=logs)


class InterPodAffinity(
    points.PreFilterPlugin[affinity_counts.AffinityCounts],
    points.PreFilterExtensions[affinity_counts.AffinityCounts],
    RefusingPlugin[affinity_counts.AffinityCounts],
    points.PreScorePlugin[affinity_counts.AffinityWeights],
    points.ScorePlugin[affinity_counts.AffinityWeights],
    points.ScoreExtensions[affinity_counts.AffinityWeights],
    TermsPlugin[affinity_counts.AffinityCounts],
    points.Attachable,
):
    """The plugin. Its Filter state counts pods by domain; its Score state sums weights by domain."""

    name = "InterPodAffinity"
    Args = InterPodAffinityArgs
    reuse = points.Reuse(
        points.Scope.DOMAIN, signature_of, signature_reads=(), signature_reads_metadata=True, idle=_idle,
        domains=points.Domains(lambda state, nodes: state.closed(), _domain_scores),
        ignores=affinity_counts.AffinityCounts.ignores, ignores_all=affinity_counts.AffinityCounts.ignores_all,
    )  # fmt: skip

    def __init__(self, args: InterPodAffinityArgs | None = None) -> None:
        self._args = args or InterPodAffinityArgs()
        self._handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    # -- filter -------------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> affinity_counts.AffinityCounts | Skip | Hold:
        if pod.affinity_fault:
            return Hold.because(f"parsing pod: {pod.affinity_fault}", unresolvable=True)
        return affinity_counts.count_affinity(pod, snapshot) or SKIP

    def add_pod(
        self, state: affinity_counts.AffinityCounts, pod: PodInfo, other: PodInfo, node: NodeInfo
    ) -> affinity_counts.AffinityCounts:
        return state.shifted(other, pod, node, 1)

    def remove_pod(
        self, state: affinity_counts.AffinityCounts, pod: PodInfo, other: PodInfo, node: NodeInfo
    ) -> affinity_counts.AffinityCounts:
        return state.shifted(other, pod, node, -1)

    def filter(self, state: affinity_counts.AffinityCounts, nodes: NodeView) -> Iterator[Reject]:
        return refusals(state, nodes)

    # -- explanations -------------------------------------------------------------------------------------------------

    def why(self, state: affinity_counts.AffinityCounts, pod: PodInfo, node: NodeView) -> Detail | None:
        return explained(state, pod, node)

    def terms(self, state: affinity_counts.AffinityCounts, pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        return refusing_terms(state, nodes)

    # -- score --------------------------------------------------------------------------------------------------------

    def pre_score_disabled(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> NoReturn:
        raise NoPreScoreError(self.name)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> affinity_counts.AffinityWeights | Skip:
        prefers = bool(pod.preferred_affinity or pod.preferred_anti_affinity)
        if self._args.ignore_preferred_terms_of_existing_pods and not prefers:
            return SKIP
        return affinity_counts.weigh_affinity(pod, snapshot, self._args.hard_pod_affinity_weight) or SKIP

    def score(self, weights: affinity_counts.AffinityWeights, nodes: NodeView) -> IntArray:
        return affinity_counts.sum_weights(weights, nodes)

    def normalize(self, weights: affinity_counts.AffinityWeights, scores: IntArray) -> IntArray:
        return affinity_counts.normalize_weights(scores)

    # -- explanations -------------------------------------------------------------------------------------------------

    def remedies(self, state: affinity_counts.AffinityCounts, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_neighbours(state, pod, node)

    # -- signature and events -----------------------------------------------------------------------------------------

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(POD_CHANGED, when=self._pod_matters, by_shape=True)
        yield Wake(NODE_ADDED_OR_CHANGED, when=self._node_matters, by_shape=True)

    def _resolved(self, terms: Iterable[AffinityTerm]) -> tuple[affinity_counts.ResolvedTerm, ...]:
        """Resolve terms for a queueing hint; without a handle, a namespace selector selects every namespace."""
        if self._handle is not None:
            snapshot = self._handle.snapshot
            return tuple(affinity_counts.resolved(term, snapshot) for term in terms)
        named = ((None if term.namespace_selector else term.namespaces, term) for term in terms)
        return tuple(affinity_counts.ResolvedTerm(MatchTerm(names, term.selector), term.topology_key) for names, term in named)

    def _pod_matters(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        """Return whether adding, deleting or relabelling another pod can help.

        Wider than upstream's hint, which overlooks three cases: that namespaces have labels; that one of several anti-affinity
        terms is enough to reject a node; and that a pod which matches its own affinity terms may fit once the last match is
        deleted. As it matches namespace selectors against no labels, pods that only such a match concerns are woken here, too.
        """
        if old is not None and new is not None and pod.uid == new.uid:
            return True
        if any(changed is not None and not _is_placed_or_nominated(changed) for changed in (old, new)):
            return False
        affinity = self._resolved(pod.required_affinity)
        was, is_now = (affinity_counts.matches_all(affinity, other) if other is not None else False for other in (old, new))
        if is_now and not was:
            return True
        if was and not is_now and affinity_counts.matches_all(affinity, pod):
            return True
        if old is None:
            return False
        anti_affinity = self._resolved(pod.required_anti_affinity)
        if any(_matches(term, old) and not (new is not None and _matches(term, new)) for term in anti_affinity):
            return True
        return new is None and self._is_matched_by(old.required_anti_affinity, pod)

    def _is_matched_by(self, terms: Iterable[AffinityTerm], pod: PodInfo) -> bool:
        labels = {} if self._handle is None else self._handle.snapshot.namespace_labels(pod.namespace)
        return any(
            term.matches(pod, labels)
            or term.matches(pod, {})
            or (self._handle is None and term.namespace_selector is not None and term.selector.matches(pod.labels))
            for term in terms
        )

    def _node_matters(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        """Return whether adding or relabelling a node can help.

        Wider than upstream's hint, which overlooks the topology keys of placed pods' anti-affinity, and that relabelling a node
        may remove the last matching pod from all domains.
        """
        wanted = [term.topology_key for term in pod.required_affinity]
        refused = [term.topology_key for term in pod.required_anti_affinity]
        if old is None:
            return bool(refused) or not wanted or any(key in new.labels for key in wanted)
        changed = {key for key in (*old.labels, *new.labels) if old.labels.get(key) != new.labels.get(key)}
        first = affinity_counts.matches_all(self._resolved(pod.required_affinity), pod)
        if any(key in changed and (key in new.labels or first) for key in wanted):
            return True
        return any(key in changed and key in old.labels for key in (*refused, *self._keys_of_others(pod, changed)))

    def _keys_of_others(self, pod: PodInfo, changed: Iterable[str]) -> Iterable[str]:
        """Return the topology keys of placed pods' anti-affinity to the pod; every changed key if there is no handle."""
        if self._handle is None:
            return changed
        snapshot = self._handle.snapshot
        held = snapshot.table.required_anti_affinity.selecting(pod, snapshot.namespace_labels(pod.namespace))
        return {term.topology_key for (term, _), _ in held}


def refusals(state: affinity_counts.AffinityCounts, nodes: NodeView) -> Iterator[Reject]:
    """Check affinity, then the pod's anti-affinity, then placed pods' anti-affinity; the first that fails is the reason."""
    open_rows = state.near_wanted(nodes)
    if not open_rows.all():
        yield Reject(~open_rows, REASON_AFFINITY, unresolvable=True)
    for counts_by_key, reason in ((state.refused, REASON_ANTI_AFFINITY), (state.refusing, REASON_EXISTING)):
        closed = nodes.false()
        for key, counts in counts_by_key.items():
            if counts.any():
                closed |= (counts > 0).take(domain_ids(nodes, key))
        closed &= open_rows
        if closed.any():
            yield Reject(closed, reason)
            open_rows &= ~closed


def _is_placed_or_nominated(pod: PodInfo) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _matches(term: affinity_counts.ResolvedTerm, pod: PodInfo) -> bool:
    return term.match.matches(pod.namespace, pod.labels)
