"""Create an input's new pods and the pods of its workloads, as far as quotas and limit ranges allow.

Pods are created in the order of the input, then in the order of ``workloads``; in a cluster, the controllers race. A pod that
is refused does not exist: nothing schedules it. ``PodCreation.retry`` creates it later, when another pod's end leaves room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import replace as with_fields
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from moorage.api.admission import out_of_claims_bounds
from moorage.api.core import Pod
from moorage.api.devices import ResourceClaim
from moorage.api.requirements import aggregate
from moorage.api.storage import PersistentVolumeClaim
from moorage.simulator.admission import Admittance, admit, admit_strictly
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.lost_pods import LostPods, lose_pods
from moorage.simulator.owners import controller_of, is_made_for
from moorage.simulator.quotas import QuotaLedger, Refused, is_new, without_usage
from moorage.simulator.workloads import expand
from moorage.state.pod_volumes import claims_used

if TYPE_CHECKING:
    from moorage.simulator.admission_policies import PolicyAdmission

_Claim = TypeVar("_Claim", PersistentVolumeClaim, ResourceClaim)


@dataclass(frozen=True, slots=True)
class NotCreated:
    """A pod that does not exist, and why."""

    pod: Pod
    refused: Refused


@dataclass(frozen=True, slots=True)
class CreatedPods:
    """A cluster with all its pods; ``lost`` are those whose node is not in the input, ``refused`` those not created.

    ``creation`` creates refused pods during the run, when a quota has room; None if no pod can be refused.
    """

    cluster: ClusterInput
    lost: LostPods
    refused: tuple[NotCreated, ...]
    creation: PodCreation | None = None


def create_pods(given: ClusterInput, *, quota: bool = True) -> CreatedPods:
    """Return a cluster with the pods that its controllers and its users create, after admission.

    ``quota``: enforce resource quotas and limit ranges. Admission policies in the input apply to new objects. Pods on nodes
    that are not in the input are lost.
    Raises  InputError for a workload that cannot be read
    """
    policies = None if given.written is None else _policies(given)
    kept, lost = lose_pods(given if policies is None else policies.objects(given))
    present = without_usage(kept, lost.pods)
    admitted = admit_strictly(expand(present), bounds=quota)
    denied: list[NotCreated] = []
    if policies is not None:
        cluster, refused = policies.pods(admitted.cluster)
        admitted = with_fields(admitted, cluster=cluster)
        denied = [NotCreated(*one) for one in refused]
    if not (quota or denied):
        return CreatedPods(admitted.cluster, lost.with_replacements(kept, admitted.cluster), ())
    creation = PodCreation(present, admitted)
    creation.refused += denied
    cluster = creation.run() if quota else admitted.cluster
    return CreatedPods(cluster, lost.with_replacements(kept, cluster), tuple(creation.refused), creation)


def _policies(given: ClusterInput) -> PolicyAdmission | None:
    """Return the admission policies of an input; the modules that apply them are loaded for an input that may have some."""
    from moorage.simulator.admission_policies import PolicyAdmission

    return PolicyAdmission.of(given)


def create_missing_pods(given: ClusterInput, *, quota: bool = True) -> tuple[ClusterInput, tuple[NotCreated, ...]]:
    """Create pods as ``create_pods`` does, but keep pods on missing nodes. Return the cluster, and the pods not created."""
    expanded = expand(given)
    if not quota:
        return admit(expanded), ()
    creation = PodCreation(given, admit_strictly(expanded))
    return creation.run(), tuple(creation.refused)


class PodCreation:
    """Creates the new pods of a cluster one after the other, with their claims, and refused ones when quotas have room again.

    ``refused`` are the pods that do not exist now; ``later`` those that ``retry`` created.
    """

    def __init__(self, before: ClusterInput, admitted: Admittance) -> None:
        self.refused: list[NotCreated] = []
        self.later: list[Pod] = []
        self._cluster = cluster = admitted.cluster
        self._out_of_bounds, self._invalid = admitted.refused, admitted.invalid
        self._ledger = QuotaLedger.of(before)
        known = {claim.key for claim in before.persistent_volume_claims}
        self._fresh = {claim.key: claim for claim in cluster.persistent_volume_claims if claim.key not in known}
        known_devices = {claim.key for claim in before.resource_claims}
        self._devices = [claim for claim in cluster.resource_claims if claim.key not in known_devices]
        self._no_claims: set[str] = set()

    def run(self) -> ClusterInput:
        """Create the new pods; return the cluster without the refused pods and claims."""
        if not (self._ledger or self._out_of_bounds or self._invalid or self._cluster.limit_ranges):
            return self._cluster
        kept: list[Pod] = []
        for new, group in groupby(self._cluster.pods, key=is_new):
            if new:
                for _, copies in groupby(group, key=lambda pod: id(pod.spec)):
                    kept += self._created(list(copies))
            else:
                kept += group
        gone = {one.pod.uid for one in self.refused}
        return with_fields(
            self._cluster,
            pods=tuple(kept),
            persistent_volume_claims=tuple(self._kept(self._cluster.persistent_volume_claims, gone)),
            resource_claims=tuple(self._kept(self._cluster.resource_claims, gone)),
        )

    @property
    def waits(self) -> bool:
        """True if a pod waits for room in a quota."""
        return any(map(_is_tried_again, self.refused))

    def release(self, pod: Pod) -> None:
        """Return the usage of a pod that has ended or was deleted to its quotas."""
        self._ledger.release(pod)

    def retry(self, namespace: str) -> list[Pod | PersistentVolumeClaim | ResourceClaim]:
        """Create the pods of a namespace that fit in their quotas now, in the order in which they were refused.

        Returns each with its claims, which come before it.
        """
        waiting = [one for one in self.refused if one.pod.namespace == namespace and _is_tried_again(one)]
        self.refused = [one for one in self.refused if one not in waiting]
        made: list[Pod | PersistentVolumeClaim | ResourceClaim] = []
        full: dict[int, Refused] = {}
        for pod in [one.pod for one in waiting]:
            known = full.get(id(pod.spec))
            if known is not None:  # a pod of the same spec was refused just now
                self.refused.append(NotCreated(pod, replace(known, name=pod.name)))
            elif self._creates(pod):
                made += [*self._withheld(pod), pod]
                self.later.append(pod)
            elif not (pod.spec.volumes or pod.spec.resource_claims):
                full[id(pod.spec)] = self.refused[-1].refused
        return made

    def _withheld(self, pod: Pod) -> Iterator[PersistentVolumeClaim | ResourceClaim]:
        """Yield the claims that the pod owns, which were left out when it was refused."""
        every: tuple[PersistentVolumeClaim | ResourceClaim, ...] = (
            *self._cluster.persistent_volume_claims,
            *self._cluster.resource_claims,
        )
        return (claim for claim in every if claim.key not in self._no_claims and is_made_for(claim, {pod.uid}))

    def _kept(self, claims: Iterable[_Claim], gone: set[str]) -> Iterator[_Claim]:
        return (claim for claim in claims if claim.key not in self._no_claims and not is_made_for(claim, gone))

    def _created(self, pods: list[Pod]) -> Iterator[Pod]:
        """Create pods of one spec and yield those that are created: all together if they have no claims, else one by one."""
        first = pods[0]
        if first.spec.volumes or first.spec.resource_claims or any(pod.namespace != first.namespace for pod in pods):
            return (pod for pod in pods if self._creates(pod))
        limited = self._limited(first)
        if limited is not None:
            return self._refuse_all(pods, limited)
        count, refused = self._ledger.charge_up_to(first, len(pods))
        if refused is not None:
            self._refuse_all(pods[count:], refused)
        return iter(pods[:count])

    def _refuse_all(self, pods: Iterable[Pod], refused: Refused) -> Iterator[Pod]:
        self.refused += [NotCreated(pod, replace(refused, name=pod.name)) for pod in pods]
        return iter(())

    def _creates(self, pod: Pod) -> bool:
        """Create a pod with its claims; return False if the pod, or a claim of its stateful set, is refused."""
        claims = [claim for claim in self._claims_of(pod) if controller_of(claim.metadata) is None]
        refused = next((why for claim in claims if (why := self._claim(claim)) is not None), None)
        refused = refused or self._limited(pod) or self._ledger.charge(pod)
        if refused is not None:
            self.refused.append(NotCreated(pod, refused))
            return False
        for claim in self._claims_of(pod):
            if controller_of(claim.metadata) is not None:
                self._claim(claim)
        for device in self._devices:
            if is_made_for(device, {pod.uid}) and self._ledger.charge(device) is not None:
                self._no_claims.add(device.key)
        return True

    def _limited(self, pod: Pod) -> Refused | None:
        """Return why limit ranges keep a pod from being created; None if they do not."""
        if (wrong := self._invalid.get(pod.uid)) is not None:
            return Refused("pods", pod.name, wrong, by="LimitRange", makes_invalid=True)
        bounds = self._out_of_bounds.get(pod.uid)
        return None if bounds is None else Refused("pods", pod.name, aggregate(bounds), by="LimitRange")

    def _claims_of(self, pod: Pod) -> Iterator[PersistentVolumeClaim]:
        """Yield the new claims of a pod's volumes: of a stateful set, or of ephemeral volumes."""
        return (claim for use in claims_used(pod) if (claim := self._fresh.get(use.key)) is not None)

    def _claim(self, claim: PersistentVolumeClaim) -> Refused | None:
        """Create a new claim; return why it is refused, None if it is created."""
        ranges = [one for one in self._cluster.limit_ranges if one.namespace == claim.namespace]
        bounds = out_of_claims_bounds(claim, ranges)
        if bounds:
            refused: Refused | None = Refused("persistentvolumeclaims", claim.metadata.name, aggregate(bounds), by="LimitRange")
        else:
            refused = self._ledger.charge(claim)
        del self._fresh[claim.key]
        if refused is not None:
            self._no_claims.add(claim.key)
        return refused


def _is_tried_again(one: NotCreated) -> bool:
    """Return True for a pod that its controller creates once a quota has room.

    A pod without a controller is tried once, and so is a claim, which may outlive its pod.
    """
    refused = one.refused
    return refused.by == "ResourceQuota" and refused.resource == "pods" and controller_of(one.pod.metadata) is not None
