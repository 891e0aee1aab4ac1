"""``moorage simulate --autoscale``: nodes come for pods that fit nowhere."""

import json
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/karpenter"
POOLS = """\
- {name: small, price: 1, max: 5, provisionSeconds: 60, node: {status: {allocatable: {cpu: "4", memory: 16Gi, pods: "20"}}}}
- {name: big, price: 9, min: 1, node: {status: {allocatable: {cpu: "32", memory: 64Gi, pods: "20"}}}}
"""
REFUSED = {  # the file of pools, further options → what is said
    "a minimum above the maximum": ("- {name: a, max: 1, min: 2, node: {}}", [], "[0].min: expected a whole number"),
    "a text for seconds": ("- {name: a, provisionSeconds: soon, node: {}}", [], "provisionSeconds: expected seconds"),
    "no pool": ("- web", [], "expected a pool"),
    "a change to make first": (POOLS, ["--cordon", "n"], "excludes"),
    "a gate": (POOLS, ["--fail-on", "pending > 0"], "excludes gates"),
}


@pytest.fixture
def cluster(tmp_path):
    """Twenty pods of two cores each, and no node."""
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{at}"}, "spec": {"containers": [container]}}
        for at in range(20)
    ]
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    (tmp_path / "pools.yaml").write_text(POOLS)
    return tmp_path


@pytest.mark.slow
def test_nodes_come_for_pods_that_fit_nowhere(moorage, cluster):
    ran = moorage("simulate", "-f", cluster / "cluster.json", "--autoscale", cluster / "pools.yaml", "-q")
    assert ran.status == 0, ran.err
    assert ran.out.startswith("20 placed on 3 nodes")
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.partition("AUTOSCALER")[2].splitlines()[2:] if line}
    assert rows["big"][:4] == ["0", "1", "0", "1"]  # its minimum, which is there after 120 s
    assert rows["small"][1] == "2"  # for the four pods that do not fit on it


def test_it_is_the_same_as_json_with_notes(moorage, cluster):
    ran = moorage("simulate", "-f", cluster / "cluster.json", "--autoscale", cluster / "pools.yaml", "-q", "-o", "json")
    assert "autoscaler: pool big had 0 nodes, 1 came" in ran.out
    assert len([pod for pod in json.loads(ran.out)["pods"] if pod["state"] == "Placed"]) == 20


@pytest.mark.parametrize(("pools", "more", "said"), REFUSED.values(), ids=REFUSED)
def test_faults_are_named(moorage, cluster, pools, more, said):
    (cluster / "pools.yaml").write_text(pools)
    ran = moorage("simulate", "-f", cluster / "cluster.json", "--autoscale", cluster / "pools.yaml", *more)
    assert ran.status != 0
    assert said in ran.err


MAP = "kind: ConfigMap\ndata:\n  priorities: |\n    10: ['small']\n    5: ['.*']\n"


@pytest.mark.parametrize(("text", "status"), [(MAP, 0), ("10: ['small']\n", 0), ("kind: ConfigMap\n", 1), ("x", 1)])
def test_the_priority_expander_reads_its_config_map(moorage, cluster, text, status):
    (cluster / "priorities.yaml").write_text(text, "utf-8")
    ran = moorage(
        "simulate", "-f", cluster / "cluster.json", "--autoscale", cluster / "pools.yaml", "-q", "--until", "600",
        "--expander", "priority,least-waste", "--expander-priorities", cluster / "priorities.yaml",
    )  # fmt: skip
    assert ("small" in ran.out) is (status == 0), ran.err
    assert (ran.status == 1) is (status == 1)


def test_pods_for_which_no_pool_grows_have_the_autoscalers_message(moorage, cluster):
    huge = {"name": "c", "resources": {"requests": {"cpu": "20", "memory": "1Gi"}}}
    labelled = {"containers": [{"name": "c"}], "nodeSelector": {"disk": "ssd"}}
    pods = [{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "huge"}, "spec": {"containers": [huge]}},
            {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "ssd"}, "spec": labelled}]  # fmt: skip
    (cluster / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    (cluster / "pools.yaml").write_text(POOLS.replace("price: 9, min: 1", "price: 9, max: 0"))
    ran = moorage("simulate", "-f", cluster / "cluster.json", "--autoscale", cluster / "pools.yaml", "-q", "--until", "60")
    assert "default/huge: pod didn't trigger scale-up: 1 Insufficient cpu, 1 max node group size reached" in ran.out
    assert "default/ssd: pod didn't trigger scale-up: 1 max node group size reached, 1 node(s) didn't match" in ran.out


def test_karpenter_in_virtual_time(moorage):
    ran = moorage(
        "simulate", "-f", EXAMPLE / "cluster.yaml", "-f", EXAMPLE / "pending.yaml", "--until", "14400", "-q",
        "--autoscale", "karpenter", "--instance-types", EXAMPLE / "types.json",
    )  # fmt: skip
    assert "AUTOSCALER   4.0 simulated hours, cost 4.93 USD" in ran.out
    assert "nodes disrupted: 1 empty, 2 underutilized" in ran.out
    assert "shop/cache-0: no instance type met the scheduling requirements" in ran.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--autoscale", "karpenter"], "--instance-types FILE"),
        (["--instance-types", "types.json"], "--instance-types needs --autoscale karpenter"),
        (["--autoscale", "karpenter", "--instance-types", EXAMPLE / "types.json"], "no NodePool"),
    ],
)
def test_what_karpenter_needs_is_named(moorage, cluster, options, said):
    ran = moorage("simulate", "-f", cluster / "cluster.json", *options)
    assert ran.status != 0
    assert said in ran.err


@pytest.mark.slow
def test_cluster_autoscaler_works_with_the_flags_and_groups_of_the_input(moorage):
    folder = EXAMPLE.with_name("cluster-autoscaler")
    files = ["-f", folder / "cluster.yaml", "-f", folder / "pending.yaml", "--instance-types", EXAMPLE / "types.json"]
    ran = moorage("simulate", *files, "--autoscale", "cluster-autoscaler", "-q")
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.partition("AUTOSCALER")[2].splitlines()[2:4]}
    assert {name: row[:4] for name, row in rows.items()} == {
        "eks-web-3ac1f0": ["3", "1", "0", "4"], "eks-batch-77be21": ["2", "0", "1", "1"],
    }  # fmt: skip
    assert "shop/model-0: pod didn't trigger scale-up: 2 Insufficient cpu, 2 Insufficient memory" in ran.out
    assert "not in the input: node group eks-gpu-90ab11: it has no node" in ran.out


@pytest.mark.parametrize(("which", "more", "bought"), [
    ("karpenter", ("--types", EXAMPLE / "types.json"), "Buy 1 general-m5.4xlarge-on-demand: 0.768 USD per hour"),
    ("cluster-autoscaler", (), "Buy 1 eks-web-3ac1f0, which places 3 of 4 pods"),
])  # fmt: skip
def test_plan_buys_what_the_autoscaler_may_add(moorage, which, more, bought):
    files = [text for name in ("cluster", "pending") for text in ("-f", EXAMPLE.parent / which / f"{name}.yaml")]
    ran = moorage("plan", *files, "--autoscaler", which, *more)
    assert ran.status == 2, ran.err
    assert ran.out.startswith(bought)


def test_plan_with_karpenter_needs_instance_types(moorage):
    ran = moorage("plan", "-f", EXAMPLE / "cluster.yaml", "--autoscaler", "karpenter")
    assert ran.status == 1
    assert "--types FILE" in ran.err
