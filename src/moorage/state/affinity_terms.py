"""Pod affinity terms and topology spread constraints, compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from moorage.api.core import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    WeightedPodAffinityTerm,
)
from moorage.api.selectors import Selector, SelectorError, compile_label_selector

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
