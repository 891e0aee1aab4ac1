"""Decoded pods equal those that are decoded without sharing, and pods of one template share what is equal."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Pod
from moorage.api.pod_decoding import PodDecoder, without_token_name

PLAIN = msgspec.json.Decoder(Pod).decode
SUFFIXES = ("bcdfg", "x2456", "zzzzz")


def plain(text: bytes) -> Pod:
    """Decode a pod without sharing, with the name that all pods get for the token's volume."""
    pod = PLAIN(text)
    return pod.replace(spec=without_token_name(pod.spec))


def document(number: int = 0, node: str = "", token: str = "bcdfg", **spec: Any) -> dict[str, Any]:
    mount = f"kube-api-access-{token}"
    times = {"status": "True", "lastTransitionTime": f"2026-11-22T10:00:{number % 60:02}Z"}
    return {
        "metadata": {
            "name": f"web-{number}", "namespace": "shop", "uid": f"uid-{number}", "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "owner"}],
        },
        "spec": {
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": mount}]}],
            **({"nodeName": node} if node else {}),
            "volumes": [{"name": mount, "projected": {"sources": []}}],
            **spec,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", **times}], "podIP": f"10.0.0.{number}"},
    }  # fmt: skip


@pytest.mark.parametrize("given_first", [False, True])
def test_how_a_spec_is_encoded_does_not_depend_on_earlier_pods(given_first):
    default = {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}], "tolerations": [{"key": "a"}]}
    given = {
        "containers": [{"name": "c", "ports": [{"containerPort": 80, "protocol": "TCP"}], "imagePullPolicy": "Always"}],
        "restartPolicy": "Always", "schedulerName": "default-scheduler", "tolerations": [{"key": "a", "operator": "Equal"}],
    }  # fmt: skip
    decoder = PodDecoder()
    for spec in (given, default) if given_first else (default, given):
        text = msgspec.json.encode({"metadata": document()["metadata"], "spec": spec})
        assert msgspec.json.encode(decoder.decode(text).spec) == msgspec.json.encode(PLAIN(text).spec)


@pytest.mark.parametrize("status", [{}, {"status": {}}, {"status": {"phase": "Pending"}}], ids=["none", "empty", "pending"])
def test_a_pod_is_encoded_as_without_sharing(status):
    """The digest of an input in JSON is that of the same input in YAML, which is decoded without sharing."""
    decoder = PodDecoder()
    for one in ({"status": {}}, status):
        text = msgspec.json.encode({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}, **one})
        assert msgspec.json.encode(decoder.decode(text)) == msgspec.json.encode(PLAIN(text))


@pytest.mark.parametrize("indent", [None, 4])
def test_copies_share_all_that_is_equal(indent):
    decoder = PodDecoder()
    texts = [json.dumps(document(at, f"n{at}", SUFFIXES[at]), indent=indent).encode() for at in (0, 1)]
    first, second = map(decoder.decode, texts)
    assert [first, second] == [*map(plain, texts)]
    assert (first.spec.node_name, second.spec.node_name) == ("n0", "n1")
    assert first.spec.containers is second.spec.containers
    assert first.spec.volumes is second.spec.volumes
    assert first.labels is second.labels
    assert first.metadata.owner_references is second.metadata.owner_references


def test_copies_that_wait_share_their_spec_and_status():
    decoder = PodDecoder()
    first, second = (
        decoder.decode(msgspec.json.encode({**document(at, token=SUFFIXES[at]), "status": {"phase": "Pending"}}))
        for at in (0, 1)
    )
    assert first.spec is second.spec
    assert first.status is second.status


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("bound_first", [False, True])
@pytest.mark.parametrize(
    "before", [("containers", "nodeName", "volumes"), ("nodeName", "containers"), ("containers", "nodeName")]
)
def test_a_pod_has_the_same_spec_before_and_after_its_bind(before, bound_first, indent):
    decoder = PodDecoder()
    bound, waiting = document(0, "n0"), document(0)
    for one in (bound, waiting):
        one["spec"] = {field: one["spec"][field] for field in before if field in one["spec"]}
    texts = [json.dumps(one, indent=indent).encode() for one in ((bound, waiting) if bound_first else (waiting, bound))]
    first, second = map(decoder.decode, texts)
    assert [first, second] == [*map(plain, texts)]
    assert {first.spec.node_name, second.spec.node_name} == {"", "n0"}
    assert first.spec.containers is second.spec.containers


TRICKY = [
    {"nodeSelector": {"nodeName": "n0"}},
    {"nodeSelector": {"nodeName": "n0"}, "nodeName": "n1"},
    {"nodeName": "n1", "nodeSelector": {"nodeName": "n0"}},
    {"nodeName": "n1", "nodeName2": 1},
    {"volumes": [{"name": "kube-api-access-bcdfg", "persistentVolumeClaim": {"claimName": "kube-api-access-bcdfg"}}]},
    {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "kube-api-access-bcdfg"}}]},
    {"volumes": [{"name": "kube-api-access-bcdfg"}, {"name": "kube-api-access-zzzzz"}]},
    {"volumes": [{"name": "kube-api-access-bcdfg"}, {"name": "kube-api-access"}]},
    {"containers": [{"name": "kube-api-access-bcdfg"}]},
    {"schedulerName": '"nodeName":"n0"', "nodeName": "n1"},
]


@pytest.mark.parametrize("spec", TRICKY)
def test_what_looks_like_a_node_or_a_token_elsewhere_is_not_shared(spec):
    decoder = PodDecoder()
    others = [json.loads(json.dumps(spec).replace("n0", "n9").replace("bcdfg", "x2456")), spec]
    for number, one in enumerate([spec, *others, *TRICKY]):
        text = msgspec.json.encode(document(number, **one))
        assert decoder.decode(text) == plain(text)


@pytest.mark.parametrize(
    "text",
    [b"{", b'{"spec":null}', b'{"status":null}', b'{"spec":{"nodeName":1}}', b'{"spec":{"nodeName":"a\0"}}', b'{"spec":[]}'],
)
def test_what_cannot_be_decoded_is_refused_each_time(text):
    decoder = PodDecoder()
    for _ in range(2):
        with pytest.raises(msgspec.DecodeError):
            decoder.decode(text)


def test_a_repeated_field_means_the_last_one():
    text = b'{"spec":{"nodeName":"a","nodeName":"b"},"spec":{"nodeName":"c","nodeName":"d"}}'
    decoder = PodDecoder()
    for _ in range(2):
        assert decoder.decode(text) == PLAIN(text)
    assert decoder.decode(text.replace(b'"d"', b'"e"')).spec.node_name == "e"


specs = st.fixed_dictionaries(
    {},
    optional={
        "nodeName": st.sampled_from(["n0", "n1", "a-b.c", "ö", 'q"']),
        "nodeSelector": st.dictionaries(st.sampled_from(["nodeName", "zone"]), st.sampled_from(["n0", "n1"])),
        "schedulerName": st.sampled_from(["a", "kube-api-access-bcdfg", 'x"nodeName":"n0"']),
        "volumes": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["kube-api-access-bcdfg", "kube-api-access-zzzzz", "kube-api-access", "v"])},
                optional={"emptyDir": st.just({}), "projected": st.just({"sources": []})},
            ),
            max_size=3,
        ),
        "priority": st.integers(0, 1),
    },
)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running"]),
        "startTime": st.sampled_from(["2026-11-22T10:00:00Z", "2026-11-22T10:00:01Z"]),
        "containerStatuses": st.lists(st.fixed_dictionaries({"name": st.sampled_from(["a", "b"])}), max_size=2),
        "conditions": st.lists(
            st.fixed_dictionaries({"type": st.sampled_from(["A", "B"]), "message": st.text(max_size=200)}), max_size=2
        ),
    },
)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(specs, statuses, st.permutations(["metadata", "spec", "status"])), max_size=8))
def test_random_pods_equal_those_decoded_one_by_one(parts):
    decoder = PodDecoder()
    for number, (spec, status, order) in enumerate(parts):
        whole = {"metadata": document(number)["metadata"], "spec": spec, "status": status}
        text = msgspec.json.encode({name: whole[name] for name in order})
        decoded, alone = decoder.decode(text), plain(text)
        assert decoded == alone
        assert msgspec.json.encode(decoded.spec) == msgspec.json.encode(alone.spec)
