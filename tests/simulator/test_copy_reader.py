"""Test that pods read as copies of earlier pods are the same, and have the same faults, as pods that are checked in full."""

from __future__ import annotations

import json

import pytest

from moorage.basis.inputs.files import InputFile
from moorage.errors import InputError
from moorage.simulator.cluster_reader import CopyReader, read_sources

CREATED = "2026-01-01T00:00:00Z"
#: Later pods: what differs from a copy of the first pods → whether the pod is read as a copy.
LATER = {
    "nothing but name and node": ({}, {}, True),
    "a new node": ({}, {"nodeName": "other"}, True),
    "no node": ({}, {"nodeName": None}, False),
    "an invalid node": ({}, {"nodeName": "Not_A_Node"}, False),
    "an invalid name": ({"name": "Not_A_Name"}, {}, False),
    "no name": ({"name": ""}, {}, False),
    "a generated name": ({"name": "", "generateName": "web-"}, {}, False),
    "no UID: not printed by a server": ({"uid": ""}, {}, False),
    "no time of creation": ({"creationTimestamp": None}, {}, False),
    "an unknown field in a manifest": ({"creationTimestamp": None}, {"nodeNmae": "n1"}, False),
    "an unknown field of a newer release": ({}, {"newField": 1}, False),
    "another namespace": ({"namespace": "team"}, {}, False),
    "other labels": ({"labels": {"app": "x"}}, {}, False),
    "no labels": ({"labels": {}}, {}, False),
    "an invalid label": ({"labels": {"app": "not valid"}}, {}, False),
    "an annotation": ({"annotations": {"a": "b"}}, {}, False),
    "an invalid annotation": ({"annotations": {"not valid": "b"}}, {}, False),
    "a finalizer": ({"finalizers": ["example.com/f"]}, {}, False),
    "another owner": (
        {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]}, {}, False,
    ),
    "a priority": ({}, {"priority": 7}, False),
    "an invalid request": ({}, {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}, False),
    "the token's volume": ({}, {"volumes": [{"name": "kube-api-access-x4k2m"}]}, False),
    "no pod at all": ({"labels": 7}, {}, False),
}  # fmt: skip


def pod(name: str, metadata: dict | None = None, spec: dict | None = None) -> dict:
    head = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}, "creationTimestamp": CREATED}
    body = {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}
    given = {"metadata": head | (metadata or {}), "spec": body | (spec or {}), "status": {"phase": "Running"}}
    given["spec"] = {key: value for key, value in given["spec"].items() if value is not None}
    return {"apiVersion": "v1", "kind": "Pod", **given}


def outcome(items: list[dict]) -> tuple:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    try:
        read = read_sources([InputFile("dump.json", text)])
    except InputError as error:
        return (str(error),)
    return read.pods, read.report


@pytest.mark.parametrize(("metadata", "spec", "copied"), LATER.values(), ids=LATER)
def test_a_copy_is_read_like_any_other_pod(metadata, spec, copied, monkeypatch):
    items = [pod(f"p{at}") for at in range(203)] + [pod("last", metadata, spec), pod("later", metadata, spec)]
    found = []
    slow = CopyReader.read

    def read(self, text):
        found.append(slow(self, text))
        return found[-1]

    monkeypatch.setattr(CopyReader, "read", read)
    quickly = outcome(items)
    if len(found) > 2 and len(quickly) == 2:  # the pods before the last two taught it what a copy is
        assert (found[-2] is not None) == copied
    monkeypatch.setattr(CopyReader, "read", lambda self, text: None)
    assert quickly == outcome(items)


def test_most_pods_of_a_dump_are_copies(monkeypatch):
    checked = []
    learn = CopyReader.learn
    monkeypatch.setattr(CopyReader, "learn", lambda self, pod: (checked.append(pod.name), learn(self, pod)))
    items = [pod(f"p{at}", {"labels": {"app": f"a{at % 3}"}}, {"nodeName": f"n{at}"}) for at in range(400)]
    assert len(outcome(items)[0]) == 400
    assert len(checked) < 210


def test_pending_copies_share_one_spec_with_the_first_of_them():
    items = [
        pod(f"p{at}", {"labels": {"app": f"a{at // 250}"}}, {"nodeName": None, "hostname": f"h{at // 250}"})
        for at in range(500)
    ]
    specs = [one.spec for one in outcome(items)[0]]
    assert len({id(spec) for spec in specs[250:]}) == 1
