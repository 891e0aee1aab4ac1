"""Deciding by class is deciding: held against the long way, decision by decision, over random histories."""

from __future__ import annotations

from contextlib import ExitStack
from types import MappingProxyType
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Namespace, Service
from moorage.api.feature_gates import FeatureGates
from moorage.core.cycle.column import Varying
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.sheets import Sheets
from moorage.framework.points import Reuse, Scope
from moorage.framework.profile import make_profile, points_of
from moorage.framework.registry import Registry
from moorage.framework.verdicts import Reject
from moorage.plugins import BUILTIN
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_cluster, a_node, a_pod
from tests.strategies import HOST, ZONE, node, template

ORDER = (
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "PodTopologySpread",
    "InterPodAffinity", "NodeResourcesBalancedAllocation", "ImageLocality", "NodeDeclaredFeatures",
)  # fmt: skip
WEIGHTS = {"TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2}


class Bench:
    gates = FeatureGates()


def default_profile():
    registry = Registry(BUILTIN)
    plugins = {}
    for name in (n for n in ORDER if n in registry):
        plugins[name] = registry.build(name)
        if hasattr(plugins[name], "attach"):
            plugins[name].attach(Bench())
    points = {}
    for name, plugin in plugins.items():
        for point in points_of(plugin):
            points.setdefault(point, []).append(name)
    return make_profile("default-scheduler", plugins, points, WEIGHTS)


#: Limits that make clusters of a few nodes take the ways of large ones.
ALWAYS_TIED = {"domain_places._WORTH_KEEPING": 1, "domain_places._PAUSE": 0, "domain_places._FIRST": 0}
TOGETHER = {"column.FEW": 0, "sheet.FEW": 0}
LOOKING = {"sheets._FEW_ROWS": 0}
LIMITS = [
    {},
    ALWAYS_TIED,
    {**ALWAYS_TIED, "ring_totals._FEW_DOMAINS": 0},
    {**ALWAYS_TIED, **LOOKING, "ring_totals._FEW_DOMAINS": 0, "domain_places._FEW_CHANGES": 0, "sheets._SOON": 0},
    {**ALWAYS_TIED, **TOGETHER, "pinned_pods._FIRST_FEW": 0},
    {**TOGETHER, "column._MANY": 0},
    {**LOOKING, "pinned_pods._FIRST_FEW": 0},
    {**LOOKING, **TOGETHER, "sheets._SOON": 0, "column._COLUMNS_KEPT": 2, "sheets._PARTS_KEPT": 1},
    {**LOOKING, "sheets._SOON": 1 << 40, "sheets._LOOKED_REMEMBERED": 1},
]
step = st.one_of(
    *[st.tuples(st.just("pod"), st.integers(0, 3))] * 4,
    *[st.tuples(st.just("relative"), st.tuples(st.integers(0, 3), st.sampled_from(["x", "y"])))] * 2,
    *[st.tuples(st.just("pinned"), st.tuples(st.integers(0, 3), st.integers(0, 7)))] * 2,
    st.tuples(st.just("remove"), st.integers(0, 50)),
    st.tuples(st.just("forget"), st.integers(0, 50)),
    st.tuples(st.just("relabel"), st.integers(0, 50)),
    st.tuples(st.just("node"), node),
    st.tuples(st.just("drop"), st.integers(0, 7)),
    st.tuples(st.just("service"), st.sampled_from(["x", "y"])),
    st.tuples(st.just("namespace"), st.sampled_from(["x", "y"])),
    st.tuples(st.just("nominate"), st.tuples(st.integers(0, 3), st.integers(0, 7))),
    st.tuples(st.just("give_up"), st.integers(0, 7)),
)


def only_node(name):
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}}


class History:
    """A cluster to which things happen, and pods of four kinds that are decided in two ways."""

    def __init__(self, nodes, templates):
        self.profile = default_profile()
        self.cluster = a_cluster(nodes)
        self.templates = templates
        self.quick = Cycle(seed=1)
        self.fast = Cycle(seed=1)
        self.plain = Cycle(seed=1, by_class=False)
        self.scored = Cycle(seed=1, by_class=False, always_score=True)
        self.placed = []
        self.number = 0
        self.nominated = {}
        self.parts = {}

    def node(self, node):
        self.cluster.set_node(node)

    def drop(self, at):
        self.cluster.remove_node(f"n{at}")

    def remove(self, at):
        if self.placed:
            self.cluster.remove_pod(self.placed.pop(at % len(self.placed)).uid)

    def forget(self, at):
        """The binding failed."""
        if self.placed and self.cluster.forget(self.placed[at % len(self.placed)].uid) is not None:
            del self.placed[at % len(self.placed)]

    def relabel(self, at):
        """A placed pod is confirmed with other labels."""
        if self.placed:
            old = self.placed[at % len(self.placed)]
            new = a_pod(old.name, {"app": "xy"[at % 2]}, nodeName=self.cluster.node_of(old.uid))
            self.placed[at % len(self.placed)] = new
            self.cluster.place(new, new.spec.node_name)

    def service(self, app):
        """Pods of the app are spread by default from now on."""
        whole = {"metadata": {"name": app, "namespace": "default"}, "spec": {"selector": {"app": app}}}
        self.cluster.set_object(msgspec.convert(whole, Service))

    def nominate(self, what):
        """Room is kept on a node for a pod that waits."""
        (spec, app), at = self.templates[what[0]], what[1]
        self.number += 1
        waiting = a_pod(f"p{self.number}", {"app": app}, **spec)
        self.nominated[f"n{at}"] = (*self.nominated.get(f"n{at}", ()), waiting)

    def give_up(self, at):
        self.nominated.pop(f"n{at}", None)

    def namespace(self, team):
        """The pods' namespace gets other labels, which terms may select by."""
        self.cluster.set_namespace(msgspec.convert({"metadata": {"name": "default", "labels": {"team": team}}}, Namespace))

    def pinned(self, what):
        """A pod of a DaemonSet: it names its node, and is like other pods in all else."""
        self.pod(what[0], {"affinity": {"nodeAffinity": only_node(f"n{what[1]}")}})

    def relative(self, what):
        """A pod of one kind that may have the label of another."""
        self.pod(what[0], app=what[1])

    def sharing(self, pod):
        """Return the pod with equal parts of earlier ones as the same objects, as if they were decoded together."""
        spec, status, labels = (self.parts.setdefault(repr(one), one) for one in (pod.spec, pod.status, pod.labels))
        return PodInfo(pod.pod.replace(spec=spec, status=status, metadata=pod.pod.metadata.replace(labels=labels)))

    def pod(self, kind, more=MappingProxyType({}), app=None):
        spec, its = self.templates[kind]
        self.number += 1
        pod = a_pod(f"p{self.number}", {"app": app or its}, **{**spec, **more})
        if self.number % 4:
            pod = self.sharing(pod)
        snapshot = self.cluster.snapshot
        one, two = (cycle.decide(self.profile, pod, snapshot, self.nominated) for cycle in (self.quick, self.plain))
        assert (one.node, one.feasible, one.message) == (two.node, two.feasible, two.message)
        fast = (
            None
            if self.nominated or not len(snapshot.table)
            else self.fast.at_once(self.profile).decide_known(pod, snapshot, 1)
        )
        if fast is not None:
            assert (snapshot.table.nodes[fast.row].name, fast.feasible) == (two.node, two.feasible)
        if one.node is not None:
            scores = self.scored.decide(self.profile, pod, snapshot, self.nominated).scores
            assert snapshot.table.row_of[one.node] in scores.best()
            self.cluster.assume(pod, one.node)
            self.placed.append(pod)


@settings(max_examples=40, deadline=None)
@given(
    nodes=st.lists(node, min_size=1, max_size=8, unique_by=lambda n: n.name),
    templates=st.lists(st.tuples(template, st.sampled_from(["x", "y"])), min_size=4, max_size=4),
    steps=st.lists(step, min_size=5, max_size=40),
    limits=st.sampled_from(LIMITS),
    distinct_rooms=st.booleans(),
)
@pytest.mark.slow
def test_the_cached_path_decides_as_the_full_path(nodes, templates, steps, limits, distinct_rooms):
    history = History(nodes, templates)
    with ExitStack() as patches:
        if distinct_rooms:
            patches.enter_context(patch("moorage.state.distinct_rooms._WORTH_IT", 1))
            patches.enter_context(patch("moorage.core.cycle.column._MANY_ROWS", 0))
        for name, limit in limits.items():
            patches.enter_context(patch(f"moorage.core.cycle.{name}", limit))
        for what, arg in steps:
            getattr(history, what)(arg)


def beside(key):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [{**beside(ZONE), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside(HOST)]}}},
    ],
    ids=["zone", "host"],
)
def test_scores_depend_on_the_highest_raw_score_in_open_domains(spec, monkeypatch):
    said, reaches = [], Varying.reaches

    def noting(*given):
        said.append(reaches(*given))
        return said[-1]

    monkeypatch.setattr(Varying, "reaches", noting)
    avoided = [{"key": f"t{at}", "effect": "PreferNoSchedule"} for at in range(2)]
    history = History(
        [
            a_node(
                f"n{at}", {HOST: f"n{at}", ZONE: "abc"[at % 3]}, allocatable={"cpu": "4", "memory": "4Gi", "pods": 9},
                taints=avoided[:many],
            )
            for at, many in enumerate([0, 1, 1, 0, 1, 2, 0, 1, 1])
        ],
        [(spec, "x")] * 4,
    )  # fmt: skip
    for _ in range(4):
        history.pod(0)
    assert said
    assert all(said), "n5, which is avoided most, is open"
    for at in range(2):
        history.cluster.place(a_pod(f"there{at}", {"app": "x"}, nodeName="n5"), "n5")
    for _ in range(2):
        history.pod(0)
    assert not all(said), "n5 is closed"


def test_a_failure_does_not_hold_for_a_pod_of_the_same_spec_with_other_labels():
    spec = {"topologySpreadConstraints": [{**beside(ZONE), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
    places = [("n0", "a", 9), ("n1", "b", 1)]
    nodes = [a_node(name, {ZONE: zone}, allocatable={"cpu": 4, "memory": "4Gi", "pods": pods}) for name, zone, pods in places]
    history = History(nodes, [(spec, "x")] * 4)
    history.cluster.place(a_pod("one", {"app": "x"}, nodeName="n0"), "n0")
    history.cluster.place(a_pod("other", {"app": "z"}, nodeName="n1"), "n1")
    history.pod(0)
    assert not history.placed
    history.pod(0, app="y")
    assert history.placed


def counting_rows(scope, asked, **promises):
    """Return a profile with one plugin that notes of how many rows it scores at a time."""

    class Counts:
        name = "Counts"
        reuse = Reuse(scope, signature=lambda pod: {}, **promises)

        def filter(self, pod, nodes):
            asked.append(len(nodes))
            yield Reject(np.array(["no" in node.labels for node in nodes], dtype=bool), "no")

        def score(self, pod, nodes):
            return np.array([int(node.labels.get("worth", 1)) for node in nodes])

    return make_profile("s", {"Counts": Counts()}, {"filter": ["Counts"], "score": ["Counts"]}, {})


@pytest.mark.parametrize("scope", [Scope.NODE, Scope.NODE_PODS])
def test_only_an_updated_node_is_evaluated_again(scope):
    asked = []
    profile, cycle = counting_rows(scope, asked), Cycle()
    cluster = a_cluster([a_node(f"n{at}", {"worth": str(at % 4)}) for at in range(20)])

    def decided():
        asked.clear()
        decision = cycle.decide(profile, a_pod("p"), cluster.snapshot)
        return decision.node, decision.feasible, asked

    first = cycle.decide(profile, a_pod("p"), cluster.snapshot).node
    assert first in {"n3", "n7", "n11", "n15", "n19"}
    cluster.set_node(a_node("n4", {"worth": "9"}, unschedulable=scope is not Scope.NODE))
    assert decided() == ("n4", 20, [1])
    cluster.set_node(a_node("n4", {"worth": "9", "no": ""}))
    cluster.set_node(a_node("n5", {"no": ""}))
    node, feasible, seen = decided()
    assert (node, feasible, sum(seen)) == (first, 18, 2)
    cluster.set_node(a_node("n4", {"worth": "8"}))
    assert decided() == ("n4", 19, [1])
    cluster.remove_node("n4")
    assert decided() == (first, 18, [19])


@pytest.mark.parametrize(("others", "asked_later"), [(1, [200, 1]), (70, [200, 200, 1])], ids=["soon", "late"])
@patch("moorage.core.cycle.sheets._FEW_ROWS", 1)
def test_a_sheet_is_kept_once_its_pods_follow_each_other(others, asked_later):
    """The first pod with some keys needs none, nor does a second one that comes long after it."""
    asked = []

    class Emptiest:
        name = "Emptiest"
        reuse = Reuse(Scope.USAGE, signature=lambda pod: {})

        def score(self, pod, nodes):
            asked.append(len(nodes))
            return np.maximum(100 - nodes.pod_count, 0)

    profile, cycle = make_profile("s", {"Emptiest": Emptiest()}, {"score": ["Emptiest"]}, {}), Cycle()
    cluster = a_cluster([a_node(f"n{at}") for at in range(200)])
    for others_before in (0, others, *[1] * (len(asked_later) - 1)):
        for _ in range(others_before):
            cluster.assume(a_pod(f"p{len(list(cluster.snapshot.pods()))}"), "n0")
        decision = cycle.decide(profile, a_pod("p"), cluster.snapshot)
        assert decision.feasible == 200
        assert not others_before or decision.node != "n0"
    assert asked == [200, *asked_later]


def test_a_pod_unlike_all_others_leaves_no_sheet():
    profile, cycle = default_profile(), Cycle()
    cluster = a_cluster([a_node(f"n{at}", allocatable={"cpu": 4, "memory": "8Gi", "pods": 9}) for at in range(300)])

    def decide(cpu):
        pod = a_pod("p", containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
        with patch.object(Cycle, "_full_path", side_effect=AssertionError):
            assert cycle.decide(profile, pod, cluster.snapshot).feasible == 300
        return len(cycle.path(profile)._sheets)

    assert [decide(f"{at}m") for at in range(1, 30)] == [0] * 29
    assert decide("7m") == 1
    assert decide("7m") == 1


def test_a_pinned_pod_whose_class_has_no_other_pods_is_decided_on_its_node():
    profile, cycle = default_profile(), Cycle()
    cluster = a_cluster([a_node(f"n{at}", allocatable={"cpu": 4, "memory": "8Gi", "pods": 9}) for at in range(3)])
    pod = a_pod("p", affinity={"nodeAffinity": only_node("n1")})
    with patch("moorage.core.cycle.pinned_pods._FIRST_FEW", 0):
        for _ in range(2):
            quick = cycle.at_once(profile).decide_known(pod, cluster.snapshot, 0)
            assert (quick.row, quick.feasible, quick.among) == (1, 1, 1)


def test_a_plugin_that_reads_other_nodes_evaluates_all_again():
    asked = []
    profile, cycle = counting_rows(Scope.NODE, asked, other_nodes=lambda table: table.changes.nodes), Cycle()
    cluster = a_cluster([a_node(f"n{at}", {"worth": str(at % 4)}) for at in range(20)])
    for _ in range(2):
        cycle.decide(profile, a_pod("p"), cluster.snapshot)
        cluster.set_node(a_node("n4", {"worth": "9"}))
    cycle.decide(profile, a_pod("p"), cluster.snapshot)
    assert asked == [20, 20]


def test_nodes_with_nominated_pods_do_not_need_the_full_path():
    """Plugins that skip all pods of a shape are not asked about it beside nominated pods either."""
    profile, cycle = default_profile(), Cycle()
    cluster = a_cluster([a_node(f"n{at}", allocatable={"cpu": 4, "memory": "8Gi", "pods": 9}) for at in range(3)])
    asks = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    nominated = MappingProxyType({"n1": (a_pod("waits", priority=9, **asks),)})
    with patch.object(Cycle, "_full_path", side_effect=AssertionError):
        assert cycle.decide(profile, a_pod("p", **asks), cluster.snapshot, nominated).feasible == 3


def test_a_cached_class_is_not_evaluated_again():
    asked = []

    class Counts:
        name = "Counts"
        reuse = Reuse(Scope.NODE_PODS, signature=lambda pod: {})

        def filter(self, pod, nodes):
            asked.append(len(nodes))
            return ()

    profile = make_profile("s", {"Counts": Counts()}, {"filter": ["Counts"]}, {})
    cluster = a_cluster([a_node(f"n{at}") for at in range(50)])
    cycle = Cycle()
    for at in range(4):
        pod = a_pod(f"p{at}")
        cluster.assume(pod, cycle.decide(profile, pod, cluster.snapshot).node)
    assert asked == [50, 1, 1, 1]


class Sums:
    """Counts how often it is asked about single nodes."""

    name = "Sums"

    def __init__(self, scope):
        self.asked = 0
        self.reuse = Reuse(scope, signature=lambda pod: {})

    def filter(self, pod, nodes):
        yield from ()

    def filter_node(self, pod, node):
        self.asked += 1


@pytest.mark.parametrize("scope", [Scope.USAGE, Scope.NODE_PODS])
def test_only_a_node_that_changed_is_evaluated_again(scope):
    plugin = Sums(scope)
    profile = make_profile("s", {"Sums": plugin}, {"filter": ["Sums"]}, {})
    cluster = a_cluster([a_node(f"n{at}") for at in range(4)])
    cycle = Cycle()
    for at in range(12):  # the first is judged over columns; each that follows finds one node changed
        cluster.assume(a_pod(f"p{at}"), f"n{at % 4}")
        cycle.decide(profile, a_pod("asks"), cluster.snapshot)
    assert plugin.asked == 11


def test_nodes_with_different_resources_are_evaluated_separately():
    profile = default_profile()
    cluster = a_cluster(
        [a_node(name, allocatable={"cpu": cpu, "memory": "8Gi", "pods": 9}) for name, cpu in [("small", 1), ("large", 3)]]
    )
    cycle, spec = Cycle(), {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    where = []
    for at in range(5):
        pod = a_pod(f"p{at}", **spec)
        node = cycle.decide(profile, pod, cluster.snapshot).node
        where.append(node)
        if node is not None:
            cluster.assume(pod, node)
    assert sorted(where, key=str) == [None, "large", "large", "large", "small"]


def test_resources_are_reserved_for_the_current_nominations():
    """The same class asks again about the same node, for which other pods have been nominated meanwhile."""
    profile, cycle = default_profile(), Cycle()
    cluster = a_cluster([a_node("n", allocatable={"cpu": 2, "memory": "8Gi", "pods": 9})])

    def asking(name, cpu):
        return a_pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])

    def decided(*rivals):
        return cycle.decide(profile, asking("asks", "1"), cluster.snapshot, {"n": rivals}).node

    small, large, more = asking("small", "1"), asking("large", "2"), asking("more", "1")
    assert [decided(), decided(small), decided(large), decided(small, more), decided(small)] == ["n", "n", None, None, "n"]
    cluster.assume(small, "n")  # it is not counted twice
    assert decided(small) == "n"


@pytest.mark.parametrize("answer", [None, {"x": {}}])
def test_a_plugin_without_a_signature_runs_every_time(answer):
    asked = []

    class Shy:
        name = "Shy"
        reuse = Reuse(Scope.NODE_PODS, signature=lambda pod: answer)

        def filter(self, pod, nodes):
            asked.append(len(nodes))
            return ()

    profile = make_profile("s", {"Shy": Shy()}, {"filter": ["Shy"]}, {})
    cluster = a_cluster([a_node(f"n{at}") for at in range(5)])
    cycle = Cycle()
    for at in range(3):
        cycle.decide(profile, a_pod(f"p{at}"), cluster.snapshot)
    assert asked == [5, 5, 5]


@patch("moorage.core.cycle.sheets._FEW_ROWS", 1)
def test_keys_that_come_once_do_not_evict_a_sheet_in_use():
    """Two sheets fit. The one in use stays; a new one is kept when its keys come for the second time."""
    judged = []

    class Colors:
        name = "Colors"
        reuse = Reuse(Scope.NODE_PODS, signature=lambda pod: {"color": pod.labels["color"]})

        def filter(self, pod, nodes):
            if len(nodes) > 1:
                judged.append(pod.labels["color"])
            return ()

    profile = make_profile("s", {"Colors": Colors()}, {"filter": ["Colors"]}, {})
    cluster = a_cluster([a_node(f"n{at}") for at in range(200)])
    cache = Sheets(profile, capacity=2)
    colors = ["red", "green", "red", "blue", "white", "red", "blue", "blue", "red"]
    for at, color in enumerate(colors):
        quick = cache.decide_by_keys(a_pod(f"p{at}", {"color": color}), cluster.snapshot, 0)
        assert quick is not None
    assert judged == ["red", "green", "red", "blue", "white", "blue"]


def test_node_only_results_are_shared_by_pods_with_different_requests():
    judged = []

    class Kinds:
        name = "Kinds"
        reuse = Reuse(Scope.NODE, signature=lambda pod: {"kind": pod.labels["kind"]})

        def pre_filter(self, pod, snapshot):
            return pod.labels["kind"]

        def filter(self, kind, nodes):
            judged.append(kind)
            return [Reject(np.array([node.labels["kind"] != kind for node in nodes]), "of another kind")]

        def score(self, kind, nodes):
            return np.array([node.labels["worth"] == "more" for node in nodes]) * 10

    registry = Registry(BUILTIN)
    fit = registry.build("NodeResourcesFit")
    fit.attach(Bench())
    plugins = {"Kinds": Kinds(), "NodeResourcesFit": fit}
    profile = make_profile("s", plugins, {"preFilter": [*plugins], "filter": [*plugins], "score": ["Kinds"]}, {"Kinds": 3})
    labels = [{"kind": kind, "worth": worth} for kind in ("a", "b") for worth in ("less", "more")]
    cluster = a_cluster([a_node(f"n{at}", labels[at], allocatable={"cpu": 4, "memory": "8Gi", "pods": 2}) for at in range(4)])
    cycle = Cycle()

    def placed(name, kind, cpu):
        pod = a_pod(name, {"kind": kind}, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
        node = cycle.decide(profile, pod, cluster.snapshot).node
        cluster.assume(pod, node)
        return node

    assert [placed("p", "a", "1"), placed("q", "b", "2"), placed("r", "a", "3"), placed("s", "a", "4")] == [
        "n1", "n3", "n1", "n0",
    ]  # fmt: skip
    assert judged == ["a", "b"]
    cluster.set_node(a_node("n4", labels[3], allocatable={"cpu": 9, "memory": "8Gi", "pods": 2}))
    assert placed("t", "b", "5") == "n4"
    assert judged == ["a", "b", "b"]
