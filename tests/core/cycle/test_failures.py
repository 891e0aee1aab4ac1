"""A pod of a class that just failed gets the same decision without a search, and a search as soon as anything is another."""

from __future__ import annotations

import os
from random import Random
from types import MappingProxyType

import msgspec
import pytest

from moorage.api.core import Namespace, Service
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.cycle.cycle import Cycle
from moorage.core.preemption.row_importance import Ranking
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import make_profile, points_of
from moorage.framework.registry import Registry
from moorage.framework.verdicts import Code, Reject
from moorage.plugins import BUILTIN
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_cluster, a_node, a_pod
from tests.core.cycle.test_pod_classes import ORDER, WEIGHTS, Bench
from tests.strategies import HOST, ZONE

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "big"}}}
        ]
    }
}


def budget(allowed, name="budget", app="x"):
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(document, PodDisruptionBudget)


def service(app):
    whole = {"metadata": {"name": app, "namespace": "default"}, "spec": {"selector": {"app": app}}}
    return msgspec.convert(whole, Service)


def namespace(team):
    return msgspec.convert({"metadata": {"name": "default", "labels": {"team": team}}}, Namespace)


def wants(cpu, name, priority=0, **spec):
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    return a_pod(name, {"app": "big"}, priority=priority, containers=[container], **spec)


class Counting(DefaultPreemption):
    """Counts its searches."""

    def __init__(self):
        super().__init__()
        self.searches = 0

    def search(self, attempt):
        self.searches += 1
        return super().search(attempt)


class Stage:
    """Two nodes, each with a pod that would have to go for a large one, which does not fit even then."""

    def __init__(self, preemption=None, others=(), **settings):
        self.preemption = preemption or Counting()
        plugins = {plugin.name: plugin for plugin in (NodeResourcesFit(), *others, self.preemption)}
        points = {}
        for name, plugin in plugins.items():
            for point in points_of(plugin):
                points.setdefault(point, []).append(name)
        self.profile = make_profile("default", plugins, points, {})
        self.cycle = Cycle(**settings)
        nodes = [a_node(name, allocatable={"cpu": "8", "pods": 9}) for name in ("a", "b")]
        self.cluster = a_cluster(nodes, {"a": [wants(4, "high", 9), wants(1, "low")], "b": [wants(4, "top", 9)]})
        self.nominated = None
        self.number = 0

    def decide(self, cpu=7, priority=5, **spec):
        self.number += 1
        pod = wants(cpu, f"p{self.number}", priority, **spec)
        decision = self.cycle.decide(self.profile, pod, self.cluster.snapshot, self.nominated)
        assert decision.pod is pod
        return decision

    def searches(self, times=3, **spec):
        """Return how often was searched for pods that are alike."""
        before = self.preemption.searches
        assert len({self.decide(**spec).message for _ in range(times)}) == 1
        return self.preemption.searches - before


def test_one_search_serves_all_pods_of_a_class():
    stage = Stage()
    assert stage.searches(times=20) == 1
    decision = stage.decide()
    assert decision.message == (
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: "
        "1 Insufficient cpu, 1 No preemption victims found for incoming pod."
    )
    assert decision.rejected_by == ("NodeResourcesFit",)
    assert decision.post_filter.nominated == ""


CHANGES = {
    "a pod comes": lambda stage: stage.cluster.place(wants(1, "more"), "b"),
    "a pod goes": lambda stage: stage.cluster.remove_pod("default/low"),
    "a pod changes": lambda stage: stage.cluster.place(wants(1, "low", priority=7), "a"),
    "a pod is assumed": lambda stage: stage.cluster.assume(wants(1, "more"), "b"),
    "an assumption is taken back": lambda stage: stage.cluster.forget("default/assumed"),
    "a node comes": lambda stage: stage.cluster.set_node(a_node("c", allocatable={"cpu": "1", "pods": 9})),
    "a node changes": lambda stage: stage.cluster.set_node(a_node("a", {"new": ""}, allocatable={"cpu": "8", "pods": 9})),
    "a node goes": lambda stage: stage.cluster.remove_node("empty"),
    "a budget comes": lambda stage: stage.cluster.set_object(budget(1)),
    "a budget goes": lambda stage: stage.cluster.remove_object(budget(0, "old")),
    "a service comes": lambda stage: stage.cluster.set_object(service("x")),
    "a namespace changes": lambda stage: stage.cluster.set_namespace(namespace("x")),
    "a namespace goes": lambda stage: stage.cluster.remove_namespace("default"),
    "a pod is nominated": lambda stage: setattr(stage, "nominated", MappingProxyType({"a": (wants(1, "waits", 9),)})),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_cluster_change_requires_another_search(change):
    stage = Stage()
    stage.cluster.set_node(a_node("empty", allocatable={"cpu": "1", "pods": 9}))
    stage.cluster.assume(wants(1, "assumed"), "b")
    stage.cluster.set_object(budget(0, "old"))
    stage.searches()
    change(stage)
    assert stage.searches() == 1
    assert stage.searches() == 0


UNLIKE = {
    "another request": {"cpu": 6},
    "another priority": {"priority": 6},
    "another policy": {"preemptionPolicy": "PreemptLowerPriority"},
}


@pytest.mark.parametrize("spec", UNLIKE.values(), ids=UNLIKE)
def test_pods_of_different_classes_are_searched_separately(spec):
    stage = Stage()
    stage.searches()
    assert stage.searches(**spec) == 1


class Shy:
    """Judges nodes, and does not say what it reads."""

    name = "Shy"

    def filter(self, pod, nodes):
        yield Reject(nodes.false(), "never")


class Moody:
    """Has something to say in PostFilter, and does not say what it depends on."""

    name = "Moody"

    def post_filter(self, pod, attempt):
        return PostFilterResult(Code.UNSCHEDULABLE, ("not today",))


class Own(Counting):
    """Overrides a method that the signature covers."""

    def post_filter(self, pod, attempt):
        return super().post_filter(pod, attempt)


SEARCHED = {
    "a filter does not say what it reads": lambda: Stage(others=[Shy()]),
    "another PostFilter plugin does not say what it depends on": lambda: Stage(others=[Moody()]),
    "the plugin overrides PostFilter": lambda: Stage(Own()),
    "searches begin where the last one ended": lambda: Stage(percentage_of_nodes_to_score=99),
    "classes are not kept": lambda: Stage(by_class=False),
}


@pytest.mark.parametrize("stage", SEARCHED.values(), ids=SEARCHED)
def test_every_pod_is_searched_in_these_cases(stage):
    assert stage().searches() == 3


def test_a_nominated_pod_is_searched():
    stage = Stage()
    stage.nominated = MappingProxyType({"a": (wants(2, "p2", 9),)})
    assert [stage.searches(times=1) for _ in range(4)] == [1, 1, 0, 0]


def test_a_mutable_mapping_of_nominations_disables_reuse():
    stage = Stage()
    stage.nominated = {"a": (wants(2, "waits", 9),)}
    assert stage.searches() == 3


def test_a_successful_search_is_not_reused():
    stage = Stage()
    stage.cluster.place(wants(4, "important", 9), "b")
    outcomes = [stage.decide(cpu=4).post_filter for _ in range(2)]
    assert [outcome.nominated for outcome in outcomes] == ["a", "a"]
    assert stage.preemption.searches == 2


def test_nodes_without_lower_priority_pods_are_skipped(monkeypatch):
    stage = Stage()
    monkeypatch.setattr("moorage.core.preemption.what_if.FailedAttempt.what_if", None)
    monkeypatch.setattr("moorage.core.preemption.what_if.FailedAttempt.what_ifs", None)
    decision = stage.decide(priority=0)
    assert decision.post_filter.reasons == (
        "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.",
    )


# -- a whole run ----------------------------------------------------------------------------------------------------------


def hopeless_run(by_class, replicas=60, nodes=12):
    """Return what a simulation of replicas that cannot share a node comes to, and how many what-ifs were opened."""
    simulation, _ = prepare(Options())
    simulation.scheduler.cycle.by_class = by_class
    simulation.load(a_node(f"n{at}", {HOST: f"n{at}"}, allocatable={"cpu": "8", "pods": 20}) for at in range(nodes))
    simulation.load(a_pod(f"placed-{at}", nodeName=f"n{at % nodes}").pod for at in range(3 * nodes))
    simulation.load(wants(1, f"big-{at:03}", 100, affinity=APART).pod for at in range(replicas))
    simulation.run()
    return [(r.pod.key, r.node, r.message, r.attempts) for r in simulation.records.values()]


def test_unschedulable_replicas_need_one_search(monkeypatch):
    from moorage.core.preemption.what_if import FailedAttempt

    opened = []
    what_ifs = FailedAttempt.what_ifs
    monkeypatch.setattr(FailedAttempt, "what_ifs", lambda self, rows: opened.extend(rows) or what_ifs(self, rows))
    quick = hopeless_run(by_class=True)
    assert len(opened) == 12
    assert quick == hopeless_run(by_class=False)
    assert len(opened) == 12 + 48 * 12
    assert [bool(node) for _, node, *_ in quick].count(False) == 48


# -- random histories -------------------------------------------------------------------------------------------------------


def whole_profile():
    """All built-in rules that look at pods and nodes, and preemption."""
    registry = Registry(BUILTIN)
    plugins = {name: registry.build(name) for name in (*ORDER, "DefaultPreemption") if name in registry}
    points = {}
    for name, plugin in plugins.items():
        if hasattr(plugin, "attach"):
            plugin.attach(Bench())
        for point in points_of(plugin):
            points.setdefault(point, []).append(name)
    return make_profile("default-scheduler", plugins, points, WEIGHTS)


def term(app, **more):
    return {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}, **more}


def required(*terms):
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


OF_TEAM = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
SPREAD = {
    "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}},
}  # fmt: skip
SPECS = [
    {},
    {"affinity": {"podAntiAffinity": required(term("x"))}},
    {"affinity": {"podAntiAffinity": required(term("x", **OF_TEAM))}},
    {"affinity": {"podAntiAffinity": required(term("y", **OF_TEAM))}},
    {"affinity": {"podAffinity": required(term("y"))}},
    {"topologySpreadConstraints": [SPREAD]},
    {"nodeSelector": {"disk": "ssd"}},
    {"tolerations": [{"operator": "Exists"}]},
    {"preemptionPolicy": "Never"},
]


class History:
    """A cluster to which things happen, and pods that are decided with what is kept and without."""

    def __init__(self, random):
        self.random = random
        self.quick, self.plain = (Cycle(), whole_profile()), (Cycle(by_class=False), whole_profile())
        self.cluster = a_cluster([])
        self.nominated = MappingProxyType({})
        self.placed = {}
        self.number = 0
        self.kinds = [(random.choice(SPECS), random.choice("xy"), random.randint(1, 4), port) for port in (0, 0, 0, 80)]
        for _ in range(3):
            self.add_node()

    def a_pod(self, cpu, priority, spec, app=None, port=0, **more):
        self.number += 1
        ports = [{"hostPort": port, "containerPort": port, "protocol": "TCP"}] if port else []
        container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}, "ports": ports}
        labels = {"app": app or self.random.choice("xy")}
        return a_pod(f"p{self.number}", labels, priority=priority, containers=[container], **more, **spec)

    def ask(self):
        """Decide for two pods of each kind."""
        for spec, app, cpu, port in self.kinds * 2:
            pod = self.a_pod(cpu, 5, spec, app, port)
            self.plain[1].plugins["DefaultPreemption"]._ranking = Ranking()
            one, two = (
                cycle.decide(profile, pod, self.cluster.snapshot, self.nominated) for cycle, profile in (self.quick, self.plain)
            )
            assert (one.node, one.feasible, one.message) == (two.node, two.feasible, two.message)
            assert (one.code, one.rejected_by, one.post_filter) == (two.code, two.rejected_by, two.post_filter)
            if one.node is None and one.verdicts is not None:
                assert (one.evaluated, one.among) == (two.evaluated, two.among)
                assert list(one.verdicts.refused()) == list(two.verdicts.refused())

    def a_node_name(self):
        return self.random.choice(list(self.cluster.table.row_of) or ["none"])

    # -- what happens -------------------------------------------------------------------------------------------------------

    def add_node(self, name=None):
        at = self.random.randint(0, 3)
        labels = {HOST: name or f"n{at}", ZONE: self.random.choice("ab"), "disk": self.random.choice(["ssd", "hdd"])}
        taints = [{"key": "t", "value": "v", "effect": "NoSchedule"}] if self.random.random() < 0.2 else []
        offer = {"cpu": self.random.randint(3, 6), "memory": "4Gi", "pods": self.random.randint(4, 7)}
        self.cluster.set_node(a_node(labels[HOST], labels, allocatable=offer, taints=taints))

    def change_node(self):
        self.add_node(self.a_node_name())

    def drop_node(self):
        if len(self.cluster.table) > 2:
            self.cluster.remove_node(self.a_node_name())

    def place(self):
        spec = self.random.choice([*SPECS, {}, {}, {}])
        status = {"startTime": f"2026-01-01T00:00:{self.number % 60:02}Z"}
        priority, port = self.random.choice([0, 3, 9]), self.random.choice([0, 0, 0, 0, 80])
        pod = self.a_pod(self.random.randint(0, 2), priority, spec, port=port, status=status)
        self.placed[pod.uid] = pod
        self.cluster.place(pod, self.a_node_name())

    def remove(self):
        if self.placed:
            self.cluster.remove_pod(self.placed.pop(self.random.choice(list(self.placed))).uid)

    def change(self):
        """A placed pod has another priority and other labels."""
        if self.placed:
            old = self.placed[self.random.choice(list(self.placed))]
            labels = {"app": self.random.choice("xy")}
            new = self.placed[old.uid] = a_pod(
                old.name, labels, priority=self.random.choice([0, 9]), containers=[{"name": "c"}]
            )
            self.cluster.place(new, self.cluster.node_of(old.uid))

    def set_budget(self):
        self.cluster.set_object(budget(self.random.randint(0, 1), app=self.random.choice("xy")))

    def drop_budget(self):
        self.cluster.remove_object(budget(0))

    def set_namespace(self):
        self.cluster.set_namespace(namespace(self.random.choice("xy")))

    def nominate(self):
        name = self.a_node_name()
        waiting = (*self.nominated.get(name, ()), self.a_pod(self.random.randint(1, 3), self.random.choice([0, 5, 9]), {}))
        self.nominated = MappingProxyType({**self.nominated, name: waiting})

    def give_up(self):
        kept = {name: pods for name, pods in self.nominated.items() if self.random.random() < 0.3}
        self.nominated = MappingProxyType(kept)


EVENTS = [
    History.add_node, History.change_node, History.drop_node, History.place, History.place, History.place, History.remove,
    History.remove, History.change, History.set_budget, History.drop_budget, History.set_namespace, History.nominate,
    History.give_up, History.set_namespace,
]  # fmt: skip


def play(seed, events=25):
    history = History(Random(seed))
    for _ in range(8):
        history.place()
    history.ask()
    for _ in range(events):
        history.random.choice(EVENTS)(history)
        history.ask()


@pytest.mark.slow
def test_a_reused_failure_equals_a_new_search():
    for seed in range(100 if os.environ.get("MOORAGE_LONG_TESTS") else 5):
        play(seed)
