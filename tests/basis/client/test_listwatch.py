"""Objects as Go encodes them: empty fields, null lists, and every field set."""

import json

import pytest

from moorage.api.schema.protobuf import FieldFlag, message_of, messages
from moorage.basis.client.listwatch import ObjectDecoder
from moorage.basis.client.watched_resources import WATCHED

EMPTY = {"s": "", "i": 0, "b": False, "f": 0, "Q": "0", "O": 0}
FULL = {"s": "a", "i": 1, "b": True, "f": 1.5, "y": "YQ==", "Q": "1", "O": 1, "R": {"a": 1}, "F": {}, "X": ["a"]}
MANY = FieldFlag.POINTER | FieldFlag.REPEATED | FieldFlag.MAP


def empty(message):
    """Return an object with empty fields, as ``encoding/json`` writes it."""
    document = {}
    for name, holds, flags in messages()[message].values():
        plain = holds in messages() and not flags & MANY
        if not name:
            document |= empty(holds)
        elif plain:
            document[name] = empty(holds)  # a struct is never left out
        elif not flags & FieldFlag.OMIT_EMPTY:
            document[name] = None if flags & MANY else EMPTY.get(holds)
    return document


def full(message, depth=0):
    """Return an object with every field set, except deeply nested ones."""
    document = {}
    for name, holds, flags in messages()[message].values():
        value = FULL.get(holds)
        if holds in messages():
            value = full(holds, depth + 1) if depth < 5 else empty(holds)
        if not name:
            document |= value
        elif flags & (FieldFlag.MAP | FieldFlag.REPEATED):
            document[name] = {"k": value} if flags & FieldFlag.MAP else [value]
        else:
            document[name] = value
    return document


@pytest.mark.parametrize("made", [empty, full])
@pytest.mark.parametrize("resource", WATCHED, ids=lambda one: one.kind)
def test_any_object_of_a_kube_apiserver_is_decoded(resource, made):
    group, _, version = resource.api_version.rpartition("/")
    document = made(message_of(group, version, resource.kind))
    named = {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1", "creationTimestamp": None}
    document |= {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {**document["metadata"], **named}}
    reported = []
    reader = ObjectDecoder(resource, reported.append)
    page = reader.page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": [document]}).encode())
    event = reader.event(json.dumps({"type": "ADDED", "object": document}).encode())
    assert reported == []
    assert [one.metadata.name for one in (*page.objects, event.obj)] == ["a", "a"]
