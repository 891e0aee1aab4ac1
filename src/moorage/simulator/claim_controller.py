"""The resource claim controller of a simulated cluster: it creates claims for pods and cleans claims up after pods.

It acts on pods that are added, finish or are deleted during the run. Consumers of a claim that are not in the input stay: a
dump may leave out pods more often than claims.

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
    """Call ``note`` with every fact and ``act`` before each step of the scheduler. It reports its changes through ``tell``.

    ``pods``: all pods, by UID.
    """

    def __init__(self, snapshot: Snapshot, pods: Mapping[str, Pod], tell: Callable[[News], None]) -> None:
        self._snapshot = snapshot
        self._pods = pods
        self._tell = tell
        #: UID of a pod → keys of the claims it uses or owns.
        self._claims_of: dict[str, dict[str, None]] = {}
        self._pods_of: dict[str, tuple[str, ...]] = {}
        self._removed: dict[str, Pod] = {}
        self._added: dict[str, None] = {}

    def note(self, fact: News) -> None:
        """Record a fact."""
        if isinstance(fact, Done):
            return
        obj = fact.obj
        if isinstance(obj, Pod):
            if isinstance(fact, Gone) or is_done(obj):
                self._removed[obj.uid] = obj
            elif obj.spec.resource_claims and is_active(obj) and not obj.spec.node_name:
                self._added[obj.uid] = None
        elif isinstance(obj, ResourceClaim):
            self._file(obj.key, None if isinstance(fact, Gone) else obj)

    def save(self) -> Callable[[], None]:
        """Return a function that restores the set of pods to process. The index of claims is not restored."""
        removed, added = self._removed.copy(), self._added.copy()

        def restore() -> None:
            self._removed, self._added = removed, added

        return restore

    def save_claim(self, key: str, claim: ResourceClaim | None) -> Callable[[], None]:
        """Return a function that undoes ``note`` of one fact about a claim. ``claim``: its version after the fact, or None."""
        before, pods_of, claims_of = self._pods_of.get(key), self._pods_of, self._claims_of
        saved = {uid: dict(claims_of.get(uid, ())) for uid in {*(before or ()), *(() if claim is None else _pods_of(claim))}}

        def restore() -> None:
            if before is None:
                pods_of.pop(key, None)
            else:
                pods_of[key] = before
            for uid, claims in saved.items():
                if claims:
                    claims_of[uid] = claims
                else:
                    claims_of.pop(uid, None)

        return restore

    def act(self) -> None:
        """Process all recorded facts."""
        while self._removed or self._added:
            removed, self._removed = self._removed, {}
            for pod in removed.values():
                for key in tuple(self._claims_of.get(pod.uid, ())):
                    self._clean_up(key, pod)
            added, self._added = self._added, {}
            for uid in added:
                self._create_claims(self._pods.get(uid))

    def _file(self, key: str, claim: ResourceClaim | None) -> None:
        for uid in self._pods_of.pop(key, ()):
            claims = self._claims_of[uid]
            del claims[key]
            if not claims:
                del self._claims_of[uid]
        if claim is None:
            return
        self._pods_of[key] = _pods_of(claim)
        for uid in self._pods_of[key]:
            self._claims_of.setdefault(uid, {})[key] = None

    def _clean_up(self, key: str, pod: Pod) -> None:
        """Remove a finished pod from a claim's consumers; delete the claim if it was generated for the pod."""
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

    def _create_claims(self, pod: Pod | None) -> None:
        if pod is None:
            return
        made: dict[str, ResourceClaim] = {}
        changed = with_device_claims(pod, self._snapshot.objects(ResourceClaimTemplate), made)
        for key, claim in made.items():
            if key not in self._snapshot.objects(ResourceClaim):
                self._tell(Seen(claim))
        if changed is not pod:
            self._tell(Seen(changed))


def _pods_of(claim: ResourceClaim) -> tuple[str, ...]:
    """Return the UIDs of the pods that use or own a claim."""
    owner = owning_pod(claim)
    users = [user.uid for user in claim.status.reserved_for]
    return tuple(dict.fromkeys([*users, *(() if owner is None else owner[1:])]))
