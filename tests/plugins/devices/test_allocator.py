"""Test that each allocation satisfies its claims, and that the allocator finds one whenever one exists."""

from __future__ import annotations

from itertools import combinations, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.plugins.devices.allocated_devices import Ledger
from moorage.plugins.devices.allocator import BudgetError, DeviceSearch, FlawedPoolsError
from moorage.plugins.devices.claim_requests import AskError, DeviceGates, DeviceRules, parse_claim
from moorage.plugins.devices.claim_shapes import DeviceState
from moorage.plugins.devices.meter import Meter
from moorage.plugins.devices.pools import PoolRule
from moorage.testing.builders import a_cluster, a_node
from tests.core.engine.test_groups_as_one import driven

DRIVER = "gpu.example.com"
SIZES = ("small", "large")


def a_slice(devices, name="s", pool="a", count=1, generation=1, node="a", **spec):
    document = {
        "driver": DRIVER,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": devices,
        **({"nodeName": node} if node else {}),
        **spec,
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": document}, ResourceSlice)


def a_claim(requests, constraints=(), name="c"):
    document = {"devices": {"requests": requests, "constraints": list(constraints)}}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": document}, ResourceClaim)


def exactly(name="r0", cel="", **request):
    selectors = {"selectors": [{"cel": {"expression": cel}}]} if cel else {}
    return {"name": name, "exactly": {"deviceClassName": "gpu", **selectors, **request}}


def search(slices, claims, held=(), budget=100_000, options=None, cluster=None):
    cluster = cluster or a_cluster([a_node("a")])
    cluster.set_object(msgspec.convert({"metadata": {"name": "gpu"}}, DeviceClass))
    for obj in (*slices, *held):
        cluster.set_object(obj)
    snapshot, options = cluster.snapshot, options or DeviceGates()
    device_state = snapshot.index(DeviceState)
    device_state.follow()
    pools = device_state.catalog.pools_of(snapshot.table.nodes[0], options.partitions)
    asks = [parse_claim(claim.spec, snapshot.objects(DeviceClass), options) for claim in claims]
    return DeviceSearch(asks, pools, device_state.ledger, options, budget, Meter())


def names(found):
    return [[choice.offer.device.name for choice in devices] for devices in found.devices]


def holding(*devices, name="held", pool="a", **result):
    results = [{"request": "r0", "driver": DRIVER, "pool": pool, "device": device, **result} for device in devices]
    claim = a_claim([exactly()], name=name)
    return msgspec.structs.replace(
        claim, status=msgspec.convert({"allocation": {"devices": {"results": results}}}, type(claim.status))
    )


def of_size(size, **more):
    return {"attributes": {"size": {"string": size}}, **more}


# -- single cases ---------------------------------------------------------------------------------------------------------


def test_devices_are_allocated_in_the_order_of_slice_names():
    slices = [a_slice([{"name": "z"}], "s1", count=2), a_slice([{"name": "b"}, {"name": "a"}], "s0", count=2)]
    assert names(search(slices, [a_claim([exactly(count=2)])]).run()) == [["b", "a"]]


def test_pools_with_binding_conditions_come_last():
    slices = [a_slice([{"name": "w", "bindingConditions": ["c"]}], "s0", "a"), a_slice([{"name": "p"}], "s1", "z")]
    assert names(search(slices, [a_claim([exactly()])]).run()) == [["p"]]


def test_the_first_alternative_that_fits_is_allocated():
    large = {
        "name": "large",
        "deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].size == "large"'}}],
    }
    claim = a_claim([{"name": "r0", "firstAvailable": [large, {"name": "any", "deviceClassName": "gpu"}]}])
    devices = [{"name": "d0", **of_size("small")}, {"name": "d1", **of_size("large")}]
    found = search([a_slice(devices)], [claim, claim]).run()
    assert names(found) == [["d1"], ["d0"]]
    assert [ask.full_name for met in found.met for ask in met] == ["r0/large", "r0/any"]


def test_all_means_every_device_or_none():
    claim = a_claim([exactly(allocationMode="All")])
    slices = [a_slice([{"name": "d0"}, {"name": "d1"}])]
    assert names(search(slices, [claim]).run()) == [["d0", "d1"]]
    assert search(slices, [claim], [holding("d1")]).run() is None


def test_admin_access_includes_allocated_devices():
    slices = [a_slice([{"name": "d0"}])]
    assert names(search(slices, [a_claim([exactly(adminAccess=True)])], [holding("d0")]).run()) == [["d0"]]
    assert search(slices, [a_claim([exactly(adminAccess=True), exactly("r1", adminAccess=True)])]).run() is None


def test_too_many_devices_for_one_claim_are_an_error():
    with pytest.raises(AskError) as raised:
        search([a_slice([{"name": "d"}])], [a_claim([exactly(count=33)])]).run()
    assert (
        raised.value.message(["default/c"]) == "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    )


def test_taints_are_tolerated_by_key_value_and_effect():
    tainted = {"name": "d0", "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    noted = {"name": "d1", "taints": [{"key": "k", "effect": "None"}]}
    for toleration, expected in [
        ({"key": "k", "operator": "Exists"}, "d0"),
        ({"operator": "Exists"}, "d0"),
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, "d0"),
        ({"key": "k", "value": "w"}, "d1"),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, "d1"),
    ]:
        found = search([a_slice([tainted, noted])], [a_claim([exactly(tolerations=[toleration])])]).run()
        assert names(found) == [[expected]], toleration


def test_partitions_consume_the_shared_counters():
    counters = {"name": "whole", "counters": {"memory": {"value": "40Gi"}}}
    parts = [
        {"name": f"p{n}", "consumesCounters": [{"counterSet": "whole", "counters": {"memory": {"value": size}}}]}
        for n, size in enumerate(("30Gi", "20Gi", "20Gi"))
    ]
    slices = [a_slice([], "s0", count=2, sharedCounters=[counters]), a_slice(parts, "s1", count=2)]
    assert names(search(slices, [a_claim([exactly(count=2)])]).run()) == [["p1", "p2"]]
    assert search(slices, [a_claim([exactly(count=3)])]).run() is None
    assert names(search(slices, [a_claim([exactly()])], [holding("p1")]).run()) == [["p2"]]


@pytest.mark.parametrize(
    ("consumed", "sets", "flaw"),
    [
        ({"counterSet": "other", "counters": {"m": {"value": 1}}}, ["whole"], "counter set other not found"),
        ({"counterSet": "whole", "counters": {"n": {"value": 1}}}, ["whole"], "counter n not found in counter set whole"),
        ({"counterSet": "whole", "counters": {"m": {"value": 1}}}, ["whole", "whole"], "duplicate counter set name whole"),
    ],
)
def test_inconsistent_pools_are_ignored(consumed, sets, flaw):
    shared = [{"name": name, "counters": {"m": {"value": 1}}} for name in sets]
    slices = [
        a_slice([], "s0", count=2, sharedCounters=shared),
        a_slice([{"name": "d", "consumesCounters": [consumed]}], "s1", count=2),
    ]
    looking = search(slices, [a_claim([exactly()])])
    (pool,) = looking._pools.pools
    assert pool.flaw == flaw
    with pytest.raises(FlawedPoolsError, match="invalid resource pools were encountered"):
        looking.run()


def test_a_newer_generation_replaces_the_older():
    slices = [a_slice([{"name": "old"}], "s0"), a_slice([{"name": "new"}], "s1", generation=2)]
    assert names(search(slices, [a_claim([exactly()])]).run()) == [["new"]]


def test_capacity_of_a_device_is_shared_until_it_is_used_up():
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {
            "memory": {"value": "10Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}}
        },
    }
    asks = [exactly(f"r{n}", capacity={"requests": {"memory": size}}) for n, size in enumerate(("2Gi", "4Gi", "1Gi"))]
    found = search([a_slice([device])], [a_claim(asks)]).run()
    taken = [choice.consumed["memory"].text for choice in found.devices[0]]
    assert taken == ["3Gi", "5Gi", "1Gi"]
    assert (
        search([a_slice([device])], [a_claim([*asks, exactly("r3", capacity={"requests": {"memory": "2Gi"}})])]).run() is None
    )
    share = {"shareID": "s", "consumedCapacity": {"memory": "9Gi"}}
    assert search([a_slice([device])], [a_claim([exactly()])], [holding("d", **share)]).run() is not None
    assert search([a_slice([device])], [a_claim(asks[:1])], [holding("d", **share)]).run() is None


def test_slices_for_several_nodes_select_them():
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
    shared = a_slice([{"name": "d"}], node="", nodeSelector={"nodeSelectorTerms": [term]})
    for labels, expected in (({"rack": "r1"}, [["d"]]), ({}, None)):
        found = search([shared], [a_claim([exactly()])], cluster=a_cluster([a_node("a", labels)])).run()
        assert (found and names(found)) == expected


def test_devices_may_select_nodes_themselves():
    devices = [{"name": "d0", "nodeName": "z"}, {"name": "d1", "allNodes": True}]
    slices = [a_slice(devices, node="", perDeviceNodeSelection=True)]
    assert names(search(slices, [a_claim([exactly()])]).run()) == [["d1"]]


# -- constraints, compared with an exhaustive search --------------------------------------------------------------------


devices_st = st.lists(
    st.fixed_dictionaries({"size": st.sampled_from(SIZES), "numa": st.integers(0, 2)}, optional={"tainted": st.just(True)}),
    max_size=5,
)
request_st = st.tuples(st.integers(1, 2), st.sampled_from(["", *SIZES]))
claims_st = st.lists(
    st.tuples(st.lists(request_st, min_size=1, max_size=2), st.sampled_from(["none", "same", "same-first", "different"])),
    min_size=1,
    max_size=2,
)


def documents(devices):
    taint = {"taints": [{"key": "k", "effect": "NoExecute"}]}
    return [
        {
            "name": f"d{n}",
            "attributes": {"size": {"string": device["size"]}, "numa": {"int": device["numa"]}},
            **(taint if "tainted" in device else {}),
        }
        for n, device in enumerate(devices)
    ]


def document(at, requests, kind):
    asked = [
        exactly(f"r{n}", f'device.attributes["{DRIVER}"].size == "{size}"' if size else "", count=count)
        for n, (count, size) in enumerate(requests)
    ]
    constraints = {
        "none": [],
        "same": [{"matchAttribute": f"{DRIVER}/numa"}],
        "same-first": [{"matchAttribute": f"{DRIVER}/numa", "requests": ["r0"]}],
        "different": [{"distinctAttribute": f"{DRIVER}/numa"}],
    }[kind]
    return a_claim(asked, constraints, f"c{at}")


def single(requests, kind):
    """``different`` compares one device of each request, as in kube-scheduler, so that requests have one device each there."""
    return [(1, size) for _, size in requests] if kind == "different" else requests


def satisfies(devices, requests, kind, given):
    """Return whether the claim may have these devices (indices by request)."""
    if any(size and devices[n]["size"] != size for (_, size), chosen in zip(requests, given, strict=True) for n in chosen):
        return False
    if any("tainted" in devices[n] for chosen in given for n in chosen):
        return False
    nodes = [devices[n]["numa"] for chosen in given for n in chosen]
    if kind == "same":
        return len(set(nodes)) <= 1
    if kind == "same-first":
        return len({devices[n]["numa"] for n in given[0]}) <= 1
    return kind != "different" or len(set(nodes)) == len(nodes)


def possible(devices, claims, free):
    """Try every combination."""
    wishes = [(claim, count) for claim, (requests, _) in enumerate(claims) for count, _ in requests]
    for chosen in product(*[list(combinations(free, count)) for _, count in wishes]):
        flat = [n for group in chosen for n in group]
        if len(set(flat)) < len(flat):
            continue
        by_claim = [
            [group for (claim, _), group in zip(wishes, chosen, strict=True) if claim == at] for at in range(len(claims))
        ]
        if all(satisfies(devices, *claim, given) for claim, given in zip(claims, by_claim, strict=True)):
            return True
    return False


@settings(max_examples=75, deadline=None)
@given(devices_st, claims_st, st.sets(st.integers(0, 4)))
def test_an_allocation_is_valid_and_found_if_one_exists(devices, claims, in_use):
    claims = [(single(requests, kind), kind) for requests, kind in claims]
    free = [n for n in range(len(devices)) if n not in in_use]
    held = [holding(*[f"d{n}" for n in sorted(in_use)])] if in_use else []
    found = search([a_slice(documents(devices))], [document(at, *claim) for at, claim in enumerate(claims)], held).run()
    assert (found is not None) == possible(devices, claims, free)
    if found is None:
        return
    given_to = [int(name[1:]) for claim in names(found) for name in claim]
    assert len(set(given_to)) == len(given_to)
    assert set(given_to) <= set(free)
    for (requests, kind), choices in zip(claims, found.devices, strict=True):
        by_request = [[int(c.offer.device.name[1:]) for c in choices if c.ask.name == f"r{n}"] for n in range(len(requests))]
        assert [len(chosen) for chosen in by_request] == [count for count, _ in requests]
        assert satisfies(devices, requests, kind, by_request)


class SearchBySteps(DeviceSearch):
    def _only_ask(self):
        return None


def outcome(searched):
    try:
        found = searched.run()
    except (AskError, BudgetError, FlawedPoolsError) as error:
        return type(error), str(error), searched.examined
    return found, searched.examined


extras_st = st.sampled_from([
    {}, {}, {"taints": [{"key": "k", "effect": "NoSchedule"}]}, {"consumesCounters": [{"counterSet": "s", "counters": {}}]},
    {"capacity": {"memory": {"value": "8Gi"}}},
    {"capacity": {"memory": {"value": "8Gi"}}, "allowMultipleAllocations": True},
])  # fmt: skip


@settings(max_examples=75, deadline=None)
@given(
    st.lists(extras_st, max_size=6), st.sampled_from(["", *SIZES]), st.sets(st.integers(0, 5)), st.integers(0, 8),
    st.sampled_from([{}, {"adminAccess": True}, {"capacity": {"requests": {"memory": "5Gi"}}}]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_search_for_one_device_is_the_search_by_steps(extras, size, in_use, budget, request, consumable, undoes):
    devices = [{"name": f"d{n}", **of_size(SIZES[n % 2]), **extra} for n, extra in enumerate(extras)]
    slices = [a_slice(devices, sharedCounters=[{"name": "s", "counters": {}}])]
    claim = a_claim([exactly(cel=f'device.attributes["{DRIVER}"].size == "{size}"' if size else "", **request)])
    held = [holding(*[f"d{n}" for n in sorted(in_use) if n < len(devices)])] if in_use else []
    options = DeviceGates(consumable_capacity=consumable, rules=DeviceRules(undoes_refusals=undoes))
    quick = search(slices, [claim], held, budget, options)
    assert quick._only_ask() is not None
    steps = search(slices, [claim], held, budget, options)
    steps.__class__ = SearchBySteps
    assert outcome(quick) == outcome(steps)


@settings(max_examples=50, deadline=None)
@given(devices_st, claims_st, st.integers(0, 40))
def test_the_search_stops_at_its_limit_of_devices(devices, claims, budget):
    looking = search([a_slice(documents(devices))], [document(at, *claim) for at, claim in enumerate(claims)], budget=budget)
    try:
        looking.run()
    except BudgetError:
        assert looking.examined == budget + 1
    else:
        assert looking.examined <= budget


def test_a_search_that_repeatedly_examines_allocated_devices_ends():
    names_held = [f"h{n}" for n in range(400)]
    free = [{"name": f"d{n}"} for n in range(30)]
    slices = [a_slice([*free, *[{"name": name} for name in names_held]])]
    claim = a_claim([*[exactly(f"r{n}") for n in range(8)], exactly("last", "false")])
    looking = search(slices, [claim], [holding(*names_held)], budget=2_000)
    with pytest.raises(BudgetError):
        looking.run()
    assert looking._skipped < 2_001 * 64


def test_a_request_keeps_only_the_last_of_two_values_for_different():
    """As in kube-scheduler, a request keeps one value."""
    devices = documents([{"size": "small", "numa": n} for n in (0, 1, 0)])
    claim = a_claim([exactly("r0", count=2), exactly("r1")], [{"distinctAttribute": f"{DRIVER}/numa"}])
    assert names(search([a_slice(devices)], [claim]).run()) == [["d0", "d1", "d2"]]


# -- the device state -----------------------------------------------------------------------------------------------------


steps_st = st.lists(
    st.tuples(st.sampled_from(["set", "drop", "pend", "release"]), st.integers(0, 3), st.sets(st.integers(0, 3))), max_size=20
)


@settings(max_examples=30, deadline=None)
@given(steps_st)
def test_the_incremental_state_equals_a_recomputed_one(steps):
    cluster = a_cluster([a_node("a")])
    kept = Ledger(cluster.snapshot)
    pending = {}
    for act, at, devices in steps:
        claim = holding(*[f"d{n}" for n in sorted(devices)], name=f"c{at}")
        if act == "set":
            cluster.set_object(claim)
            pending.pop(f"c{at}", None)
        elif act == "drop":
            cluster.remove_object(claim)
        elif act == "pend" and claim.metadata.name not in pending:
            kept.pend(claim.metadata.uid, claim.status.allocation, "pod")
            pending[f"c{at}"] = claim.status.allocation
        elif act == "release":
            kept.settle(f"c{at}", "another pod")
            kept.settle(f"c{at}", "pod")
            pending.pop(f"c{at}", None)
        kept.follow()
        recomputed = Ledger(cluster.snapshot)
        recomputed.follow()
        for uid, allocation in pending.items():
            recomputed.pend(uid, allocation, "pod")
        for n in range(4):
            device = (DRIVER, "a", f"d{n}")
            assert kept.is_used(device) == recomputed.is_used(device)


# -- compatibility groups -------------------------------------------------------------------------------------------------

#: Groups of the devices in use and of those requested, on the counters of one set → whether they are allocated.
#: Source  structured/internal/experimental/compatibility_groups.go; enhancement proposal 5963
AGREEING = {
    "nothing in use": ([], [["mig"]], True),
    "none has a group": ([[]], [[]], True),
    "the same group": ([["mig"]], [["mig"]], True),
    "another group": ([["mig"]], [["vgpu"]], False),
    "a device without groups beside one with": ([["mig"]], [[]], False),
    "a device with groups beside one without": ([[]], [["mig"]], False),
    "one of several groups": ([["mig", "vgpu"]], [["vgpu", "time"]], True),
    "all have to share a group": ([["a", "b"], ["b", "c"]], [["a", "c"]], False),
    "all share one": ([["a", "b"], ["b", "c"]], [["b"]], True),
    "two of one claim": ([], [["mig"], ["mig"]], True),
    "two of one claim that differ": ([], [["mig"], ["vgpu"]], False),
}


def sharing(groups, at, counter_set="whole"):
    use = {"counterSet": counter_set, "counters": {"units": {"value": "1"}}, "compatibilityGroups": groups}
    return {"name": f"d{at}", "consumesCounters": [use]}


def pool_of(*devices):
    counters = [{"name": name, "counters": {"units": {"value": "9"}}} for name in ("whole", "other")]
    return [
        a_slice([], "counters", count=2, sharedCounters=counters),
        a_slice(list(devices), "devices", count=2),
    ]


@pytest.mark.parametrize("case", AGREEING)
@pytest.mark.parametrize("gate", [True, False])
def test_devices_on_the_same_counters_agree_in_their_groups(case, gate):
    used, wanted, fits = AGREEING[case]
    devices = [sharing(groups, at) for at, groups in enumerate([*used, *wanted])]
    held = [holding(*(f"d{at}" for at in range(len(used))))] if used else []
    found = search(
        pool_of(*devices), [a_claim([exactly(count=len(wanted))])], held, options=DeviceGates(compatibility=gate)
    ).run()
    assert (found is not None) == (fits or not gate)


def test_devices_on_other_counters_need_not_agree():
    slices = pool_of(sharing(["mig"], 0), sharing(["vgpu"], 1, "other"))
    found = search(slices, [a_claim([exactly(count=2)])], options=DeviceGates(compatibility=True)).run()
    assert names(found) == [["d0", "d1"]]


def test_a_group_that_leads_nowhere_is_given_back():
    """The first device is of another group than the two others, of which both are needed."""
    slices = pool_of(sharing(["mig"], 0), sharing(["vgpu"], 1), sharing(["vgpu"], 2))
    found = search(slices, [a_claim([exactly(count=2)])], options=DeviceGates(compatibility=True)).run()
    assert names(found) == [["d1", "d2"]]


@pytest.mark.parametrize(("rule", "usable"), [(PoolRule(), True), (PoolRule(ungrouped=True), False)])
def test_while_the_gate_is_closed_slices_with_groups_are_ignored(rule, usable):
    cluster = a_cluster([a_node("a")])
    counters = [{"name": "whole", "counters": {"units": {"value": "9"}}}]
    for one in (
        a_slice([], "counters", count=3, sharedCounters=counters), a_slice([sharing(["mig"], 0)], "grouped", count=3),
        a_slice([{"name": "plain"}], "plain", count=3),
    ):  # fmt: skip
        cluster.set_object(one)
    state = cluster.snapshot.index(DeviceState)
    state.follow()
    (pool,) = state.catalog.pools_of(cluster.snapshot.table.nodes[0], True, rule).pools
    assert pool.is_usable == usable


@pytest.mark.parametrize(
    ("release", "gates", "rule", "compatibility"),
    [
        ("1.36", "", PoolRule(), False),
        ("1.37", "", PoolRule(ungrouped=True, near_counters=True), False),
        ("1.37", "DRADeviceCompatibilityGroups=true", PoolRule(near_counters=True), True),
    ],
)
def test_the_gate_of_groups_is_read(release, gates, rule, compatibility):
    (profile,) = driven(gates, release).engine.profiles.values()
    options = profile.plugins["DynamicResources"]._options
    assert (options.pool_rule, options.compatibility) == (rule, compatibility)


def test_derived_attributes_are_refused_with_the_gate_alone():
    """Constraints cannot name them: no device would have them."""
    claim = a_claim([exactly(derivedAttributes=[{"name": "numa"}])])
    assert names(search([a_slice([{"name": "a"}])], [claim]).run()) == [["a"]]
    with pytest.raises(AskError, match="derived attributes"):
        search([a_slice([{"name": "a"}])], [claim], options=DeviceGates(derived_attributes=True)).run()
