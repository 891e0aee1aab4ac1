from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.core import Node, Pod, PodSpec
from moorage.api.decode import decode
from moorage.api.reading.manifests import read_yaml
from moorage.api.workloads import Deployment, PodDisruptionBudget
from moorage.errors import InputError

WEB = {"name": "web", "namespace": "default"}


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": WEB, "spec": spec}


def test_decodes_trees_and_json_alike():
    data = pod(nodeName="n1", containers=[{"name": "c", "resources": {"requests": {"cpu": "100m", "pods": 1, "x.io/y": 0.5}}}])
    by_data, by_text = decode(data, Pod, "f"), decode(json.dumps(data).encode(), Pod, "f")
    assert by_data == by_text
    assert (by_data.key, by_data.spec.node_name) == ("default/web", "n1")
    assert by_data.spec.containers[0].resources.requests == {"cpu": "100m", "pods": 1, "x.io/y": 0.5}


def test_drops_unknown_fields():
    assert decode({"metadata": WEB, "spec": {"dnsPolicy": {"x": [None]}}, "foo": None}, Pod, "f") == decode(
        {"metadata": WEB}, Pod, "f"
    )


NULLS = {
    "structs": ({"metadata": None, "spec": None, "status": None}, Pod()),
    "lists": ({"spec": {"containers": None, "tolerations": None}}, Pod()),
    "maps": ({"metadata": {"labels": None, "annotations": None}, "spec": {"nodeSelector": None}}, Pod()),
    "string and number fields": ({"metadata": {"name": None}, "spec": {"nodeName": None, "hostNetwork": None}}, Pod()),
    "pointers": ({"spec": {"priority": None, "affinity": None, "terminationGracePeriodSeconds": None}}, None),
    "values of a string map": (
        {"metadata": {"labels": {"a": None, "b": "c"}}},
        {"metadata": {"labels": {"a": "", "b": "c"}}},
    ),
    "quantities": (
        {"spec": {"overhead": {"cpu": None, "memory": "1Gi"}}},
        {"spec": {"overhead": {"cpu": 0, "memory": "1Gi"}}},
    ),
    "items of a list of structs": (
        {"spec": {"containers": [None, {"name": "c"}]}},
        {"spec": {"containers": [{}, {"name": "c"}]}},
    ),
    "items of a list of strings": ({"metadata": {"finalizers": [None, "x"]}}, {"metadata": {"finalizers": ["", "x"]}}),
    "deeply nested": (
        {
            "spec": {
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}}
            }
        },
        {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}},
    ),
    "in untyped data": (
        {"metadata": {"labels": None}, "spec": {"volumes": [{"csi": {"driver": None}}]}},
        {"spec": {"volumes": [{"csi": {"driver": None}}]}},
    ),
}


@pytest.mark.parametrize(("data", "expected"), NULLS.values(), ids=NULLS)
def test_reads_nulls_as_go_does(data, expected):
    if expected is None:
        expected = Pod(spec=PodSpec(termination_grace_period_seconds=None))
    elif isinstance(expected, dict):
        expected = msgspec.convert(expected, Pod)
    assert decode(data, Pod, "f") == expected
    assert decode(json.dumps(data).encode(), Pod, "f") == expected


def test_does_not_modify_its_input():
    data = {"metadata": {"labels": {"a": None}}, "spec": None}
    decode(data, Pod, "f")
    assert data == {"metadata": {"labels": {"a": None}}, "spec": None}


REFUSED = {
    "a string for a number": (
        pod(containers=[{"ports": [{"containerPort": "x"}]}]),
        'f:3: Pod default/web: spec.containers[0].ports[0].containerPort: expected int, found str "x"',
    ),
    "a number for a label": (
        {"kind": "Pod", "metadata": {**WEB, "labels": {"a": "b", "version": 1.5}}},
        'f:3: Pod default/web: metadata.labels[version]: expected str, found float 1.5; quote it: "1.5"',
    ),
    "a boolean for a label": (
        pod(nodeSelector={"gpu": True}),
        'f:3: Pod default/web: spec.nodeSelector[gpu]: expected str, found bool true; quote it: "true"',
    ),
    "a label's key with dots": (
        {"metadata": {"annotations": {"a.b/c": 1}}},
        'f:3: Pod: metadata.annotations[a.b/c]: expected str, found int 1; quote it: "1"',
    ),
    "a number for a name": ({"metadata": {"name": 5}}, 'f:3: Pod: metadata.name: expected str, found int 5; quote it: "5"'),
    "a list for an object": ({"metadata": WEB, "spec": []}, "f:3: Pod default/web: spec: expected object, found array"),
    "an object for a list": (pod(containers={}), "f:3: Pod default/web: spec.containers: expected array, found object"),
    "a string for an object": (pod(affinity="no"), 'f:3: Pod default/web: spec.affinity: expected object, found str "no"'),
    "a fraction for an integer": (pod(priority=1.5), "f:3: Pod default/web: spec.priority: expected int, found float 1.5"),
    "a string for a boolean": (
        pod(hostNetwork="true"),
        'f:3: Pod default/web: spec.hostNetwork: expected bool, found str "true"',
    ),
    "a list for a quantity": (
        pod(overhead={"memory": "1Gi", "cpu": []}),
        "f:3: Pod default/web: spec.overhead[cpu]: expected int | float | str, found array",
    ),
    "nulls next to an error": (
        {"metadata": {**WEB, "labels": None}, "spec": {"nodeName": 1}},
        'f:3: Pod default/web: spec.nodeName: expected str, found int 1; quote it: "1"',
    ),
    "a list": ([], "f:3: Pod: expected object, found array"),
    "nothing": (None, "f:3: Pod: expected object, found null"),
    "a generated name": (
        {"metadata": {"generateName": "web-"}, "spec": 1},
        "f:3: Pod web-: spec: expected object, found int 1",
    ),
    "metadata that is no object": ({"kind": 5, "metadata": []}, "f:3: Pod: metadata: expected object, found array"),
    "a long string": (pod(priority="x" * 500), f'f:3: Pod default/web: spec.priority: expected int, found str "{"x" * 58}…'),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_rejects(data, message):
    with pytest.raises(InputError) as caught:
        decode(data, Pod, "f:3")
    assert str(caught.value) == message
    with pytest.raises(InputError) as caught:
        decode(json.dumps(data).encode(), Pod, "f:3")
    assert str(caught.value) == message


def test_rejects_keys_that_are_not_strings():
    with pytest.raises(InputError, match=r"^f: Pod: metadata\.labels: a key is not text"):
        decode({"metadata": {"labels": {1: "x"}}}, Pod, "f")


BROKEN = {
    "truncated": (b'{"metadata":', "f:1: unexpected end of JSON input"),
    "two": (b"{}\n{}", "f:1: expected one JSON document, found 2"),
    "none": (b" ", "f:1: expected one JSON document, found 0"),
    "deep": (b'{"x":' + b"[" * 100_000, "f:1: nested deeper than 100 levels"),
    "a lone surrogate": (b'{"metadata":{"name":"\\ud800"}}', "f:1: a string holds a lone surrogate"),
    "not UTF-8": (b'{"metadata":{"name":"\xff"}}', "f:1: this is not UTF-8"),
    "NaN": (b'{"x":NaN}', "f:1: NaN is not a JSON number"),
}


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN)
def test_rejects_malformed_json(data, message):
    with pytest.raises(InputError) as caught:
        decode(data, Pod, "f")
    assert str(caught.value).startswith(message)


def test_a_number_that_yaml_made_of_a_string_is_rejected_with_a_hint():
    (document,) = read_yaml("kind: Pod\nmetadata:\n  name: web\n  labels:\n    hash: 25105916e1\n", "f")
    with pytest.raises(InputError) as caught:
        decode(document.data, Pod, "f:1")
    assert str(caught.value) == (
        'f:1: Pod web: metadata.labels[hash]: expected str, found int 251059160; quote it: "251059160"'
    )


def test_an_integral_float_from_yaml_is_an_integer():
    (document,) = read_yaml("spec: {replicas: 3.0, template: {spec: {priority: 1e3}}}", "f")
    deployment = decode(document.data, Deployment, "f")
    assert (deployment.spec.replicas, deployment.spec.template.spec.priority) == (3, 1000)


def test_a_field_of_two_types_keeps_both():
    for given_value in (1, "50%", None):
        assert decode({"spec": {"minAvailable": given_value}}, PodDisruptionBudget, "f").spec.min_available == given_value
    with pytest.raises(InputError, match=r"spec\.minAvailable: expected int \| str, found bool true"):
        decode({"spec": {"minAvailable": True}}, PodDisruptionBudget, "f")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
fields = [
    "metadata",
    "spec",
    "labels",
    "name",
    "containers",
    "resources",
    "requests",
    "cpu",
    "tolerations",
    "affinity",
    "taints",
]
near = st.recursive(
    anything,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(fields), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@given(near, st.sampled_from([Pod, Node, Deployment]))
def test_decodes_or_raises_input_error(data, kind):
    try:
        found = decode(data, kind, "f")
    except InputError as error:
        refusal = str(error)
        assert refusal.startswith("f: ")
        with pytest.raises(InputError):
            decode(json.dumps(data).encode(), kind, "f")
    else:
        assert isinstance(found, kind)
        assert decode(json.dumps(data).encode(), kind, "f") == found
