"""Replays recordings of Kueue's own scheduler: the same objects and events, then the decisions of each cycle side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from moorage.api.core import PodSpec, Taint
from moorage.api.pod_requests import amount as amount_of
from moorage.report.queue_report import amount_text
from moorage.simulator.kueue import Objects, PodSet, QueueAdmission, Workload, read_objects, read_workload
from moorage.simulator.kueue.flavors import Grade, Mode, assign_flavors, most_pods
from moorage.simulator.kueue.objects import ClusterQueue
from moorage.simulator.kueue.preemption import Asking, Turns, find_targets
from moorage.simulator.kueue.settings import NEXT, STRATEGIES, gates_of, read_settings
from moorage.simulator.kueue.topology import FreeNode

KINDS = {
    "flavors": "ResourceFlavor",
    "cohorts": "Cohort",
    "clusterQueues": "ClusterQueue",
    "localQueues": "LocalQueue",
    "namespaces": "Namespace",
    "topologies": "Topology",
    "checks": "AdmissionCheck",
}


def differences(case: dict[str, Any]) -> Iterator[str]:
    """Replay one recording. Yield where the decisions differ, until the first cycle with a difference."""
    documents = [{**one, "kind": kind} for field, kind in KINDS.items() for one in case.get(field) or ()]
    gates = read_settings([{"kind": "Configuration", "featureGates": case.get("gates", {})}], release=NEXT).gates
    admission = QueueAdmission(read_objects(documents), fair=case.get("fairSharing", False), gates=gates)
    admission.set_nodes(free_nodes(case))
    workloads: dict[str, Workload] = {}
    last: dict[str, str] = {}
    retries: dict[str, tuple[int, float]] = {}
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
        due = {key: times for key, (times, then) in retries.items() if then <= now and key in workloads}
        for key in cycle.get("ready") or ():
            if key in due or key not in retries:
                now += 1.0  # the time that the recorder lets pass for each
                due[key] = 1
            admission.objects.queues[workloads[key].cluster_queue].generation += 1
        if cycle["ran"]:
            for key in due:
                retries.pop(key, None)
                admission.place_later(workloads[key])
        admission.wake(now)
        where = f"seed {case['seed']} cycle {number}"
        if admission.runnable != cycle["ran"]:
            yield f"{where}: there is {'' if cycle['ran'] else 'no '}cycle to run"
            return
        result = admission.cycle(now) if cycle["ran"] else None
        for workload in result.unplaced if result else ():
            retries[workload.key] = due[workload.key] + 1, now + min(2.0 ** due[workload.key], 30.0)
        changed = {}
        for key, workload in workloads.items():
            state = shown(workload)
            if last.get(key) != (text := json.dumps(state, sort_keys=True)):
                last[key] = text
                changed[key] = state
                # With checks the recorder writes what holds quota: then the cache counts it again.
                if case.get("checks") and workload.admission and not workload.evicted:
                    admission.objects.queues[workload.cluster_queue].generation += 1
        faults = list(_compare(where, cycle, changed, admission))
        order = [one.key for one in (*result.placed, *result.admitted)] if result else []
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
            if one.delayed:
                shown_set["delayed"] = one.delayed
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
    strategies = [one["spec"].get("admissionChecksStrategy") or {} for one in case["clusterQueues"]]
    names = {one["name"] for strategy in strategies for one in strategy.get("admissionChecks") or ()}
    documents += [{"kind": "AdmissionCheck", "metadata": {"name": name}} for name in names]  # the cases leave them out
    usage = read_settings([{"kind": "Configuration", "admissionFairSharing": case.get("admissionFairSharing")}]).usage
    admission = QueueAdmission(read_objects(documents), fair=case.get("fairSharing", False), usage=usage, gates=gates_of(NEXT))
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


def target_differences(case: dict[str, Any]) -> Iterator[str]:
    """Look for victims as a case of Kueue's tests of preemption does. Yield a text if they differ."""
    objects = _objects(case)
    for data in case["admitted"] or ():
        held = read_workload(data)
        queue = objects.queues[held.cluster_queue]
        queue.workloads[held.key] = held
        queue.changed()
        queue.add(held.usage)
    workload, queue = read_workload(case["incoming"]), objects.queues[case["queue"]]
    workload.cluster_queue = queue.name
    needed, requests = set(), {}
    for chosen, pod_set in zip(case["assignment"], workload.pod_sets, strict=True):
        for resource, one in chosen["flavors"].items():
            key = (one["name"], resource)
            requests[key] = requests.get(key, 0) + pod_set.counted.get(resource, 0) * (chosen["count"] or pod_set.count)
            needed |= {key} if one["mode"] == "Preempt" else set()
    asking = Asking(workload, queue, objects.queues, frozenset(needed), requests, {}, {})
    asking.strategies = case.get("strategies") or STRATEGIES
    found = find_targets(asking, fair=case["fair"])
    mine = sorted([one.workload.name, one.reason] for one in found)
    if mine != (theirs := sorted([name.rpartition("/")[2], reason] for name, reason in case["targets"])):
        yield f"{case['name']}: ours {mine}, recorded {theirs}"


def assignment_differences(case: dict[str, Any]) -> Iterator[str]:
    """Choose flavors as a case of Kueue's tests of the flavor assigner does. Yield a text if anything differs."""
    objects = _objects(case)
    for data, used in zip(case["clusterQueues"], case["used"], strict=True):
        if data is not None:
            objects.queues[data["metadata"]["name"]].add(_amounts(used))
    answers = {_key(name): Grade(Mode(kind + 1), height) for name, (kind, height) in case["oracle"].items()}
    admission = QueueAdmission(objects, fair=case["fair"], gates=gates_of(NEXT))
    workload, queue = read_workload(case["workload"]), objects.queues[case["clusterQueues"][0]["metadata"]["name"]]
    found = assign_flavors(
        workload, queue, objects.flavors, lambda key, _: answers.get(key, Grade(Mode.PREEMPT, 0)), 0, fair=case["fair"],
        trees=admission.trees,
    )  # fmt: skip
    mine = {
        "mode": _MODES[found.mode],
        "borrows": found.borrows,
        "usage": found.usage,
        "message": found.message(),
        "noFit": found.no_fit_reason,
        "podSets": [
            {
                "name": one.name,
                "count": one.count,
                "flavors": {name: [each.flavor, _MODES[each.mode], each.tried] for name, each in one.flavors.items()},
                "reasons": sorted(one.reasons),
            }
            for one in found.pod_sets
        ],
    }
    theirs = {
        **{name: case[name] for name in ("mode", "borrows", "message", "noFit")},
        "usage": _amounts(case["usage"]),
        "podSets": [
            {
                "name": one["name"],
                "count": one["count"],
                "flavors": {name: [each["name"], each["mode"], each["tried"]] for name, each in one["flavors"].items()},
                "reasons": sorted(one.get("reasons") or ()),
            }
            for one in case["podSets"]
        ],
    }
    if mine != theirs:
        yield f"{case['name']}\n   ours     {mine}\n   recorded {theirs}"


def choice_differences(case: dict[str, Any]) -> Iterator[str]:
    """Choose flavors as the smaller of Kueue's tests of the flavor assigner do. Yield a text if the choice differs."""
    objects = _objects(case)
    for data, used in zip(case["clusterQueues"], case["used"], strict=True):
        objects.queues[data["metadata"]["name"]].add(_amounts(used))
    answers = {_key(name): Grade(Mode(kind + 1), height) for name, (kind, height) in case["oracle"].items()}
    queue = objects.queues[case["clusterQueues"][0]["metadata"]["name"]]
    found = assign_flavors(
        read_workload(case["workload"]), queue, objects.flavors, lambda key, _: answers.get(key, Grade(Mode.PREEMPT, 0)), 0
    )
    mine = (_MODES[found.mode], {name: one.flavor for name, one in found.pod_sets[0].flavors.items()}, found.no_fit_reason)
    if mine != (theirs := (case["mode"], case["chosen"], case.get("noFit", ""))):
        yield f"{case['name']}: ours {mine}, recorded {theirs}"


def reduction_differences(case: dict[str, Any]) -> Iterator[str]:
    """Look for the most pods as Kueue's tests of partial admission do. Yield a text if their number differs."""
    sets = [PodSet(str(at), count, least, PodSpec(containers=()), {}) for at, (count, least) in enumerate(case["sets"])]
    found = most_pods(sets, lambda counts: sum(counts) if sum(counts) <= case["limit"] else None)
    if found != case["reduced"]:
        yield f"{case['name']}: ours {found}, recorded {case['reduced']}"


def lendable_differences(case: dict[str, Any]) -> Iterator[str]:
    """Sum up what a Cohort can lend as Kueue's test does. Yield a text if it differs."""
    if (mine := _objects(case).cohorts[case["cohort"]].lendable()) != case["lendable"]:
        yield f"{case['name']}: ours {mine}, recorded {case['lendable']}"


def borrowing_differences(case: dict[str, Any]) -> Iterator[str]:
    """Ask whether a queue borrows what is asked for as Kueue's test does. Yield a text if the answer differs."""
    queue = _objects(case).queues["cq"]
    queue.add(_amounts(case["used"]))
    mine = (queue.share().borrows_any_of(_amounts(case["asked"])), bool(queue.share().borrowed))
    if mine != (theirs := (case["borrowsAsked"], case["borrows"])):
        yield f"{case['name']}: ours {mine}, recorded {theirs}"


def share_differences(case: dict[str, Any]) -> Iterator[str]:
    """Compute shares as a case of Kueue's tests of fair sharing does. Yield a text if one differs."""
    objects = _objects(case)
    objects.queues["cq"].add(_amounts(case["used"]))
    for name, is_cohort, value, borrows in case["shares"]:
        node = (objects.cohorts if is_cohort else objects.queues)[name]
        share = node.share_with(_amounts(case["more"]))
        if (share.shown, bool(share.borrowed)) != (value, borrows):
            yield f"{case['name']}: {name} has {share}, recorded {value}"


def order_differences(case: dict[str, Any]) -> Iterator[str]:
    """Sort candidates as a case of Kueue's tests of their order does. Yield a text if the order differs."""
    held = [read_workload(one["w"]) for one in reversed(case["candidates"])]
    used = {one["w"]["metadata"]["name"]: one["usage"] for one in case["candidates"]}
    queue = ClusterQueue(case["queue"], {})
    if all(one.cluster_queue == queue.name for one in held):
        queue.workloads = {one.key: one for one in held}
        if any(usage is not None for usage in used.values()):
            queue.usage_of = lambda one: used[one.name] or 0.0
        ordered = queue.ranked()
    else:
        ordered = sorted(held, key=Asking(held[0], queue, {}, frozenset(), {}, {}, {}).order)
    if (mine := [one.name for one in ordered]) != case["order"]:
        yield f"{case['name']}: ours {mine}, recorded {case['order']}"


def policy_differences(case: dict[str, Any]) -> Iterator[str]:
    """Ask whether a policy allows to preempt, as a case of Kueue's tests does. Yield a text if the answer differs."""
    queue = ClusterQueue("q", {})
    asking = Asking(read_workload(case["preemptor"]), queue, {}, frozenset(), {}, {}, {})
    if (mine := asking.allows(read_workload(case["candidate"]), case["policy"])) is not case["allows"]:
        yield f"{case['name']}: ours {mine}"


def turn_differences(case: dict[str, Any]) -> Iterator[str]:
    """Go through the queues to take from, as a case of Kueue's tests does. Yield a text if their order differs."""
    objects = _objects(case)
    waiting: dict[str, list[Workload]] = {name: [] for name in objects.queues}
    for data in case["admitted"] or ():
        held = read_workload(data)
        objects.queues[held.cluster_queue].add(held.usage)
        if held.cluster_queue in case["candidates"]:
            waiting[held.cluster_queue].append(held)
    asking = Asking(
        Workload("", "", "", "", 0, 0.0, (), ""), objects.queues[case["queue"]], objects.queues, frozenset(), {}, {}, {}
    )
    mine = []
    for queue in Turns(asking, waiting):
        drops = len(mine) < len(case["actions"] or ()) and case["actions"][len(mine)] == "drop"
        mine.append(queue.name)
        del waiting[queue.name][: None if drops else 1]
    if mine != (theirs := case["turns"] or []):
        yield f"{case['name']}: ours {mine}, recorded {theirs}"


def preference_differences(case: dict[str, Any]) -> Iterator[str]:
    """Compare two grades of flavors as a case of Kueue's tests does. Yield a text if the answer differs."""
    queue = ClusterQueue("q", {"flavorFungibility": case["config"]})
    # Kueue's mode of a flavor that fits is 4; the one before is of a workload whose flavors fit later.
    a, b = (Grade(Mode.FIT if mode == 4 else Mode(mode), height).rank(queue) for mode, height in (case["a"], case["b"]))
    if (mine := a > b) is not case["prefers"]:
        yield f"{case['name']}: ours {mine}"


_MODES = {mode: "Preempt" if mode.preempts else mode.name.title().replace("_", "") for mode in Mode}


def _key(name: str) -> tuple[str, str]:
    flavor, _, resource = name.partition("|")
    return flavor, resource


def _amounts(given: dict[str, str]) -> dict[tuple[str, str], int]:
    return {_key(name): int(amount) for name, amount in given.items()}


def _objects(case: dict[str, Any]) -> Objects:
    return read_objects(
        [{**one, "kind": kind} for field, kind in KINDS.items() for one in case.get(field) or () if one is not None]
    )
