"""Events as they are written to the embedded API server."""

import asyncio
import json
import random
import time
from types import MappingProxyType

from moorage.api.core import Pod
from moorage.api.decode import decode
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import serving
from moorage.errors import ClusterError
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


def test_a_core_event_is_counted_and_created_again_if_deleted():
    async def act(rest):
        pod = await a_pod(rest, "p")
        cluster = ApiCluster(rest, "other", "host")
        note = EventNote(pod, "Warning", "FailedScheduling", "Scheduling", "no room", reporter="default-scheduler")
        path = "/api/v1/namespaces/default/events"
        await cluster.record(EventRecord(note, "p.1", AT, 1, AT, core=True))
        (first,) = await events(rest, path)
        await cluster.record(EventRecord(note, "p.1", AT, 2, LATER, core=True))
        (second,) = await events(rest, path)
        await rest.send("DELETE", f"{path}/p.1")
        await cluster.record(EventRecord(note, "p.1", AT, 7, LATER, core=True, combined=True))
        return pod, first, second, await events(rest, path)

    pod, first, second, (third,) = on_server(act)
    whole = {key: value for key, value in first.items() if key != "metadata"}
    assert whole == {
        "involvedObject": {
            "kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "p", "uid": pod.uid,
            "resourceVersion": pod.metadata.resource_version,
        },
        "reason": "FailedScheduling", "message": "no room", "type": "Warning", "source": {"component": "default-scheduler"},
        "reportingComponent": "default-scheduler", "reportingInstance": "", "count": 1, "eventTime": None,
        "firstTimestamp": "2026-11-21T03:00:00Z", "lastTimestamp": "2026-11-21T03:00:00Z",
    }  # fmt: skip
    assert (second["count"], second["firstTimestamp"], second["lastTimestamp"]) == (
        2, "2026-11-21T03:00:00Z", "2026-11-21T03:05:00Z",
    )  # fmt: skip
    assert (third["count"], third["reportingComponent"]) == (7, "")


def test_the_events_api_is_asked_for_once():
    async def act(rest):
        seen, cluster = [], ApiCluster(rest, "other", "host")
        get = rest.get

        async def forbidden(path, params=MappingProxyType({})):
            seen.append(path)
            raise ClusterError("no", 403, "Forbidden")

        served = await cluster.serves_events_api()
        rest.get = forbidden
        refused = await cluster.serves_events_api()
        rest.get = get
        return served, refused, seen

    assert on_server(act) == (True, False, ["/apis/events.k8s.io/v1"])
