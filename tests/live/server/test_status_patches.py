"""Patches of statuses have the form of kube-scheduler's."""

from moorage.api.core import ObjectMeta, Pod, PodCondition, PodStatus
from moorage.live.server.status_patches import pod_patch

AT = "2026-01-01T00:00:00Z"
NEW = PodCondition(type="PodScheduled", status="False", reason="R", message="m", last_transition_time=AT)
WRITTEN = {
    "lastProbeTime": None, "lastTransitionTime": AT, "message": "m", "reason": "R", "status": "False", "type": "PodScheduled",
}  # fmt: skip


def patch_beside(*conditions):
    return pod_patch(Pod(metadata=ObjectMeta(name="p"), status=PodStatus(conditions=conditions)), NEW, None)["status"]


def test_the_first_condition_comes_without_an_order():
    assert patch_beside() == {"conditions": [WRITTEN]}


def test_another_one_comes_with_the_order_of_all():
    order = [{"type": "Ready"}, {"type": "PodScheduled"}]
    held = PodCondition(type="Ready", status="True", last_transition_time=AT)
    assert patch_beside(held) == {"$setElementOrder/conditions": order, "conditions": [WRITTEN]}
