"""The raw JSON of nodes and pending pods is stored, and nothing else."""

import json

from moorage.api.core import Namespace, Node, Pod
from moorage.api.decode import decode
from moorage.api.devices import ResourceClaim
from moorage.basis.client.listwatch import ObjectDecoder
from moorage.basis.client.raw_objects import WRITTEN, RawObjects
from moorage.basis.client.watched_resources import resource_of


def a_document(name, uid="", on="", **spec):
    if on:
        spec["nodeName"] = on
    metadata = {"name": name, "namespace": "default", "uid": uid or name, "managedFields": [{"manager": "kubectl"}]}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}], **spec}}


def line(kind, document):
    return json.dumps({"type": kind, "object": document}).encode()


def reading(kind=Pod):
    whole = RawObjects()
    return ObjectDecoder(resource_of(kind), lambda text: None, whole), whole


def a_pod(name, uid=""):
    return decode(a_document(name, uid), Pod, "test")


def test_a_pending_pod_is_stored_without_managed_fields():
    reader, whole = reading()
    reader.page(json.dumps({"items": [a_document("p")]}).encode())
    kept = json.loads(whole.json_of(a_pod("p")))
    assert kept["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
    assert kept["metadata"] == {"name": "p", "namespace": "default", "uid": "p"}
    reader.event(line("MODIFIED", a_document("p", hostname="h")))
    assert json.loads(whole.json_of(a_pod("p")))["spec"]["hostname"] == "h"


def test_what_extenders_get_has_no_kind():
    """As from kube-scheduler, whose typed objects have none; an object that is written keeps its own."""
    reader, whole = reading()
    reader.event(line("ADDED", {"kind": "Pod", "apiVersion": "v1", **a_document("p")}))
    assert not {"kind", "apiVersion"} & json.loads(whole.json_of(a_pod("p"))).keys()
    claims, texts = RawObjects(WRITTEN), {"kind": "ResourceClaim", "apiVersion": "v1", "metadata": {"name": "c"}}
    claims.store(decode(texts, ResourceClaim, "test"), json.dumps(texts).encode())
    assert json.loads(claims.json_of(decode(texts, ResourceClaim, "test"))) == texts


def test_an_assigned_or_deleted_pod_is_removed():
    reader, whole = reading()
    for name in ("p", "q"):
        reader.event(line("ADDED", a_document(name)))
    reader.event(line("MODIFIED", a_document("p", on="n")))
    reader.event(line("DELETED", a_document("q")))
    assert len(whole) == 0


def test_a_recreated_pod_is_another_pod():
    reader, whole = reading()
    reader.event(line("ADDED", a_document("p", uid="first")))
    assert whole.json_of(a_pod("p", uid="second")) is None


def test_nodes_are_stored_and_other_kinds_are_not():
    nodes, whole = reading(Node)
    nodes.event(line("ADDED", {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "Hostname", "address": "n"}]}}))
    assert b"Hostname" in whole.json_of(decode({"metadata": {"name": "n"}}, Node, "test"))
    others, whole = reading(Namespace)
    others.event(line("ADDED", {"metadata": {"name": "default"}}))
    assert len(whole) == 0
