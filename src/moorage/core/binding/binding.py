"""A pod between its decision and the end of its binding cycle.

It is assumed on its node. Which Permit plugins still make it wait and until when, which work is under way, and whether the pod
was deleted or bound by another client meanwhile, is recorded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from moorage.core.cycle.decision import Decision
from moorage.core.queue.queued_pod import QueuedPod
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Code, Status
from moorage.state.pod_info import PodInfo


class Binding(Struct, eq=False):
    """An assumed pod between its decision and its binding.

    ``busy``      True if PreFilter returned state for a plugin that otherwise does nothing from Reserve on
    ``waits``     Permit plugin → deadline in engine seconds; ``patience``: the timeout in seconds each of them was given;
                  ``waits_for``: the reasons of the last plugin that asked to wait
    ``verdict``   why the pod must release its node; it does so when the work under way has ended
    ``ticket``    the work under way; None while Permit holds the pod
    ``latest``    the newest version of the pod without a node
    ``withdrawn`` the pod was deleted, or another pod has its name; ``returned``: it exists again, on no node, as after a
                  restart of an API server that lost its last writes
    ``failed``    the failed decision, while Unreserve's effects are carried out
    ``bound_to``  the node that the API server reports for the pod, bound by us or by another scheduler
    ``expected``  the node was published as nominatedNodeName before PreBind
    ``authors``   for each effect under way, the prefix of its error that names the plugin
    ``alert``     called when a plugin allows or rejects the waiting pod, which can happen at any time
    ``order``     the number of the binding among those that were ever held
    ``may_do_without_extender``  the binding extender is ignorable; ``extender_failed``: it failed
    """

    queued: QueuedPod
    profile: Profile
    decision: Decision
    node: str
    busy: bool = True
    alert: Callable[[Binding], None] = lambda binding: None
    waits: dict[str, float] = field(default_factory=dict)
    patience: dict[str, float] = field(default_factory=dict)
    waits_for: tuple[str, ...] = ()
    verdict: Status | None = None
    ticket: int | None = None
    latest: PodInfo | None = None
    withdrawn: bool = False
    returned: bool = False
    bound_to: str = ""
    failed: Decision | None = None
    expected: bool = False
    authors: tuple[str, ...] = ()
    may_do_without_extender: bool = False
    extender_failed: bool = False
    order: int = 0

    @classmethod
    def begin(
        cls,
        queued: QueuedPod,
        profile: Profile,
        decision: Decision,
        node: str,
        alert: Callable[[Binding], None] = lambda binding: None,
    ) -> Binding:
        """Return a binding of a pod to a node. ``decision`` holds the state that PreFilter returned."""
        busy = decision.found is not None and not profile.resting.isdisjoint(decision.found.states)
        return cls(queued, profile, decision, node, busy, alert)

    @property
    def pod(self) -> PodInfo:
        """The pod as it was when its node was chosen."""
        return self.decision.pod

    @property
    def assumed(self) -> PodInfo:
        """The pod as it counts on its node: PreFilter's state of a Reserve plugin may change it by ``assumed_on(node)``."""
        changes = [getattr(state, "assumed_on", None) for state in self.states.values()] if self.busy else []
        return next((change(self.node) for change in changes if change is not None), self.pod)

    @property
    def wanted(self) -> bool:
        """True while the binding cycle should continue."""
        return self.verdict is None and not self.withdrawn and not self.bound_to

    @property
    def pending(self) -> tuple[str, ...]:
        """Permit plugins that have not allowed the pod yet."""
        return tuple(self.waits)

    @property
    def deadline(self) -> float:
        """The earliest deadline of a Permit plugin, in engine seconds."""
        return min(self.waits.values())

    def allow(self, plugin: str) -> None:
        """End one plugin's wait. When none is left, the pod proceeds at the scheduler's next step."""
        if self.waits.pop(plugin, None) is not None:
            self.alert(self)

    def reject(self, plugin: str, message: str) -> None:
        """Reject the waiting pod: it releases its node at the scheduler's next step."""
        if self.ticket is None:
            self.verdict = self.verdict or Status(Code.UNSCHEDULABLE, plugin, (message,))
            self.alert(self)

    def preempt(self, plugin: str, message: str) -> None:
        """Make the pod release its node and retry after its backoff, without waiting for an event."""
        self.verdict = self.verdict or Status(Code.ERROR, plugin, (message,))

    @property
    def proceeds(self) -> bool:
        """True once every Permit plugin has allowed the pod, or one has rejected it."""
        return self.verdict is not None or not self.waits

    @property
    def states(self) -> Mapping[str, Any]:
        """The state that PreFilter returned, by plugin; plugins that it skipped have none."""
        found = self.decision.found
        return {} if found is None else found.states

    def steps(self, point: str) -> tuple[Step, ...]:
        """Return the plugins of an extension point that have work to do for the pod, in order."""
        profile = self.profile
        return (profile.steps if self.busy else profile.restless).get(point, ())
