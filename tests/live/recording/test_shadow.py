"""The comparison of decisions: which nodes and reasons agree, and which plugins make a difference."""

import pytest

from moorage.core.engine.facts import Gone, Seen
from moorage.live.recording.shadow import Shadow, reasons_in
from tests.live.recording.scripted_log import a_node, a_pod
from tests.live.server.test_on_embedded_server import a_scheduler


class Following(Shadow):
    """A shadow of two nodes, the first of which is larger, and what it reports."""

    def __init__(self, *nodes):
        super().__init__(a_scheduler(), {})
        self.told = []
        self.on_difference = lambda found, at: self.told.append(found)
        for node in nodes:
            self.observe(Seen(node), 0.0, 0)

    def take(self, *facts, now=1.0, settled=True):
        for fact in facts:
            self.observe(fact, now, 0)
        if settled:
            self.settle(now + 100)
        return dict(self.agreement.bindings), dict(self.agreement.failures)


def waits_then(name, node, cpu="1", version="2", **spec):
    return Seen(a_pod(name, cpu, **spec)), Seen(a_pod(name, cpu, node=node, version=version, **spec))


def test_the_same_node_and_equal_scores_agree():
    shadow = Following(a_node("n1", "4"), a_node("n2", "4"))
    shadow.take(*waits_then("a", "n1"))
    found, _ = Following(a_node("n1", "4"), a_node("n2", "4")).take(*waits_then("a", "n2"))
    assert {*shadow.agreement.bindings, *found} == {"same", "equal score"}
    assert shadow.agreement.share == 1.0


def test_a_worse_node_is_a_difference_of_the_plugins_that_prefer_the_other():
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    assert shadow.take(*waits_then("a", "n2")) == ({"different": 1}, {})
    (found,) = shadow.told
    assert (found.node, found.ours, found.plugins) == ("n2", "n1", ("NodeResourcesBalancedAllocation", "NodeResourcesFit"))
    assert shadow.agreement.share == 0.0
    assert shadow.agreement.differences[0]["pod"] == "default/a"


def test_a_refused_node_is_a_difference_of_the_plugin_that_refuses_it():
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(*waits_then("a", "n2", cpu="4"))
    (found,) = shadow.told
    assert (found.plugins, found.our_message) == (("NodeResourcesFit",), "Insufficient cpu")


def test_bindings_may_be_seen_in_another_order():
    """The scheduler placed ``a`` on n1, so that ``b`` fits only on n2; the watch shows ``b`` first."""
    nodes = a_node("n1", "4"), a_node("n2", "3")
    shadow = Following(*nodes)
    (a, a_bound), (b, b_bound) = waits_then("a", "n1", cpu="3"), waits_then("b", "n2", cpu="2")
    assert shadow.take(a, b, b_bound, a_bound)[0] == {"same": 1, "same in another order": 1}
    assert not shadow.told


@pytest.mark.parametrize("node_first", [True, False])
def test_a_change_of_a_node_may_be_seen_in_another_order(node_first):
    """The watch shows the larger n2 before or after the decision that knew of the smaller or larger one."""
    shadow = Following(a_node("n1", "4"), a_node("n2", "2"))
    larger, (pod, bound) = Seen(a_node("n2", "16", version="2")), waits_then("a", "n1" if node_first else "n2")
    found, _ = shadow.take(pod, *((larger, bound) if node_first else (bound, larger)))
    assert found == {"same in another order": 1}
    assert [node.status.allocatable["cpu"] for node in shadow.scheduler.cluster.table.nodes] == ["4", "16"]


@pytest.mark.parametrize(("version", "is_compared"), [("7", False), ("12", True)])
def test_a_change_of_before_the_decision_may_be_told_late(version, is_compared):
    """The watch of nodes was interrupted, and tells 5 s after the decision that n1 became smaller before it, or after it."""
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(*waits_then("a", "n2", version="9"), settled=False)
    found, _ = shadow.take(Seen(a_node("n1", "1", version=version)), now=6.0)
    assert found == ({"different": 1} if is_compared else {})
    assert shadow.agreement.uncompared.total() == (not is_compared)


def test_a_deletion_under_way_may_be_seen_before_the_decision():
    """Spread does not count a pod that is being deleted, and the scheduler had not seen that yet."""
    zones = a_node("n1", "8", zone="a"), a_node("n2", "4", zone="b")
    constraint = {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }  # fmt: skip
    shadow = Following(*zones)
    labels = {"labels": {"app": "x"}}
    old = a_pod("old", "1", node="n1", meta=labels)
    leaving = a_pod("old", "1", node="n1", version="2", meta={**labels, "deletionTimestamp": "2026-11-24T00:00:00Z"})
    pod, bound = waits_then("a", "n2", cpu="1", topologySpreadConstraints=[constraint], meta=labels)
    found, _ = shadow.take(Seen(old), pod, Seen(leaving), Gone(leaving), bound)
    assert found == {"same in another order": 1}


def test_a_heartbeat_of_a_node_is_no_change():
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    found, _ = shadow.take(Seen(a_node("n1", "16", version="2")), *waits_then("a", "n2"))
    assert (found, len(shadow._recent)) == ({"different": 1}, 1)


def test_a_deletion_may_be_seen_before_the_decision():
    shadow = Following(a_node("n1", "4"), a_node("n2", "4"))
    old = a_pod("old", "2", node="n1")
    (a, a_bound) = waits_then("a", "n2", cpu="2")
    assert shadow.take(Seen(old), a, Gone(old), a_bound)[0] in ({"same in another order": 1}, {"equal score": 1}, {"same": 1})
    shadow = Following(a_node("n1", "8"), a_node("n2", "4"))
    old = a_pod("old", "7", node="n1")
    assert shadow.take(Seen(old), a, Gone(old), a_bound)[0] == {"same in another order": 1}
    assert shadow.scheduler.cluster.pod("u-old") is None


def test_failures_may_be_told_many_changes_later():
    """The scheduler failed to place ``a`` and ``b`` before ``old`` was deleted and twelve others bound, and says so later."""
    shadow = Following(a_node("n1", "4"), a_node("n2", "4"))
    old = a_pod("old", "2", node="n1")
    waiting = [Seen(a_pod(name, "3")) for name in ("a", "b")]
    others = [Seen(a_pod(f"other{number}", "10m", node="n2")) for number in range(12)]
    message = "0/2 nodes are available: 2 Insufficient cpu."
    told = [Seen(a_pod(name, "3", version="2", message=message)) for name in ("a", "b")]
    _, found = shadow.take(Seen(old), Seen(a_pod("stays", "2", node="n2")), *waiting, Gone(old), *others, *told)
    assert found == {"same in another order": 2}
    assert shadow.scheduler.cluster.pod("u-old") is None


def test_what_differs_around_a_list_is_not_compared():
    """A list after a broken watch does not tell in which order pods were bound and deleted, and nodes changed."""
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(*waits_then("before", "n2"), now=0.5, settled=False)
    shadow.lost_order(1.0)
    assert shadow.take(*waits_then("a", "n2")) == ({}, {})
    assert list(shadow.agreement.uncompared.values()) == [2]
    assert shadow.take(*waits_then("b", "n2"), now=60.0) == ({"different": 1}, {})


REASONS = {  # the message of the status; the verdict; plugins
    "the same": ("0/2 nodes are available: 2 Insufficient cpu.", "same", None),
    "what preemption found is not compared": (
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found.",
        "same", None,
    ),
    "other counts": ("0/3 nodes are available: 3 Insufficient cpu.", "different", ("NodeResourcesFit",)),
    "other reasons": ("0/2 nodes are available: 2 node(s) were unschedulable.", "different", ("NodeResourcesFit",)),
}  # fmt: skip


@pytest.mark.parametrize(("message", "verdict", "plugins"), REASONS.values(), ids=REASONS)
def test_failures_are_compared_by_their_reasons(message, verdict, plugins):
    shadow = Following(a_node("n1"), a_node("n2"))
    found = shadow.take(Seen(a_pod("a", "9")), Seen(a_pod("a", "9", version="2", message=message)))
    assert found == ({}, {verdict: 1})
    assert [one.plugins for one in shadow.told] == ([] if plugins is None else [plugins])
    assert shadow.pending == 1
    assert [*shadow.messages()] == [message]


def test_a_failure_of_a_pod_that_fits_is_a_difference():
    shadow = Following(a_node("n1"))
    shadow.take(Seen(a_pod("a")), Seen(a_pod("a", version="2", message="0/1 nodes are available: 1 Insufficient cpu.")))
    assert [one.ours for one in shadow.told] == ["n1"]


def test_what_cannot_be_compared_is_counted():
    shadow = Following(a_node("n1"))
    shadow.take(Seen(a_pod("daemon", node="n1")))
    shadow.observe(waits_then("a", "n1")[0], 2.0, 0)
    shadow.observe(waits_then("a", "n1")[1], 2.0, 0, compares=False)
    assert dict(shadow.agreement.uncompared) == {
        "was never seen without a node": 1, "the recorder was starting or behind": 1,
    }  # fmt: skip
    shadow.take(*waits_then("other", "n1", schedulerName="another"))
    assert shadow.agreement.compared == 0


def test_a_node_that_is_best_of_a_sample_agrees():
    """Of 130 nodes kube-scheduler looks at 100 in turn, so it may miss the best one."""
    nodes = [a_node(f"n{number:03}", "8" if number == 5 else "4") for number in range(130)]
    assert Following(*nodes).take(*waits_then("a", "n050"))[0] == {"best of a sample": 1}
    many = [a_node(f"n{number:03}", "8" if number % 20 == 5 else "4") for number in range(130)]
    assert Following(*many).take(*waits_then("a", "n050"))[0] == {"different": 1}


def test_reasons_are_split_at_their_counts():
    text = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 a reason, with a comma. preemption: 0/3 x."
    assert reasons_in(text) == ["0/3 nodes are available", "1 node(s) had untolerated taint(s)", "2 a reason, with a comma"]


@pytest.mark.slow
def test_the_differences_that_wait_are_limited():
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(Seen(a_pod("large", "1500m", node="n2")), now=-20.0, settled=False)
    for number in range(210):
        shadow.take(*waits_then(f"p{number}", "n2", cpu="1m"), settled=False)
    assert shadow.agreement.bindings == {"different": 10}
