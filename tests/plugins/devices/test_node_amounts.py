"""Devices that take CPU, memory and huge pages of their node, with the gate DRANodeAllocatableResources.

The tables are those of upstream's tests, in their order; ``bred/v1.36.3.jsonl.gz`` of the recordings has decisions of 1.36.3.
"""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.devices import Device
from moorage.core.engine.facts import Phase
from moorage.plugins.devices.claim_requests import AskError
from moorage.plugins.devices.node_amounts import status_of
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.plugins.later.dynamic_resources import DynamicResourcesV137
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node, a_pod
from moorage.testing.plugin_queries import refusals
from tests.core.engine.driving import Driven, node, pod
from tests.plugins.device_claims import Scheduler, a_claim, a_class, a_slice, allocated, exactly, with_devices

GATE = "DRANodeAllocatableResources=true"


def a_device(name="d", **resources):
    """A device of 1.37; ``cpu=("2", "", "")`` maps 2 CPUs, the others are the overheads for the pod and for each container."""
    given = {}
    for resource, (mapped, per_pod, per_container) in resources.items():
        overhead = {field: amount for field, amount in (("perPod", per_pod), ("perContainer", per_container)) if amount}
        mapping = mapped if isinstance(mapped, dict) else {"deviceMultiplier": mapped} if mapped else {}
        given[resource] = {kind: one for kind, one in (("mapping", mapping), ("overhead", overhead)) if one}
    return {"name": name, "nodeAllocatableResources": given}


def by(key, **more):
    return {"capacityKey": f"dra.example.com/{key}", **more}, "", ""


CPUS = a_device(cpu=by("cpu"))
BOTH = a_device(cpu=by("cpu"), memory=by("memory"))
OVERHEAD = a_device(memory=("", "1Gi", "500Mi"))
#: The device, what its share consumes, the containers that use the claim, and what is said of it.
AMOUNTS = {
    "per device": (a_device(cpu=("1", "", "")), {}, "c1", {"cpu": "1"}, {}),
    "CPU and memory by capacity": (BOTH, {"cpu": "4", "memory": "8Gi"}, "c1", {"cpu": "4", "memory": "8Gi"}, {}),
    "a device without such resources": ({"name": "d"}, {}, "c1", None, None),
    "CPU by capacity": (CPUS, {"cpu": "30"}, "c1", {"cpu": "30"}, {}),
    "an accelerator's own": (a_device(cpu=("2", "", ""), memory=("4Gi", "", "")), {}, "c1", {"cpu": "2", "memory": "4Gi"}, {}),
    "two containers": (CPUS, {"cpu": "10"}, "c1 c2", {"cpu": "10"}, {}),
    "one capacity of two": (BOTH, {"memory": "8Gi"}, "c1", {"memory": "8Gi"}, {}),
    "no container": (CPUS, {"cpu": "4"}, "", {"cpu": "4"}, {}),
    "overhead, no container": (OVERHEAD, {}, "", {}, {"memory": ("1Gi", "500Mi")}),
    "overhead for containers, no container": (a_device(memory=("", "", "500Mi")), {}, "", {}, {"memory": ("", "500Mi")}),
    "units of capacity": (a_device(cpu=by("cores", capacityMultiplier="2")), {"cores": "4"}, "c1", {"cpu": "8"}, {}),
    "another capacity": (CPUS, {"wrong": "4"}, "c1", None, None),
    "overhead": (OVERHEAD, {}, "c1", {}, {"memory": ("1Gi", "500Mi")}),
    "overhead for the pod": (a_device(memory=("", "1Gi", "")), {}, "c1", {}, {"memory": ("1Gi", "")}),
    "overhead for containers": (a_device(memory=("", "", "500Mi")), {}, "c1", {}, {"memory": ("", "500Mi")}),
    "overhead, two containers": (OVERHEAD, {}, "c1 c2", {}, {"memory": ("1Gi", "500Mi")}),
    "both of memory": (a_device(memory=("2Gi", "1Gi", "500Mi")), {}, "c1", {"memory": "2Gi"}, {"memory": ("1Gi", "500Mi")}),
    "both": (a_device(cpu=("2", "1", "500m")), {}, "c1", {"cpu": "2"}, {"cpu": ("1", "500m")}),
}  # fmt: skip


def a_user(*containers, others=(), requests=None, level=None, overhead=None):
    """A pod whose containers all use its one claim, but for ``others``."""
    uses = {"claims": [{"name": "use"}]}
    made = [{"name": name, "resources": {"requests": requests or {}, **uses}} for name in containers]
    made += [{"name": name, "resources": {"requests": requests or {}}} for name in others]
    more = {**({"resources": {"requests": level}} if level else {}), **({"overhead": overhead} if overhead else {})}
    return a_pod("p", containers=made, resourceClaims=[{"name": "use", "resourceClaimName": "c"}], **more)


@pytest.mark.parametrize(("device", "consumed", "users", "mapped", "extra"), AMOUNTS.values(), ids=AMOUNTS)
def test_what_a_claim_takes(device, consumed, users, mapped, extra):
    share = {f"dra.example.com/{key}": amount for key, amount in consumed.items()}
    who = a_user(*users.split(), others=() if users else ("c1",))
    found = status_of(a_claim("c"), [(msgspec.convert(device, Device), share)], who, overheads=True)
    if mapped is None:
        assert found is None
        return
    assert (found.resource_claim_name, " ".join(found.containers)) == ("c", users)
    assert {one["name"]: one["quantity"] for one in found.mapping} == mapped
    assert {one["name"]: (one.get("perPod", ""), one.get("perContainer", "")) for one in found.overhead} == {
        name: tuple("1" if one == "1000m" else one for one in amounts) for name, amounts in extra.items()
    }


def test_what_depends_on_a_capacity_needs_a_share():
    with pytest.raises(AskError, match="ConsumedCapacity is nil, but Capacity key 'dra"):
        status_of(a_claim("c"), [(msgspec.convert(CPUS, Device), {})], a_user("c1"), overheads=True)


def test_a_capacity_counts_in_units_of_1_36():
    mapping = {"capacityKey": "cores", "allocationMultiplier": "500m"}
    device = msgspec.convert({"name": "d", "nodeAllocatableResourceMappings": {"cpu": mapping}}, Device)
    assert status_of(a_claim("c"), [(device, {"cores": "3"})], a_user("c1"), overheads=False).resources == {"cpu": "1500m"}


def why_not(device, who, *, claim=None, there=None, offers=None, gate=GATE, cls=DynamicResourcesV137):
    """Return why node a cannot have the pod, and whether eviction cannot help; None if it can."""
    offers = offers or {"cpu": "64", "memory": "64Gi", "pods": "9"}
    cluster = with_devices(a_slice("a", [device]), claim or a_claim("c"), nodes=[a_node("a", allocatable=offers)])
    if there is not None:
        cluster.place(there, "a")
    plugin = cls()
    plugin.attach(Scheduler(cluster, gates=gate))
    status = refusals(plugin, who, cluster.snapshot).get("a")
    return None if status is None else (status.message, status.code.value == "UnschedulableAndUnresolvable")


SHARED = "node allocatable resource claim c has a mapped device and cannot be shared across pods"
CPU, MEMORY = a_device(cpu=("1", "", "")), a_device(memory=("", "", "100"))
#: The device that a claim has, the pod it is reserved for, and whether it is refused.
SHARING = {
    "no pod has the claim": (CPU, (), False),
    "the pod has it": (CPU, ("p",), False),
    "another pod has it": (CPU, ("q",), True),
    "overhead alone": (MEMORY, ("q",), False),
    "a device with both": (a_device(cpu=("1", "", "100")), ("q",), True),
    "the pod and another": (CPU, ("p", "q"), False),
}


@pytest.mark.parametrize(("device", "users", "refused"), SHARING.values(), ids=SHARING)
def test_devices_with_more_than_overhead_are_for_one_pod(device, users, refused):
    who = a_user("c1")
    named = [who.uid if user == "p" else user for user in users]
    claim = a_claim("c", status=allocated(("a", "d"), users=named))
    assert why_not(device, who, claim=claim) == ((SHARED, True) if refused else None)
    assert why_not(device, who, claim=claim, gate="") is None


#: What the device maps, what the node offers, what a pod there requests, and the answer.
FITS = {
    "enough": ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}, {}, None),
    "too little CPU": ({"cpu": "3"}, {"cpu": "2"}, {}, ("Insufficient cpu", True)),
    "too little memory left": ({"memory": "3Gi"}, {"memory": "5Gi"}, {"memory": "4Gi"}, ("Insufficient memory", False)),
    "enough huge pages": ({"hugepages-2Mi": "1", "hugepages-1Gi": "2"}, {"hugepages-2Mi": "1", "hugepages-1Gi": "2"}, {}, None),
    "too few huge pages": ({"hugepages-2Mi": "2"}, {"hugepages-2Mi": "1"}, {}, ("Insufficient hugepages-2Mi", True)),
    "too few larger ones": ({"hugepages-1Gi": "3"}, {"hugepages-1Gi": "2"}, {}, ("Insufficient hugepages-1Gi", True)),
    "all": ({"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "1"}, {"cpu": "2", "memory": "2Gi", "hugepages-2Mi": "1"}, {}, None),
    "other resources are not looked at": ({"example.com/x": "1"}, {}, {}, None),
}  # fmt: skip


@pytest.mark.parametrize(("mapped", "offers", "held", "expected"), FITS.values(), ids=FITS)
def test_whether_the_node_has_it(mapped, offers, held, expected):
    device = a_device(**{name: (amount, "", "") for name, amount in mapped.items()})
    there = a_pod("q", containers=[{"name": "c", "resources": {"requests": held}}]) if held else None
    assert why_not(device, a_user("c1"), offers={"pods": "9", **offers}, there=there) == expected


LEVEL = "pod level request for {} is insufficient to cover the aggregated container and node-allocatable DRA requests"
#: CPU and memory that the container requests, and the pod as a whole; what the device takes, and which resource is too little.
COVERED = {
    "no requests of the pod as a whole": ("1", "1Gi", "", "", {"cpu": ("500m", "", "")}, ""),
    "enough": ("1", "1Gi", "2", "2Gi", {"cpu": ("500m", "", ""), "memory": ("512Mi", "", "")}, ""),
    "too little CPU": ("800m", "1Gi", "1", "2Gi", {"cpu": ("300m", "", "")}, "cpu"),
    "too little of two": ("1100m", "1100Mi", "1", "1Gi", {"cpu": ("100m", "", "")}, "cpu"),
    "enough for overheads": ("1", "1Gi", "2", "3Gi", {"memory": ("", "1Gi", "1Gi")}, ""),
    "too little for overheads": ("1", "1Gi", "2", "2Gi", {"memory": ("", "1Gi", "1Gi")}, "memory"),
}


@pytest.mark.parametrize(("cpu", "memory", "level", "level_memory", "takes", "short"), COVERED.values(), ids=COVERED)
def test_requests_of_the_pod_as_a_whole_cover_the_devices(cpu, memory, level, level_memory, takes, short):
    whole = {"cpu": level, "memory": level_memory} if level else None
    who = a_user("c1", requests={"cpu": cpu, "memory": memory}, level=whole, overhead={"cpu": "500m"})
    assert why_not(a_device(**takes), who) == ((LEVEL.format(short), True) if short else None)


def a_mapped(cpu):
    return {"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": cpu}}}


def test_1_36_wants_a_container_and_does_not_count_what_a_claim_has():
    assert why_not(a_mapped("1"), a_user(others=["c1"]), cls=DynamicResources) == (
        "claim c: node-allocatable resource claim not referenced by any container within the pod", True,
    )  # fmt: skip
    mine = a_claim("c", status=allocated(("a", "d")))
    assert why_not(a_mapped("99"), a_user("c1"), claim=mine, cls=DynamicResources) is None
    assert why_not(a_device(cpu=("99", "", "")), a_user("c1"), claim=mine) == ("Insufficient cpu", True)


def test_1_36_looks_for_other_pods_on_the_node():
    taken = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c", "resources": {"cpu": "1"}}]}
    claim, who = a_claim("c", status=allocated(("a", "d"))), a_user("c1")
    told = why_not(a_mapped("1"), who, claim=claim, there=a_pod("q", status=taken), cls=DynamicResources)
    assert told == ("node allocatable resource claim c is already used by another pod", True)


#: A release → a device that takes 3 CPUs there, and what the status of the pod says of them.
OF_RELEASES = {
    "1.36": (a_mapped("3"), {"cpu": "3"}, ()),
    "1.37": (a_device(cpu=("3", "", "")), {}, ({"name": "cpu", "quantity": "3"},)),
}
of_releases = pytest.mark.parametrize("release", OF_RELEASES)


def a_run(release, cpu="4"):
    run = Driven(gates=GATE, release=release)
    run.see(node("a", cpu), a_class(), a_slice("a", [OF_RELEASES[release][0]]), a_claim("c", exactly()))
    uses = {"claims": [{"name": "use"}], "requests": {"cpu": "500m"}}
    user = a_pod(
        "p", containers=[{"name": "c1", "resources": uses}], resourceClaims=[{"name": "use", "resourceClaimName": "c"}]
    )
    run.see(user.pod, pod("q", cpu="1"))
    return run


@of_releases
def test_a_pod_takes_it_from_when_it_is_assumed_and_its_status_says_so(release):
    run = a_run(release)
    assert run.steps() == [("p", "a"), ("q", None)], "500m and 3 CPUs are taken"
    amend = run.only_work(Phase.PRE_BIND).effects[-1]
    (status,) = amend.change(amend.obj).status.node_allocatable_resource_claim_statuses
    assert (status.resource_claim_name, status.containers) == ("c", ("c1",))
    assert (status.resources, tuple(status.mapping)) == OF_RELEASES[release][1:]
    assert PodInfo(amend.change(amend.obj)).requests == {"cpu": 3500}


@of_releases
def test_a_failed_binding_gives_it_back(release):
    run = a_run(release)
    run.steps()
    run.done(run.only_work(Phase.PRE_BIND), error="no")
    (work,) = run.work(Phase.UNRESERVE)
    assert work.effects[-1].change(work.effects[-1].obj).status.node_allocatable_resource_claim_statuses == ()
    run.done(work)
    assert run.on("a") == []
    assert run.engine.snapshot.node("a").requested("cpu") == 0


@of_releases
def test_a_node_with_too_little_is_refused(release):
    assert a_run(release, cpu="3").steps() == [("p", None), ("q", "a")]
