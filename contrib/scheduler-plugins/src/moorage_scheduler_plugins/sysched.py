"""SySched: place pods beside pods that may make the same system calls.

What a pod may call is in objects of the kind SeccompProfile, which annotations of the pod name. A node's score is the number
of calls that its pods and the new one would see and not make themselves.

Source  scheduler-plugins 903da7df82cb, pkg/sysched/sysched.go
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

import numpy as np

from moorage.framework import points
from moorage.framework.args import PluginArgs
from moorage.framework.events import Action, ClusterEvent, Wake
from moorage.framework.verdicts import SKIP, Skip
from moorage.state.view import IntArray, NodeInfo, NodeView, PodInfo, Snapshot
from moorage_scheduler_plugins.scaling import MOST

PROFILES: Final = "seccompprofiles.v1beta1.security-profiles-operator.x-k8s.io"
_ANNOTATION: Final = "seccomp.security.alpha.kubernetes.io"
_ALLOWED: Final = frozenset({"SCMP_ACT_ALLOW", "SCMP_ACT_LOG"})

Calls = frozenset[str]


class SySchedArgs(PluginArgs, frozen=True):
    """The profile of pods that name none."""

    default_profile_namespace: str = "default"
    default_profile_name: str = "all-syscalls"


class State:
    """The system calls of the pod that is placed, and of pods that were looked at."""

    def __init__(self, snapshot: Snapshot, args: SySchedArgs) -> None:
        self._profiles = snapshot.custom(PROFILES)
        self._usual = self._of_profile(args.default_profile_namespace, args.default_profile_name)
        self._known: dict[str, Calls] = {}

    def of(self, pod: PodInfo) -> Calls:
        found = self._known.get(pod.uid)
        if found is None:
            found = self._known[pod.uid] = self._own(pod) or self._usual
        return found

    def _own(self, pod: PodInfo) -> Calls:
        named = (path for key, path in (pod.metadata.annotations or {}).items() if _ANNOTATION in key)
        path = PurePosixPath(next(named, ""))
        return self._of_profile(path.parent.name, path.stem) if path.parent.name else frozenset()

    def _of_profile(self, namespace: str, name: str) -> Calls:
        profile = self._profiles.get(f"{namespace}/{name}")
        groups = [] if profile is None else profile.get("spec", "syscalls", default=[]) or []
        return frozenset(call for group in groups if group.get("action") in _ALLOWED for call in group.get("names") or ())


#: What PreScore hands on: the calls that pods may make, and the pod that is placed.
Both = tuple[State, PodInfo]


class SySched(
    points.PreScorePlugin[Both], points.ScoreNodePlugin[Both], points.ScoreExtensions[Both],
    points.EnqueueExtensions,
):  # fmt: skip
    name = "SySched"
    Args = SySchedArgs

    def __init__(self, args: SySchedArgs | None = None) -> None:
        self._args = args or SySchedArgs()

    def wakes_on(self) -> Iterator[Wake]:
        # It rejects no pod; the kind is named to be watched.
        yield Wake(ClusterEvent(PROFILES, Action.UPDATE), when=lambda pod, old, new: False)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> Both | Skip:
        state = State(snapshot, self._args)
        return (state, pod) if state.of(pod) else SKIP

    def score_node(self, state: Both, node: NodeInfo) -> int:
        known, pod = state
        own = known.of(pod)
        there = [known.of(other) for other in node.pods]
        if not there:
            return 0
        host = frozenset[str]().union(*there)
        together = host | own
        return len(host - own) + sum(len(together - calls) for calls in there)

    def normalize(self, state: Both, scores: IntArray) -> IntArray:
        most = int(scores.max()) if len(scores) else 0
        if not most:
            return np.full(len(scores), MOST, dtype=np.int64)
        return MOST - scores * MOST // most
