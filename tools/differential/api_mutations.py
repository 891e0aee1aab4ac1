"""Mutations of valid objects, drawn from the fields that an API server's OpenAPI document describes.

A mutation removes, empties, replaces, doubles or adds a value somewhere in a document. New values have the type of the field,
or rarely another one; texts come from a pool in which names, numbers, quantities, addresses and their near misses stand.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["Mutator", "Schemas"]

Document = dict[str, Any]
Path = tuple[str | int, ...]

_TEXTS: Final = (
    "", "a", "web", "Bad_Name", "a b", "-x", "x-", "a.b", "a.example.com", "example.com/a", "example.com/", "/a",
    "/a/../b", "..", ".", "*", "a/b/c", "A", "TCP", "SCTP", "tcp", "None", "x" * 64, "y" * 254, "10.0.0.1", "010.0.0.1",
    "10.0.0.0/8", "10.0.0.1/8", "::1", "fd00::/64", "127.0.0.1", "0", "1", "-1", "1Gi", "500m", "1n", "0.5", "1e3",
    "10%", "101%", "x%", "True", "true", "Exists", "In", "Gt", "NoExecute", "Always", "Never", "Retain", "Delete",
    "2026-01-01T00:00:00Z", "https://a.example.com", "http://a.example.com/x", "http", "a_b", "kubernetes.io/x",
    "system:x", "ä", "a\nb", "v1", "apps/v1", "1.2.3", "metadata.name", "metadata.labels['a']", "$(A)", "80",
)  # fmt: skip
_NUMBERS: Final = (
    0, 1, -1, 2, 5, 30, 31, 80, 100, 101, 600, 1000, 10_000, 65_535, 65_536, 100_001, 86_401, 2**31 - 1, 2**31, -(2**31), 2**40,
)  # fmt: skip
_QUANTITIES: Final = ("0", "1", "-1", "1Gi", "500m", "1n", "0.5", "1e3", "1.5Gi", "100m", "x", "", 5, "9e30", "1500u")
_TIMES: Final = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00.000000Z", "yesterday", "")
_BYTES: Final = ("", "YQ==", "LS0t", "no base64", "YQ")
_COUNTS: Final[tuple[Any, ...]] = (0, 1, -1, 2, 5, 30, 80, "10%", "http", "101%", "-1", "x")
_OTHERS: Final[tuple[Any, ...]] = ("x", 7, True, [], {}, ["x"], {"a": "b"}, None, 1.5)


_OF_TYPES: Final[Mapping[str, tuple[Any, ...]]] = {
    "string": _TEXTS, "integer": _NUMBERS, "number": _NUMBERS, "boolean": (False, True),
}  # fmt: skip
#: The names of types and formats → their values.
_OF_NAMES: Final[Mapping[str, tuple[Any, ...]]] = {
    "Quantity": _QUANTITIES, "Time": _TIMES, "MicroTime": _TIMES, "date-time": _TIMES, "byte": _BYTES,
    "IntOrString": _COUNTS, "int-or-string": _COUNTS,
}  # fmt: skip


def _pool(schema: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the values of a type with a name or a format of its own, None for another type."""
    name = str(schema.get("x-name", "")).rpartition(".")[2]
    return _OF_NAMES.get(name, _OF_NAMES.get(schema.get("format", "")))


class Schemas:
    """The schemas of one API version, and the types of the fields of its objects."""

    def __init__(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """``documents``: the `components.schemas` of each group and version."""
        self._all = {name: one for document in documents.values() for name, one in document.items()}
        self._of_kinds = {
            (about["group"], about["version"], about["kind"]): name
            for name, one in self._all.items()
            for about in one.get("x-kubernetes-group-version-kind") or ()
        }

    def of_kind(self, api_version: str, kind: str) -> Mapping[str, Any]:
        """Return the schema of a kind; {} if it has none."""
        group, _, version = api_version.rpartition("/")
        found: Mapping[str, Any] = self._all.get(self._of_kinds.get((group, version, kind), ""), {})
        return found

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a schema, or the one that it refers to, with its name as `x-name`."""
        reference = schema.get("$ref") or next((one["$ref"] for one in schema.get("allOf") or () if "$ref" in one), "")
        if not reference:
            return schema
        name = reference.rpartition("/")[2]
        return {**self._all.get(name, {}), "x-name": name}

    def inner(self, schema: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
        """Return the schema of a field or an item; {} if there is none."""
        here = self.resolved(schema)
        if isinstance(step, int):
            return here.get("items") or {}
        below: Mapping[str, Any] | bool = (here.get("properties") or {}).get(step) or here.get("additionalProperties") or {}
        return below if isinstance(below, Mapping) else {}

    def at(self, schema: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
        """Return the schema of the value at a path."""
        for step in path:
            schema = self.inner(schema, step)
        return self.resolved(schema)


class Mutator:
    """Draws mutations with one source of chance."""

    def __init__(self, schemas: Schemas, rng: random.Random) -> None:
        self._schemas = schemas
        self._rng = rng

    def mutated(self, document: Document, schema: Mapping[str, Any]) -> Document:
        """Return a copy of a document with one or two mutations."""
        made = copy.deepcopy(document)
        for _ in range(self._rng.choice((1, 1, 1, 2))):
            self._mutate(made, schema)
        return made

    def _mutate(self, document: Document, schema: Mapping[str, Any]) -> None:
        draw = self._rng.random()
        if draw < 0.35 and self._add(document, schema):
            return None
        places = [path for path in _places(document) if path not in _FIXED and path[:2] not in _FIXED]
        if not places:
            return None
        path = self._rng.choice(places)
        holder, last = at(document, path[:-1]), path[-1]
        if draw < 0.45:
            del holder[last]
        elif draw < 0.52:
            holder[last] = self._rng.choice((None, _empty(holder[last]), _empty(holder[last])))
        elif draw < 0.58 and isinstance(holder[last], list) and holder[last]:
            holder[last].append(copy.deepcopy(self._rng.choice(holder[last])))
        elif draw < 0.60:
            holder[last] = copy.deepcopy(self._rng.choice(_OTHERS))
        elif draw < 0.64 and isinstance(holder, dict) and not self._has_names(document, schema, path):
            holder[self._rng.choice(_TEXTS)] = holder.pop(last)
        else:
            held = holder[last]
            if isinstance(held, dict | list) and held:
                return self._mutate(document, schema)
            holder[last] = self.value(self._schemas.at(schema, path), 2)
        return None

    def _has_names(self, document: Document, schema: Mapping[str, Any], path: Path) -> bool:
        """Return whether the holder of a place is an object with fields, not a map."""
        return bool(self._schemas.at(schema, path[:-1]).get("properties"))

    def _add(self, document: Document, schema: Mapping[str, Any]) -> bool:
        """Add an absent field or an item; return whether there was room."""
        holders = [path for path in _containers(document) if path[:1] != ("metadata",) or self._rng.random() < 0.2]
        path = self._rng.choice(holders)
        holder, here = at(document, path), self._schemas.at(schema, path)
        if isinstance(holder, list):
            holder.append(self.value(self._schemas.inner(here, 0), 3))
            return True
        names = sorted(name for name in here.get("properties") or () if name not in holder and (*path, name) not in _FIXED)
        if names:
            name = self._rng.choice(names)
            holder[name] = self.value(self._schemas.inner(here, name), 3)
            return True
        if here.get("additionalProperties"):
            holder[self._rng.choice(_TEXTS)] = self.value(self._schemas.inner(here, "*"), 3)
            return True
        return False

    def value(self, schema: Mapping[str, Any], depth: int) -> Any:
        """Return a value for a field of a schema, which is often faulty."""
        rng, here = self._rng, self._schemas.resolved(schema)
        if (pool := _pool(here)) is not None:
            return rng.choice(pool)
        if here.get("enum") and rng.random() < 0.6:
            return rng.choice(here["enum"])
        kind = here.get("type", "")
        if kind in _OF_TYPES:
            return rng.choice(_OF_TYPES[kind])
        if kind == "array":
            inner = self._schemas.inner(here, 0)
            return [self.value(inner, depth - 1) for _ in range(rng.choice((0, 1, 1, 2)))] if depth > 0 else []
        if here.get("properties"):
            return self._object(here, depth)
        if here.get("additionalProperties"):
            inner = self._schemas.inner(here, "*")
            return {rng.choice(_TEXTS): self.value(inner, depth - 1) for _ in range(rng.choice((0, 1, 2)))}
        return copy.deepcopy(rng.choice(_OTHERS))

    def _object(self, schema: Mapping[str, Any], depth: int) -> Document:
        if depth <= 0:
            return {}
        fields = schema["properties"]
        names = [name for name in schema.get("required") or () if self._rng.random() < 0.9]
        more = self._rng.sample(sorted(fields), min(len(fields), self._rng.choice((0, 1, 1, 2))))
        names += [name for name in more if name not in names]
        return {name: self.value(self._schemas.inner(schema, name), depth - 1) for name in names if name in fields}


_FIXED: Final = frozenset([
    ("apiVersion",), ("kind",), ("metadata",),
    *(("metadata", name) for name in ("creationTimestamp", "managedFields", "name", "namespace", "resourceVersion", "uid")),
])  # fmt: skip


def at(document: Any, path: Path) -> Any:
    """Return the value at a path."""
    for step in path:
        document = document[step]
    return document


def _empty(value: Any) -> Any:
    """Return the empty value of the same type."""
    return type(value)() if value is not None else {}


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values in a document, the document itself apart."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, (*path, name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _places(inner, (*path, i))


def _containers(value: Any) -> list[Path]:
    return [path for path in ((), *_places(value)) if isinstance(at(value, path), dict | list)]
