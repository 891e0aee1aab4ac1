"""Decisions that cluster-autoscaler itself made, recorded, and ours beside them.

Each line of ``recorded.jsonl.gz`` is a case: the objects of a cluster, the node groups, flags, the seconds at which rounds
ran, and ``steps``: what each round of cluster-autoscaler at 87d9c45c02^ did in process, with its test cloud provider. There
it walks maps in order of names or insertion, and its random expander takes the first option.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from moorage.api.core import Node, Pod, Taint
from moorage.api.workloads import PodDisruptionBudget
from moorage.laboratory.cluster_objects import objects_of, read_given
from moorage.simulator.autoscalers.cluster_autoscaler.flags import AutoscalerFlags
from moorage.simulator.autoscalers.cluster_autoscaler.loop import AutoscalerLoop
from moorage.simulator.autoscalers.cluster_autoscaler.packing import PackingSnapshot
from moorage.simulator.autoscalers.cluster_autoscaler.removal_rules import DELETED
from moorage.simulator.autoscalers.cluster_autoscaler.scale_up import GroupSize, RoundView, Templates
from moorage.simulator.simulate import Options, prepare

PATH = Path(__file__).with_name("recorded.jsonl.gz")
NOW = datetime(2026, 8, 17, tzinfo=UTC)


class FirstOption(Random):
    def randrange(self, *_: Any) -> int:
        return 0


@cache
def recorded() -> list[dict[str, Any]]:
    """Return the cases."""
    return [json.loads(line) for line in gzip.decompress(PATH.read_bytes()).splitlines()]


def _documents(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kinds = (("nodes", "Node", "v1"), ("pods", "Pod", "v1"), ("daemonSets", "DaemonSet", "apps/v1"),
             ("pdbs", "PodDisruptionBudget", "policy/v1"))  # fmt: skip
    for field, kind, version in kinds:
        for one in case[field] or ():
            meta = one["metadata"]
            age = case["ages"].get(f"{meta['namespace']}/{meta['name']}" if kind == "Pod" else meta["name"], 7200)
            born = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
            yield {"kind": kind, "apiVersion": version, **one, "metadata": {**meta, "creationTimestamp": born}}


def loop_of(case: dict[str, Any]) -> AutoscalerLoop:
    o = case["options"]
    known = {(one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"]["replicas"] for one in case["replicaSets"]}

    def replicas(kind: str, namespace: str, name: str) -> Any:
        return known.get((namespace, name), "absent") if kind == "ReplicaSet" else None

    flags = AutoscalerFlags(
        expander=",".join(o["expander"]), scale_down_unneeded_time=o["unneeded"], scale_down_unready_time=o["unready"],
        unremovable_node_recheck_timeout=o["recheck"], max_scale_down_parallelism=o["parallelism"],
        max_drain_parallelism=o["drainParallelism"], scale_down_utilization_threshold=o["threshold"],
        ignore_daemonsets_utilization=o["ignoreDaemons"], scale_down_unready_enabled=o["scaleDownUnready"],
        skip_nodes_with_system_pods=o["skipSystem"], skip_nodes_with_local_storage=o["skipLocal"],
        min_replica_count=o["minReplicas"], max_nodes_total=o["maxNodesTotal"], max_nodes_per_scaleup=o["maxNodesPerScaleUp"],
        balance_similar_node_groups=o["balance"], expendable_pods_priority_cutoff=o["cutoff"],
        cores_total=(o["minCores"], o["maxCores"] or 320_000), enforce_node_group_min_size=o["enforceMin"],
        scale_down_delay_after_add=o["afterAdd"], scale_down_delay_after_delete=o["afterDelete"],
        new_pod_scale_up_delay=o["young"],
    )  # fmt: skip
    return AutoscalerLoop(flags, FirstOption(), replicas=replicas)


def answer(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return our rounds, in the form of the recorded ones."""
    given = read_given([*_documents(case)], validated=False)
    objects = [*objects_of(given)]
    nodes = {one.name: one for one in objects if isinstance(one, Node)}
    order = [one["metadata"]["name"] for one in case["nodes"] or ()]
    pods = [one for one in objects if isinstance(one, Pod)]
    daemons = list(given.daemon_sets)
    budgets = [one for one in objects if isinstance(one, PodDisruptionBudget)]
    cutoff = case["options"]["cutoff"]
    placed = [pod for pod in pods if pod.spec.node_name and (pod.spec.priority or 0) >= cutoff]
    rest = [one for one in objects if not isinstance(one, Pod | Node)]
    scratch, _ = prepare(Options())
    scratch.keeps_records = False
    scratch.load([*rest, *(nodes[name] for name in order), *placed])
    packed = PackingSnapshot(scratch)
    loop, templates = loop_of(case), Templates()
    group_of = {name: group["id"] for group in case["groups"] for name in group["nodes"] or ()}
    targets = {group["id"]: group["target"] for group in case["groups"]}
    upcoming: dict[str, int] = {}
    steps = []
    for seconds in case["times"]:
        now_s = NOW.timestamp() + seconds
        groups = []
        for group in case["groups"]:
            of_group = [nodes[name] for name in group["nodes"] or ()]
            sketch = next(iter(read_given([{"kind": "Node", "apiVersion": "v1", **group["template"]}]).nodes))
            template = templates.of(group["id"], of_group, sketch, packed.pods, daemons)
            assert template is not None
            groups.append(GroupSize(group["id"], group["min"], group["max"], targets[group["id"]], template))
        waiting = [pod for pod in pods if not pod.spec.node_name]
        view = RoundView(packed, [nodes[name] for name in order], waiting, groups, group_of, budgets, upcoming)
        made = loop.run_once(view, now_s)
        for name, more in made.more.items():
            targets[name] += more
            upcoming[name] = upcoming.get(name, 0) + more
        names = {pod.metadata.uid: pod.key for pod in pods}
        reasons = made.up.reasons if not case["options"]["enforceMin"] else {
            uid: found for uid, found in made.up.reasons.items() if found
        }  # fmt: skip
        steps.append({
            "options": [
                [one.pool, one.count, sorted(pod.key.removesuffix("-again") for pod in one.pods)] for one in made.up.options
            ],
            "ups": made.more,
            "unhelped": {
                names.get(uid.removesuffix("/again"), uid): {group: list(why) for group, why in found.items()}
                for uid, found in reasons.items()
            },
            "unneeded": sorted(loop.planner.unneeded),
            "unremovable": {name: _reason(found) for name, found in loop.planner.reasons.items()},
            "empty": sorted(one.name for one in made.empty), "drain": sorted(one.name for one in made.drains),
        })  # fmt: skip
        for one in (*made.empty, *made.drains):
            taint = Taint(key=DELETED, value=str(int(now_s)), effect="NoSchedule")
            node = nodes[one.name]
            nodes[one.name] = replace(node, spec=replace(node.spec, taints=(*node.spec.taints, taint)))
            packed.change(nodes[one.name])
    return steps


def _reason(found: Any) -> list[str]:
    reason, _, why = found.reason.partition(": ")
    return [reason, found.pod.removesuffix("-again"), why] if why else [reason]


def differences(cases: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the cases with rounds other than cluster-autoscaler's. Where its own differ from run to run, any will do."""
    for case in cases:
        ours = json.loads(json.dumps(answer(case)))
        for why in (held for step in ours for held in step["unhelped"].values()):
            why |= {group: sorted(texts) for group, texts in why.items()}
        if ours not in case["steps"]:
            yield f"{case['title']}: cluster-autoscaler: {case['steps'][0]}, we: {ours}"
