"""A plugin's access to the scheduler that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

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


class PodLister(Protocol):
    """The pods that the scheduler knows, as of the current attempt."""

    def get(self, uid: str) -> PodInfo | None:
        """Return a pod by its UID, wherever it is; None if the scheduler does not know it."""

    def pending(self) -> Iterable[PodInfo]:
        """Yield the pods of this scheduler without a node: active, in backoff, unschedulable, gated, and the tried one."""

    def placed(self) -> Iterable[tuple[PodInfo, str]]:
        """Yield the pods on nodes, each with its node, including those that were placed just now and are not yet bound."""

    def waiting(self) -> Iterable[WaitingPod]:
        """Yield the pods that Permit holds. They are among the placed ones, too."""

    def node_of(self, uid: str) -> str | None:
        """Return the node of a placed pod; None for any other."""

    def nominated(self, node: str) -> Iterable[PodInfo]:
        """Yield the pods that are nominated to a node, by descending priority."""


class Refresh(NamedTuple):
    """Work of a plugin beside scheduling, such as a request for metrics: every ``every_s`` seconds, the first time at once.

    ``run``       awaited by ``moorage run`` and ``up``, if it is asynchronous; otherwise called in a thread of its own
    ``stand_in``  called in its place by a simulation, before the first attempt at or after its time; None: nothing is done
    """

    plugin: str
    every_s: float
    run: Callable[[], Any]
    stand_in: Callable[[], object] | None = None


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

    @property
    def pods(self) -> PodLister:
        """The pods that the scheduler knows: pending, placed, and held by Permit."""

    def retry(self, pods: Iterable[PodInfo], after_s: float) -> None:
        """Move these pods to the active queue after so many seconds of the scheduler's clock, if they are still pending."""

    def refresh(
        self, plugin: str, every_s: float, run: Callable[[], Any], stand_in: Callable[[], object] | None = None
    ) -> None:
        """Have ``run`` executed every ``every_s`` seconds beside scheduling; see ``Refresh``.

        An exception is logged, and the next refresh comes as usual. After each, the scheduler asks for the version of
        ``Reuse.outside``: if it differs, kept answers are forgotten, and the pods that the plugin rejected are retried.
        """

    def activate_group(self, pod: PodInfo) -> None:
        """Move the pending pods of the pod's group to the active queue, unless they are gated."""
