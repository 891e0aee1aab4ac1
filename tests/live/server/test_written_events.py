"""Events as they are written to the embedded API server."""

import asyncio
import json
import random
import time

from moorage.api.core import Pod
from moorage.api.decode import decode
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import serving
from moorage.live.runtime.ports import EventNote, EventRecord
from moorage.live.server.api_cluster import ApiCluster
from moorage.live.server.election_locks import ApiLock
from moorage.rules.store.store import Store

AT, LATER = "2026-11-21T03:00:00.000000Z", "2026-11-21T03:05:00.000000Z"


def on_server(act):
    async def main():
        store = Store(time.time, random.Random(5), b"k")
        async with serving(store, Authenticator({"t": User("admin", ("system:masters",))})) as port:
            endpoint = Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity("t")))
            async with Rest(endpoint, qps=0) as rest:
                return await act(rest)

    return asyncio.run(main())


async def a_pod(rest, name):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    made = await rest.send("POST", "/api/v1/namespaces/default/pods", json.dumps(body).encode())
    return decode(made, Pod, "pod")


async def events(rest, path="/apis/events.k8s.io/v1/namespaces/default/events"):
    return json.loads(await rest.get(path))["items"]


def test_an_event_becomes_a_series_and_is_recreated_if_deleted():
    async def act(rest):
        pod = await a_pod(rest, "p")
        cluster = ApiCluster(rest, "other", "host")
        note = EventNote(pod, "Warning", "FailedScheduling", "Scheduling", "no room", reporter="default-scheduler")
        await cluster.record(EventRecord(note, "p.1", AT))
        (first,) = await events(rest)
        await cluster.record(EventRecord(note, "p.1", AT, 2, LATER))
        (second,) = await events(rest)
        await rest.send("DELETE", "/apis/events.k8s.io/v1/namespaces/default/events/p.1")
        await cluster.record(EventRecord(note, "p.1", AT, 7, LATER))
        return first, second, await events(rest)

    first, second, (third,) = on_server(act)
    assert first["regarding"]["name"] == "p"
    assert (first["type"], first["reason"], first["action"], first["note"]) == (
        "Warning", "FailedScheduling", "Scheduling", "no room",
    )  # fmt: skip
    assert (first["reportingController"], first["reportingInstance"]) == ("default-scheduler", "default-scheduler-host")
    assert not first.get("series")
    assert second["series"] == {"count": 2, "lastObservedTime": LATER}
    assert second["note"] == "no room"
    assert third["series"]["count"] == 7


def test_a_new_leader_writes_an_event():
    async def act(rest):
        lease = ApiLock(rest, "leases", "default", "kube-scheduler")
        await lease.write_event("me became leader", AT, "default-scheduler")
        return await events(rest, "/api/v1/namespaces/default/events")

    (event,) = on_server(act)
    assert (event["reason"], event["message"], event["type"]) == ("LeaderElection", "me became leader", "Normal")
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Lease", "kube-scheduler")
