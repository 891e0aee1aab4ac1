"""The disruption controller: count a budget's healthy pods, and how many disruptions it allows.

Source  kubernetes, pkg/controller/disruption/disruption.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.selectors import EVERYTHING, Selector
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import EventStep, Later, SetStatus, Step

#: How long an allowed eviction counts while its pod is neither deleted nor terminating, in seconds.
_EVICTION_S: Final = 120.0
_SCALED: Final = (k8s.DEPLOYMENTS, k8s.REPLICA_SETS, k8s.STATEFUL_SETS, k8s.CONTROLLERS)


_RULE: Final = "LabelSelectorRequirement"
#: Kubernetes' own text, with the selector as Go prints it.
_ALONE: Final = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB "
    "cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set "
    '".spec.minAvailable" field of the PDB to an integer value.'
)


class _Expected(NamedTuple):
    """The expected number of pods, and how many of them must be healthy. If unknown, ``fault`` is the reason.

    ``alone`` is True if some pods have no controller.
    """

    pods: int
    healthy: int
    fault: str = ""
    alone: bool = False


class Disruption:
    name = "controllermanager"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.DISRUPTION_BUDGETS:
            yield k8s.key_of(event.latest)
        elif event.kind is k8s.PODS:
            for budget in world.all(k8s.DISRUPTION_BUDGETS, k8s.namespace_of(event.latest)):
                selector = _selector(budget)
                if any(one is not None and selector.matches(k8s.labels_of(one)) for one in (event.old, event.new)):
                    yield k8s.key_of(budget)
        elif event.kind in _SCALED:
            before, after = (None if one is None else k8s.spec_of(one).get("replicas") for one in (event.old, event.new))
            if event.old is None or event.new is None or before != after:
                yield from map(k8s.key_of, world.all(k8s.DISRUPTION_BUDGETS, k8s.namespace_of(event.latest)))

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        budget = world.find(k8s.DISRUPTION_BUDGETS, key)
        if budget is None or k8s.is_ending(budget):
            return
        selector = _selector(budget)
        pods = [pod for pod in world.all(k8s.PODS, k8s.namespace_of(budget)) if selector.matches(k8s.labels_of(pod))]
        disrupted, wait_s = _disrupted(budget, pods, now)
        if wait_s is not None:
            yield Later(wait_s)
        expected = _expected(budget, pods, world)
        yield from _events(budget, pods, expected)
        healthy = sum(k8s.is_ready(pod) for pod in pods if k8s.is_active(pod) and k8s.name_of(pod) not in disrupted)
        allowed = 0 if expected.fault or not expected.pods else max(0, healthy - expected.healthy)
        status: Document = {
            "currentHealthy": healthy,
            "desiredHealthy": expected.healthy,
            "expectedPods": expected.pods,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 0),
            "conditions": _conditions(budget, allowed, expected, now),
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        if status != k8s.status_of(budget):
            yield SetStatus(k8s.DISRUPTION_BUDGETS, budget, status)


def _events(budget: Document, pods: list[Document], expected: _Expected) -> Iterator[Step]:
    if not pods:
        yield EventStep(k8s.DISRUPTION_BUDGETS, budget, "Normal", "NoPods", "No matching pods found")
    if expected.fault:
        text = f"Failed to calculate the number of expected pods: {expected.fault}"
        yield EventStep(k8s.DISRUPTION_BUDGETS, budget, "Warning", "CalculateExpectedPodCountFailed", text)
    elif expected.alone:
        shown = _as_go_prints(k8s.spec_of(budget).get("selector"))
        yield EventStep(k8s.DISRUPTION_BUDGETS, budget, "Warning", "UnmanagedPods", _ALONE.format(shown))


def _as_go_prints(selector: Document | None) -> str:
    if selector is None:
        return "nil"
    labels = "".join(f"{name}: {value}," for name, value in sorted((selector.get("matchLabels") or {}).items()))
    rules = "".join(
        f"{_RULE}{{Key:{one['key']},Operator:{one['operator']},Values:[{' '.join(one.get('values') or [])}],}},"
        for one in selector.get("matchExpressions") or ()
    )
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]{_RULE}{{{rules}}},}}"


def _selector(budget: Document) -> Selector:
    """Return the selector of a budget: an empty one matches every pod, a missing one none."""
    selector = k8s.spec_of(budget).get("selector")
    return EVERYTHING if isinstance(selector, dict) and not any(selector.values()) else k8s.selector_of(selector)


def _disrupted(budget: Document, pods: Iterable[Document], now: float) -> tuple[dict[str, str], float | None]:
    """Return the allowed evictions whose pods are not terminating yet, and in how many seconds the first expires."""
    there = {k8s.name_of(pod): pod for pod in pods}
    kept, waits = {}, []
    for name, since in (k8s.status_of(budget).get("disruptedPods") or {}).items():
        left_s = k8s.seconds(since) + _EVICTION_S - now
        if name in there and not k8s.is_ending(there[name]) and left_s > 0:
            kept[name] = since
            waits.append(left_s)
    return kept, min(waits, default=None)


def _expected(budget: Document, pods: list[Document], world: ObjectIndex) -> _Expected:
    spec = k8s.spec_of(budget)
    if (most := spec.get("maxUnavailable")) is not None:
        total, fault, alone = _wanted_by_owners(pods, world)
        return _Expected(total, max(0, total - k8s.scaled(most, total, up=True)), fault, alone)
    least = spec.get("minAvailable", 1)
    if isinstance(least, str):
        total, fault, alone = _wanted_by_owners(pods, world)
        return _Expected(total, k8s.scaled(least, total, up=True), fault, alone)
    return _Expected(len(pods), int(least))


def _wanted_by_owners(pods: Iterable[Document], world: ObjectIndex) -> tuple[int, str, bool]:
    """Return the total replicas of the pods' controllers, the reason if that is unknown, and whether pods lack a controller."""
    wanted: dict[str, int] = {}
    alone = False
    for pod in pods:
        ref = k8s.controller_of(pod)
        if ref is None:
            alone = True
            continue
        held = world.by_uid(ref["uid"])
        above = k8s.controller_of(held[1]) if held is not None else None
        if above is not None and (upper := world.by_uid(above["uid"])) is not None:
            held = upper
        if held is None or held[0] not in _SCALED:
            return 0, f'found no controllers for pod "{k8s.name_of(pod)}"', alone
        wanted[held[1]["metadata"]["uid"]] = int(k8s.spec_of(held[1]).get("replicas", 1))
    return sum(wanted.values()), "", alone


def _conditions(budget: Document, allowed: int, expected: _Expected, now: float) -> list[Document]:
    held = k8s.status_of(budget).get("conditions") or ()
    truth, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    if expected.fault:
        truth, reason = "False", "SyncFailed"
    generation = budget["metadata"].get("generation", 0)
    made = k8s.with_condition(held, "DisruptionAllowed", truth, now, reason, expected.fault, observedGeneration=generation)
    return [{"message": "", **one} for one in made]
