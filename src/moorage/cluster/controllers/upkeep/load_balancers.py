"""Load balancers: every service of type LoadBalancer gets an address, as a cloud's controller gives it one.

The address is in 198.18.0.0/15, which no network routes (RFC 2544), and is made from the cluster IP, so that no two services
share one and a restart changes none. Nothing answers there. Services with a ``loadBalancerClass`` are left to others.

Source  cloud-provider, controllers/service/controller.go
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.cluster.apiserver.vocabulary.served_kinds import ServedKind, served
from moorage.cluster.controllers.machinery.object_fields import is_ending, key_of, spec_of, status_of
from moorage.cluster.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.cluster.controllers.machinery.steps import EventStep, SetStatus, Step

__all__ = ["LoadBalancers"]

_SERVICES: Final[ServedKind] = served("services")
_ADDRESSES: Final = ipaddress.IPv4Network("198.18.0.0/15")


class LoadBalancers:
    name = "service-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is _SERVICES and event.new is not None:
            yield key_of(event.new)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        service = world.find(_SERVICES, key)
        if service is None or is_ending(service) or spec_of(service).get("loadBalancerClass"):
            return
        status = status_of(service)
        held = (status.get("loadBalancer") or {}).get("ingress") or []
        wanted = _ingress(service)
        if bool(wanted) is bool(held):  # what another controller, or the cluster of a dump, has given stays
            return
        yield SetStatus(_SERVICES, service, {**status, "loadBalancer": {"ingress": wanted} if wanted else {}})
        if wanted:
            yield EventStep(_SERVICES, service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")


def _ingress(service: Document) -> list[dict[str, Any]]:
    """Return the addresses that a service should have: none for other types."""
    spec = spec_of(service)
    if spec.get("type") != "LoadBalancer":
        return []
    try:
        inside = int(ipaddress.ip_address(spec.get("clusterIP") or ""))
    except ValueError:
        return []
    return [{"ip": str(_ADDRESSES[inside % _ADDRESSES.num_addresses]), "ipMode": "VIP"}]
