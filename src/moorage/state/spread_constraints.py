"""A compiled topology spread constraint: selector parsed, defaults set, the pod's values of ``matchLabelKeys`` merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moorage.api.core import (
    TopologySpreadConstraint,
)
from moorage.api.selectors import Requirement, Selector, compile_label_selector


class SpreadConstraint(NamedTuple):
    """One constraint. ``required``: DoNotSchedule; otherwise ScheduleAnyway.

    ``honors_affinity`` leaves out nodes that do not match the pod's node selector or affinity, ``honors_taints`` those whose
    taints the pod does not tolerate.
    """

    topology_key: str
    max_skew: int
    required: bool
    selector: Selector
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    def with_selector(self, selector: Selector) -> SpreadConstraint:
        """Return the constraint with another selector; faster than ``_replace``."""
        return SpreadConstraint(*self[:3], selector, *self[4:])


def compile_spread_constraint(constraint: TopologySpreadConstraint, pod_labels: Mapping[str, str]) -> SpreadConstraint:
    """Compile a constraint of a pod with these labels.

    The selector also requires the pod's values of the keys in ``matchLabelKeys`` that the pod has. The API server merges them
    into the selector of a new pod too; a repeated requirement changes nothing, so both ways give the same result.

    Raises  SelectorError if the selector is malformed
    Source  podtopologyspread/common.go, filterTopologySpreadConstraints
    """
    selector = compile_label_selector(constraint.label_selector)
    own = [Requirement(key, "In", (pod_labels[key],)) for key in constraint.match_label_keys if key in pod_labels]
    if own:
        selector = Selector((*selector.requirements, *own), selector.matches_nothing)
    return SpreadConstraint(
        constraint.topology_key,
        constraint.max_skew,
        constraint.when_unsatisfiable == "DoNotSchedule",
        selector,
        1 if constraint.min_domains is None else constraint.min_domains,
        constraint.node_affinity_policy in {None, "Honor"},
        constraint.node_taints_policy == "Honor",
    )
