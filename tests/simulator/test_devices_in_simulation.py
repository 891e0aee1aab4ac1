"""Test pods with device claims in a simulation: no device is allocated twice, and released devices are allocated again."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from moorage.api.core import Pod
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.core.engine.facts import Gone, Seen
from moorage.framework.verdicts import Hold
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_node, a_pod

DRIVER = "gpu.example.com"
HEAD = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
GPU = "example.com/gpu"


def nodes(count):
    return [a_node(f"n{at}", allocatable={"cpu": "64", "memory": "64Gi", "pods": 100}) for at in range(count)]


def a_class(**spec):
    return msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, DeviceClass)


def slices(count, devices):
    for at in range(count):
        pool = {"name": f"n{at}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": f"n{at}", "devices": [{"name": f"d{n}"} for n in range(devices)]}
        yield msgspec.convert({"metadata": {"name": f"s{at}"}, "spec": spec}, ResourceSlice)


def claim(name, count=1):
    request = {"name": "r0", "exactly": {"deviceClassName": "gpu", "count": count}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": metadata, "spec": {"devices": {"requests": [request]}}}, ResourceClaim)


def using(name, *claims, **container) -> Pod:
    uses = [{"name": used, "resourceClaimName": used} for used in claims]
    containers = [{"name": "c", **container}]
    return a_pod(name, containers=containers, schedulerName="default-scheduler", resourceClaims=uses).pod


def start(objects, *plugins, config=b""):
    simulation, _ = prepare(Options(config=HEAD + config, plugins=plugins))
    simulation.load(objects)
    return simulation


def placed(simulation):
    return {record.pod.name: record.node for record in simulation.records.values()}


def in_use(simulation):
    """Return how many placed pods hold each device."""
    claims = simulation.scheduler.snapshot.objects(ResourceClaim).values()
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    return Counter((result.pool, result.device) for found in allocations for result in found.devices.results)


def test_every_device_is_allocated_exactly_once():
    pods = [using(f"p{at:02}", f"c{at:02}") for at in range(14)]
    simulation = start([*nodes(4), a_class(), *slices(4, 3), *[claim(f"c{at:02}") for at in range(14)], *pods])
    simulation.run()
    held = in_use(simulation)
    assert len(held) == 12
    assert set(held.values()) == {1}
    assert sum(1 for node in placed(simulation).values() if node) == 12
    assert simulation.overslept == []


def test_pods_that_share_a_claim_run_where_its_device_is():
    simulation = start([*nodes(3), a_class(), *slices(3, 1), claim("c"), *[using(f"p{at}", "c") for at in range(3)]])
    simulation.run()
    assert len({node for node in placed(simulation).values() if node}) == 1
    (shared,) = simulation.scheduler.snapshot.objects(ResourceClaim).values()
    assert sorted(user.name for user in shared.status.reserved_for) == ["p0", "p1", "p2"]


def test_a_deleted_claim_frees_its_device_for_a_pending_pod():
    simulation = start([*nodes(1), a_class(), *slices(1, 1), claim("c0"), claim("c1"), using("p0", "c0"), using("p1", "c1")])
    simulation.run()
    assert placed(simulation) == {"p0": "n0", "p1": ""}
    known = simulation.scheduler.snapshot.objects(ResourceClaim)["default/c0"]
    simulation.at(1000.0, Seen(msgspec.structs.replace(known, status=type(known.status)())))
    simulation.at(1001.0, Gone(known))
    simulation.run()
    assert placed(simulation)["p1"] == "n0"
    assert simulation.overslept == []


@pytest.mark.parametrize("count", [1, 2])
def test_extended_resources_are_backed_by_devices(count):
    asks = {"resources": {"requests": {GPU: count}, "limits": {GPU: count}}}
    pods = [using(f"p{at}", **asks) for at in range(5)]
    simulation = start([*nodes(2), a_class(extendedResourceName=GPU), *slices(2, 2), *pods])
    simulation.run()
    held = in_use(simulation)
    assert len(held) == 4
    assert set(held.values()) == {1}
    assert sum(1 for node in placed(simulation).values() if node) == 4 // count


class Doorkeeper:
    """Fail PreBind of the pod called ``first``."""

    name = "Doorkeeper"

    def pre_bind(self, state, pod, node):
        return Hold.because("not you") if pod.name == "first" else ()


def test_devices_of_a_failed_binding_go_to_another_pod():
    config = b"profiles:\n- plugins:\n    multiPoint:\n      enabled: [{name: Doorkeeper}]\n"
    objects = [*nodes(1), a_class(), *slices(1, 1), claim("c0"), claim("c1"), using("first", "c0"), using("second", "c1")]
    simulation = start(objects, Doorkeeper, config=config)
    simulation.run()
    assert placed(simulation) == {"first": "", "second": "n0"}
    untouched = simulation.scheduler.snapshot.objects(ResourceClaim)["default/c0"]
    assert untouched == claim("c0")
