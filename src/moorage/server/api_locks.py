"""The lock objects of leader election: a Lease, an annotation on Endpoints or a ConfigMap, or such an annotation and a Lease.

kube-scheduler up to 1.19 locked Endpoints, and both objects while it migrated to leases. The holder of a pair holds both, so
that replicas that know only one of them also see that they must wait.

Source  client-go 1.21, tools/leaderelection/resourcelock: interface.go, endpointslock.go, configmaplock.go, multilock.go
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from moorage.client.rest import Rest
from moorage.errors import ClusterError, InputError
from moorage.runtime.leader_election import LeaseRecord
from moorage.server.api_lease import ApiLease, LockObject

__all__ = ["ANNOTATION", "UNKNOWN", "AnyLock", "ApiAnnotation", "ApiPair", "lock_on"]

ANNOTATION: Final = "control-plane.alpha.kubernetes.io/leader"
#: Stands for the holder of a pair whose two records name different holders.
UNKNOWN: Final = "leaderelection.k8s.io/unknown"

_KINDS: Final = {"endpoints": "Endpoints", "configmaps": "ConfigMap"}


class ApiAnnotation(LockObject):
    """A record in an annotation of a core object; the other fields of the object are preserved."""

    def __init__(self, rest: Rest, plural: str, namespace: str, name: str) -> None:
        super().__init__(rest, "v1", _KINDS[plural], plural, namespace, name)

    def _filled(self, held: dict[str, Any], record: LeaseRecord) -> dict[str, Any]:
        metadata = held.get("metadata", {})
        annotations = {**(metadata.get("annotations") or {}), ANNOTATION: _as_text(record)}
        return {**held, "metadata": {**metadata, "annotations": annotations}}

    def _record(self, held: dict[str, Any]) -> LeaseRecord:
        text = (held["metadata"].get("annotations") or {}).get(ANNOTATION)
        return LeaseRecord("", 0, "", "") if text is None else _as_record(text, f"{self.plural} {self.namespace}/{self.name}")


def _as_text(record: LeaseRecord) -> str:
    fields = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": _second(record.acquired),
        "renewTime": _second(record.renewed),
        "leaderTransitions": record.transitions,
    }
    return json.dumps(fields, separators=(",", ":"))


def _second(moment: str) -> str | None:
    """Return a timestamp with seconds, as annotations store it."""
    return moment.partition(".")[0].rstrip("Z") + "Z" if moment else None


def _as_record(text: str, where: str) -> LeaseRecord:
    """Return the record in an annotation.

    Raises  ClusterError for an invalid record: the leader is then unknown
    """
    try:
        fields = json.loads(text)
        return LeaseRecord(
            str(fields.get("holderIdentity", "")),
            int(fields.get("leaseDurationSeconds", 0)),
            str(fields.get("acquireTime") or ""),
            str(fields.get("renewTime") or ""),
            int(fields.get("leaderTransitions", 0)),
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ClusterError(f"{where}: invalid leader election record in the annotation {ANNOTATION}") from None


class ApiPair:
    """An annotation and a Lease that are held together. Implements ``moorage.runtime.leader_election.LeaseLock``.

    ``read`` returns the annotation's record; its ``beside`` holds the Lease's content, so that a renewal of either is noticed.
    """

    def __init__(self, first: ApiAnnotation, second: ApiLease, identity: str) -> None:
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


AnyLock = ApiLease | ApiAnnotation | ApiPair


def lock_on(rest: Rest, lock: str, namespace: str, name: str, identity: str) -> AnyLock:
    """Return the lock that ``resourceLock`` names.

    Raises  InputError for an unknown type
    """
    if lock == "leases":
        return ApiLease(rest, namespace, name)
    if lock in _KINDS:
        return ApiAnnotation(rest, lock, namespace, name)
    plural = lock.removesuffix("leases")
    if plural not in _KINDS:
        raise InputError(f"couldn't create resource lock: Invalid lock-type {lock}")
    return ApiPair(ApiAnnotation(rest, plural, namespace, name), ApiLease(rest, namespace, name), identity)
