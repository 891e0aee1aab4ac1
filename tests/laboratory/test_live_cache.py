"""What commands keep of a live cluster: a later one watches for changes, and reads what it cannot use again."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from copy import copy
from pathlib import Path

import pytest

from moorage.basis.client.credentials import Endpoint
from moorage.basis.inputs.files import InputFile
from moorage.errors import ClusterError
from moorage.laboratory.dump import live_cache
from moorage.laboratory.dump.live_cache import CachedReading, LiveCache, cache_folder
from moorage.simulator.cluster_reader import read_sources

PODS = "/api/v1/pods"
NAMESPACE = "/api/v1/namespaces/kube-system"
SECRET = "a-password"
HERE = Endpoint("https://here")


def a_pod(name, node=""):
    container = {"name": "c", "image": "i", "args": [SECRET], "env": [{"name": "PASSWORD", "value": SECRET}]}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "resourceVersion": "5", "annotations": {"example.com/note": SECRET}},
        "spec": {"containers": [container], "nodeName": node},
    }  # fmt: skip


def event(kind, name, version, node=""):
    found = a_pod(name, node)
    found["metadata"]["resourceVersion"] = version
    return json.dumps({"type": kind, "object": found}).encode()


class Server:
    """A server with pods. ``silent`` watches stay open, others end after their events."""

    def __init__(self, *names, version="10", events=(), uid="one", silent=True, refused=()):
        self.pods = [a_pod(name) for name in names]
        self.version, self.events, self.uid, self.silent, self.refused = version, events, uid, silent, refused
        self.listed = 0
        self.since: str | None = None

    async def send(self, method, path, *, params=None):
        assert method == "GET"
        if path == NAMESPACE:
            if "namespace" in self.refused:
                raise ClusterError("no", 403, "Forbidden")
            return json.dumps({"metadata": {"name": "kube-system", "uid": self.uid}}).encode()
        assert (path, params) == (PODS, {"limit": "1"})
        if "list" in self.refused:
            raise ClusterError("no", 403, "Forbidden")
        return json.dumps({"metadata": {"resourceVersion": self.version}}).encode()

    async def get(self, path, params):
        self.listed += 1
        if "list" in self.refused:
            raise ClusterError("no", 403, "Forbidden")
        page = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": self.version}, "items": self.pods}
        return json.dumps(page).encode()

    @asynccontextmanager
    async def watch(self, path, params, idle_s):
        if "watch" in self.refused:
            raise ClusterError("no", 403, "Forbidden")
        assert (path, params["watch"]) == (PODS, "1")
        self.since = params["resourceVersion"]

        async def lines():
            yield list(self.events)
            if self.silent:
                await asyncio.sleep(3600)

        yield lines()


def names_read(server, folder, key=("me",), endpoint=HERE):
    """Return the pods that a command sees, with their nodes."""
    reading = CachedReading(LiveCache(folder, endpoint, key))
    return [(pod.name, pod.spec.node_name) for pod in asyncio.run(pods_read(server, reading))]


async def pods_read(server, reading):
    get = await reading.open(server)
    page = await get(PODS, {"limit": "500"})
    cluster = read_sources([InputFile(PODS, page)], validated=False, known=reading.known)
    await asyncio.to_thread(reading.save, cluster)
    return cluster.pods


@pytest.fixture(autouse=True, params=[0, 1 << 30], ids=["changes beside", "all written again"])
def _quick(monkeypatch, request):
    monkeypatch.setattr(live_cache, "_LARGE", 0)
    monkeypatch.setattr(live_cache, "_MUCH", request.param)
    monkeypatch.setattr(live_cache, "_SILENCE_S", 0.01)


@pytest.fixture
def kept(tmp_path):
    """A folder in which a command kept two pods at version 10."""
    folder = tmp_path / "moorage" / "live"
    assert names_read(Server("b", "w"), folder) == [("b", ""), ("w", "")]
    return folder


def the_file(folder, ending="objects"):
    (found,) = folder.glob(f"*.{ending}")
    return found


FOLLOWED = {  # the server → what the second command sees; nothing is listed
    "nothing changed": (Server(), [("b", ""), ("w", "")]),
    "other kinds changed": (Server(version="30"), [("b", ""), ("w", "")]),
    "a pod came, in its place": (Server(version="12", events=[event("ADDED", "f", "12")]), [("b", ""), ("f", ""), ("w", "")]),
    "a pod was bound": (Server(version="12", events=[event("MODIFIED", "w", "12", "n1")]), [("b", ""), ("w", "n1")]),
    "a pod went": (Server(version="12", events=[event("DELETED", "b", "12")]), [("w", "")]),
    "a bookmark": (Server(version="12", events=[event("BOOKMARK", "", "12")]), [("b", ""), ("w", "")]),
    "all that it waits for came before the watch ended": (
        Server(version="12", events=[event("DELETED", "b", "12")], silent=False), [("w", "")],
    ),
    "versions that are no numbers": (Server(version="x", events=[event("DELETED", "b", "y")]), [("w", "")]),
}  # fmt: skip


@pytest.mark.parametrize(("server", "seen"), FOLLOWED.values(), ids=FOLLOWED)
def test_changes_since_then_are_watched(kept, server, seen):
    server = copy(server)
    assert names_read(server, kept) == seen
    assert server.listed == 0
    assert server.since == "10"
    assert names_read(Server(version=server.version), kept) == seen  # the third has what the second saw


def test_what_a_server_sends_late_is_not_lost(kept):
    assert names_read(Server(version="30"), kept) == [("b", ""), ("w", "")]  # it was silent, though something changed
    late = Server(version="30", events=[event("DELETED", "b", "20"), event("BOOKMARK", "", "30")])
    assert names_read(late, kept) == [("w", "")]
    assert late.since == "10"
    again = Server(version="30")
    assert names_read(again, kept) == [("w", "")]
    assert again.since == "30"


EXPIRED = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}).encode()
LISTED = {
    "its version has expired": Server("n", version="99", events=[EXPIRED]),
    "a watch that is dropped": Server("n", version="99", silent=False),
    "a watch that is dropped before all came": Server("n", version="99", events=[event("ADDED", "f", "50")], silent=False),
    "no right to watch": Server("n", version="99", refused=["watch"]),
    "no event": Server("n", version="99", events=[b"<html>"]),
    "another cluster at that address": Server("n", uid="two"),
    "no right to know the cluster": Server("n", refused=["namespace"]),
}


@pytest.mark.parametrize("server", LISTED.values(), ids=LISTED)
def test_what_cannot_be_followed_is_listed(kept, server):
    server = copy(server)
    assert names_read(server, kept) == [("n", "")]
    assert server.listed == 1


def test_what_may_not_be_read_any_more_is_refused(kept):
    with pytest.raises(ClusterError):
        names_read(Server("n", refused=["list"]), kept)


DAMAGES = {
    "cut short": lambda data: data[: len(data) // 2],
    "a byte changed": lambda data: data[:-20] + b"X" + data[-19:],
    "empty": lambda data: b"",
    "no header": lambda data: b"\n" + data,
    "another format": lambda data: b"{}\n" + data,
    "not text": lambda data: b"\xff\xfe" * 40,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_not_used(kept, damage):
    path = the_file(kept)
    path.write_bytes(damage(path.read_bytes()))
    server = Server("n")
    assert names_read(server, kept) == [("n", "")]
    assert names_read(Server(), kept) == [("n", "")]  # and it was replaced by a good one


def written_again(path):
    """Have another cluster, and then this one, listed at that address."""
    for server in (Server(uid="two"), Server("b", "w", version="11")):
        names_read(server, path.parent)


OLDER = {  # what happens to the changes → the version that is followed
    "damaged": (lambda path: path.write_bytes(path.read_bytes()[:-3]), "10"),
    "gone": (lambda path: path.unlink(), "10"),
    "of another file": (written_again, "11"),
}


@pytest.mark.parametrize(("what", "since"), OLDER.values(), ids=OLDER)
def test_without_the_changes_an_older_state_is_followed(kept, what, since, monkeypatch):
    monkeypatch.setattr(live_cache, "_MUCH", 0)
    changed = Server(version="12", events=[event("DELETED", "b", "12"), event("MODIFIED", "w", "12", "n1")])
    assert names_read(changed, kept) == [("w", "n1")]
    what(the_file(kept, "changes"))
    again = Server(version="12", events=changed.events)
    assert names_read(again, kept) == [("w", "n1")]
    assert (again.since, again.listed) == (since, 0)


def test_changes_add_up_beside_the_objects(kept, monkeypatch):
    monkeypatch.setattr(live_cache, "_MUCH", 0)
    written = the_file(kept).read_bytes()
    steps = [
        event("ADDED", "f", "12"),
        event("DELETED", "b", "13"),
        event("MODIFIED", "f", "14", "n1"),
        event("ADDED", "b", "15"),
    ]
    for at, step in enumerate(steps, 12):
        seen = names_read(Server(version=str(at), events=[step]), kept)
    assert seen == names_read(Server(version="15"), kept) == [("b", ""), ("f", "n1"), ("w", "")]
    assert the_file(kept).read_bytes() == written


@pytest.mark.parametrize(
    ("key", "endpoint"),
    [
        (("you",), Endpoint("https://here")), (("me",), Endpoint("https://there")),
        (("me",), Endpoint("https://here", ca=b"x")), (("me",), Endpoint("https://here", headers=(("Impersonate-User", "a"),))),
    ],
)  # fmt: skip
def test_each_view_of_a_cluster_has_its_own_file(kept, key, endpoint):
    server = Server("n")
    assert names_read(server, kept, key, endpoint) == [("n", "")]
    assert server.listed == 1
    assert len(list(kept.iterdir())) == 2


def test_files_are_private_and_have_no_secrets(kept):
    names_read(Server(version="12", events=[event("ADDED", "f", "12")]), kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    for path in kept.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert SECRET.encode() not in path.read_bytes()


def test_a_file_that_was_not_used_for_weeks_is_removed(kept):
    old = kept / "old.objects"
    old.write_bytes(b"")
    os.utime(old, (0, 0))
    names_read(Server(), kept)
    assert not old.exists()


def test_several_commands_at_once_leave_a_whole_file(kept):
    async def one(name):
        server = Server(version="12", events=[event("ADDED", name, "12")])
        await pods_read(server, CachedReading(LiveCache(kept, Endpoint("https://here"), ("me",))))

    async def every():
        await asyncio.gather(*(one(f"p{at}") for at in range(8)))

    asyncio.run(every())
    (name,) = {name for name, _ in names_read(Server(version="12"), kept)} - {"b", "w"}
    assert name.startswith("p")
    the_file(kept)


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    assert names_read(Server("n"), tmp_path / "file" / "live") == [("n", "")]


def test_the_folder_is_that_of_the_user():
    assert cache_folder({"HOME": "/home/me"}) == Path("/home/me/.cache/moorage/live")
    assert cache_folder({"HOME": "/home/me", "XDG_CACHE_HOME": "/c"}) == Path("/c/moorage/live")
    assert cache_folder({"MOORAGE_CACHE_DIR": "/d", "XDG_CACHE_HOME": "/c"}) == Path("/d")
    assert cache_folder({"MOORAGE_CACHE_DIR": "", "HOME": "/home/me"}) is None


# -- answers -----------------------------------------------------------------------------------------------------------


def state_seen(server, folder, others=("v1.36.2",), is_known=False):
    """Return the state of the cluster that a command sees; ``is_known``: it needs no more."""
    states = []

    def arrived(state, taken_at):
        states.append(state)
        if is_known:
            raise CancelledError

    async def read():
        reading = CachedReading(LiveCache(folder, HERE, ("me",)), arrived)
        pages = [InputFile(PODS, await (await reading.open(server))(PODS, {"limit": "500"}))]
        reading.arrive(others, "now")
        reading.save(read_sources(pages, validated=False, known=reading.known))

    with suppress(CancelledError):
        asyncio.run(read())
    (state,) = states
    return state


def annotated(name, version):
    found = json.loads(event("MODIFIED", name, version))
    found["object"]["metadata"]["annotations"]["example.com/note"] = "another"
    return json.dumps(found).encode()


def ended(name, version):
    found = json.loads(event("MODIFIED", name, version))
    found["object"]["status"] = {"phase": "Failed"}
    return json.dumps(found).encode()


STATES = {  # events, what else is known → whether the state is that of before
    "nothing": ((), ("v1.36.2",), True),
    "a bookmark": ((event("BOOKMARK", "", "12"),), ("v1.36.2",), True),
    "a version": ((event("MODIFIED", "w", "12"),), ("v1.36.2",), True),
    "an annotation that scheduling does not read": ((annotated("w", "12"),), ("v1.36.2",), True),
    "a pod was bound": ((event("MODIFIED", "w", "12", "n1"),), ("v1.36.2",), False),
    "a pod ended": ((ended("w", "12"),), ("v1.36.2",), False),
    "a pod came": ((event("ADDED", "f", "12"),), ("v1.36.2",), False),
    "a pod went": ((event("DELETED", "b", "12"),), ("v1.36.2",), False),
    "a pod came back as it was": ((event("DELETED", "b", "11"), event("ADDED", "b", "12")), ("v1.36.2",), False),
    "another release": ((), ("v1.36.3",), False),
    "a kind that may not be read": ((), ("v1.36.2", "services were not read: forbidden"), False),
}  # fmt: skip


@pytest.mark.parametrize(("events", "others", "same"), STATES.values(), ids=STATES)
def test_the_state_changes_with_what_scheduling_reads(kept, events, others, same):
    before = state_seen(Server(), kept)
    seen = state_seen(Server(version="12", events=events), kept, others)
    assert (seen == before) is same
    assert state_seen(Server(version="12"), kept, others) == seen  # and as long as nothing changes, it stays


def test_what_changed_is_kept_where_nothing_more_is_needed(kept):
    before = state_seen(Server(), kept)
    for at, since in ((12, "10"), (13, "12"), (14, "13")):
        server = Server(version=str(at), events=[event("MODIFIED", "w", str(at))])
        assert state_seen(server, kept, is_known=True) == before
        assert server.since == since
    assert names_read(Server(version="14"), kept) == [("b", ""), ("w", "")]


def test_the_state_of_a_small_collection_is_what_it_holds(kept, monkeypatch):
    monkeypatch.setattr(live_cache, "_LARGE", 1 << 30)
    folder = kept / "other"
    states = {state_seen(Server("b", version=version), folder) for version in ("10", "11")}
    assert len(states) == 1
    assert state_seen(Server("c", version="11"), folder) not in states


def test_a_cluster_without_identity_has_no_state(kept):
    assert state_seen(Server("b", refused=["namespace"]), kept) == ""


def test_answers_are_kept_for_one_state(tmp_path):
    cache = LiveCache(tmp_path / "live", HERE, ("me",))
    for number in range(40):
        cache.keep_answer("one", f"q{number}", (f"a{number}", "", 2))
    cache.keep_answer("one", "q39", ("b", "c", 0))
    assert cache.answer("q39", "one") == cache.answer("q39") == ("b", "c", 0)
    assert cache.answer("q38", "one") == ("a38", "", 2)
    assert cache.answer("q1", "one") is None  # the oldest
    assert cache.answer("q38", "two") is None
    cache.keep_answer("two", "q", ("x", "", 0))
    assert cache.answer("q38", "one") is cache.answer("q38") is None


@pytest.mark.parametrize("mode", [0o770, 0o707], ids=["a group", "all"])
def test_a_folder_to_which_others_may_write_is_not_used(kept, mode):
    assert cache_folder({"MOORAGE_CACHE_DIR": str(kept)}) == kept
    kept.chmod(mode)
    assert cache_folder({"MOORAGE_CACHE_DIR": str(kept)}) is None


def test_the_folder_of_another_user_is_not_used(kept, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: kept.stat().st_uid + 1)
    assert cache_folder({"MOORAGE_CACHE_DIR": str(kept)}) is None
