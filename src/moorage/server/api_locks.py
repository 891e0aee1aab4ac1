"""What replicas stand for on an API server: a Lease, an annotation of an Endpoints or a ConfigMap, or such a one and a Lease.

kube-scheduler up to 1.19 stood for Endpoints, and for the pair while it moved to leases: who holds the pair holds both, so that
replicas which know one of the two alone see that they must wait.

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
#: Who holds a pair whose halves say different names.
UNKNOWN: Final = "leaderelection.k8s.io/unknown"

_KINDS: Final = {"endpoints": "Endpoints", "configmaps": "ConfigMap"}


class ApiAnnotation(LockObject):
    """A record in the annotation of an object of the core group; all else that the object holds stays."""

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
    """Return a moment as annotations hold it, to the second."""
    return moment.partition(".")[0].rstrip("Z") + "Z" if moment else None


def _as_record(text: str, where: str) -> LeaseRecord:
    """Return what an annotation says. Where it says nonsense, it is not known who leads.

    Raises  ClusterError
    """
    try:
        said = json.loads(text)
        return LeaseRecord(
            str(said.get("holderIdentity", "")),
            int(said.get("leaseDurationSeconds", 0)),
            str(said.get("acquireTime") or ""),
            str(said.get("renewTime") or ""),
            int(said.get("leaderTransitions", 0)),
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ClusterError(f"{where}: the annotation {ANNOTATION} holds no record of a leader") from None


class ApiPair:
    """An annotation and a Lease that are held together. Satisfies ``moorage.runtime.leader_election.LeaseLock``.

    A record is the annotation's; ``beside`` is what the Lease says, so that a renewal of either is seen.
    """

    def __init__(self, first: ApiAnnotation, second: ApiLease, identity: str) -> None:
        self._first, self._second = first, second
        self._identity = identity
        #: The versions that both were last seen at; "" for a Lease that is not there.
        self._versions = ("", "")

    async def read(self) -> LeaseRecord | None:
        first = await self._first.read()
        if first is None:
            return None
        second = await self._second.read()
        if second is not None:
            return self._together(first if first.holder == second.holder else replace(first, holder=UNKNOWN), second)
        self._versions = (first.version, "")
        # A replica that knows annotations alone may hold it; what we hold without its Lease is to be created again.
        return None if first.holder == self._identity else first

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        record = replace(record, beside="")
        return self._together(await self._first_of_two(record), await self._second.create(record))

    async def _first_of_two(self, record: LeaseRecord) -> LeaseRecord:
        """Create the annotation, or return it if it is ours already: only its Lease is missing then.

        client-go takes any that is there for its own, and may lead for a while beside a replica that was quicker.
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
        """Replace both, each if it is as it was seen; client-go replaces a Lease that another has just taken."""
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
        return replace(first, beside=repr(second.told))

    async def tell(self, text: str, wall: str, reporter: str) -> None:
        """Write an event about each of them.

        Raises  ClusterError
        """
        await self._first.tell(text, wall, reporter)
        await self._second.tell(text, wall, reporter)


AnyLock = ApiLease | ApiAnnotation | ApiPair


def lock_on(rest: Rest, lock: str, namespace: str, name: str, identity: str) -> AnyLock:
    """Return what ``resourceLock`` names.

    Raises  InputError for what is none
    """
    if lock == "leases":
        return ApiLease(rest, namespace, name)
    if lock in _KINDS:
        return ApiAnnotation(rest, lock, namespace, name)
    plural = lock.removesuffix("leases")
    if plural not in _KINDS:
        raise InputError(f"couldn't create resource lock: Invalid lock-type {lock}")
    return ApiPair(ApiAnnotation(rest, plural, namespace, name), ApiLease(rest, namespace, name), identity)
