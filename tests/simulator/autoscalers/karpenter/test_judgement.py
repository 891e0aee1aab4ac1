"""``Karpenter`` on clusters that were read: blocked nodes, budgets, what is missing."""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.simulator.autoscalers import KINDS, Karpenter, read_price_list
from moorage.simulator.autoscalers.karpenter.consolidation import Disruptor, candidate_of
from moorage.simulator.cluster_reader import read
from tests.simulator.autoscalers.karpenter.clusters import instance_type, node, pod, pool, scene

EXAMPLE = Path(__file__).resolve().parents[4] / "examples/karpenter"
NOW_S = 1_787_227_200.0  # 2026-08-20T12:00:00Z, a Thursday
_OWN = "karpenter.sh/do-not-disrupt"


def _documents() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((EXAMPLE / "cluster.yaml").read_text("utf-8"))
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


def _karpenter(tmp_path: Path, documents: dict[str, dict[str, Any]], now_s: float | None = NOW_S) -> Karpenter:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(documents.values()), "utf-8")
    return Karpenter(read(tmp_path / "cluster.yaml", custom=KINDS), read_price_list(str(EXAMPLE / "types.json")), now_s=now_s)


#: The object, the path and value of what changes → why node-2 stays ("": it is deleted).
_BLOCKS: dict[str, tuple[str, str, Any, str]] = {
    "as it is": ("Node/node-2", "metadata/annotations", {}, ""),
    "should not disrupt nodes with the karpenter.sh/do-not-disrupt annotation": (
        "Node/node-2", "metadata/annotations", {_OWN: "true"}, f'Disruption is blocked through the "{_OWN}" annotation'
    ),
    "should not disrupt nodes that are not initialized": (
        "Node/node-2", "metadata/labels/karpenter.sh~initialized", "false", "Node isn't initialized"
    ),
    "should not disrupt nodes that are being disrupted": (
        "Node/node-2", "spec", {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
        "Node is deleting or marked for deletion",
    ),
    "should not disrupt nodes of a NodePool that does not exist": (
        "Node/node-2", "metadata/labels/karpenter.sh~nodepool", "gone", "NodePool not found (NodePool=gone)"
    ),
    "should not disrupt nodes that have pods with the karpenter.sh/do-not-disrupt annotation": (
        "Pod/web-2", "metadata/annotations", {_OWN: "true"}, f'Pod has "{_OWN}" annotation (Pod=shop/web-2)'
    ),
    "should wait for the duration of the annotation": (
        "Pod/web-2", "metadata", {
            "name": "web-2", "namespace": "shop", "uid": "web-2", "annotations": {_OWN: "1h"},
            "creationTimestamp": "2026-08-20T11:30:00Z",
        }, f'Pod has "{_OWN}" annotation (Pod=shop/web-2)',
    ),
    "should disrupt when the duration of the annotation is over": (
        "Pod/web-2", "metadata", {
            "name": "web-2", "namespace": "shop", "uid": "web-2", "annotations": {_OWN: "1h"},
            "creationTimestamp": "2026-08-20T10:30:00Z",
        }, "",
    ),
    "should ignore an annotation that is no duration": ("Pod/web-2", "metadata/annotations", {_OWN: "soon"}, ""),
    "should not disrupt nodes that have pods with fully blocking PDBs": (
        "PodDisruptionBudget/db", "spec/selector", {"matchLabels": {"app": "web"}},
        "Pdb prevents pod evictions (PodDisruptionBudget=[shop/db])",
    ),
    "should not disrupt nodes that are not consolidatable": (
        "NodeClaim/node-2", "status/conditions", [],
        "Node is not consolidatable: consolidateAfter has not passed since its last pod event",
    ),
    "should not disrupt without a budget": (
        "NodePool/general", "spec/disruption/budgets", [{"nodes": "0"}],
        "No allowed disruptions for disruption reason Underutilized due to blocking budget",
    ),
    "should disrupt if the budget is for another reason": (
        "NodePool/general", "spec/disruption/budgets", [{"nodes": "0", "reasons": ["Empty"]}], ""
    ),
    "should not disrupt while a schedule is active": (
        "NodePool/general", "spec/disruption/budgets", [{"nodes": "0", "schedule": "0 11 * * *", "duration": "2h"}],
        "No allowed disruptions for disruption reason Underutilized due to blocking budget",
    ),
    "should disrupt when no schedule is active": (
        "NodePool/general", "spec/disruption/budgets", [{"nodes": "0", "schedule": "0 9 * * *", "duration": "2h"}], ""
    ),
    "should not disrupt with consolidation disabled": (
        "NodePool/general", "spec/disruption/consolidateAfter", "Never", 'NodePool "general" has consolidation disabled'
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "path", "value", "why"), _BLOCKS.values(), ids=_BLOCKS)
def test_why_a_node_stays(tmp_path: Path, name: str, path: str, value: Any, why: str) -> None:
    documents = _documents()
    held = documents[name]
    *parents, last = path.split("/")
    for part in parents:
        held = held.setdefault(part, {})
    held[last.replace("~", "/")] = value
    found = _karpenter(tmp_path, documents).verdict("node-2")
    assert (found.decision, found.why) == ("keep" if why else "delete", why)


def test_a_pod_that_must_not_be_disrupted_is_named_before_a_budget(tmp_path: Path) -> None:
    documents = _documents()
    documents["PodDisruptionBudget/db"]["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    second = deepcopy(documents["Pod/web-2"])
    second["metadata"] |= {"name": "web-3", "uid": "web-3", "annotations": {_OWN: "true"}}
    found = _karpenter(tmp_path, {**documents, "Pod/web-3": second}).verdict("node-2")
    assert (found.decision, found.why) == ("keep", f'Pod has "{_OWN}" annotation (Pod=shop/web-3)')
    assert list(found.pods) == ["shop/web-2", "shop/web-3"]


_DRIFTED = {"type": "Drifted", "status": "True", "lastTransitionTime": "2026-08-20T10:00:00Z"}
#: What changes, by object and path → whether node-2 is replaced because it is drifted.
_DRIFTS: dict[str, tuple[dict[str, Any], bool]] = {
    "should replace drifted nodes": ({}, True),
    "should ignore nodes with the drifted status condition set to false": (
        {"NodeClaim/node-2 status/conditions": [{**_DRIFTED, "status": "False"}]}, False
    ),
    "should ignore nodes with the karpenter.sh/do-not-disrupt annotation set to true": (
        {"Node/node-2 metadata/annotations": {_OWN: "true"}}, False
    ),
    "should drift with the karpenter.sh/do-not-disrupt annotation set to false": (
        {"Node/node-2 metadata/annotations": {_OWN: "false"}}, True
    ),
    "should not drift nodes that have pods with the karpenter.sh/do-not-disrupt annotation": (
        {"Pod/web-2 metadata/annotations": {_OWN: "true"}}, False
    ),
    "should drift such nodes with a terminationGracePeriod": (
        {"Pod/web-2 metadata/annotations": {_OWN: "true"}, "NodeClaim/node-2 spec/terminationGracePeriod": "1h"}, True
    ),
    "should drift when consolidation is disabled": ({"NodePool/general spec/disruption/consolidateAfter": "Never"}, True),
    "should respect budgets": ({"NodePool/general spec/disruption/budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}, False),
    "should not consider static nodepools": ({"NodePool/general spec/replicas": 3}, False),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "drifts"), _DRIFTS.values(), ids=_DRIFTS)
def test_which_nodes_are_replaced_because_they_are_drifted(tmp_path: Path, changes: dict[str, Any], drifts: bool) -> None:
    documents = _documents()
    for where, value in {"NodeClaim/node-2 status/conditions": [_DRIFTED], **changes}.items():
        name, _, path = where.partition(" ")
        held = documents[name]
        *parents, last = path.split("/")
        for part in parents:
            held = held.setdefault(part, {})
        held[last] = value
    karpenter = _karpenter(tmp_path, documents)
    command = karpenter.next_command()
    assert (karpenter.verdict("node-2").why == "the node is drifted") is drifts
    assert (command is not None and command.reason == "Drifted") is drifts


def test_two_budgets_of_one_pod_hold_its_node(tmp_path: Path) -> None:
    documents = _documents()
    second = {**documents["PodDisruptionBudget/db"], "metadata": {"name": "more", "namespace": "shop"}}
    found = _karpenter(tmp_path, {**documents, "second": second}).verdict("node-3")
    assert found.why == "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[shop/db shop/more])"


def test_what_the_input_lacks_is_named(tmp_path: Path) -> None:
    documents = _documents()
    assert _karpenter(tmp_path, documents).missing == ()
    del documents["NodeClaim/node-2"]
    documents["Node/node-1"]["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "x9.huge"
    assert _karpenter(tmp_path, documents, None).missing == (
        "the time: the input does not say when it was taken, so consolidateAfter and budgets' schedules do not count",
        "NodeClaims of 1 of 5 nodes: they count as consolidatable",
        "instance types that the file does not have: x9.huge",
    )
    none = {name: one for name, one in documents.items() if not name.startswith("NodePool/")}
    found = _karpenter(tmp_path, none)
    assert found.missing[0].startswith("NodePools: the input has none")
    assert {one.why.split(" (")[0] for one in found.verdicts()} == {"NodePool not found"}


def test_the_next_command_disturbs_no_more_than_it_must(tmp_path: Path) -> None:
    """Both nodes could be replaced by one of node-1's type: keeping node-1 would be as good, so it is replaced alone."""
    found = _karpenter(tmp_path, _documents()).next_command()
    assert found is not None
    assert (found.decision, [held.name for held in found.candidates]) == ("replace", ["node-1"])


@pytest.mark.slow
def test_a_thousand_nodes_are_judged_in_seconds() -> None:
    types = [instance_type(f"t{at}", cpu=str(4 * at + 4), memory=f"{16 * at + 16}Gi", pods="110") for at in range(20)]
    nodes = [node(f"n{at:04d}", types[at % 5 + 2], zone=f"test-zone-{at % 3 + 1}") for at in range(1000)]
    pods = [pod(cpu="1", memory="1Gi", node=f"n{at:04d}") for at in range(1000) for _ in range(8)]
    own = pool()
    cluster = scene(types, [own], nodes=nodes, pods=pods)
    disruptor = Disruptor(cluster)
    began_s = time.process_time()
    found = [disruptor.compute([candidate_of(cluster, held, own)]).decision for held in cluster.nodes]
    assert set(found) == {"delete"}
    assert time.process_time() - began_s < 30
