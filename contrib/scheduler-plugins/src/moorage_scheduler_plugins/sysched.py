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
from moorage.framework.handle import Handle
from moorage.state.view import IntArray, NodeInfo, PodInfo, Snapshot
from moorage_scheduler_plugins.scaling import MOST

PROFILES: Final = "seccompprofiles.v1beta1.security-profiles-operator.x-k8s.io"
_ANNOTATION: Final = "seccomp.security.alpha.kubernetes.io"
_ALLOWED: Final = frozenset({"SCMP_ACT_ALLOW", "SCMP_ACT_LOG"})

Calls = frozenset[str]


class SySchedArgs(PluginArgs, frozen=True):
    """The profile of pods that name none."""

    default_profile_namespace: str = "default"
    default_profile_name: str = "all-syscalls"


class CallBook:
    """The system calls of the pods that were looked at, as the profiles of a snapshot say."""

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


class SySched(
    points.ScoreNodePlugin[PodInfo], points.ScoreExtensions[PodInfo], points.EnqueueExtensions, points.Attachable
):  # fmt: skip
    name = "SySched"
    Args = SySchedArgs

    def __init__(self, args: SySchedArgs | None = None) -> None:
        self._args = args or SySchedArgs()
        self._handle: Handle | None = None
        #: The version of the objects → the calls that they allow.
        self._book: tuple[int, CallBook] | None = None

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def wakes_on(self) -> Iterator[Wake]:
        # It rejects no pod; the kind is named to be watched.
        yield Wake(ClusterEvent(PROFILES, Action.UPDATE), when=lambda pod, old, new: False)

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        book = self._current()
        own = frozenset[str]() if book is None else book.of(pod)
        if book is None or not own or not node.pods:
            return 0
        there = [book.of(other) for other in node.pods]
        host = frozenset[str]().union(*there)
        together = host | own
        return len(host - own) + sum(len(together - calls) for calls in there)

    def normalize(self, pod: PodInfo, scores: IntArray) -> IntArray:
        most = int(scores.max()) if len(scores) else 0
        if not most:
            return np.full(len(scores), MOST, dtype=np.int64)
        return MOST - scores * MOST // most

    def _current(self) -> CallBook | None:
        if self._handle is None:
            return None
        snapshot = self._handle.snapshot
        if self._book is None or self._book[0] != snapshot.objects_changed:
            self._book = snapshot.objects_changed, CallBook(snapshot, self._args)
        return self._book[1]
