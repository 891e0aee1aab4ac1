"""An object in protobuf with other finalizers: nothing else changes, and what is not protobuf is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.schema.protobuf import read_protobuf, write_protobuf
from moorage.basis.client.raw_protobuf import with_finalizers
from moorage.errors import ClusterError

NAMES = st.lists(st.text("abc/.", min_size=1, max_size=200), max_size=3)


def a_claim(finalizers, parameters):
    metadata = {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "12", "labels": {"a": "b"}}
    metadata |= {"finalizers": finalizers} if finalizers else {}
    configs = [{"opaque": {"driver": "d", "parameters": parameters}}]
    request = {"name": "r", "exactly": {"deviceClassName": "k"}}
    spec = {"devices": {"requests": [request], "config": configs}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


@given(before=NAMES, after=NAMES, text=st.text(max_size=300))
def test_only_the_finalizers_change(before, after, text):
    body = write_protobuf(a_claim(before, {"k": text}))
    changed, version = with_finalizers(body, after)
    expected = read_protobuf(body)
    expected["metadata"].pop("finalizers", None)
    expected["metadata"] |= {"finalizers": after} if after else {}
    assert (read_protobuf(changed), version) == (expected, "12")


@pytest.mark.parametrize("body", [b"", b"{}", b"k8s\0\x12\x05ab", b"k8s\0\x0f", b"k8s\0\x12", b"k8s\0\x80"])
def test_other_bytes_are_refused(body):
    with pytest.raises(ClusterError, match="not an object in protobuf"):
        with_finalizers(body, [])
