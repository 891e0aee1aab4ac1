"""``moorage explain --instance-types``: what Karpenter does about pods and nodes."""

import json
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/karpenter"
FILES = ["-f", str(EXAMPLE / "cluster.yaml"), "-f", str(EXAMPLE / "pending.yaml")]
TYPES = ["--instance-types", str(EXAMPLE / "types.json")]

PODS = {  # the pod; the decision, the node pool or node, the first type, the status
    "a node is added": ("search-0", "add", "general", "m5.4xlarge"),
    "a node has room": ("search-1", "existing", "node-1", None),
    "no pool can take it": ("cache-0", "none", None, None),
}


@pytest.mark.parametrize(("name", "decision", "place", "first"), PODS.values(), ids=PODS)
def test_pods_that_wait(moorage, name, decision, place, first):
    document = json.loads(moorage("explain", f"shop/{name}", *FILES, *TYPES, "-o", "json").out)
    [found] = [one for one in document["items"] if one["kind"] == "AutoscalerAnswer"]
    answer = found["answer"]
    assert (answer["thing"], answer["decision"]) == (f"pod shop/{name}", decision)
    assert place in (answer.get("nodePool"), answer.get("node"), None)
    assert answer.get("types", [None])[0] == first
    assert [why.partition(":")[0] for why in answer.get("why", ())] == (
        ["NodePool general", "NodePool batch"] if decision == "none" else []
    )


def test_preferences_that_karpenter_drops_are_named(moorage, tmp_path):
    prefers = {
        "weight": 1,
        "preference": {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-z"]}]},
    }
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "picky", "namespace": "shop"},
        "spec": {
            "containers": [{"name": "c", "image": "app", "resources": {"requests": {"cpu": "12"}}}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefers]}},
        },
    }  # fmt: skip
    (path := tmp_path / "picky.json").write_text(json.dumps(pod))
    ran = moorage("explain", "shop/picky", *FILES[:2], "-f", str(path), *TYPES)
    assert "Karpenter adds a node for pod shop/picky." in ran.out
    assert "→ it ignores a preferred node affinity term" in ran.out


NODES = {  # the status, what the text says
    "node-1": (0, "Karpenter replaces node/node-1.\n  → of NodePool general, the cheapest first: c5.xlarge"),
    "node-2": (0, "Karpenter removes node/node-2.\n  an hour saves 0.384 USD"),
    "node-5": (2, 'HELD BY         WHY\nshop/ledger-0   Pod has "karpenter.sh/do-not-disrupt" annotation'),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes(moorage, name):
    status, told = NODES[name]
    ran = moorage("explain", f"node/{name}", *FILES[:2], *TYPES)
    assert (ran.status, ran.err) == (status, "")
    assert told in ran.out


REFUSED = {  # arguments, what the error says
    "no types": (["node/node-1", *FILES], "give --autoscaler cluster-autoscaler, or Karpenter's --instance-types"),
    "nodes and pods": (["node/node-1", "web-0", *FILES, *TYPES], "explain pods and nodes in two questions"),
    "Karpenter without types": (["shop/search-0", *FILES, "--autoscaler", "karpenter"], "--instance-types FILE"),
    "no such node": (["node/gone", *FILES, *TYPES], "node/gone: the input has no node of this name"),
    "a page": (["node/node-1", *FILES, *TYPES, "-o", "html"], "--instance-types print text, JSON or YAML"),
}


@pytest.mark.parametrize(("args", "told"), REFUSED.values(), ids=REFUSED)
def test_refusals(moorage, args, told):
    ran = moorage("explain", *args)
    assert ran.status == 1
    assert told in ran.err


OTHER = EXAMPLE.with_name("cluster-autoscaler")
GROUPS = ["-f", str(OTHER / "cluster.yaml"), "--autoscaler", "cluster-autoscaler"]
KEPT = {  # the status, what the text says
    "web-1": (2, "NotUnderutilized: cpu requested (64.1026% of allocatable)"),
    "web-2": (0, "cluster-autoscaler removes node/web-2.\n  an hour saves 0.384 USD\n  → it may go in 300 s"),
    "batch-2": (2, "HELD BY        WHY\nshop/cache-0   BlockedByPod: LocalStorageRequested"),
}


@pytest.mark.parametrize("name", KEPT)
def test_nodes_of_cluster_autoscaler(moorage, name):
    status, told = KEPT[name]
    ran = moorage("explain", f"node/{name}", *GROUPS, *TYPES)
    assert (ran.status, ran.err) == (status, "")
    assert told in ran.out
    assert "node group eks-gpu-90ab11: it has no node" in ran.out


@pytest.mark.slow
def test_pods_that_wait_for_cluster_autoscaler(moorage):
    ran = moorage("explain", "--all", *GROUPS, *TYPES, "-f", str(OTHER / "pending.yaml"), "-o", "json")
    answers = [one["answer"] for one in json.loads(ran.out)["items"] if one["kind"] == "AutoscalerAnswer"]
    found = {
        one["thing"].rpartition("-")[0]: (one["decision"], one.get("nodePool"), len(one.get("why", ()))) for one in answers
    }  # fmt: skip
    assert found == {"pod shop/search": ("add", "eks-web-3ac1f0", 0), "pod shop/model": ("none", None, 2)}
