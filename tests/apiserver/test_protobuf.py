"""Protobuf bodies: written here by hand, read there; and nothing that comes in instead gets further than a refusal."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from moorage.apiserver.protobuf import read_protobuf
from moorage.apiserver.statuses import ApiError


def varint(value):
    value &= 2**64 - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(*fields):
    """Return the bytes of a message: numbers and their values, integers or what is written with its length."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def body(api_version, kind, *fields):
    return b"k8s\x00" + message((1, message((1, api_version), (2, kind))), (2, message(*fields)), (3, ""), (4, ""))


META = message((1, "web"), (2, ""), (3, "default"), (5, ""), (7, 0), (8, b""))
LIMITS = message((1, message((1, "cpu"), (2, message((1, "100m"))))), (2, message((1, "cpu"), (2, message((1, "50m"))))))
PORT = message((1, ""), (2, 0), (3, 80), (4, "TCP"), (5, ""))
CONTAINER = message((1, "c"), (2, "nginx"), (3, "run"), (3, "fast"), (6, PORT), (8, LIMITS), (14, ""), (16, 0))
VOLUME = message((1, "scratch"), (2, message((2, message((1, "Memory"))))))
POD = message((1, VOLUME), (2, CONTAINER), (3, ""), (4, 0), (11, 0))

READ = {
    "a pod": (
        body("v1", "Pod", (1, META), (2, POD), (3, message((1, "")))),
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "containers": [{
                    "name": "c", "image": "nginx", "command": ["run", "fast"],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "50m"}},
                }],
                "terminationGracePeriodSeconds": 0,
                "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
            },
        },
    ),
    "a binding": (
        body("v1", "Binding", (1, META), (2, message((1, "Node"), (3, "n1")))),
        {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web", "namespace": "default"},
            "target": {"kind": "Node", "name": "n1"},
        },
    ),
    "pointers to zero are said": (
        body("apps/v1", "Deployment", (2, message((1, 0), (3, b""), (5, 0), (7, 0)))),
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0, "template": {}}},
    ),
    "times": (
        body(
            "coordination.k8s.io/v1", "Lease",
            (2, message((1, "me"), (2, 15), (3, message((1, 1_750_000_000), (2, 123_456_000))))),
        ),
        {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": "2025-06-15T15:06:40.123456Z"},
        },
    ),
    "numbers or texts": (
        body("policy/v1", "PodDisruptionBudget", (2, message((1, message((1, 1), (2, 0), (3, "50%")))))),
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": "50%"}},
    ),
    "negative numbers": (
        body("scheduling.k8s.io/v1", "PriorityClass", (2, -5)),
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": -5},
    ),
    "bytes": (
        body("v1", "Secret", (2, message((1, "k"), (2, b"\x00\xff")))),
        {"apiVersion": "v1", "kind": "Secret", "data": {"k": "AP8="}},
    ),
    "fields of a later release": (
        body("v1", "ConfigMap", (1, message((1, "web"))), (900, "new"), (901, 5)),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}},
    ),
    "options": (
        body("policy/v1", "DeleteOptions", (1, 0), (2, message((1, "u")))),
        {
            "apiVersion": "policy/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "u"},
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "wanted"), READ.values(), ids=READ)
def test_bodies_are_read(sent, wanted):
    assert read_protobuf(sent) == wanted


REFUSED = {
    "not protobuf": b"{}",
    "nothing": b"k8s\x00",
    "an unknown kind": body("v1", "Podd"),
    "an unknown group": body("nowhere/v1", "Pod"),
    "an old version": body("policy/v1beta1", "Eviction"),
    "cut short": body("v1", "Pod", (1, META))[:-9],
    "a length beyond the end": body("v1", "Pod", (1, b"\x0a\xff\x01")),
    "a group of old": body("v1", "Pod", (1, b"\x0b")),
    "an endless number": body("v1", "Pod", (1, b"\x38" + b"\xff" * 11)),
    "a number for a text": body("v1", "Pod", (1, message((1, 5)))),
    "a text for a number": body("v1", "Pod", (1, message((7, "x")))),
    "no UTF-8": body("v1", "Pod", (1, message((1, b"\xff")))),
    "a time before all time": body("v1", "Pod", (1, message((9, message((1, -(2**62))))))),
    "nanoseconds beyond a second": body("v1", "Pod", (1, message((9, message((1, 5), (2, 2**40)))))),
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_bodies_are_refused(sent):
    with pytest.raises(ApiError) as caught:
        read_protobuf(sent)
    assert caught.value.code == 400


@hypothesis_settings(max_examples=300, deadline=None)
@given(at=st.integers(0, 400), flip=st.binary(min_size=1, max_size=4), cut=st.integers(0, 400))
def test_damaged_bodies_are_read_or_refused_and_nothing_else(at, flip, cut):
    whole = READ["a pod"][0]
    damaged = (whole[: at % len(whole)] + flip + whole[at % len(whole) + len(flip) :])[: len(whole) - cut % 20]
    try:
        assert read_protobuf(damaged)["kind"]
    except ApiError as error:
        refused = error
        assert refused.code == 400


@given(labels=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=5))
def test_maps_come_back_as_they_were(labels):
    fields = [(2, message((1, key), (2, value))) for key, value in labels.items()]
    assert read_protobuf(body("v1", "ConfigMap", *fields)).get("data", {}) == labels
