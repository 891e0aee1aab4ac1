"""Test VolumeBinding's scores: the utilization of the storage that a pod's claims would get on a node."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.api.storage import CSIDriver, CSIStorageCapacity
from moorage.plugins.resources.scoring_strategies import UtilizationPoint
from moorage.plugins.volume_binding import VolumeBinding, VolumeBindingArgs
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores
from moorage.testing.storage import a_bound_claim, a_claim, a_class, a_volume, on_hosts, standing_on, with_objects

HOST = "kubernetes.io/hostname"
LOCAL = a_class("local", provisioner="kubernetes.io/no-provisioner")
DRIVER = msgspec.convert({"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}, CSIDriver)


@dataclass
class Bench:
    gates: FeatureGates


def scoring(*points):
    shape = tuple(UtilizationPoint(utilization=at, score=score) for at, score in points) or None
    plugin = VolumeBinding(VolumeBindingArgs(shape=shape))
    plugin.attach(Bench(FeatureGates({"StorageCapacityScoring": True})))
    return plugin


def without_its_gate():
    plugin = VolumeBinding()
    plugin.attach(Bench(FeatureGates({"StorageCapacityScoring": False})))
    return plugin


def cluster_of(*objects):
    nodes = [a_node(f"n{at}", {HOST: f"n{at}"}) for at in range(3)]
    return with_objects(a_cluster(nodes), LOCAL, a_class("made"), a_class("also"), DRIVER, *objects)


def local(name, node, size, of="local"):
    return a_volume(name, storageClassName=of, size=size, nodeAffinity=on_hosts(node))


def room(name, node, capacity, of="made"):
    given = {
        "metadata": {"name": name, "namespace": "x"},
        "storageClassName": of,
        "nodeTopology": {"matchLabels": {HOST: node}},
    }
    return msgspec.convert({**given, **({} if capacity is None else {"capacity": capacity})}, CSIStorageCapacity)


def scores(plugin, cluster, *claims):
    return final_scores(plugin, a_pod(volumes=standing_on(*claims)), cluster.snapshot)


def test_does_not_score_without_its_gate():
    cluster = cluster_of(a_claim("data", storageClassName="local"), local("pv", "n0", "1Gi"))
    assert scores(without_its_gate(), cluster, "data") is None
    assert final_scores(without_its_gate(), a_pod(), cluster.snapshot) is None


def test_lower_utilization_scores_higher_by_default():
    volumes = [local("full", "n0", "1Gi"), local("half", "n1", "2Gi"), local("quarter", "n2", "4Gi")]
    cluster = cluster_of(a_claim("data", storageClassName="local"), *volumes)
    assert scores(scoring(), cluster, "data") == {"n0": 0, "n1": 50, "n2": 75}
    assert scores(scoring((0, 0), (100, 10)), cluster, "data") == {"n0": 100, "n1": 50, "n2": 25}


def test_classes_have_equal_weight_and_volumes_of_a_class_are_summed():
    cluster = cluster_of(
        a_claim("a", storageClassName="local"), a_claim("b", storageClassName="local"), a_claim("c", storageClassName="made"),
        local("pv-a", "n0", "1Gi"), local("pv-b", "n0", "3Gi"), a_volume("pv-c", storageClassName="made", size="8Gi"),
    )  # fmt: skip
    found = scores(scoring((0, 0), (100, 10)), cluster, "a", "b", "c")
    assert found is not None
    assert found["n0"] == 31, "half of the four gigabytes, an eighth of the eight: 50 and 12, 31 on average"


def test_capacity_for_volumes_to_provision_counts():
    rooms = [room("r0", "n0", "2Gi"), room("r1", "n1", "10Gi"), room("r2", "n2", "4Gi")]
    cluster = cluster_of(a_claim("a", storageClassName="made"), a_claim("b", storageClassName="made"), *rooms)
    assert scores(scoring((0, 0), (100, 10)), cluster, "a") == {"n0": 50, "n1": 10, "n2": 25}
    assert scores(scoring((0, 0), (100, 10)), cluster, "a", "b") == {"n0": 100, "n1": 20, "n2": 50}


def test_found_volumes_take_precedence_over_capacity():
    cluster = cluster_of(
        a_claim("a", storageClassName="made"), a_claim("b", storageClassName="also"), a_volume("pv", storageClassName="made"),
        room("r", "n0", "10Gi", of="also"), room("s", "n1", "10Gi", of="also"), room("t", "n2", "10Gi", of="also"),
    )  # fmt: skip
    assert scores(scoring((0, 0), (100, 10)), cluster, "a", "b") == dict.fromkeys(["n0", "n1", "n2"], 100)


def test_storage_without_a_known_capacity_scores_0():
    cluster = cluster_of(
        a_bound_claim("bound", "pv"), a_volume("pv"), a_claim("data", storageClassName="other"),
        a_class("other", provisioner="other.example.com"),
    )  # fmt: skip
    nothing = dict.fromkeys(["n0", "n1", "n2"], 0)
    assert scores(scoring(), cluster, "bound") == nothing
    assert scores(scoring(), cluster, "data") == nothing
    assert final_scores(scoring(), a_pod(), cluster.snapshot) == nothing


@pytest.mark.parametrize(("asked", "offered", "score"), [("1", "3", 33), ("2", "3", 66), ("0", "0", 100)])
def test_rounds_down_by_volume(asked, offered, score):
    cluster = cluster_of(a_claim("data", size=asked, storageClassName="local"), local("pv", "n0", offered))
    found = scores(scoring((0, 0), (100, 10)), cluster, "data")
    assert found is not None
    assert found["n0"] == score


def test_rounds_the_mean_to_the_nearest():
    cluster = cluster_of(
        a_claim("a", size="1", storageClassName="made"), a_claim("b", size="2", storageClassName="also"),
        room("r", "n0", 100), room("s", "n0", 100, of="also"),
    )  # fmt: skip
    found = scores(scoring((0, 0), (100, 10)), cluster, "a", "b")
    assert found is not None
    assert found["n0"] == 2, "1 and 2 are 1.5 on average"


sizes = st.integers(0, 5)
asked = st.lists(st.tuples(sizes, st.sampled_from(["made", "also"])), min_size=1, max_size=3)
rooms = st.dictionaries(st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.sampled_from(["made", "also"])), st.integers(0, 9))


@pytest.mark.slow
@settings(max_examples=40)
@given(asked, rooms, st.sampled_from([((0, 10), (100, 0)), ((0, 0), (40, 10), (100, 3))]))
def test_agrees_with_a_reference_implementation(asked, rooms, points):
    cluster = cluster_of(
        *(a_claim(f"c{at}", size=str(size), storageClassName=of) for at, (size, of) in enumerate(asked)),
        *(room(f"{node}-{of}", node, capacity, of) for (node, of), capacity in rooms.items()),
    )  # fmt: skip

    def line(p):
        for (left, low), (right, high) in pairwise(points):
            if p <= right:
                return low * 10 + int((high - low) * 10 * (p - left) / (right - left))
        return points[-1][1] * 10

    expected = {}
    for node in ("n0", "n1", "n2"):
        by_class = {}
        for size, of in asked:
            if rooms.get((node, of), -1) >= size:
                by_class[of] = by_class.get(of, 0) + size
        each = []
        for of, total in by_class.items():
            capacity = rooms[node, of]
            each.append(line(100 if capacity == 0 or total > capacity else total * 100 // capacity))
        expected[node] = int(sum(each) / len(each) + 0.5) if each else 0
    pod = a_pod(volumes=standing_on(*(f"c{at}" for at in range(len(asked)))))
    assert final_scores(scoring(*points), pod, cluster.snapshot) == expected
