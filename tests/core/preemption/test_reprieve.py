"""Who has to go on a node, and who can stay; on one node as on many at once."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.workloads import PodDisruptionBudget
from moorage.core.cycle.cycle import judge
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.reprieve import NOBODY_LESSER, select_victims, select_victims_everywhere
from moorage.core.preemption.row_importance import Ranking
from moorage.framework.points import Reuse, Scope
from moorage.framework.verdicts import Code, Hold, Reject, Status, Verdicts
from moorage.plugins.inter_pod_affinity import InterPodAffinity
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_ports import NodePorts
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.plugins.pod_topology_spread import PodTopologySpread
from moorage.testing.builders import a_cluster, a_node, a_pod, failed_attempt


def wants(cpu, priority=0, name="pod", start=None, labels=None, ports=(), gpu=0, **spec):
    """A pod that requests ``cpu`` and started at minute ``start``."""
    requests = {"cpu": str(cpu), "example.com/gpu": gpu}
    container = {
        "name": "c",
        "resources": {"requests": {name: amount for name, amount in requests.items() if amount not in {"0", 0}}},
        "ports": [{"hostPort": port, "containerPort": port, "protocol": "TCP"} for port in ports],
    }
    status = {} if start is None else {"startTime": f"2026-01-01T00:{start:02}:00Z"}
    return a_pod(name, labels, priority=priority, status=status, containers=[container], **spec)


def node(name, cpu=4, pods=10, gpu=0):
    return a_node(name, {"name": name}, allocatable={"cpu": str(cpu), "pods": pods, "example.com/gpu": gpu})


def budget(allowed, **labels):
    document = {
        "metadata": {"name": f"budget-{labels}", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(document, PodDisruptionBudget)


def attempt(cluster, pod, nominated: Mapping[str, list] = {}):
    return failed_attempt([NodeAffinity(), NodePorts(), NodeResourcesFit()], pod, cluster.snapshot, nominated)


def filtered(cluster, pod, nominated):
    """Return why each row refuses the pod, beside the nominated pods; None where it fits."""
    failed = attempt(cluster, pod, nominated)
    verdicts = Verdicts(len(cluster.table))
    judge(failed._asked, cluster.snapshot.nodes, verdicts, nominated)
    return [verdicts.status(row) for row in range(len(verdicts))]


def names(pods):
    return " ".join(pod.name for pod in pods)


def victims_on(cluster, pod, budgets=(), nominated: Mapping[str, list] = {}, row=0):
    with attempt(cluster, pod, nominated).what_if(row) as what_if:
        return select_victims(pod, what_if, Budgets(budgets))


# -- victims on one node ------------------------------------------------------------------------------------------------

ONE_NODE = {  # pods on a node with 4 CPUs; what the pod of priority 10 wants; who has to go
    "the one that is there": ([wants(4, 1, "a")], wants(1, 10), "a"),
    "the least important": ([wants(2, 1, "a"), wants(2, 2, "b")], wants(2, 10), "a"),
    "the one that started last": ([wants(2, 1, "a", start=1), wants(2, 1, "b", start=2)], wants(2, 10), "b"),
    "not one that could stay": ([wants(3, 1, "a"), wants(1, 2, "b")], wants(3, 10), "a"),
    "several": ([wants(1, 1, "a"), wants(2, 2, "b"), wants(1, 3, "c")], wants(3, 10), "b a"),
    "a big one that matters more goes where a small one can stay": ([wants(3, 5, "a"), wants(1, 1, "b")], wants(2, 10), "a"),
    "only those of lower priority": ([wants(2, 10, "a"), wants(2, 9, "b")], wants(2, 10), "b"),
    "for a port": ([wants(1, 1, "a", ports=[80]), wants(1, 0, "b")], wants(1, 10, ports=[80]), "a"),
    "for room and a port": ([wants(2, 2, "a", ports=[80]), wants(2, 1, "b")], wants(4, 10, ports=[80]), "a b"),
}


@pytest.mark.parametrize(("there", "pod", "victims"), ONE_NODE.values(), ids=ONE_NODE)
def test_the_victims_on_one_node(there, pod, victims):
    answer = victims_on(a_cluster([node("n")], {"n": there}), pod)
    assert names(answer.pods) == victims
    assert answer.violations == 0


def full(code):
    return Status(code, "NodeResourcesFit", ("Insufficient cpu",))


NO_VICTIMS = {  # pods on a node with 4 CPUs, the pod, why not
    "no pod on the node": ([], wants(5, 10), NOBODY_LESSER),
    "all matter as much or more": (
        [wants(2, 10, "a"), wants(2, 11, "b")],
        wants(1, 10),
        NOBODY_LESSER,
    ),
    "it would not fit without them": (
        [wants(3, 10, "a"), wants(1, 1, "b")],
        wants(2, 10),
        full(Code.UNSCHEDULABLE),
    ),
    "the node could never hold it": (
        [wants(1, 1, "a")],
        wants(5, 10),
        full(Code.UNRESOLVABLE),
    ),
}


@pytest.mark.parametrize(("there", "pod", "why_not"), NO_VICTIMS.values(), ids=NO_VICTIMS)
def test_no_victims_can_help(there, pod, why_not):
    assert victims_on(a_cluster([node("n")], {"n": there}), pod) == why_not


A, B, C = wants(1, 1, "a", 1, {"app": "a"}), wants(1, 2, "b", 1, {"app": "b"}), wants(2, 3, "c", 1, {"app": "c"})

BUDGETED = {  # budgets, CPUs wanted, victims, how many of them exceed
    "no budget: the least important": ([], 1, "a", 0),
    "the one within its budget, though it matters more": ([budget(0, app="a")], 1, "b", 0),
    "one that its budget allows": ([budget(1, app="a")], 1, "a", 0),
    "all exceed": ([budget(0, app=app) for app in "abc"], 1, "a", 1),
    "exceeding ones go when they must": ([budget(0, app="a")], 4, "c b a", 1),
    "victims of both kinds by importance": ([budget(0, app="a"), budget(-1, app="b")], 4, "c b a", 2),
    "put back before those that matter more": ([budget(0, app="a"), budget(0, app="b")], 2, "c", 0),
    "the exceeding one stays where it can": ([budget(0, app="b")], 3, "c a", 0),
}


@pytest.mark.parametrize(("budgets", "cpu", "victims", "violations"), BUDGETED.values(), ids=BUDGETED)
def test_budgets(budgets, cpu, victims, violations):
    answer = victims_on(a_cluster([node("n")], {"n": [A, B, C]}), wants(cpu, 10), budgets)
    assert (names(answer.pods), answer.violations) == (victims, violations)


def test_a_host_port_with_two_holders_is_free_after_one_leaves():
    there = [wants(1, 20, "a", ports=[80]), wants(1, 1, "b", ports=[80])]
    assert names(victims_on(a_cluster([node("n")], {"n": there}), wants(1, 10, ports=[80])).pods) == "b"


NOMINATED = {  # CPUs wanted, priority of a pod nominated to the node that wants 2 CPUs, who has to go
    "one of higher priority keeps its room": (2, 11, "b a"),
    "one of the same priority too": (2, 10, "b a"),
    "one of lower priority does not": (2, 9, "a"),
}


@pytest.mark.parametrize(("cpu", "priority", "victims"), NOMINATED.values(), ids=NOMINATED)
def test_resources_for_nominated_pods(cpu, priority, victims):
    cluster = a_cluster([node("n")], {"n": [wants(2, 1, "a"), wants(2, 2, "b")]})
    answer = victims_on(cluster, wants(cpu, 10), nominated={"n": [wants(2, priority, "other")]})
    assert names(answer.pods) == victims


def test_a_pods_own_nomination_is_not_counted_against_it():
    pod = wants(4, 10)
    cluster = a_cluster([node("n")], {"n": [wants(1, 1, "a")]})
    assert names(victims_on(cluster, pod, nominated={"n": [pod]}).pods) == "a"


# -- many nodes at once -------------------------------------------------------------------------------------------------

requests = st.builds(
    lambda cpu, gpu, priority, start, app: {"cpu": cpu, "gpu": gpu, "priority": priority, "start": start, "labels": app},
    st.integers(0, 3),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([-3, 0, 5, 7]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([{}, {"app": "a"}, {"app": "b"}]),
)
crowds = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5), st.lists(requests, max_size=6)), min_size=1, max_size=6)
budgets = st.lists(st.builds(budget, st.integers(-1, 2), app=st.sampled_from(["a", "b"])), max_size=2)


def built(crowd):
    nodes = [node(f"n{at}", cpu, pods, gpu=2) for at, (cpu, pods, _) in enumerate(crowd)]
    placed = {
        f"n{at}": [wants(name=f"n{at}p{i}", **facts) for i, facts in enumerate(there)] for at, (*_, there) in enumerate(crowd)
    }
    return a_cluster(nodes, placed)


def sums(table):
    requested = {name: table.requested(name).view.tolist() for name in table.resources_requested}
    return {name: amounts for name, amounts in requested.items() if any(amounts)}, table.pod_count.view.tolist()


@pytest.mark.slow
@given(crowds, requests, budgets, st.data())
@settings(max_examples=150, deadline=None)
def test_batched_nodes_equal_single_nodes(crowd, facts, limits, data):
    cluster = built(crowd)
    table = cluster.table
    narrowed = data.draw(st.sampled_from([{}, {"nodeSelector": {"name": "n0"}}]))
    pod = wants(**{**facts, "priority": data.draw(st.sampled_from([0, 6, 9]))}, **narrowed)
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(crowd))), unique=True, min_size=1)))
    failed = attempt(cluster, pod)
    before = sums(table)
    with failed.what_ifs(rows) as many:
        together = select_victims_everywhere(pod, many, Ranking().of(table, rows), rows, Budgets(limits))
    assert sums(table) == before
    for row, answer in zip(rows.tolist(), together, strict=True):
        with failed.what_if(row) as one:
            assert select_victims(pod, one, Budgets(limits)) == answer


waiting = st.dictionaries(st.integers(0, 5), st.lists(requests, min_size=1, max_size=3), max_size=6)


@pytest.mark.slow
@given(crowds, requests, waiting, budgets, st.data())
@settings(max_examples=100, deadline=None)
def test_batched_nodes_with_nominated_pods_equal_single_nodes(crowd, facts, nominees, limits, data):
    cluster = built(crowd)
    table = cluster.table
    pod = wants(**{**facts, "priority": data.draw(st.sampled_from([0, 6]))})
    nominated = {f"n{at}": [wants(name=f"w{at}-{i}", **one) for i, one in enumerate(some)] for at, some in nominees.items()}
    if data.draw(st.booleans()) and nominated:
        nominated = {**nominated, next(iter(nominated)): [*next(iter(nominated.values())), pod]}
    before = sums(table)
    together = filtered(cluster, pod, nominated)
    assert sums(table) == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moorage.core.preemption.what_if.FailedAttempt.what_ifs", lambda self, rows: None)
        assert together == filtered(cluster, pod, nominated)
    failed = attempt(cluster, pod, nominated)
    rows = np.arange(len(crowd))
    many = failed.what_ifs(rows)
    if many is not None:
        with many:
            found = select_victims_everywhere(pod, many, Ranking().of(table, rows), rows, Budgets(limits))
        assert sums(table) == before
        for row, answer in zip(rows.tolist(), found, strict=True):
            with failed.what_if(row) as one:
                assert select_victims(pod, one, Budgets(limits)) == answer


KEEP_APART = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "name"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "name",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "b"}},
}


@given(crowds, requests, st.data())
@settings(max_examples=60, deadline=None)
def test_batched_nodes_without_pods_that_count_equal_single_nodes(crowd, facts, data):
    """Affinity and spreading follow pods, but on many nodes no pod is one that they count."""
    cluster = built(crowd)
    rules = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [KEEP_APART]}}}
    rules |= data.draw(st.sampled_from([{}, {"topologySpreadConstraints": [SPREAD]}]))
    pod = wants(**{**facts, "priority": data.draw(st.sampled_from([0, 6, 9]))}, **rules)
    plugins = [NodeAffinity(), NodeResourcesFit(), PodTopologySpread(), InterPodAffinity()]
    nominated = {"n0": [wants(1, 9, "w")]} if data.draw(st.booleans()) else {}
    failed = failed_attempt(plugins, pod, cluster.snapshot, nominated)
    every = np.arange(len(crowd))
    rows = every[failed.ignored(every)]
    apart = [at for at, (*_, there) in enumerate(crowd) if any(one["labels"] for one in there)]
    assert {*rows.tolist()} >= {*every.tolist()} - {*apart} - ({0} if nominated else set())
    assert not failed._following or 0 not in failed.contended & {*rows.tolist()}
    if len(rows):
        with failed.what_ifs(rows) as many:
            ranked = Ranking().of(cluster.table, rows)
            together = select_victims_everywhere(pod, many, ranked, rows, Budgets([]))
        for row, answer in zip(rows.tolist(), together, strict=True):
            with failed.what_if(row) as one:
                assert select_victims(pod, one, Budgets([])) == answer
    before, pods = sums(cluster.table), [list(held.values()) for held in cluster.table.pods]
    quickly = victims_on_each(failed, pod, every)
    assert (sums(cluster.table), [list(held.values()) for held in cluster.table.pods]) == (before, pods)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moorage.core.preemption.what_if.FailedAttempt._is_ignored", lambda self, other: False)
        assert quickly == victims_on_each(failed_attempt(plugins, pod, cluster.snapshot, nominated), pod, every)


def test_no_row_is_ignored_where_none_is_asked_about():
    rules = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [KEEP_APART]}}}
    pod = wants(1, 9, "p", **rules)
    snapshot = built([(4, 4, [])]).snapshot
    failed = failed_attempt([InterPodAffinity()], pod, snapshot, {"n0": [wants(1, 9, "w")]})
    assert failed.contended
    assert failed._following
    assert failed.ignored(np.array([], dtype=np.intp)).tolist() == []


ZONED = {**KEEP_APART, "topologyKey": "zone"}
AFFINE = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [KEEP_APART]}}
AVERSE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ZONED]}}
neighbors = st.lists(
    st.builds(
        lambda labels, averse, leaving: (labels, {"affinity": AVERSE} if averse else {}, leaving),
        st.sampled_from([{}, {"app": "a"}, {"app": "b"}]), st.booleans(), st.booleans(),
    ),
    max_size=2,
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([None, "y", "z"]), neighbors), min_size=1, max_size=5), st.data())
@settings(max_examples=60, deadline=None)
def test_rows_that_are_ignored_at_once_have_only_ignored_pods(crowd, data):
    nodes = [a_node(f"n{at}", {"name": f"n{at}"} | ({"zone": zone} if zone else {})) for at, (zone, _) in enumerate(crowd)]
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    placed = {
        f"n{at}": [
            a_pod(f"n{at}p{i}", labels, priority=-1, metadata=metadata if leaving else {}, **spec)
            for i, (labels, spec, leaving) in enumerate(there)
        ]
        for at, (_, there) in enumerate(crowd)
    }
    cluster = a_cluster(nodes, placed)
    spec = data.draw(st.sampled_from([{}, {"affinity": AFFINE}, {"affinity": AVERSE}]))
    spec = {**spec, "topologySpreadConstraints": data.draw(st.sampled_from([[], [SPREAD]]))}
    failed = failed_attempt([PodTopologySpread(), InterPodAffinity()], a_pod("pod", {"app": "a"}, **spec), cluster.snapshot)
    every = np.arange(len(crowd))
    for row in np.flatnonzero(failed._certainly_ignored(every)).tolist():
        zone = crowd[row][0]  # without the label of a term, its holder does not count
        assert all(failed._is_ignored(other) or zone is None for other in cluster.table.pods[row].values())


def test_rows_without_pods_that_count_are_known_at_once():
    cluster = a_cluster([node("n"), node("m")], {"n": [wants(1, labels={"app": "a"})], "m": [wants(1, name="other")]})
    rules = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [KEEP_APART]}}}
    pod = wants(1, 5, "new", topologySpreadConstraints=[SPREAD], **rules)
    failed = failed_attempt([PodTopologySpread(), InterPodAffinity()], pod, cluster.snapshot)
    assert failed._certainly_ignored(np.array([1, 0])).tolist() == [True, False]


def victims_on_each(failed, pod, rows):
    """Return the victims on each row, tried one row at a time."""
    found = []
    for row in rows.tolist():
        with failed.what_if(row) as one:
            found.append(select_victims(pod, one, Budgets([])))
    return found


def test_a_nominated_pod_with_an_unknown_resource_is_added_separately():
    cluster = a_cluster([node("n", gpu=2), node("m", gpu=2)])
    nominated = {name: [wants(4, 9, f"w-{name}", gpu=2)] for name in "nm"}
    assert attempt(cluster, wants(1, 1), nominated).what_ifs(np.array([0, 1])) is None
    assert [status.reasons for status in filtered(cluster, wants(1, 1), nominated)] == [("Insufficient cpu",)] * 2


def test_plugins_that_read_pods_run_one_node_at_a_time():
    cluster = a_cluster([node("n")], {"n": [wants(4, 1, "a")]})
    rows = np.array([0])
    assert attempt(cluster, wants(1, 10)).what_ifs(rows) is not None
    assert attempt(cluster, wants(1, 10, ports=[80])).what_ifs(rows) is None


def test_the_table_is_restored_when_a_plugin_raises():
    class Broken:
        name = "Broken"
        reuse = Reuse(Scope.USAGE)

        def filter(self, state, nodes):
            if not nodes.pod_count.any():
                raise RuntimeError
            yield Reject(nodes.pod_count > 0, "crowded")

    cluster = a_cluster([node("n")], {"n": [wants(4, 1, "a")]})
    failed = failed_attempt([Broken()], wants(1, 10), cluster.snapshot)
    rows = np.array([0])
    ranked = Ranking().of(cluster.table, rows)
    with pytest.raises(Exception, match="Broken failed in filter"), failed.what_ifs(rows) as many:
        select_victims_everywhere(wants(1, 10), many, ranked, rows, Budgets([]))
    assert cluster.table.pod_count.view.tolist() == [1]
    assert cluster.table.requested("cpu").view.tolist() == [4000]


def test_plugins_that_read_no_pods_run_until_the_first_fit():
    class Counted:
        """Passes every node, and counts how often it was asked."""

        name = "Counted"
        asked = 0

        def __init__(self, scope):
            self.reuse = Reuse(scope)

        def filter(self, state, nodes):
            self.asked += 1
            return ()

    asked = {}
    for scope in Scope:
        rule = Counted(scope)
        cluster = a_cluster([node("n")], {"n": [wants(1, 1, name) for name in "abcd"]})
        failed = failed_attempt([rule, NodeResourcesFit()], wants(4, 10), cluster.snapshot)
        rule.asked = 0
        with failed.what_if(0) as one:
            select_victims(wants(4, 10), one, Budgets([]))
        asked[scope] = rule.asked
    assert list(asked.values()) == [1, 5, 5, 5, 5]


def test_plugin_promises_hold_for_signed_pods():
    class Single:
        """Looks at nodes alone, but for pods that it does not sign: there may be one of these on a node."""

        name = "Single"
        reuse = Reuse(Scope.NODE, signature=lambda pod: None if pod.name == "single" else {})

        def filter_node(self, state, node):
            return Hold.because("one is there") if any(pod.name == "one" for pod in node.pods) else None

    cluster = a_cluster([node("n")], {"n": [wants(1, 1, "one"), wants(1, 1, "other")]})
    failed = failed_attempt([Single(), NodeResourcesFit()], wants(1, 10, "single"), cluster.snapshot)
    with failed.what_if(0) as one:
        assert [victim.name for victim in select_victims(wants(1, 10, "single"), one, Budgets([])).pods] == ["one"]


# -- what is kept of a row ------------------------------------------------------------------------------------------------


def said(ranking, table, rows):
    """What a ranking says of rows, in values."""
    ranked = ranking.of(table, np.array(rows, dtype=np.intp))
    facts = np.split(ranked.facts, ranked.counts.cumsum()[:-1]) if rows else []
    return [(ranked.pods(at), facts[at].tolist()) for at in range(len(rows))]


steps = st.lists(
    st.tuples(
        st.sampled_from(["place", "gone", "node", "node gone", "ask"]), st.integers(0, 3), requests,
        st.lists(st.integers(0, 3), unique=True),
    ),
    max_size=16,
)  # fmt: skip


@given(steps)
@settings(max_examples=75, deadline=None)
def test_the_cache_of_a_row_follows_its_changes(steps):
    cluster = a_cluster([node("n0"), node("n1")])
    kept = Ranking()
    for at, (what, number, facts, asked) in enumerate(steps):
        if what == "place":
            cluster.place(wants(name=f"p{at % 4}", **facts), f"n{number}")
        elif what == "gone":
            cluster.remove_pod(f"default/p{number}")
        elif what == "node":
            cluster.set_node(node(f"n{number}"))
        elif what == "node gone":
            cluster.remove_node(f"n{number}")
        else:
            cluster.table.requested(f"example.com/r{number}")
        rows = [row for row in asked if row < len(cluster.table)]
        assert said(kept, cluster.table, rows) == [said(Ranking(), cluster.table, [row])[0] for row in rows]


def test_the_cache_belongs_to_one_table():
    kept = Ranking()
    assert [pods for pods, _ in said(kept, a_cluster([node("n")]).table, [0])] == [()]
    pod = wants(1)
    assert [pods for pods, _ in said(kept, a_cluster([node("n")], {"n": [pod]}).table, [0])] == [(pod,)]
