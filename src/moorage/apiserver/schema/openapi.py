"""The OpenAPI documents, versions 3 and 2: every kind with its fields and operations.

Clients read them to explain fields, to validate manifests and to merge lists. The fields come from ``schemas``, their
descriptions from ``field_descriptions``.

Source  kube-openapi, pkg/builder3 and pkg/handler3, for the form; kubectl, pkg/explain and pkg/util/verifier, for what is read
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from moorage.apiserver.schema.custom_openapi import custom_definition, model_name
from moorage.apiserver.schema.discovery import VERSION
from moorage.apiserver.schema.field_descriptions import describe
from moorage.apiserver.schema.schemas import Field, ListOf, MapOf, Scalar, Struct, Type, kind_schema, schema
from moorage.apiserver.vocabulary.kind_tables import UNGATED_KINDS, KindTable
from moorage.apiserver.vocabulary.served_kinds import MEASURED, REVIEWS, Review, ServedKind, enabled_kinds

__all__ = ["document_of", "index", "swagger"]

_Json = dict[str, Any]
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_TEXT: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_RAW: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
#: Scalars with a named definition.
_NAMED: Final[Mapping[str, tuple[str, _Json]]] = {
    "T": (f"{_META}Time", {"type": "string", "format": "date-time"}),
    "U": (f"{_META}MicroTime", {"type": "string", "format": "date-time"}),
    "Q": (_QUANTITY, {"type": "string"}),
    "O": (_INT_OR_TEXT, {"type": "string", "format": "int-or-string"}),
    "D": (f"{_META}Duration", {"type": "string"}),
    "R": (_RAW, {"type": "object"}),
    "F": (f"{_META}FieldsV1", {"type": "object"}),
}
#: Definitions that version 3 states more precisely; version 2 allows one type each.
_V3_DEFINITIONS: Final[Mapping[str, _Json]] = {
    _INT_OR_TEXT: {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    _QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
}
_PLAIN: Final[Mapping[str, _Json]] = {
    "s": {"type": "string"}, "b": {"type": "boolean"}, "f": {"type": "number", "format": "double"},
    "P": {}, "y": {"type": "string", "format": "byte"}, "X": {"type": "array", "items": {"type": "string"}},
}  # fmt: skip


# -- schemas -----------------------------------------------------------------------------------------------------------


def _name(shape: Struct) -> str:
    package, _, name = shape.name.rpartition(".")
    if package == "metrics":
        return f"io.k8s.metrics.pkg.apis.metrics.v1beta1.{name}"
    if package == "meta":
        return f"{_META}{name}"
    group, _, version = package.partition(".")
    return f"io.k8s.api.{group}.{version or 'v1'}.{name}"


def _description(struct: str, field: str = "") -> _Json:
    text = describe(struct, field)
    return {"description": text} if text else {}


class _Schemas:
    """Schemas by name, collected as they are referenced. ``prefix`` is the document's prefix for references."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._is_new = prefix.startswith("#/components")
        self.definitions: dict[str, _Json] = {}

    def add(self, shape: Struct) -> str:
        name = _name(shape)
        if name not in self.definitions:
            described: _Json = _description(shape.name) | {"type": "object"}
            self.definitions[name] = described
            if shape.fields:
                described["properties"] = {field.name: self._property(shape.name, field) for field in shape.fields.values()}
            if required := [field.name for field in shape.fields.values() if field.is_required]:
                described["required"] = required
            if shape.is_atomic:
                described["x-kubernetes-map-type"] = "atomic"
        return name

    def _property(self, struct: str, field: Field) -> _Json:
        described = self._type(field.type)
        more = _description(struct, field.name)
        if field.merges:
            more["x-kubernetes-patch-strategy"] = "merge,retainKeys" if field.retains else "merge"
            if field.merge_key:
                more["x-kubernetes-patch-merge-key"] = field.merge_key
        elif field.retains:
            more["x-kubernetes-patch-strategy"] = "retainKeys"
        if field.default is not None:
            more["default"] = field.default
        # Version 3 allows nothing beside a $ref; readers of version 2 expect it there.
        apart = more and "$ref" in described and self._is_new
        return {"allOf": [described], **more} if apart else {**described, **more}

    def _type(self, shape: Type) -> _Json:
        match shape:
            case Scalar(letter="i", go=go):
                return {"type": "integer", "format": "int64" if go == "int64" else "int32"}
            case Scalar(letter=letter):
                named = _NAMED.get(letter)
                return dict(_PLAIN[letter]) if named is None else self._refer(*named)
            case MapOf():
                described: _Json = {"type": "object", "additionalProperties": self._type(shape.item)}
                return {**described, "x-kubernetes-map-type": "atomic"} if shape.is_atomic else described
            case ListOf():
                return {"type": "array", "items": self._type(shape.item), **_list_type(shape)}
            case Struct():
                return self._reference(self.add(shape))

    def _refer(self, name: str, described: _Json) -> _Json:
        self.definitions.setdefault(name, _V3_DEFINITIONS.get(name, described) if self._is_new else described)
        return self._reference(name)

    def _reference(self, name: str) -> _Json:
        return {"$ref": f"{self.prefix}{name}"}

    def add_kind(self, kind: ServedKind | Review) -> None:
        """Add a kind and, for stored kinds, its list kind."""
        if isinstance(kind, ServedKind) and kind.custom is not None:
            name = model_name(kind)
            metadata = self._reference(self.add(schema("meta.ObjectMeta")))
            self.definitions[name] = custom_definition(kind.custom.schema, metadata, is_v2=not self._is_new)
        else:
            name = self.add(kind_schema(kind))
        self.definitions[name]["x-kubernetes-group-version-kind"] = [_gvk(kind, kind.kind)]
        if isinstance(kind, Review):
            return
        self.definitions[name.removesuffix(kind.kind) + kind.list_kind] = {
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": self._refer(*_LIST_META),
                "items": {"type": "array", "items": self._reference(name)},
            },
            "x-kubernetes-group-version-kind": [_gvk(kind, kind.list_kind)],
        }  # fmt: skip


_LIST_META: Final = (
    f"{_META}ListMeta",
    {
        "type": "object",
        "properties": {
            "continue": {"type": "string"}, "remainingItemCount": {"type": "integer", "format": "int64"},
            "resourceVersion": {"type": "string"}, "selfLink": {"type": "string"},
        },
    },
)  # fmt: skip


def _list_type(shape: ListOf) -> _Json:
    if shape.keys:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(shape.keys)}
    return {"x-kubernetes-list-type": "set" if shape.is_set else "atomic"}


def _gvk(kind: ServedKind | Review, name: str) -> _Json:
    return {"group": kind.group, "version": kind.version, "kind": name}


# -- paths -------------------------------------------------------------------------------------------------------------

_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")
_SELECT: Final = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch",
    "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_DELETE: Final = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
#: Method, whether it is for the collection, action name, and parameters.
_OPERATIONS: Final = (
    ("get", True, "list", _SELECT), ("post", True, "post", _WRITE), ("delete", True, "deletecollection", (*_SELECT, *_DELETE)),
    ("get", False, "get", ()), ("put", False, "put", _WRITE), ("patch", False, "patch", (*_WRITE, "force")),
    ("delete", False, "delete", _DELETE),
)  # fmt: skip


_VERB_OF: Final = {"post": "create", "put": "update"}


def _place(kind: ServedKind | Review) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _paths(kinds: Iterable[ServedKind | Review], *, is_v2: bool) -> _Json:
    paths: _Json = {}
    for kind in kinds:
        within = "namespaces/{namespace}/" if kind.namespaced else ""
        base = f"/{_place(kind)}/{within}{kind.resource}"
        for method, is_collection, action, parameters in _OPERATIONS:
            if _VERB_OF.get(action, action) not in kind.verbs:
                continue
            path = base if is_collection else f"{base}/{{name}}"
            paths.setdefault(path, {})[method] = _operation(kind, action, parameters, is_v2=is_v2)
    return paths


def _operation(kind: ServedKind | Review, action: str, parameters: tuple[str, ...], *, is_v2: bool) -> _Json:
    shown = [
        {"name": name, "in": "query", **({"type": "string"} if is_v2 else {"schema": {"type": "string"}})}
        for name in parameters
    ]
    group = "".join(part.title() for part in (kind.group.partition(".")[0] or "core", kind.version))
    return {
        "operationId": f"{action}{group}{'Namespaced' if kind.namespaced else ''}{kind.kind}",
        **({"parameters": shown} if shown else {}),
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind, kind.kind),
    }


# -- documents ---------------------------------------------------------------------------------------------------------


def _by_place(table: KindTable) -> dict[str, list[ServedKind | Review]]:
    """Return all kinds by the path of their group version."""
    found: dict[str, list[ServedKind | Review]] = {}
    kinds: list[ServedKind | Review] = [*table.served, *MEASURED, *REVIEWS]
    for kind in kinds:
        found.setdefault(_place(kind), []).append(kind)
    return found


_INDEXES: Final[WeakKeyDictionary[KindTable, _Json]] = WeakKeyDictionary()


def index(kinds: KindTable = UNGATED_KINDS) -> _Json:
    """Return the index of all group documents."""
    if kinds not in _INDEXES:
        paths = {
            place: {"serverRelativeURL": f"/openapi/v3/{place}?hash={_digest(tuple(held))}"}
            for place, held in sorted(_by_place(kinds).items())
        }
        _INDEXES[kinds] = {"paths": paths}
    return _INDEXES[kinds]


#: Number of documents and digests that are kept. There are about thirty built-in ones.
_KEPT: Final = 128


@lru_cache(maxsize=8 * _KEPT)
def _digest(kinds: tuple[ServedKind | Review, ...]) -> str:
    return hashlib.sha512(msgspec.json.encode(_group_document(kinds))).hexdigest().upper()


def document_of(place: str, kinds: KindTable = UNGATED_KINDS) -> _Json | None:
    """Return the document of one group version, or None if it is not served."""
    held = _by_place(kinds).get(place)
    return _group_document(tuple(held)) if held else None


@lru_cache(maxsize=_KEPT)
def _group_document(kinds: tuple[ServedKind | Review, ...]) -> _Json:
    schemas = _Schemas("#/components/schemas/")
    for kind in kinds:
        schemas.add_kind(kind)
    return {
        "openapi": "3.0.0", "info": _info(), "paths": _paths(kinds, is_v2=False),
        "components": {"schemas": dict(_sorted(schemas.definitions))},
    }  # fmt: skip


def swagger(kinds: KindTable = UNGATED_KINDS) -> _Json:
    """Return the single document of version 2."""
    custom = [kind for kind in kinds.served if kind.custom is not None]
    base, more = _built_in_swagger(kinds.gates), _swagger(custom)
    parts = {part: dict(_sorted(base[part] | more[part])) for part in ("definitions", "paths")}
    return {"swagger": "2.0", "info": _info(), **parts}


@cache
def _built_in_swagger(gates: frozenset[str]) -> _Json:
    return _swagger([*enabled_kinds(gates), *MEASURED, *REVIEWS])


def _swagger(kinds: Iterable[ServedKind | Review]) -> _Json:
    """Return the definitions and paths of some kinds."""
    schemas = _Schemas("#/definitions/")
    for kind in kinds:
        schemas.add_kind(kind)
    return {"definitions": schemas.definitions, "paths": _paths(kinds, is_v2=True)}


def _info() -> _Json:
    return {"title": "Kubernetes", "version": VERSION["gitVersion"]}


def _sorted(definitions: Mapping[str, _Json]) -> Iterator[tuple[str, _Json]]:
    return ((name, definitions[name]) for name in sorted(definitions))
