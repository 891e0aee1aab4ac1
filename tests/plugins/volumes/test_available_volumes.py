"""Test that the volume index gives each claim what a scan of all volumes gives it, after any changes and assumptions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.quantity import parse
from moorage.api.storage import ObjectReference, PersistentVolume
from moorage.plugins.volumes import volume_matching as shelf_module
from moorage.plugins.volumes.assume_cache import Assumptions
from moorage.plugins.volumes.volume_matching import VolumeIndex
from moorage.plugins.volumes.volume_reach import rows_reaching
from moorage.state.view import NodeView
from moorage.testing.builders import a_cluster, a_node
from moorage.testing.storage import a_claim, a_volume, on_hosts, on_nodes_labelled

HOSTS = [f"n{at}" for at in range(5)]

affinities = st.one_of(
    st.none(),
    st.lists(st.sampled_from([*HOSTS, "far"]), min_size=1, max_size=2).map(lambda hosts: on_hosts(*hosts)),
    st.sampled_from(["a", "b"]).map(lambda zone: on_nodes_labelled("zone", zone)),
)
sizes = st.sampled_from(["1Gi", "2Gi", "3Gi", "5Gi"])
classes = st.sampled_from(["fast", "slow"])


@st.composite
def volumes(draw):
    affinity = draw(affinities)
    number = draw(st.integers(0, 9))
    # Which of several volumes reserved for one claim is first depends on the time of each reservation, so there is only one.
    promised = number == 0 and draw(st.booleans())
    modes = ["ReadWriteOnce", *(["ReadOnlyMany"] if draw(st.booleans()) else [])]
    return a_volume(
        f"pv-{number}", {"tier": draw(st.sampled_from(["x", "y"]))}, size=draw(sizes),
        phase=draw(st.sampled_from(["Available"] * 4 + ["Released"])), storageClassName=draw(classes), accessModes=modes,
        **({"nodeAffinity": affinity} if affinity is not None else {}),
        **({"claimRef": {"namespace": "default", "name": "c0"}} if promised else {}),
    )  # fmt: skip


@st.composite
def claims(draw):
    modes = draw(st.sampled_from([["ReadWriteOnce"], ["ReadOnlyMany"], ["ReadWriteOnce", "ReadOnlyMany"]]))
    selector = {"selector": {"matchLabels": {"tier": "x"}}} if draw(st.integers(0, 3)) == 0 else {}
    name = f"c{draw(st.integers(0, 2))}"
    return a_claim(name, size=draw(sizes), storageClassName=draw(classes), accessModes=modes, **selector)


def matches(volume, claim, *, is_promised):
    spec, asked = volume.spec, claim.spec
    size = asked.resources.requests["storage"]
    if spec.storage_class_name != asked.storage_class_name or parse(spec.capacity["storage"]) < parse(size):
        return False
    if is_promised:
        return True
    labels = asked.selector.match_labels if asked.selector is not None else {}
    return set(asked.access_modes) <= set(spec.access_modes) and labels.items() <= volume.metadata.labels.items()


def scan_all(claims, cluster, nodes):
    """Return each claim's volume on each row by scanning all volumes."""
    known = cluster.snapshot.index(Assumptions).volumes
    there = [known.get(name) for name in cluster.objects(PersistentVolume)]
    by_size = sorted(claims, key=lambda claim: parse(claim.spec.resources.requests["storage"]))
    by_rank = sorted(there, key=lambda volume: (parse(volume.spec.capacity["storage"]), volume.name))
    found = []
    for row in range(len(nodes)):
        of_row = {}
        for claim in by_size:
            mine = [v for v in there if (ref := v.spec.claim_ref) and ref.name == claim.metadata.name]
            promised = [v for v in mine if matches(v, claim, is_promised=True) and v.name not in of_row.values()]
            free = [v for v in by_rank if v.spec.claim_ref is None and v.status.phase == "Available"]
            if promised:
                got = promised[0] if reaches(promised[0], nodes)[row] else None
            else:
                suiting = [v for v in free if matches(v, claim, is_promised=False) and reaches(v, nodes)[row]]
                got = next((v for v in suiting if v.name not in of_row.values()), None)
            if got is not None:
                of_row[claim.metadata.name] = got.name
        found.append(of_row)
    return found


def reaches(volume, nodes):
    affinity = volume.spec.node_affinity
    return rows_reaching(None if affinity is None else affinity.required, nodes)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_earlier_changes_make_no_difference(data):
    nodes = [a_node(name, {"kubernetes.io/hostname": name, "zone": "ab"[at % 2]}) for at, name in enumerate(HOSTS)]
    cluster = a_cluster(nodes)
    shelf, assumed = cluster.snapshot.index(VolumeIndex), cluster.snapshot.index(Assumptions).volumes
    for turn in range(data.draw(st.integers(1, 12), label="turns")):
        for volume in data.draw(st.lists(volumes(), max_size=6), label="come"):
            cluster.set_object(volume)
        for name in data.draw(st.lists(st.integers(0, 9).map("pv-{}".format), max_size=2), label="go"):
            if name in cluster.objects(PersistentVolume):
                cluster.remove_object(cluster.objects(PersistentVolume)[name])
        assumed.release(data.draw(st.integers(0, 12).map(str), label="release"))
        free = [volume for volume in cluster.objects(PersistentVolume).values() if volume.spec.claim_ref is None]
        if free and not any(assumed.all()) and data.draw(st.booleans(), label="assume"):
            volume = data.draw(st.sampled_from(free))
            promised = replace(volume.spec, claim_ref=ObjectReference(name="c1", namespace="default"))
            assumed.assume(volume.name, replace(volume, spec=promised), str(turn))
        asked = list({claim.key: claim for claim in data.draw(st.lists(claims(), min_size=1, max_size=3))}.values())
        view = NodeView(cluster.snapshot, np.arange(len(nodes), dtype=np.intp))
        chosen = shelf.search(asked).over(view)
        got = [{claim.metadata.name: volume.name for claim, volume in chosen.at(row)} for row in range(len(nodes))]
        assert got == scan_all(asked, cluster, view)
        for turn_of_claim, claim in enumerate(chosen.claims):
            found, which = chosen.volumes_of(turn_of_claim)
            names = [found[at].name if at >= 0 else None for at in which.tolist()]
            assert names == [of_row.get(claim.metadata.name) for of_row in got]


def test_the_index_does_not_grow_with_created_and_deleted_volumes(monkeypatch):
    monkeypatch.setattr(shelf_module, "_SLACK", 8)
    cluster = a_cluster([a_node("n0")])
    shelf = cluster.snapshot.index(VolumeIndex)
    for turn in range(200):
        cluster.set_object(a_volume(f"pv-{turn}", size=f"{1 + turn % 3}Gi", storageClassName="fast"))
        if turn >= 4:
            cluster.remove_object(cluster.objects(PersistentVolume)[f"pv-{turn - 4}"])
        best = shelf.best(a_claim(size="2Gi", storageClassName="fast"), reserved_only=False)
        there = [v for v in cluster.objects(PersistentVolume).values() if parse(v.spec.capacity["storage"]) >= parse("2Gi")]
        assert best == min(there, key=lambda v: (parse(v.spec.capacity["storage"]), v.name), default=None)
    inner = shelf._available
    assert len(inner._offers) < 40
    assert len(inner._classes["fast"].log) < 60


def test_the_cache_of_claim_shapes_is_bounded():
    cluster = a_cluster([a_node("n0")])
    cluster.set_object(a_volume("pv", {"tier": "x"}, size="1Gi", storageClassName="fast"))
    shelf = cluster.snapshot.index(VolumeIndex)
    for tier in range(200):
        asked = a_claim(storageClassName="fast", selector={"matchLabels": {"tier": str(tier)}})
        assert shelf.best(asked, reserved_only=False) is None
    assert len(shelf._available._classes["fast"].candidate_lists) <= 64
