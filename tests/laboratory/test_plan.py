"""Which nodes to buy: closed forms, brute force over sets of nodes, and a fresh run of the engine on the changed input."""

import ctypes
from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import moorage
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.cluster_questions import planned_pods
from moorage.laboratory.plan import plan_bound as linear_programs
from moorage.laboratory.plan.node_types import NodeType, offers_of_types, policies_of, read_types
from moorage.laboratory.plan.plan_bound import cost_bound
from moorage.laboratory.plan.plan_problem import state_problem
from tests.laboratory.test_capacity import APART, APP, SPREAD, node, pod

ROOT = Path(__file__).resolve().parents[2]


def kind(name, cpu="4", memory="8Gi", price=1.0, pods=10, **more):
    amounts = {"cpu": str(cpu), "memory": memory, "pods": str(pods)}
    return {"name": name, "price": price, "node": {"status": {"allocatable": amounts}}, **more}


def pods(number, **given):
    return [pod(f"{given.get('name', 'w')}{at}", **{key: value for key, value in given.items() if key != "name"})
            for at in range(number)]  # fmt: skip


def cluster_of(*objects):
    return moorage.Cluster.from_objects(*objects)


class Steps:
    """A clock that takes a second for every look, so that tests do not depend on the machine."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def plan(cluster, types, **more):
    return cluster.plan(types, clock=Steps(), **more)


def test_one_type_by_the_closed_form():
    found = plan(cluster_of(*pods(10)), [kind("small", price=0.5)])
    assert (found.nodes, found.cost, found.lower_bound, found.gap, found.status) == ({"small": 3}, 1.5, 1.5, 0.0, "optimal")
    assert found.verified == {"asGiven": 1.5, "largestFirst": 1.5, "smallestFirst": 1.5}
    assert found.text().startswith("Buy 3 small: 1.500, which is the lower bound.\n")


def test_existing_nodes_are_filled_first():
    found = plan(cluster_of(node("n0"), *pods(5)), [kind("small")])
    assert found.nodes == {"small": 1}
    assert plan(cluster_of(node("n0"), *pods(4)), [kind("small")]).text().startswith("Buy nothing: every pod has a node.\n")


def test_what_places_almost_all_pods_for_far_less_is_named():
    """A pod that needs a whole node comes last: with nodes of two types, one more than small pods are needed for it."""
    large = pod("x-large", cpu="4", nodeSelector={"kind": "small"})
    small = pods(12, name="s", cpu="1", nodeSelector={"kind": "small"})
    status = {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "10"}}
    types = [{"name": name, "price": 1.0, "node": {"metadata": {"labels": {"kind": name}}, "status": status}}
             for name in ("small", "other")]  # fmt: skip
    others = pods(4, name="o", nodeSelector={"kind": "other"})
    found = plan(cluster_of(*small, large, *others), types)
    assert found.status in {"gap", "optimal"}
    assert found.nodes == {"small": 13, "other": 1}
    assert (found.cheaper.cost, found.cheaper.left) == (5.0, ("default/x-large",))
    assert " other place all of these but default/x-large\n" in found.text()
    assert plan(cluster_of(*small), types).cheaper is None


def test_daemon_pods_take_room_on_new_nodes():
    daemon = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": APP}, "template": {"metadata": {"labels": APP}, "spec": pod(cpu="1")["spec"]}},
    }  # fmt: skip
    assert plan(cluster_of(daemon, *pods(8)), [kind("small")]).nodes == {"small": 3}


def test_zones_are_taken_in_turn():
    found = plan(cluster_of(*pods(10)), [kind("small", zones=["a", "b"])])
    assert found.per_zone == {"small": {"a": 2, "b": 1}}


def test_a_pod_for_one_zone_gets_a_node_there():
    selector = {"nodeSelector": {"topology.kubernetes.io/zone": "b"}}
    found = plan(cluster_of(*pods(5, **selector)), [kind("small", zones=["a", "b"])])
    assert found.per_zone == {"small": {"b": 2}}


def test_like_a_group():
    labels = {"disk": "ssd"}
    nodes = [node("big-1", cpu=8, **labels), node("big-2", cpu=8, **labels)]
    found = plan(cluster_of(*nodes, *pods(20, nodeSelector=labels)), [NodeType(name="more", like="big")])
    assert found.nodes == {"more": 1}


def test_impossible():
    found = plan(cluster_of(*pods(3), pod("giant", cpu="64")), [kind("small")])
    assert (found.status, found.holds, found.nodes) == ("partial", False, {"small": 1})
    assert found.text().startswith("Buy 1 small, which places 3 of 4 pods; 1 pod stays pending.\n")
    (one,) = found.unplaceable
    assert one.pods == ("default/giant",)
    assert [(why.type, why.plugin, why.reason) for why in one.why] == [("small", "NodeResourcesFit", "Insufficient cpu")]
    alone = plan(cluster_of(pod("giant", cpu="64")), [kind("small")])
    assert (alone.status, alone.holds, alone.nodes) == ("impossible", False, {})
    assert alone.text().startswith("Buy nothing: no number of nodes of these types places any of 1 pod.\n")


ZONAL = {"topologySpreadConstraints": [{**SPREAD[0], "topologyKey": "topology.kubernetes.io/zone"}]}
#: The pods and types of a partial plan; the nodes, how many pods are left, and why.
PARTIAL = {
    "a limit": (pods(20, cpu="2"), [kind("small", max=5)], {}, {"small": 5}, 10, "small: its max of 5 is reached"),
    "limits of two types": (
        pods(20, cpu="2"), [kind("small", max=2), kind("large", cpu=8, price=1.5, max=2)], {}, {"small": 2, "large": 2}, 8,
        "large: its max of 2 is reached",
    ),
    "a budget": (
        pods(9), [kind("small", price=2.0)], {"budget": 5.0}, {"small": 2}, 1,
        "small: one more would cost more than the budget of 5",
    ),
    "a budget below the cheapest node": (
        pods(2), [kind("small", price=2.0)], {"budget": 1.0}, {}, 2, "small: one more would cost more than the budget of 1",
    ),
    "spread over two zones of which one is full": (
        [node("b0", cpu=1, **{"topology.kubernetes.io/zone": "b"}), *pods(12, labels=APP, **ZONAL)], [kind("a", zones=["a"])],
        {}, {"a": 1}, 9,
        "more nodes of a place no other pod",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("waiting", "types", "more", "nodes", "left", "why"), PARTIAL.values(), ids=PARTIAL)
def test_a_partial_plan(waiting, types, more, nodes, left, why):
    found = plan(cluster_of(*waiting), types, **more)
    assert (found.nodes, found.staying) == (nodes, left)
    assert not left or found.status in {"partial", "impossible"}
    assert not why or any(line.startswith(why) for one in found.left for line in one.why)


def test_a_search_that_ends_early_is_undecided():
    cluster = cluster_of(*pods(9), *pods(3, name="v", labels=APP, affinity=APART))
    found = cluster.plan([kind("small")], clock=Steps(1.0), time_limit_s=0.5)
    assert found.status in {"undecided", "optimal"}
    assert (found.holds is None) == (found.status == "undecided")


def test_pods_that_are_evicted_for_good_are_named():
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    objects = [high, node("n0"), *(pod(f"low{at}", on="n0") for at in range(4)), *pods(6, priorityClassName="high")]
    found = plan(cluster_of(*objects), [kind("small")])
    assert found.nodes == {"small": 1}
    assert len(found.preempted) >= 2
    assert all(key.startswith("default/low") for key in found.preempted)
    assert "! pods of higher priority evict default/low" in found.text()


def needed(objects, types, order=None):
    """Return the least cost of a set of nodes with which a fresh cluster places all pods, by trying all of them."""
    del order
    best = None
    read = read_types(types)
    for counts in sorted(product(range(6), repeat=len(read)), key=lambda one: cost_of(read, one)):
        if best is None and not pending(objects, types, counts):
            best = cost_of(read, counts)
    return best


def cost_of(types, counts):
    return round(sum(one.price * count for one, count in zip(types, counts, strict=True)), 9)


def pending(objects, types, counts):
    """Return what stays pending in a fresh cluster with these nodes."""
    fresh = []
    for one, count in zip(types, counts, strict=True):
        for at in range(count):
            name = f"{one['name']}-new-{at + 1}"
            labels = {"kubernetes.io/hostname": name}
            zones = one.get("zones")
            labels |= {"topology.kubernetes.io/zone": zones[at % len(zones)]} if zones else {}
            fresh.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, **one["node"]})
    run = cluster_of(*fresh, *objects).run()
    return [one for one in run.pods if not one.node]


@st.composite
def demands(draw):
    rules = draw(st.sampled_from([{}, {}, {"affinity": APART_BY_HOST}, {"topologySpreadConstraints": SPREAD_BY_HOST}]))
    shapes = [
        pods(draw(st.integers(1, 5)), name=f"s{at}-", cpu=f"{draw(st.integers(1, 12)) * 250}m",
             memory=f"{draw(st.integers(1, 8)) * 512}Mi", labels=APP, **(rules if at == 0 else {}))
        for at in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    return [one for shape in shapes for one in shape]


def by_host(term):
    return {**term, "topologyKey": "kubernetes.io/hostname"}


APART_BY_HOST = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [by_host(
    APART["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0])]}}  # fmt: skip
SPREAD_BY_HOST = [by_host(SPREAD[0])]


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(demands())
def test_one_type_by_brute_force(objects):
    types = [kind("small")]
    found = plan(cluster_of(*objects), types)
    least = next(n for n in range(40) if not pending(objects, types, (n,)))
    assert found.lower_bound <= least
    assert found.nodes.get("small", 0) == least
    assert found.status == "optimal"


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(demands())
def test_two_types_by_brute_force(objects):
    types = [kind("small", price=1.0), kind("wide", cpu=8, memory="12Gi", price=1.75)]
    cluster = cluster_of(*objects)
    before = cluster.digest()
    found = plan(cluster, types)
    assert cluster.digest() == before
    assert pending(objects, types, [found.nodes.get(one["name"], 0) for one in types]) == []
    least = needed(objects, types)
    if least is not None:
        assert found.lower_bound <= least <= found.cost + 1e-9
        if found.status == "optimal":
            assert found.cost == least


def test_without_a_solver_the_bound_is_that_of_single_resources(monkeypatch):
    objects = [*pods(7, cpu="3", memory="1Gi"), *pods(5, name="m", cpu="250m", memory="6Gi")]
    types = [kind("small", price=1.0), kind("wide", cpu=8, memory="12Gi", price=1.75)]
    pytest.importorskip("highspy")
    sharp = plan(cluster_of(*objects), types)
    monkeypatch.setattr(linear_programs, "_highs", lambda: None)
    plain = plan(cluster_of(*objects), types)
    assert plain.bound_kind == "resource"
    assert plain.lower_bound <= sharp.lower_bound <= min(sharp.cost, plain.cost)
    assert any(one.name == "solver" for one in plain.assumptions)


def test_the_bound_of_the_example_with_four_types():
    cluster = moorage.Cluster.read(ROOT / "examples/plan/tomorrow")
    types = read_types(ROOT / "examples/plan/types.yaml")
    policies = policies_of(cluster.objects())
    problem = state_problem(cluster, planned_pods(cluster, None), offers_of_types(types, []), policies)
    found = cost_bound(problem, [one.price for one in types], TimeBudget())
    assert (len(problem.shapes), len(problem.offers)) == (5, 4)
    assert found.cost == (9.424 if linear_programs.has_solver() else pytest.approx(8.357, abs=0.001))


WRONG = {
    "no list": ("a: 1\nb: 2\n", "expected a list"),
    "no name": ([{"node": {}}], "a type needs a name"),
    "an unknown field": ([{"name": "a", "nodes": {}}], "no such field"),
    "a price below 0": ([{**kind("a"), "price": -1}], "is no price"),
    "both": ([{**kind("a"), "like": "b"}], "either node .* or like"),
    "no such group": ([{"name": "a", "like": "b"}], "no node and no node group"),
    "twice": ([kind("a"), kind("a")], "two types have the name a"),
    "none": ([], "at least one"),
    "a limit below 0": ([{**kind("a"), "max": -1}], "is no limit"),
}


@pytest.mark.parametrize(("types", "says"), WRONG.values(), ids=WRONG)
def test_wrong_types(types, says):
    with pytest.raises(InputError, match=says):
        plan(cluster_of(*pods(1)), types)


def manifest(name, cpu="8"):
    status = {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


MANIFESTS = {
    "one": ([manifest("large")], ["large"]),
    "several documents": ([manifest("large"), manifest("small", "2")], ["large", "small"]),
    "a list of kubectl": (
        [{"apiVersion": "v1", "kind": "List", "items": [manifest("large"), manifest("small", "2")]}],
        ["large", "small"],
    ),
    "beside types": ([[manifest("large"), {"name": "small", "node": manifest("s", "2"), "price": 0.5}]], ["large", "small"]),
}


@pytest.mark.parametrize(("documents", "names"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_node_manifest_is_a_type_of_its_name(documents, names):
    text = yaml.safe_dump_all(documents)
    assert [one.name for one in read_types(text)] == names
    assert plan(cluster_of(*pods(1)), text).nodes


def test_a_manifest_without_a_name_is_no_type():
    with pytest.raises(InputError, match=r"metadata\.name: a type needs a name"):
        read_types(yaml.safe_dump({"kind": "Node", "metadata": {}}))


def test_offerings_are_types_with_their_zones_and_capacity_types():
    path = str(Path(__file__).resolve().parents[2] / "examples/karpenter/types.json")
    found = read_types(Path(path))
    assert [one.name for one in found[:2]] == ["c5.large-on-demand", "c5.large-spot"]
    assert (found[1].price, found[1].zones) == (0.034, ("zone-a", "zone-b"))
    wanted = pod("p", "3", nodeSelector={"karpenter.sh/capacity-type": "on-demand"})
    plan = moorage.Cluster.from_objects(wanted).plan(path)
    assert plan.nodes == {"c5.xlarge-on-demand": 1}


def holds(pods_left, rooms):
    """Return whether pods of these sizes find places in rooms, by trying every room for each pod."""
    if not pods_left:
        return True
    first, *others = pods_left
    for at in {room: at for at, room in enumerate(rooms) if room >= first}.values():
        if holds(others, [*rooms[:at], rooms[at] - first, *rooms[at + 1 :]]):
            return True
    return False


def packed(found, types):
    """Return the rooms of the nodes of a printed packing."""
    sizes = {one["name"]: quarters(one["node"]["status"]["allocatable"]["cpu"]) for one in types}
    return [sizes[name] for name, count in found.packing.nodes.items() for _ in range(count)]


def quarters(cpu):
    return int(cpu.removesuffix("m")) // 250 if cpu.endswith("m") else int(cpu) * 4


def fragmented(used, sizes):
    """Return nodes of 4 cpu of which so many quarters are used, and pending pods of these sizes."""
    running = [pod(f"u{at}", cpu=f"{250 * some}m", on=f"n{at}") for at, some in enumerate(used) if some]
    waiting = [pod(f"w{at}", cpu=f"{250 * some}m") for at, some in enumerate(sizes)]
    return [*(node(f"n{at}", cpu="4") for at in range(len(used))), *running, *waiting]


def test_a_packing_has_a_place_for_every_pod():
    """The free cpu of three nodes is 4, 2 and 3, which takes 5 pods of 1.5 cpu and not 6."""
    types = [kind("small", price=0.1, pods=110), kind("big", cpu=16, memory="64Gi", price=0.35, pods=110)]
    found = plan(cluster_of(*fragmented([0, 8, 4], [6] * 12)), types)
    assert (found.lower_bound, found.cost, found.nodes) == (0.3, 0.35, {"big": 1})
    assert (found.packing.nodes, found.packing.cost) == ({"big": 1}, 0.35)
    assert "Cost of placing one pod after the other" not in found.text()


@pytest.mark.slow
@pytest.mark.parametrize("solver", [True, False])
@settings(max_examples=8, deadline=None)
@given(
    used=st.lists(st.integers(0, 15), max_size=4), sizes=st.lists(st.sampled_from([3, 5, 6, 7]), min_size=1, max_size=9)
)  # fmt: skip
def test_every_packing_has_a_place_for_every_pod(solver, used, sizes):
    types = [kind("small", price=0.1), kind("big", cpu=16, memory="64Gi", price=0.35, pods=40)]
    with pytest.MonkeyPatch.context() as patch:
        if not solver:
            patch.setattr(linear_programs, "_highs", lambda: None)
        found = plan(cluster_of(*fragmented(used, sizes)), types)
    assert found.status in {"optimal", "gap"}
    if found.packing is not None:
        assert holds(sorted(sizes, reverse=True), [*(16 - some for some in used), *packed(found, types)])
        assert found.lower_bound - 1e-9 <= found.packing.cost <= found.cost + 1e-9


def test_the_solver_prints_nothing(monkeypatch, capfd):
    """A solver that prints from C while it is made, as HiGHS 1.16 does, is not heard; what was printed before is."""
    highspy = pytest.importorskip("highspy")
    puts = ctypes.CDLL(None).puts

    class Loud(highspy.Highs):
        def __init__(self):
            puts(b"Running HiGHS")
            super().__init__()

    monkeypatch.setattr(highspy, "Highs", Loud)
    puts(b"before")
    objects = fragmented([0, 8, 4], [6] * 12)
    assert plan(cluster_of(*objects), [kind("small", price=0.1), kind("big", cpu=16, price=0.35)]).cost
    puts(b"after")
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr() == ("before\nafter\n", "")
