"""Ask what happens if requests follow usage: which nodes the real scheduler can do without, and how full the others become.

The steps go from the safest change to the boldest; each includes those before. A step changes the requests of all pods of its
workloads, and then empties nodes, one after the other, those with the least requests first, as long as the engine places all of
the node's pods elsewhere without preemption. Disruption budgets decide how long that takes, not whether it is possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Container, Pod
from moorage.api.pod_requests import amount
from moorage.basis.inputs.usage import MeasuredUsage
from moorage.core.engine.facts import Gone, Seen
from moorage.framework.changes import Change
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.change.change_text import workload_of
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.drain.kubectl_filters import DrainFlags, judge_pods
from moorage.laboratory.plan.consolidation import types_of_nodes
from moorage.laboratory.plan.node_types import NodeType, offers_of_types
from moorage.laboratory.trial.history import Ran
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.report.moves import NodePressure, RequestChange, RightsizeReport, RightsizeStep, rightsize_summary
from moorage.simulator.owners import controller_of, deployment_name, is_active
from moorage.simulator.replacements import replacement

#: The least request that is proposed: 10 millicores, 32 MiB.
_LEAST: Final[Mapping[str, int]] = {"cpu": 10, "memory": 32 << 20}
_UNIT: Final[Mapping[str, int]] = {"cpu": 1, "memory": 1 << 20}
#: A change is proposed from this share of the present request on.
_WORTH: Final = 0.05
#: What each step adds.
_STEPS: Final = (
    "requests as they are, too low ones raised", "and CPU lowered", "and memory lowered where two or more pods were measured",
    "and the other memory lowered",
)  # fmt: skip
_HOT: Final = 0.9
#: An annotation of replacements: the pod whose use was measured.
_MEASURED: Final = "moorage.dev/measured-as"


@dataclass(frozen=True)
class RightsizeOptions:
    """``headroom``: the share by which a request is above the measured use; recommendations are taken as they are."""

    usage: MeasuredUsage
    headroom: float = 0.15
    types: tuple[NodeType, ...] = ()
    unit: str = "per hour"


def rightsize_report(
    cluster: Cluster, request: AnswerRequest, options: RightsizeOptions, budget: TimeBudget | None = None
) -> RightsizeReport:
    """Return what new requests free. Nothing changes."""
    budget = TimeBudget() if budget is None else budget
    steps: list[RightsizeStep] = []
    removed: list[str] = []
    with cluster.transaction():
        cluster._step(Ran(None))
        named: dict[str, list[Pod]] = {}
        for pod in filter(is_active, cluster.simulation.pods.values()):
            named.setdefault(_name_of(pod), []).append(pod)
        around, workloads = cluster.present(), sorted(named.items())
        owners = {name: workload_of(pods[0], around) for name, pods in workloads}  # of ReplicaSets, what people change
        shown = {name: "/".join((named[name][0].namespace, *owner)) if owner else name for name, owner in owners.items()}
        changes = [change for one in workloads for change in _changes(*one, options)]
        for number in range(len(_STEPS)):
            chosen = [one for one in changes if one.step <= number]
            if number and len(chosen) == sum(steps[-1].changes.values()):
                continue  # nothing to do in this step
            if number and budget.is_over():
                budget.leave(f"what the steps from {number} on free")
                break
            steps.append(_step(cluster, number, chosen, removed, options, budget.part(1 / (len(_STEPS) - number))))
    changes.sort(key=lambda one: (one.step, -one.pods * abs(one.after - one.before) / _LEAST[one.resource]))
    return RightsizeReport(
        request=request, summary=rightsize_summary(steps, options.unit), proof=Proof("run", runs=len(steps)),
        stopped=budget.stopped, assumptions=_assumptions(options), steps=tuple(steps),
        changes=tuple(replace(one, workload=shown[one.workload]) for one in changes),
        unmeasured=tuple(
            shown[name] for name, pods in workloads
            if not any(_amount_for(name, pods, held.name, one, options) for held in pods[0].spec.containers for one in _LEAST)
        ),
        unit=options.unit if options.types else "",
    )  # fmt: skip


def _name_of(pod: Pod) -> str:
    """Return the name of a pod's workload: ``namespace/Kind/name``; a pod without a controller is a workload of its own."""
    owner = controller_of(pod.metadata)
    return pod.key if owner is None else f"{pod.namespace}/{owner.kind}/{owner.name}"


def _amount_for(
    workload: str, pods: Sequence[Pod], container: str, resource: str, options: RightsizeOptions
) -> tuple[int, int] | None:
    """Return the request that usage or advice asks for, and how many pods were measured; None if there is neither."""
    deployment = f"{pods[0].namespace}/Deployment/{deployment_name(pods[0])}"  # as tools know a ReplicaSet
    for name in (workload, deployment):
        advice = options.usage.advised.get((name, container), {}).get(resource)
        if advice is not None:
            return advice, len(pods)
    single = len(pods[0].spec.containers) == 1
    seen = []
    for pod in pods:
        held = options.usage.measured
        used = held.get((pod.key, container)) or (held.get((pod.key, "")) if single else None) or {}
        if resource in used:
            seen.append(used[resource])
    if not seen:
        return None
    return math.ceil(max(seen) * (1 + options.headroom)), len(seen)


def _changes(workload: str, pods: Sequence[Pod], options: RightsizeOptions) -> Iterable[RequestChange]:
    for container in pods[0].spec.containers:
        for resource, least in _LEAST.items():
            given = container.resources.requests.get(resource)
            wanted = _amount_for(workload, pods, container.name, resource, options)
            if wanted is None:
                continue
            before, unit = 0 if given is None else amount(resource, given), _UNIT[resource]
            limit = container.resources.limits.get(resource)
            after = max(least, -(-wanted[0] // unit) * unit)
            after = after if limit is None else min(after, amount(resource, limit))
            if abs(after - before) < _WORTH * before or after == before:
                continue
            step = 0 if after > before else 1 if resource == "cpu" else 2 if wanted[1] > 1 else 3
            yield RequestChange(workload, container.name, resource, before, after, len(pods), wanted[1], step)


def _step(
    cluster: Cluster, number: int, changes: Sequence[RequestChange], removed: list[str], options: RightsizeOptions,
    budget: TimeBudget,
) -> RightsizeStep:  # fmt: skip
    """Change the requests of a step, and remove more nodes. Those before stay removed: requests only become less."""
    wanted: dict[str, dict[str, dict[str, int]]] = {}
    for one in changes:
        wanted.setdefault(one.workload, {}).setdefault(one.container, {})[one.resource] = one.after
    there = [(pod, wanted.get(_name_of(pod))) for pod in cluster.simulation.pods.values() if is_active(pod)]
    fresh = [_with_requests(pod, amounts) for pod, amounts in there if amounts]
    cluster.tell(map(Seen, fresh))
    removed += _removable(cluster, frozenset(removed), budget)
    table = cluster.simulation.scheduler.snapshot.table
    requested = {name: int(table.requested(name).view.sum()) for name in _LEAST}
    prices = types_of_nodes(table.nodes, list(offers_of_types(options.types, table.nodes)))
    saved = sum(prices[name].type.price for name in removed if name in prices)
    nodes = {node.name: node.status.allocatable for node in table.nodes if node.name not in set(removed)}
    pods = [(_first(pod), pod.spec.node_name) for pod in cluster.simulation.pods.values()]
    pressure = tuple(_pressure(options.usage.pods, pods, nodes))
    raised = sum(one.after > one.before for one in changes)
    return RightsizeStep(
        number=number, what=_STEPS[number], changes={"raised": raised, "lowered": len(changes) - raised}, pods=len(fresh),
        requested=requested, nodes=len(nodes), removed=tuple(removed),
        saved=round(saved, 9) if options.types else None, pressure=pressure,
    )  # fmt: skip


def _removable(cluster: Cluster, removed: frozenset[str], budget: TimeBudget) -> list[str]:
    """Remove more nodes, the emptiest first, while the scheduler finds places for the pods that kubectl would evict there."""
    simulation, table = cluster.simulation, cluster.simulation.scheduler.snapshot.table
    offered = [amount("cpu", node.status.allocatable.get("cpu", 0)) for node in table.nodes]
    asked = map(int, table.requested("cpu").view)
    load = {node.name: need / most if most else 0.0 for node, need, most in zip(table.nodes, asked, offered, strict=True)}
    daemons = frozenset(f"{pod.namespace}/{one.name}" for pod in simulation.pods.values()
                        for one in pod.metadata.owner_references if one.kind == "DaemonSet")  # fmt: skip
    found: list[str] = []
    for name in sorted(load.keys() - removed, key=lambda name: (load[name], name)):
        if budget.is_over():
            budget.leave("more nodes that can go")
            break
        with cluster.transaction() as block:
            if _is_emptied(cluster, name, daemons):
                block.commit()
                found.append(name)
    return found


def _is_emptied(cluster: Cluster, name: str, daemons: frozenset[str]) -> bool:
    """Cordon a node and place its pods elsewhere; return False if kubectl refuses one, or one gets no node of its own."""
    simulation = cluster.simulation
    table = simulation.scheduler.snapshot.table
    there = [pod.pod for pod in table.pods[table.row_of[name]].values()]
    verdicts = judge_pods(there, DrainFlags(ignore_daemonsets=True), daemons)
    gone = [one.pod for one in verdicts if one.action == "evict" and is_active(one.pod)]
    leaving = [(pod, fresh) for pod in gone if (fresh := replacement(pod)) is not None]
    if any(one.action == "refuse" for one in verdicts) or len(leaving) < len(gone):
        return False
    victims = len(simulation.victims)
    cluster.apply(Change("node", "cordon", f"node/{name}", "unschedulable", None, True))
    # A replacement remembers the pod whose use was measured.
    named = [
        fresh.replace(metadata=fresh.metadata.replace(annotations={**fresh.metadata.annotations, _MEASURED: _first(pod)}))
        for pod, fresh in leaving
    ]
    cluster.tell([*(Gone(pod) for pod, _ in leaving), *map(Seen, named)])
    placed = cluster.schedule([fresh.metadata.uid for _, fresh in leaving], stop_on_failure=True)
    return all(placed) and len(placed) == len(leaving) and len(cluster.simulation.victims) == victims


def _first(pod: Pod) -> str:
    return pod.metadata.annotations.get(_MEASURED, pod.key)


def _with_requests(pod: Pod, wanted: Mapping[str, Mapping[str, int]]) -> Pod:
    def changed(container: Container) -> Container:
        amounts = wanted.get(container.name)
        if not amounts:
            return container
        text = {name: f"{value}m" if name == "cpu" else str(value) for name, value in amounts.items()}
        return container.replace(resources=container.resources.replace(requests={**container.resources.requests, **text}))

    return pod.replace(spec=pod.spec.replace(containers=tuple(map(changed, pod.spec.containers))))


def _pressure(
    used: Mapping[str, Mapping[str, int]], pods: Iterable[tuple[str, str]], nodes: Mapping[str, Mapping[str, object]]
) -> Iterable[NodePressure]:
    """Yield, for each resource, the fullest node by measured use, and how many nodes are above nine tenths."""
    total: dict[str, dict[str, int]] = {name: {} for name in nodes}
    for pod, node in pods:
        for name, amount_ in used.get(pod, {}).items():
            if node in total:
                total[node][name] = total[node].get(name, 0) + amount_
    for resource in _LEAST:
        shares = {
            node: held.get(resource, 0) / offered for node, held in total.items()
            if (offered := amount(resource, nodes[node].get(resource, 0)))
        }  # fmt: skip
        if shares:
            top = max(shares, key=lambda node: shares[node])
            yield NodePressure(resource, top, round(shares[top], 4), sum(share > _HOT for share in shares.values()))


def _assumptions(options: RightsizeOptions) -> tuple[Assumption, ...]:
    most = f"{options.headroom:.0%} above the most that a pod of the workload used; advice is taken as it is"
    pods = "keep their nodes while their requests change; a controller that restarts them may place them elsewhere"
    requests = "at least 10m of CPU and 32Mi of memory, at most the limit; changes below 5 % are left out"
    return Assumption("headroom", most), Assumption("requests", requests), Assumption("pods", pods)
