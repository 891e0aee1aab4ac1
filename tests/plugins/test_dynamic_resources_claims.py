"""Pods with claims: what they wait for, where they may go, what is held for them, and what is written."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.cycle.cycle import Cycle
from moorage.errors import AttemptError
from moorage.framework.effects import Until, Write
from moorage.framework.events import Action, Resource
from moorage.framework.features import FeatureGates
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Hold
from moorage.plugins.devices.binding import FINALIZER, MAX_USERS
from moorage.plugins.devices.shapes import Book
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.testing.asking import final_scores, refusals, wakes
from moorage.testing.attempts import failed_attempt
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.checking import check_plugin

DRIVER = "gpu.example.com"


class Scheduler:
    """As much of a running scheduler as the plugin looks at."""

    def __init__(self, cluster, now=0.0):
        self.snapshot = cluster.snapshot
        self.gates = FeatureGates()
        self.now = now


def attached(cluster, now=0.0):
    plugin = DynamicResources()
    plugin.attach(Scheduler(cluster, now))
    return plugin


def a_class(name="gpu", expression="", **spec):
    selectors = [{"cel": {"expression": expression}}] if expression else []
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}, DeviceClass)


def a_slice(node, devices, name="", generation=1, count=1, **spec):
    pool = {"name": spec.pop("pool", node), "generation": generation, "resourceSliceCount": count}
    devices = [device if isinstance(device, dict) else {"name": device} for device in devices]
    where = {} if spec.keys() & {"allNodes", "nodeSelector", "sharedCounters"} else {"nodeName": node}
    document = {"driver": spec.pop("driver", DRIVER), "pool": pool, "devices": devices, **where, **spec}
    return msgspec.convert({"metadata": {"name": name or f"slice-{node}"}, "spec": document}, ResourceSlice)


def exactly(name="r0", device_class="gpu", **request):
    expression = request.pop("cel", "")
    selectors = {"selectors": [{"cel": {"expression": expression}}]} if expression else {}
    return {"name": name, "exactly": {"deviceClassName": device_class, **selectors, **request}}


def a_claim(name="c", *requests, status=None, metadata=None, constraints=()):
    devices = {"requests": list(requests or (exactly(),)), "constraints": list(constraints)}
    named = {"name": name, "namespace": "default", "uid": f"uid-{name}", **(metadata or {})}
    return msgspec.convert({"metadata": named, "spec": {"devices": devices}, "status": status or {}}, ResourceClaim)


def allocated(*devices, users=(), selector=None, conditions=(), **allocation):
    results = [{"request": "r0", "driver": DRIVER, "pool": pool, "device": name, **dict(conditions)} for pool, name in devices]
    whole = {"devices": {"results": results}, **allocation}
    if selector is not None:
        whole["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only(selector)]}]}
    return {"allocation": whole, "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in users]}


def only(node):
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def using(name="p", *claims, **more):
    uses = [{"name": f"use-{claim}", "resourceClaimName": claim} for claim in claims]
    return a_pod(name, resourceClaims=uses, **more)


def with_devices(*objects, nodes=("a", "b")):
    cluster = a_cluster([a_node(name) if isinstance(name, str) else name for name in nodes])
    for obj in (a_class(), *objects):
        cluster.set_object(obj)
    return cluster


def why_not(cluster, pod, plugin=None):
    return {node: status.message for node, status in refusals(plugin or DynamicResources(), pod, cluster.snapshot).items()}


def carry_out(cluster, effects):
    for effect in effects:
        if isinstance(effect, Write) and isinstance(effect.obj, ResourceClaim):
            cluster.set_object(effect.obj)


def allocate(plugin, cluster, pod, node):
    """Bring a pod from PreFilter to the writes before it is bound."""
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    assert plugin.reserve(wanted, pod, node) is None
    effects = plugin.pre_bind(wanted, pod, node)
    carry_out(cluster, effects)
    return effects


# -- claims that are not there --------------------------------------------------------------------------------------------


TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "t"}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "default/p", "controller": True}


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
def test_a_pod_waits_for_its_claims_before_it_is_queued_and_in_the_cycle(claims, pod, reason):
    cluster = with_devices(*claims)
    held = Hold.because(reason, unresolvable=True)
    assert attached(cluster).pre_enqueue(pod) == held
    assert DynamicResources().pre_filter(pod, cluster.snapshot) == held


def test_a_generated_claim_of_the_pods_own_is_good():
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
    pod = a_pod("p", resourceClaims=[TEMPLATE], status=status)
    cluster = with_devices(a_claim("c", metadata={"ownerReferences": [OWNER]}), a_slice("a", ["d"]))
    assert attached(cluster).pre_enqueue(pod) is None
    assert why_not(cluster, pod) == {"b": "cannot allocate all claims"}


def test_a_template_that_was_meant_to_yield_no_claim_is_passed_over():
    pod = a_pod("p", resourceClaims=[TEMPLATE], status={"resourceClaimStatuses": [{"name": "gpu"}]})
    assert why_not(with_devices(), pod) == {}


def test_a_missing_class_holds_the_pod():
    cluster = with_devices(a_claim("c", exactly(device_class="tpu")))
    assert why_not(cluster, using("p", "c"))["a"] == "request r0: device class tpu does not exist"


# -- nodes ----------------------------------------------------------------------------------------------------------------


def test_nodes_without_a_free_device_are_refused_for_good():
    held = a_claim("other", status=allocated(("b", "d")))
    cluster = with_devices(a_claim("c"), held, a_slice("a", ["d"]), a_slice("b", ["d"]))
    refused = refusals(DynamicResources(), using("p", "c"), cluster.snapshot)
    assert {name: (status.message, status.code.value) for name, status in refused.items()} == {
        "b": ("cannot allocate all claims", "UnschedulableAndUnresolvable")
    }


def test_an_allocated_claim_keeps_the_pod_where_its_devices_are():
    cluster = with_devices(a_claim("c", status=allocated(("b", "d"), selector="b")))
    assert why_not(cluster, using("p", "c")) == {"a": "resourceclaim not available on the node"}


def test_what_a_selector_cannot_answer_is_an_error_of_the_node():
    cluster = with_devices(a_claim("c", exactly(cel=f'device.attributes["{DRIVER}"].size > 1')), a_slice("a", ["d"]))
    told = why_not(cluster, using("p", "c"))
    assert told["a"] == (
        'running "DynamicResources" filter plugin: claim default/c: selector #0: CEL runtime error: no such key: size'
    )
    assert told["b"] == "cannot allocate all claims"


def test_a_selector_that_does_not_compile_is_told_as_it_is():
    cluster = with_devices(a_claim("c", exactly(cel="device.nothing")), a_slice("a", ["d"]))
    told = why_not(cluster, using("p", "c"))["a"]
    assert told.startswith('running "DynamicResources" filter plugin: claim default/c: selector #0: CEL compile error: ')
    assert "undefined field 'nothing'" in told


def test_looking_for_devices_ends_somewhere():
    """A puzzle without a solution, of many devices: the node is given up, as kube-scheduler gives it up after a time."""
    devices = [{"name": f"d{n}", "attributes": {"n": {"int": n}}} for n in range(60)]
    claim = a_claim("c", *[exactly(f"r{n}") for n in range(12)], exactly("last", cel="false"))
    cluster = with_devices(claim, a_slice("a", devices))
    plugin = DynamicResources(DynamicResources.Args(filter_timeout=0.01))
    told = why_not(cluster, using("p", "c"), plugin)
    assert told["a"] == 'running "DynamicResources" filter plugin: node a: timed out trying to allocate devices'


def test_half_a_pool_does_not_count_and_all_of_it_cannot_be_asked_for():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"], count=2))
    assert why_not(cluster, using("p", "c"))["a"] == "cannot allocate all claims"
    cluster.set_object(a_claim("c", exactly(allocationMode="All")))
    assert why_not(cluster, using("p", "c"))["a"] == (
        'running "DynamicResources" filter plugin: claim default/c, request r0: asks for all devices, '
        "but resource pool gpu.example.com/a is currently being updated"
    )


def test_a_pool_that_names_a_device_twice_is_said_to_be_invalid():
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


def test_claims_without_alternatives_score_nothing():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]))
    assert final_scores(DynamicResources(), using("p", "c"), cluster.snapshot) == {"a": 0, "b": 0}


# -- from Reserve to the writes -------------------------------------------------------------------------------------------


def test_reserved_devices_are_held_at_once_and_free_again_without_a_trace():
    cluster = with_devices(a_claim("c"), a_claim("d"), a_slice("a", ["d"]), nodes=("a",))
    plugin = DynamicResources()
    first, second = using("p", "c"), using("q", "d")
    wanted = plugin.pre_filter(first, cluster.snapshot)
    plugin.reserve(wanted, first, "a")
    assert why_not(cluster, second, plugin) == {"a": "cannot allocate all claims"}
    assert why_not(cluster, using("r", "c"), plugin) == {"a": "resource claim default/c is in the process of being allocated"}
    plugin.unreserve(wanted, first, "a")
    plugin.unreserve(wanted, first, "a")
    assert why_not(cluster, second, plugin) == {}
    assert cluster.objects(ResourceClaim)["default/c"] == a_claim("c")
    ledger = cluster.snapshot.index(Book).ledger
    assert not ledger.is_used((DRIVER, "a", "d"))


def test_allocation_user_and_finalizer_are_written():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d", "e"]))
    plugin = attached(cluster, now=1_700_000_000)
    effects = allocate(plugin, cluster, using("p", "c"), "a")
    assert [(type(effect), effect.subresource) for effect in effects] == [(Write, ""), (Write, "status")]
    claim = cluster.objects(ResourceClaim)["default/c"]
    assert claim.metadata.finalizers == (FINALIZER,)
    assert [(user.resource, user.name, user.uid) for user in claim.status.reserved_for] == [("pods", "p", "default/p")]
    allocation = claim.status.allocation
    assert [(r.request, r.driver, r.pool, r.device) for r in allocation.devices.results] == [("r0", DRIVER, "a", "d")]
    assert allocation.allocation_timestamp == "2023-11-14T22:13:20Z"
    (term,) = allocation.node_selector.node_selector_terms
    assert msgspec.to_builtins(term.match_fields) == ({"key": "metadata.name", "operator": "In", "values": ("a",)},)


def test_a_second_pod_only_joins_the_users():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]))
    plugin = DynamicResources()
    allocate(plugin, cluster, using("p", "c"), "a")
    before = cluster.objects(ResourceClaim)["default/c"]
    assert why_not(cluster, using("q", "c"), plugin) == {"b": "resourceclaim not available on the node"}
    effects = allocate(plugin, cluster, using("q", "c"), "a")
    assert len(effects) == 1
    after = cluster.objects(ResourceClaim)["default/c"]
    assert [user.name for user in after.status.reserved_for] == ["p", "q"]
    assert after.status.allocation == before.status.allocation


def test_a_claim_takes_so_many_users_and_no_more():
    full = a_claim("c", status=allocated(("a", "d"), users=[f"u{n}" for n in range(MAX_USERS)]))
    cluster = with_devices(full)
    plugin = DynamicResources()
    pod = using("p", "c")
    with pytest.raises(AttemptError, match=r"status\.reservedFor: Too many: 257: must have at most 256 items"):
        plugin.pre_bind(plugin.pre_filter(pod, cluster.snapshot), pod, "a")


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (None, "claim default/c got deleted in the meantime"),
        (a_claim("c", metadata={"uid": "another"}), "claim default/c got deleted in the meantime"),
        (a_claim("c", status=allocated(("b", "d"))), "claim default/c got allocated elsewhere in the meantime"),
    ],
)
def test_what_happens_to_a_claim_meanwhile_ends_the_attempt(meanwhile, why):
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]))
    plugin = DynamicResources()
    pod = using("p", "c")
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    plugin.reserve(wanted, pod, "a")
    cluster.remove_object(a_claim("c"))
    if meanwhile is not None:
        cluster.set_object(meanwhile)
    with pytest.raises(AttemptError, match=why):
        plugin.pre_bind(wanted, pod, "a")


# -- binding conditions ---------------------------------------------------------------------------------------------------


CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


def with_condition(claim, kind, status="True"):
    condition = {"type": kind, "status": status, "reason": "Because", "message": "so"}
    device = {"driver": DRIVER, "pool": "a", "device": "d", "conditions": [condition]}
    told = msgspec.convert({"devices": [device]}, type(claim.status)).devices
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, devices=told))


def test_binding_waits_for_devices_to_be_ready():
    cluster = with_devices(a_claim("c"), a_slice("a", [{"name": "d", **CONDITIONS}]))
    *_, until = allocate(DynamicResources(), cluster, using("p", "c"), "a")
    assert isinstance(until, Until)
    assert until.timeout_s == 600
    claim = cluster.objects(ResourceClaim)["default/c"]
    assert not until.is_met()
    cluster.set_object(with_condition(claim, "ready"))
    assert until.is_met()
    cluster.set_object(with_condition(claim, "broken"))
    with pytest.raises(AttemptError, match='device binding failed: claim=c, reason=Because, message="so"'):
        until.is_met()
    cluster.remove_object(claim)
    with pytest.raises(AttemptError, match='could not find ResourceClaim "default/c"'):
        until.is_met()


@pytest.mark.parametrize(
    ("now", "condition", "refused"), [(100, "", False), (700, "", True), (700, "ready", False), (100, "broken", True)]
)
def test_devices_that_fail_or_take_too_long_are_given_up(now, condition, refused):
    status = allocated(("a", "d"), conditions=CONDITIONS, allocationTimestamp="1970-01-01T00:00:00Z")
    claim = a_claim("c", status=status)
    cluster = with_devices(with_condition(claim, condition) if condition else claim, nodes=("a",))
    told = why_not(cluster, using("p", "c"), attached(cluster, now))
    assert told == ({"a": "resourceclaim not available on the node"} if refused else {})


# -- PostFilter -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ((), "deallocation of ResourceClaim completed"),
        (("default/p",), "deallocation of ResourceClaim completed"),
        (("default/other",), "still not schedulable"),
        (("default/p", "default/other"), "still not schedulable"),
    ],
)
def test_a_claim_that_nobody_else_uses_gives_its_devices_back(users, message):
    cluster = with_devices(a_claim("c", status=allocated(("z", "d"), users=users, selector="z")))
    pod, plugin = using("p", "c"), DynamicResources()
    attempt = failed_attempt([plugin], pod, cluster.snapshot)
    outcome = plugin.post_filter(pod, attempt)
    assert outcome.reasons == (message,)
    written = [effect.obj.status.allocation for effect in outcome.effects]
    assert written == ([None] if "completed" in message else [])


# -- extended resources ---------------------------------------------------------------------------------------------------


GPU = "example.com/gpu"


def asking(count, name="p"):
    return a_pod(name, containers=[{"name": "main", "resources": {"requests": {GPU: count}}}])


def judged_by_both(cluster, pod):
    plugins = {"NodeResourcesFit": NodeResourcesFit(), "DynamicResources": DynamicResources()}
    for plugin in plugins.values():
        plugin.attach(Scheduler(cluster))
    names = list(plugins)
    profile = make_profile("default", plugins, {"preFilter": names, "filter": names}, {})
    decision = Cycle(always_score=True).decide(profile, pod, cluster.snapshot)
    verdicts = decision.verdicts
    assert decision.error is None
    nodes = cluster.table.nodes
    return {nodes[row].name: (status.plugin, status.reasons[0]) for row, status in verdicts.refused()}


def test_devices_stand_in_where_a_node_does_not_have_the_resource_itself():
    nodes = [a_node("own", allocatable={GPU: 2, "pods": 10}), *[a_node(n, allocatable={"pods": 10}) for n in ("few", "many")]]
    cluster = with_devices(a_slice("few", ["d"]), a_slice("many", ["d", "e"]), nodes=nodes)
    cluster.set_object(a_class(extendedResourceName=GPU))
    assert judged_by_both(cluster, asking(2)) == {"few": ("DynamicResources", "cannot allocate all claims")}
    assert judged_by_both(cluster, asking(3)) == {
        "own": ("NodeResourcesFit", f"Insufficient {GPU}"),
        "few": ("DynamicResources", "cannot allocate all claims"),
        "many": ("DynamicResources", "cannot allocate all claims"),
    }


def test_the_claim_for_extended_resources_is_made_when_the_pod_is_bound():
    cluster = with_devices(a_slice("a", ["d", "e"]))
    cluster.set_object(a_class(extendedResourceName=GPU))
    plugin = attached(cluster)
    pod = asking(2)
    effects = allocate(plugin, cluster, pod, "a")
    (claim,) = cluster.objects(ResourceClaim).values()
    assert claim.metadata.name.startswith("p-extended-resources-")
    assert claim.metadata.owner_references[0].uid == pod.uid
    assert [result.device for result in claim.status.allocation.devices.results] == ["d", "e"]
    pods = [effect.obj for effect in effects if not isinstance(effect.obj, ResourceClaim)]
    assert msgspec.to_builtins(pods[0].status.extended_resource_claim_status) == {
        "resourceClaimName": claim.metadata.name,
        "requestMappings": ({"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"},),
    }
    assert why_not(cluster, asking(1, "q"), plugin)["a"] == "cannot allocate all claims"


def test_both_kinds_of_claims_of_one_pod_are_held_until_each_is_written():
    cluster = with_devices(a_slice("a", ["d", "e"]), a_claim("c", metadata={"ownerReferences": [OWNER]}), nodes=("a",))
    cluster.set_object(a_class(extendedResourceName=GPU))
    plugin = DynamicResources()
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
    containers = [{"name": "main", "resources": {"requests": {GPU: 1}}}]
    pod = a_pod("p", resourceClaims=[TEMPLATE], status=status, containers=containers)
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    plugin.reserve(wanted, pod, "a")
    writes = [effect for effect in plugin.pre_bind(wanted, pod, "a") if isinstance(effect.obj, ResourceClaim)]
    assert [write.obj.status.allocation is not None for write in writes] == [False, True, False, True]
    for written in range(5):
        if written:
            cluster.set_object(writes[written - 1].obj)
        assert why_not(cluster, asking(1, "q"), plugin) == {"a": "cannot allocate all claims"}, written
    held = [claim.status.allocation.devices.results[0].device for claim in cluster.objects(ResourceClaim).values()]
    assert sorted(held) == ["d", "e"]


def test_a_claim_left_behind_by_an_earlier_attempt_is_deleted():
    cluster = with_devices(a_slice("a", ["d"]))
    cluster.set_object(a_class(extendedResourceName=GPU))
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    left = a_claim("left", metadata={"annotations": annotations, "ownerReferences": [OWNER]})
    cluster.set_object(left)
    pod, plugin = asking(1), DynamicResources()
    assert why_not(cluster, pod, plugin)["a"] == "cannot schedule extended resource claim"
    outcome = plugin.post_filter(pod, failed_attempt([plugin], pod, cluster.snapshot))
    assert outcome.reasons == ("deletion of ResourceClaim completed",)
    assert [effect.obj for effect in outcome.effects] == [left]


# -- events and signatures ------------------------------------------------------------------------------------------------


def test_claims_that_concern_the_pod_wake_it():
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
    told = a_pod("p", resourceClaims=[TEMPLATE], status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]})
    generated = Action.UPDATE_POD_GENERATED_CLAIM
    assert wakes(plugin, waiting, Resource.POD, generated, waiting, told)
    assert not wakes(plugin, waiting, Resource.POD, generated, waiting, waiting)
    assert not wakes(plugin, using("other", "c"), Resource.POD, generated, waiting, told)


def test_pods_that_ask_for_devices_are_judged_each_for_itself():
    cluster = with_devices()
    cluster.set_object(a_class(extendedResourceName=GPU))
    plugin = attached(cluster)
    assert plugin.sign(using("p", "c")) is None
    assert plugin.sign(asking(1)) is None
    assert plugin.sign(a_pod()) == {}


def test_it_keeps_the_contract_of_its_extension_points():
    free = a_slice("a", ["d"])
    cluster = with_devices(a_claim("c"), a_claim("x", status=allocated(("b", "d"), selector="b")), free)
    check_plugin(DynamicResources(), pods=[a_pod(), using("p", "c"), using("q", "x"), using("r", "gone")], cluster=cluster)
