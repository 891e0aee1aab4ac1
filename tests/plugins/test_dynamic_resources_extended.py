"""Test pods that request extended resources backed by devices, and the special claim made for them."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from moorage.api.devices import ResourceClaim, ResourceClaimStatus
from moorage.core.cycle.cycle import Cycle
from moorage.framework.effects import Amend, Delete
from moorage.framework.profile import make_profile
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.testing.builders import a_node, a_pod, failed_attempt
from tests.plugins.device_claims import (
    GPU,
    OWNER,
    TEMPLATE,
    Scheduler,
    a_claim,
    a_class,
    a_slice,
    allocate,
    asking,
    attached,
    why_not,
    with_devices,
)


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


def test_devices_are_used_on_nodes_without_the_extended_resource():
    nodes = [a_node("own", allocatable={GPU: 2, "pods": 10}), *[a_node(n, allocatable={"pods": 10}) for n in ("few", "many")]]
    cluster = with_devices(a_slice("few", ["d"]), a_slice("many", ["d", "e"]), nodes=nodes)
    cluster.set_object(a_class(extendedResourceName=GPU))
    assert judged_by_both(cluster, asking(2)) == {"few": ("DynamicResources", "cannot allocate all claims")}
    assert judged_by_both(cluster, asking(3)) == {
        "own": ("NodeResourcesFit", f"Insufficient {GPU}"),
        "few": ("DynamicResources", "cannot allocate all claims"),
        "many": ("DynamicResources", "cannot allocate all claims"),
    }


def test_the_special_claim_is_created_when_the_pod_is_bound():
    cluster = with_devices(a_slice("a", ["d", "e"]))
    cluster.set_object(a_class(extendedResourceName=GPU))
    plugin = attached(cluster)
    pod = asking(2)
    effects = allocate(plugin, cluster, pod, "a")
    (claim,) = cluster.objects(ResourceClaim).values()
    assert claim.metadata.name.startswith("p-extended-resources-")
    assert claim.metadata.owner_references[0].uid == pod.uid
    assert [result.device for result in claim.status.allocation.devices.results] == ["d", "e"]
    (updated,) = [effect.change(effect.obj) for effect in effects if isinstance(effect, Amend)]
    assert msgspec.to_builtins(updated.status.extended_resource_claim_status) == {
        "resourceClaimName": claim.metadata.name,
        "requestMappings": ({"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"},),
    }
    assert why_not(cluster, asking(1, "q"), plugin)["a"] == "cannot allocate all claims"


def test_explicit_and_special_claims_of_one_pod_are_reserved_until_written():
    cluster = with_devices(a_slice("a", ["d", "e"]), a_claim("c", metadata={"ownerReferences": [OWNER]}), nodes=("a",))
    cluster.set_object(a_class(extendedResourceName=GPU))
    plugin = DynamicResources()
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
    containers = [{"name": "main", "resources": {"requests": {GPU: 1}}}]
    pod = a_pod("p", resourceClaims=[TEMPLATE], status=status, containers=containers)
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    plugin.reserve(wanted, pod, "a")
    join, make, _ = plugin.pre_bind(wanted, pod, "a")
    joined, without = join.change(join.obj), ResourceClaimStatus()
    assert joined.status.allocation is not None
    versions = [replace(joined, status=without), joined, replace(make.obj, status=without), make.obj]
    for written, version in enumerate([None, *versions]):
        if version is not None:
            cluster.set_object(version)
        assert why_not(cluster, asking(1, "q"), plugin) == {"a": "cannot allocate all claims"}, written
    held = [claim.status.allocation.devices.results[0].device for claim in cluster.objects(ResourceClaim).values()]
    assert sorted(held) == ["d", "e"]


def test_a_special_claim_of_an_earlier_attempt_is_deleted():
    cluster = with_devices(a_slice("a", ["d"]))
    cluster.set_object(a_class(extendedResourceName=GPU))
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    left = a_claim("left", metadata={"annotations": annotations, "ownerReferences": [OWNER]})
    cluster.set_object(left)
    pod, plugin = asking(1), DynamicResources()
    assert why_not(cluster, pod, plugin)["a"] == "cannot schedule extended resource claim"
    outcome = plugin.post_filter(pod, failed_attempt([plugin], pod, cluster.snapshot))
    assert outcome.reasons == ("deletion of ResourceClaim completed",)
    assert [type(effect) for effect in outcome.effects] == [Amend, Delete]
    assert all(effect.obj == left for effect in outcome.effects)
