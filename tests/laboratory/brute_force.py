"""The least change by brute force: every set of changes, in the order of its cost, each tried with a fresh engine.

The changes are listed from the objects alone, without asking any plugin. Small random clusters keep their number below eleven.
"""

from __future__ import annotations

import random
from itertools import product
from math import prod

import moorage
from moorage.api.core import Node, Pod
from moorage.framework.changes import Change, port_text, taint_text, term_text
from moorage.laboratory.change.change_sets import covers
from moorage.laboratory.change.least_change import ChangeSearch
from moorage.laboratory.edit.pod_changes import request_of
from moorage.laboratory.trial.trials import Trial
from moorage.testing.builders import a_node, a_pod
from tests.laboratory.fresh_trials import FreshTrials

NEW = "default/new"
MOST_ATOMS = 10
#: Fields with many thresholds have too many combinations to list.
MOST_PRODUCTS = 20_000
#: So many sets are tried where nothing helps.
MOST_SETS = 200
CORDON = "node.kubernetes.io/unschedulable"
OWNERS = (["pod"], ["node"], ["cluster"], ["pod", "node"], ["node", "cluster"], ["pod", "node", "cluster"])


# -- random clusters ----------------------------------------------------------------------------------------------------


def random_cluster(draw: random.Random) -> list[Node | Pod]:
    """Up to four nodes, up to seven placed pods, and one that is to be placed."""
    nodes = [random_node(draw, i) for i in range(draw.randint(1, 4))]
    placed = [random_pod(draw, f"p{i}", nodeName=draw.choice(nodes).name) for i in range(draw.randint(0, 7))]
    return [*nodes, *placed, random_pod(draw, "new", **random_rules(draw))]


def random_node(draw: random.Random, at: int) -> Node:
    labels = {"kubernetes.io/hostname": f"n{at}", "zone": draw.choice("ab")}
    if draw.random() < 0.5:
        labels["disk"] = draw.choice(["ssd", "hdd"])
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}] if draw.random() < 0.3 else []
    cordoned = draw.random() < 0.25
    taints += [{"key": CORDON, "effect": "NoSchedule"}] if cordoned and draw.random() < 0.7 else []
    amounts = {"cpu": f"{draw.randint(500, 3000)}m", "pods": draw.choice([2, 3, 10])}
    return a_node(f"n{at}", labels, allocatable=amounts, taints=taints, unschedulable=cordoned)


def random_pod(draw: random.Random, name: str, **spec: object) -> Pod:
    container: dict[str, object] = {"name": "c", "resources": {"requests": {"cpu": f"{draw.randint(100, 1500)}m"}}}
    if draw.random() < 0.3:
        container["ports"] = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    if "affinity" not in spec and draw.random() < 0.15:
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [random_term(draw)]}}
    return a_pod(name, {"app": draw.choice("xy")}, containers=[container], **spec).pod


def random_term(draw: random.Random) -> dict[str, object]:
    key = draw.choice(["kubernetes.io/hostname", "zone"])
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": draw.choice("xy")}}}


def random_rules(draw: random.Random) -> dict[str, object]:
    rules: dict[str, object] = {}
    if draw.random() < 0.4:
        rules["nodeSelector"] = {"disk": "ssd"}
    if draw.random() < 0.3:
        key, selector = draw.choice(["kubernetes.io/hostname", "zone"]), {"matchLabels": {"app": draw.choice("xy")}}
        one = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        rules["topologySpreadConstraints"] = [one]
    kind = draw.choice(["podAffinity", "podAntiAffinity", "", ""])
    if kind:
        rules["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [random_term(draw)]}}
    return rules


def budgets(draw: random.Random) -> list[dict[str, object]]:
    """A disruption budget for each label, some of which allow nothing."""
    return [
        {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": draw.randint(0, 2)},
        }
        for app in "xy"
    ]  # fmt: skip


# -- every change, without plugins --------------------------------------------------------------------------------------


def every_change(objects: list[Node | Pod], owners: list[str], key: str = NEW) -> list[list[Change]]:
    """Changes by field; those of one field exclude each other."""
    nodes = [one for one in objects if isinstance(one, Node)]
    placed = [one for one in objects if isinstance(one, Pod) and one.spec.node_name]
    pod = next(one for one in objects if isinstance(one, Pod) and one.key == key)
    fields = []
    if "node" in owners:
        fields += [field for node in nodes for field in node_changes(node, placed, pod, owners)]
    if "pod" in owners:
        fields += pod_changes(nodes, placed, pod, owners)
    if "cluster" in owners:
        fields += [[Change("cluster", "evict", f"pod/{one.key}", "", one.spec.node_name)] for one in placed]
    return fields


def node_changes(node: Node, placed: list[Pod], pod: Pod, owners: list[str]) -> list[list[Change]]:
    target = f"node/{node.name}"
    fields = []
    if node.spec.unschedulable:
        fields.append([Change("node", "uncordon", target, "unschedulable", True, False)])
    taints = [taint_text(taint) for taint in node.spec.taints if taint.key != CORDON]
    fields += [[Change("node", "untaint", target, "taints", taint, None)] for taint in taints]
    for key, value in pod.spec.node_selector.items():
        if node.labels.get(key) != value:
            fields.append([Change("node", "label", target, f"labels.{key}", node.labels.get(key), value)])
    offered = _milli(node)
    want, taken = request_of(pod, "cpu"), cpu_on(node, placed)
    amounts = sorted({taken - gone + want for gone in evicted_sums(node, placed, owners) if taken - gone + want > offered})
    fields += [[Change("node", "allocatable", target, "allocatable.cpu", offered, amount) for amount in amounts]]
    count, allowed = sum(one.spec.node_name == node.name for one in placed), int(node.status.allocatable["pods"])
    if count >= allowed:
        gone = range(count + 1 if "cluster" in owners else 1)  # evictions make room as well
        counts = sorted({count + 1 - some for some in gone if count + 1 - some > allowed})
        fields.append([Change("node", "pods", target, "allocatable.pods", allowed, some) for some in counts])
    return [field for field in fields if field]


def _milli(node: Node) -> int:
    return int(str(node.status.allocatable["cpu"]).removesuffix("m"))


def cpu_on(node: Node, placed: list[Pod]) -> int:
    return sum(request_of(one, "cpu") for one in placed if one.spec.node_name == node.name)


def evicted_sums(node: Node, placed: list[Pod], owners: list[str]) -> set[int]:
    """What evictions can free on a node: the sums over all sets of its pods."""
    sums = {0}
    for one in placed if "cluster" in owners else ():
        if one.spec.node_name == node.name:
            sums |= {request_of(one, "cpu") + known for known in sums}
    return sums


def pod_changes(nodes: list[Node], placed: list[Pod], pod: Pod, owners: list[str]) -> list[list[Change]]:
    target = f"pod/{pod.key}"
    wants = request_of(pod, "cpu")
    sizes = sorted(
        {max(0, _milli(node) - cpu_on(node, placed) + gone) for node in nodes for gone in evicted_sums(node, placed, owners)}
    )
    fields = [[Change("pod", "request", target, "requests.cpu", wants, size) for size in sizes if size < wants]]
    fields += [
        [Change("pod", "drop-selector", target, f"nodeSelector.{key}", value)] for key, value in pod.spec.node_selector.items()
    ]
    taints = sorted({taint_text(taint) for node in nodes for taint in node.spec.taints if taint.key != CORDON})
    fields += [[Change("pod", "tolerate", target, "tolerations", None, taint)] for taint in taints]
    for i, _ in enumerate(pod.spec.topology_spread_constraints):
        path = f"topologySpreadConstraints[{i}]"
        steps = range(2, len(placed) + 2)
        fields.append([Change("pod", "max-skew", target, f"{path}.maxSkew", 1, skew) for skew in steps])
        fields.append(
            [Change("pod", "schedule-anyway", target, f"{path}.whenUnsatisfiable", "DoNotSchedule", "ScheduleAnyway")]
        )
    for kind in ("pod_affinity", "pod_anti_affinity"):
        rules = getattr(pod.spec.affinity, kind, None)
        path = "affinity.podAffinity" if kind == "pod_affinity" else "affinity.podAntiAffinity"
        for term in rules.required_during_scheduling_ignored_during_execution if rules else ():
            fields.append([Change("pod", "prefer", target, path, term_text(term))])
    for port in pod.spec.containers[0].ports:
        fields.append([Change("pod", "drop-port", target, "hostPorts", port_text(port.protocol, port.host_ip, port.host_port))])
    return [field for field in fields if field]


# -- comparing ------------------------------------------------------------------------------------------------------------


class Remembered:
    """Trials that are made once."""

    def __init__(self, trials: FreshTrials) -> None:
        self.trials = trials
        self.known: dict[frozenset[Change], Trial] = {}

    def attempt(self, changes: frozenset[Change], *, look: bool = True) -> Trial:
        if changes not in self.known:
            self.known[changes] = self.trials.attempt(changes)
        return self.known[changes]


def compare(seed: int) -> str | None:
    """Search one random cluster both ways. Return what differs, "" if nothing does, None if the cluster is of no use."""
    draw = random.Random(seed)
    given, owners = random_cluster(draw), draw.choice(OWNERS)
    cluster = moorage.Cluster.from_objects(given, budgets(draw) if seed % 2 else ())
    objects = cluster.objects()
    fields = every_change([one for one in objects if isinstance(one, Node | Pod)], owners)
    if not fields or len(fields) > MOST_ATOMS or prod(len(field) + 1 for field in fields) > MOST_PRODUCTS:
        return None
    trials = Remembered(FreshTrials(objects, NEW, cluster.options))
    if trials.attempt(frozenset()).node:
        return None
    search = ChangeSearch.over(trials, objects, probes=5000, verbs={one.verb for field in fields for one in field})
    cost, found = search.cheapest(owners)
    return difference(search, trials, fields, cost, found)


def difference(search, trials, fields, cost, found) -> str:
    """Try every set that costs no more than the answer, and compare the sets of the least cost."""
    worked: set[frozenset[Change]] = set()
    for price, some in by_cost(search, fields):
        if price > cost or (cost == float("inf") and len(trials.known) > MOST_SETS):
            break
        trial = trials.attempt(some)
        if not trial.node or any(one < some for one in worked):
            continue
        due = search.cost_of(some, trial)
        if due < cost:
            return f"{sorted(map(str, some))} costs {due}, the search found {cost}: {found}"
        if due == cost and not any(covers(some, one) for one in worked):
            worked.add(some)
    if cost < float("inf") and worked != set(found):
        return f"optima differ at {cost}: search {found} brute force {worked}"
    return ""


def by_cost(search, fields):
    """Every set that takes at most one change of each field, the cheapest first."""
    options = [[None, *field] for field in fields]
    sets = (frozenset(one for one in some if one is not None) for some in product(*options))
    priced = sorted(((search.cost_of(some), sorted(map(str, some)), some) for some in sets if some), key=lambda one: one[:2])
    return [(price, some) for price, _, some in priced]
