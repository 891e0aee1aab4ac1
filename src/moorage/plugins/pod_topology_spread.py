"""PodTopologySpread: spread a pod's replicas evenly over zones, hosts or any other topology.

A constraint counts, in each domain of its ``topologyKey``, the pods of the pod's namespace that its selector matches and that
are not terminating. ``DoNotSchedule`` rejects a node where the count, with the pod, would exceed the lowest count of any domain
by more than ``maxSkew``; ``ScheduleAnyway`` prefers domains with lower counts. A pod without constraints gets the plugin's
default constraints, with the selector of the services and the controller that own it.

Reads     topologySpreadConstraints, labels, namespace, owner; node selector, node affinity and tolerations (which nodes count);
          services, replication controllers, replica sets and stateful sets, for default constraints; counts of placed pods
Rejects   nodes where the pod would exceed maxSkew: preemption may help; nodes without a topology label: it does not
Scores    nodes whose domains hold fewer matching pods higher; nodes that lack a topology label of the pod's constraints get 0
Wakes on  a matching pod added, deleted or relabelled; the pod's own tolerations or labels changed; a node added, deleted, or
          with changed topology labels or taints, or that the pod's node affinity now judges differently
Source    kube-scheduler 1.36, plugins/podtopologyspread/*.go
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt
from msgspec import structs

from moorage.api.core import Node, TopologySpreadConstraint
from moorage.api.feature_gates import FeatureGates
from moorage.api.names import check_qualified_name
from moorage.api.selectors import Selector, SelectorError
from moorage.errors import Fault, PluginError
from moorage.framework import points
from moorage.framework.args import PluginArgs
from moorage.framework.changes import Detail, RefusingPlugin, Remedies, ShortfallPlugin, TermsPlugin
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.plugins.shared.no_pre_score import NoPreScoreError
from moorage.plugins.spread import spread_counts
from moorage.plugins.spread.spread_reasons import excess, explained, refusing_terms
from moorage.plugins.spread.spread_remedies import remedies_of_spreads
from moorage.state.counts import MatchTerm, PodMatcher
from moorage.state.node_matching import required_node_affinity
from moorage.state.spread_constraints import SpreadConstraint, compile_spread_constraint
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word: people search their events for them.
REASON = "node(s) didn't match pod topology spread constraints"
REASON_LABEL = f"{REASON} (missing required label)"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topology_key=spread_counts.HOSTNAME, max_skew=3, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(topology_key="topology.kubernetes.io/zone", max_skew=5, when_unsatisfiable="ScheduleAnyway"),
)
POD_CHANGED = ClusterEvent(Resource.POD, Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION)
NODE_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT)


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    """``defaultingType`` System spreads over hosts and zones; List uses ``defaultConstraints``."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"

    def completed(self, gates: FeatureGates) -> Self:
        """Replace an empty ``defaultingType`` by the default."""
        return self if self.defaulting_type else structs.replace(self, defaulting_type="System")

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        at = f"{path}." if path else ""
        faults: list[Fault] = []
        if self.defaulting_type not in {"System", "List"}:
            supported = 'supported values: "System", "List"'
            faults.append(Fault("Unsupported value", f"{at}defaultingType", supported, self.defaulting_type))
        elif self.defaulting_type == "System" and self.default_constraints:
            why = "when .defaultConstraints are not empty"
            faults.append(Fault("Invalid value", f"{at}defaultingType", why, self.defaulting_type))
        earlier: set[tuple[str, str]] = set()
        for i, one in enumerate(self.default_constraints):
            faults += _constraint_faults(one, earlier, f"{at}defaultConstraints[{i}]")
        return faults


def _constraint_faults(one: TopologySpreadConstraint, earlier: set[tuple[str, str]], at: str) -> list[Fault]:
    faults: list[Fault] = []
    for name, number in (("maxSkew", one.max_skew), ("minDomains", one.min_domains or 0)):
        if number >= 2**31:
            field = f"TopologySpreadConstraint.defaultConstraints.{name}"
            why = f"json: cannot unmarshal number {number} into Go struct field {field} of type int32"
            faults.append(Fault("Invalid value", f"{at}.{name}", why, number))
    if one.max_skew <= 0:
        faults.append(Fault("Invalid value", f"{at}.maxSkew", "not in valid range (0, inf)", one.max_skew))
    if not one.topology_key:
        faults.append(Fault("Required value", f"{at}.topologyKey", "can not be empty"))
    else:
        wrong = check_qualified_name(one.topology_key)
        faults += [Fault("Invalid value", f"{at}.topologyKey", why, one.topology_key) for why in wrong]
    if not one.when_unsatisfiable:
        faults.append(Fault("Required value", f"{at}.whenUnsatisfiable", "can not be empty"))
    elif one.when_unsatisfiable not in {"DoNotSchedule", "ScheduleAnyway"}:
        supported = 'supported values: "DoNotSchedule", "ScheduleAnyway"'
        faults.append(Fault("Unsupported value", f"{at}.whenUnsatisfiable", supported, one.when_unsatisfiable))
    if one.label_selector is not None:
        why = "constraint must not define a selector, as they deduced for each pod"
        faults.append(Fault("Forbidden", f"{at}.labelSelector", why))
    same = (one.topology_key, one.when_unsatisfiable)
    if same in earlier:
        faults.append(Fault("Duplicate value", at, value=f"{{{same[0]}, {same[1]}}}"))
    earlier.add(same)
    return faults


def _closed_domains(spreads: tuple[spread_counts.Spread, ...], nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
    for spread in spreads:
        closed = spread.crowded()
        closed[0] = True
        yield spread.constraint.topology_key, closed


def _domain_scores(
    preference: spread_counts.SpreadPreference, nodes: NodeView
) -> tuple[str, IntArray] | points.ScoresByCount | None:
    return spread_counts.score_domains(preference) or spread_counts.score_by_count(preference, nodes)


class PodTopologySpread(
    points.PreFilterPlugin[tuple[spread_counts.Spread, ...]],
    points.PreFilterExtensions[tuple[spread_counts.Spread, ...]],
    RefusingPlugin[tuple[spread_counts.Spread, ...]],
    points.PreScorePlugin[spread_counts.SpreadPreference],
    points.ScorePlugin[spread_counts.SpreadPreference],
    points.ScoreExtensions[spread_counts.SpreadPreference],
    TermsPlugin[tuple[spread_counts.Spread, ...]],
    ShortfallPlugin[tuple[spread_counts.Spread, ...]],
    points.Attachable,
):
    """The plugin. Its Filter state is one ``Spread`` for each DoNotSchedule constraint."""

    name = "PodTopologySpread"
    Args = PodTopologySpreadArgs

    def __init__(self, args: PodTopologySpreadArgs | None = None) -> None:
        args = args or PodTopologySpreadArgs()
        self._system = args.defaulting_type == "System"
        defaults = SYSTEM_DEFAULTS if self._system else args.default_constraints
        self._defaults = tuple(compile_spread_constraint(constraint, {}) for constraint in defaults)
        self._of_kind = {kind: [one for one in self._defaults if one.required is kind] for kind in (True, False)}
        self._owners = _Owners()
        self._handle: Handle | None = None
        self._numeric = False
        self._merges_label_keys = True

    def attach(self, handle: Handle) -> None:
        self._handle = handle
        self._numeric = handle.gates["TaintTolerationComparisonOperators"]
        self._merges_label_keys = handle.gates["MatchLabelKeysInPodTopologySpread"]

    # -- constraints --------------------------------------------------------------------------------------------------

    def _own(self, pod: PodInfo) -> tuple[SpreadConstraint, ...]:
        try:
            if self._merges_label_keys:
                return pod.spread_constraints
            return tuple(compile_spread_constraint(one, {}) for one in pod.spec.topology_spread_constraints)
        except SelectorError as error:
            raise PluginError(self.name, f"cannot read the topology spread constraints of {pod.key}: {error}") from error

    def _constraints(self, pod: PodInfo, snapshot: Snapshot, required: bool) -> list[SpreadConstraint]:
        """Return the pod's own constraints of one kind; the default ones if the pod has no constraints of any kind."""
        if pod.spec.topology_spread_constraints:
            return [constraint for constraint in self._own(pod) if constraint.required is required]
        wanted = self._of_kind[required]
        if not wanted:
            return []

        def compute() -> list[SpreadConstraint]:
            selector = self._selector(pod, snapshot, self._owners.of(snapshot))
            return [] if selector.is_empty else [constraint.with_selector(selector) for constraint in wanted]

        return pod.keep((self, "default", required), self._owners.of(snapshot), compute)

    def _idle(self, pod: PodInfo, snapshot: Snapshot) -> points.Idle:
        """Return idle for a pod without constraints, own or default, until its services or owners change."""
        if not self._defaults:
            return points.Idle(not pod.spec.topology_spread_constraints)
        versions, logs = self._owners.of(snapshot), self._owners.logs
        if pod.spec.topology_spread_constraints:
            return points.Idle(now=False, until=logs)
        if not self._owners.exist or not spread_counts.has_default_selector(pod, snapshot):
            return points.Idle(now=True, until=logs)
        return points.Idle(self._selector(pod, snapshot, versions).is_empty, logs)

    def _selector(self, pod: PodInfo, snapshot: Snapshot, owners: Hashable) -> Selector:
        """Return the selector of default constraints, computed once for equal pods and this version of the ``owners``."""
        return pod.keep("default selector", owners, lambda: spread_counts.default_selector(pod, snapshot))

    def _counted(self, pod: PodInfo, snapshot: Snapshot, *, required: bool) -> tuple[spread_counts.CountedConstraint, ...]:
        """Return a ``CountedConstraint`` for each constraint of one kind, cached for equal pods."""
        owners: Hashable = ()
        if not pod.spec.topology_spread_constraints:
            if not self._of_kind[required]:
                return ()
            owners = self._owners.of(snapshot)
        changes = snapshot.table.changes
        version = changes, changes.layout, changes.labels, owners
        return pod.keep((self, required), version, lambda: self._count(pod, snapshot, required=required))

    def _count(self, pod: PodInfo, snapshot: Snapshot, *, required: bool) -> tuple[spread_counts.CountedConstraint, ...]:
        constraints = self._constraints(pod, snapshot, required)
        all_labels = required or self._needs_all_labels(pod)
        unsatisfiable = _without_domains(constraints, snapshot) if all_labels else None
        if unsatisfiable is not None and required:  # this constraint rejects every node, so later constraints do not matter
            constraints = constraints[: unsatisfiable + 1]
        elif unsatisfiable is not None:  # every node lacks this label and scores 0, whatever the other constraints prefer
            constraints = constraints[unsatisfiable : unsatisfiable + 1]
        if not constraints:
            return ()
        return spread_counts.counted_constraints(pod, snapshot.nodes, constraints, self._numeric, all_labels=all_labels)

    def _needs_all_labels(self, pod: PodInfo) -> bool:
        """Return False under the system defaults: a node without a zone label is still spread over by host name."""
        return bool(pod.spec.topology_spread_constraints) or not self._system

    # -- filter -------------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[spread_counts.Spread, ...] | Skip:
        counted = self._counted(pod, snapshot, required=True)
        return spread_counts.count_spreads(snapshot.nodes, counted) if counted else SKIP

    def add_pod(
        self, spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, other: PodInfo, node: NodeInfo
    ) -> tuple[spread_counts.Spread, ...]:
        return _shifted(spreads, pod, other, node, 1)

    def remove_pod(
        self, spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, other: PodInfo, node: NodeInfo
    ) -> tuple[spread_counts.Spread, ...]:
        return _shifted(spreads, pod, other, node, -1)

    def filter(self, spreads: tuple[spread_counts.Spread, ...], nodes: NodeView) -> Iterator[Reject]:
        """Check constraint by constraint; the first that a node fails is its reason."""
        unlabelled, skewed = nodes.false(), nodes.false()
        for spread in spreads:
            column = nodes.label(spread.constraint.topology_key)
            if not column.is_everywhere:
                unlabelled |= (nodes.ids(column) == 0) & ~skewed
                if unlabelled.all():
                    break
            crowded = spread.crowded()
            if crowded.any():
                skewed |= crowded.take(nodes.ids(column)) & ~unlabelled
        if unlabelled.any():
            yield Reject(unlabelled, REASON_LABEL, unresolvable=True)
        if skewed.any():
            yield Reject(skewed, REASON)

    # -- explanations -------------------------------------------------------------------------------------------------

    def why(self, spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, node: NodeView) -> Detail | None:
        return explained(spreads, node)

    def terms(
        self, spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, nodes: NodeView
    ) -> Iterator[tuple[str, BoolArray]]:
        return refusing_terms(spreads, nodes)

    def shortfall(self, spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, nodes: NodeView) -> npt.NDArray[np.float64]:
        return excess(spreads, nodes)

    # -- score --------------------------------------------------------------------------------------------------------

    def pre_score_disabled(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> NoReturn:
        raise NoPreScoreError(self.name, "error reading")

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> spread_counts.SpreadPreference | Skip:
        counted = self._counted(pod, snapshot, required=False)
        return spread_counts.weigh_spread(feasible, counted, self._needs_all_labels(pod)) if counted else SKIP

    def score(self, preference: spread_counts.SpreadPreference, nodes: NodeView) -> IntArray:
        return spread_counts.score_spread(preference, nodes)

    def normalize(self, preference: spread_counts.SpreadPreference, scores: IntArray) -> IntArray:
        return spread_counts.normalize_spread(scores)

    # -- explanations -------------------------------------------------------------------------------------------------

    def remedies(self, spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        enforced = [i for i, one in enumerate(self._defaults) if one.required]
        return remedies_of_spreads(spreads, pod, node, enforced)

    # -- signature and events -----------------------------------------------------------------------------------------

    @property
    def reuse(self) -> points.Reuse:
        return points.Reuse(
            points.Scope.DOMAIN,
            self._signature,
            signature_reads=(),
            signature_reads_metadata=True,
            domains=points.Domains(_closed_domains, _domain_scores),
            idle=self._idle,
            ignores=_ignores,
            ignores_all=_ignores_all,
        )

    def _signature(self, pod: PodInfo) -> points.Signature:
        if not pod.spec.topology_spread_constraints and not self._defaults:
            return {}
        return signature(pod, self._own(pod))

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(POD_CHANGED, when=self._pod_matters, by_shape=True)
        yield Wake(NODE_CHANGED, when=self._node_matters, by_shape=True)

    def _required(self, pod: PodInfo) -> list[SpreadConstraint] | None:
        """Return the constraints that may have rejected the pod; None if they are unknown because there is no handle."""
        if pod.spec.topology_spread_constraints or not self._defaults:
            return [constraint for constraint in self._own(pod) if constraint.required]
        return None if self._handle is None else self._constraints(pod, self._handle.snapshot, required=True)

    def _pod_matters(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        if any(changed is not None and not _matters_to(changed, pod) for changed in (old, new)):
            return False
        constraints = self._required(pod)
        if constraints is None:
            return True
        if old is None or new is None:
            changed = old or new
            return changed is not None and any(one.selector.matches(changed.labels) for one in constraints)
        if pod.uid == new.uid and self._changed_itself(old, new, constraints):
            return True
        return any(one.selector.matches(old.labels) != one.selector.matches(new.labels) for one in constraints)

    def _changed_itself(self, old: PodInfo, new: PodInfo, constraints: Sequence[SpreadConstraint]) -> bool:
        """Return whether the waiting pod's own update can help it. Upstream misses labels that are part of its selectors."""
        if old.spec.tolerations != new.spec.tolerations and any(one.honors_taints for one in constraints):
            return True
        return self._own(old) != self._own(new)

    def _node_matters(self, pod: PodInfo, old: Node | None, new: Node | None) -> bool:
        constraints = self._required(pod)
        if constraints is None:
            return True
        was, is_now = _has_labels(old, constraints), _has_labels(new, constraints)
        if old is None or new is None or was != is_now:
            return was or is_now
        return is_now and _changes_counts(pod, old, new, constraints)


def signature(pod: PodInfo, constraints: tuple[SpreadConstraint, ...]) -> points.Signature:
    """Return the fields that the plugin reads of a pod, given its own constraints or the default ones."""
    affinity = pod.spec.affinity
    return {
        "metadata.namespace": pod.namespace,
        "metadata.labels": tuple(sorted(pod.labels.items())),
        "metadata.controller": spread_counts.controller_of(pod),
        "spec.topologySpreadConstraints": constraints,
        "spec.nodeSelector": tuple(sorted(pod.spec.node_selector.items())),
        "spec.affinity.nodeAffinity": affinity and affinity.node_affinity,
        "spec.tolerations": pod.spec.tolerations,
    }


def _without_domains(constraints: Sequence[SpreadConstraint], snapshot: Snapshot) -> int | None:
    """Return the index of the first constraint whose topology key no node has, or None.

    A pod may have very many constraints, but nodes have few labels, so the search soon ends.
    """
    labels = snapshot.table.labels
    return next((i for i, one in enumerate(constraints) if not labels.is_anywhere(one.topology_key)), None)


class _Owners:
    """The versions of the kinds that a default selector depends on, read again once any object changed."""

    def __init__(self) -> None:
        self._seen: tuple[Snapshot | None, int] = None, -1
        self._versions: tuple[tuple[points.Versioned, int], ...] = ()
        #: The logs of these kinds, as of the last call of ``of``.
        self.logs: tuple[points.Versioned, ...] = ()
        #: Whether there was any object of these kinds then.
        self.exist = False

    def of(self, snapshot: Snapshot) -> tuple[tuple[points.Versioned, int], ...]:
        if self._seen[0] is not snapshot or self._seen[1] != snapshot.objects_changed:
            self._seen = snapshot, snapshot.objects_changed
            self.logs = tuple([snapshot.changes_of(kind) for kind in spread_counts.OWNING_KINDS])
            self._versions = tuple([(log, log.position) for log in self.logs])
            self.exist = any(snapshot.objects(kind) for kind in spread_counts.OWNING_KINDS)
        return self._versions


def _ignores(spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, other: PodInfo) -> bool:
    """Return True if ``_shifted`` returns the same spreads, whatever the node."""
    return other.namespace != pod.namespace or not any(one.constraint.selector.matches(other.labels) for one in spreads)


def _ignores_all(spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, nodes: NodeView) -> BoolArray:
    """Return the rows without a pod that a constraint selects, in the pod's namespace."""
    counts, namespaces = nodes.table.pod_counts, frozenset([pod.namespace])
    found = np.zeros(len(nodes.table), dtype=bool)
    for selector in dict.fromkeys([one.constraint.selector for one in spreads]):
        found |= counts.rows_with(PodMatcher((MatchTerm(namespaces, selector),)))
    return ~found[nodes.row_numbers]


def _shifted(
    spreads: tuple[spread_counts.Spread, ...], pod: PodInfo, other: PodInfo, node: NodeInfo, by: int
) -> tuple[spread_counts.Spread, ...]:
    if other.namespace != pod.namespace:
        return spreads
    return tuple(spread.shifted(other, node.row, node.domain(spread.constraint.topology_key), by) for spread in spreads)


def _matters_to(changed: PodInfo, pod: PodInfo) -> bool:
    """Return whether a pod is the waiting pod itself, or a placed or nominated pod of its namespace."""
    if changed.uid == pod.uid:
        return True
    placed = bool(changed.spec.node_name or changed.status.nominated_node_name)
    return placed and changed.namespace == pod.namespace


def _has_labels(node: Node | None, constraints: Sequence[SpreadConstraint]) -> bool:
    return node is not None and all(constraint.topology_key in node.labels for constraint in constraints)


def _changes_counts(pod: PodInfo, old: Node, new: Node, constraints: Sequence[SpreadConstraint]) -> bool:
    """Return whether a node with all the labels changed domain, taints, or (which upstream misses) its match with the pod."""
    if any(old.labels[one.topology_key] != new.labels[one.topology_key] for one in constraints):
        return True
    if old.spec.taints != new.spec.taints:
        return True
    affinity = required_node_affinity(pod)
    return any(one.honors_affinity for one in constraints) and affinity.matches(old) != affinity.matches(new)
