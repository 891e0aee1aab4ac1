"""The controller of horizontal pod autoscalers: set the replicas of a workload by its metrics.

An autoscaler is looked at when it is created or changed, and every 15 seconds. The controller remembers its own recommendations
and changes, for the stabilization windows and rates of ``behavior``; after a restart it remembers nothing, as the original.

Source  kubernetes, pkg/controller/podautoscaler/horizontal.go; pkg/controller/podautoscaler/config
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.api.quantity import milli_value
from moorage.cluster.controllers.upkeep.replica_proposals import MetricError, ReplicaProposal, Tolerances, proposal_of
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import EventStep, Later, SetStatus, Step, Update

_AUTOSCALERS: Final = served("horizontalpodautoscalers", "autoscaling", "v2")
_PERIOD_S: Final = 15.0
#: Without ``behavior``: the window in which the highest recommendation counts, and how fast a workload grows.
_DOWNSCALE_WINDOW_S: Final = 300
_UP_FACTOR, _UP_LEAST = 2.0, 4
_LONGEST_S: Final = 3600


@dataclass
class _Memory:
    """The recommendations for one autoscaler, and the changes that it made, each with its time."""

    recommendations: list[tuple[float, int]] = field(default_factory=list)
    ups: list[tuple[float, int]] = field(default_factory=list)
    downs: list[tuple[float, int]] = field(default_factory=list)


class _Conditions:
    """The conditions of an autoscaler, which are set one after the other."""

    def __init__(self, autoscaler: Document, now: float) -> None:
        self.found = [dict(one) for one in k8s.status_of(autoscaler).get("conditions") or ()]
        self._now = now

    def set(self, name: str, is_true: bool, reason: str, message: str) -> None:
        self.found = k8s.with_condition(self.found, name, "True" if is_true else "False", self._now, reason, message)


class PodAutoscalers:
    name = "horizontal-pod-autoscaler"

    def __init__(self) -> None:
        self._memories: dict[str, _Memory] = {}

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is not _AUTOSCALERS:
            return
        if event.new is None:
            self._memories.pop(k8s.key_of(event.latest), None)
        elif event.old is None or k8s.spec_of(event.old) != k8s.spec_of(event.new):
            yield k8s.key_of(event.new)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        autoscaler = world.find(_AUTOSCALERS, key)
        if autoscaler is None:
            return
        yield from self._steps(key, autoscaler, world, now)
        yield Later(_PERIOD_S)

    def _steps(self, key: str, autoscaler: Document, world: ObjectIndex, now: float) -> Iterator[Step]:
        conditions = _Conditions(autoscaler, now)
        reference = k8s.spec_of(autoscaler)["scaleTargetRef"]
        kind, target = _target(world, k8s.namespace_of(autoscaler), reference)
        if kind is None or target is None:
            if kind is None:
                group = str(reference.get("apiVersion") or "").rpartition("/")[0]
                why = f'no matches for kind "{reference["kind"]}" in group "{group}"'
            else:
                why = f'{kind.qualified} "{reference["name"]}" not found'
            text = f"the HPA controller was unable to get the target's current scale: {why}"
            conditions.set("AbleToScale", False, "FailedGetScale", text)
            yield EventStep(_AUTOSCALERS, autoscaler, "Warning", "FailedGetScale", why)
            yield from _with_status(autoscaler, {**k8s.status_of(autoscaler), "conditions": conditions.found})
            return
        memory = self._memories.setdefault(key, _Memory())
        current = int(k8s.spec_of(target).get("replicas", 1))
        if not memory.recommendations:
            memory.recommendations.append((now, current))
        text = "the HPA controller was able to get the target's current scale"
        conditions.set("AbleToScale", True, "SucceededGetScale", text)
        wanted, reason = current, ""
        metrics: list[Document] = []
        least, most = int(k8s.spec_of(autoscaler).get("minReplicas", 1)), int(k8s.spec_of(autoscaler)["maxReplicas"])
        if current == 0 and least != 0:
            text = "scaling is disabled since the replica count of the target is zero"
            conditions.set("ScalingActive", False, "ScalingDisabled", text)
        elif current > most:
            wanted, reason = most, "Current number of replicas above Spec.MaxReplicas"
        elif current < least:
            wanted, reason = least, "Current number of replicas below Spec.MinReplicas"
        else:
            try:
                proposal, metrics = self._proposal(autoscaler, target, current, world, conditions, now)
            except MetricError as error:
                yield EventStep(_AUTOSCALERS, autoscaler, "Warning", error.reason, str(error))
                yield EventStep(_AUTOSCALERS, autoscaler, "Warning", "FailedComputeMetricsReplicas", str(error))
                status = {**k8s.status_of(autoscaler), "currentReplicas": current, "conditions": conditions.found}
                yield from _with_status(autoscaler, {**status, "currentMetrics": None})
                return
            wanted = proposal.replicas
            reason = f"{proposal.metric} above target" if wanted > current else "All metrics below target"
            wanted = _normalized(autoscaler, memory, current, wanted, conditions, now)
        yield from self._rescaled(autoscaler, kind, target, wanted, reason, metrics, conditions, memory, now)

    def _proposal(
        self, autoscaler: Document, target: Document, current: int, world: ObjectIndex, conditions: _Conditions, now: float
    ) -> tuple[ReplicaProposal, list[Document]]:
        """Return the proposal of the metric that asks for most, and the status of each.

        Raises  MetricError if no metric can be read, or one cannot and the others would scale down
        """
        selector = k8s.selector_of(k8s.spec_of(target).get("selector"))
        pods = [one for one in world.all(k8s.PODS, k8s.namespace_of(autoscaler)) if selector.matches(k8s.labels_of(one))]
        tolerances, specs = _tolerances(autoscaler), k8s.spec_of(autoscaler).get("metrics") or []
        found: list[ReplicaProposal] = []
        failed: list[MetricError] = []
        statuses: list[Document] = []
        for metric in specs:
            try:
                one = proposal_of(metric, pods, current, tolerances, lambda pod: _is_measured(pod, world), now)
            except MetricError as error:
                failed.append(error)
                statuses.append({"type": ""})
                continue
            found.append(one)
            statuses.append(one.status)
        best = max(found, key=lambda one: one.replicas, default=None)
        if best is None or (failed and best.replicas < current):
            first = failed[0]
            why = f"the HPA was unable to compute the replica count: {first}"
            conditions.set("ScalingActive", False, first.reason, why)
            text = f"invalid metrics ({len(failed)} invalid out of {len(specs)}), first error is: {first}"
            raise MetricError(first.reason, text)
        text = f"the HPA was able to successfully calculate a replica count from {best.metric}"
        conditions.set("ScalingActive", True, "ValidMetricFound", text)
        return best, statuses

    def _rescaled(
        self, autoscaler: Document, kind: ServedKind, target: Document, wanted: int, reason: str, metrics: list[Document],
        conditions: _Conditions, memory: _Memory, now: float,
    ) -> Iterator[Step]:  # fmt: skip
        current = int(k8s.spec_of(target).get("replicas", 1))
        status = {**k8s.status_of(autoscaler), "currentReplicas": current, "desiredReplicas": wanted}
        status["currentMetrics"] = metrics or None
        if wanted != current:
            revised = k8s.copied(target)
            revised["spec"] = {**k8s.spec_of(target), "replicas": wanted}
            yield Update(kind, revised)
            text = f"the HPA controller was able to update the target scale to {wanted}"
            conditions.set("AbleToScale", True, "SucceededRescale", text)
            yield EventStep(_AUTOSCALERS, autoscaler, "Normal", "SuccessfulRescale", f"New size: {wanted}; reason: {reason}")
            changes = memory.ups if wanted > current else memory.downs
            changes[:] = [one for one in changes if one[0] > now - _LONGEST_S]
            changes.append((now, abs(wanted - current)))
            status["lastScaleTime"] = k8s.stamp(now)
        yield from _with_status(autoscaler, {**status, "conditions": conditions.found})


def _target(world: ObjectIndex, namespace: str, reference: Mapping[str, Any]) -> tuple[ServedKind | None, Document | None]:
    """Return the kind and the object that a reference means; the version does not matter."""
    group = str(reference.get("apiVersion") or "").rpartition("/")[0]
    kinds = (one for one in world.kinds.served if (one.group, one.kind) == (group, reference["kind"]))
    kind = next((one for one in kinds if "scale" in one.subresources), None)
    return kind, None if kind is None else world.get(kind.storage, namespace, reference["name"])


def _is_measured(pod: Document, world: ObjectIndex) -> bool:
    node = world.get(k8s.NODES, "", k8s.spec_of(pod).get("nodeName") or "")
    return node is not None and k8s.is_condition_true(k8s.status_of(node), "Ready")


def _tolerances(autoscaler: Document) -> Tolerances:
    behavior = k8s.spec_of(autoscaler).get("behavior") or {}
    given = [(behavior.get(side) or {}).get("tolerance") for side in ("scaleDown", "scaleUp")]
    return Tolerances(*(0.1 if one is None else milli_value(one) / 1000 for one in given))


def _with_status(autoscaler: Document, status: Document) -> Iterator[Step]:
    if status != k8s.status_of(autoscaler):
        yield SetStatus(_AUTOSCALERS, autoscaler, status)


# -- limits -------------------------------------------------------------------------------------------------------------


def _normalized(autoscaler: Document, memory: _Memory, current: int, wanted: int, conditions: _Conditions, now: float) -> int:
    """Return the number of replicas after stabilization, rates and bounds, and set the conditions that say so."""
    behavior = k8s.spec_of(autoscaler).get("behavior")
    up, down = ((behavior or {}).get(side) for side in ("scaleUp", "scaleDown"))
    windows = [(rules or {}).get("stabilizationWindowSeconds") for rules in (up, down)]
    up_s, down_s = windows[0] or 0, _DOWNSCALE_WINDOW_S if windows[1] is None else windows[1]
    stable = _stabilized(memory, current, wanted, (up_s, down_s), now)
    if stable == wanted:
        conditions.set("AbleToScale", True, "ReadyForNewScale", "recommended size matches current size")
    elif wanted >= current:
        why = "recent recommendations were lower than current one, applying the lowest recent recommendation"
        conditions.set("AbleToScale", True, "ScaleUpStabilized", why)
    else:
        why = "recent recommendations were higher than current one, applying the highest recent recommendation"
        conditions.set("AbleToScale", True, "ScaleDownStabilized", why)
    limited, reason, message = _limited(autoscaler, memory, current, stable, (up, down), now)
    conditions.set("ScalingLimited", limited != stable, reason, message)
    return limited


def _stabilized(memory: _Memory, current: int, wanted: int, windows_s: tuple[int, int], now: float) -> int:
    """Return the recommendation that is nearest to the current number within the windows, and remember the last one."""
    up = min([wanted, *(count for when, count in memory.recommendations if when > now - windows_s[0])])
    down = max([wanted, *(count for when, count in memory.recommendations if when > now - windows_s[1])])
    memory.recommendations = [one for one in memory.recommendations if one[0] >= now - max(windows_s)]
    memory.recommendations.append((now, wanted))
    return min(max(current, up), down)


def _limited(
    autoscaler: Document, memory: _Memory, current: int, wanted: int, rules: tuple[Any, Any], now: float
) -> tuple[int, str, str]:
    """Return the number of replicas within rates and bounds, and the reason and message of the condition."""
    least, most = int(k8s.spec_of(autoscaler).get("minReplicas", 1)), int(k8s.spec_of(autoscaler)["maxReplicas"])
    if wanted > current:
        usual = max(math.ceil(_UP_FACTOR * current), _UP_LEAST)
        rate = max(current, usual if rules[0] is None else _rate_limit(memory, current, rules[0], now, up=True))
        if rate < most:
            reason, text = "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
        else:
            reason, text = "TooManyReplicas", "the desired replica count is more than the maximum replica count"
        if wanted > min(rate, most):
            return min(rate, most), reason, text
    elif wanted < current:
        rate = min(current, 0 if rules[1] is None else _rate_limit(memory, current, rules[1], now, up=False))
        if rate > least:
            reason, text = "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
        else:
            reason, text = "TooFewReplicas", "the desired replica count is less than the minimum replica count"
        if wanted < max(rate, least):
            return max(rate, least), reason, text
    elif wanted < least:
        return least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"
    return wanted, "DesiredWithinRange", "the desired count is within the acceptable range"


def _changed(changes: Iterable[tuple[float, int]], period_s: int, now: float) -> int:
    return sum(count for when, count in changes if when > now - period_s)


def _rate_limit(memory: _Memory, current: int, rules: Mapping[str, Any], now: float, *, up: bool) -> int:
    """Return up or down to how many replicas the policies of ``behavior`` allow a workload to grow or shrink."""
    if rules["selectPolicy"] == "Disabled":
        return current
    limits: list[int] = []
    for policy in rules["policies"]:
        grown, shrunk = (_changed(changes, policy["periodSeconds"], now) for changes in (memory.ups, memory.downs))
        start, change = current - grown + shrunk, policy["value"] if up else -policy["value"]
        share = start * (1 + change / 100)
        limits.append(start + change if policy["type"] == "Pods" else math.ceil(share) if up else int(share))
    return min(limits) if up is (rules["selectPolicy"] == "Min") else max(limits)
