"""Locks other than a Lease: annotations and multilocks, on the embedded API server and in virtual time."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.errors import ClusterError, InputError
from moorage.live.runtime.leader_election import Election, LeadershipLostError, LeaseRecord
from moorage.live.server.election_locks import ANNOTATION, UNKNOWN, ApiPair, lock_on
from moorage.testing.virtual_time import run_virtually
from tests.live.runtime.test_leader_election import Replica, Server, overlaps
from tests.live.server.test_written_events import events, on_server

T0, T1 = "2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:02.654321Z"
MINE = LeaseRecord("me", 15, T0, T0)
CORE, LEASES = "/api/v1/namespaces/kube-system", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def lock(rest, kind, identity="me"):
    return lock_on(rest, kind, "kube-system", "kube-scheduler", identity)


async def stored(rest, plural):
    return json.loads(await rest.get(f"{LEASES if plural == 'leases' else f'{CORE}/{plural}'}/kube-scheduler"))


async def said(rest, plural):
    return json.loads((await stored(rest, plural))["metadata"]["annotations"][ANNOTATION])


@pytest.mark.parametrize("kind", ["endpoints", "configmaps"])
def test_an_annotation_holds_the_record_as_client_go_writes_it(kind):
    async def act(rest):
        held = lock(rest, kind)
        assert await held.read() is None
        made = await held.create(MINE)
        assert await held.read() == made
        first = (await stored(rest, kind))["metadata"]["annotations"][ANNOTATION]
        await held.update(replace(made, renewed=T1, transitions=3))
        with pytest.raises(ClusterError) as lost:
            await held.update(replace(made, holder="late"))
        await held.write_event("me became leader", T0, "default-scheduler")
        return first, await said(rest, kind), lost.value.status, await events(rest, f"{CORE}/events")

    first, second, status, (event,) = on_server(act)
    assert first == (
        '{"holderIdentity":"me","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00Z",'
        '"renewTime":"2026-01-01T00:00:00Z","leaderTransitions":0}'
    )
    assert (second["renewTime"], second["leaderTransitions"], status) == ("2026-01-01T00:00:02Z", 3, 409)
    assert event["involvedObject"]["kind"] == {"endpoints": "Endpoints", "configmaps": "ConfigMap"}[kind]


def test_other_fields_of_the_lock_object_are_kept():
    async def act(rest):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-scheduler", "annotations": {"a": "b"}}}
        await rest.send("POST", f"{CORE}/configmaps", json.dumps({**body, "data": {"k": "v"}}).encode())
        held = lock(rest, "configmaps")
        free = await held.read()
        assert (free.holder, free.without_version) == ("", LeaseRecord("", 0, "", "").without_version)
        await held.update(replace(MINE, version=free.version))
        return await stored(rest, "configmaps")

    found = on_server(act)
    assert (found["data"], found["metadata"]["annotations"]["a"]) == ({"k": "v"}, "b")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"leaseDurationSeconds": "x"}', "[" * 100_000])
def test_an_invalid_annotation_is_not_treated_as_free(text):
    async def act(rest):
        metadata = {"name": "kube-scheduler", "annotations": {ANNOTATION: text}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        await rest.send("POST", f"{CORE}/configmaps", json.dumps(body).encode())
        with pytest.raises(ClusterError, match="invalid leader election record"):
            await lock(rest, "configmaps").read()

    on_server(act)


# -- pairs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["endpoints", "configmaps"])
def test_a_multilock_holds_both_objects(kind):
    async def act(rest):
        held = lock(rest, f"{kind}leases")
        assert await held.read() is None
        made = await held.create(MINE)
        read = await held.read()
        assert read == made
        renewed = await held.update(replace(read, renewed=T1))
        assert (await held.read()).without_version == renewed.without_version
        await held.write_event("me became leader", T0, "default-scheduler")
        return await said(rest, kind), await stored(rest, "leases"), await events(rest, f"{CORE}/events")

    annotation, lease, written = on_server(act)
    assert (annotation["holderIdentity"], annotation["renewTime"]) == ("me", "2026-01-01T00:00:02Z")
    assert (lease["spec"]["holderIdentity"], lease["spec"]["renewTime"]) == ("me", T1)
    assert lease["spec"]["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert sorted(event["involvedObject"]["kind"] for event in written) == sorted(
        ["Lease", {"endpoints": "Endpoints", "configmaps": "ConfigMap"}[kind]]
    )


def test_a_multilock_with_different_holders_has_an_unknown_holder():
    async def act(rest):
        await lock(rest, "endpoints", "old").create(replace(MINE, holder="old"))
        lease = lock(rest, "leases", "new")
        made = await lease.create(replace(MINE, holder="new"))
        pair = lock(rest, "endpointsleases")
        election = Election("me")
        election.seen(first := await pair.read(), 0.0)
        await lease.update(replace(made, renewed=T1))
        election.seen(await pair.read(), 10.0)
        return first.holder, election.wants(16.0, T1), election.wants(25.0, T1)

    holder, early, late = on_server(act)
    assert (holder, early, late.holder) == (UNKNOWN, None, "me")


def test_a_replica_that_uses_only_annotations_is_respected():
    async def act(rest):
        await lock(rest, "endpoints", "old").create(replace(MINE, holder="old"))
        pair = lock(rest, "endpointsleases")
        read = await pair.read()
        taken = await pair.update(replace(read, holder="me", transitions=1))
        return read.holder, taken.holder, (await stored(rest, "leases"))["spec"]["holderIdentity"]

    assert on_server(act) == ("old", "me", "me")


def test_a_deleted_lease_is_recreated():
    async def act(rest):
        pair = lock(rest, "endpointsleases")
        await pair.create(MINE)
        await rest.send("DELETE", f"{LEASES}/kube-scheduler")
        assert await pair.read() is None
        again = await pair.create(replace(MINE, renewed=T1))
        assert (await pair.read()).holder == again.holder == "me"
        read = await pair.read()
        await rest.send("DELETE", f"{LEASES}/kube-scheduler")
        await pair.update(read)
        return (await stored(rest, "leases"))["spec"]["holderIdentity"]

    assert on_server(act) == "me"


def test_a_lease_acquired_concurrently_by_another_is_left_to_it():
    async def act(rest):
        lease, pair = lock(rest, "leases", "other"), lock(rest, "endpointsleases")
        released = await pair.create(replace(MINE, holder=""))
        await lease.update(replace(await lease.read(), holder="other"))
        with pytest.raises(ClusterError) as lost:
            await pair.update(replace(released, holder="me"))
        assert (await pair.read()).holder == UNKNOWN
        return lost.value.status, (await stored(rest, "leases"))["spec"]["holderIdentity"]

    assert on_server(act) == (409, "other")


def test_an_unknown_lock_type_is_rejected():
    with pytest.raises(InputError, match=r"^couldn't create resource lock: Invalid lock-type podsleases$"):
        lock(None, "podsleases")


def test_a_label_change_does_not_renew_the_lock():
    election = Election("me")
    held = LeaseRecord("other", 15, "t", "t", 0, "1")
    election.seen(held, 0.0)
    election.seen(replace(held, version="2"), 14.0)
    assert election.wants(15.0, "now").version == "2"


class Mixed:
    """An object with an annotation, and a lease; replicas stand for one of them or for both."""

    def __init__(self):
        self.annotation, self.lease = Server(), Server()

    def cut(self, name):
        self.annotation.down ^= {name}
        self.lease.down ^= {name}

    def lock(self, name):
        if name == "annotation":
            return self.annotation.lock(name)
        return self.lease.lock(name) if name == "lease" else ApiPair(self.annotation.lock(name), self.lease.lock(name), name)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["annotation", "lease"])
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.tuples(st.integers(0, 2), st.floats(0.1, 30.0)), max_size=8), seed=st.integers(0, 9))
def test_multilock_and_single_lock_replicas_never_lead_at_once(other, cuts, seed):
    names = ["pair", "pair too", other]

    async def main():
        log, server = [], Mixed()

        async def forever(name):
            while True:
                try:
                    await Replica(server, name, log).run()
                except LeadershipLostError:
                    await asyncio.sleep(1)

        tasks = [asyncio.create_task(forever(name)) for name in names]
        for which, seconds in cuts:
            server.cut(names[which])
            await asyncio.sleep(seconds + seed / 10)
        server.annotation.down.clear()
        server.lease.down.clear()
        log.append((0, "", "healed"))
        await asyncio.sleep(60)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return log

    log = run_virtually(main())
    assert overlaps(log) == []
    healed = next(i for i, (_, _, deed) in enumerate(log) if deed == "healed")
    assert any(deed == "acts" for _, _, deed in log[healed:]), "where all can be reached, one leads"
