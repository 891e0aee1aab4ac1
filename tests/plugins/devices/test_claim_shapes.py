"""Test that cached answers equal recomputed ones, and that invalid slices cost no more than valid ones."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.plugins.devices.claim_shapes import Catalog
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals
from tests.plugins.device_claims import carry_out

DRIVER = "gpu.example.com"
NODES = ("a", "b", "c")


def a_slice(name, where, devices, generation=1, count=1, pool=None):
    spec = {
        "driver": DRIVER,
        "pool": {"name": pool or name, "generation": generation, "resourceSliceCount": count},
        "devices": [{"name": device} for device in devices],
        **({"allNodes": True} if where == "all" else {"nodeName": where}),
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def a_claim(name, held=(), count=1):
    request = {"name": "r0", "exactly": {"deviceClassName": "gpu", "count": count}}
    results = [{"request": "r0", "driver": DRIVER, "pool": pool, "device": device} for pool, device in held]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"devices": {"requests": [request]}}, "status": status}, ResourceClaim
    )


def a_device_class(name="gpu"):
    return msgspec.convert({"metadata": {"name": name}}, DeviceClass)


def reasons(cluster, count):
    cluster.set_object(a_claim(f"want-{count}", count=count))
    pod = a_pod(f"p{count}", resourceClaims=[{"name": "x", "resourceClaimName": f"want-{count}"}])
    return {name: status.message for name, status in refusals(DynamicResources(), pod, cluster.snapshot).items()}


devices_st = st.lists(st.sampled_from(["d0", "d1", "d2"]), max_size=3)
steps_st = st.lists(
    st.one_of(
        st.tuples(
            st.just("slice"), st.sampled_from(["s0", "s1"]), st.sampled_from([*NODES, "all"]), devices_st, st.integers(1, 2)
        ),
        st.tuples(st.just("no slice"), st.sampled_from(["s0", "s1"])),
        st.tuples(
            st.just("claim"),
            st.sampled_from(["c0", "c1"]),
            st.sets(st.tuples(st.sampled_from(["s0", "s1"]), st.sampled_from(["d0", "d1"]))),
        ),
        st.tuples(st.just("no claim"), st.sampled_from(["c0", "c1"])),
        st.tuples(st.just("node"), st.sampled_from(NODES)),
        st.tuples(st.just("no node"), st.sampled_from(NODES)),
    ),
    max_size=12,
)


def apply(cluster, step):
    match step:
        case ("slice", name, where, devices, generation):
            cluster.set_object(a_slice(name, where, devices, generation))
        case ("no slice", name):
            cluster.remove_object(a_slice(name, "all", []))
        case ("claim", name, held):
            cluster.set_object(a_claim(name, sorted(held)))
        case ("no claim", name):
            cluster.remove_object(a_claim(name))
        case ("node", name):
            cluster.set_node(a_node(name))
        case (_, name):
            cluster.remove_node(name)


@settings(max_examples=30, deadline=None)
@given(steps_st)
def test_cached_answers_equal_recomputed_ones(steps):
    def fresh():
        return a_cluster([a_node(name) for name in NODES])

    kept = fresh()
    kept.set_object(a_device_class())
    for at, step in enumerate(steps):
        apply(kept, step)
        recomputed = fresh()
        recomputed.set_object(a_device_class())
        for earlier in steps[: at + 1]:
            apply(recomputed, earlier)
        for count in (1, 2):
            assert reasons(kept, count) == reasons(recomputed, count)


def test_a_changed_class_is_parsed_again():
    cluster = a_cluster([a_node("a")])
    cluster.set_object(a_device_class())
    cluster.set_object(a_slice("s0", "a", ["d0"]))
    assert reasons(cluster, 1) == {}
    nothing = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "false"}}]}}
    cluster.set_object(msgspec.convert(nothing, DeviceClass))
    assert reasons(cluster, 1) == {"a": "cannot allocate all claims"}
    cluster.remove_object(a_device_class())
    assert reasons(cluster, 1) == {"a": "request r0: device class gpu does not exist"}


def test_a_claim_costs_what_has_changed_since_the_previous_one(monkeypatch):
    """Of forty nodes, only the one that gave devices away last is examined again, however many claims there are."""
    cluster = a_cluster([a_node(f"n{at}") for at in range(40)])
    cluster.set_object(a_device_class())
    for at in range(40):
        cluster.set_object(a_slice(f"n{at}", f"n{at}", [f"d{n}" for n in range(5)]))
    examined = []
    pools_of = Catalog.pools_of
    monkeypatch.setattr(
        Catalog, "pools_of", lambda self, node, *rest: examined.append(node.name) or pools_of(self, node, *rest)
    )
    plugin = DynamicResources()
    for at in range(200):
        cluster.set_object(a_claim(f"c{at}"))
        pod = a_pod(f"p{at}", resourceClaims=[{"name": "x", "resourceClaimName": f"c{at}"}])
        wanted = plugin.pre_filter(pod, cluster.snapshot)
        refused = cluster.snapshot.nodes.false()
        for reject in plugin.filter(wanted, cluster.snapshot.nodes):
            refused |= reject.rows
        node = cluster.table.nodes[int((~refused).argmax())].name
        plugin.reserve(wanted, pod, node)
        carry_out(cluster, plugin.pre_bind(wanted, pod, node))
        assert len(examined) <= (40 if at == 0 else 1)
        examined.clear()
    results = [claim.status.allocation.devices.results for claim in cluster.objects(ResourceClaim).values()]
    assert len({(result.pool, result.device) for given_out in results for result in given_out}) == 200


def test_slices_with_a_wrong_count_or_repeated_names_do_no_harm():
    cluster = a_cluster([a_node("a")])
    cluster.set_object(a_device_class())
    for at in range(300):
        cluster.set_object(a_slice(f"s{at}", "a", ["d0", "d1"], count=2**31, pool="p"))
    assert reasons(cluster, 1) == {"a": "cannot allocate all claims"}
    for at in range(300):
        cluster.set_object(a_slice(f"s{at}", "a", ["d0", "d1"], count=300, pool="p"))
    assert reasons(cluster, 1) == {"a": "invalid resource pools were encountered"}


@pytest.mark.parametrize("amount", ["none", "1e999999999", "-1", ""])
def test_invalid_capacities_are_reported_or_skipped(amount):
    cluster = a_cluster([a_node("a")])
    cluster.set_object(a_device_class())
    spec = msgspec.to_builtins(a_slice("s0", "a", []).spec)
    device = {"name": "d0", "capacity": {"memory": {"value": amount}}, "allowMultipleAllocations": True}
    shared = {"counters": {"m": {"value": amount}}}
    consumes = {"name": "d1", "consumesCounters": [{"counterSet": "set", **shared}]}
    for lie in ({"devices": [device]}, {"devices": [consumes]}, {"sharedCounters": [{"name": "set", **shared}]}):
        whole = {"metadata": {"name": "s0"}, "spec": {**spec, **lie}}
        cluster.set_object(msgspec.convert(whole, ResourceSlice))
        assert reasons(cluster, 1).keys() <= {"a"}
