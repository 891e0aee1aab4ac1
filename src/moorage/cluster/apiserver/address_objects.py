"""The IPAddress of each service: kube-apiserver keeps one for every cluster IP, by which the address is taken.

It is created with the service, and deleted with it or when the service no longer has the address. One that a client creates
takes its address, too.

Source  kubernetes, pkg/registry/core/service/ipallocator/ipallocator.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.api.fields.managed_fields import FieldManager
from moorage.rules.admission.services import ALLOCATOR, MANAGED_BY
from moorage.rules.store.store import Store
from moorage.rules.store.watches import StoreChange

__all__ = ["keep_service_addresses"]

_SERVICES: Final = served("services")
_ADDRESSES: Final = served("ipaddresses", "networking.k8s.io")
_ALLOCATOR: Final = FieldManager("kube-apiserver", version=_ADDRESSES.api_version)
_FAMILY: Final = "ipaddress.kubernetes.io/ip-family"


def keep_service_addresses(store: Store) -> None:
    """Create the missing addresses of services, and follow the services from now on."""

    def on_change(kind: ServedKind, change: StoreChange) -> None:
        if kind is not _SERVICES:
            return
        now = _address_of(None if change.gone else change.after)
        before = _address_of(change.after if change.gone else change.before)
        if before and before != now:
            _release(store, before, change.after)
        if now and now != before:
            _take(store, now, change.after)

    for service in [*store.all(_SERVICES)]:
        if address := _address_of(service):
            _take(store, address, service)
    store.follow(on_change)


def _address_of(service: Record | None) -> str:
    """Return the cluster IP of a service; "" if it has none."""
    address = "" if service is None else str(service.fields["spec.clusterIP"] or "")
    return "" if address == "None" else address


def _take(store: Store, address: str, service: Record) -> None:
    if store.find(_ADDRESSES, "", address) is None:
        family = "IPv6" if ":" in address else "IPv4"
        document: Document = {
            "apiVersion": _ADDRESSES.api_version, "kind": "IPAddress",
            "metadata": {"name": address, "labels": {_FAMILY: family, MANAGED_BY: ALLOCATOR}},
            "spec": {"parentRef": {"resource": "services", "namespace": service.namespace, "name": service.name}},
        }  # fmt: skip
        store.create(_ADDRESSES, "", document, manager=_ALLOCATOR)


def _release(store: Store, address: str, service: Record) -> None:
    held = store.find(_ADDRESSES, "", address)
    if held is not None:
        parent = held.document()["spec"].get("parentRef") or {}
        if (parent.get("namespace"), parent.get("name")) == (service.namespace, service.name):
            store.delete(_ADDRESSES, "", address)
