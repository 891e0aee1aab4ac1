"""Changes of input objects: what becomes of the objects, how a change reads, and how users write it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from moorage.api.core import Node, Pod, ReplicationController
from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.api.workloads import ReplicaSet
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.change.change_text import describe
from moorage.laboratory.costs import BASE_COSTS, UNDONE, Costs, read_costs
from moorage.laboratory.edit.changes import apply
from moorage.laboratory.edit.edits import parse_edit
from moorage.laboratory.edit.pod_changes import request_of
from moorage.laboratory.surroundings import NOTHING_AROUND, ListedObjects
from moorage.testing.builders import a_node, a_pod

ZONE = "topology.kubernetes.io/zone"
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "changes.md").read_text("utf-8")


def pod(**spec):
    return a_pod("web", {"app": "web"}, **spec).pod


def changed(obj, edit):
    """The object after one edit."""
    return next(o for o in apply([obj], parse_edit(edit)) if type(o) is type(obj))


def asks(*requests, **more):
    return pod(containers=[{"name": f"c{i}", "resources": {"requests": one}} for i, one in enumerate(requests)], **more)


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        (asks({"cpu": "1"}), "requests.cpu=683m", [683]),
        (asks({"cpu": "1"}, {"cpu": "300m"}), "requests.cpu=500m", [200, 300]),
        (asks({"cpu": "1"}, {"cpu": "300m"}), "requests.cpu=100m", [0, 100]),
        (asks({"cpu": "1"}, {}), "requests.cpu=2", [2000, 0]),
    ],
)
def test_a_request_is_taken_from_the_container_that_requests_most(before, edit, after):
    now = changed(before, f"pod/web {edit}")
    assert [request_of(Pod(spec=type(now.spec)(containers=(one,))), "cpu") for one in now.spec.containers] == after
    assert request_of(now, "cpu") == sum(after)


def test_a_request_counts_overhead_sidecars_and_init_containers():
    init = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}},
        {"name": "once", "resources": {"requests": {"memory": "8Gi"}}},
    ]
    before = asks({"memory": "4Gi"}, initContainers=init, overhead={"memory": "512Mi"})
    assert request_of(before, "memory") == 9728 * 2**20
    now = changed(before, "pod/web requests.memory=3Gi")
    assert request_of(now, "memory") == 3 * 2**30
    assert [one.resources.requests["memory"] for one in now.spec.init_containers] == ["1Gi", "1536Mi"]


def test_a_request_of_an_extended_resource_takes_its_limit_along():
    gpu = {"nvidia.com/gpu": "4"}
    before = pod(containers=[{"name": "c", "resources": {"requests": gpu, "limits": gpu}}])
    held = changed(before, "pod/web requests.nvidia.com/gpu=2").spec.containers[0].resources
    assert (held.requests, held.limits) == ({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"})


def test_pod_level_requests_are_changed_where_they_count():
    now = changed(asks({"cpu": "1"}, resources={"requests": {"cpu": "3"}}), "pod/web requests.cpu=2")
    assert now.spec.resources.requests == {"cpu": "2"}
    assert request_of(now, "cpu") == 2000


# -- other fields of pods -------------------------------------------------------------------------------------------------


def test_edits_change_one_field_of_a_pod():
    spread = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]
    before = pod(nodeSelector={"disk": "ssd", "zone": "a"}, topologySpreadConstraints=spread, schedulingGates=[{"name": "x/y"}])
    assert changed(before, "pod/web nodeSelector.disk-").spec.node_selector == {"zone": "a"}
    assert changed(before, "pod/web schedulingGates.x/y-").spec.scheduling_gates == ()
    assert changed(before, "pod/web topologySpreadConstraints[0].maxSkew=3").spec.topology_spread_constraints[0].max_skew == 3
    assert changed(before, "pod/web priority=7").spec.priority == 7
    (toleration,) = changed(before, "pod/web tolerations=gpu=yes:NoSchedule").spec.tolerations
    assert (toleration.key, toleration.operator, toleration.value, toleration.effect) == ("gpu", "Equal", "yes", "NoSchedule")


def test_the_last_expression_of_a_node_affinity_takes_the_rule_along():
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}]
    rule = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    now = pod(affinity=rule)
    for key, left in (("a", 1), ("b", 0)):
        old = f'{{"key":"{key}","operator":"Exists"}}'
        change = Change("pod", "drop-expression", "pod/default/web", "affinity.nodeAffinity.required[0]", old)
        assert describe(change) == f"drop node affinity {key} Exists"
        (now,) = apply([now], change)
        required = now.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        assert (len(required.node_selector_terms[0].match_expressions) if required else 0) == left


def test_a_required_term_becomes_a_preferred_one():
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    before = pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    old = '{"labelSelector":{"matchLabels":{"app":"web"}},"topologyKey":"kubernetes.io/hostname"}'
    change = Change("pod", "prefer", "pod/default/web", "affinity.podAntiAffinity", old)
    (now,) = apply([before], change)
    rules = now.spec.affinity.pod_anti_affinity
    assert not rules.required_during_scheduling_ignored_during_execution
    assert rules.preferred_during_scheduling_ignored_during_execution[0].weight == 100
    assert describe(change) == "anti-affinity required → preferred"


def test_a_host_port_is_dropped_and_the_container_port_stays():
    before = pod(containers=[{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]}])
    (now,) = apply([before], Change("pod", "drop-port", "pod/default/web", "hostPorts", "8080/TCP"))
    assert (now.spec.containers[0].ports[0].host_port, now.spec.containers[0].ports[0].container_port) == (0, 80)


# -- nodes ------------------------------------------------------------------------------------------------------------


def node(**spec):
    return a_node("n1", {"zone": "a"}, allocatable={"cpu": "4", "pods": "110"}, **spec)


def test_uncordoning_removes_the_taint_of_the_cordon():
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
    ]
    now = changed(node(unschedulable=True, taints=taints), "node/n1 unschedulable=false")
    assert (now.spec.unschedulable, [taint.key for taint in now.spec.taints]) == (False, ["gpu"])
    assert changed(now, "node/n1 unschedulable=true").spec.unschedulable
    assert changed(now, "node/n1 taints.gpu:NoSchedule-").spec.taints == ()


def test_edits_change_labels_and_amounts_of_a_node():
    assert changed(node(), "node/n1 labels.disk=ssd").labels == {"zone": "a", "disk": "ssd"}
    assert changed(node(), "node/n1 labels.zone-").labels == {}
    assert changed(node(), "node/n1 allocatable.cpu=4130m").status.allocatable == {"cpu": "4130m", "pods": "110"}
    assert changed(node(), "node/n1 allocatable.pods=111").status.allocatable["pods"] == "111"


def test_a_new_node_is_like_another_but_empty():
    objects = apply([node(unschedulable=True)], parse_edit("node/n2 like=n1"))
    assert [(one.name, one.spec.unschedulable) for one in objects] == [("n1", True), ("n2", False)]


def test_an_evicted_pod_is_replaced_by_its_controller():
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name="db", uid="u", controller=True)
    member = Pod(metadata=ObjectMeta(name="db-0", namespace="default", uid="1", owner_references=(owner,)))
    bare = Pod(metadata=ObjectMeta(name="bare", namespace="default", uid="2"))
    (fresh,) = apply(apply([member, bare], parse_edit("pod/db-0 evict")), parse_edit("pod/bare evict"))
    assert (fresh.name, fresh.uid != "1", fresh.spec.node_name) == ("db-0", True, "")


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("pod/shop/web requests.cpu=1", "pod/shop/web: no such pod; the input has pod/default/web"),
        ("node/n2 labels.a=b", "node/n2: no such node; the input has node/n1"),
        ("pod/web nodeSelector.disk-", "pod/default/web: no nodeSelector disk; it has none"),
        ("node/n1 taints.gpu:NoSchedule-", "node/n1: no taint gpu:NoSchedule; it has none"),
        ("node/n1 unschedulable=maybe", "unschedulable is true or false, not 'maybe'"),
        ("pod/web colour=red", "unknown field of a pod; fields: cpu=AMOUNT"),
        ("pod/web requsts.cpu=1", "unknown field of a pod; close: requests.NAME=AMOUNT; moorage help changes has all"),
        ("node/n1 lables.a=b", "unknown field of a node; close: labels.NAME=VALUE; moorage help changes has all"),
        ("web requests.cpu=1", "such as 'pod/web requests.cpu=500m'"),
        ("pod/web requests.cpu=lots", "quantities must match"),
        ("pod/web tolerations=gpu", "'gpu' is no taint; write key=value:Effect"),
        ("pod/web topologySpreadConstraints[1].maxSkew=2", "no topologySpreadConstraints[1]; it has none"),
    ],
)
def test_errors_say_what_was_found_and_what_would_work(edit, message):
    objects = [pod(containers=[{"name": "c"}]), node()]
    with pytest.raises(InputError) as error:
        apply(objects, parse_edit(edit))
    assert message in str(error.value)


# -- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "command"),
    [
        ("node/n1 unschedulable=false", "kubectl uncordon n1"),
        ("node/n1 labels.disk=ssd", "kubectl label node n1 disk=ssd"),
        ("node/n1 labels.disk-", "kubectl label node n1 disk-"),
        ("node/n1 taints.nvidia.com/gpu=present:NoSchedule-", "kubectl taint nodes n1 nvidia.com/gpu:NoSchedule-"),
        ("node/n1 taints=gpu=yes:NoExecute", "kubectl taint nodes n1 gpu=yes:NoExecute"),
        ("pod/shop/web evict", "kubectl delete pod web -n shop"),
        ("node/n1 allocatable.cpu=5", ""),
    ],
)
def test_changes_are_commands_to_paste(edit, command):
    assert ChangeRequests(NOTHING_AROUND).commands([parse_edit(edit)]) == ((command,) if command else ())


def command(edit, *objects):
    (text,) = ChangeRequests(ListedObjects(objects)).commands([parse_edit(edit)])
    return text


def test_a_change_of_a_pod_patches_its_workload():
    deployment = OwnerReference(api_version="apps/v1", kind="Deployment", name="web", uid="d", controller=True)
    rs = ReplicaSet(metadata=ObjectMeta(name="web-1", namespace="shop", uid="r", owner_references=(deployment,)))
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web-1", uid="r", controller=True)
    made = a_pod("web-1-x", namespace="shop", nodeSelector={"example.com/disk": "ssd"}, containers=[{"name": "c"}]).pod
    made = Pod(metadata=ObjectMeta(name="web-1-x", namespace="shop", owner_references=(owner,)), spec=made.spec)
    words = shlex.split(command("pod/shop/web-1-x nodeSelector.example.com/disk-", rs, made))
    assert words[:-1] == ["kubectl", "patch", "deployment", "web", "-n", "shop", "--type=json"]
    assert json.loads(words[-1].removeprefix("-p=")) == [
        {"op": "remove", "path": "/spec/template/spec/nodeSelector/example.com~1disk"}
    ]
    words = shlex.split(command("pod/shop/web-1-x requests.cpu=500m", rs, made))
    (operation,) = json.loads(words[-1].removeprefix("-p="))
    assert operation["path"].startswith("/spec/template/spec/containers/0/resources")
    assert command("pod/web nodeSelector.a-", pod(nodeSelector={"a": "b"})) == (
        "kubectl get pod web -o json | kubectl patch --local -f - -o json --type=json "
        '-p=\'[{"op":"remove","path":"/spec/nodeSelector/a"}]\' | kubectl replace --force -f -'
    )


# -- costs ------------------------------------------------------------------------------------------------------------


def test_costs_grow_with_how_far_a_number_moves():
    costs = Costs()
    assert costs.cost_of(Change("pod", "request", "pod/default/web", "requests.cpu", 1000, 500)) == 6.0
    assert costs.cost_of(Change("pod", "max-skew", "pod/default/web", "x[0].maxSkew", 1, 4)) == 10.5
    assert costs.cost_of(Change("node", "allocatable", "node/n1", "allocatable.cpu", 4000, 5000)) == 12.25
    assert costs.cost_of(Change("node", "untaint", "node/n1", "taints", "gpu=yes:NoSchedule")) == 11
    assert costs.cost_of(Change("node", "untaint", "node/n1", "taints", "node.kubernetes.io/not-ready:NoExecute")) == 12
    assert costs.cost_of(Change("pod", "a plugin's own", "pod/default/web", cost=7.0)) == 7.0


def test_a_file_replaces_some_costs():
    costs = read_costs(b"uncordon: 9\nwho: {node: 0}\nprice: 3\neffort: {label: 0.5}\n", "costs.yaml")
    changed = {name: cost for name, cost in costs.table.items() if cost != BASE_COSTS[name]}
    assert changed == {"effort.uncordon": 9, "who.node": 0, "price": 3, "effort.label": 0.5}
    assert costs.cost_of(Change("node", "label", "node/n1", "labels.a", None, "b")) == 0.5


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (Change("cluster", "wait", "node/n1", "conditions", "not-ready"), {"effort.wait", "who.none", "undone.command"}),
        (
            Change("cluster", "evict", "pod/default/web", "", "n1"),
            {"effort.evict", "who.cluster", "undone.command", "disturbs.moved"},
        ),
        (
            Change("cluster", "scale", "pod/default/web", "deployment/web", 3, 2),
            {"effort.scale", "who.other", "undone.command", "disturbs.moved"},
        ),
        (
            Change("cluster", "add-node", "node/n2", "", None, "like n1"),
            {"effort.add-node", "who.cluster", "undone.drain", "price"},
        ),
        (Change("pod", "claim", "pod/default/web", "volumes.data", "a", "b"), {"effort.claim", "who.pod", "undone.never"}),
    ],
)
def test_a_cost_is_what_its_parts_add(change, parts):
    costs = Costs(shares={"n1": 0.25})
    assert set(costs.parts_of(change)) == parts
    assert costs.cost_of(change) == sum(costs.parts_of(change).values())


def test_a_node_like_another_was_not_created_with_it():
    old = a_node("n1")
    old = old.replace(metadata=old.metadata.replace(creation_timestamp="2026-01-01T00:00:00Z"))
    fresh = apply([old], Change("cluster", "add-node", "node/n2", "", None, "like n1"))[1]
    assert (fresh.name, fresh.metadata.creation_timestamp) == ("n2", None)


def test_the_file_of_costs_on_the_page_is_read():
    (text,) = [one for one in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if one.startswith("who:")]
    costs = read_costs(text.encode(), "costs.yaml")
    assert (costs.table["disturbs.budget"], costs.table["effort.add-node"], costs.table["price"]) == (3, 1, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"uncordn: 1", "unknown cost 'uncordn'; closest is effort.uncordon"),
        (b"effort: {uncordn: 1}", "unknown cost 'effort.uncordn'; closest is effort.uncordon"),
        (b"who: 3", "unknown cost 'who'"),
        (b"label: cheap", "the cost of label must be a number of at least 0, not 'cheap'"),
        (b"- label", "costs are a mapping"),
    ],
)
def test_a_file_of_costs_is_checked(text, message):
    with pytest.raises(InputError, match=message):
        read_costs(text, "costs.yaml")


def test_other_objects_are_left_alone():
    controller = ReplicationController()
    objects = apply([controller, node(), pod()], parse_edit("node/n1 labels.disk=ssd"))
    assert objects[0] is controller
    assert isinstance(objects[1], Node)
    assert isinstance(objects[2], Pod)


def test_the_page_lists_every_change_with_its_cost():
    rows = re.findall(r"^\| `\w+` \| `([a-z-]+)` \|.* \| ([0-9.]+) \| (\w+) \|$", PAGE, re.MULTILINE)
    assert {verb: (float(effort), undone) for verb, effort, undone in rows} == {
        verb: (BASE_COSTS[f"effort.{verb}"], undone)
        for verb, undone in UNDONE.items()
        if not verb.endswith(("-open", "-condition"))
    }
    assert [name for name in BASE_COSTS if f"`{name.removeprefix('effort.')}`" not in PAGE] == []


@pytest.mark.parametrize("edit", re.findall(r"`((?:pod|node|config)/[^`]+ [^`]+)`", PAGE))
def test_the_edits_on_the_page_can_be_read(edit):
    assert parse_edit(edit).target


def test_the_cost_of_a_smaller_request_depends_on_no_unit():
    def cost(old, new):
        return Costs().cost_of(Change("pod", "request", "pod/a/b", "requests.cpu", old, new))

    falling = [cost(6400, new) for new in (3200, 1600, 800, 400, 399, 1, 0)]
    assert falling == [cost(12800, 2 * new) for new in (3200, 1600, 800, 400, 399, 1, 0)]
    assert falling == sorted(set(falling))
    assert falling[3:6:2] == pytest.approx([11, 13], abs=0.02)
