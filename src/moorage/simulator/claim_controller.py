"""The controllers that look after device claims in a simulated cluster: claims are made for pods, and given up with them.

It acts on pods that come, end and go during the run. Users of a claim that were never heard of stay: more pods may be left out
of a dump than claims.

Source  kubernetes, pkg/controller/resourceclaim/controller.go; the garbage collector for what a pod owned
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moorage.api.core import Pod
from moorage.api.devices import ResourceClaim, ResourceClaimTemplate
from moorage.engine.facts import Done, Gone, News, Seen
from moorage.plugins.devices.claim_cleanup import is_done, is_orphaned, owning_pod, without_stale_consumers
from moorage.simulator.owners import is_active
from moorage.simulator.template_claims import with_device_claims
from moorage.state.cluster import Snapshot

__all__ = ["ClaimController"]


class ClaimController:
    """``note`` it every fact, let it ``act`` before the scheduler's next step. What it does is told by ``tell``.

    ``pods``: all that there are, by UID.
    """

    def __init__(self, snapshot: Snapshot, pods: Mapping[str, Pod], tell: Callable[[News], None]) -> None:
        self._snapshot = snapshot
        self._pods = pods
        self._tell = tell
        #: UID of a pod → keys of the claims it uses or owns.
        self._claims_of: dict[str, dict[str, None]] = {}
        self._pods_of: dict[str, tuple[str, ...]] = {}
        self._gone: dict[str, Pod] = {}
        self._come: dict[str, None] = {}

    def note(self, fact: News) -> None:
        """Take notice of something that happened."""
        if isinstance(fact, Done):
            return
        obj = fact.obj
        if isinstance(obj, ResourceClaim):
            self._file(obj.key, None if isinstance(fact, Gone) else obj)
        elif isinstance(obj, Pod):
            if isinstance(fact, Gone) or is_done(obj):
                self._gone[obj.uid] = obj
            elif obj.spec.resource_claims and is_active(obj) and not obj.spec.node_name:
                self._come[obj.uid] = None

    def act(self) -> None:
        """Do all that can be done now."""
        while self._gone or self._come:
            gone, self._gone = self._gone, {}
            for pod in gone.values():
                for key in tuple(self._claims_of.get(pod.uid, ())):
                    self._give_up(key, pod)
            come, self._come = self._come, {}
            for uid in come:
                self._make_for(self._pods.get(uid))

    def _file(self, key: str, claim: ResourceClaim | None) -> None:
        for uid in self._pods_of.pop(key, ()):
            claims = self._claims_of[uid]
            del claims[key]
            if not claims:
                del self._claims_of[uid]
        if claim is None:
            return
        owner = owning_pod(claim)
        users = [user.uid for user in claim.status.reserved_for]
        self._pods_of[key] = tuple(dict.fromkeys([*users, *(() if owner is None else owner[1:])]))
        for uid in self._pods_of[key]:
            self._claims_of.setdefault(uid, {})[key] = None

    def _give_up(self, key: str, pod: Pod) -> None:
        """Take a pod that is done off a claim; the claim goes, too, if it was the pod's own."""
        claim = self._snapshot.objects(ResourceClaim).get(key)
        if claim is None:
            return
        left = without_stale_consumers(claim, lambda user: user.uid != pod.uid)
        owner = owning_pod(left)
        is_the_pods = owner is not None and owner[1] == pod.uid
        if left is not claim:
            self._tell(Seen(left))
        if is_the_pods and (pod.uid not in self._pods or is_orphaned(left, pod)):
            self._tell(Gone(left))

    def _make_for(self, pod: Pod | None) -> None:
        if pod is None:
            return
        made: dict[str, ResourceClaim] = {}
        told = with_device_claims(pod, self._snapshot.objects(ResourceClaimTemplate), made)
        for key, claim in made.items():
            if key not in self._snapshot.objects(ResourceClaim):
                self._tell(Seen(claim))
        if told is not pod:
            self._tell(Seen(told))
