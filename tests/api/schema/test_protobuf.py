"""Protobuf: hand-written bodies are decoded, responses are encoded, and other input is rejected."""

import base64
import json

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from moorage.api.documents.served_kinds import KINDS, REVIEWS, VERSIONS
from moorage.api.documents.statuses import ApiError, not_found
from moorage.api.reading.manifests import read_yaml
from moorage.api.schema.protobuf import (
    _ALTERNATIVES,
    _WRITERS,
    FieldFlag,
    _message_of,
    messages,
    read_protobuf,
    write_event,
    write_protobuf,
)
from moorage.cluster.apiserver.schema.representations import accepted, encoded_as


def varint(value):
    value &= 2**64 - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(*fields):
    """Return the bytes of a message: field numbers with integers or length-delimited values."""
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
def test_bodies_are_decoded(sent, wanted):
    assert read_protobuf(sent) == wanted


REFUSED = {
    "not protobuf": b"{}",
    "nothing": b"k8s\x00",
    "an unknown kind": body("v1", "Podd"),
    "an unknown group": body("nowhere/v1", "Pod"),
    "an old version": body("policy/v1beta2", "Eviction"),
    "cut short": body("v1", "Pod", (1, META))[:-9],
    "a length beyond the end": body("v1", "Pod", (1, b"\x0a\xff\x01")),
    "a protobuf group": body("v1", "Pod", (1, b"\x0b")),
    "an endless number": body("v1", "Pod", (1, b"\x38" + b"\xff" * 11)),
    "a number for a text": body("v1", "Pod", (1, message((1, 5)))),
    "a text for a number": body("v1", "Pod", (1, message((7, "x")))),
    "no UTF-8": body("v1", "Pod", (1, message((1, b"\xff")))),
    "a time before all time": body("v1", "Pod", (1, message((9, message((1, -(2**62))))))),
    "nanoseconds beyond a second": body("v1", "Pod", (1, message((9, message((1, 5), (2, 2**40)))))),
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_invalid_bodies_are_rejected(sent):
    with pytest.raises(ApiError) as caught:
        read_protobuf(sent)
    assert caught.value.code == 400


@hypothesis_settings(max_examples=150, deadline=None)
@given(at=st.integers(0, 400), flip=st.binary(min_size=1, max_size=4), cut=st.integers(0, 400))
def test_damaged_bodies_are_decoded_or_rejected(at, flip, cut):
    whole = READ["a pod"][0]
    damaged = (whole[: at % len(whole)] + flip + whole[at % len(whole) + len(flip) :])[: len(whole) - cut % 20]
    try:
        assert read_protobuf(damaged)["kind"]
    except ApiError as error:
        refused = error
        assert refused.code == 400


@given(labels=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=5))
def test_maps_survive_a_round_trip(labels):
    fields = [(2, message((1, key), (2, value))) for key, value in labels.items()]
    assert read_protobuf(body("v1", "ConfigMap", *fields)).get("data", {}) == labels


# -- answers ------------------------------------------------------------------------------------------------------------


def test_decoded_objects_are_encoded_equivalently():
    for sent, wanted in READ.values():
        assert read_protobuf(write_protobuf(wanted)) == read_protobuf(sent)


def test_responses_are_encoded_byte_for_byte():
    status = not_found("pods", "", "web").status()
    details = message((1, "web"), (3, "pods"))
    text = 'pods "web" not found'
    wanted = message((1, b""), (2, "Failure"), (3, text), (4, "NotFound"), (5, details), (6, 404))
    assert write_protobuf(status) == b"k8s\x00" + message((1, message((1, "v1"), (2, "Status"))), (2, wanted), (3, ""), (4, ""))
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    written = message((1, message((1, "a"))), (2, message((1, "k"), (2, "v"))))
    listed = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"}, "items": [config]}
    envelope = message((1, message((1, "v1"), (2, "ConfigMapList"))))
    assert write_protobuf(listed).startswith(
        b"k8s\x00" + envelope + message((2, message((1, message((2, "7"))), (2, written))))
    )
    event = message((1, "ADDED"), (2, message((1, write_protobuf(config)))))
    assert write_event("ADDED", config) == len(event).to_bytes(4, "big") + event


letters = st.text(max_size=6)
quantities = st.sampled_from(["1", "100m", "5Gi"])
moments = st.datetimes().filter(lambda at: 1 < at.year < 9999)
SCALARS = {
    "s": letters, "i": st.integers(-(2**31), 2**31), "b": st.booleans(), "f": st.floats(allow_nan=False, allow_infinity=False),
    "y": st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode()),
    "T": moments.map(lambda at: f"{at.replace(microsecond=0).isoformat()}Z"),
    "U": moments.map(lambda at: f"{at.isoformat(timespec='microseconds')}Z"), "Q": quantities,
    "O": st.integers(0, 9) | st.just("50%"), "R": st.dictionaries(letters, letters, min_size=1, max_size=2),
    "F": st.just({"f:metadata": {}}), "X": st.lists(letters, max_size=3), "D": st.just("1m0s"),
    "A": st.just({"type": "string"}) | st.just([{"type": "string"}]), "B": st.just({"type": "string"}) | st.booleans(),
    "C": st.just({"type": "string"}) | st.lists(letters, min_size=1, max_size=2),
}  # fmt: skip


@st.composite
def documents(draw, name, depth=0):
    """Draw an object of a message as it would be stored, without empty omitempty fields."""
    document = {}
    for field, holds, flags in messages()[name].values():
        if depth > 3 or not draw(st.booleans()):
            continue
        if not field:
            document |= draw(documents(holds, depth + 1))
            continue
        value = SCALARS[holds] if holds in SCALARS else documents(holds, depth + 1)
        if flags & FieldFlag.MAP:
            value = st.dictionaries(letters, value, min_size=1, max_size=2)
        elif flags & FieldFlag.REPEATED:
            value = st.lists(value, min_size=1, max_size=2)
        drawn = draw(value)
        if drawn or not flags & FieldFlag.OMIT_EMPTY or flags & FieldFlag.POINTER:
            document[field] = drawn
    return document


#: Every kind that has a message, and the kinds of bodies that are not stored.
TYPES = sorted(
    {(one.api_version, one.kind) for one in (*KINDS, *VERSIONS, *REVIEWS)}
    | {("v1", "Status"), ("v1", "DeleteOptions"), ("autoscaling/v2", "DeleteOptions"), ("foo.bar/v9", "DeleteOptions"),
       ("autoscaling/v1", "Scale"), ("policy/v1", "Eviction"), ("policy/v1beta1", "Eviction"),
       ("authentication.k8s.io/v1", "TokenRequest")}
)  # fmt: skip
SOME = ("Pod", "Node", "CustomResourceDefinition", "ResourceClaim", "StatefulSet", "Event", "DeleteOptions")


@pytest.mark.parametrize(("api_version", "kind"), TYPES, ids=["/".join(one) for one in TYPES])
def test_every_object_survives_a_round_trip(api_version, kind):
    @hypothesis_settings(max_examples=10 if kind in SOME else 2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def survives(data):
        name = _message_of(api_version, kind)
        whole = {"apiVersion": api_version, "kind": kind, **data.draw(documents(name))}
        assert read_protobuf(write_protobuf(whole)) == whole

    survives()


SCHEMAS = {
    "a schema of items": {"items": {"type": "string"}},
    "schemas of items": {"items": [{"type": "string"}, {"type": "integer"}]},
    "no more properties": {"additionalProperties": False},
    "any property": {"additionalProperties": True},
    "properties of a type": {"additionalProperties": {"type": "string"}, "additionalItems": {"format": "x"}},
    "a dependency": {"dependencies": {"a": {"type": "object"}, "b": ["c", "d"]}},
    "defaults": {"default": {"a": [1, None]}, "enum": ["x", 1], "example": False},
    "extensions": {
        "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-list-map-keys": ["k"], "x-kubernetes-list-type": "map",
        "x-kubernetes-validations": [{"rule": "self.a > 1", "messageExpression": "'m'"}], "x-kubernetes-int-or-string": True,
    },
    "schemas within": {"properties": {"a": {"not": {"required": ["z"]}, "allOf": [{"minimum": 1.5}], "nullable": True}}},
}  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_schemas_of_definitions_survive_a_round_trip(schema):
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", **schema}}}
    whole = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"},
        "spec": {"group": "b", "names": {"plural": "a", "kind": "A"}, "scope": "Cluster", "versions": [version]},
    }  # fmt: skip
    assert read_protobuf(write_protobuf(whole)) == whole


def test_a_definition_is_read_as_client_go_writes_it():
    schema = message((1, message((5, "object"))))
    names = message((1, "gulls"), (2, "gull"), (4, "Gull"), (5, "GullList"))
    served = message((1, "v1"), (2, 1), (3, 1), (4, schema))
    spec = message((1, "harbour.test"), (3, names), (4, "Namespaced"), (7, served))
    sent = body("apiextensions.k8s.io/v1", "CustomResourceDefinition", (1, message((1, "gulls.harbour.test"))), (2, spec))
    assert read_protobuf(sent)["spec"] == {
        "group": "harbour.test", "scope": "Namespaced",
        "names": {"plural": "gulls", "singular": "gull", "kind": "Gull", "listKind": "GullList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }  # fmt: skip


def test_nested_schemas_have_a_limit():
    schema = b""
    for _ in range(200):
        schema = message((28, schema))
    spec = message((7, message((4, message((1, schema))))))
    with pytest.raises(ApiError, match="nested deeper"):
        read_protobuf(body("apiextensions.k8s.io/v1", "CustomResourceDefinition", (2, spec)))


def test_every_field_can_be_encoded():
    held = {holds for fields in messages().values() for _, holds, _ in fields.values()}
    assert {one for one in held if len(one) == 1} <= {"i", "b", "f", *_WRITERS, *_ALTERNATIVES}


META_LIST = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
ACCEPTED = {
    "nothing said": ("", "", "json"),
    "anything": ("*/*", "", "json"),
    "kube-scheduler's": ("application/vnd.kubernetes.protobuf, */*", "", "json"),
    "typed clients'": ("application/vnd.kubernetes.protobuf,application/json", "", "json"),
    "protobuf alone": ("application/vnd.kubernetes.protobuf", "", "vnd.kubernetes.protobuf"),
    "YAML alone": ("application/yaml", "", "yaml"),
    "protobuf before YAML": ("application/vnd.kubernetes.protobuf, application/yaml", "", "vnd.kubernetes.protobuf"),
    "YAML liked better": (
        "application/vnd.kubernetes.protobuf;q=0.5, application/yaml;q=0.9", "", "yaml",
    ),
    "a browser's": ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "", "json"),
    "kubectl's": (
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        "Table", "json",
    ),
    "metadata informers'": (
        f"application/vnd.kubernetes.protobuf;{META_LIST},application/json;{META_LIST},application/json",
        "PartialObjectMetadataList", "vnd.kubernetes.protobuf",
    ),
    "metadata as protobuf": (
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "PartialObjectMetadata",
        "vnd.kubernetes.protobuf",
    ),
    "tables have no protobuf": (
        "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json", "", "json",
    ),
    "unknown forms": ("application/json;as=Poem;g=meta.k8s.io;v=v1,application/json", "", "json"),
    "a stream": ("application/json;stream=watch", "", "json"),
}  # fmt: skip


@pytest.mark.parametrize(("accept", "form", "encoding"), ACCEPTED.values(), ids=ACCEPTED)
def test_responses_use_the_accepted_encoding(accept, form, encoding):
    assert accepted(accept)[:2] == (form, f"application/{encoding}")


@pytest.mark.parametrize(
    "accept",
    ["text/plain", "application/cbor", "application/json;stream=poem", "application/json;as=Poem;g=meta.k8s.io;v=v1",
     "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"],
)  # fmt: skip
def test_a_client_that_accepts_no_served_type_gets_406(accept):
    with pytest.raises(ApiError) as caught:
        accepted(accept)
    assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")
    types = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    assert caught.value.message == f"only the following media types are accepted: {types}"


def test_watches_have_no_yaml():
    assert accepted("application/yaml, application/json", streams=True).encoding == "application/json"
    with pytest.raises(ApiError):
        accepted("application/yaml", streams=True)


def test_durations_survive_a_round_trip():
    metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "window": "1m30s", "timestamp": None}
    assert message((3, message((1, 90 * 10**9)))) in write_protobuf(metrics)


def test_objects_without_a_protobuf_message_are_not_sent_as_protobuf():
    with pytest.raises(ApiError) as caught:
        encoded_as("application/vnd.kubernetes.protobuf", b'{"kind":"Table","apiVersion":"meta.k8s.io/v1"}')
    assert caught.value.code == 406
    assert encoded_as("application/yaml", b'{"kind":"Pod","m":[1]}') == b"kind: Pod\nm:\n- 1\n"


@given(st.text(alphabet="01789eEoOxX_.+-:yYnN~abß ,", max_size=6) | st.text(max_size=6))
@hypothesis_settings(max_examples=150, deadline=None)
def test_strings_in_yaml_stay_strings(text):
    found = {"items": [text], **({"labels": {text: text}} if text else {})}
    (read,) = read_yaml(encoded_as("application/yaml", json.dumps(found).encode()), "")
    assert read.data == found


@pytest.mark.parametrize("text", ["y", "N", "1e3", "-1E-3", "08", "0o17", "0x1f", "on", "null", "1_0", "2024-01-01", ".5e3"])
def test_ambiguous_strings_are_quoted(text):
    assert encoded_as("application/yaml", json.dumps({"a": text}).encode()).decode() == f"a: '{text}'\n"


def test_other_strings_are_unquoted_and_unfolded():
    for text in ("10.128.0.1", "1.36.2", "1e", "web", "a b " * 50 + "c", "64Mi", "100m"):
        assert encoded_as("application/yaml", json.dumps({"a": text}).encode()).decode() == f"a: {text}\n"
