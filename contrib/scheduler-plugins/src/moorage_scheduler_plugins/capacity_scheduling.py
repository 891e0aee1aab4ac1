"""CapacityScheduling: quotas of namespaces that may borrow from each other, and take back by preemption.

An ElasticQuota guarantees its namespace ``min`` and limits it to ``max``. What others leave of their ``min`` may be borrowed,
as long as all namespaces together use no more than the sum of ``min``.

Source  scheduler-plugins 903da7df82cb, pkg/capacityscheduling/capacity_scheduling.go and elasticquota.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moorage.api.custom_objects import CustomObject
from moorage.api.quantity import milli_value, value
from moorage.core.preemption.own_victims import preempt
from moorage.framework import points
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.handle import Handle
from moorage.framework.points import Attempt, PostFilterResult
from moorage.framework.verdicts import SKIP, Code, Hold, Skip
from moorage.state.view import NodeInfo, PodInfo, Snapshot
from moorage_scheduler_plugins.earlier_args import EarlierArgs
from moorage_scheduler_plugins.eligibility import why_not

ELASTIC_QUOTAS: Final = "elasticquotas.v1alpha1.scheduling.x-k8s.io"
#: Resources that have an amount in every quota.
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_NO_END: Final = 2**63 - 1

Amounts = Mapping[str, int]


class Quota(NamedTuple):
    """The bounds of a namespace. A native resource that a given bound leaves out has the amount 0, as upstream."""

    least: Amounts
    most: Amounts

    def exceeds_least(self, used: Amounts, more: Amounts) -> bool:
        return exceeds(more, used, self.least, 0)

    def exceeds_most(self, used: Amounts, more: Amounts) -> bool:
        return exceeds(more, used, self.most, _NO_END)


class CapacityScheduling(
    points.PreFilterPlugin[None], points.PostFilterPlugin, points.ReservePlugin[None], points.EnqueueExtensions,
    points.Attachable, points.PodFollower,
):  # fmt: skip
    name = "CapacityScheduling"
    Args = EarlierArgs

    def __init__(self, args: EarlierArgs | None = None) -> None:
        self._handle: Handle | None = None
        #: Namespace → UID → what the pods on nodes request.
        self._used: dict[str, dict[str, Amounts]] = {}

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def pod_changed(self, old: PodInfo | None, new: PodInfo | None) -> None:
        if new is not None and new.spec.node_name:
            self._used.setdefault(new.namespace, {})[new.uid] = new.requests
        elif new is None and old is not None:
            self._used.get(old.namespace, {}).pop(old.uid, None)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))
        yield Wake(ClusterEvent(ELASTIC_QUOTAS, Action.ALL))

    def reserve(self, state: None, pod: PodInfo, node: str) -> None:
        self._used.setdefault(pod.namespace, {})[pod.uid] = pod.requests

    def unreserve(self, state: None, pod: PodInfo, node: str) -> None:
        self._used.get(pod.namespace, {}).pop(pod.uid, None)

    # -- the quotas ---------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Hold | Skip:
        quotas = quotas_of(snapshot)
        quota = quotas.get(pod.namespace)
        if quota is None:
            return SKIP
        books = _Books(quotas, {namespace: self._sum(namespace) for namespace in quotas})
        in_quota, in_all = self._asked(pod, snapshot, books)
        if quota.exceeds_most(books.used[pod.namespace], in_quota):
            text = f"ElasticQuota {pod.namespace} is more than Max"
            return Hold.because(f"Pod {pod.key} is rejected in PreFilter because {text}")
        if books.exceed_least_together(in_all):
            text = "total ElasticQuota used is more than min"
            return Hold.because(f"Pod {pod.key} is rejected in PreFilter because {text}")
        return SKIP

    def _sum(self, namespace: str, without: Iterable[PodInfo] = ()) -> Amounts:
        gone = {pod.uid for pod in without}
        return total(requests for uid, requests in self._used.get(namespace, {}).items() if uid not in gone)

    def _asked(self, pod: PodInfo, snapshot: Snapshot, books: _Books) -> tuple[Amounts, Amounts]:
        """Return what the pod requests with the nominated pods that come before it: those in its quota, and those in all."""
        in_quota, in_all = [pod.requests], [pod.requests]
        if self._handle is not None:
            lister = self._handle.pods
            nominated = (other for node in snapshot.table.nodes for other in lister.nominated(node.name))
            for other in nominated:
                if other.uid == pod.uid or other.namespace not in books.quotas:
                    continue
                if other.namespace == pod.namespace and other.priority >= pod.priority:
                    in_quota.append(other.requests)
                    in_all.append(other.requests)
                elif other.namespace != pod.namespace and not books.borrows(other.namespace):
                    in_all.append(other.requests)
        return total(in_quota), total(in_all)

    # -- preemption ---------------------------------------------------------------------------------------------------

    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult:
        quotas = quotas_of(attempt.snapshot)
        books = _Books(quotas, {namespace: self._sum(namespace) for namespace in quotas})
        in_quota, in_all = self._asked(pod, attempt.snapshot, books)
        if text := why_not(pod, attempt, lambda other: books.may_go(other, pod, in_quota)):
            return PostFilterResult(Code.UNSCHEDULABLE, (f"preemption: {text}",))

        def potential(pod: PodInfo, node: NodeInfo) -> list[PodInfo]:
            return [other for other in node.pods if books.may_go(other, pod, in_quota)]

        return preempt(
            pod, attempt, potential, self._admits(pod, quotas, in_quota, in_all), not_admitted="global quota max exceeded"
        )

    def _admits(
        self, pod: PodInfo, quotas: Mapping[str, Quota], in_quota: Amounts, in_all: Amounts
    ) -> Callable[[Sequence[PodInfo]], bool]:
        quota = quotas.get(pod.namespace)

        def admits(gone: Sequence[PodInfo]) -> bool:
            if quota is None:
                return True
            left = _Books(quotas, {namespace: self._sum(namespace, gone) for namespace in quotas})
            return not quota.exceeds_most(left.used[pod.namespace], in_quota) and not left.exceed_least_together(in_all)

        return admits


class _Books:
    """Quotas with what their namespaces use."""

    def __init__(self, quotas: Mapping[str, Quota], used: Mapping[str, Amounts]) -> None:
        self.quotas, self.used = quotas, used

    def borrows(self, namespace: str) -> bool:
        """Return whether a namespace uses more than it is guaranteed."""
        return exceeds(self.used[namespace], {}, self.quotas[namespace].least, 0)

    def exceed_least_together(self, more: Amounts) -> bool:
        used = total([*self.used.values(), more])
        return exceeds(used, {}, total(quota.least for quota in self.quotas.values()), 0)

    def may_go(self, other: PodInfo, pod: PodInfo, in_quota: Amounts) -> bool:
        """Return whether a pod may be evicted for another.

        A pod within its guarantee takes from namespaces that borrow; one beyond it, from lesser pods of its own namespace. A
        pod without a quota takes from lesser pods without one.
        """
        quota, is_lesser = self.quotas.get(pod.namespace), other.priority < pod.priority
        if quota is None:
            return other.namespace not in self.quotas and is_lesser
        if other.namespace not in self.quotas:
            return False
        if quota.exceeds_least(self.used[pod.namespace], in_quota):
            return other.namespace == pod.namespace and is_lesser
        return other.namespace != pod.namespace and self.borrows(other.namespace)


def quotas_of(snapshot: Snapshot) -> dict[str, Quota]:
    """Return the quota of each namespace that has one; of several, the first."""
    found: dict[str, Quota] = {}
    for one in snapshot.custom(ELASTIC_QUOTAS).values():
        found.setdefault(one.namespace, Quota(_bound(one, "min", 0), _bound(one, "max", _NO_END)))
    return found


def _bound(quota: CustomObject, name: str, absent: int) -> Amounts:
    given = quota.get("spec", name)
    if given is None:
        return dict.fromkeys(_NATIVE, absent)
    return {resource: milli_value(text) if resource == "cpu" else value(text) for resource, text in given.items()}


def total(amounts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sums of amounts by resource."""
    sums: dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def exceeds(one: Amounts, other: Amounts, bound: Amounts, absent: int) -> bool:
    """Return whether two amounts together exceed a bound.

    Native resources count in any case; others if ``one`` has them, with ``absent`` as the bound where there is none.
    """
    if any(one.get(name, 0) + other.get(name, 0) > bound.get(name, 0) for name in _NATIVE):
        return True
    others = (name for name in one if name not in _NATIVE and name != "pods")
    return any(one[name] + other.get(name, 0) > bound.get(name, absent) for name in others)
