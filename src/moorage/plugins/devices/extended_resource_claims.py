"""Extended resources backed by devices: the scheduler turns a pod's requests for them into a resource claim.

Which requests the claim contains depends on the node: resources that the node itself has are left out. An init container may
use the devices of containers that run later; of several such containers only the largest request counts.

Source  kube-scheduler 1.36: plugins/dynamicresources/extendeddynamicresources.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from moorage.api.core import Container, ObjectMeta, OwnerReference, Pod
from moorage.api.devices import DeviceRequest, ExactDeviceRequest, ResourceClaim
from moorage.api.quantity import decimal_parts, value
from moorage.plugins.devices.allocated_devices import EXTENDED_CLAIM, special_claim_uid
from moorage.state.view import PodInfo, Snapshot

#: The name of the claim while it exists only in the scheduler; no object can have this name.
SPECIAL_NAME: Final = "<extended-resources>"

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_BASE: Final = 63 - 5


class ContainerMapping(NamedTuple):
    """A container, its extended resource, and the request of the claim that provides it."""

    container: str
    resource: str
    request: str


class ExtendedRequests(NamedTuple):
    """The requests of the claim, sorted by name, and which containers use them."""

    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[ContainerMapping, ...] = ()


def earlier_claim(pod: PodInfo, snapshot: Snapshot) -> ResourceClaim | None:
    """Return the claim that an earlier attempt created for a pod's extended resources, if it still exists."""
    for claim in snapshot.objects(ResourceClaim).values():
        if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true" and claim.metadata.namespace == pod.namespace:
            for owner in claim.metadata.owner_references:
                if owner.name == pod.name and owner.controller and owner.uid == pod.uid:
                    return claim
    return None


def special_claim(pod: PodInfo) -> ResourceClaim:
    """Return the claim for the pod's extended resources before it has requests."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
    metadata = ObjectMeta(
        name=SPECIAL_NAME,
        generate_name=f"{pod.name}-extended-resources-",
        namespace=pod.namespace,
        uid=special_claim_uid(pod.uid),
        annotations={EXTENDED_CLAIM: "true"},
        owner_references=(owner,),
    )
    return ResourceClaim(metadata=metadata)


def object_name(claim: ResourceClaim, pod: PodInfo) -> str:
    """Return the name under which the claim is created. The API server draws five letters; here the pod's UID decides them."""
    digest = int.from_bytes(blake2b(pod.uid.encode(), digest_size=8).digest(), "big")
    letters = ""
    for _ in range(5):
        digest, at = divmod(digest, len(_LETTERS))
        letters += _LETTERS[at]
    return claim.metadata.generate_name[:_MAX_BASE] + letters


def requests_for(pod: Pod, classes: Mapping[str, str]) -> ExtendedRequests:
    """Return the requests of the claim on a node that lacks these resources; ``classes``: resource → device class."""
    spec = pod.spec
    containers = [*spec.init_containers, *spec.containers]
    starts = len(spec.init_containers)
    requests: list[DeviceRequest] = []
    mappings: list[ContainerMapping] = []
    for resource in sorted(classes):
        of_resource = _Resource(resource, classes[resource], containers)
        stay_running = [at for at, c in enumerate(containers) if at >= starts or c.restart_policy == "Always"]
        found, mapped = of_resource.collect(stay_running, [at for at in range(starts) if at not in set(stay_running)])
        requests += found
        mappings += mapped
    return ExtendedRequests(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


class _Resource:
    """One extended resource over all containers of a pod."""

    def __init__(self, name: str, device_class: str, containers: Sequence[Container]) -> None:
        self._name = name
        self._class = device_class
        self._containers = containers

    def collect(self, stay_running: Sequence[int], starts: Sequence[int]) -> tuple[list[DeviceRequest], list[ContainerMapping]]:
        """Return the requests, and the mappings: first of long-running containers, then of init containers."""
        long_running: dict[int, DeviceRequest] = {}
        mapped: list[ContainerMapping] = []
        for at in stay_running:
            request, uses = self._of_container(at, [])
            mapped += uses
            if request is not None:
                long_running[at] = request
        largest: DeviceRequest | None = None
        of_init: set[str] = set()
        init_uses: list[ContainerMapping] = []
        for at in starts:
            request, uses = self._of_container(at, [long_running[i] for i in stay_running if i >= at and i in long_running])
            init_uses += uses
            if request is not None:
                of_init.add(request.name)
                if largest is None or _count(largest) < _count(request):
                    largest = request
        if largest is None:
            return list(long_running.values()), mapped + init_uses
        of_init.discard(largest.name)
        init_uses = [use._replace(request=largest.name) if use.request in of_init else use for use in init_uses]
        return [largest, *long_running.values()], mapped + init_uses

    def _of_container(self, at: int, reusable: Sequence[DeviceRequest]) -> tuple[DeviceRequest | None, list[ContainerMapping]]:
        """Return the requests of a container beyond the devices it may reuse, and the mappings for all devices it uses."""
        container = self._containers[at]
        asked = container.resources.requests
        wanted = whole_number(asked[self._name]) if self._name in asked else 0
        uses: list[ContainerMapping] = []
        if not wanted:
            return None, uses
        reusable_count = 0
        for request in reusable:
            reusable_count += _count(request)
            uses.append(ContainerMapping(container.name, self._name, request.name))
            if reusable_count >= wanted:
                return None, uses
        name = request_name(at, self._name, asked)
        exactly = ExactDeviceRequest(device_class_name=self._class, allocation_mode="ExactCount", count=wanted - reusable_count)
        uses.append(ContainerMapping(container.name, self._name, name))
        return DeviceRequest(name=name, exactly=exactly), uses


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def request_name(at: int, resource: str, asked: Mapping[str, object]) -> str:
    """Return the name of the request for a resource that the container at this place requests, among others."""
    return f"container-{at}-request-{sorted(asked).index(resource)}"


def whole_number(quantity: str | int | float) -> int:
    """Return a quantity written as a whole number; 0 for any other."""
    _, exponent, big = decimal_parts(quantity)
    return 0 if big or exponent < 0 else value(quantity)
