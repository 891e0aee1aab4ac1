"""The state that the parts of the scheduler share: the cluster, the queue, the bindings, the outbox and the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.api.feature_gates import FeatureGates
from moorage.core.binding.binding import Binding
from moorage.core.cycle.decision import Decision
from moorage.core.engine.bindings import Bindings
from moorage.core.engine.facts import Phase
from moorage.core.engine.outbox import Outbox
from moorage.core.engine.outside import OutsideData, Retries
from moorage.core.engine.placer import Placer
from moorage.core.queue import ASSIGNED_POD_DELETE, QueuedPod, QueueTimes, SchedulingQueue
from moorage.core.queue.scheduling_queue import STANDARD_TIMES
from moorage.framework.profile import Profile
from moorage.state.cluster import ClusterState
from moorage.state.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The classes of a scheduler's cluster and queue; a driver that records changes passes subclasses."""

    cluster: type[ClusterState] = ClusterState
    queue: type[SchedulingQueue] = SchedulingQueue


STANDARD_PARTS: Final = EngineParts()


class EngineSettings(NamedTuple):
    """How a scheduler runs, beside its configuration.

    ``max_disks`` is the value of ``KUBE_MAX_PD_VOLS`` for plugins of earlier releases.
    """

    times: QueueTimes = STANDARD_TIMES
    max_disks: int | None = None
    parts: EngineParts = STANDARD_PARTS


STANDARD_SETTINGS: Final = EngineSettings()
_AUTHORS: Final = ('running Bind plugin "DefaultBinder": ',)


class EngineState:
    """The shared state of one scheduler. ``Scheduler`` owns it and sets ``profiles`` and ``queue`` at construction.

    ``now``             the driver's clock in seconds, as of the latest fact or step
    ``unix_offset_s``   seconds to add to ``now`` to get Unix time; the driver sets it
    ``revision``        grows with every change of the cluster, including pods that are assumed or forgotten: two attempts for a
                        pod at the same revision decide alike
    ``facts``           grows with every object event, but not with pods that are assumed or forgotten
    ``alert``           called when a plugin requests a step at once, as by allowing a waiting pod
    """

    queue: SchedulingQueue

    def __init__(self, gates: FeatureGates, cluster: type[ClusterState] = ClusterState) -> None:
        self.gates = gates
        self.cluster = cluster(keep_groups=gates["GenericWorkload"])
        self.profiles: Mapping[str, Profile] = {}
        self.bindings = Bindings()
        self.placer = Placer(self)
        self.outbox = Outbox()
        self.outside = OutsideData()
        self.retries = Retries()
        self.now = 0.0
        self.unix_offset_s = 0.0
        self.revision = 0
        self.facts = 0
        self.alert: Callable[[], None] = lambda: None

    def note_answer(self, binding: Binding) -> None:
        """Note that a plugin has allowed or rejected a binding, and call ``alert``."""
        self.bindings.note(binding)
        self.alert()

    def order_usual_bind(self, queued: QueuedPod, profile: Profile, decision: Decision, node: str) -> Binding:
        """Return the binding of an assumed pod that DefaultBinder binds at once; its ``ticket`` is the bind."""
        uid = queued.pod.uid
        self.outbox.tickets += 1
        ticket = self.outbox.tickets
        binding = Binding(queued, profile, decision, node, False, ticket=ticket, authors=_AUTHORS)
        self.bindings.by_uid[uid] = binding
        self.bindings.by_ticket[ticket] = (Phase.BIND, uid)
        return binding

    def release(self, binding: Binding) -> None:
        """Forget an assumed pod and wake the pods that may use its room. Does nothing for a pod that is confirmed."""
        if not self.cluster.is_assumed(binding.pod.uid):
            return
        pod = self.placer.undo(binding.pod.uid)
        if pod is not None:
            self.queue.event(ASSIGNED_POD_DELETE, pod.on(binding.node), None, self.now)

    def is_in_group(self, pod: PodInfo) -> bool:
        """Return True if the pod is scheduled together with its pod group."""
        return self.cluster.groups is not None and pod.spec.scheduling_group is not None
