"""Replays recordings of Kueue's own scheduler: the same objects and events, then the decisions of each cycle side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from moorage.api.core import Taint
from moorage.report.queue_report import amount_text
from moorage.simulator.kueue import QueueAdmission, Workload, read_objects, read_workload
from moorage.simulator.kueue.cycle import FreeNode
from moorage.simulator.kueue.settings import read_settings
from moorage.simulator.kueue.workloads import amount_of

KINDS = {
    "flavors": "ResourceFlavor",
    "cohorts": "Cohort",
    "clusterQueues": "ClusterQueue",
    "localQueues": "LocalQueue",
    "namespaces": "Namespace",
    "topologies": "Topology",
}


def differences(case: dict[str, Any]) -> Iterator[str]:
    """Replay one recording. Yield where the decisions differ, until the first cycle with a difference."""
    documents = [{**one, "kind": kind} for field, kind in KINDS.items() for one in case.get(field) or ()]
    admission = QueueAdmission(read_objects(documents), fair=case.get("fairSharing", False))
    admission.set_nodes(free_nodes(case))
    workloads: dict[str, Workload] = {}
    last: dict[str, str] = {}
    for number, cycle in enumerate(case["cycles"]):
        now = float(cycle["now"])
        # Evicted workloads come back and admitted ones finish in the order of their names.
        ends = {**dict.fromkeys(cycle.get("release") or (), True), **dict.fromkeys(cycle.get("finish") or (), False)}
        for key, back in sorted(ends.items()):
            if back:
                admission.requeue_evicted(workloads[key], now)
                workloads[key].wait("Pending", "back")
            else:
                admission.release(workload := workloads.pop(key))
                admission.forget(workload)
                last.pop(key, None)
        for data in cycle.get("create") or ():
            created = datetime.fromisoformat(data["metadata"]["creationTimestamp"]).timestamp()
            workload = workloads[f"{data['metadata']['namespace']}/{data['metadata']['name']}"] = read_workload(data, created)
            admission.add(workload, now)
        admission.wake(now)
        where = f"seed {case['seed']} cycle {number}"
        if admission.runnable != cycle["ran"]:
            yield f"{where}: there is {'' if cycle['ran'] else 'no '}cycle to run"
            return
        result = admission.cycle(now) if cycle["ran"] else None
        changed = {}
        for key, workload in workloads.items():
            state = shown(workload)
            if last.get(key) != (text := json.dumps(state, sort_keys=True)):
                last[key] = text
                changed[key] = state
        faults = list(_compare(where, cycle, changed, admission))
        order = [one.key for one in result.admitted] if result else []
        wanted = cycle.get("admitted") or []
        if (sorted(order) if case.get("fairSharing") else order) != (sorted(wanted) if case.get("fairSharing") else wanted):
            faults.append(f"{where}: order {order}, recorded {wanted}")
        yield from faults
        if faults:
            return


def _compare(where: str, cycle: dict[str, Any], changed: dict[str, Any], admission: QueueAdmission) -> Iterator[str]:
    recorded = cycle.get("changed") or {}
    for key in sorted(recorded.keys() | changed.keys()):
        mine, theirs = changed.get(key), recorded.get(key)
        if mine != theirs:
            yield f"{where}: {key}\n   ours     {mine}\n   recorded {theirs}"
    for field in ("active", "inadmissible"):
        mine = {name: sorted(group) for name, one in admission.waiting.items() if (group := getattr(one, field))}
        if mine != (theirs := cycle.get(field) or {}):
            yield f"{where}: {field} {mine}, recorded {theirs}"


def shown(workload: Workload) -> dict[str, Any]:
    """Return the state of a workload in the form of the recordings."""
    found: dict[str, Any] = {}
    for field, name in (("quota", "QuotaReserved"), ("evicted", "Evicted"), ("preempted", "Preempted")):
        if name in workload.conditions:
            found[field] = list(workload.conditions[name])
    if workload.admission:
        found["admission"] = [
            {
                "name": one.name,
                "count": one.count,
                "flavors": dict(one.flavors),
                "usage": {resource: amount_text(resource, amount) for resource, amount in one.usage.items()},
            }
            for one in workload.admission
        ]
        for shown_set, one in zip(found["admission"], workload.admission, strict=True):
            if one.placed is not None:
                shown_set["placed"] = [[list(values), count] for values, count in one.placed.domains]
    return found


def free_nodes(case: dict[str, Any]) -> Iterator[FreeNode]:
    """Yield the nodes of a recording; nothing runs on them."""
    for one in case.get("nodes") or ():
        taints = msgspec.convert((one.get("spec") or {}).get("taints") or (), tuple[Taint, ...])
        free = {name: amount_of(name, quantity) for name, quantity in one["status"]["allocatable"].items()}
        yield FreeNode(one["metadata"]["name"], one["metadata"]["labels"], taints, free)


def table_differences(case: dict[str, Any]) -> Iterator[str]:
    """Run one cycle, or several, over a case of Kueue's own tests. Yield where what it leaves differs."""
    documents = [{**one, "kind": kind} for field, kind in KINDS.items() for one in case.get(field) or ()]
    usage = read_settings([{"kind": "Configuration", "admissionFairSharing": case.get("admissionFairSharing")}]).usage
    admission = QueueAdmission(read_objects(documents), fair=case.get("fairSharing", False), usage=usage)
    admission.set_nodes(free_nodes(case))
    now = float(case["now"])
    if admission.ledger is not None:
        admission.ledger.advance(now)
        for name, used in case.get("initialUsage", {}).items():
            admission.ledger.seed(name, used)
    workloads = [read_workload(data) for data in case["workloads"]]
    for workload in workloads:
        if workload.admission:
            admission.hold(workload)
        else:
            admission.add(workload, now)
    for _ in range(case.get("cycles", 1)):
        if admission.runnable:
            admission.cycle(now)
    for workload in workloads:
        if (mine := shown(workload)) != (theirs := case["states"][workload.key]):
            yield f"{workload.key}\n   ours     {mine}\n   recorded {theirs}"
    for field in ("active", "inadmissible"):
        mine = {name: sorted(group) for name, one in admission.waiting.items() if (group := getattr(one, field))}
        if mine != (theirs := case.get(field) or {}):
            yield f"{field} {mine}, recorded {theirs}"
