"""Test the kinds that plugins declare: which names are valid, and how an object is decoded."""

import json

import msgspec
import pytest

from moorage.api.custom_objects import CustomKind, custom_type, guess_plural, read_custom, with_identity
from moorage.errors import InputError

NAMES = {  # what a plugin writes: plural, version, group and the API path; None for an invalid name
    "foos.v1.example.com": ("foos", "v1", "example.com", "example.com/v1"),
    "bars.v1beta1.a.b.c": ("bars", "v1beta1", "a.b.c", "a.b.c/v1beta1"),
    "configmaps.v1.": ("configmaps", "v1", "", "v1"),
    "foos.v1.local": ("foos", "v1", "local", "local/v1"),
    "foos.v1": None,
    "foos": None,
    "": None,
    ".v1.example.com": None,
    "foos..example.com": None,
    "foos.v1.example..com": None,
    "Foos.v1.example.com": None,
    "foos/../x.v1.example.com": None,
    "foos.v1.example.com?x=y": None,
    "foos.v1.example.com\n": None,
}


@pytest.mark.parametrize(("name", "parts"), NAMES.items(), ids=repr)
def test_kind_names_are_parsed(name, parts):
    kind = CustomKind.parse(name)
    if parts is None:
        assert kind is None
    else:
        assert (kind.plural, kind.version, kind.group, kind.api_version) == parts
        assert str(kind) == name


def test_each_kind_has_its_own_type():
    foos, bars = custom_type("foos.v1.example.com"), custom_type("bars.v1.example.com")
    assert foos is custom_type("foos.v1.example.com")
    assert (foos.resource, bars.resource) == ("foos.v1.example.com", "bars.v1.example.com")
    assert foos() == foos()
    assert foos() != bars()
    with pytest.raises(AttributeError):
        foos().document = {}


WHOLE = {
    "apiVersion": "example.com/v1",
    "kind": "Foo",
    "metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "m"}]},
    "spec": {"limit": {"pods": 3}, "list": [1], "nothing": None},
}


@pytest.mark.parametrize("raw", [WHOLE, json.dumps(WHOLE).encode()], ids=["data", "JSON"])
def test_an_object_is_its_document_without_managed_fields(raw):
    foo = read_custom(raw, "foos.v1.example.com", "here")
    assert (foo.namespace, foo.name, foo.metadata.resource_version) == ("x", "a", "7")
    assert foo.document == {**WHOLE, "metadata": {k: v for k, v in WHOLE["metadata"].items() if k != "managedFields"}}
    assert foo.get("spec", "limit", "pods") == 3
    assert foo.get("spec", "limit") == {"pods": 3}
    assert foo.get("spec", "nothing", default=1) is None
    assert foo.get("spec", "list", "0", default="none") == "none"
    assert (foo.get("status", "phase"), foo.get("status", default={})) == (None, {})
    assert "managedFields" in WHOLE["metadata"], "what was given is left alone"


@pytest.mark.parametrize(
    "raw", [b"[]", b"{", b"3", b'{"metadata": {"name": 3}}', b'{"metadata": []}', b'{"a":' * 2000 + b"1" + b"}" * 2000, b"\xff"]
)
def test_invalid_objects_are_rejected(raw):
    with pytest.raises(InputError, match=r"^here"):
        read_custom(raw, "foos.v1.example.com", "here")


@pytest.mark.parametrize("raw", [b'{"metadata": null}', b'{"metadata": {}}', {"metadata": None}], ids=repr)
def test_metadata_may_be_empty(raw):
    assert read_custom(raw, "foos.v1.example.com", "here").document == {"metadata": {}}


def test_a_new_identity_is_written_into_the_document():
    foo = read_custom(WHOLE, "foos.v1.example.com", "here")
    moved = with_identity(foo, msgspec.structs.replace(foo.metadata, namespace="y", uid="v"))
    assert (moved.namespace, moved.document["metadata"]["namespace"], moved.document["metadata"]["uid"]) == ("y", "y", "v")
    assert foo.document["metadata"]["namespace"] == "x"


def test_changing_an_object_does_not_modify_the_original():
    foo = read_custom(WHOLE, "foos.v1.example.com", "here")
    changed = foo.having(spec={"limit": 1}, status="new")
    assert (changed.get("spec"), changed.get("status"), changed.get("kind")) == ({"limit": 1}, "new", "Foo")
    assert type(changed) is type(foo)
    assert (foo.get("spec"), foo.get("status")) == (WHOLE["spec"], None)


PLURALS = {"Foo": "foos", "Proxy": "proxies", "Glass": "glasses", "Endpoints": "endpoints", "NetworkPolicy": "networkpolicies"}


@pytest.mark.parametrize(("kind", "plural"), PLURALS.items())
def test_plurals_are_guessed_as_kubectl_guesses_them(kind, plural):
    assert guess_plural(kind) == plural
