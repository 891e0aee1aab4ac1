"""Claims of devices as they go over the wire: two programs that share no code but the wire agree on what was changed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from moorage.api.decode import decode
from moorage.api.devices import AllocationResult, ClaimConsumer, DeviceClass, ResourceClaim
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.raw_objects import WRITTEN, RawObjects
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import serving
from moorage.errors import ClusterError
from moorage.live.server.api_cluster import ApiCluster
from moorage.plugins.devices.group_claims import without_user
from moorage.rules.store.store import Store

PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CONFIG = {"requests": ["r"], "opaque": {"driver": "gpu.example.com", "parameters": {"kept": "as it is"}}}


def a_claim(name="c", **metadata):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    document = {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {"devices": {"requests": [request]}}}
    return msgspec.convert(document, ResourceClaim)


GIVEN = {"devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}]}}


def used_by(*names):
    """Return a change that adds users, as one that is bound to the claim is added, and devices where there are none."""

    def change(claim):
        users = tuple([ClaimConsumer(resource="pods", name=name, uid=f"uid-{name}") for name in names])
        metadata = replace(claim.metadata, finalizers=("example.com/f",))
        given = claim.status.allocation or msgspec.convert(GIVEN, AllocationResult)
        status = replace(claim.status, allocation=given, reserved_for=(*claim.status.reserved_for, *users))
        return replace(claim, metadata=metadata, status=status)

    return change


@asynccontextmanager
async def a_server():
    store = Store(time.time, random.Random(5), b"k")
    async with serving(store, Authenticator({"t": User("admin", ("system:masters",))})) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity("t")))
        async with Rest(endpoint, qps=0) as rest:
            yield rest, ApiCluster(rest, "me", "me-0")


async def stored(rest, name="c"):
    return json.loads(await rest.send("GET", f"{PATH}/{name}"))


def users(document):
    return [user["name"] for user in document.get("status", {}).get("reservedFor", [])]


async def create(rest):
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}], "config": [CONFIG]}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}
    return json.loads(await rest.send("POST", PATH, json.dumps(body).encode()))


def test_a_patch_of_object_and_status_keeps_the_other_fields():
    async def main():
        async with a_server() as (rest, cluster):
            made = await create(rest)
            claim = a_claim(uid=made["metadata"]["uid"], resourceVersion="1")  # long out of date
            await cluster.amend(claim, used_by("p"), "status")
            return await stored(rest)

    document = asyncio.run(main())
    assert users(document) == ["p"]
    assert document["metadata"]["finalizers"] == ["example.com/f"]
    assert document["spec"]["devices"]["config"] == [CONFIG]


def test_concurrent_patches_lose_nothing():
    async def main():
        async with a_server() as (rest, cluster):
            made = await create(rest)
            claim = a_claim(uid=made["metadata"]["uid"])
            await asyncio.gather(*(cluster.amend(claim, used_by(name), "status") for name in "abc"))
            return await stored(rest)

    assert sorted(users(asyncio.run(main()))) == ["a", "b", "c"]


def test_a_recreated_claim_of_the_same_name_is_unchanged():
    async def main():
        async with a_server() as (rest, cluster):
            await create(rest)
            with pytest.raises(ClusterError) as gone:
                await cluster.amend(a_claim(uid="another"), used_by("p"), "status")
            return gone.value.status, await stored(rest)

    status, document = asyncio.run(main())
    assert status == 404
    assert users(document) == []


def test_a_new_claim_is_stored_with_its_status_and_deleted_by_name():
    async def main():
        async with a_server() as (rest, cluster):
            new = used_by("p")(a_claim("new", uid="made-up"))
            await cluster.write(None, new, "status")
            made = await stored(rest, "new")
            without = replace(new, metadata=replace(new.metadata, uid=""))
            free = lambda claim: replace(claim, metadata=replace(claim.metadata, finalizers=()))  # noqa: E731
            await cluster.amend(without, free, "")
            await cluster.delete(without)
            with pytest.raises(ClusterError, match="not found"):
                await stored(rest, "new")
            return made

    made = asyncio.run(main())
    assert users(made) == ["p"]
    assert made["metadata"]["uid"] != "made-up"


def test_a_consumer_is_taken_out_by_its_uid():
    """Other consumers that came meanwhile stay, although the claim was not read again."""

    async def main():
        async with a_server() as (rest, cluster):
            made = await create(rest)
            first = await cluster.amend(a_claim(uid=made["metadata"]["uid"]), used_by("a", "b"), "status")
            texts = RawObjects(WRITTEN)
            texts.store(first, await rest.send("GET", f"{PATH}/c"))
            await cluster.amend(first, used_by("c"), "status")
            late = ApiCluster(rest, "me", "me-0", texts=texts)
            await late.amend(first, lambda claim: without_user("uid-a", claim), "status")
            return await stored(rest)

    assert users(asyncio.run(main())) == ["b", "c"]


def test_an_allocation_has_the_parameters_as_they_are_written():
    """Numbers beyond 64 bits, escapes and the order of keys stay in the claim, and are the same in its allocation."""
    of_claim = b'{"z": 1.0, "a": 0.10, "n": 1000000000000000000000000000000, "t": "\\u003c\xc3\xb8\\u00f8"}'
    of_class = b'{"deep":{"b":[1.50,{"a":null}]}}'
    claim_text = (
        b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c","namespace":"default","uid":"u",'
        b'"resourceVersion":"1","new":1.0e2},"spec":{"devices":{"config":[{"opaque":{"driver":"d","parameters":'
        + of_claim
        + b'}}]}},"more":[ 1.0 ]}'
    )
    class_text = b'{"metadata":{"name":"k"},"spec":{"config":[{"opaque":{"driver":"d","parameters":' + of_class + b"}}]}}"
    texts, sent = RawObjects(WRITTEN), []
    claim = decode(claim_text, ResourceClaim, "claim")
    texts.store(claim, claim_text)
    texts.store(decode(class_text, DeviceClass, "class"), class_text)

    class Server:
        async def send(self, method, path, body=None, **more):
            sent.append((method, path, body))
            return body

    def allocated(now):
        given = [
            {"source": source, "opaque": {"driver": "d", "parameters": msgspec.json.decode(text)}}
            for source, text in (("FromClass", of_class), ("FromClaim", of_claim))
        ]
        allocation = msgspec.convert({"devices": {"results": [], "config": given}}, AllocationResult)
        return used_by("p")(replace(now, status=replace(now.status, allocation=allocation)))

    asyncio.run(ApiCluster(Server(), "me", "me-0", texts=texts).amend(claim, allocated, "status"))
    at = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
    assert [(method, path) for method, path, _ in sent] == [("PUT", at), ("PUT", f"{at}/status")]
    finalizer, status = (body for _, _, body in sent)
    assert finalizer.replace(b',"finalizers":["example.com/f"]', b"") == claim_text.replace(
        b'"more":[ 1.0 ]', b'"more":[ 1.0 ]'
    )
    assert status.count(of_claim) == 2
    assert status.count(of_class) == 1
    assert b'"new":1.0e2' in status
    assert b'"more":[ 1.0 ]' in status


@pytest.mark.parametrize("parameters", ['{"k": 1}', '{"b":1.0, "a":"\\u00f8"}'])
def test_a_claim_whose_parameters_json_does_not_show_as_they_are_is_protected_too(parameters):
    """A client that writes JSON with white space stores it so; the API server shows it without, and wants it as it was."""

    async def main():
        async with a_server() as (rest, cluster):
            request = '{"name":"r","exactly":{"deviceClassName":"gpu"}}'
            body = (
                '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c","namespace":"default"},"spec":'
                f'{{"devices":{{"requests":[{request}],"config":[{{"opaque":{{"driver":"d.example.com","parameters":{parameters}'
                "}}]}}}"
            ).encode()
            made = json.loads(await rest.send("POST", PATH, body))
            await cluster.amend(a_claim(uid=made["metadata"]["uid"]), used_by("p"), "status")
            return made, await stored(rest)

    made, document = asyncio.run(main())
    assert users(document) == ["p"]
    assert document["metadata"]["finalizers"] == ["example.com/f"]
    assert document["spec"] == made["spec"]


SPELLED = {  # the parameters as they were created, as they come back, and whether that is a change
    "as they were": ('{"k":1.0,"t":"ø"}', '{"k":1.0,"t":"ø"}', False),
    "with spaces": ('{"k":1}', '{"k": 1}', True),
    "with spaces, as they were": ('{"k": 1}', '{"k": 1}', False),
    "another form of a number": ('{"k":1.0}', '{"k":1}', True),
    "another form of a letter": ('{"t":"ø"}', '{"t":"\\u00f8"}', True),
    "another order": ('{"a":1,"b":2}', '{"b":2,"a":1}', True),
}


@pytest.mark.parametrize(("made", "sent", "refused"), SPELLED.values(), ids=SPELLED)
def test_the_embedded_server_compares_opaque_parameters_as_bytes(made, sent, refused):
    """As a kube-apiserver does, which keeps them as they came: an update may not encode them again."""

    def body(parameters, version=""):
        request = '{"name":"r","exactly":{"deviceClassName":"gpu"}}'
        metadata = f'{{"name":"c","namespace":"default"{version}}}'
        return (
            f'{{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{metadata},"spec":{{"devices":{{"requests":'
            f'[{request}],"config":[{{"opaque":{{"driver":"d.example.com","parameters":{parameters}}}}}]}}}}}}'
        ).encode()

    async def main():
        async with a_server() as (rest, _):
            claim = json.loads(await rest.send("POST", PATH, body(made)))
            version = f',"resourceVersion":"{claim["metadata"]["resourceVersion"]}"'
            try:
                await rest.send("PUT", f"{PATH}/c", body(sent, version))
            except ClusterError as error:
                return error.status, error.said
            return 200, ""

    status, said = asyncio.run(main())
    assert status == (422 if refused else 200), said
    assert said.endswith("field is immutable") is refused
