"""Values that a field cannot hold are found in every field of every built-in kind, and nothing else is."""

import copy
import random

import pytest

from moorage.api.documents.served_kinds import KINDS
from moorage.api.schema.field_types import ListOf, MapOf, Scalar, Struct
from moorage.api.schema.normalization import FieldTypeError, conform
from moorage.api.schema.schemas import kind_schema
from moorage.basis.inputs.files import InputFile
from moorage.errors import InputError
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.field_types import wrong_values

RIGHT = {
    "s": "x", "D": "1s", "y": "eA==", "b": True, "i": 3, "f": 0.5, "Q": "1", "O": 80, "T": "2026-01-01T00:00:00Z",
    "U": "2026-01-01T00:00:00.000000Z", "X": ["x"], "R": {"any": 1}, "F": {}, "P": {},
}  # fmt: skip
WRONG = {
    "s": [3, True, 1.5, [], {}], "D": [3], "y": [3, "!"], "b": ["true", 1, "yes"], "i": ["3", True, 1.5, 2**63],
    "f": ["3", True],
    "Q": ["one", True, []], "O": [True, 1.5, []], "T": [3, "today"], "U": [3, "today"], "X": ["x", [1]],
}  # fmt: skip
DEPTH = 7


def scalars(shape, depth=DEPTH):
    """Yield a document for each scalar below a schema, with the scalar's letter and a function that sets it."""
    if isinstance(shape, Scalar):
        yield shape.letter, lambda value: value
    elif depth and isinstance(shape, ListOf):
        for letter, put in scalars(shape.item, depth - 1):
            yield letter, lambda value, put=put: [put(value)]
    elif depth and isinstance(shape, MapOf):
        for letter, put in scalars(shape.item, depth - 1):
            yield letter, lambda value, put=put: {"key": put(value)}
    elif depth and isinstance(shape, Struct):
        for name, field in shape.fields.items():
            for letter, put in scalars(field.type, depth - 1):
                yield letter, lambda value, put=put, name=name: {name: put(value)}


def is_refused(shape, document):
    try:
        conform(shape, copy.deepcopy(document))
    except FieldTypeError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified)
def test_every_field_of_a_kind_is_checked(kind):
    shape, chance, seen = kind_schema(kind), random.Random(kind.qualified), 0
    fields = [*scalars(shape)]
    for letter, put in fields if len(fields) < 400 else chance.sample(fields, 400):
        right = put(RIGHT[letter])
        assert [*wrong_values(shape, right)] == [], right
        for value in WRONG.get(letter, ()):
            spoilt = put(value)
            assert len([*wrong_values(shape, spoilt)]) == 1, spoilt
            assert is_refused(shape, spoilt), spoilt
            seen += 1
    assert seen


POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  securityContext: {security}
  containers:
  - name: c
    image: x
    env: [{{name: A, value: {value}}}]
    args: {args}
"""
PARTS = {"security": "{}", "value": '"3"', "args": "[]"}
CASES = {
    "an environment": (
        {"value": "3"}, ['in:9: Pod p: spec.containers[0].env[0].value: expected str, found int 3; quote it: "3"'],
    ),
    "arguments": (
        {"args": "[1, yes]"},
        ['in:10: Pod p: spec.containers[0].args[0]: expected str, found int 1; quote it: "1"',
         'in:10: Pod p: spec.containers[0].args[1]: expected str, found bool true; quote it: "true"'],
    ),
    "a user": (
        {"security": '{runAsUser: "1000"}'}, ['in:5: Pod p: spec.securityContext.runAsUser: expected int, found str "1000"'],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "why"), CASES.values(), ids=CASES)
def test_a_wrong_type_is_refused_where_it_stands(parts, why):
    assert len(read_sources([InputFile("in", POD.format(**PARTS).encode())]).pods) == 1
    with pytest.raises(InputError) as caught:
        read_sources([InputFile("in", POD.format(**PARTS | parts).encode())])
    assert str(caught.value).splitlines() == why


UNREAD = {
    "a service": ("v1", "Service", "spec: {ports: [{port: http}]}", 'spec.ports[0].port: expected int, found str "http"'),
    "a config map": ("v1", "ConfigMap", "data: {a: 1}", 'data[a]: expected str, found int 1; quote it: "1"'),
    "a role": ("rbac.authorization.k8s.io/v1", "Role", "rules: [{verbs: get}]",
               'rules[0].verbs: expected array, found str "get"'),
}  # fmt: skip


@pytest.mark.parametrize(("version", "kind", "rest", "why"), UNREAD.values(), ids=UNREAD)
def test_kinds_that_scheduling_does_not_read_are_checked_too(version, kind, rest, why):
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n{rest}\n"
    with pytest.raises(InputError) as caught:
        read_sources([InputFile("in", text.encode())])
    assert str(caught.value) == f"in:4: {kind} a: {why}"
