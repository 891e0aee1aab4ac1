"""A ``Handle`` for tests of plugins: it has a snapshot, a time and waiting pods, and no scheduler behind it."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.feature_gates import FeatureGates
from moorage.framework.handle import Handle, WaitingPod
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
    """

    def __init__(self, snapshot: Snapshot, *, gates: FeatureGates | None = None, now: float = 0.0) -> None:
        self._snapshot = snapshot
        self._gates = FeatureGates() if gates is None else gates
        self._now = now
        self.held: list[FakeWaitingPod] = []
        self.activated: list[PodInfo] = []
        self.evicting: set[str] = set()

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

    def activate_group(self, pod: PodInfo) -> None:
        self.activated.append(pod)
