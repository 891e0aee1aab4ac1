"""The lock objects of leader election on an API server: a Lease, or an annotation of Endpoints or a ConfigMap.

kube-scheduler up to 1.19 locked Endpoints, and both objects while it migrated to leases. The holder of a pair holds both, so
that replicas that know only one of them also see that they must wait.

Source  client-go 1.21, tools/leaderelection/resourcelock: interface.go, endpointslock.go, configmaplock.go, multilock.go
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.basis.client.rest import Rest
from moorage.errors import ClusterError, InputError
from moorage.live.runtime.leader_election import LeaseRecord

ANNOTATION: Final = "control-plane.alpha.kubernetes.io/leader"
#: Stands for the holder of a pair whose two records name different holders.
UNKNOWN: Final = "leaderelection.k8s.io/unknown"
_LEASES: Final = "leases"
#: The API version and the kind of lock objects, by their plural.
_KINDS: Final = {
    _LEASES: ("coordination.k8s.io/v1", "Lease"), "endpoints": ("v1", "Endpoints"), "configmaps": ("v1", "ConfigMap"),
}  # fmt: skip


class ApiLock:
    """Implements ``moorage.live.runtime.leader_election.LeaseLock`` with one object of a kind in ``_KINDS``.

    A Lease has the record in its spec, where invalid fields count as empty; the others have it in an annotation. Fields of
    other writers on the object are preserved.
    """

    def __init__(self, rest: Rest, plural: str, namespace: str, name: str) -> None:
        self._rest = rest
        self.plural, self.namespace, self.name = plural, namespace, name
        self.api_version, self.kind = _KINDS[plural]
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        self._path = f"{root}/namespaces/{namespace}/{plural}"
        self._held: dict[str, Any] = {}

    def _filled(self, held: dict[str, Any], record: LeaseRecord) -> dict[str, Any]:
        """Return the object with a record written into it."""
        if self.plural == _LEASES:
            return {**held, "spec": {**held.get("spec", {}), **_fields(record, "leaseTransitions", _microsecond)}}
        metadata = held.get("metadata", {})
        text = json.dumps(_fields(record, "leaderTransitions", _second), separators=(",", ":"))
        return {**held, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), ANNOTATION: text}}}

    def _record(self, held: dict[str, Any]) -> LeaseRecord:
        """Return the record in the object, without its version.

        Raises  ClusterError for an invalid record in an annotation: the leader is then unknown
        """
        if self.plural == _LEASES:
            return _as_record(held.get("spec") or {}, "leaseTransitions", _number)
        text = (held["metadata"].get("annotations") or {}).get(ANNOTATION)
        try:
            return LeaseRecord("", 0, "", "") if text is None else _as_record(json.loads(text), "leaderTransitions", int)
        except (ValueError, TypeError, AttributeError, RecursionError):
            where = f"{self.plural} {self.namespace}/{self.name}"
            raise ClusterError(f"{where}: invalid leader election record in the annotation {ANNOTATION}") from None

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


def _fields(record: LeaseRecord, transitions: str, moment: Callable[[str], str | None]) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": moment(record.acquired),
        "renewTime": moment(record.renewed),
        transitions: record.transitions,
    }


def _as_record(fields: Mapping[str, Any], transitions: str, number: Callable[[Any], int]) -> LeaseRecord:
    return LeaseRecord(
        str(fields.get("holderIdentity") or ""),
        number(fields.get("leaseDurationSeconds", 0)),
        str(fields.get("acquireTime") or ""),
        str(fields.get("renewTime") or ""),
        number(fields.get(transitions, 0)),
    )


def _microsecond(moment: str) -> str | None:
    """Return a timestamp with microseconds, as leases store it; annotations store seconds."""
    return moment.removesuffix("Z") + ".000000Z" if moment.endswith("Z") and "." not in moment else moment or None


def _second(moment: str) -> str | None:
    """Return a timestamp with seconds, as annotations store it."""
    return moment.partition(".")[0].rstrip("Z") + "Z" if moment else None


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


class ApiPair:
    """An annotation and a Lease that are held together. Implements ``moorage.live.runtime.leader_election.LeaseLock``.

    ``read`` returns the annotation's record; its ``beside`` holds the Lease's content, so that a renewal of either is noticed.
    """

    def __init__(self, first: ApiLock, second: ApiLock, identity: str) -> None:
        self._first, self._second = first, second
        self._identity = identity
        #: The last seen resource versions of both; "" for a missing Lease.
        self._versions = ("", "")

    async def read(self) -> LeaseRecord | None:
        first = await self._first.read()
        if first is None:
            return None
        second = await self._second.read()
        if second is not None:
            return self._together(first if first.holder == second.holder else replace(first, holder=UNKNOWN), second)
        self._versions = (first.version, "")
        # Without a Lease, a replica that knows only annotations may lead. If the annotation is ours, create the Lease again.
        return None if first.holder == self._identity else first

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        record = replace(record, beside="")
        return self._together(await self._first_of_two(record), await self._second.create(record))

    async def _first_of_two(self, record: LeaseRecord) -> LeaseRecord:
        """Create the annotation, or return it if it is ours already and only its Lease is missing.

        client-go treats any existing annotation as its own, and may lead for a while next to a replica that was faster.
        """
        try:
            return await self._first.create(record)
        except ClusterError as error:
            if error.status != 409:
                raise
            found = await self._first.read()
            if found is None or found.holder != record.holder:
                raise
            return found

    async def update(self, record: LeaseRecord) -> LeaseRecord:
        """Update annotation and Lease, each at its last seen version.

        client-go overwrites a Lease that another replica has just acquired.
        """
        record = replace(record, beside="")
        first = await self._first.update(replace(record, version=self._versions[0]))
        self._versions = (first.version, self._versions[1])
        return self._together(first, await self._second_of_two(replace(record, version=self._versions[1])))

    async def _second_of_two(self, record: LeaseRecord) -> LeaseRecord:
        if not record.version:
            return await self._second.create(record)
        try:
            return await self._second.update(record)
        except ClusterError as error:
            if error.status != 404:
                raise
            return await self._second.create(record)

    def _together(self, first: LeaseRecord, second: LeaseRecord) -> LeaseRecord:
        self._versions = (first.version, second.version)
        return replace(first, beside=repr(second.without_version))

    async def write_event(self, text: str, wall: str, reporter: str) -> None:
        """Write a Kubernetes event about each of them.

        Raises  ClusterError
        """
        await self._first.write_event(text, wall, reporter)
        await self._second.write_event(text, wall, reporter)


AnyLock = ApiLock | ApiPair


def lock_on(rest: Rest, lock: str, namespace: str, name: str, identity: str) -> AnyLock:
    """Return the lock that ``resourceLock`` names.

    Raises  InputError for an unknown type
    """
    if lock in _KINDS:
        return ApiLock(rest, lock, namespace, name)
    plural = lock.removesuffix(_LEASES)
    if plural not in _KINDS or plural == _LEASES:
        raise InputError(f"couldn't create resource lock: Invalid lock-type {lock}")
    return ApiPair(ApiLock(rest, plural, namespace, name), ApiLock(rest, _LEASES, namespace, name), identity)
