"""Pod affinity terms and topology spread constraints, compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from moorage.api.core import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from moorage.api.selectors import Requirement, Selector, SelectorError, compile_label_selector

T = TypeVar("T")
C = TypeVar("C")


class LabelledPod(Protocol):
    """The attributes of a pod that a term reads."""

    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


class AffinityTerm(NamedTuple):
    """One pod (anti-)affinity term, compiled.

    A pod matches when its namespace is listed or the namespace selector matches its namespace's labels, and the selector
    matches the pod's labels. ``namespace_selector`` is None where the term has none.
    """

    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector
    topology_key: str

    def matches(self, pod: LabelledPod, namespace_labels: Mapping[str, str]) -> bool:
        """Return True if the term selects ``pod``, whose namespace has ``namespace_labels``."""
        if pod.namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector.matches(pod.labels)


class WeightedTerm(NamedTuple):
    weight: int
    term: AffinityTerm


class AffinityTerms(NamedTuple):
    """All the terms of one pod, by kind; ``fault`` is the error of the kinds that could not be compiled."""

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    preferred_anti: tuple[WeightedTerm, ...] = ()
    fault: str = ""


_NO_TERMS = AffinityTerms()


def compile_affinity(namespace: str, affinity: Affinity | None) -> AffinityTerms:
    """Compile all four kinds of term; a kind with a malformed term is empty, and its error is in ``fault``.

    Source  kube-scheduler/framework/types.go, PodInfo.Update
    """
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return _NO_TERMS
    near, apart = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAntiAffinity()
    faults: list[str] = []

    def compiled(kind: str, terms: Sequence[T], compile_one: Callable[[T], C]) -> tuple[C, ...]:
        if not terms:
            return ()
        try:
            return tuple([compile_one(term) for term in terms])
        except SelectorError as error:
            faults.append(f"{kind}: {error}")
            return ()

    def required(term: PodAffinityTerm) -> AffinityTerm:
        return compile_affinity_term(namespace, term)

    def preferred(term: WeightedPodAffinityTerm) -> WeightedTerm:
        return WeightedTerm(term.weight, compile_affinity_term(namespace, term.pod_affinity_term))

    return AffinityTerms(
        compiled("requiredAffinityTerms", near.required_during_scheduling_ignored_during_execution, required),
        compiled("requiredAntiAffinityTerms", apart.required_during_scheduling_ignored_during_execution, required),
        compiled("preferredAffinityTerms", near.preferred_during_scheduling_ignored_during_execution, preferred),
        compiled("preferredAntiAffinityTerms", apart.preferred_during_scheduling_ignored_during_execution, preferred),
        _joined(faults) if faults else "",
    )


def _joined(faults: list[str]) -> str:
    return faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"


def compile_affinity_term(pod_namespace: str, term: PodAffinityTerm) -> AffinityTerm:
    """Compile a term of a pod in ``pod_namespace``: a term without namespaces selects pods of that namespace.

    Raises  InputError if a selector is malformed
    Source  kube-scheduler/framework/types.go, getNamespacesFromPodAffinityTerm and newAffinityTerm
    """
    names = frozenset(term.namespaces)
    if not names and term.namespace_selector is None:
        names = frozenset([pod_namespace])
    over = None if term.namespace_selector is None else compile_label_selector(term.namespace_selector)
    return AffinityTerm(names, over, compile_label_selector(term.label_selector), term.topology_key)


# -- spread constraint -------------------------------------------------------------------------------------------------
# A compiled topology spread constraint: selector parsed, defaults set, the pod's values of ``matchLabelKeys`` merged.


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
