"""Events in both of their APIs."""

import pytest

from moorage.api.documents.served_kinds import find_kind
from moorage.rules.store.event_apis import delete_expired_events, mirror_events

OLD, NEW = find_kind("events"), find_kind("events", "events.k8s.io")
POD = {"kind": "Pod", "name": "web", "namespace": "default"}
WRITTEN = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "regarding": POD,
    "note": "placed",
    "reason": "Scheduled",
    "type": "Normal",
    "action": "Binding",
    "eventTime": "2025-06-15T15:06:40.000000Z",
    "reportingController": "default-scheduler",
    "reportingInstance": "a",
}


@pytest.fixture
def mirrored(store):
    mirror_events(store)
    return store


def read(store, kind, name="web.1"):
    record = store.find(kind, "default", name)
    return record and record.document()


def test_an_event_of_events_k8s_io_is_readable_in_the_core_api(mirrored):
    made = mirrored.create(NEW, "default", {**WRITTEN, "metadata": {"name": "web.1"}}).document()
    shown = read(mirrored, OLD)
    assert (shown["apiVersion"], shown["kind"]) == ("v1", "Event")
    assert (shown["involvedObject"], shown["message"], shown["reportingComponent"]) == (POD, "placed", "default-scheduler")
    assert shown["metadata"]["uid"] == made["metadata"]["uid"]
    assert shown["eventTime"] == WRITTEN["eventTime"]


def test_a_core_event_and_its_changes_are_mirrored(mirrored):
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": POD,
        "message": "m",
        "count": 1,
        "source": {"component": "c"},
    }
    mirrored.create(OLD, "default", {**event, "metadata": {"name": "web.1"}})
    assert read(mirrored, NEW)["deprecatedCount"] == 1
    mirrored.change(OLD, "default", "web.1", lambda document: {**document, "count": 2})
    shown = read(mirrored, NEW)
    assert (shown["deprecatedCount"], shown["note"], shown["deprecatedSource"]) == (2, "m", {"component": "c"})
    mirrored.delete(NEW, "default", "web.1")
    assert read(mirrored, OLD) is None


def test_both_forms_expire_after_an_hour(mirrored, clock):
    mirrored.create(NEW, "default", {**WRITTEN, "metadata": {"name": "web.1"}})
    mirrored.create(NEW, "default", {**WRITTEN, "metadata": {"name": "web.2"}})
    clock.now += 3000
    seen = {"count": 2, "lastObservedTime": "2025-06-15T15:56:40.000000Z"}
    mirrored.change(NEW, "default", "web.2", lambda document: {**document, "series": seen})
    assert delete_expired_events(mirrored) == 0
    clock.now += 700
    assert delete_expired_events(mirrored) == 1
    assert read(mirrored, NEW) is None
    assert read(mirrored, NEW, "web.2") is not None
