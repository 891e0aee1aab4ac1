"""Watches read the watch cache at their own pace, in pieces; the cache is limited, and a watch that falls behind ends."""

import asyncio
import json
import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.http.lists import event_parts
from moorage.cluster.apiserver.http.watch_stream import open_stream
from moorage.rules.store import watches
from moorage.rules.store.list_selection import ALL, Selection, selection
from moorage.rules.store.store import Store

CONFIG = served("configmaps")
PATH = "/api/v1/configmaps"


def config(name="web", labels=None, size=0):
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "x" * size}}


def relabel(store, name, value):
    store.change(CONFIG, "default", name, lambda held: held["metadata"].update(labels={"app": value}))


def take_all(watch, most=1):
    taken = []
    while not watch.idle and not watch.closed:
        piece = watch.take(most)
        assert len(piece) <= 1 or most > 1
        taken += piece
    return taken


def test_an_idle_watch_is_woken_once(store):
    woken = []
    watch = store.watch(CONFIG, ALL, "", lambda: woken.append(1))
    take_all(watch)
    for name in "abc":
        store.create(CONFIG, "default", config(name))
    assert (len(woken), [one.record.name for one in watch.take()], watch.idle) == (1, ["a", "b", "c"], True)
    store.delete(CONFIG, "default", "a")
    assert (len(woken), [one.type for one in watch.take()]) == (2, ["DELETED"])


def test_a_watch_is_not_woken_for_objects_outside_its_selection(store):
    woken = []
    watch = store.watch(CONFIG, selection(CONFIG, None, "app=x", ""), "", lambda: woken.append(1))
    take_all(watch)
    store.create(CONFIG, "default", config("a", {"app": "y"}))
    assert (woken, watch.idle, watch.take()) == ([], True, [])


@pytest.mark.parametrize("version", ["", "1"], ids=["from the list on", "from a version on"])
def test_pieces_have_the_requested_size(store, version):
    for i in range(20):
        store.create(CONFIG, "default", config(f"c{i:02}", size=1000))
    watch = store.watch(CONFIG, ALL, version, lambda: None)
    sizes = []
    while not watch.idle:
        sizes.append([len(one.record.body) for one in watch.take(3000)])
    assert sum(map(len, sizes)) == 20
    assert max(map(len, sizes)) == 3  # the third one fills it
    assert watch.take() == []


def test_a_watch_of_few_among_many_examines_some_at_a_time(store):
    for i in range(5000):
        store.adopt(CONFIG, {**config(f"c{i:04}"), "metadata": {"name": f"c{i:04}", "namespace": "default"}})
    relabel(store, "c4999", "x")
    watch = store.watch(CONFIG, selection(CONFIG, None, "app=x", ""), "", lambda: None)
    pieces = []
    while not watch.idle:
        pieces.append(len(watch.take(1 << 20)))
    assert pieces == [0, 0, 1]


def test_an_unread_watch_holds_nothing_and_ends_when_it_falls_behind(clock):
    store = Store(clock, random.Random(1), b"k", capacity=4)
    store.create(CONFIG, "default", config())
    woken = []
    watch = store.watch(CONFIG, ALL, str(store.version), lambda: woken.append(1))
    assert take_all(watch) == []
    for i in range(4):
        relabel(store, "web", f"v{i}")
    assert (watch.closed, len(woken)) == (False, 1)
    for i in range(2):
        relabel(store, "web", f"w{i}")
    assert (watch.closed, len(woken), watch.take()) == (True, 2, [])
    relabel(store, "web", "again")
    assert len(woken) == 2


def test_the_size_of_the_watch_cache_is_limited(store):
    history = store._kind_stores[CONFIG].history
    history._most_bytes = 64 << 10
    store.create(CONFIG, "default", config(size=1 << 10))
    begun = str(store.version)
    for i in range(100):
        relabel(store, "web", f"v{i}")
    assert sum(change.size for change in history._changes) == history._bytes <= 64 << 10
    assert len(history._changes) in range(40, 64)
    with pytest.raises(ApiError) as caught:
        store.watch(CONFIG, ALL, begun, lambda: None)
    assert caught.value.code == 410
    assert len(take_all(store.watch(CONFIG, ALL, str(history.floor), lambda: None))) == len(history._changes)


def test_a_compaction_forgets_old_changes_and_leaves_the_last_ones(store):
    """What a watch or a list could miss gives 410; a kind that does not change keeps its place in the order of versions."""
    store.create(CONFIG, "default", config("quiet"))
    quiet = store.version
    for i in range(300):
        relabel(store, "quiet", f"v{i}")
    history = store._kind_stores[CONFIG].history
    held = sum(change.size for change in history._changes)
    store.compact(store.version)
    assert len(history._changes) == watches.KEPT
    assert history._bytes == sum(change.size for change in history._changes) < held
    with pytest.raises(ApiError) as caught:
        store.watch(CONFIG, ALL, str(quiet), lambda: None)
    assert caught.value.code == 410
    floor = store.watch(CONFIG, ALL, str(history.floor), lambda: None)
    assert [event.version for event in take_all(floor)] == [*range(history.floor + 1, store.version + 1)]
    store.compact(store.version)
    assert len(history._changes) == watches.KEPT
    other = served("secrets")
    assert store._kind_stores[other].history.floor < quiet
    assert not store.watch(other, ALL, str(quiet), lambda: None).take()


def test_a_compaction_keeps_the_changes_after_its_version(store):
    store.create(CONFIG, "default", config())
    for i in range(300):
        relabel(store, "web", f"v{i}")
    version = store.version - 200
    store.compact(version)
    assert store._kind_stores[CONFIG].history.floor == version
    assert len(take_all(store.watch(CONFIG, ALL, str(version), lambda: None))) == 200


def test_a_list_whose_version_is_compacted_goes_on_with_the_current_objects(store):
    for number in range(6):
        store.create(CONFIG, "default", config(f"c{number}"))
    first = store.page(CONFIG, ALL, limit=2)
    relabel(store, "c3", "new")
    held = store.page(CONFIG, ALL, limit=2, token=first.token)
    assert ([one.name for one in held.records], held.version) == (["c2", "c3"], first.version)
    store.compact(store.version)
    with pytest.raises(ApiError) as caught:
        store.page(CONFIG, ALL, limit=2, token=first.token)
    status = caught.value.status()
    assert (status["code"], status["reason"]) == (410, "Expired")
    rest = store.page(CONFIG, ALL, limit=2, token=status["metadata"]["continue"])
    assert ([one.name for one in rest.records], rest.remaining, rest.version) == (["c2", "c3"], 2, store.version)
    last = store.page(CONFIG, ALL, limit=2, token=rest.token)
    assert ([one.name for one in last.records], last.token) == (["c4", "c5"], "")


VERBS = st.sampled_from(["create", "update", "delete", "take", "take"])
STEPS = st.lists(st.tuples(VERBS, st.sampled_from("abcdef"), st.sampled_from("xy")), max_size=40)


@pytest.mark.slow
@hypothesis_settings(max_examples=75, deadline=None)
@given(there=st.sets(st.sampled_from("abcdef")), steps=STEPS, label=st.sampled_from(["", "app=x", "app!=x"]))
def test_a_list_read_in_pieces_ends_in_the_current_state(there, steps, label):
    """Whatever happens between two pieces, a watch shows nothing twice or out of order, and at its end its reader knows
    the current state.
    """
    store = Store(lambda: 0.0, random.Random(3), b"k")
    chosen = selection(CONFIG, "default", label, "")
    for name in sorted(there):
        store.create(CONFIG, "default", config(name, {"app": "x"}))
    watch, known = store.watch(CONFIG, chosen, "", lambda: None), {}

    def read(most):
        for seen in watch.take(most):
            name = seen.record.name
            assert (name in known) is (seen.type != "ADDED")
            assert known.get(name, 0) < seen.version == seen.record.version
            if seen.type == "DELETED":
                del known[name]
            else:
                known[name] = seen.version

    for verb, name, value in steps:
        exists = store.find(CONFIG, "default", name) is not None
        if verb == "take":
            read(1)
        elif verb == "create" and not exists:
            store.create(CONFIG, "default", config(name, {"app": value}))
        elif verb == "update" and exists:
            relabel(store, name, value)
        elif verb == "delete" and exists:
            store.delete(CONFIG, "default", name)
        if watch.idle:
            assert known == {one.name: one.version for one in store.all(CONFIG, chosen)}
    while not watch.idle:
        read(1)
    assert known == {one.name: one.version for one in store.all(CONFIG, chosen)}


# -- streams ------------------------------------------------------------------------------------------------------------


def stream_of(store, **query):
    request = HTTPRequest("GET", PATH, {"watch": "1", **query}, "application/json", "", b"", User("x"))
    return open_stream(store, request, find_target(PATH))


def test_a_stream_that_ends_early_sends_no_bookmark(store):
    """A bookmark would make its client continue after events that it did not receive."""

    async def run(*, changed):
        stream = stream_of(store, resourceVersion=str(store.version), allowWatchBookmarks="1")
        stream._timeout_s = 0  # it ends after the first piece
        store.create(CONFIG, "default", config("first"))
        shown = []
        async for parts in stream:
            shown.append(b"".join(parts))
            if changed and len(shown) == 1:
                store.create(CONFIG, "default", config("second"))
        return [line.partition(b",")[0] for line in b"".join(shown).splitlines()]

    assert asyncio.run(run(changed=False)) == [b'{"type":"ADDED"', b'{"type":"BOOKMARK"']
    store.delete(CONFIG, "default", "first")
    assert asyncio.run(run(changed=True)) == [b'{"type":"ADDED"']


@pytest.mark.slow
def test_a_slow_reader_gets_a_list_and_the_changes_during_it(against_a_server):
    async def test(client, store):
        for i in range(400):
            store.create(CONFIG, "default", config(f"c{i:03}", size=8000))
        query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        url, known, marked = f"{client.base}/api/v1/namespaces/default/configmaps?{query}", {}, 0
        async with client.session.get(url, headers={"Authorization": f"Bearer {client.token}"}) as response:
            for turn in range(10_000):
                event = json.loads(await response.content.readline())
                seen, name = event["object"]["metadata"], event["object"]["metadata"].get("name")
                if event["type"] == "BOOKMARK":
                    marked = int(seen["resourceVersion"])
                    break
                assert (name in known) is (event["type"] != "ADDED")
                known = {**known, name: int(seen["resourceVersion"])}
                if event["type"] == "DELETED":
                    del known[name]
                if turn % 20 == 0 and turn < 400:
                    store.delete(CONFIG, "default", f"c{399 - turn:03}")
                    relabel(store, f"c{turn:03}", "x") if store.find(CONFIG, "default", f"c{turn:03}") else None
                    store.create(CONFIG, "default", config(f"b{turn:03}"))
        assert marked == store.version
        assert known == {one.name: one.version for one in store.all(CONFIG, Selection("default"))}

    against_a_server(test)


def test_a_large_object_is_sent_without_a_copy(store):
    store.create(CONFIG, "default", config(size=200_000))
    (seen,) = store.watch(CONFIG, ALL, "", lambda: None).take()
    assert any(part is seen.held.body for part in event_parts(seen, "", "application/json"))
