"""Failures: what the last attempts came to for pods that fit nowhere, kept while the cluster stays as it is.

The replicas of a Deployment that cannot fit fail one after the other, each for the same reasons. The search for pods to preempt
is the longest part of such an attempt, and it finds nothing each time. So the decision for one of them is the decision for the
others, until a node, a placed pod, a nomination or any other object that rules read is another.

Nothing is approximated. ``Cycle`` decides the same with and without this file, and a property test holds it to that.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from moorage.cycle.attempt import Nominated
from moorage.cycle.decision import Decision
from moorage.cycle.signing import Signer
from moorage.errors import PluginError
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Code
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["Failures"]

#: Classes whose failure is kept; when there are more, all are forgotten.
_CAPACITY: Final = 256
_NONE: Final[Nominated] = MappingProxyType({})


class Failures:
    """The failures of one profile's pods.

    They are kept only where every plugin that has a say signs pods and says what its answers depend on. Pods of groups are left
    out: what is assumed for their fellows shows nowhere.
    """

    def __init__(self, profile: Profile) -> None:
        judges = {step.name: step for point in ("preFilter", "filter") for step in profile.at(point)}
        steps = {**judges, **{step.name: step for step in profile.at("postFilter")}}
        self._works = all(map(_says_what_it_reads, judges.values())) and all(map(_fails_alike, profile.at("postFilter")))
        self._signer = Signer(steps.values(), frozenset()) if self._works else None
        self._known: dict[Hashable, Decision] = {}
        self._state: Hashable = None
        self._snapshot: Snapshot | None = None
        self._nominated = _NONE
        self._nominees: frozenset[str] | None = frozenset()

    def find(self, pod: PodInfo, snapshot: Snapshot, nominated: Nominated) -> Decision | None:
        """Return the decision for a pod of whose class one has failed since anything changed."""
        if not self._known:
            return None
        if not self._is_current(snapshot, nominated):
            self._known.clear()
            return None
        key = self._key(pod, snapshot)
        known = None if key is None else self._known.get(key)
        return None if known is None else replace(known, pod=pod)

    def keep(self, decision: Decision, snapshot: Snapshot, nominated: Nominated) -> None:
        """Remember a decision, if it is a failure that its class shares. The attempt itself must not have changed anything."""
        if not self._works or not _is_shared(decision) or not isinstance(nominated or _NONE, MappingProxyType):
            return
        if not self._is_current(snapshot, nominated) or len(self._known) >= _CAPACITY:
            self._begin(snapshot, nominated)
        key = self._key(decision.pod, snapshot)
        if key is not None:
            self._known[key] = decision

    def _is_current(self, snapshot: Snapshot, nominated: Nominated) -> bool:
        return self._state == snapshot.version and self._nominated is (nominated or _NONE) and self._snapshot is snapshot

    def _begin(self, snapshot: Snapshot, nominated: Nominated) -> None:
        self._known.clear()
        self._state, self._snapshot = snapshot.version, snapshot
        self._nominated, self._nominees = nominated or _NONE, None

    def _key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable | None:
        """Return all that a failure of the pod may depend on beside the state; None if it may depend on the pod itself."""
        if self._signer is None or pod.spec.scheduling_group is not None or self._is_nominated(pod):
            return None
        try:
            signed = self._signer.sign(pod, snapshot)
        except (PluginError, TypeError):  # the attempt itself tells of the former; the latter is a signature without a hash
            return None
        return None if signed.asked else (signed.key, pod.priority, pod.status.nominated_node_name)

    def _is_nominated(self, pod: PodInfo) -> bool:
        """Say whether room is kept for the pod: then the attempt sees the nominations of the others only."""
        if self._nominees is None:
            self._nominees = frozenset(other.uid for pods in self._nominated.values() for other in pods)
        return pod.uid in self._nominees


def _says_what_it_reads(step: Step) -> bool:
    return callable(getattr(step.plugin, "sign", None)) and getattr(step.plugin, "depends", None) is not None


def _fails_alike(step: Step) -> bool:
    """Say whether a PostFilter plugin declares ``fails_alike``. One that overrides ``post_filter`` has to declare it again."""
    for cls in type(step.plugin).__mro__:
        if "fails_alike" in cls.__dict__:
            return bool(cls.__dict__["fails_alike"]) and callable(getattr(step.plugin, "sign", None))
        if "post_filter" in cls.__dict__:
            break
    return False


def _is_shared(decision: Decision) -> bool:
    """Say whether a decision is a failure that changes nothing but where the pod waits."""
    if decision.node is not None or decision.error is not None or decision.verdicts is None or decision.found is None:
        return False
    if decision.found.nodes is not None:  # the pod names nodes, and the next search starts further on
        return False
    outcome = decision.post_filter
    return outcome is None or (
        outcome.code is not Code.ERROR and not (outcome.nominated or outcome.victims or outcome.effects or outcome.displaced)
    )
