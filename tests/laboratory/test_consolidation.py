"""Which nodes can be removed: brute force over all sets, budgets and rules, and what is never proposed."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorage
from moorage.simulator.allowed_disruptions import BudgetBook
from tests.laboratory.test_capacity import APART, APP, node, pod
from tests.laboratory.test_plan import Steps, by_host, kind


def owned(name, on, **spec):
    one = pod(name, on=on, **spec)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    return {**one, "metadata": {**one["metadata"], "ownerReferences": [owner]}}


def budget(**spec):
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
            "spec": {"selector": {"matchLabels": APP}, **spec}}  # fmt: skip


def consolidated(*objects, types=(), **more):
    cluster = moorage.Cluster.from_objects(*objects)
    before = cluster.digest()
    found = cluster.consolidate(types, clock=Steps(), **more)
    assert cluster.digest() == before
    return found


def test_pods_move_together():
    nodes = [node(f"n{at}") for at in range(3)]
    found = consolidated(*nodes, *(owned(f"web-{at}", f"n{at}") for at in range(3)))
    assert (found.remove, found.cost, found.lower_bound, found.status) == (("n0", "n1"), 1.0, 1.0, "optimal")
    assert [(one.pod, one.source, one.to) for one in found.moved] == [
        ("default/web-0", "n0", "n2"), ("default/web-1", "n1", "n2"),
    ]  # fmt: skip
    assert found.blocked["n2"]
    assert found.proof.kind == "exhaustive"
    assert found.text().startswith("Remove 2 nodes: n0, n1; 2 pods move.\n")


def test_the_rules_of_kubectl_keep_nodes():
    scratch = {**owned("web-1", "n1")}
    scratch["spec"] = {**scratch["spec"], "volumes": [{"name": "s", "emptyDir": {}}]}
    objects = [*(node(f"n{at}") for at in range(4)), pod("bare", on="n0"), scratch, owned("web-2", "n2", labels=APP)]
    found = consolidated(*objects, budget(maxUnavailable=0))
    assert {name: [(one.pod, one.rule) for one in why] for name, why in found.blocked.items()} == {
        "n0": [("default/bare", "noController")], "n1": [("default/web-1", "emptyDir")], "n2": [("default/web-2", "budget")],
    }  # fmt: skip
    assert found.blocked["n2"][0].text == "pdb/b never allows a disruption"
    assert found.remove == ("n3",)
    forced = consolidated(*objects, force=True, delete_emptydir_data=True)
    assert (forced.remove, forced.lost) == (("n1", "n2", "n3"), ())
    alone = consolidated(node("n0"), node("n1"), pod("bare", on="n0"), owned("web-0", "n1", cpu="4"), force=True)
    assert (alone.remove, alone.lost) == (("n0",), ("default/bare",))


def test_a_budget_that_allows_one_at_a_time_does_not_keep_a_node():
    nodes = [node(f"n{at}") for at in range(3)]
    pods = [owned(f"web-{at}", f"n{at}", labels=APP) for at in range(3)]
    assert len(consolidated(*nodes, *pods, budget(maxUnavailable=1)).remove) == 2


def test_the_pods_of_a_budget_are_counted_once_for_all_of_them(monkeypatch):
    counted, figures = [], BudgetBook.figures
    monkeypatch.setattr(BudgetBook, "figures", lambda book, *given: counted.append(given) or figures(book, *given))
    pods = [owned(f"web-{at}", f"n{at % 3}", labels=APP) for at in range(12)]
    found = consolidated(*(node(f"n{at}") for at in range(3)), *pods, budget(maxUnavailable=0))
    assert {name: len(why) for name, why in found.blocked.items()} == {"n0": 4, "n1": 4, "n2": 4}
    assert len(counted) == 1


def test_the_plugin_that_keeps_a_node_is_named():
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [by_host(
        APART["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0])]}}  # fmt: skip
    found = consolidated(node("n0"), node("n1"), *(owned(f"web-{at}", f"n{at}", labels=APP, affinity=apart) for at in range(2)))
    assert (found.remove, found.holds) == ((), False)
    assert {why.plugin for name in ("n0", "n1") for why in found.blocked[name]} == {"InterPodAffinity"}


def test_prices_decide_and_nodes_of_unknown_price_stay():
    labels = {"node.kubernetes.io/instance-type": "wide"}
    objects = [
        node("a", cpu=4),
        node("b", cpu=8, **labels),
        node("other", cpu="500m"),
        owned("web-0", "a"),
        owned("web-1", "b"),
    ]
    types = [kind("small", price=1.0), kind("wide", cpu=8, price=1.5)]
    found = consolidated(*objects, types=types)
    assert (found.remove, found.saved, found.cost) == (("b",), 1.5, 1.0)
    assert found.blocked["other"][0].rule == "price"


def test_a_smaller_node_is_bought_but_never_one_of_the_same_type():
    labels = {"node.kubernetes.io/instance-type": "wide"}
    objects = [
        node("a", cpu=8, **labels),
        node("b", cpu=8, **labels),
        owned("web-0", "a", cpu="3"),
        owned("web-1", "b", cpu="6"),
    ]
    types = [kind("wide", cpu=8, price=2.0), kind("small", cpu=4, price=1.0)]
    assert consolidated(*objects, types=types).remove == ()
    found = consolidated(*objects, types=types, buy=True)
    assert (found.remove, found.nodes, found.saved, found.cost) == (("a",), {"small": 1}, 1.0, 3.0)
    same = consolidated(*objects, types=[kind("wide", cpu=8, price=2.0)], buy=True)
    assert (same.remove, same.nodes) == ((), {})


@st.composite
def clusters(draw):
    count = draw(st.integers(2, 4))
    nodes = [node(f"n{at}", cpu=draw(st.integers(2, 4)), memory="8Gi", pods=draw(st.integers(2, 6))) for at in range(count)]
    spread = [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
               "labelSelector": {"matchLabels": APP}}]  # fmt: skip
    rules = draw(st.sampled_from([{}, {}, {"topologySpreadConstraints": spread}]))
    pods = [
        owned(f"web-{at}", f"n{draw(st.integers(0, count - 1))}", labels=APP, cpu=f"{draw(st.integers(1, 6)) * 250}m", **rules)
        for at in range(draw(st.integers(1, 6)))
    ]
    return nodes, pods, draw(st.sampled_from([[], [budget(maxUnavailable=1)], [budget(minAvailable="50%")]]))


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(clusters())
def test_brute_force(world):
    nodes, pods, budgets = world
    found = consolidated(*nodes, *pods, *budgets)
    names = [one["metadata"]["name"] for one in nodes]
    on_node = {name: sum(one["spec"]["nodeName"] == name for one in pods) for name in names}
    sets = [gone for size in range(1, len(names)) for gone in combinations(names, size)]
    ranked = sorted(sets, key=lambda gone: (-len(gone), sum(on_node[name] for name in gone), gone))
    best = next((gone for gone in ranked if works(nodes, pods, budgets, gone)), ())
    assert found.remove == best
    assert found.lower_bound <= found.cost == len(names) - len(best)


def works(nodes, pods, budgets, gone):
    """Try a set with fresh clusters: one without the nodes, and one that drains them."""
    left = [one for one in nodes if one["metadata"]["name"] not in gone]
    run = moorage.Cluster.from_objects(*left, *pods, *budgets).run()
    if any(not one.node and one.state == "Pending" for one in run.pods):
        return False
    whole = moorage.Cluster.from_objects(*nodes, *pods, *budgets)
    return any(
        whole.drain(*gone, ignore_daemonsets=True, find_order=ordered).holds for ordered in (False, True)[: min(2, len(gone))]
    )


@pytest.mark.slow
def test_many_nodes_are_removed_one_at_a_time():
    nodes = [node(f"n{at:02}") for at in range(16)]
    found = consolidated(*nodes, *(owned(f"web-{at}", f"n{at:02}") for at in range(16)))
    assert (len(found.remove), found.cost, found.lower_bound, found.status) == (12, 4.0, 4.0, "optimal")
    assert found.proof.kind == "bounded"


@pytest.mark.parametrize("limit", [0.5])
def test_a_search_that_ends_early_says_so(limit):
    nodes = [node(f"n{at}") for at in range(4)]
    cluster = moorage.Cluster.from_objects(*nodes, *(owned(f"web-{at}", f"n{at}") for at in range(4)))
    found = cluster.consolidate(clock=Steps(1.0), time_limit_s=limit)
    assert (found.remove, found.status, found.proof.kind) == ((), "gap", "bounded")
