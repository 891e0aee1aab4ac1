"""``moorage compare --a-autoscale``: autoscalers, NodePools and expanders against each other."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
KARPENTER, OTHER = EXAMPLES / "karpenter", EXAMPLES / "cluster-autoscaler"
PRICES = ["--instance-types", KARPENTER / "types.json"]
POOLS = ["-f", KARPENTER / "cluster.yaml", *PRICES, "--a-autoscale", "karpenter"]


@pytest.mark.slow
def test_spot_nodes_cost_less(moorage):
    ran = moorage(
        "compare", *POOLS, "--b-nodepools", KARPENTER / "spot.yaml", "--until", "1800", "--arrivals", "30", "--seeds", "3"
    )
    assert ran.status == 0, ran.err
    first, a, b, *_ = ran.out.splitlines()
    assert first.startswith("B costs ")
    assert " USD less than A (" in first
    assert (a, b) == ("A: karpenter", "B: karpenter spot.yaml")
    assert [line.split()[0] for line in ran.out.splitlines()[5:12]] == [
        "cost", "nodeHours", "waitMean", "waitP99", "pendingAtTheEnd", "evicted", "nodesRemoved",
    ]  # fmt: skip


def test_the_same_is_the_same(moorage):
    files = ["-f", OTHER / "cluster.yaml", *PRICES, "--b-autoscale", "cluster-autoscaler", "--until", "600", "--seeds", "1"]
    document = json.loads(moorage("compare", *files, "-o", "json").out)
    assert document["kind"] == "AutoscalerComparison"
    assert document["summary"] == "B costs as much as A, or the difference may be chance."
    answer = document["answer"]
    assert (answer["a"], answer["b"]) == ("cluster-autoscaler", "cluster-autoscaler")
    assert answer["figures"]["cost"]["difference"] == 0
    assert answer["figures"]["cost"]["unit"] == "USD"
    why = "it has no node, so its template is unknown and it does not grow (--node-templates gives one)"
    assert answer["missing"] == [f"node group eks-gpu-90ab11: {why}"]


REFUSED = {  # further arguments, what the error says
    "no autoscaler": (["--b-expander", "most-pods"], "--b-expander needs --a-autoscale or --b-autoscale"),
    "a configuration": (["--a-autoscale", "karpenter", "--b", "x.yaml"], "exclude --b"),
    "a page": (["--a-autoscale", "karpenter", "-o", "html"], "exclude -o html"),
    "no prices": (["--a-autoscale", "karpenter"], "--instance-types FILE"),
    "pools of the other": (
        ["--a-autoscale", "cluster-autoscaler", "--b-nodepools", str(KARPENTER / "spot.yaml")],
        "--b-nodepools needs --b-autoscale karpenter",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("args", "told"), REFUSED.values(), ids=REFUSED)
def test_refusals(moorage, args, told):
    ran = moorage("compare", "-f", KARPENTER / "cluster.yaml", "--seeds", "1", *args)
    assert ran.status == 1
    assert told in ran.err
