"""A ``Handle`` for tests of plugins: it has a snapshot, a time and waiting pods, and no scheduler behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from moorage.api.feature_gates import FeatureGates
from moorage.framework.handle import Handle, PodLister, Refresh, WaitingPod
from moorage.state.view import PodInfo, Snapshot


class FakeWaitingPod(WaitingPod):
    """A pod that Permit holds. ``allowed`` and ``rejected`` are the plugins that answered, with the message of a rejection."""

    def __init__(self, pod: PodInfo, node: str, pending: Iterable[str] = ()) -> None:
        self._pod, self._node = pod, node
        self._pending = tuple(pending)
        self.allowed: list[str] = []
        self.rejected: list[tuple[str, str]] = []

    @property
    def pod(self) -> PodInfo:
        return self._pod

    @property
    def node(self) -> str:
        return self._node

    @property
    def pending(self) -> tuple[str, ...]:
        return tuple(name for name in self._pending if name not in self.allowed)

    def allow(self, plugin: str) -> None:
        self.allowed.append(plugin)

    def reject(self, plugin: str, message: str) -> None:
        self.rejected.append((plugin, message))


class FakeHandle(Handle):
    """What ``attach`` receives. Set its attributes as a test needs them, and read what the plugin asked for.

    ``held``       the pods that ``waiting`` returns
    ``activated``  the pods that the plugin activated, with those of groups
    ``evicting``   UIDs of pods for which ``evicting_for`` answers True
    ``queue``      the pods that ``pods.pending`` yields; the placed ones are those of the snapshot
    ``retried``    the pods to retry, each with its delay in seconds
    ``refreshes``  what the plugin asked to have executed beside scheduling
    """

    def __init__(self, snapshot: Snapshot, *, gates: FeatureGates | None = None, now: float = 0.0) -> None:
        self._snapshot = snapshot
        self._gates = FeatureGates() if gates is None else gates
        self._now = now
        self.held: list[FakeWaitingPod] = []
        self.activated: list[PodInfo] = []
        self.evicting: set[str] = set()
        self.queue: list[PodInfo] = []
        self.retried: list[tuple[PodInfo, float]] = []
        self.refreshes: list[Refresh] = []

    @property
    def gates(self) -> FeatureGates:
        return self._gates

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def max_disks(self) -> int | None:
        return None

    @property
    def now(self) -> float:
        return self._now

    @now.setter
    def now(self, seconds: float) -> None:
        self._now = seconds

    @property
    def unix_s(self) -> float:
        return self._now

    def waiting(self) -> Iterable[WaitingPod]:
        return tuple(self.held)

    def evicting_for(self, uid: str) -> bool:
        return uid in self.evicting

    def activate(self, pods: Iterable[PodInfo]) -> None:
        self.activated += pods

    @property
    def pods(self) -> PodLister:
        return _Pods(self)

    def retry(self, pods: Iterable[PodInfo], after_s: float) -> None:
        self.retried += [(pod, after_s) for pod in pods]

    def refresh(
        self, plugin: str, every_s: float, run: Callable[[], Any], stand_in: Callable[[], object] | None = None
    ) -> None:
        self.refreshes.append(Refresh(plugin, every_s, run, stand_in))

    def activate_group(self, pod: PodInfo) -> None:
        self.activated.append(pod)


class _Pods(PodLister):
    def __init__(self, handle: FakeHandle) -> None:
        self._handle = handle

    def get(self, uid: str) -> PodInfo | None:
        known = [*self._handle.queue, *(pod for pod, _ in self.placed())]
        return next((pod for pod in known if pod.uid == uid), None)

    def pending(self) -> Iterator[PodInfo]:
        return iter(tuple(self._handle.queue))

    def placed(self) -> Iterator[tuple[PodInfo, str]]:
        table = self._handle.snapshot.table
        for row, node in enumerate(table.nodes):
            yield from ((pod, node.name) for pod in table.pods[row].values())

    def waiting(self) -> Iterable[WaitingPod]:
        return tuple(self._handle.held)

    def nominated(self, node: str) -> Iterable[PodInfo]:
        return tuple(pod for pod in self._handle.queue if pod.status.nominated_node_name == node)

    def node_of(self, uid: str) -> str | None:
        return next((node for pod, node in self.placed() if pod.uid == uid), None)
