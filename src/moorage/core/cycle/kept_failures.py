"""Failures: cached decisions for pods that fit nowhere, valid while the cluster does not change.

The replicas of a Deployment that cannot fit fail one after the other for the same reasons. The search for victims is the
longest part of such an attempt and finds nothing each time. So ``Failures`` reuses the decision for one replica for the
others, until a node, a placed pod, a nomination or any other object that plugins read changes.

Nothing is approximated. ``Cycle`` decides the same with and without this module; a property test checks it.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from moorage.core.cycle.decision import Decision
from moorage.core.cycle.pod_signatures import Signer
from moorage.core.preemption.what_if import Nominated
from moorage.errors import PluginError
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code
from moorage.state.view import PodInfo, Snapshot

#: Classes whose failure is cached; the cache is cleared when it is full.
_CAPACITY: Final = 256
_NONE: Final[Nominated] = MappingProxyType({})


class Failures:
    """The failures of one profile's pods.

    Failures are cached only if every plugin that runs signs pods and declares what its answers depend on. Pods of groups are
    not cached: the pods assumed for the rest of their group are not part of the key.
    """

    def __init__(self, profile: Profile) -> None:
        judges = {step.name: step for point in ("preFilter", "filter") for step in profile.at(point)}
        steps = {**judges, **{step.name: step for step in profile.at("postFilter")}}
        self._works = all(step.reuse.signature is not None for step in (*judges.values(), *profile.at("postFilter")))
        self._signer = Signer(steps.values(), frozenset()) if self._works else None
        self._known: dict[Hashable, Decision] = {}
        self._state: Hashable = None
        self._snapshot: Snapshot | None = None
        self._nominated = _NONE
        self._nominees: frozenset[str] | None = frozenset()

    def find(self, pod: PodInfo, snapshot: Snapshot, nominated: Nominated) -> Decision | None:
        """Return the failure of an earlier pod of the same class, if nothing has changed since; else None."""
        if not self._known:
            return None
        if not self._is_current(snapshot, nominated):
            self._known.clear()
            return None
        key = self.key(pod, snapshot)
        known = None if key is None else self._known.get(key)
        return None if known is None else replace(known, pod=pod)

    def keep(self, decision: Decision, snapshot: Snapshot, nominated: Nominated) -> None:
        """Cache a decision if it is a failure that its class shares. The attempt must not have changed any state."""
        if not self._works or not _is_shared(decision) or not isinstance(nominated or _NONE, MappingProxyType):
            return
        if not self._is_current(snapshot, nominated) or len(self._known) >= _CAPACITY:
            self._begin(snapshot, nominated)
        key = self.key(decision.pod, snapshot)
        if key is not None:
            self._known[key] = decision

    def _is_current(self, snapshot: Snapshot, nominated: Nominated) -> bool:
        return self._state == snapshot.version and self._nominated is (nominated or _NONE) and self._snapshot is snapshot

    def _begin(self, snapshot: Snapshot, nominated: Nominated) -> None:
        self._known.clear()
        self._state, self._snapshot = snapshot.version, snapshot
        self._nominated, self._nominees = nominated or _NONE, None

    def key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable | None:
        """Return the key of the pod's failures for this state; None if a failure may depend on the pod itself."""
        if self._signer is None or pod.spec.scheduling_group is not None or self._is_nominated(pod):
            return None
        try:
            signed = self._signer.sign(pod, snapshot).signed
        except (PluginError, TypeError):  # the attempt reports a PluginError; TypeError means an unhashable signature
            return None
        return None if signed.asked else (signed.key, pod.priority, pod.status.nominated_node_name)

    def _is_nominated(self, pod: PodInfo) -> bool:
        """Return whether the pod is nominated: its attempt then ignores its own nomination."""
        if self._nominees is None:
            self._nominees = frozenset(other.uid for pods in self._nominated.values() for other in pods)
        return pod.uid in self._nominees


def _is_shared(decision: Decision) -> bool:
    """Return whether a decision is a failure without effects, nomination or victims."""
    if decision.node is not None or decision.error is not None or decision.verdicts is None or decision.found is None:
        return False
    if decision.found.nodes is not None:  # the pod names nodes, and the next search starts at another node
        return False
    outcome = decision.post_filter
    return outcome is None or (
        outcome.code is not Code.ERROR and not (outcome.nominated or outcome.victims or outcome.effects or outcome.displaced)
    )
