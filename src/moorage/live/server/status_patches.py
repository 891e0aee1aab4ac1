"""Patches of statuses in kube-scheduler's form: strategic merges of the fields that change, and of nothing else.

A condition is found by its type. ``$setElementOrder/conditions`` gives the order of all conditions, and each one that changes
comes with its type and the fields that differ; a new one with all of its fields. The first condition comes without an order.

Source  kube-scheduler, pkg/scheduler/util/utils.go, PatchPodStatus; apimachinery, strategicpatch, CreateTwoWayMergePatch
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from moorage.api.core import Pod, PodCondition
from moorage.api.pod_groups import Condition, PodGroup

_Fields = Mapping[str, Any]


def pod_patch(pod: Pod, condition: PodCondition | None, nominated: str | None) -> dict[str, Any]:
    """Return the patch that sets a condition and the nominated node of a pod; empty if the pod has both.

    ``condition`` None keeps the conditions, ``nominated`` None the nominated node; "" clears it. The condition keeps the
    time of the one before while its status is the same.
    """
    status: dict[str, Any] = {}
    if condition is not None:
        held = next((one for one in pod.status.conditions if one.type == condition.type), None)
        if held is not None and held.status == condition.status:
            condition = replace(condition, last_transition_time=held.last_transition_time)
        if held is None or not _is_same(held, condition):
            known = [_of_pod(one) for one in pod.status.conditions]
            status |= _conditions(known, _of_pod(condition))
    if nominated is not None and nominated != pod.status.nominated_node_name:
        status["nominatedNodeName"] = nominated or None
    return {"status": status} if status else {}


def _is_same(held: PodCondition, wanted: PodCondition) -> bool:
    """Return whether a condition says the same; another ``observedGeneration`` alone is no reason to write."""
    return (held.status, held.reason, held.message) == (wanted.status, wanted.reason, wanted.message)


def group_patch(group: PodGroup, condition: Condition) -> dict[str, Any]:
    """Return the patch that sets a condition of a pod group; empty if the group has it."""
    known = [_of_group(one) for one in group.status.conditions]
    status = _conditions(known, _of_group(condition))
    return {"status": status} if status else {}


def _conditions(known: Sequence[_Fields], wanted: _Fields) -> dict[str, Any]:
    """Return the part of a patch that sets one condition beside those that are known."""
    before = next((one for one in known if one["type"] == wanted["type"]), None)
    order = [{"type": one["type"]} for one in known]
    if not known:
        return {"conditions": [dict(wanted)]}
    if before is None:
        order.append({"type": wanted["type"]})
        return {"$setElementOrder/conditions": order, "conditions": [dict(wanted)]}
    names = sorted({*before, *wanted})
    change = {name: wanted.get(name) for name in names if before.get(name) != wanted.get(name)}
    if not change:
        return {}
    return {"$setElementOrder/conditions": order, "conditions": [dict(sorted({**change, "type": wanted["type"]}.items()))]}


def _of_pod(condition: PodCondition) -> dict[str, Any]:
    """Return a condition of a pod as kube-scheduler writes it."""
    return {
        "lastProbeTime": None,
        "lastTransitionTime": condition.last_transition_time,
        **({"message": condition.message} if condition.message else {}),
        **({"observedGeneration": condition.observed_generation} if condition.observed_generation else {}),
        **({"reason": condition.reason} if condition.reason else {}),
        "status": condition.status,
        "type": condition.type,
    }


def _of_group(condition: Condition) -> dict[str, Any]:
    return {
        "lastTransitionTime": condition.last_transition_time,
        "message": condition.message,
        **({"observedGeneration": condition.observed_generation} if condition.observed_generation else {}),
        "reason": condition.reason,
        "status": condition.status,
        "type": condition.type,
    }
