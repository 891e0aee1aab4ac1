"""The changes that ``/debug/explain`` finds in a copy of a live cluster are those of ``moorage explain``."""

from __future__ import annotations

import random
from itertools import count

import pytest

import moorage
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.explain import live_changes
from moorage.laboratory.explain.live_changes import LiveCopy
from tests.laboratory.brute_force import random_cluster
from tests.laboratory.random_world import World


class Copy(LiveCopy):
    """A copy to which all objects can be reported each time."""

    def __init__(self, *given):
        super().__init__(*given)
        self._reported = {}

    def report_all(self, objects):
        known = {(type(obj).__name__, obj.key): obj for obj in objects}
        gone = dict.fromkeys(self._reported.keys() - known.keys())
        changed = {key: obj for key, obj in known.items() if self._reported.get(key) is not obj}
        self._reported = known
        news = gone | changed
        pods = {key: obj for key, obj in news.items() if key[0] == "Pod"}
        self.report([{key: obj for key, obj in news.items() if key not in pods}, pods])


def a_copy(cluster):
    return Copy(cluster.loaded, 0)


def found_in(cluster, pod, budget=None, assumed=None, copy=None):
    without, copy = cluster.explain(pod, probes=0), copy or a_copy(cluster)
    copy.report_all(cluster.objects())
    return copy.with_changes(without, assumed or {}, budget or TimeBudget())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_changes_are_those_of_explain(seed):
    cluster = World(seed).cluster()
    names = [f"default/{row['name']}" for row in cluster.pods if row["state"] == "Pending"]
    for name in random.Random(seed).sample(names, 3):
        # no time has passed in the copy either
        told = moorage.Cluster.from_objects(*cluster.objects()).explain(name)
        assert found_in(cluster, name).changes == told.changes


NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": 2, "memory": "4Gi", "pods": 9}},
}  # fmt: skip


def pod(name, cpu):
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}


def test_a_search_that_ran_out_of_time_says_so():
    cluster = moorage.Cluster.from_objects(NODE, pod("big", 3))
    calls = count()
    found = found_in(cluster, "big", budget=TimeBudget(2, lambda: next(calls)))
    assert found.proof.kind == "bounded"
    assert any("time limit" in note for note in found.request.notes)
    assert not found_in(cluster, "big").request.notes


def test_pods_that_are_assumed_take_room():
    cluster = moorage.Cluster.from_objects(NODE, pod("first", 1), pod("big", 3))
    (free, *_), (taken, *_) = (found_in(cluster, "big", assumed=assumed).changes for assumed in ({}, {"first": "n"}))
    assert [free.atoms[0].new, taken.atoms[0].new] == [2000, 1000]


# -- a copy that is kept ----------------------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch):
    """The clusters that copies made."""
    made = []

    class Counted(moorage.Cluster):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(live_changes, "Cluster", Counted)
    return made


def pending(cluster):
    return [f"default/{row['name']}" for row in cluster.pods if row["state"] == "Pending"]


def act(cluster, rng):
    """Make one random change, as users, controllers and schedulers do."""
    nodes, pods = list(cluster.nodes["name"]), [row for row in cluster.pods if row["state"] == "Placed"]
    what = rng.randrange(6)
    if what == 0 and pods:
        cluster.remove(f"pod/default/{rng.choice(pods)['name']}")
    elif what == 1:
        cluster.apply(f"node/{rng.choice(nodes)} labels.disk={rng.choice(['ssd', 'tape'])}")
    elif what == 2:
        cluster.apply(f"node/{rng.choice(nodes)} unschedulable={rng.choice(['true', 'false'])}")
    elif what == 3:
        cluster.add(pod(f"more-{cluster.simulation.arrivals}", rng.choice(["500m", "1", "64"])))
    elif what == 4 and len(nodes) > 1:
        cluster.remove(f"node/{rng.choice(nodes)}")
    else:
        cluster.schedule()


@pytest.mark.parametrize("seed", range(12))
def test_a_kept_copy_finds_what_a_new_one_finds(seed, made):
    rng = random.Random(seed)
    cluster = moorage.Cluster.from_objects(random_cluster(rng), pod("big", "64"))
    kept = a_copy(cluster)
    for _ in range(6):
        name = rng.choice(pending(cluster))
        told = found_in(cluster, name, copy=kept)
        before = made[0]
        assert told == found_in(cluster, name)
        assert made.pop() is not before  # the new copy
        for _ in range(rng.randrange(4)):
            act(cluster, rng)
    assert len(made) == 1


def test_reports_that_no_search_has_read_are_kept(made):
    cluster = moorage.Cluster.from_objects(NODE, pod("big", 3), pod("first", 1))
    kept, late = a_copy(cluster), a_copy(cluster)
    late.report_all(cluster.objects())
    steps = [cluster.schedule, lambda: cluster.add(pod("second", "500m")), lambda: cluster.remove("pod/default/first")]
    for what in steps:
        assert found_in(cluster, "big", copy=kept).changes
        what()
        late.report_all(cluster.objects())
        late.report_all(cluster.objects())
    assert found_in(cluster, "big", copy=late) == found_in(cluster, "big", copy=kept) == found_in(cluster, "big")


def test_a_copy_is_made_again_if_a_node_comes_back_or_a_volume_changes(made):
    cluster = moorage.Cluster.from_objects(NODE, pod("first", 1), pod("big", 3))
    cluster.schedule()
    copy = a_copy(cluster)

    def found():
        changes = found_in(cluster, "big", copy=copy).changes
        return changes[0].atoms[0].new, len(made)

    assert found() == (1000, 1)
    objects = cluster.objects()
    (node,) = (obj for obj in objects if obj.metadata.name == "n")
    without = cluster.explain("big", probes=0)
    copy.report_all([obj for obj in objects if obj is not node])
    copy.with_changes(without, {}, TimeBudget())
    assert len(made) == 1
    assert found() == (1000, 2)
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {}}
    cluster.add({**claim, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    assert found() == (1000, 3)
    copy.drop()
    assert found() == (1000, 4)


def test_a_kept_copy_follows_pods_that_are_assumed(made):
    cluster = moorage.Cluster.from_objects(
        NODE, {**NODE, "metadata": {"name": "m"}}, pod("first", 1), pod("second", 1), pod("big", 3)
    )
    kept = a_copy(cluster)
    steps = [{}, {"first": "n"}, {"first": "n", "second": "m"}, {"first": "m"}, {"first": "m"}, {}, {"first": "n"}]
    for assumed in [*steps, *steps[::-1]]:
        told = found_in(cluster, "big", assumed=assumed, copy=kept)
        assert told.changes == found_in(cluster, "big", assumed=assumed).changes
        made.pop()
    cluster.bind("first", "m")  # another node than the one that was assumed
    told = found_in(cluster, "big", assumed={"second": "n"}, copy=kept)
    assert told.changes == found_in(cluster, "big", assumed={"second": "n"}).changes
    cluster.remove("pod/default/second")  # while it is assumed
    assert found_in(cluster, "big", copy=kept).changes == found_in(cluster, "big").changes


def test_a_copy_that_was_made_again_often_is_not_kept(made):
    cluster = moorage.Cluster.from_objects(NODE, pod("big", 3))
    frozen = []
    copy = Copy(cluster.loaded, 0, lambda: frozen.append(len(made)))
    for at in range(5):
        cluster.add(
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": f"c{at}"}, "provisioner": "x"}
        )
        for _ in range(2):
            assert found_in(cluster, "big", copy=copy).changes
    assert (frozen, len(made)) == ([1, 2, 3], 3 + 2 * 2)


def test_the_history_of_a_copy_begins_again(monkeypatch):
    monkeypatch.setattr(live_changes, "_MOST_FACTS", 2)
    cluster = moorage.Cluster.from_objects(NODE, pod("big", 3))
    kept = a_copy(cluster)
    for at in range(4):
        cluster.add(pod(f"p{at}", "100m"))
        cluster.schedule()
        assert found_in(cluster, "big", copy=kept).changes == found_in(cluster, "big").changes
    assert len(kept._cluster._history.steps) < 3


def test_a_search_that_fails_drops_the_copy(made, monkeypatch):
    cluster = moorage.Cluster.from_objects(NODE, pod("big", 3))
    kept = a_copy(cluster)
    found_in(cluster, "big", copy=kept)
    with monkeypatch.context() as patch:
        patch.setattr(live_changes, "with_changes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            found_in(cluster, "big", copy=kept)
    assert found_in(cluster, "big", copy=kept).changes
    assert len(made) == 2
