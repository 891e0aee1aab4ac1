"""While a transaction has added or removed nodes, cached decisions equal those that ask every plugin about every node."""

from __future__ import annotations

import random

import numpy as np
import pytest

import moorage
from moorage.core.cycle.column import KeyColumn
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.removed_rows import GONE, new_rows
from moorage.state.change_log import ChangeLog
from moorage.state.pod_info import PodInfo
from tests.laboratory.random_world import HOST, ZONE
from tests.laboratory.test_certain_bindings import GPU, LATE, claim, pvc, slices, takes, uses, volume
from tests.laboratory.test_pod_states import obj
from tests.laboratory.test_transactions import played

SHAPES = ("plain", "large", "port", "tolerant", "selects", "prefers")
MATCHING = {"labelSelector": {"matchLabels": {"app": "a"}}}
#: Shapes that plugins judge by other pods, volumes or devices, with the differences of their specs.
RICH = {
    "spread": {
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **MATCHING}]
    },
    "spread-over-hosts": {
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway", **MATCHING}]
    },
    "apart": {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOST, **MATCHING}]}}
    },
    "near": {
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "podAffinityTerm": {"topologyKey": ZONE, **MATCHING}}
                ]
            }
        }
    },
    "near-namespaces": {
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 5,
                        "podAffinityTerm": {
                            "topologyKey": ZONE,
                            **MATCHING,
                            "namespaceSelector": {"matchLabels": {"team": "a"}},
                        },
                    }
                ]
            }
        }
    },
    "volume": uses("mine"),
    "late-volume": uses("late"),
    "device": takes("mine"),
}


def node(name, pick, has_images=False):
    labels = {HOST: name, ZONE: pick("abc"), "disk": pick(["ssd", "hdd"])}
    lists = pick([["x:latest"], ["x:latest", "y:latest"], []]) if has_images else []
    images = [{"names": [image], "sizeBytes": pick([40, 700]) << 20} for image in lists]
    taints = [{"key": "t", "effect": "NoSchedule"}] if pick([0, 0, 1]) else []
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": pick([2, 4]), "memory": "8Gi", "pods": 8}, "images": images},
    }  # fmt: skip


def pod(name, shape, on=""):
    container = {
        "name": "c",
        "image": "y" if shape == "port" else "x",
        "resources": {"requests": {"cpu": "1500m" if shape == "large" else "200m"}},
    }
    spec = {"containers": [container], **({"nodeName": on} if on else {})}
    if shape == "port":
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    if shape == "tolerant":
        spec["tolerations"] = [{"operator": "Exists"}]
    if shape == "selects":
        spec["nodeSelector"] = {"disk": "ssd"}
    if shape == "prefers":
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd"]}]}
        spec["affinity"] = {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": term}]}
        }
    labels = {"app": "a"} if shape in ("plain", "apart", "spread") else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec | RICH.get(shape, {})}


def compare(cluster, shapes=SHAPES):
    """Compare what is decided for a pod of each shape with what a cycle decides that keeps nothing."""
    scheduler = cluster.scheduler
    for shape in shapes:
        waiting = cluster.pod(f"new-{shape}")
        (told,) = cluster.schedule([waiting], dry_run=True)
        plain = Cycle(scheduler.cycle.seed, by_class=False).decide(
            scheduler.profiles["default-scheduler"], PodInfo(waiting), scheduler.snapshot
        )
        assert (told.node, told.feasible, told.evaluated) == (plain.node, plain.feasible, plain.evaluated), shape


#: Shapes of placed pods that no claim limits to one pod.
PLACED = ("spread", "spread-over-hosts", "apart", "near")


def act(cluster, pick, serial, adds=0):
    nodes = cluster.nodes["name"].tolist()
    placed = [row["name"] for row in cluster.pods if row["node"]]
    acts = {
        "remove": lambda: len(nodes) > 3 and cluster.remove(f"node/{pick(nodes)}"),
        "label": lambda: cluster.apply(f"node/{pick(nodes)} labels.disk={pick(['ssd', 'hdd'])}"),
        "taint": lambda: cluster.apply(f"node/{pick(nodes)} unschedulable={pick(['true', 'false'])}"),
        "zone": lambda: cluster.apply(f"node/{pick(nodes)} labels.{ZONE}={pick('abcd')}"),
        "place": lambda: cluster.add(pod(f"more-{serial}", pick([*SHAPES, *PLACED]), pick(nodes))),
        "evict": lambda: placed and cluster.evict(pick(placed), grace_s=0),
        "add": lambda: cluster.add(node(f"m-{serial}", pick, has_images=adds > 0)),
        "images": lambda: cluster.apply(node(pick(nodes), pick, has_images=adds > 0)),
        "namespace": lambda: cluster.apply(
            obj("Namespace", "default", namespace="", metadata={"labels": {"team": pick("ab")}})
        ),
    }
    acts[pick(["remove"] * 4 + ["add"] * adds + list(acts))]()


def counted_derivations(monkeypatch):
    """Return a list that gets, for each class that is to be derived, whether it was."""
    used, derived = [], KeyColumn.derived

    def counting(*args):
        found = derived(*args)
        used.append(found is not None)
        return found

    monkeypatch.setattr(KeyColumn, "derived", counting)
    return used


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_decisions_without_nodes_equal_decisions_that_ask_about_every_node(seed, monkeypatch):
    chance = random.Random(seed)
    pick, used = chance.choice, counted_derivations(monkeypatch)
    placed = [pod(f"old-{at}", pick(SHAPES), f"n{chance.randrange(9)}") for at in range(16)]
    waiting = [pod(f"new-{shape}", shape) for shape in SHAPES]
    cluster = moorage.Cluster.from_objects([node(f"n{at}", pick) for at in range(9)], placed, waiting)
    compare(cluster)
    for serial in range(12):
        with cluster.transaction():
            for step in range(pick([1, 2, 4])):
                with cluster.transaction() as inner:
                    act(cluster, pick, f"{serial}-{step}")
                    compare(cluster)
                    if pick([True, True, False]):
                        inner.commit()
            compare(cluster)
        if pick([True, False]):
            compare(cluster)
        if not pick(range(4)):
            act(cluster, pick, f"{serial}-kept")
            compare(cluster)
    assert sum(used) > len(used) // 3 > 20, "classes are derived too rarely for this test to mean anything"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_decisions_by_topology_volumes_and_devices_equal_those_of_a_fresh_cluster(seed, monkeypatch):
    chance = random.Random(seed)
    pick, used = chance.choice, counted_derivations(monkeypatch)
    shapes = [*SHAPES, *RICH]
    placed = [pod(f"old-{at}", pick([*SHAPES, *PLACED]), f"n{chance.randrange(9)}") for at in range(16)]
    placed.append({**pod("holder", "plain", "n2"), "spec": {**pod("holder", "plain", "n2")["spec"], **uses("held")}})
    placed += [with_device(f"holder-{at}", f"d{at}") for at in range(2)]
    waiting = [pod(f"new-{shape}", shape) for shape in shapes]
    objects = [GPU, LATE, claim("mine"), pvc("late"), *(slices(f"n{at}", at % 3 + 1) for at in range(9))]
    objects += [taken(f"d{at}", f"holder-{at}") for at in range(2)]
    objects += [pvc(name, volume=f"v-{name}") for name in ("mine", "held")]
    objects += [volume(f"v-{name}", claim=name, uid=name) for name in ("mine", "held")]
    objects += [_with_limit(f"n{at}", at % 3) for at in range(9)]
    cluster = moorage.Cluster.from_objects([node(f"n{at}", pick, has_images=True) for at in range(9)], placed, waiting, objects)
    compare(cluster, shapes)
    for serial in range(8):
        before = cluster.digest()
        with cluster.transaction():
            for step in range(pick([1, 2, 4])):
                with cluster.transaction() as inner:
                    act(cluster, pick, f"{serial}-{step}", adds=3)
                    compare(cluster, chance.sample(shapes, 6))
                    if pick([True, True, False]):
                        inner.commit()
            compare(cluster, shapes)
            if pick([True, False]):
                compare_with_fresh(cluster, shapes)
        assert cluster.digest() == before
        compare(cluster, chance.sample(shapes, 6))
        if not pick(range(3)):
            act(cluster, pick, f"{serial}-kept", adds=3)
    compare_with_fresh(cluster, shapes)
    assert sum(used) > len(used) // 3 > 20, "classes are derived too rarely for this test to mean anything"


def taken(name, user):
    """Return a claim that a scheduler allocated for a pod: the device of the same name on node n1."""
    made = claim(name, [user], name)
    return {**made, "metadata": {**made["metadata"], "finalizers": ["resource.kubernetes.io/delete-protection"]}}


def with_device(name, claimed):
    """Return a pod on node n1 that uses an allocated claim."""
    made = pod(name, "plain", "n1")
    return {**made, "metadata": {**made["metadata"], "uid": name}, "spec": {**made["spec"], **takes(claimed)}}


def compare_with_fresh(cluster, shapes):
    """Compare what is decided with what a cluster decides that was loaded and changed in the same way."""
    fresh = played(cluster)
    assert fresh.digest() == cluster.digest()
    for shape in shapes:
        told = [one.schedule([f"new-{shape}"], dry_run=True)[0] for one in (cluster, fresh)]
        assert told[0] == told[1], shape


def _with_limit(name, count):
    drivers = [{"name": "disks.example.com", "nodeID": name, "allocatable": {"count": count}}]
    return obj("CSINode", name, "storage.k8s.io/v1", namespace="", spec={"drivers": drivers})


class Rows:
    """The nodes of a table by row, with its log of changes: additions, removals, and how they are undone."""

    def __init__(self, names):
        self.names, self.log, self.undo = [*names], ChangeLog(), []
        self.values = dict.fromkeys(self.names, 0)
        self.undone = False

    def add(self, name):
        row, before = len(self.names), self.log.arrangement
        note_step = self.log.expect_step(row, row, adds=True)
        self.names.append(name)
        self.values[name] = 0
        self._note(row, note_step)
        self.undo.append(lambda: self._back([*self.names[:-1]], before, []))

    def remove(self, row):
        before, last, names = self.log.arrangement, len(self.names) - 1, [*self.names]
        note_step = self.log.expect_step(row, last, adds=False)
        self.names[row] = self.names[last]
        self.names.pop()
        self._note(row, note_step)
        self.undo.append(lambda: self._back(names, before, [last, row]))

    def change(self, row):
        self.values[self.names[row]] += 1
        self.log.note(row)
        self.undo.append(lambda: self.log.note(row))

    def _note(self, row, note_step):
        self.log.note(row)
        self.log.rearranged()
        note_step()

    def _back(self, names, arrangement, noted):
        self.names = names
        for row in noted:
            self.log.note(row)
        self.log.rearranged()
        self.log.arrangement = arrangement

    def roll_back(self, steps):
        for _ in range(steps):
            self.undo.pop()()
            self.undone = True

    def check(self, arrangement, names, values, position):
        """Compare what was known of the rows with the rows of today; return whether the way there is known."""
        rows = new_rows(self.log, arrangement, len(names))
        if rows is None:
            return False
        known = rows.of(np.array([hash(name) for name in names])).tolist()
        changed = rows.changed(self.log, position)
        assert rows.rows == len(self.names)
        for row, name in enumerate(self.names):
            fresh = known[row] != hash(name)
            assert fresh == (rows.former.get(row) == GONE)
            assert row in changed or not (fresh or self.values[name] != values[name]), (row, rows, changed)
        if not self.undone:  # then nothing is judged for nothing
            assert changed == {row for row, name in enumerate(self.names) if self.values.get(name) != values.get(name)}
        return True


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_followed_through_additions_removals_and_their_undoing(seed):
    pick = random.Random(seed)
    rows, known = Rows(f"n{at}" for at in range(6)), 0
    seen = (0, [*rows.names], dict(rows.values), 0)
    for serial in range(60):
        act = pick.choice(["add", "remove", "change", "undo", "see", "change"])
        if act == "add":
            rows.add(f"m{serial}")
        elif act == "remove" and len(rows.names) > 1:
            rows.remove(pick.randrange(len(rows.names)))
        elif act == "change":
            rows.change(pick.randrange(len(rows.names)))
        elif act == "undo":
            rows.roll_back(min(pick.randrange(4), len(rows.undo)))
        elif act == "see":
            seen, rows.undone = (rows.log.arrangement, [*rows.names], dict(rows.values), rows.log.position), False
        known += rows.check(*seen)
    assert known > 10


def test_a_node_that_was_updated_before_it_was_removed_is_judged_when_it_is_back():
    ssd = [node(f"n{at}", lambda values: values[0]) for at in range(3)]
    cluster = moorage.Cluster.from_objects(ssd, [pod(f"new-{shape}", shape) for shape in SHAPES])
    compare(cluster)
    cluster.apply("node/n1 labels.disk=hdd")
    with cluster.transaction():
        cluster.remove("node/n1")
        compare(cluster)
    compare(cluster)
    assert cluster.can_schedule("new-selects").nodes == ["n0", "n2"]


def test_an_update_of_a_node_that_moved_is_undone_in_the_cached_answers():
    nodes = [node(f"n{at}", lambda values: values[0]) for at in range(3)]
    cluster = moorage.Cluster.from_objects(nodes, [pod(f"new-{shape}", shape) for shape in SHAPES])
    compare(cluster)
    with cluster.transaction():
        cluster.remove("node/n0")  # its row goes to n2
        compare(cluster)
        with cluster.transaction():
            cluster.apply("node/n2 labels.disk=hdd")
            compare(cluster)
    compare(cluster)
    assert cluster.can_schedule("new-selects").nodes == ["n0", "n1", "n2"]


def test_the_devices_of_an_evicted_pod_are_taken_back_without_a_new_simulation():
    objects = [GPU, claim("mine"), *(slices(f"n{at}", 1) for at in range(2)), taken("d0", "holder")]
    nodes = [node(f"n{at}", lambda values: values[0]) for at in range(2)]
    waiting = {**pod("new-device", "device"), "spec": {**pod("new-device", "device")["spec"], "nodeSelector": {HOST: "n1"}}}
    cluster = moorage.Cluster.from_objects(nodes, with_device("holder", "d0"), waiting, objects)
    before, simulation = cluster.digest(), cluster.simulation
    for _ in range(2):
        assert not cluster.schedule(["new-device"], dry_run=True)[0]
        with cluster.transaction():
            cluster.evict("holder", grace_s=0)
            assert cluster.schedule(["new-device"], dry_run=True)[0].node == "n1"
    assert cluster.digest() == before
    assert cluster.simulation is simulation
    compare_with_fresh(cluster, ["device"])
    cluster.evict("holder", grace_s=0)
    assert cluster.schedule(["new-device"])[0].node == "n1"
