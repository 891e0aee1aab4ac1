"""Regression tests for what the attacks on all routes have found."""

import logging
from unittest import mock

import pytest

from moorage.basis.serving.connections import Connection
from moorage.rules.store.event_apis import mirror_events

LISTED = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
ONE = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PLACE = "/api/v1/namespaces/default"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
INGRESS = {"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}}
EVENT = {
    "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R",
    "message": "m", "type": "Normal",
}  # fmt: skip
BAD = {"finalizers": {"finalizers": ["80"]}, "annotations": {"annotations": {"": "x"}}, "labels": {"labels": {"a b": "x"}}}


@pytest.mark.parametrize("metadata", BAD.values(), ids=BAD)
@pytest.mark.parametrize(("collection", "made"), [(f"{PLACE}/pods", POD), (INGRESSES, INGRESS)], ids=["pod", "ingress"])
def test_metadata_is_validated_in_status_writes(against_a_server, collection, made, metadata):
    async def test(client, store):
        await client.ask("POST", collection, made)
        path, form = f"{collection}/{made['metadata']['name']}/status", "application/merge-patch+json"
        code, said = await client.ask("PATCH", path, {"metadata": metadata}, form=form)
        assert (code, said["reason"]) == (422, "Invalid")
        assert {cause["field"].partition("[")[0] for cause in said["details"]["causes"]} == {f"metadata.{next(iter(metadata))}"}
        sound = {"metadata": {"labels": {"a": "b"}, "finalizers": ["a.b/c"]}}
        assert (await client.ask("PATCH", path, sound, form=form))[0] == 200

    against_a_server(test)


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("POST", f"{PLACE}/configmaps", LISTED), ("PUT", f"{PLACE}/configmaps/there", LISTED),
        ("DELETE", f"{PLACE}/configmaps", ONE),
    ],
)  # fmt: skip
def test_a_write_whose_response_is_not_acceptable_is_not_performed(against_a_server, method, path, accept):
    async def test(client, store):
        await client.ask("POST", f"{PLACE}/configmaps", {"metadata": {"name": "there"}})
        version = store.version
        sent = (
            {"metadata": {"name": "new" if method == "POST" else "there"}, "data": {"a": "b"}} if method != "DELETE" else None
        )
        code, said = await client.ask(method, path, sent, Accept=accept)
        assert (code, said["reason"]) == (406, "NotAcceptable")
        assert store.version == version

    against_a_server(test)


@pytest.mark.parametrize("changes", [False, True])
def test_an_event_can_be_written_back_through_the_other_api(against_a_server, changes):
    async def test(client, store):
        mirror_events(store)
        await client.ask("POST", f"{PLACE}/events", EVENT)
        if changes:
            await client.ask("PUT", f"{PLACE}/events/e", EVENT)
        path = "/apis/events.k8s.io/v1/namespaces/default/events/e"
        _, held = await client.ask("GET", path)
        code, shown = await client.ask("PUT", path, held)
        assert (code, shown) == (200, held)

    against_a_server(test)


def test_a_client_that_disconnects_is_not_logged(caplog):
    connection = mock.Mock(logger=logging.getLogger("aiohttp.server"))
    Connection.handle_error(connection, mock.Mock(), 500, ConnectionResetError())
    assert caplog.records == []
    Connection.handle_error(connection, mock.Mock(), 500, KeyError("x"))
    assert len(caplog.records) == 1
