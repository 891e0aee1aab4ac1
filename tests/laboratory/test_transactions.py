"""A rollback restores everything that later decisions depend on: sums, order, and the queue."""

from __future__ import annotations

import pickle

import pytest

import moorage
from moorage.errors import CopyError, InputError, StateError
from moorage.framework.verdicts import Hold
from moorage.laboratory import cluster as cluster_module
from tests.laboratory.random_world import DeviceWorld, GroupWorld, World

HEAD = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def decisions(cluster, world):
    """Return the next fifty decisions, and what became of all pods afterwards."""
    world.made = 1000
    cluster.add([world.pod() for _ in range(50)])
    return [str(one) for one in cluster.schedule()], cluster.run(cluster.now_s + 200).pods


def played(cluster):
    """Return the cluster that the history leads to when it is played again."""
    return pickle.loads(pickle.dumps(cluster))


OPTIONS = {
    "all nodes": {},
    "a sample of nodes": {"config": HEAD + b"percentageOfNodesToScore: 1\n"},
    "release 1.21": {"release": "1.21"},
}


WORLDS = {
    **{name: (World, options) for name, options in OPTIONS.items()},
    "devices": (DeviceWorld, {}),
    "groups": (GroupWorld, {}),
}


def no_history(history):
    raise AssertionError("the history was played again")


@pytest.mark.slow
@pytest.mark.parametrize(("made", "options"), WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("seed", range(2))
def test_a_rollback_leaves_a_cluster_that_decides_like_a_fresh_one(seed, made, options, monkeypatch):
    world = made(seed)
    cluster = world.cluster(**options)
    cluster.digest()
    with monkeypatch.context() as during:
        during.setattr(cluster_module, "play", no_history)
        rolled_back(cluster, world)
    fresh = played(cluster)
    assert fresh.digest() == cluster.digest()
    assert decisions(cluster, another(made, seed)) == decisions(fresh, another(made, seed))
    assert fresh.digest() == cluster.digest()


def another(made, seed):
    world = made(seed + 100)
    world.version = "v1alpha2"
    return world


def rolled_back(cluster, world):
    """Roll back random operations several times."""
    for _ in range(4):
        for _ in range(2):
            world.act(cluster)
        before = cluster.digest()
        with cluster.transaction():
            for _ in range(5):
                world.act(cluster, 1)
        assert cluster.digest() == before


@pytest.fixture
def cluster():
    return World(1).cluster()


def test_changes_are_taken_back_without_a_commit_and_on_an_exception(cluster):
    before = cluster.digest()
    with cluster.transaction():
        cluster.apply("node/n1 labels.disk=tape")
        assert cluster.get("node/n1").labels["disk"] == "tape"
    assert cluster.digest() == before
    with pytest.raises(ZeroDivisionError):
        fail_within(cluster)
    assert cluster.digest() == before


def fail_within(cluster):
    with cluster.transaction() as t:
        cluster.schedule()
        t.commit()
        1 / 0  # noqa: B018


def test_an_inner_transaction_belongs_to_the_outer_one(cluster):
    before = cluster.digest()
    with cluster.transaction() as outer:
        with cluster.transaction():
            cluster.remove("node/n1")
        with cluster.transaction() as inner:
            cluster.remove("node/n2")
            inner.commit()
        assert {"n1", "n2"} & set(cluster.nodes["name"]) == {"n1"}
        kept = cluster.digest()
        outer.commit()
    assert cluster.digest() == kept != before
    assert played(cluster).digest() == kept


def test_a_removed_group_comes_back_with_its_pods_where_they_waited():
    a_node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": 1, "pods": 9}}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }  # fmt: skip
    spec = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}], "schedulingGroup": {"podGroupName": "g"},
    }  # fmt: skip
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec} for name in "ab"]
    cluster = moorage.Cluster.from_objects(a_node, group, pods, feature_gates="GenericWorkload=true", release="1.37")
    cluster.schedule()
    with cluster.transaction():
        cluster.remove("podgroup/g")
    assert played(cluster).digest() == cluster.fork().digest()
    cluster.add({**a_node, "metadata": {"name": "n2"}})
    cluster.run()
    assert {row["node"] for row in cluster.pods} == {"n1", "n2"}


def test_a_transaction_is_used_once(cluster):
    with cluster.transaction() as t:
        pass
    with pytest.raises(StateError, match="is used once"), t:
        pass


def test_a_dry_run_tells_the_placements_and_changes_nothing(cluster):
    before = cluster.digest()
    told = cluster.schedule(dry_run=True)
    assert cluster.digest() == before
    assert cluster.schedule() == told


def test_a_fork_is_independent(cluster):
    cluster.schedule()
    fork, before = cluster.fork(), cluster.digest()
    fork.remove("node/n1")
    assert cluster.digest() == before != fork.digest()
    with cluster.transaction():
        cluster.remove("node/n1")
        within = cluster.fork()
    assert within.digest() == fork.digest()


def test_a_sampled_search_starts_where_it_would_have_started():
    world = World(3)
    nodes = [{**world.node(f"n{at}"), "spec": {}} for at in range(130)]
    cluster = moorage.Cluster.from_objects(
        nodes, [world.pod() for _ in range(6)], config=HEAD + b"percentageOfNodesToScore: 5\n"
    )
    before = cluster.digest()
    with cluster.transaction():
        cluster.schedule()
        assert cluster.scheduler.cycle.order.start
    assert cluster.digest() == before
    assert cluster.scheduler.cycle.order.start == 0


class Local:
    name = "Local"

    def filter_node(self, pod, node):
        return None


def test_a_cluster_is_pickled_with_its_state_or_refused(cluster):
    cluster.schedule()
    assert pickle.loads(pickle.dumps(cluster)).digest() == cluster.digest()
    within = type("Within", (Local,), {"__qualname__": "make.<locals>.Within"})
    with pytest.raises(CopyError, match="plugin Local is defined in a function"):
        pickle.dumps(moorage.Cluster.from_objects(World(1).node("n"), plugins=[within]))
    with pytest.raises(CopyError, match="the option 'ask' cannot be pickled"):
        pickle.dumps(moorage.Cluster.from_objects(World(1).node("n"), ask=lambda question: b""))


class Counting(Local):
    """Refuse every pod after the second that it reserved a node for."""

    name = "Counting"

    def __init__(self):
        self.seen = 0

    def pre_filter(self, pod, snapshot):
        return Hold.because("enough") if self.seen > 1 else None

    def reserve(self, state, pod, node):
        self.seen += 1

    def unreserve(self, state, pod, node):
        self.seen -= 1


def test_what_a_plugin_from_elsewhere_keeps_is_taken_back():
    config = HEAD + b"profiles: [{plugins: {multiPoint: {enabled: [{name: Counting}]}}}]\n"
    spec = {"containers": [{"name": "c"}]}
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{at}"}, "spec": spec} for at in range(4)]
    node = {**World(1).node("n"), "spec": {}}
    cluster = moorage.Cluster.from_objects(node, pods, plugins=[Counting], config=config)
    with cluster.transaction():
        assert [bool(one) for one in cluster.schedule()] == [True, True, False, False]
    assert [bool(one) for one in cluster.schedule()] == [True, True, False, False]


def test_changes_apply_together_or_not_at_all(cluster):
    before = cluster.digest()
    with pytest.raises(InputError, match="there is no node/n77"):
        cluster.apply("node/n1 labels.disk=tape", "node/n77 labels.disk=tape")
    assert cluster.digest() == before


def test_a_change_of_the_configuration_is_taken_back(cluster, monkeypatch):
    cluster.schedule(["p17-x"])
    simulation = cluster.simulation
    with cluster.transaction():
        cluster.remove("node/n1")
        cluster.apply("config/default-scheduler/NodeAffinity disable")
        assert not any("NodeAffinity" in one.points.get("filter", ()) for one in cluster.loaded.profiles)
        changed = cluster.schedule(dry_run=True)
    assert cluster.simulation is simulation
    before = cluster.digest()
    assert any("NodeAffinity" in one.points.get("filter", ()) for one in cluster.loaded.profiles)
    assert played(cluster).digest() == before
    assert len(changed) == len(cluster.schedule())


class Later:
    """Holds each pod until 14 s, and asks for a retry 7 s after each attempt."""

    name = "Later"

    def attach(self, handle):
        self.handle = handle

    def pre_filter(self, pod, snapshot):
        if self.handle.now >= 14:
            return pod
        self.handle.retry([pod], after_s=7)
        return Hold.because("not yet", unresolvable=True)

    def wakes_on(self):
        return ()


LATER = HEAD + b"profiles: [{plugins: {multiPoint: {enabled: [{name: Later}]}}}]\n"


def retries(cluster):
    return sorted((when, [pod.name for pod in pods]) for when, pods in cluster._simulation.scheduler.state.retries)


def test_a_rollback_takes_back_retries_that_plugins_asked_for():
    node = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "pods": "9"}},
    }
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    other = {**pod, "metadata": {"name": "q"}}
    cluster = moorage.Cluster.from_objects(node, pod, config=LATER, plugins=(Later,))
    cluster.schedule()
    before, held = cluster.digest(), retries(cluster)
    assert held[0] == (7.0, ["p"])
    with cluster.transaction():
        cluster.add([other])
        cluster.schedule()
        assert (7.0, ["q"]) in retries(cluster)
    assert (cluster.digest(), retries(cluster)) == (before, held)
    with cluster.transaction():  # those of the block are taken there, and come back
        cluster.run(cluster.now_s + 20)
        assert retries(cluster) == []
    assert retries(cluster) == held
    fork = cluster.fork()
    assert [one.node for one in cluster.run(30).pods] == [one.node for one in fork.run(30).pods] == ["n1"]
