"""The Lease that says which replica leads, on an API server."""

from __future__ import annotations

import json
import uuid
from typing import Any

from moorage.client.rest import Rest
from moorage.errors import ClusterError
from moorage.runtime.leader import LeaseRecord

__all__ = ["ApiLease"]


class ApiLease:
    """Satisfies ``moorage.runtime.leader.LeaseLock``. Fields that others wrote on the lease stay."""

    def __init__(self, rest: Rest, namespace: str, name: str) -> None:
        self._rest = rest
        self._namespace, self._name = namespace, name
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._held: dict[str, Any] = {}

    async def read(self) -> LeaseRecord | None:
        try:
            body = await self._rest.send("GET", f"{self._path}/{self._name}")
        except ClusterError as error:
            if error.status == 404:
                return None
            raise
        return self._keep(body)

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": _spec(record),
        }
        return self._keep(await self._rest.send("POST", self._path, json.dumps(lease).encode()))

    async def update(self, record: LeaseRecord) -> LeaseRecord:
        held = self._held
        lease = {
            **held,
            "metadata": {**held.get("metadata", {}), "resourceVersion": record.version},
            "spec": {**held.get("spec", {}), **_spec(record)},
        }
        return self._keep(await self._rest.send("PUT", f"{self._path}/{self._name}", json.dumps(lease).encode()))

    async def tell(self, text: str, wall: str, reporter: str) -> None:
        """Write an event about the lease, for people to read.

        Raises  ClusterError
        """
        metadata = self._held.get("metadata", {})
        regarding = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "namespace": self._namespace,
            "name": self._name,
            "uid": str(metadata.get("uid") or ""),
            "resourceVersion": str(metadata.get("resourceVersion") or ""),
        }
        moment = wall.partition(".")[0].rstrip("Z") + "Z"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{self._name}.{uuid.uuid4().hex[:16]}", "namespace": self._namespace},
            "involvedObject": regarding,
            "reason": "LeaderElection",
            "message": text,
            "type": "Normal",
            "source": {"component": reporter},
            "reportingComponent": reporter,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        await self._rest.send("POST", f"/api/v1/namespaces/{self._namespace}/events", json.dumps(event).encode())

    def _keep(self, body: bytes) -> LeaseRecord:
        """Remember the lease as the server holds it, and return what it says; nonsense in it counts as nothing said."""
        try:
            held = json.loads(body)
            spec, metadata = held.get("spec") or {}, held["metadata"]
        except (ValueError, KeyError, AttributeError, TypeError):
            raise ClusterError(f"lease {self._namespace}/{self._name}: the answer is no Lease") from None
        self._held = held
        return LeaseRecord(
            str(spec.get("holderIdentity") or ""),
            _number(spec.get("leaseDurationSeconds")),
            str(spec.get("acquireTime") or ""),
            str(spec.get("renewTime") or ""),
            _number(spec.get("leaseTransitions")),
            str(metadata.get("resourceVersion") or ""),
        )


def _spec(record: LeaseRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
