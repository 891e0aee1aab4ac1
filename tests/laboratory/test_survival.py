"""Lost nodes: what becomes of their pods, which loss is worst, and what would let the cluster survive."""

import random
from itertools import count

import pytest

import moorage
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.survive import survival
from moorage.laboratory.survive.survival import worst_of
from moorage.laboratory.survive.survival_question import SurvivalAsked, survival_report
from moorage.report.answer import AnswerRequest
from moorage.report.survival_report import NodeLoss
from tests.laboratory.random_world import OTHERS, World
from tests.laboratory.test_drain import node, pod

ZONE = "topology.kubernetes.io/zone"
DEMO = "examples/demo"


pytestmark = pytest.mark.slow


def cluster(*objects):
    return moorage.Cluster.from_objects(*objects)


def lost(*objects, nodes=("n1",), mode="deleted"):
    held = cluster(*objects)
    before = held.digest()
    loss = held.fail(*nodes, mode=mode).loss
    assert held.digest() == before
    return loss


@pytest.fixture(scope="module")
def demo():
    return moorage.Cluster.read(DEMO)


def test_zones_of_the_demo(demo):
    survival = demo.survive("zone")
    assert [(one.lost, one.pods, one.pending, one.lost_for_good) for one in survival.failures] == [
        ("zone-a", 9, ("default/search-1",), ("kube-system/coredns-6f6b679f8f-4xk2m", "default/inference")),
        ("zone-b", 9, ("default/search-0",), ("kube-system/coredns-6f6b679f8f-q9d7w", "default/training-release")),
        ("zone-c", 5, (), ("default/ledger-0",)),
    ]
    assert survival.worst == ("zone-a", "zone-b")
    assert len(survival.pending_before) == 2
    assert not survival.survives
    assert survival.fix.commands == ("kubectl uncordon general-c2", "kubectl label node general-a2 general-b2 disk=ssd")
    assert survival.fix.notes == (
        "Uncordoning only general-c2 places search-2, but then losing any zone leaves 1 pod pending.",
    )


def test_a_fix_of_the_demo_works_in_a_cluster_that_was_changed_by_hand(demo):
    fixed = demo.fork()
    fixed.apply("node/general-c2 unschedulable=false", "node/general-a2 labels.disk=ssd", "node/general-b2 labels.disk=ssd")
    assert fixed.survive("zone").survives
    for edits in (["node/general-a2 labels.disk=ssd"], ["node/general-c2 unschedulable=false"]):
        less = demo.fork()
        less.apply(*edits)
        assert not less.survive("zone", fix_probes=0).survives


def test_a_drained_node_still_counts_as_a_domain_and_a_lost_one_does_not():
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
    objects = [
        node("n1", **{ZONE: "a"}), node("n2", **{ZONE: "b"}), pod("web-a", "n1", topologySpreadConstraints=spread),
        pod("web-b", "n2", topologySpreadConstraints=spread),
    ]  # fmt: skip
    report = cluster(*objects).drain("n1")
    assert len(report.pending) == 1
    assert report.if_lost.moves == 1
    assert lost(*objects).pending == ()


def test_pods_without_a_controller_are_lost_for_good_and_daemon_pods_are_not_counted():
    mirror = pod("mirror", "n1", "Node/n1")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    loss = lost(node("n1"), node("n2"), pod("web", "n1"), pod("bare", "n1", ""), pod("agent", "n1", "DaemonSet/agent"), mirror)
    assert (loss.pods, loss.moves, loss.pending, loss.lost_for_good) == (4, 1, (), ("default/bare",))


def test_an_unreachable_node_keeps_the_pods_of_stateful_sets():
    forever = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]
    objects = [
        node("n1"), node("n2"), pod("web", "n1"), pod("db-0", "n1", "StatefulSet/db"), pod("bare", "n1", ""),
        pod("calm", "n1", "", tolerations=forever),
    ]  # fmt: skip
    loss = lost(*objects, mode="unreachable")
    assert (loss.stuck, loss.moves, loss.lost_for_good) == (("default/db-0",), 1, ("default/bare",))
    report = cluster(*objects).fail("n1", mode="unreachable")
    assert not report.holds
    deleted = lost(*objects)
    assert (deleted.stuck, deleted.moves, deleted.lost_for_good) == ((), 2, ("default/bare", "default/calm"))


def test_preempted_pods_are_named():
    low = pod("low", "n2", cpu="3", priority=1)
    loss = lost(node("n1"), node("n2"), pod("high", "n1", cpu="3", priority=9), low)
    assert loss.preempted == ("default/low",)
    assert len(loss.pending) == 1  # the replacement of the preempted pod


def test_equal_nodes_are_computed_once_and_give_what_each_would_give_alone():
    nodes = [node(f"n{i}", cpu="2") for i in range(6)]
    pods = [pod(f"web-{i}{j}", f"n{i}", cpu="1") for i in range(4) for j in range(2)]
    pods += [pod(f"db-{i}", f"n{i}", "StatefulSet/db", cpu="1") for i in (4, 5)]
    held = cluster(*nodes, *pods)
    survival = held.survive(fix_probes=0)
    assert [one.same_as for one in survival.failures] == [None, "n0", "n0", "n0", None, None]
    for loss in survival.failures:
        alone = held.fail(loss.lost).loss
        assert (loss.nodes, loss.pods, loss.pending, loss.moves) == (alone.nodes, alone.pods, alone.pending, alone.moves)


def test_two_at_a_time_are_run_even_where_one_is_bad_already(demo):
    survival = demo.survive("zone", depth=2, fix_probes=0)
    assert [one.lost for one in survival.failures] == [
        "zone-a", "zone-b", "zone-c", "zone-a + zone-b", "zone-a + zone-c", "zone-b + zone-c",
    ]  # fmt: skip


def test_pending_pods_of_the_highest_class_decide_what_is_worst():
    many = NodeLoss("many", ("n1",), 9, pending=("a", "b", "c"), by_priority={"": 3})
    few = NodeLoss("few", ("n2",), 9, pending=("a",), by_priority={"high": 1})
    same = NodeLoss("same", ("n3",), 9, pending=("z",), by_priority={"high": 1})
    cpu = NodeLoss("cpu", ("n4",), 9, pending=("z",), by_priority={"high": 1}, pending_cpu_milli=5)
    rank = {"high": 10, "": 0}.__getitem__
    assert worst_of([many, few, same], rank) == ("few", "same")
    assert worst_of([many, few, same, cpu], rank) == ("cpu",)
    assert worst_of([NodeLoss("fine", ("n5",), 9)], rank) == ()


@pytest.mark.parametrize("pods", [4, 5, 6])
def test_the_fewest_spare_nodes_are_counted_upward(pods):
    """Three nodes of two pods each: any two of them, and the spare nodes, have to take all pods."""
    held = [pod(f"p{i}", f"n{i % 3}", cpu="1") for i in range(pods)]
    survival = cluster(*(node(f"n{i}", cpu="2") for i in range(3)), *held).survive(spare="n0", fix_probes=0)
    assert survival.spare.nodes == {4: 0, 5: 1, 6: 1}[pods]
    assert survival.survives == (pods == 4)


def test_priorities_without_a_class_count_too():
    objects = [node("n1"), node("n2"), node("n3", cpu="1"), pod("low-a", "n1", cpu="2"), pod("low-b", "n1", cpu="2")]
    objects += [pod("full", "n2", cpu="1"), pod("high", "n2", cpu="3", priority=7, preemptionPolicy="Never")]
    survival = cluster(*objects).survive(fix_probes=0)
    assert [dict(one.by_priority) for one in survival.failures] == [{"": 2}, {"7": 1}, {}]
    assert survival.worst == ("n2",)


@pytest.mark.parametrize("seed", [2, 11])
def test_questions_leave_no_trace_and_fixes_work(seed):
    world = World(seed)
    held = world.cluster()
    for _ in range(3):
        world.act(held)
    before = held.digest()
    names = list(held.nodes["name"])
    held.drain(*names[:2], force=True, ignore_daemonsets=True, delete_emptydir_data=True, find_order=True, returns=seed == 2)
    held.fail(names[0], mode="unreachable")
    survival = held.survive()
    assert held.digest() == before
    for command in survival.fix.commands:
        words = command.split()
        edit = f"{words[2]} unschedulable=false" if words[1] == "uncordon" else f"{words[3]} taints.{words[4]}"
        held.apply(f"node/{edit}")
    for change in survival.fix.changes:
        if change.startswith("add a node "):
            held.apply("node/{4}-new like={4}".format(*change.split()))
    assert held.survive(fix_probes=0).survives


def test_several_processes_give_the_same_answer(demo):
    one, two = (demo.survive(processes=number, fix_probes=0) for number in (1, 2))
    assert one.failures == two.failures


def test_labels_and_nodes_that_are_not_there_are_errors(demo):
    with pytest.raises(InputError, match="no node has the label rack"):
        demo.survive("rack")
    with pytest.raises(InputError, match="no node has the name 'n9'"):
        demo.survive("zone", spare="n9")
    with pytest.raises(InputError, match="no node has the name 'n9'"):
        demo.fail("n9")
    with pytest.raises(InputError, match="no node is in 'x'; zones: "):
        demo.fail(zone="x")
    with pytest.raises(InputError, match="nodes or a zone, not both"):
        demo.fail("general-a1", zone="zone-a")


def test_a_zone_is_lost_as_its_nodes_are(demo):
    nodes = [one.name for one in demo.snapshot.table.nodes if one.metadata.labels[ZONE] == "zone-a"]
    by_zone, by_name = demo.fail(zone="zone-a"), demo.fail(*nodes)
    assert len(by_zone.loss.nodes) > 1
    assert by_zone.loss.moves == by_name.loss.moves
    assert by_zone.loss.pending == by_name.loss.pending


@pytest.mark.parametrize("seed", range(2))
def test_a_loss_is_what_a_fresh_engine_makes_of_the_changed_objects(seed):
    """Without ties and in the order of the queue, the pods that stay pending are those of a new run."""
    pick = random.Random(seed)
    nodes = [node(f"n{i}", cpu=str(pick.choice([2, 3])), disk=pick.choice(["ssd", "hdd"])) for i in range(4)]
    pods = []
    for i in range(8):
        selector = {"nodeSelector": {"disk": "ssd"}} if pick.random() < 0.4 else {}
        pods.append(pod(f"db{i}-0", "", f"StatefulSet/db{i}", cpu="1", app=f"a{i % 3}", priority=100 - i, **selector))
    held = cluster(*nodes, *pods)
    held.run()
    at_rest = held.objects()
    was = {one.pod.key for one in held.simulation.records.values() if one.state == "Pending"}
    for one in nodes:
        name = one["metadata"]["name"]
        loss = held.fail(name).loss
        left = [obj for obj in at_rest if not (isinstance(obj, moorage.api.core.Node) and obj.name == name)]
        left = [
            obj.replace(spec=obj.spec.replace(node_name=""))
            if isinstance(obj, moorage.api.core.Pod) and obj.spec.node_name == name
            else obj
            for obj in left
        ]
        fresh = moorage.Cluster.from_objects(*left)
        fresh.run()
        pending = {one.pod.key for one in fresh.simulation.records.values() if one.state == "Pending"}
        assert len(pending - was) == len(loss.pending)


# -- pods that no loss can help ----------------------------------------------------------------------------------------------


def crowded(seed):
    """A cluster with few free places, pods of several priorities, and many that fit nowhere."""
    draw = random.Random(seed)
    nodes = [node(f"n{at}", cpu=str(draw.choice([4, 6, 8]))) for at in range(10)]
    placed = [
        pod(f"web{at}-a", f"n{draw.randrange(10)}", cpu=draw.choice(["1", "2", "3"]), priority=draw.choice([0, 0, 10]))
        for at in range(12)
    ]
    waiting = [pod(f"big{at}-a", "", cpu=draw.choice(["7", "9", "30"]), priority=draw.choice([0, 5, 20])) for at in range(8)]
    return cluster(*nodes, *placed, *waiting)


@pytest.mark.parametrize("seed", range(8))
def test_pods_that_no_loss_can_help_change_no_outcome(seed, monkeypatch):
    held = crowded(seed)
    helped = held.survive(fix_probes=0)
    monkeypatch.setattr(survival, "helpless_pods", lambda cluster: [])
    every = held.survive(fix_probes=0)
    assert helped.failures == every.failures
    assert helped.proof == every.proof


def roomy(seed):
    """A cluster with room for most pods: host ports, taints, cordons, spreading, affinity and volumes, and pods that wait."""
    world = World(seed)
    nodes = [world.node(f"n{at}") for at in range(14)]
    placed = [world.pod(f"n{world.random.randrange(14)}") for _ in range(16)]
    waiting = [pod("big", "", cpu="30"), pod("gated", "", schedulingGates=[{"name": "g"}])]
    waiting.append(pod("claims", "", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]))
    return moorage.Cluster.from_objects(nodes, placed, waiting[: seed % 4], OTHERS)


def test_losses_that_are_certain_end_as_their_runs_do(monkeypatch):
    certain = hurt = 0
    for seed in range(40):
        held = roomy(seed)
        before = held.digest()
        ran = held.survive(fix_probes=0)
        monkeypatch.setattr(survival, "ALL_RUN", 0)
        found = held.survive(fix_probes=0)
        monkeypatch.undo()
        assert (found.failures, found.survives, found.worst) == (ran.failures, ran.survives, ran.worst), seed
        assert (ran.certain, found.proof.runs + found.certain) == (0, ran.proof.runs)
        assert held.digest() == before
        certain, hurt = certain + found.certain, hurt + sum(bool(loss.pending) for loss in ran.failures)
    assert certain > 200
    assert hurt >= 5


def test_the_losses_that_were_not_looked_at_are_named(monkeypatch):
    monkeypatch.setattr(survival, "ALL_RUN", 0)
    held = roomy(3)
    looks = count()
    asked = SurvivalAsked(fix_probes=0, budget=TimeBudget(20, looks.__next__))
    found = survival_report(held, AnswerRequest(release="1.36"), asked)
    assert {*found.unknown, *(loss.lost for loss in found.failures)} == set(held.nodes["name"])
    assert len(found.unknown) == found.not_run > 0
    assert found.certain > 0
    assert "is known." in found.summary or "are known" in found.summary
    assert "each pod fits on more nodes" in " ".join(found.text().split())
