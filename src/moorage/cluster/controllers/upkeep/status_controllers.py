"""The statuses of services of type LoadBalancer and of resource quotas.

Admission charges created and growing objects immediately, so they cause no recalculation. A pod that exceeds its deletion
deadline stops counting without any event, so its quota is recalculated at that time. All quotas are also recalculated every
five minutes, in case another client changed a status. Recalculations of large quotas are rate-limited: deleting a thousand
pods one by one would otherwise read a million objects.

Source  kubernetes, pkg/controller/resourcequota; pkg/quota/v1/install/update_filter.go
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.core import ENDED_PHASES, ResourceQuota
from moorage.api.decode import decode
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.api.quantity import Exact
from moorage.rules.admission import quota_usage
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import EventStep, Later, SetStatus, Step

# Load balancers: every service of type LoadBalancer gets an address, as a cloud's controller gives it one.
#
# The address is in 198.18.0.0/15, which no network routes (RFC 2544), and is made from the cluster IP, so that no two services
# share one and a restart changes none. Nothing answers there. Services with a ``loadBalancerClass`` are left to others.
#
# Source  cloud-provider, controllers/service/controller.go

_SERVICES: Final[ServedKind] = served("services")
_ADDRESSES: Final = ipaddress.IPv4Network("198.18.0.0/15")


class LoadBalancers:
    name = "service-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is _SERVICES and event.new is not None:
            yield k8s.key_of(event.new)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        service = world.find(_SERVICES, key)
        if service is None or k8s.is_ending(service) or k8s.spec_of(service).get("loadBalancerClass"):
            return
        status = k8s.status_of(service)
        held = (status.get("loadBalancer") or {}).get("ingress") or []
        wanted = _ingress(service)
        if bool(wanted) is bool(held):  # what another controller, or the cluster of a dump, has given stays
            return
        yield SetStatus(_SERVICES, service, {**status, "loadBalancer": {"ingress": wanted} if wanted else {}})
        if wanted:
            yield EventStep(_SERVICES, service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")


def _ingress(service: Document) -> list[dict[str, Any]]:
    """Return the addresses that a service should have: none for other types."""
    spec = k8s.spec_of(service)
    if spec.get("type") != "LoadBalancer":
        return []
    try:
        inside = int(ipaddress.ip_address(spec.get("clusterIP") or ""))
    except ValueError:
        return []
    return [{"ip": str(_ADDRESSES[inside % _ADDRESSES.num_addresses]), "ipMode": "VIP"}]


# -- resource quota ----------------------------------------------------------------------------------------------------

_QUOTAS: Final = served("resourcequotas")
#: Seconds after which each quota is recalculated without an event.
_AGAIN_S: Final = 300.0
#: Objects to read per second for one quota, so that recalculation takes a small part of the CPU.
_PACE: Final = 5_000
#: Delays below this are ignored, in seconds.
_AT_ONCE_S: Final = 0.05


class ResourceQuotas:
    name = "resourcequota-controller"

    def __init__(self) -> None:
        #: Quota → the earliest time of its next recalculation, in seconds since 1970.
        self._rests: dict[str, float] = {}

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is _QUOTAS and event.new is not None:
            if event.old is None or k8s.spec_of(event.old).get("hard") != k8s.spec_of(event.new).get("hard"):
                yield k8s.key_of(event.new)
            return
        quotas = world.all(_QUOTAS, k8s.namespace_of(event.latest))
        meter = quota_usage.evaluator_for(event.kind) if quotas else None
        if meter is None or not _releases(event):
            return
        facts = _facts(world, 0.0)
        for quota in quotas:
            if meter.matching(k8s.status_of(quota).get("hard") or (), facts):
                yield k8s.key_of(quota)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        quota = world.find(_QUOTAS, key)
        if quota is None:
            self._rests.pop(key, None)
            return
        rest = self._rests.get(key, now) - now
        if rest > 0 and k8s.spec_of(quota).get("hard") == k8s.status_of(quota).get("hard"):
            yield Later(rest)
            return
        read = decode(quota, ResourceQuota, "")
        hard = quota_usage.amounts(read.spec.hard)
        known = quota_usage.amounts(read.status.used)
        counted, seen = quota_usage.counted_usage(read, hard, _facts(world, now))
        if seen > _PACE * _AT_ONCE_S:
            self._rests[key] = now + seen / _PACE
        used = {name: amount for name, amount in (known | counted).items() if name in hard}
        held = k8s.status_of(quota)
        if "used" not in held or not _are_equal(hard, quota_usage.amounts(read.status.hard)) or not _are_equal(used, known):
            yield SetStatus(_QUOTAS, quota, {"hard": _shown(hard), "used": _shown(used)})
        ends = map(quota_usage.charge_ends_at, world.all(k8s.PODS, k8s.namespace_of(quota)))
        yield Later(min([_AGAIN_S, *(end - now + 1 for end in ends if end is not None and end >= now)]))


def _facts(world: ObjectIndex, now: float) -> quota_usage.Facts:
    return quota_usage.Facts(now, lambda kind, namespace: world.all(kind, namespace or None), world.get, world.kinds.stored)


def _are_equal(one: Mapping[str, Exact], other: Mapping[str, Exact]) -> bool:
    return one.keys() == other.keys() and all(amount.nano == other[name].nano for name, amount in one.items())


def _shown(found: quota_usage.Usage) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(found.items())}


# -- events that release usage ------------------------------------------------------------------------------------------


def _releases(event: ObjectChange) -> bool:
    """Return True for a change that may reduce the usage of a quota."""
    if event.new is None:
        return True
    if event.old is None:
        return False
    rule = _RULES.get(event.kind)
    return rule is not None and rule(event.old, event.new)


def _pod_releases(old: Document, new: Document) -> bool:
    if any(read(old) != read(new) for read in (quota_usage.has_deadline, quota_usage.charge_ends_at)):
        return True
    if k8s.phase_of(old) != k8s.phase_of(new) and k8s.phase_of(new) in ENDED_PHASES:
        return True
    # A pod without a node can be resized down without any kubelet reporting it.
    return _differ(_allocated(old), _allocated(new)) or _differ(_requested(old), _requested(new))


def _differ(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return True if the resources of a container that exists before and after differ."""
    return any(after[name] != resources for name, resources in before.items() if name in after)


def _requested(pod: Document) -> dict[str, Any]:
    """Return the resources in the spec of each container, by container name."""
    spec = k8s.spec_of(pod)
    return {one["name"]: one.get("resources") for part in ("containers", "initContainers") for one in spec.get(part) or ()}


def _allocated(pod: Document) -> dict[str, Any]:
    """Return the resources in the status of each container, as kubelet reports them, by container name."""
    status = k8s.status_of(pod)
    parts = ("containerStatuses", "initContainerStatuses")
    return {one.get("name") or "": one.get("resources") for part in parts for one in status.get(part) or ()}


_RULES: Final[Mapping[ServedKind, Callable[[Document, Document], bool]]] = {
    k8s.PODS: _pod_releases,
    _SERVICES: lambda old, new: bool(k8s.spec_of(old).get("type") != k8s.spec_of(new).get("type")),
    k8s.CLAIMS: lambda _, __: True,
}
