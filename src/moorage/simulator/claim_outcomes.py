"""Claims in a finished simulation: volumes that were bound, devices that were allocated, and the pods that use them."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.core import Pod
from moorage.api.devices import ResourceClaim
from moorage.report.claim_report import DeviceOutcome, VolumeOutcome
from moorage.simulator.simulation import PodRecord, SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["devices_allocated", "volumes_bound"]


def volumes_bound(simulation: SimulatedCluster) -> Iterator[VolumeOutcome]:
    """Yield the claims whose volumes were bound during the run, by namespace and name."""
    bound = simulation.storage.bound
    if not bound:
        return
    users: dict[str, list[PodRecord]] = {}
    for record in _placed(simulation):
        for key in _volume_claims(record.pod):
            users.setdefault(key, []).append(record)
    for key, one in sorted(bound.items()):
        records = users.get(key, [])
        yield VolumeOutcome(
            namespace=one.claim.metadata.namespace,
            claim=one.claim.metadata.name,
            volume=one.volume.name,
            storage_class=one.storage_class,
            made=one.made,
            node=records[0].node if records else "",
            pods=tuple([record.pod.key for record in records]),
        )


def devices_allocated(simulation: SimulatedCluster) -> Iterator[DeviceOutcome]:
    """Yield the devices that were allocated during the run and still are, by namespace and name of the claim."""
    claims = simulation.scheduler.snapshot.objects(ResourceClaim)
    keys = sorted(simulation.devices.allocated)
    placed = {record.pod.metadata.uid: record for record in _placed(simulation)} if keys else {}
    for key in keys:
        claim = claims[key]
        allocation = claim.status.allocation
        records = [placed[user.uid] for user in claim.status.reserved_for if user.uid in placed]
        for result in allocation.devices.results if allocation is not None else ():
            yield DeviceOutcome(
                namespace=claim.metadata.namespace,
                claim=claim.metadata.name,
                request=result.request,
                driver=result.driver,
                pool=result.pool,
                device=result.device,
                node=records[0].node if records else "",
                pods=tuple([record.pod.key for record in records]),
            )


def _placed(simulation: SimulatedCluster) -> Iterator[PodRecord]:
    return (record for record in simulation.records.values() if record.placed_s is not None)


def _volume_claims(pod: Pod) -> tuple[str, ...]:
    volumes = PodInfo(pod).volumes if pod.spec.volumes else None
    return () if volumes is None else tuple([use.key for use in volumes.claims])
