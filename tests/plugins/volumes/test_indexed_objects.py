"""Test indexes that follow a snapshot, and assumed objects that last until a newer version is seen."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.storage import PersistentVolume
from moorage.plugins.volumes.assume_cache import Assumed
from moorage.plugins.volumes.indexed_objects import IndexedObjects
from moorage.state.journal import Journal
from moorage.testing.builders import a_cluster
from moorage.testing.storage import a_volume, with_objects

names = st.sampled_from(["a", "b", "c"])
changes = st.lists(st.tuples(names, st.sampled_from([None, "x", "y", ""])), max_size=15)


def filed(cluster):
    return IndexedObjects(
        cluster.snapshot, PersistentVolume, lambda volume: volume.spec.storage_class_name or None,
        lambda volume: volume.metadata.name.upper(),
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=40)
@given(changes, st.integers(1, 5))
def test_indexes_agree_with_a_full_scan(changes, every):
    cluster = a_cluster([])
    files = filed(cluster)
    for count, (name, place) in enumerate(changes):
        volume = a_volume(name, storageClassName=place or "")
        if place is None:
            cluster.remove_object(volume)
        else:
            cluster.set_object(volume)
        if count % every == 0:
            files.follow()
    files.follow()
    for place in ("x", "y", ""):
        held = {
            name: name.upper()
            for name, volume in cluster.snapshot.objects(PersistentVolume).items()
            if place and volume.spec.storage_class_name == place
        }
        assert dict(files.at(place)) == held


def test_indexes_are_rebuilt_after_missed_changes(monkeypatch):
    cluster = with_objects(a_cluster([]), a_volume("b", storageClassName="x"))
    files = filed(cluster)
    files.follow()
    assert dict(files.at("x")) == {"b": "B"}
    monkeypatch.setattr(Journal, "keep", 2)
    with_objects(cluster, *(a_volume(name, storageClassName="x") for name in "cdefg"))
    cluster.remove_object(a_volume("b"))
    files.follow()
    assert list(files.at("x")) == list("cdefg")


def versions(*labels):
    return [a_volume("pv", {"version": label}) for label in labels]


def test_an_assumed_object_lasts_until_a_newer_version_is_seen():
    stored, assumed_as, newer = versions("stored", "assumed", "newer")
    cluster = with_objects(a_cluster([]), stored)
    assumed = Assumed(cluster.objects(PersistentVolume))
    assert assumed.get("pv") is stored
    assert assumed.assume("pv", assumed_as, "pod") is stored
    assert assumed.get("pv") is assumed_as
    assert dict(assumed.all()) == {"pv": assumed_as}
    cluster.set_object(replace(stored))
    assert assumed.get("pv") is assumed_as, "the same version was reported again"
    cluster.set_object(newer)
    assert assumed.get("pv") is newer
    assert not dict(assumed.all())
    cluster.remove_object(newer)
    assert assumed.get("pv") is None


def test_an_assumption_of_two_pods_lasts_until_both_release_it():
    stored, assumed_as = versions("stored", "assumed")
    cluster = with_objects(a_cluster([]), stored)
    assumed = Assumed(cluster.objects(PersistentVolume))
    for owner in ("one", "two"):
        assumed.assume("pv", assumed_as, owner)
    assumed.release("one")
    assert assumed.get("pv") is assumed_as
    assumed.release("two")
    assumed.release("two")
    assert assumed.get("pv") is stored
    assert not len(assumed)


def test_equal_objects_are_not_assumed_and_outdated_assumptions_are_dropped():
    stored, assumed_as, newer = versions("stored", "assumed", "newer")
    cluster = with_objects(a_cluster([]), stored, a_volume("other"))
    assumed = Assumed(cluster.objects(PersistentVolume))
    assumed.assume("pv", stored, "pod")
    assert not len(assumed)
    assumed.assume("pv", assumed_as, "pod")
    cluster.set_object(newer)
    assumed.assume("other", a_volume("other", {"new": "yes"}), "pod")
    assert len(assumed) == 1
