"""The descheduler's own test tables: its code was run on them, and its inputs and evictions were recorded.

Each case names the test it follows. ``plugin`` cases have the nodes that the plugin got, all pods, and the pods that were
evicted; ``point`` cases one pod and whether DefaultEvictor lets it pass; ``validates`` cases arguments and the error.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.core import Node, Pod
from moorage.api.pod_requests import amount
from moorage.api.selectors import compile_label_selector
from moorage.api.storage import PersistentVolumeClaim
from moorage.api.workloads import PodDisruptionBudget
from moorage.errors import InputError
from moorage.simulator.descheduler.cycle import run_plugin
from moorage.simulator.descheduler.policy import DefaultEvictor, Evictor, PluginRun, args_of, faults_of
from moorage.simulator.descheduler.scene import PodReport, Scene

_CASES = [
    json.loads(line) for line in gzip.decompress(Path(__file__).with_name("upstream_cases.jsonl.gz").read_bytes()).splitlines()
]
_RUNS = [case for case in _CASES if "plugin" in case]
_FILTERS = [case for case in _CASES if "point" in case]
_VALIDATED = [case for case in _CASES if "validates" in case]


def _key(named: dict[str, Any]) -> str:
    return f"{named['metadata'].get('namespace', '')}/{named['metadata']['name']}"


def _scene(case: dict[str, Any]) -> Scene:
    nodes = msgspec.convert([*case["nodes"], *case.get("others", ())], list[Node])
    pods = [
        msgspec.convert({**pod, "metadata": {"uid": f"uid of {_key(pod)}", **pod["metadata"]}}, Pod) for pod in case["pods"]
    ]
    budgets = msgspec.convert(case.get("PDBs", []), list[PodDisruptionBudget])
    claims = {
        (one.namespace, one.name): one.spec.storage_class_name or ""
        for one in msgspec.convert(case.get("PVCs", []), list[PersistentVolumeClaim])
    }
    usage = case.get("nodeUsage")
    return Scene(
        nodes, pods, now_s=datetime.fromisoformat(case["now"]).timestamp(),
        namespaces={one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in case.get("Namespaces", ())},
        priority_classes={one["metadata"]["name"]: one.get("value", 0) for one in case.get("PriorityClasses", ())},
        reports={
            pod.metadata.uid: msgspec.convert(given.get("status", {}), PodReport)
            for pod, given in zip(pods, case["pods"], strict=True)
        },
        is_covered=lambda pod: any(
            one.namespace == pod.namespace and compile_label_selector(one.spec.selector).matches(pod.metadata.labels)
            for one in budgets
        ),
        storage_class=lambda space, name: claims.get((space, name), ""),
        node_usage=None if usage is None else {node: _amounts(used) for node, used in usage.items()},
        pod_usage={one["key"]: _summed(one["containers"]) for one in case.get("podUsage", ())},
        node_share=None if "prom" not in case else {
            node: int(used["MetricResource"]) / 100 for node, used in (case["prom"] or {}).items()
        },
    )  # fmt: skip


def _amounts(given: dict[str, str]) -> dict[str, int]:
    return {name: amount(name, quantity) for name, quantity in given.items()}


def _summed(containers: list[dict[str, Any]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in containers:
        total.update(_amounts(one["usage"]))
    return dict(total)


def test_there_are_as_many_cases_as_were_recorded() -> None:
    assert (len(_RUNS), len(_FILTERS), len(_VALIDATED)) == (278, 78, 92)


@pytest.mark.parametrize("case", _RUNS, ids=lambda case: case["test"])
def test_evicts_as_many_pods_as_the_descheduler(case: dict[str, Any]) -> None:
    scene = _scene(case)
    judged = args_of("DefaultEvictor", case["evictor"])
    failed = set(case.get("failed", ()))
    evictor = Evictor(
        lambda pod: "refused" if pod.key in failed else "", case.get("total"), case.get("perNode"), case.get("perNamespace")
    )
    run = PluginRun(scene, DefaultEvictor(judged, scene), evictor, case["plugin"])
    try:
        run_plugin(run, args_of(case["plugin"], case["args"]), scene.nodes[: len(case["nodes"])])
    except InputError:
        assert not case["evicted"]
    mine = sorted(one.pod.key for one in evictor.evicted)
    if case["test"] in _IN_ANY_ORDER:
        assert len(mine) == len(case["evicted"])
    else:
        assert mine == case["evicted"]


#: Tests in which Go's order of maps decides which of equal pods go, but not how many.
_IN_ANY_ORDER = {"TestHighNodeUtilization/without_priorities_stop_when_resource_capacity_is_depleted"}


@pytest.mark.parametrize("case", _FILTERS, ids=lambda case: f"{case['test']}-{case['pod']}")
def test_protects_the_pods_that_the_descheduler_protects(case: dict[str, Any]) -> None:
    scene = _scene(case)
    judged = args_of("DefaultEvictor", case["evictor"])
    evictor = DefaultEvictor(judged, scene)
    pod = next(one for one in scene.pods if one.key == case["pod"])
    passes = evictor.filter(pod) if case["point"] == "Filter" else evictor.pre_eviction_filter(pod)
    assert passes is case["passes"]


@pytest.mark.parametrize("case", _VALIDATED, ids=lambda case: case["test"])
def test_finds_the_faults_that_the_descheduler_finds(case: dict[str, Any]) -> None:
    try:
        found = faults_of(args_of(case["validates"], case["args"]))
    except InputError as error:
        found = [str(error)]
    assert bool(found) == bool(case["error"])
    if found and "label selector" not in case["error"]:
        for fault in found:
            assert _words(fault) <= _words(case["error"])


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
