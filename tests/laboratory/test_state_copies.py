"""A fork is a copy of the state: it decides as the history played again, and shares nothing that can change."""

from __future__ import annotations

import gc
from dataclasses import fields
from types import FunctionType, MethodType, ModuleType

import msgspec
import numpy as np
import pytest

import moorage
from moorage.core.preemption.row_importance import Ranking
from moorage.framework.verdicts import Hold
from moorage.laboratory import cluster as cluster_module
from moorage.laboratory.trial.history import play
from moorage.laboratory.trial.state_copies import DROPPED, StateCopy, is_shared
from tests.laboratory.random_world import OTHERS, World
from tests.laboratory.test_pod_states import node, obj, pod
from tests.laboratory.test_transactions import HEAD, OPTIONS, decisions
from tests.laboratory.test_transactions import played as again


def worn(seed, **options):
    """A cluster to which much has happened."""
    world = World(seed)
    cluster = world.cluster(**options)
    for _ in range(12):
        world.act(cluster)
    cluster.schedule()
    return world, cluster


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("seed", range(20, 21))
def test_a_fork_decides_as_its_history_played_again(seed, options):
    world, cluster = worn(seed, **options)
    fork, before = cluster.fork(), cluster.digest()
    assert fork._simulation is not None
    fresh = again(cluster)
    assert fork.digest() == fresh.digest() == before
    for _ in range(6):
        world.act(fork)
    assert cluster.digest() == before
    assert decisions(cluster.fork(), World(seed + 100)) == decisions(fresh, World(seed + 100))
    assert cluster.digest() == before
    fork.schedule()
    assert again(fork).digest() == fork.digest()


def test_a_fork_of_an_open_transaction_keeps_its_changes_and_cannot_take_them_back():
    _, cluster = worn(3)
    with cluster.transaction():
        cluster.remove("node/n1")
        fork, within = cluster.fork(), cluster.digest()
    assert fork.digest() == within != cluster.digest()
    with fork.transaction():
        fork.schedule()
        fork.remove("node/n2")
    assert fork.digest() == within


# -- what is shared --------------------------------------------------------------------------------------------------------


def reached(start, constants):
    """All that can change among what is reached from an object, by id."""
    found, left = {}, [start]
    while left:
        one = left.pop()
        if id(one) in found or id(one) in constants or is_shared(type(one)) or isinstance(one, ModuleType):
            continue
        found[id(one)] = one
        if isinstance(one, MethodType):
            left += [one.__self__]
        elif isinstance(one, FunctionType):
            left += one.__closure__ or ()
        else:
            left += gc.get_referents(one)
    return found


def can_change(one):
    """Say whether an object is a container, an array, or an instance of one of Moorage's classes that is not frozen."""
    kind = type(one)
    if not kind.__module__.startswith("moorage."):
        return isinstance(one, dict | list | set | np.ndarray)
    return not isinstance(one, tuple) and not (issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_fork_shares_nothing_that_can_change(seed):
    _, cluster = worn(seed)
    fork = cluster.fork()
    constants = StateCopy([])._constants
    mine = reached(cluster.simulation.__dict__, constants | {id(cluster)})
    its = reached(fork.simulation.__dict__, constants | {id(fork)})
    api = {id(node.metadata.labels) for node in cluster.snapshot.table.nodes}
    assert [one for key, one in mine.items() if key in its and can_change(one) and key not in api] == []
    assert len(its) > 1000


def known_rows(cluster):
    """How many rows the ranking of pods recognizes by the pods that it ranked."""
    plugin = cluster.scheduler.profiles["default-scheduler"].plugins["DefaultPreemption"]
    (ranking,) = [one for one in reached(plugin, {id(cluster.simulation)}).values() if isinstance(one, Ranking)]
    return sum(any(pods is held for held in ranking._held) for pods in cluster.snapshot.table.pods)


def test_what_is_one_object_stays_one_object():
    world, cluster = worn(4)
    cluster.add(*({**world.pod(), "spec": {**world.pod()["spec"], "priority": 50}} for _ in range(9)))
    cluster.schedule()
    assert known_rows(cluster.fork()) == known_rows(cluster) > 0


def test_a_copy_drops_the_caches_of_a_cycle():
    _, cluster = worn(4)
    cycle, copied = cluster.scheduler.cycle, cluster.fork().scheduler.cycle
    assert {one.name for one in fields(cycle)} >= DROPPED
    assert any(getattr(cycle, name) for name in DROPPED)
    assert [getattr(copied, name) for name in DROPPED] == [{}, {}]


class Local:
    """A plugin from elsewhere."""

    name = "Local"

    def __init__(self, args=None, handle=None):
        self.seen = []

    def pre_enqueue(self, pod):
        self.seen.append(pod.name)
        return Hold.because("never") if pod.name == "held" else None


def test_a_fork_with_a_plugin_from_elsewhere_is_played_again():
    config = HEAD + b"profiles:\n- plugins: {multiPoint: {enabled: [{name: Local}]}}\n"
    world = World(1)
    cluster = moorage.Cluster.from_objects([world.node("n1")], [world.pod() for _ in range(3)], config=config, plugins=(Local,))
    cluster.schedule()
    fork = cluster.fork()
    assert fork._simulation is None
    assert fork.digest() == cluster.digest()
    plugins = [one.scheduler.profiles["default-scheduler"].plugins["Local"] for one in (cluster, fork)]
    assert plugins[0] is not plugins[1]


def test_trials_that_bind_volumes_are_reversed(monkeypatch):
    played = []
    monkeypatch.setattr(cluster_module, "play", lambda history: played.append(history) or play(history))
    world = World(5)
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "late"}}
    pods = [{**pod, "spec": {"containers": [{"name": "c"}], "volumes": [volume]}} for pod in (world.pod() for _ in range(3))]
    nodes = [{**world.node(f"n{at}"), "spec": {}} for at in range(3)]
    cluster = moorage.Cluster.from_objects(nodes, pods, OTHERS)
    before, trials = cluster.digest(), len(played)
    came = []
    for _ in range(4):
        with cluster.transaction():
            came.append(cluster.schedule())
        assert cluster.digest() == before
    assert came == [came[0]] * 4
    assert all(came[0])
    assert len(played) == trials
    with cluster.transaction() as t:
        cluster.schedule()
        t.commit()
    with cluster.transaction():
        cluster.remove("node/n1")
        cluster.schedule()
    assert cluster.digest() == again(cluster).digest() != before


GATES = {"no gates": "", "groups": "GenericWorkload=true"}


@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_a_fork_has_the_devices_and_the_groups(gates):
    api, exactly = "resource.k8s.io/v1", {"deviceClassName": "gpu", "count": 1}
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": [{"name": f"d{at}"} for at in range(3)]}
    asks = {"devices": {"requests": [{"name": "main", "exactly": exactly}]}}
    objects = [
        node("n1", cpu="8"),
        obj("DeviceClass", "gpu", api, namespace="", spec={}),
        obj("ResourceSlice", "s", api, namespace="", spec=spec),
        *(obj("ResourceClaim", f"c{at}", api, spec=asks) for at in range(4)),
        *(pod(f"p{at}", resourceClaims=[{"name": "c", "resourceClaimName": f"c{at}"}]) for at in range(4)),
    ]
    if gates:
        gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        objects += [obj("PodGroup", "g", "scheduling.k8s.io/v1beta1", spec=gang)]
        objects += [pod(name, schedulingGroup={"podGroupName": "g"}) for name in "ab"]
    cluster = moorage.Cluster.from_objects(*objects, feature_gates=gates)
    cluster.schedule(["p0", "p1"])
    before, fork, fresh = cluster.digest(), cluster.fork(), again(cluster)
    assert fork._simulation is not None
    placed = [str(one) for one in fork.schedule()]
    assert placed == [str(one) for one in fresh.schedule()]
    assert cluster.digest() == before
    assert [str(one) for one in cluster.schedule()] == placed
