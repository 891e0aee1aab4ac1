"""Test malformed, circular and oversized claims and slices: kube-scheduler's messages, and runs that end."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.api.storage import StorageClass
from moorage.simulator.simulate import Options, simulate
from moorage.testing.builders import a_node, a_pod
from moorage.testing.storage import a_claim, a_volume, standing_on

DRIVER = "gpu.example.com"


def node():
    return a_node("n", allocatable={"cpu": "64", "memory": "64Gi", "pods": 100})


def a_class(name="gpu"):
    return msgspec.convert({"metadata": {"name": name}, "spec": {}}, DeviceClass)


def a_slice(name, devices, count=1, pool="p", generation=1):
    spec = {
        "driver": DRIVER, "nodeName": "n", "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": [{"name": one} if isinstance(one, str) else one for one in devices],
    }  # fmt: skip
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def devices_claim(*requests, constraints=(), name="c"):
    spec = {"devices": {"requests": list(requests), "constraints": list(constraints)}}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}, ResourceClaim)


def exactly(name="r", expression="", **more):
    selectors = [{"cel": {"expression": expression}}] if expression else []
    return {"name": name, "exactly": {"deviceClassName": "gpu", "count": 1, "selectors": selectors, **more}}


def using(*claims):
    uses = [{"name": f"u{at}", "resourceClaimName": claim} for at, claim in enumerate(claims)]
    return a_pod("p", resourceClaims=uses, schedulerName="default-scheduler").pod


#: A tenth of a second for a node instead of the default ten: enough to test that the search ends.
HURRY = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig: [{name: DynamicResources, args: {filterTimeout: 100ms}}]
"""


def outcome(*objects):
    """Simulate a cluster of one node, and return where its one pod is placed, or why not."""
    run = simulate([node(), a_class(), *objects], Options(config=HURRY))
    (pod,) = run.pods
    return pod.node or pod.message


REFUSED = "0/1 nodes are available: 1 cannot allocate all claims."
INVALID = "invalid resource pools were encountered"
MANY = [f"d{at}" for at in range(3000)]


@pytest.mark.parametrize(
    ("slices", "expected"),
    {
        "more slices announced than exist": ([a_slice("s", ["d"], count=2**31)], REFUSED),
        "fewer slices announced than exist": ([a_slice("s0", ["a"]), a_slice("s1", ["b"])], "n"),
        "two slices with the same devices": ([a_slice("s0", ["d"], 2), a_slice("s1", ["d"], 2)], INVALID),
        "a slice that names a device twice": ([a_slice("s", ["d", "d"])], INVALID),
        "an old generation beside a new one": ([a_slice("old", ["d"]), a_slice("new", [], generation=2)], REFUSED),
        "no devices at all": ([a_slice("s", [])], REFUSED),
        "more devices than a slice may hold": ([a_slice("s", MANY)], "n"),
        "hundreds of slices, none of them complete": ([a_slice(f"s{at}", MANY[:20], 10**9) for at in range(300)], REFUSED),
    }.values(),
)
def test_malformed_slices(slices, expected):
    assert expected in outcome(*slices, devices_claim(exactly()), using("c"))


@pytest.mark.parametrize(
    ("claim", "expected"),
    {
        "more devices than the limit": (devices_claim(exactly(count=10**12)), "exceeds the claim limit of 32"),
        "too many requests": (devices_claim(*[exactly(f"r{at}") for at in range(500)]), "exceeds the claim limit of 32"),
        "too many for the pool": (devices_claim(*[exactly(f"r{at}") for at in range(32)]), "timed out trying"),
        "two requests of one name": (devices_claim(exactly(), exactly()), "n"),
        "a constraint on an unknown request": (
            devices_claim(exactly(), constraints=[{"requests": ["other"], "matchAttribute": f"{DRIVER}/x"}]), "n",
        ),
        "a constraint on an attribute that no device has": (
            devices_claim(exactly(), constraints=[{"requests": ["r"], "matchAttribute": f"{DRIVER}/x"}]), REFUSED,
        ),
        "an unknown mode": (devices_claim(exactly(allocationMode="Some")), "unsupported count mode Some"),
        "no request at all": (devices_claim(), "n"),
    }.values(),
)  # fmt: skip
def test_unsatisfiable_claims(claim, expected):
    assert expected in outcome(a_slice("s", [f"d{at}" for at in range(20)]), claim, using("c"))


#: Nested loops that exceed every budget.
LONG = "[" + ",".join(map(str, range(100))) + "]"
COSTLY = f"{LONG}.all(a, {LONG}.all(b, {LONG}.all(c, {LONG}.all(d, a + b + c + d >= 0))))"


@pytest.mark.parametrize(
    ("expression", "expected"),
    {
        "does not compile": ("device.nothing", "undefined field 'nothing'"),
        "does not parse": ("device.driver ==", "Syntax error"),
        "is no bool": ("device.driver", "must evaluate to bool"),
        "divides by zero": ("1 / 0 == 1", "division by zero"),
        "reads a missing attribute": (f'device.attributes["{DRIVER}"].x', "no such key: x"),
        "costs too much": (COSTLY, "actual cost limit exceeded"),
        "is nested too deep": ("(" * 2000 + "true" + ")" * 2000, "recursion"),
        "is a regular expression with exponential backtracking elsewhere": ('("a".matches("(a*)*b") || true)', "n"),
    }.values(),
)
def test_selectors_that_fail(expression, expected):
    assert expected in outcome(a_slice("s", ["d"]), devices_claim(exactly(expression=expression)), using("c"))


def test_an_unsatisfiable_search_ends():
    devices = [{"name": f"d{at}", "attributes": {"n": {"int": at}}} for at in range(40)]
    puzzle = devices_claim(*[exactly(f"r{at}") for at in range(11)], exactly("last", "false"))
    assert "timed out trying to allocate devices" in outcome(a_slice("s", devices), puzzle, using("c"))


def test_a_claim_that_a_pod_lists_twice_counts_twice_as_in_kube_scheduler():
    assert REFUSED in outcome(a_slice("s", ["d"]), devices_claim(exactly()), using("c", "c"))


# -- circles --------------------------------------------------------------------------------------------------------------


def in_a_circle(count):
    """Return volumes and claims of which each refers to the next, so that no pair agrees."""
    for at in range(count):
        after = (at + 1) % count
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": f"c{after}", "uid": f"default/c{after}"}
        yield a_volume(f"pv{at}", storageClassName="local", claimRef=ref)
        yield a_claim(f"c{at}", storageClassName="local", volumeName=f"pv{at}")


@pytest.mark.parametrize("count", [2, 3, 20])
@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_circular_references_between_volumes_and_claims(count, mode):
    storage_class = msgspec.convert(
        {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode}, StorageClass
    )
    pod = a_pod("p", volumes=standing_on(*[f"c{at}" for at in range(count)]), schedulerName="default-scheduler").pod
    where = outcome(storage_class, *in_a_circle(count), pod)
    assert where.startswith("0/1 nodes are available: ")


def test_a_claim_whose_data_source_is_itself():
    source = {"kind": "PersistentVolumeClaim", "name": "c"}
    storage_class = msgspec.convert({"metadata": {"name": "made"}, "provisioner": "x.example.com"}, StorageClass)
    pod = a_pod("p", volumes=standing_on("c"), schedulerName="default-scheduler").pod
    assert outcome(storage_class, a_claim("c", storageClassName="made", dataSource=source), pod)
