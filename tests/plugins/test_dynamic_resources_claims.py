"""Test pods with claims: what they wait for, which nodes fit, what is reserved, and what is written."""

from __future__ import annotations

import random

import msgspec
import pytest

from moorage.api.devices import ResourceClaim
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Hold
from moorage.plugins.devices.claim_shapes import Shape
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.testing.builders import a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals, wakes
from tests.plugins.device_claims import (
    DRIVER,
    GPU,
    OWNER,
    TEMPLATE,
    a_claim,
    a_class,
    a_slice,
    allocated,
    asking,
    attached,
    exactly,
    using,
    why_not,
    with_devices,
)

# -- missing claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "pod", "reason"),
    [
        ([], using("p", "c"), 'could not find ResourceClaim "default/c"'),
        ([], a_pod("p", resourceClaims=[TEMPLATE]), 'pod "default/p": ResourceClaim not created yet'),
        (
            [],
            a_pod("p", resourceClaims=[{"name": "odd"}]),
            'pod "default/p", spec.resourceClaim "odd": none of the supported fields are set',
        ),
        (
            [a_claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            using("p", "c"),
            'resourceclaim "c" is being deleted',
        ),
        (
            [a_claim("c")],
            a_pod(
                "p", resourceClaims=[TEMPLATE], status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
            ),
            "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)",
        ),
    ],
)
def test_a_pod_waits_for_its_claims_in_pre_enqueue_and_in_the_cycle(claims, pod, reason):
    cluster = with_devices(*claims)
    held = Hold.because(reason, unresolvable=True)
    assert attached(cluster).pre_enqueue(pod) == held
    assert DynamicResources().pre_filter(pod, cluster.snapshot) == held


def test_a_generated_claim_must_be_owned_by_the_pod():
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
    pod = a_pod("p", resourceClaims=[TEMPLATE], status=status)
    cluster = with_devices(a_claim("c", metadata={"ownerReferences": [OWNER]}), a_slice("a", ["d"]))
    assert attached(cluster).pre_enqueue(pod) is None
    assert why_not(cluster, pod) == {"b": "cannot allocate all claims"}


def test_a_template_that_yields_no_claim_is_skipped():
    pod = a_pod("p", resourceClaims=[TEMPLATE], status={"resourceClaimStatuses": [{"name": "gpu"}]})
    assert why_not(with_devices(), pod) == {}


def test_a_missing_class_keeps_the_pod_pending():
    cluster = with_devices(a_claim("c", exactly(device_class="tpu")))
    assert why_not(cluster, using("p", "c"))["a"] == "request r0: device class tpu does not exist"


# -- nodes ----------------------------------------------------------------------------------------------------------------


def test_nodes_without_a_free_device_are_unresolvable():
    held = a_claim("other", status=allocated(("b", "d")))
    cluster = with_devices(a_claim("c"), held, a_slice("a", ["d"]), a_slice("b", ["d"]))
    refused = refusals(DynamicResources(), using("p", "c"), cluster.snapshot)
    assert {name: (status.message, status.code.value) for name, status in refused.items()} == {
        "b": ("cannot allocate all claims", "UnschedulableAndUnresolvable")
    }


def test_an_allocated_claim_restricts_the_pod_to_its_nodes():
    cluster = with_devices(a_claim("c", status=allocated(("b", "d"), selector="b")))
    assert why_not(cluster, using("p", "c")) == {"a": "resourceclaim not available on the node"}


def test_a_selector_that_fails_is_an_error_of_the_node():
    cluster = with_devices(a_claim("c", exactly(cel=f'device.attributes["{DRIVER}"].size > 1')), a_slice("a", ["d"]))
    reported = why_not(cluster, using("p", "c"))
    assert reported["a"] == (
        'running "DynamicResources" filter plugin: claim default/c: selector #0: CEL runtime error: no such key: size'
    )
    assert reported["b"] == "cannot allocate all claims"


def test_a_selector_that_does_not_compile_is_reported_verbatim():
    cluster = with_devices(a_claim("c", exactly(cel="device.nothing")), a_slice("a", ["d"]))
    reported = why_not(cluster, using("p", "c"))["a"]
    assert reported.startswith('running "DynamicResources" filter plugin: claim default/c: selector #0: CEL compile error: ')
    assert "undefined field 'nothing'" in reported


def test_the_search_for_devices_ends():
    """An unsatisfiable claim over many devices: the search stops, as in kube-scheduler after its timeout."""
    devices = [{"name": f"d{n}", "attributes": {"n": {"int": n}}} for n in range(60)]
    claim = a_claim("c", *[exactly(f"r{n}") for n in range(12)], exactly("last", cel="false"))
    cluster = with_devices(claim, a_slice("a", devices))
    plugin = DynamicResources(DynamicResources.Args(filter_timeout=0.01))
    reported = why_not(cluster, using("p", "c"), plugin)
    assert reported["a"] == 'running "DynamicResources" filter plugin: node a: timed out trying to allocate devices'


def test_an_incomplete_pool_is_ignored_and_all_mode_rejects_it():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"], count=2))
    assert why_not(cluster, using("p", "c"))["a"] == "cannot allocate all claims"
    cluster.set_object(a_claim("c", exactly(allocationMode="All")))
    assert why_not(cluster, using("p", "c"))["a"] == (
        'running "DynamicResources" filter plugin: claim default/c, request r0: asks for all devices, '
        "but resource pool gpu.example.com/a is currently being updated"
    )


def test_a_pool_that_repeats_a_device_name_is_invalid():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d", "d"]))
    assert why_not(cluster, using("p", "c"))["a"] == "invalid resource pools were encountered"


# -- scores ---------------------------------------------------------------------------------------------------------------


def test_an_earlier_alternative_scores_higher():
    big, small = (
        {
            "name": size,
            "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].{size}'}}],
        }
        for size in ("big", "small")
    )
    both = [{"name": "d", "attributes": {"big": {"bool": flag}, "small": {"bool": not flag}}} for flag in (True, False)]
    claim = a_claim("c", {"name": "r0", "firstAvailable": [big, small]})
    cluster = with_devices(claim, a_slice("a", both[:1]), a_slice("b", both[1:]))
    assert final_scores(DynamicResources(), using("p", "c"), cluster.snapshot) == {"a": 100, "b": 87}


def test_claims_without_alternatives_do_not_score():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]))
    assert final_scores(DynamicResources(), using("p", "c"), cluster.snapshot) == {"a": 0, "b": 0}


# -- events and signatures ------------------------------------------------------------------------------------------------


def test_events_for_the_pods_claims_wake_it():
    cluster = with_devices(a_claim("c"), a_claim("d", status=allocated(("a", "d"))))
    plugin = attached(cluster)
    pod = using("p", "c")
    mine, other = cluster.objects(ResourceClaim)["default/c"], cluster.objects(ResourceClaim)["default/d"]
    claims = Resource.RESOURCE_CLAIM
    assert wakes(plugin, pod, claims, Action.ADD, None, mine)
    assert not wakes(plugin, pod, claims, Action.ADD, None, other)
    assert wakes(plugin, pod, claims, Action.UPDATE, mine, msgspec.structs.replace(mine, status=other.status))
    assert not wakes(plugin, pod, claims, Action.UPDATE, mine, mine)
    assert wakes(plugin, pod, claims, Action.UPDATE, other, msgspec.structs.replace(other, status=mine.status))
    assert not wakes(plugin, using("q", "nowhere"), claims, Action.ADD, None, mine)
    assert wakes(plugin, pod, Resource.RESOURCE_SLICE, Action.ADD)
    assert wakes(plugin, pod, Resource.DEVICE_CLASS, Action.UPDATE)


def test_a_pod_is_woken_when_its_own_claims_are_generated():
    cluster = with_devices(a_claim("c", metadata={"ownerReferences": [OWNER]}))
    plugin = attached(cluster)
    waiting = a_pod("p", resourceClaims=[TEMPLATE])
    reported = a_pod(
        "p", resourceClaims=[TEMPLATE], status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
    )
    generated = Action.UPDATE_POD_GENERATED_CLAIM
    assert wakes(plugin, waiting, Resource.POD, generated, waiting, reported)
    assert not wakes(plugin, waiting, Resource.POD, generated, waiting, waiting)
    assert not wakes(plugin, using("other", "c"), Resource.POD, generated, waiting, reported)


def test_pods_with_claims_have_no_shared_signature():
    cluster = with_devices()
    cluster.set_object(a_class(extendedResourceName=GPU))
    plugin = attached(cluster)
    assert plugin.reuse.signature(using("p", "c")) is None
    assert plugin.reuse.signature(asking(1)) is None
    assert plugin.reuse.signature(a_pod()) == {}


def test_satisfies_the_plugin_contract():
    free = a_slice("a", ["d"])
    cluster = with_devices(a_claim("c"), a_claim("x", status=allocated(("b", "d"), selector="b")), free)
    check_plugin(DynamicResources(), pods=[a_pod(), using("p", "c"), using("q", "x"), using("r", "gone")], cluster=cluster)


@pytest.mark.parametrize("seed", range(6))
def test_kept_answers_are_those_of_a_new_cluster(seed):
    """Slices, allocations and nodes change at random; after each change the answers must be those of a new cluster."""
    draw = random.Random(seed)
    names = [f"n{at}" for at in range(5)]
    nodes = {name: a_node(name) for name in names}
    slices = {name: a_slice(name, ["d0", "d1"]) for name in names}
    held = {f"held-{at}": a_claim(f"held-{at}") for at in range(4)}
    wanted = [a_claim("one"), a_claim("two", exactly(count=2)), a_claim("none", exactly(cel="false"))]
    kept = with_devices(*slices.values(), *held.values(), *wanted, nodes=nodes.values())
    plugin = attached(kept)
    for at in range(40):
        name, claim = draw.choice(names), draw.choice([*held])
        what = draw.random()
        if what < 0.5:
            status = allocated((name, f"d{at % 2}")) if draw.random() < 0.7 else None
            held[claim] = a_claim(claim, status=status)
            kept.set_object(held[claim])
        elif what < 0.7:
            slices[name] = a_slice(name, [f"d{number}" for number in range(draw.randrange(3))], generation=at + 2)
            kept.set_object(slices[name])
        elif name in nodes and draw.random() < 0.5:
            del nodes[name]
            kept.remove_node(name)
        else:
            nodes[name] = a_node(name, {"version": f"v{at}"})
            kept.set_node(nodes[name])
        new = with_devices(*slices.values(), *held.values(), *wanted, nodes=nodes.values())
        for asked in wanted:
            pod = using("p", asked.metadata.name)
            found, expected = (refusals(one, pod, cluster.snapshot) for one, cluster in ((plugin, kept), (attached(new), new)))
            assert {one: why.message for one, why in found.items()} == {one: why.message for one, why in expected.items()}


def test_a_second_pod_asks_only_the_node_whose_devices_changed(monkeypatch):
    asked = []
    answer = Shape.answer
    monkeypatch.setattr(Shape, "answer", lambda self, node, *rest: asked.append(node.name) or answer(self, node, *rest))
    names = [f"n{at}" for at in range(20)]
    cluster = with_devices(*(a_slice(name, ["d0"]) for name in names), a_claim("c"), a_claim("held"), nodes=names)
    plugin = attached(cluster)
    refusals(plugin, using("p", "c"), cluster.snapshot)
    asked.clear()
    cluster.set_object(a_claim("held", status=allocated(("n7", "d0"))))
    found = refusals(plugin, using("p", "c"), cluster.snapshot)
    assert (asked, [*found]) == (["n7"], ["n7"])
