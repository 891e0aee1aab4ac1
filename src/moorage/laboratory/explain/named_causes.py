"""Causes that no plugin names: what is wrong with what the pod asks for, who has to act, and what comes after the placement.

Each is a sentence. A plugin says what a node lacks; these say why the pod asks for that much, in which zone there is no room,
whose scheduling gate it is, and that a volume is in use on another node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from moorage.api.core import Container, Node
from moorage.api.odd_amounts import odd_memory
from moorage.api.pod_requests import amount
from moorage.api.quantity_amounts import shown_amount
from moorage.api.storage import PersistentVolumeClaim
from moorage.basis.printable import some
from moorage.laboratory.explain.verdicts import EveryVerdict
from moorage.state.view import PodInfo, Snapshot

#: Who sets and removes the gates of a domain, and where to see what it waits for.
_GATES: Final = {
    "kueue.x-k8s.io": "Kueue, which removes it when it admits the workload; moorage explain workload/NAME says why it waits",
    "scheduling.k8s.io": "the controller of its group, which removes it when the group may run",
}
#: A whole number of cores that is more likely meant in thousandths.
_MANY_CORES: Final = 64


def named_causes(pod: PodInfo, judged: EveryVerdict) -> Iterator[str]:
    """Yield the causes of one pod."""
    yield from _gates(pod)
    yield from _units(pod, judged)
    yield from _starting(pod, judged)
    yield from _without_room(pod, judged)
    yield from attached_elsewhere(pod, judged.snapshot)
    yield from _silent(judged)


def _gates(pod: PodInfo) -> Iterator[str]:
    for gate in pod.spec.scheduling_gates:
        domain = gate.name.rpartition("/")[0]
        if domain:
            known = _GATES.get(domain) or f"the controller of {domain}, which removes it when it lets the pod run"
            yield f"gate {gate.name} belongs to {known}"


# -- what it asks for --------------------------------------------------------------------------------------------------


def _units(pod: PodInfo, judged: EveryVerdict) -> Iterator[str]:
    """Yield amounts that look as if their unit were wrong."""
    most = int(judged.snapshot.nodes.allocatable("cpu").max()) if len(judged.snapshot.table) else 0
    for one in (*pod.spec.init_containers, *pod.spec.containers):
        yield from odd_memory(one)
        asked = one.resources.requests.get("cpu")
        cores = amount("cpu", asked) // 1000 if asked is not None else 0
        if cores >= _MANY_CORES and cores * 1000 > most and str(asked).isdigit():
            yield f"container {one.name}: cpu: {asked} is {asked} cores; {asked}m is {cores / 1000:g} of a core"


def _starting(pod: PodInfo, judged: EveryVerdict) -> Iterator[str]:
    """Yield the init container or sidecar because of which the pod requests more than its containers run with."""
    spec = pod.spec
    for key in judged.constraints:
        if key.plugin != "NodeResourcesFit" or not spec.init_containers:
            continue
        running = sum(_asks(one, key.term) for one in spec.containers)
        sidecars = [one for one in spec.init_containers if one.restart_policy == "Always"]
        beside = sum(_asks(one, key.term) for one in sidecars)
        others = [one for one in spec.init_containers if one not in sidecars]
        starting = max(others, key=lambda one: _asks(one, key.term), default=None)
        least = 0 if starting is None else _asks(starting, key.term)
        if starting is not None and least > running + beside:
            yield (
                f"init container {starting.name} requests {shown_amount(key.term, least, up=True)} {key.term}, and the "
                f"containers that run after it {shown_amount(key.term, running + beside, up=True)}: the pod needs the larger"
            )
        elif beside:
            names = some([one.name for one in sidecars if _asks(one, key.term)])
            yield (
                f"sidecar {names} requests {shown_amount(key.term, beside, up=True)} {key.term} beside the "
                f"{shown_amount(key.term, running, up=True)} of the containers"
            )


def _asks(container: Container, resource: str) -> int:
    asked = container.resources.requests.get(resource)
    return 0 if asked is None else amount(resource, asked)


# -- where there is no room ----------------------------------------------------------------------------------------------------


def _without_room(pod: PodInfo, judged: EveryVerdict) -> Iterator[str]:
    """Yield the domains that spread constraints leave to the pod, if no node there has room for it."""
    crowded = [rows for key, rows in judged.constraints.items() if key.plugin == "PodTopologySpread"]
    short = [(key.term, rows) for key, rows in judged.constraints.items() if key.plugin == "NodeResourcesFit"]
    keys = [one.topology_key for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"]
    if not crowded or not short or not keys:
        return
    left = ~np.any(crowded, axis=0)
    if not left.any():
        return
    nodes: Sequence[Node] = judged.snapshot.table.nodes
    for resource, rows in short:
        if not (left & ~rows).any():
            what = keys[0].rpartition("/")[2]
            domains = dict.fromkeys(nodes[row].labels.get(keys[0], "") for row in np.flatnonzero(left).tolist())
            needs = shown_amount(resource, pod.requests.get(resource, 0), up=True)
            has = "has" if len(domains) == 1 else "have"
            room = "that takes one more pod" if resource == "pods" else f"with {needs} {resource} free"
            yield f"{what} {some([*domains])}, which it may be spread to, {has} no node {room}"


def attached_elsewhere(pod: PodInfo, snapshot: Snapshot, node: str = "") -> Iterator[str]:
    """Yield the claims of a pod that are attached to another node, where its own, ``node``, cannot have them meanwhile."""
    used = {use.key for use in (pod.volumes.claims if pod.volumes is not None else ())}
    claims = snapshot.objects(PersistentVolumeClaim)
    for key in sorted(used):
        claim = claims.get(key)
        if claim is None or set(claim.spec.access_modes) != {"ReadWriteOnce"}:
            continue
        for row, held in enumerate(snapshot.table.pods):
            others = (one for one in held.values() if one.uid != pod.uid and one.volumes is not None)
            users = [one.key for one in others if one.volumes and any(use.key == key for use in one.volumes.claims)]
            if users and (name := snapshot.table.nodes[row].name) != node:
                yield (
                    f"claim {key.rpartition('/')[2]} is ReadWriteOnce and in use by {some(users)} on {name}: the scheduler "
                    "does not check that, and on another node the volume does not attach (Multi-Attach)"
                )


def _silent(judged: EveryVerdict) -> Iterator[str]:
    """Yield the nodes that would take the pod and are not ready, without a taint that says so."""
    nodes = judged.snapshot.table.nodes
    for row in np.flatnonzero(judged.feasible).tolist():
        found = next((one for one in nodes[row].status.conditions if one.type == "Ready"), None)
        if found is not None and found.status != "True":
            yield (
                f"{judged.names[row]} is not ready (Ready={found.status}) and has no taint for it, so that pods "
                "come to it and do not start"
            )
