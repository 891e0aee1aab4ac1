"""Test the simulated device drivers: they make allocated devices ready and record allocations."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice
from moorage.core.engine.facts import Gone, Seen
from moorage.simulator.outcome_collector import collect
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_node, a_pod

DRIVER = "gpu.example.com"
CLASS = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)
NODE = a_node("n0", allocatable={"cpu": "4", "memory": "8Gi", "pods": 10})


def a_slice(**device):
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n0", "devices": [{"name": "d0", **device}]}
    return msgspec.convert({"metadata": {"name": "s0"}, "spec": spec}, ResourceSlice)


def a_claim(name="gpu", **status):
    request = {"name": "r0", "exactly": {"deviceClassName": "gpu", "count": 1}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    given = {"metadata": metadata, "spec": {"devices": {"requests": [request]}}, "status": status}
    return msgspec.convert(given, ResourceClaim)


def using(name, claim="gpu"):
    uses = [{"name": claim, "resourceClaimName": claim}]
    return a_pod(name, containers=[{"name": "c"}], schedulerName="default-scheduler", resourceClaims=uses).pod


def run(*objects, later=()):
    simulation, _ = prepare(Options())
    simulation.load([NODE, CLASS, *objects])
    for time_s, fact in later:
        simulation.at(time_s, fact)
    simulation.run()
    return simulation


def given(simulation):
    return [(one.claim, one.pool, one.device, one.node, one.pods) for one in collect(simulation, "1.36").devices]


@pytest.mark.parametrize("conditions", [[], ["Attached"], ["Attached", "Powered"]])
def test_a_device_is_made_ready_and_its_pod_is_bound_at_once(conditions):
    extra = {"bindingConditions": conditions, "bindingFailureConditions": ["Broken"]} if conditions else {}
    simulation = run(a_slice(**extra), a_claim(), using("p"))
    record = next(iter(simulation.records.values()))
    assert (record.node, record.placed_s, record.attempts) == ("n0", 0.0, 1)
    claim = simulation.scheduler.snapshot.objects(ResourceClaim)["default/gpu"]
    said = [(device.device, c.type, c.status) for device in claim.status.devices for c in device.conditions]
    assert said == [("d0", condition, "True") for condition in conditions]
    assert given(simulation) == [("gpu", "n0", "d0", "n0", ("default/p",))]


ALLOCATED = {
    "devices": {"results": [{"request": "r0", "driver": DRIVER, "pool": "n0", "device": "d0"}]},
}


def test_earlier_allocations_are_not_reported():
    simulation = run(a_slice(), a_claim(allocation=ALLOCATED), using("p"))
    assert next(iter(simulation.records.values())).node == "n0"
    assert given(simulation) == []


def test_deallocations_are_not_reported():
    claim = a_claim("other", allocation=ALLOCATED)
    freed = replace(claim, status=ResourceClaimStatus())
    simulation = run(a_slice(), claim, a_claim(), using("p"), later=[(5.0, Seen(freed)), (9.0, Gone(freed))])
    assert next(iter(simulation.records.values())).placed_s == 5.0
    assert given(simulation) == [("gpu", "n0", "d0", "n0", ("default/p",))]
