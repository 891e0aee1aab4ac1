"""Pod disruption budgets in virtual time: how many disruptions each allows, as the disruption controller would count.

The status of a budget in a dump has figures that the controller wrote before the dump was taken. They describe the pods at that
time; later changes are added to them. A budget without figures, such as one from a manifest, is counted from its pods.

Source  kubernetes, pkg/controller/disruption/disruption.go; pkg/registry/core/pod/storage/eviction.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from moorage.api.core import Object, OwnerReference, Pod, ReplicationController
from moorage.api.documents.object_fields import scaled
from moorage.api.selectors import Selector, SelectorError, compile_label_selector
from moorage.api.workloads import Deployment, PodDisruptionBudget, ReplicaSet, StatefulSet
from moorage.simulator.owners import controller_of, is_active

#: Returns the object of a kind by namespace and name, if it exists.
FindObject: TypeAlias = Callable[[type[Object], str, str], Object | None]

#: Controllers with a number of replicas.
_SCALED: Final[Mapping[str, type[Object]]] = {
    "Deployment": Deployment, "ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet,
    "ReplicationController": ReplicationController,
}  # fmt: skip
#: Controllers of pods without a number of replicas: the disruption controller cannot count for them.
_UNSCALED: Final = frozenset(["DaemonSet", "Job", "Node"])


class BudgetFigures(NamedTuple):
    """The figures of a budget at some time, as the disruption controller counts; ``fault``: why it cannot.

    ``slack``  the disruptions it allows; negative if pods are missing
    """

    expected: int
    desired: int
    healthy: int
    fault: str = ""
    slack: int = 0

    @property
    def allowed(self) -> int:
        return max(0, self.slack)


@dataclass(frozen=True, slots=True, eq=False)
class WatchedBudget:
    """A budget and its selector."""

    budget: PodDisruptionBudget
    selector: Selector

    @property
    def key(self) -> str:
        return self.budget.key

    def covers(self, pod: Pod) -> bool:
        return pod.metadata.namespace == self.budget.metadata.namespace and self.selector.matches(pod.metadata.labels)


def looks_ready(pod: Pod) -> bool:
    """Return True for a pod of the input that is ready: by its condition or, without one, because it runs."""
    ready = next((one.status for one in pod.status.conditions if one.type == "Ready"), None)
    if ready is not None:
        return ready == "True"
    return bool(pod.spec.node_name) and pod.status.phase in {"", "Running"}


def pods_by_namespace(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return pods by namespace: a budget covers pods of its own only."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(pod.metadata.namespace, []).append(pod)
    return found


class BudgetBook:
    """The budgets of a cluster. ``read``: the pods of the input."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget], find: FindObject, read: Iterable[Pod]) -> None:
        self._find = find
        #: Controllers that are not in the input, and the most active pods seen of each.
        self._most: dict[tuple[str, str, str], int] = {}
        self._by_namespace: dict[str, list[WatchedBudget]] = {}
        held = [one for one in budgets if one.metadata.deletion_timestamp is None]
        self._pods = pods_by_namespace(read) if held else {}
        #: The counts of the pods of the input, of the budgets that were asked about.
        self._read: dict[str, BudgetFigures] = {}
        for budget in held:
            with suppress(SelectorError):
                watched = WatchedBudget(budget, compile_label_selector(budget.spec.selector))
                self._by_namespace.setdefault(budget.namespace, []).append(watched)

    @property
    def namespaces(self) -> Collection[str]:
        """The namespaces that have budgets."""
        return self._by_namespace.keys()

    def covering(self, pod: Pod) -> list[WatchedBudget]:
        """Return the budgets that cover a pod."""
        return [one for one in self._by_namespace.get(pod.metadata.namespace, ()) if one.covers(pod)]

    def figures(self, watched: WatchedBudget, pods: Iterable[Pod], ready: Callable[[Pod], bool]) -> BudgetFigures:
        """Return the figures of a budget. ``pods``: those that it covers; ``ready`` returns whether a pod is ready."""
        read, status = self._count_read(watched), watched.budget.status
        now = self._count(watched, pods, ready)
        if read is None:
            return now._replace(slack=now.healthy - now.desired if now.expected and not now.fault else 0)
        expected = status.expected_pods + now.expected - read.expected
        desired = status.desired_healthy + now.desired - read.desired
        healthy = status.current_healthy + now.healthy - read.healthy
        began = status.disruptions_allowed or min(0, status.current_healthy - status.desired_healthy)
        slack = began + now.healthy - read.healthy - (now.desired - read.desired)
        return BudgetFigures(expected, desired, healthy, slack=slack)

    def _count_read(self, watched: WatchedBudget) -> BudgetFigures | None:
        """Return the count of a budget's pods in the input if the figures in its status are up to date."""
        if not _is_counted(watched.budget):
            return None
        if watched.key not in self._read:
            covered = filter(watched.covers, self._pods.get(watched.budget.namespace, ()))
            self._read[watched.key] = self._count(watched, covered, looks_ready)
        return self._read[watched.key]

    def _count(self, watched: WatchedBudget, pods: Iterable[Pod], ready: Callable[[Pod], bool]) -> BudgetFigures:
        members = list(pods)
        healthy = sum(pod.metadata.deletion_timestamp is None and ready(pod) for pod in members)
        spec = watched.budget.spec
        if spec.max_unavailable is None and not isinstance(spec.min_available, str):
            return BudgetFigures(len(members), 1 if spec.min_available is None else spec.min_available, healthy)
        total, fault = self._replicas(members)
        if spec.max_unavailable is not None:
            return BudgetFigures(total, max(0, total - scaled(spec.max_unavailable, total, up=True)), healthy, fault)
        return BudgetFigures(total, scaled(spec.min_available, total, up=True), healthy, fault)

    def _replicas(self, pods: Iterable[Pod]) -> tuple[int, str]:
        """Return the total replicas of the pods' controllers and, if it is unknown, the reason."""
        wanted: dict[tuple[str, str, str], int | None] = {}
        seen: dict[tuple[str, str, str], int] = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is None:
                continue
            if owner.kind in _UNSCALED:
                return 0, f'found no controllers for pod "{pod.name}"'
            name, replicas = self._scaled_owner(pod.namespace, owner)
            wanted[name] = replicas
            seen[name] = seen.get(name, 0) + is_active(pod)
        for name in [name for name, replicas in wanted.items() if replicas is None]:
            wanted[name] = self._most[name] = max(seen[name], self._most.get(name, 0))
        return sum(replicas or 0 for replicas in wanted.values()), ""

    def _scaled_owner(self, namespace: str, owner: OwnerReference) -> tuple[tuple[str, str, str], int | None]:
        """Return the controller that sets the number of replicas, and this number; None if the controller does not exist."""
        kind = _SCALED.get(owner.kind)
        held = None if kind is None else self._find(kind, namespace, owner.name)
        if held is None:
            return (owner.kind, namespace, owner.name), None
        above = controller_of(held.metadata)
        if above is not None and above.kind in _SCALED:
            upper = self._find(_SCALED[above.kind], namespace, above.name)
            if upper is not None:
                return (above.kind, namespace, above.name), _replicas_of(upper)
        return (owner.kind, namespace, owner.name), _replicas_of(held)


def counted_budgets(
    budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod], objects: Iterable[Object],
    ready: Callable[[Pod], bool] = looks_ready, known: dict[tuple[str, int], PodDisruptionBudget] | None = None,
) -> tuple[PodDisruptionBudget, ...]:  # fmt: skip
    """Return budgets; those that the disruption controller has not counted yet allow what a count of their pods allows.

    ``objects``  among them the controllers of the pods
    ``known``    what was returned before: an equal answer is the same object
    """
    given = list(budgets)
    if all(map(_is_counted, given)):
        return tuple(given)
    held = {(type(one), one.metadata.namespace, one.metadata.name): one for one in objects}
    book = BudgetBook(given, lambda kind, namespace, name: held.get((kind, namespace, name)), ())
    members, known = pods_by_namespace(pods), {} if known is None else known
    allowed: dict[str, int] = {}
    for watched in (one for every in book._by_namespace.values() for one in every if not _is_counted(one.budget)):
        covered = filter(watched.covers, members.get(watched.budget.namespace, ()))
        allowed[watched.key] = book.figures(watched, covered, ready).allowed
    return tuple(_allowing(one, allowed[one.key], known) if one.key in allowed else one for one in given)


def _allowing(
    budget: PodDisruptionBudget, allowed: int, known: dict[tuple[str, int], PodDisruptionBudget]
) -> PodDisruptionBudget:
    key = budget.key, allowed
    if key not in known:
        known[key] = budget.replace(status=budget.status.replace(disruptions_allowed=allowed))
    return known[key]


def _replicas_of(held: Object) -> int:
    assert isinstance(held, Deployment | ReplicaSet | StatefulSet | ReplicationController)
    return 1 if held.spec.replicas is None else held.spec.replicas


def _is_counted(budget: PodDisruptionBudget) -> bool:
    """Return True if the disruption controller has counted this budget since it was changed last."""
    status = budget.status
    if status.observed_generation < budget.metadata.generation:
        return False
    figures = (status.observed_generation, status.expected_pods, status.current_healthy, status.desired_healthy)
    return any(figures) or status.disruptions_allowed > 0
