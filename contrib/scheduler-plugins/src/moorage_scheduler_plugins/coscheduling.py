"""Coscheduling: bind the pods of a group together, once so many of them have a node.

A pod belongs to the group that its label ``scheduling.x-k8s.io/pod-group`` names, an object of the kind PodGroup. PreFilter
refuses pods of groups that cannot be complete, Permit lets the others wait on their nodes until enough have one, and PostFilter
and Unreserve send all back when one of them finds none.

Source  scheduler-plugins 903da7df82cb, pkg/coscheduling/coscheduling.go and core/core.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from moorage.api.custom_objects import CustomObject
from moorage.api.feature_gates import FeatureGates
from moorage.api.quantity import milli_value, value
from moorage.errors import Fault
from moorage.framework import points
from moorage.framework.args import Int32
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.handle import Handle, WaitingPod
from moorage.framework.points import Attempt, PostFilterResult, SortableQueued
from moorage.framework.verdicts import SKIP, Code, Hold, Skip, Wait
from moorage.state.view import PodInfo, Snapshot
from moorage_scheduler_plugins.earlier_args import EarlierArgs

POD_GROUPS: Final = "podgroups.v1alpha1.scheduling.x-k8s.io"
LABEL: Final = "scheduling.x-k8s.io/pod-group"
_DEFAULT_WAIT_S: Final = 60


class CoschedulingArgs(EarlierArgs, frozen=True):
    """How long pods wait for their group, how long a failed group backs off, and how few missing pods are worth more attempts.

    ``pod_group_reject_percentage``: a group of which at most so many percent have no node is not rejected
    """

    permit_waiting_time_seconds: int = _DEFAULT_WAIT_S
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: Int32 = 10
    denied_expiration: int = msgspec.field(default=20, name="deniedPGExpirationTimeSeconds")  # of earlier releases

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        found = [
            Fault("Invalid value", f"{path}.{name}", "must be greater than or equal to 0", given)
            for name, given in (
                ("permitWaitingTimeSeconds", self.permit_waiting_time_seconds),
                ("podGroupBackoffSeconds", self.pod_group_backoff_seconds),
            )
            if given < 0
        ]
        share = self.pod_group_reject_percentage
        if not 0 <= share <= 100:
            found.append(Fault("Invalid value", f"{path}.podGroupRejectPercentage", "must be between 0 and 100", share))
        return found


class Coscheduling(
    points.QueueSortPlugin, points.PreFilterPlugin[None], points.PostFilterPlugin, points.ReservePlugin[None],
    points.PermitPlugin[None], points.PostBindPlugin[None], points.EnqueueExtensions, points.Attachable, points.PodFollower,
):  # fmt: skip
    name = "Coscheduling"
    Args = CoschedulingArgs

    def __init__(self, args: CoschedulingArgs | None = None) -> None:
        self._args = args or CoschedulingArgs()
        self._handle: Handle | None = None
        #: Group → its pods by UID, wherever they are; and the UIDs of those that have a node.
        self._pods: dict[str, dict[str, PodInfo]] = {}
        self._assigned: dict[str, set[str]] = {}
        #: Group → until when it backs off; until when its resources count as sufficient; and when it failed last, as Unix time.
        self._backing_off: dict[str, float] = {}
        self._permitted: dict[str, float] = {}
        self._failed: dict[str, float] = {}
        self._first_seen: dict[str, float] = {}

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def pod_changed(self, old: PodInfo | None, new: PodInfo | None) -> None:
        pod = new or old
        group = group_of(pod) if pod is not None else ""
        if pod is None or not group:
            return
        if new is None:
            self._pods.get(group, {}).pop(pod.uid, None)
            self._unassign(group, pod.uid)
            if not self._pods.get(group):
                self._pods.pop(group, None)
                self._first_seen.pop(group, None)
            return
        self._pods.setdefault(group, {})[pod.uid] = new
        if new.spec.node_name:
            self._assigned.setdefault(group, set()).add(pod.uid)

    # -- the queue ----------------------------------------------------------------------------------------------------

    def sort_key(self, queued: SortableQueued) -> Any:
        pod = queued.pod
        return -pod.priority, self._came(pod, queued.timestamp), f"{pod.namespace}/{pod.name}"

    def _came(self, pod: PodInfo, timestamp: float) -> float:
        """Return when the pod came, or its group was created or failed last, as Unix time."""
        handle, group = self._handle, group_of(pod)
        if handle is None:
            return timestamp
        at = timestamp + handle.unix_s - handle.now
        if not group:
            return at
        if group in self._failed:
            return self._failed[group]
        found = self._find(group)
        created = "" if found is None else found.metadata.creation_timestamp
        if not created:  # files may lack it
            return self._first_seen.setdefault(group, at)
        return datetime.fromisoformat(created).timestamp()

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.ADD))
        yield Wake(ClusterEvent(POD_GROUPS, Action.ADD | Action.UPDATE))

    # -- the scheduling cycle -----------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Hold | Skip:
        key = group_of(pod)
        group = snapshot.custom(POD_GROUPS).get(key) if key else None
        if group is None:
            return SKIP
        why = self._why_incomplete(pod, key, least_of(group)) or self._why_too_large(key, group, snapshot)
        return Hold.because(why, unresolvable=True) if why else SKIP

    def _why_incomplete(self, pod: PodInfo, key: str, least: int) -> str:
        if self._backing_off.get(key, -1.0) > self._now:
            return f"podGroup {key} failed recently"
        siblings = self._pods.get(key, {})
        if len(siblings) < least:
            return (
                f"pre-filter pod {pod.name} cannot find enough sibling pods, current pods number: {len(siblings)},"
                f" minMember of group: {least}"
            )
        gated = sum(bool(other.spec.scheduling_gates) for other in siblings.values())
        if len(siblings) - gated < least:
            return f"pre-filter pod {pod.name} cannot proceed due to gated pods in the same PodGroup"
        return ""

    def _why_too_large(self, key: str, group: CustomObject, snapshot: Snapshot) -> str:
        """Return which resources of ``minResources`` the cluster lacks, with the group's own pods taken away; "" for none."""
        wanted = group.get("spec", "minResources")
        if wanted is None or self._permitted.get(key, -1.0) > self._now:
            return ""
        gap = {name: milli_value(text) if name == "cpu" else value(text) for name, text in wanted.items()}
        gap["pods"] = least_of(group)
        for node in snapshot.nodes:
            own = [pod for pod in node.pods if group_of(pod) == key]
            for name in list(gap):
                if name == "pods":
                    free = node.allowed_pods - node.pod_count + len(own)
                else:
                    free = node.allocatable(name) - node.requested(name) + sum(pod.requests.get(name, 0) for pod in own)
                gap[name] -= free
                if gap[name] <= 0:
                    del gap[name]
            if not gap:
                self._permitted[key] = self._now + self._args.permit_waiting_time_seconds
                return ""
        return f"resource gap: {', '.join(f'{name} {amount}' for name, amount in sorted(gap.items()))}"

    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult:
        key = group_of(pod)
        group = attempt.snapshot.custom(POD_GROUPS).get(key) if key else None
        if group is None:
            return PostFilterResult(Code.UNSCHEDULABLE, ("can not find pod group",))
        least, assigned = least_of(group), len(self._assigned.get(key, ()))
        if assigned >= least or (least - assigned) * 100 <= self._args.pod_group_reject_percentage * least:
            return PostFilterResult(Code.UNSCHEDULABLE)
        # If one pod fits nowhere, the others of its group very likely fit nowhere either.
        self._reject_waiting(key, "optimistic rejection in PostFilter")
        if self._args.pod_group_backoff_seconds and len(self._pods.get(key, ())) >= least:
            self._backing_off.setdefault(key, self._now + self._args.pod_group_backoff_seconds)
            if self._backing_off[key] <= self._now:
                self._backing_off[key] = self._now + self._args.pod_group_backoff_seconds
        self._note_failure(key)
        text = f"PodGroup {key} gets rejected due to Pod {pod.name} is unschedulable even after PostFilter"
        return PostFilterResult(Code.UNSCHEDULABLE, (text,))

    # -- the binding cycle --------------------------------------------------------------------------------------------

    def reserve(self, state: None, pod: PodInfo, node: str) -> None:
        return None

    def permit(self, state: None, pod: PodInfo, node: str) -> Hold | Wait | None:
        key = group_of(pod)
        if not key:
            return None
        group = self._find(key)
        if group is None:
            return Hold.because("PodGroup not found")
        assigned = self._assigned.setdefault(key, set())
        assigned.add(pod.uid)
        if len(assigned) >= least_of(group):
            self._failed.pop(key, None)
            for held in self._waiting(key):
                held.allow(self.name)
            return None
        if len(assigned) == 1 and self._handle is not None:  # the first pod wakes the others
            self._handle.activate(other for uid, other in self._pods.get(key, {}).items() if uid != pod.uid)
        own = group.get("spec", "scheduleTimeoutSeconds")
        return Wait(float(own if own is not None else self._args.permit_waiting_time_seconds or _DEFAULT_WAIT_S))

    def unreserve(self, state: None, pod: PodInfo, node: str) -> None:
        key = group_of(pod)
        if not key or self._find(key) is None:
            return
        self._unassign(key, pod.uid)
        self._reject_waiting(key, "rejection in Unreserve")
        self._note_failure(key)

    def post_bind(self, state: None, pod: PodInfo, node: str) -> None:
        """Do nothing: earlier releases counted the group here, and configurations still enable the point."""

    # -- groups -------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return 0.0 if self._handle is None else self._handle.now

    def _find(self, key: str) -> CustomObject | None:
        return None if self._handle is None else self._handle.snapshot.custom(POD_GROUPS).get(key)

    def _waiting(self, key: str) -> Iterable[WaitingPod]:
        return [] if self._handle is None else [held for held in self._handle.waiting() if group_of(held.pod) == key]

    def _reject_waiting(self, key: str, message: str) -> None:
        for held in self._waiting(key):
            held.reject(self.name, message)

    def _note_failure(self, key: str) -> None:
        self._permitted.pop(key, None)
        if self._handle is not None:
            self._failed[key] = self._handle.unix_s

    def _unassign(self, key: str, uid: str) -> None:
        assigned = self._assigned.get(key)
        if assigned is not None:
            assigned.discard(uid)
            if not assigned:
                del self._assigned[key]


def group_of(pod: PodInfo) -> str:
    """Return the namespace and name of a pod's group; "" if it has none."""
    name = pod.labels.get(LABEL, "")
    return f"{pod.namespace}/{name}" if name else ""


def least_of(group: CustomObject) -> int:
    """Return how many pods of a group must have a node."""
    return int(group.get("spec", "minMember", default=0) or 0)
