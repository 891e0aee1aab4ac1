"""The leader election record on an API server: the common base of all lock objects, and the Lease."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from moorage.client.rest import Rest
from moorage.errors import ClusterError
from moorage.runtime.leader_election import LeaseRecord

__all__ = ["ApiLease", "LockObject"]


class LockObject(ABC):
    """Implements ``moorage.runtime.leader_election.LeaseLock``. Fields of other writers on the object are preserved."""

    def __init__(self, rest: Rest, api_version: str, kind: str, plural: str, namespace: str, name: str) -> None:
        self._rest = rest
        self.api_version, self.kind, self.plural = api_version, kind, plural
        self.namespace, self.name = namespace, name
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        self._path = f"{root}/namespaces/{namespace}/{plural}"
        self._held: dict[str, Any] = {}

    @abstractmethod
    def _filled(self, held: dict[str, Any], record: LeaseRecord) -> dict[str, Any]:
        """Return the object with a record written into it."""

    @abstractmethod
    def _record(self, held: dict[str, Any]) -> LeaseRecord:
        """Return the record in the object, without its version. Raises ClusterError where the record is unreadable."""

    async def read(self) -> LeaseRecord | None:
        try:
            body = await self._rest.send("GET", f"{self._path}/{self.name}")
        except ClusterError as error:
            if error.status == 404:
                return None
            raise
        return self._keep(body)

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        metadata = {"name": self.name, "namespace": self.namespace}
        fresh = self._filled({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}, record)
        return self._keep(await self._rest.send("POST", self._path, json.dumps(fresh).encode()))

    async def update(self, record: LeaseRecord) -> LeaseRecord:
        held = {**self._held, "metadata": {**self._held.get("metadata", {}), "resourceVersion": record.version}}
        body = json.dumps(self._filled(held, record)).encode()
        return self._keep(await self._rest.send("PUT", f"{self._path}/{self.name}", body))

    async def write_event(self, text: str, wall: str, reporter: str) -> None:
        """Write a Kubernetes event about the object.

        Raises  ClusterError
        """
        metadata = self._held.get("metadata", {})
        regarding = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": str(metadata.get("uid") or ""),
            "resourceVersion": str(metadata.get("resourceVersion") or ""),
        }
        moment = wall.partition(".")[0].rstrip("Z") + "Z"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{self.name}.{uuid.uuid4().hex[:16]}", "namespace": self.namespace},
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
        await self._rest.send("POST", f"/api/v1/namespaces/{self.namespace}/events", json.dumps(event).encode())

    def _keep(self, body: bytes) -> LeaseRecord:
        """Remember the object as the server returned it, and return its record."""
        try:
            held = json.loads(body)
            version = str(held["metadata"].get("resourceVersion") or "")
            record = self._record(held)
        except (ValueError, KeyError, AttributeError, TypeError):
            message = f"{self.plural.removesuffix('s')} {self.namespace}/{self.name}: the response is not a valid {self.kind}"
            raise ClusterError(message) from None
        self._held = held
        return replace(record, version=version)


class ApiLease(LockObject):
    """The Lease. Invalid fields count as empty."""

    def __init__(self, rest: Rest, namespace: str, name: str) -> None:
        super().__init__(rest, "coordination.k8s.io/v1", "Lease", "leases", namespace, name)

    def _filled(self, held: dict[str, Any], record: LeaseRecord) -> dict[str, Any]:
        return {**held, "spec": {**held.get("spec", {}), **_spec(record)}}

    def _record(self, held: dict[str, Any]) -> LeaseRecord:
        spec = held.get("spec") or {}
        return LeaseRecord(
            str(spec.get("holderIdentity") or ""),
            _number(spec.get("leaseDurationSeconds")),
            str(spec.get("acquireTime") or ""),
            str(spec.get("renewTime") or ""),
            _number(spec.get("leaseTransitions")),
        )


def _spec(record: LeaseRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": _microsecond(record.acquired),
        "renewTime": _microsecond(record.renewed),
        "leaseTransitions": record.transitions,
    }


def _microsecond(moment: str) -> str | None:
    """Return a timestamp with microseconds, as leases store it; annotations store seconds."""
    return moment.removesuffix("Z") + ".000000Z" if moment.endswith("Z") and "." not in moment else moment or None


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
