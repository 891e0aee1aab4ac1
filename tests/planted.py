"""Objects of every kind with a word of its own in every field that can hold one, made from the schemas of the API."""

from __future__ import annotations

import json

from moorage.api.documents.served_kinds import KINDS as SERVED
from moorage.api.schema.field_types import UNTYPED, ListOf, MapOf, Scalar
from moorage.api.schema.schemas import kind_schema
from moorage.basis.inputs.simulated_kinds import KINDS

#: Values of types that hold no word, by the letter of the type.
PLAIN = {"i": 1, "b": True, "f": 1.0, "y": "aGk=", "T": "2026-01-01T00:00:00Z", "U": "2026-01-01T00:00:00.000000Z", "Q": "1"}
_DEEPEST = 16


class Planted:
    """An object of a kind, and the field of each of its words. ``fixed`` are values of fields, by the end of their path."""

    def __init__(self, kind, fixed=None):
        same = [one for one in SERVED if (one.kind, one.group) == (kind.name, kind.group)]
        [served] = [one for one in same if kind.api_version.endswith(one.version)]
        self.kind, self.words, self._fixed = kind, {}, fixed or {}
        self.document = {**self._value(kind_schema(served), "", 0), "apiVersion": kind.api_version, "kind": kind.name}

    def _word(self, path, ending=""):
        word = f"plnt{kind_number(self.kind)}q{len(self.words)}z"
        self.words[word] = path.lstrip(".")
        return word + ending

    def _value(self, shape, path, depth):
        for end, value in self._fixed.items():
            if path.endswith(end) and (isinstance(shape, Scalar) or not isinstance(value, str)):
                return value(self._word(path)) if callable(value) else value
        if isinstance(shape, Scalar):
            if shape.letter in {"s", "O"}:
                return self._word(path)
            if shape.letter in {"R", "F"}:
                return {self._word(path): self._word(path)}
            return PLAIN[shape.letter]
        if depth > _DEEPEST or shape is UNTYPED:
            return {}
        if isinstance(shape, ListOf):
            return [self._value(shape.item, f"{path}[]", depth + 1)]
        if isinstance(shape, MapOf):
            return {self._word(f"{path}{{key}}"): self._value(shape.item, f"{path}{{}}", depth + 1)}
        return {name: self._value(one.type, f"{path}.{name}", depth + 1) for name, one in shape.fields.items()}

    def left_in(self, text):
        """Return the fields whose words are in a text."""
        return sorted({path for word, path in self.words.items() if word in text})


def kind_number(kind):
    return KINDS.index(kind)


def shown(document):
    return json.dumps(document, sort_keys=True)
