"""A plugin's access to the scheduler that runs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from moorage.framework.feature_gates import FeatureGates
from moorage.state.view import PodInfo, Snapshot


class WaitingPod(Protocol):
    """A pod that a Permit plugin makes wait on its node."""

    @property
    def pod(self) -> PodInfo:
        """The pod."""

    @property
    def node(self) -> str:
        """The node that is reserved for it."""

    @property
    def pending(self) -> tuple[str, ...]:
        """Plugins that have not allowed it yet."""

    def allow(self, plugin: str) -> None:
        """Stop waiting for this plugin; the pod is bound once no plugin is left."""

    def reject(self, plugin: str, message: str) -> None:
        """Reject the pod: its node is released, and it returns to the queue."""


class Handle(Protocol):
    """A plugin's access to the scheduler that runs it."""

    @property
    def gates(self) -> FeatureGates:
        """The feature gates of the scheduler."""

    @property
    def snapshot(self) -> Snapshot:
        """The state at the start of the current attempt."""

    @property
    def max_disks(self) -> int | None:
        """The limit of in-tree volumes for nodes that report none; None: the default of each volume type."""

    @property
    def now(self) -> float:
        """Seconds on the scheduler's clock, at the start of the current attempt."""

    @property
    def unix_s(self) -> float:
        """``now`` as Unix time, for timestamps in objects; in a simulation, seconds since its start."""

    def waiting(self) -> Iterable[WaitingPod]:
        """Return the pods that wait in Permit, in the order they began to wait."""

    def evicting_for(self, uid: str) -> bool:
        """Return True while evictions for this pod are in progress: handed to the driver, and neither done nor failed."""

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move these pending pods to the active queue, unless they are gated."""

    def activate_group(self, pod: PodInfo) -> None:
        """Move the pending pods of the pod's group to the active queue, unless they are gated."""
