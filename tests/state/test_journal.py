"""Readers of a journal learn what changed since they last looked, or that they came too late."""

from __future__ import annotations

from moorage.api.storage import PersistentVolume
from moorage.state.cluster import ClusterState
from moorage.state.journal import Journal


def test_the_journal_returns_entries_after_a_position():
    journal = Journal()
    journal.note("a")
    here = journal.position
    journal.note("b")
    journal.note("b")
    assert journal.since(here) == ["b", "b"]
    assert journal.since(journal.position) == []


def test_the_journal_drops_old_entries(monkeypatch):
    monkeypatch.setattr(Journal, "keep", 4)
    journal = Journal()
    for at in range(8):
        journal.note(str(at))
    assert journal.position == 8
    assert journal.since(3) is None
    assert journal.since(4) == ["4", "5", "6", "7"]


def test_the_journal_records_object_creation_update_and_deletion():
    cluster = ClusterState()
    volume = PersistentVolume(metadata=PersistentVolume().metadata)
    cluster.set_object(volume)
    cluster.set_object(volume)
    cluster.remove_object(volume)
    assert cluster.snapshot.changes_of(PersistentVolume).since(0) == ["", "", ""]
