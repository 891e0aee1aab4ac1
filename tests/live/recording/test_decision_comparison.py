"""The comparison of decisions: which nodes and reasons agree, and which plugins make a difference."""

import pytest
from msgspec.structs import replace

from moorage.api.decode import decode
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.core.engine.facts import Gone, Seen
from moorage.live.recording.decision_comparison import _UNDER_WAY, _UNTOLD, Shadow, reasons_in
from tests.live.recording.scripted_log import a_node, a_pod
from tests.live.server.test_on_embedded_server import a_scheduler


class Following(Shadow):
    """A shadow of two nodes, the first of which is larger, and what it reports."""

    def __init__(self, *nodes):
        super().__init__(a_scheduler(), {})
        self.told, self.version = [], 0
        self.on_difference = lambda found, at: self.told.append(found)
        for node in nodes:
            self.observe(self.numbered(Seen(node)), 0.0, 0)

    def numbered(self, fact):
        """Return a fact with the next resource version, unless it has one above 2."""
        meta = fact.obj.metadata
        if int(meta.resource_version) > 2:
            return fact
        self.version += 1
        return replace(fact, obj=replace(fact.obj, metadata=replace(meta, resource_version=str(self.version))))

    def take(self, *facts, now=1.0, early=None, settled=True):
        for fact in facts:
            self.observe(self.numbered(fact), now, 0, early)
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


@pytest.mark.parametrize(("deleted_s", "message", "judged"), [(9.5, "", False), (8.0, "", True), (9.5, "0/2 nodes.", True)])
def test_a_new_pod_that_is_deleted_may_have_been_counted_on_a_node(deleted_s, message, judged):
    """The scheduler had placed ``new`` on n1, and its binding failed as it was deleted; no one else can see that."""
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    waits, bound = waits_then("a", "n2")
    shadow.take(waits, Seen(a_pod("new", message=message)), now=1.0)
    shadow.take(Gone(a_pod("new")), now=deleted_s)
    found, _ = shadow.take(bound, now=10.0)
    assert (found, [*shadow.agreement.uncompared]) == (({"different": 1}, []) if judged else ({}, [_UNDER_WAY]))


def test_a_change_of_a_node_may_be_seen_in_another_order():
    """The watch shows the larger n2 before the decision that knew of the smaller one."""
    shadow = Following(a_node("n1", "4"), a_node("n2", "2"))
    larger, (pod, bound) = Seen(a_node("n2", "16", version="2")), waits_then("a", "n1")
    found, _ = shadow.take(pod, larger, bound)
    assert found == {"same in another order": 1}
    assert [node.status.allocatable["cpu"] for node in shadow.scheduler.cluster.table.nodes] == ["4", "16"]


def test_the_scheduler_cannot_have_known_of_changes_after_its_write():
    """Only bindings may be written after a decision that counted them."""
    shadow = Following(a_node("n1", "4"), a_node("n2", "2"))
    larger, (pod, bound) = Seen(a_node("n2", "16", version="2")), waits_then("a", "n2")
    assert shadow.take(pod, bound, larger)[0] == {"different": 1}


@pytest.mark.parametrize(("version", "verdict"), [("7", "same"), ("12", "different")])
def test_resource_versions_order_what_an_interrupted_watch_tells_late(version, verdict):
    """The watch of nodes tells 50 s after the decision that n1 became smaller before it, or after it."""
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(*waits_then("a", "n2", version="9"), settled=False)
    assert not shadow.settle(1.5)
    found, _ = shadow.take(Seen(a_node("n1", "1", version=version)), now=51.0, early=0.5)
    assert found == {verdict: 1}
    assert [node.status.allocatable["cpu"] for node in shadow.scheduler.cluster.table.nodes] == ["1", "2"]


def test_a_difference_waits_for_the_resource_version_of_each_watch():
    """A watch that was heard from may still have to tell what happened before: its resource version says so."""
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(*waits_then("a", "n2", version="9"), settled=False)
    assert not shadow.settle(60.0, 8)
    assert shadow.agreement.compared == 0
    shadow.take(Seen(a_node("n1", "1", version="7")), now=61.0, settled=False)
    assert not shadow.settle(61.0, 9)
    assert dict(shadow.agreement.bindings) == {"same": 1}


@pytest.mark.parametrize(
    ("early", "heartbeat", "verdict"),
    [
        (20.0, None, "different"),
        (2.0, None, "same in another order"),
        (20.0, 2.0, "same in another order"),
        (20.0, 18.0, "different"),
    ],
)
def test_a_decision_that_a_watch_tells_late_knew_what_was_new_then(early, heartbeat, verdict):
    """The watch of pods was interrupted: the change of 20 s before it tells of the decision may be newer than the decision.

    A heartbeat of a node with a later resource version came after the decision, even if the watch of pods tells of it as news.
    """
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    waits, bound = waits_then("a", "n1", version="9")
    shadow.take(waits, Seen(a_node("n1", "1", version="7")))
    if heartbeat is not None:
        shadow.take(Seen(a_node("n2", "2", version="10")), now=heartbeat)
    assert shadow.take(bound, now=21.0, early=early)[0] == {verdict: 1}


@pytest.mark.parametrize(("surely", "heartbeat", "verdict"), [(2.0, None, "same in another order"), (2.0, 18.0, "different")])
def test_a_decision_of_a_slow_watch_is_old_unless_another_watch_dates_it(surely, heartbeat, verdict):
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    waits, bound = waits_then("a", "n1", version="9")
    shadow.take(waits, Seen(a_node("n1", "1", version="7")))
    if heartbeat is not None:
        shadow.take(Seen(a_node("n2", "2", version="10")), now=heartbeat)
    shadow.observe(bound, 21.0, 0, 21.0, surely)
    assert shadow.take(now=21.0)[0] == {verdict: 1}


def test_nodes_that_came_and_went_are_taken_back():
    shadow = Following(a_node("n1", "4"), a_node("n2", "2"))
    (pod, bound), old = waits_then("a", "n1"), a_pod("old", "1", node="n3")
    shadow.take(Seen(a_node("n0", "1")), pod)
    found, _ = shadow.take(Seen(a_node("n3", "16")), Seen(old), Gone(a_node("n0", "1")), bound)
    assert found == {"same in another order": 1}
    assert sorted(node.name for node in shadow.scheduler.cluster.table.nodes) == ["n1", "n2", "n3"]
    assert shadow.scheduler.cluster.pod("u-old") is not None


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
    assert (found, len(shadow._changes)) == ({"different": 1}, 3)


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


@pytest.mark.parametrize(("told_until", "early", "different"), [(0.4, 1.2, 0), (2.0, 1.2, 1), (0.4, 30.0, 1), (2.0, 30.0, 2)])
def test_what_differs_around_a_list_cannot_be_judged(told_until, early, different):
    """A list does not tell the order of what changed after the last news; what happened before or long after is known."""
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(*waits_then("before", "n2"), now=0.5, settled=False)
    shadow.settle(told_until)
    shadow.lost_order(3.0, 0)
    found, _ = shadow.take(*waits_then("a", "n2"), now=31.0, early=early)
    assert (found, shadow.agreement.uncompared.total()) == ({"different": different} if different else {}, 2 - different)
    assert all(why.startswith("cannot be judged: ") for why in shadow.agreement.uncompared)


def test_what_waits_at_the_end_cannot_be_judged():
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(*waits_then("a", "n2"), settled=False)
    shadow.end()
    assert (shadow.agreement.compared, [*shadow.agreement.uncompared]) == (0, [_UNTOLD])


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


def test_the_differences_that_wait_are_limited(monkeypatch):
    monkeypatch.setattr("moorage.live.recording.decision_comparison._WAITING", 5)
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    for number in range(8):
        shadow.take(*waits_then(f"p{number}", "n2", cpu="150m"), settled=False)
    assert shadow.agreement.uncompared.total() == 3
    assert shadow.take() == ({"different": 5}, {})


def test_failures_of_equal_pods_are_looked_into_together(monkeypatch):
    """One decision on a state is enough for all replicas that failed there, whatever their messages are."""
    shadow = Following(a_node("n1", "4"), a_node("n2", "4"))
    old, left = a_pod("old", "2", node="n1"), "0/2 nodes are available: 2 Insufficient cpu."
    waiting = [Seen(a_pod(f"a{number}", "3")) for number in range(30)]
    told = [Seen(a_pod(f"a{number}", "3", version="2", message=left)) for number in range(29)]
    told.append(Seen(a_pod("a29", "3", version="2", message="0/2 nodes are available: 2 node(s) were unschedulable.")))
    shadow.take(Seen(old), Seen(a_pod("stays", "2", node="n2")), *waiting, Gone(old), *told, settled=False)
    judged, made = shadow._judged, []
    monkeypatch.setattr(shadow, "_judged", lambda pod, *rest: made.append(pod.key) or judged(pod, *rest))
    shadow.take()
    assert shadow.take() == ({}, {"same in another order": 29, "different": 1})
    assert len(made) < 40


def test_what_there_is_no_time_for_is_not_judged():
    """Many decisions differ at first: some are looked into, and the others count as these do."""
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    shadow.take(*waits_then("first", "n2"))
    shadow._tries = 0
    shadow._sure = 1000.0
    shadow.take(Seen(a_pod("old", "1", node="n1")), *waits_then("second", "n2"), now=900.0)
    agreement = shadow.agreement
    many = [count for why, count in agreement.uncompared.items() if why.startswith("not judged: too many")]
    assert (agreement.bindings, many) == ({"different": 1}, [1])
    assert agreement.share == 0.0


def test_a_scheduler_may_know_of_its_last_bindings_and_of_no_other_change_since():
    """It had not seen that ``old`` went, knew that it had bound ``b``, and not yet bound ``c``, which takes the port."""
    shadow = Following(a_node("n1", "4"), a_node("n2", "4"), a_node("n3", "4"))

    def with_port(name, cpu, **fields):
        resources = {"resources": {"requests": {"cpu": cpu}}, "ports": [{"containerPort": 80, "hostPort": 80}]}
        return a_pod(name, containers=[{"name": "c", "image": "i", **resources}], **fields)

    old, (b, b_bound) = a_pod("old", "2", node="n1"), waits_then("b", "n3", cpu="2")
    told = with_port("a", "3", version="2", message="0/3 nodes are available: 3 Insufficient cpu.")
    changes = Gone(old), b_bound, Seen(with_port("c", "10m", node="n3", version="2")), Seen(told)
    before = Seen(old), Seen(a_pod("stays", "2", node="n2")), b, Seen(with_port("c", "10m")), Seen(with_port("a", "3"))
    _, found = shadow.take(*before, *changes)
    assert found == {"same in another order": 1}


def resized(*sizes):
    """Facts of n1 that has one size after the other."""
    return [Seen(a_node("n1", cpu, version="2")) for cpu in sizes]


def small(count):
    return ["4" if at % 2 else "5" for at in range(count)]


@pytest.mark.parametrize("back", range(1, 61))
def test_the_state_before_each_of_the_last_sixty_changes_is_tried(back):
    """Only before the ``back``-th change before the decision was written, n1 had room."""
    shadow = Following(a_node("n1", "4"), a_node("n2", "8"))
    waits, bound = waits_then("a", "n1", cpu="7")
    found, _ = shadow.take(waits, *resized(*small(9), "16", *small(back)), bound)
    assert found == {"same in another order": 1}
    assert [node.status.allocatable["cpu"] for node in shadow.scheduler.cluster.table.nodes] == [small(back)[-1], "8"]


@pytest.mark.parametrize("back", [6, 21, 40, 60])
def test_each_state_is_tried_after_a_list_too(back):
    shadow = Following(a_node("n1", "4"), a_node("n2", "8"))
    waits, bound = waits_then("a", "n1", cpu="7")
    shadow.take(waits, *resized(*small(9), "16", *small(back)), settled=False)
    shadow.lost_order(1.0, 0)
    assert shadow.take(bound)[0] == {"same in another order": 1}


def nominated(name, node, **more):
    pod = a_pod(name, **more)
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


@pytest.mark.parametrize("ends", [True, False])
def test_nominations_are_those_of_the_moment(ends):
    """A nomination to n1 ended, or began, after the decision and before it was written."""
    shadow = Following(a_node("n1", "4"), a_node("n2", "3"))
    others = [nominated("first", "n1", cpu="3", priority=5), a_pod("first", "3", version="2", priority=5)]
    first, then = others if ends else reversed(others)
    waits, bound = waits_then("a", "n2" if ends else "n1", cpu="2", priority=1)
    found, _ = shadow.take(Seen(first), waits, Seen(then), bound)
    assert found == {"same in another order": 1}
    assert {node for node, pods in shadow.scheduler.queue.nominated.items() if pods} == (set() if ends else {"n1"})


def a_claim(volume="", version="1"):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s"}
    metadata = {"name": "data", "namespace": "default", "uid": "u-data", "resourceVersion": version}
    if volume:
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return decode(
        {"metadata": metadata, "spec": {**spec, "volumeName": volume}, "status": {"phase": "Bound" if volume else "Pending"}},
        PersistentVolumeClaim, "test",
    )  # fmt: skip


def a_volume(node):
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "s",
        "claimRef": {"namespace": "default", "name": "data", "uid": "u-data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }  # fmt: skip
    return decode(
        {"metadata": {"name": "pv", "uid": "u-pv", "resourceVersion": "1"}, "spec": spec, "status": {"phase": "Bound"}},
        PersistentVolume,
        "test",
    )


def test_claims_are_put_back():
    """The claim was bound to the volume of n2 when the scheduler decided, and lost that before the decision was written."""
    shadow = Following(*(a_node(name, "8", **{"kubernetes.io/hostname": name}) for name in ("n1", "n2")))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    waits, bound = waits_then("a", "n2", volumes=volumes)
    facts = [Seen(a_volume("n2")), Seen(a_claim("pv")), waits, Seen(a_claim(version="2")), bound]
    assert shadow.take(*facts)[0] == {"same in another order": 1}
    assert shadow.scheduler.cluster.objects(PersistentVolumeClaim)["default/data"].spec.volume_name == ""


@pytest.mark.parametrize(("version", "judged"), [("7", False), ("12", True)])
def test_what_a_watch_tells_late_is_as_old_as_its_resource_version(version, judged):
    """The watch of pods tells at 60 s, as if it were news, of a decision from before the list of nodes of 20 s."""
    shadow = Following(a_node("n1", "16"), a_node("n2", "2"))
    waits, bound = waits_then("a", "n2", version=version)
    shadow.take(waits)
    shadow.lost_order(20.0, 9)
    shadow.take(Seen(a_node("n3", "1", version="9")), now=20.0)
    found, _ = shadow.take(bound, now=60.0)
    assert (found, shadow.agreement.uncompared.total()) == (({"different": 1}, 0) if judged else ({}, 1))
