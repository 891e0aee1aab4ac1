"""No object of a dump ends the reading: what cannot be read is left out by name, and the rest goes on.

What a person writes for a question is refused, so that a typing error does not change the answer unseen.
"""

from __future__ import annotations

import copy
import json

import pytest

from moorage import Cluster
from moorage.api.kinds import Kind
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.errors import InputError
from moorage.simulator.cluster_reader import LEFT_OUT, STRICT_RULES, ReadRules, read, read_sources
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.job_kinds import QUEUE_KINDS
from moorage.simulator.simulate import Options
from moorage.simulator.unknown_fields import Validation
from tests.hostile_numbers import BASES

NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}  # fmt: skip
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip
BAD = {**POD, "metadata": {"name": "bad"}, "spec": {**POD["spec"], "priority": "many"}}
PRINTED = {**BAD, "metadata": {"name": "bad", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}}
FAULT = 'Pod bad: spec.priority: expected int, found str "many"'


def a_list(*items):
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def text(document):
    return json.dumps(document).encode()


def stream(*documents, indent=None):
    return "\n".join(json.dumps(one, indent=indent) for one in documents).encode()


#: Where the objects stand → the files, and the beginning of the note.
DUMPS = {
    "in a list": ({"a.json": text(a_list(NODE, BAD, POD))}, f"a.json:1: {FAULT}"),
    "in a list of YAML": (
        {"a.yaml": b"apiVersion: v1\nkind: List\nitems:\n" + b"".join(b"- " + text(one) + b"\n" for one in (NODE, BAD, POD))},
        f"a.yaml:5: {FAULT}",
    ),
    "in a list within a list": ({"a.json": text(a_list(NODE, a_list(BAD), POD))}, f"a.json:1: {FAULT}"),
    "in a typed list": (
        {"a.json": text({"apiVersion": "v1", "kind": "PodList", "items": [POD, BAD]}), "b.json": text(NODE)},
        f"a.json:1: {FAULT}",
    ),
    "in lines of JSON": ({"a.json": stream(NODE, BAD, POD)}, f"a.json:2: {FAULT}"),
    "in objects of JSON in a row": ({"a.json": stream(NODE, BAD, POD, indent=1)}, "a.json:"),
    "as an API server printed it": ({"a.json": text(NODE), "b.json": text(PRINTED), "c.json": text(POD)}, f"b.json:1: {FAULT}"),
}  # fmt: skip


def files(contents):
    return [InputFile(name, content) for name, content in contents.items()]


@pytest.mark.parametrize(("contents", "note"), DUMPS.values(), ids=DUMPS)
def test_an_object_of_a_dump_is_left_out_by_name(contents, note):
    found = read_sources(files(contents))
    assert [pod.name for pod in found.pods] == ["web"]
    assert [node.name for node in found.nodes] == ["n1"]
    (line,) = found.report.left_out
    assert line.startswith(f"{LEFT_OUT}{note}")
    assert line.endswith(FAULT)
    assert line in found.report.notes
    _, run = simulate_cluster(found, Options())
    assert [one.node for one in run.pods] == ["n1"]
    assert line in {one.text for one in run.notes}
    with pytest.raises(InputError, match=r"spec\.priority: expected int"):
        read_sources(files(contents), rules=STRICT_RULES)


def test_an_object_of_a_directory_is_left_out_by_name(tmp_path):
    for name, one in {"a.json": NODE, "b.json": BAD, "c.json": POD, "d.json": {"kind": "Pod"}}.items():
        (tmp_path / name).write_bytes(text(one))
    found = read(tmp_path)
    assert [pod.name for pod in found.pods] == ["web"]
    assert [line.removeprefix(LEFT_OUT) for line in found.report.left_out] == [
        f"{tmp_path}/b.json:1: {FAULT}",
        f"{tmp_path}/d.json: apiVersion not set; expected a Kubernetes object, as kubectl get -o json writes it",
    ]
    with pytest.raises(InputError, match="expected int"):
        read([tmp_path / "a.json", tmp_path / "b.json"])


#: An item of a list → its fault.
ITEMS = {
    "null": (None, "a.json: items[1]: expected a Kubernetes object with apiVersion and kind, found null"),
    "a number": (7, "a.json: items[1]: expected a Kubernetes object with apiVersion and kind, found a scalar"),
    "a list": ([POD], "a.json: items[1]: expected a Kubernetes object with apiVersion and kind, found a list"),
    "no apiVersion": ({"kind": "Pod"}, "a.json: items[1]: apiVersion not set"),
    "a number for apiVersion": ({"apiVersion": 7, "kind": "Pod"}, "a.json: items[1]: apiVersion: expected str, found 7"),
    "a list for metadata": ({**POD, "metadata": []}, "a.json:1: Pod without a name: metadata: expected object, found array"),
    "no name": ({**POD, "metadata": {}}, "a.json: items[1]: Pod: metadata.name: Required value"),
    "invalid": ({**POD, "spec": {"containers": []}}, "a.json: items[1]: Pod default/web: spec.containers: Required value"),
    "several faults": (
        {**BAD, "spec": {"priority": "many", "nodeName": 7}},
        f"a.json:1: {FAULT} (and 1 other fault)",
    ),
    "a kind that scheduling does not read": (
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": 7},
        "a.json:1: Secret s: data: expected object, found int 7",
    ),
    "a policy without a name": (
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "spec": {}},
        "a.json: items[1]: ValidatingAdmissionPolicy: metadata.name: Required value",
    ),
    "a definition": (
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}, "spec": 7},
        "a.json: items[1]: CustomResourceDefinition a.b: spec: expected object, found int 7",
    ),
    "a record of a dump": (
        {"apiVersion": "moorage.dev/v1", "kind": "DumpRecord", "metadata": 7},
        "a.json: items[1]: DumpRecord: metadata: expected object, found int 7",
    ),
    "a job whose pods cannot be read": (
        {
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "t", "namespace": "a"},
            "spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": "none"}}}}},
        },
        "a.json: items[1]: PyTorchJob a/t: spec.pytorchReplicaSpecs: template: PodTemplateSpec: spec.containers: expected",
    ),
    "a job with more replicas than 32 bits hold": (
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "l", "namespace": "a"},
            "spec": {"replicas": 10**30, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": POD["spec"]}}},
        },
        f"a.json: items[1]: LeaderWorkerSet a/l: spec.replicas: {10**30} is no count",
    ),
    "a job with more replicas than can be simulated": (
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "l", "namespace": "a"},
            "spec": {"replicas": 2**31 - 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": POD["spec"]}}},
        },
        "a.json: items[1]: LeaderWorkerSet a/l: spec.replicas: 2147483647 are more than 500000",
    ),
    "an object of a queue": (
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": 7},
        'a.json: items[1]: Kueue: LocalQueue lq: spec: Invalid value: "integer"',
    ),
    "a kind that a plugin names": (
        {"apiVersion": "berth.example.com/v1", "kind": "Quay", "metadata": 7},
        "a.json: items[1]: Quay: metadata: expected object, found int 7",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("item", "fault"), ITEMS.values(), ids=ITEMS)
def test_an_item_that_is_no_object_is_left_out(item, fault):
    found = read_sources([InputFile("a.json", text(a_list(NODE, item)))], custom=["quays.v1.berth.example.com", *QUEUE_KINDS])
    assert [node.name for node in found.nodes] == ["n1"]
    (line,) = found.report.left_out
    assert line.removeprefix(LEFT_OUT).startswith(fault)


def test_a_number_that_no_float_holds_leaves_the_rest():
    claim = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
        "spec": {"devices": {"config": [{"opaque": {"driver": "d.example.com", "parameters": {"n": "@"}}}]}},
    }  # fmt: skip
    found = read_sources([InputFile("a.json", text(a_list(NODE, claim, POD)).replace(b'"@"', b"1e400"))])
    assert [pod.name for pod in found.pods] == ["web"]
    (line,) = found.report.left_out
    assert "number 1e400 is out of range" in line
    assert "ResourceClaim c" in line


def test_all_are_named():
    bad = [{**BAD, "metadata": {"name": f"bad-{number}"}} for number in range(60)]
    found = read_sources([InputFile("a.json", text(a_list(NODE, *bad)))])
    *shown, others = found.report.left_out
    assert len(shown) == 20
    assert others.startswith(f"{LEFT_OUT}40 other objects: Pod bad-20, Pod bad-21, ")
    assert others.endswith("Pod bad-59")


def test_a_misspelt_field_is_an_error_also_in_a_list():
    """``--validate`` says what becomes of these."""
    with pytest.raises(InputError, match=r'unknown field "spec\.nodename"'):
        read_sources([InputFile("a.json", text(a_list({**POD, "spec": {**POD["spec"], "nodename": "n1"}})))])


def test_two_forms_of_one_object_are_an_error():
    other = copy.deepcopy(POD)
    other["spec"]["priority"] = 7
    with pytest.raises(InputError, match=r"is also at a\.json: items"):
        read_sources([InputFile("a.json", text(a_list(POD, other)))])


def test_programs_see_what_is_left_out(tmp_path):
    path = tmp_path / "dump.json"
    path.write_bytes(text(a_list(NODE, BAD, POD)))
    for cluster in (Cluster.read(path), Cluster.from_objects(path)):
        assert any(FAULT in note.text for note in cluster.notes)
        assert [one.node for one in cluster.schedule()] == ["n1"]
    with pytest.raises(InputError, match="expected int"):
        Cluster.from_objects(NODE, BAD)


#: A map has a field that is unknown, which is an error in what no API server printed.
LENIENT = ReadRules(Validation.WARN)
WRONG = {"a text": "x!", "a number": -(2**70), "a list": [7], "a map": {"k": {}}, "null": None, "true": True}


def _places(value, path=()):
    """Yield the path of each value in an object, without its kind and name."""
    held = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in held:
        if (*path, step) not in {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}:
            yield (*path, step)
            yield from _places(inner, (*path, step))


def _with(document, path, value):
    made = copy.deepcopy(document)
    at = made
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return made


def _written(kind: Kind):
    named = {"name": "hostile", **({"namespace": "default"} if kind.namespaced else {}), "labels": {"a": "b"}}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": named, **copy.deepcopy(BASES.get(kind.name, {}))}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_value_in_an_object_ends_a_question(kind):
    """Each field of each kind with a value of each wrong type: the pod beside the object is read."""
    sound = _written(kind)
    for path in _places(sound):
        for name, value in WRONG.items():
            hostile = _with(sound, path, value)
            found = read_sources([InputFile("a.json", text(a_list(NODE, hostile, POD)))], rules=LENIENT)
            assert "web" in {pod.name for pod in found.pods}, (path, name)
            if found.report.left_out:
                assert kind.name in found.report.left_out[0]
