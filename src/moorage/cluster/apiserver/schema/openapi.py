"""The OpenAPI documents, versions 3 and 2: every kind with its fields and operations.

Clients read them to explain fields, to validate manifests and to merge lists. The fields come from ``schemas``, their
descriptions from ``field_descriptions``.

Source  kube-openapi, pkg/builder3 and pkg/handler3, for the form; kubectl, pkg/explain and pkg/util/verifier, for what is read
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from moorage.api.documents import served_kinds
from moorage.api.schema.field_types import Field, ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.protobuf import origin_of
from moorage.api.schema.schemas import kind_schema, schema
from moorage.api.wire_format import delimited as _message
from moorage.api.wire_format import text as _text
from moorage.basis import text_of

# Descriptions of fields for ``kubectl explain``: of fields that scheduling reads, and of the best known others.
#
# The texts are our own, in ``field_descriptions.json``, by struct and field; the empty field name describes the struct.
# ``*Condition`` matches all structs with that suffix, and ``*`` all structs, where there is no specific entry.


@cache
def descriptions() -> Mapping[str, Mapping[str, str]]:
    """Return all descriptions, by struct and field."""
    found: Mapping[str, Mapping[str, str]]
    found = json.loads(text_of("moorage.cluster.apiserver.schema", "field_descriptions.json"))
    return found


def describe(struct: str, field: str = "") -> str:
    """Return the description of a struct such as ``core.PodSpec`` or of one of its fields; "" if there is none."""
    table = descriptions()
    places = (struct, origin_of(struct), "*Condition" if struct.endswith("Condition") else "", "*")
    return next((table[place][field] for place in places if field in table.get(place, {})), "")


# -- custom openapi ----------------------------------------------------------------------------------------------------
# The OpenAPI schema of a custom kind, as clients read it to explain fields and to validate manifests.
#
# Version 3 shows the schema of the definition. Version 2 cannot express all of it: junctors, nullable fields and objects with
# unknown fields become less precise, so that a client accepts whatever the server accepts.
#
# Source  apiextensions-apiserver, pkg/controller/openapi/builder/builder.go and pkg/controller/openapi/v2/conversion.go

_Json = dict[str, Any]
_Kind = served_kinds.ServedKind | served_kinds.Review
_JUNCTORS: Final = ("allOf", "anyOf", "not", "oneOf")
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"


def model_name(kind: served_kinds.ServedKind) -> str:
    """Return the name of a custom kind's definition: ``com.example.v1.Widget``."""
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def custom_definition(schema: served_kinds.Schema, metadata: _Json, *, is_v2: bool) -> _Json:
    """Return the definition of a custom kind's schema. ``metadata`` is the reference to ObjectMeta."""
    if is_v2 and schema.get(_PRESERVES):
        return {"type": "object"}  # clients would reject properties that are not listed
    shown = _v2(schema) if is_v2 else dict(schema)
    shown["properties"] = {**shown.get("properties", {}), **_head(metadata, is_v2=is_v2)}
    return _with_embedded(shown, metadata, is_v2=is_v2)


def _head(metadata: _Json, *, is_v2: bool) -> _Json:
    """Return the fields that every object has, with their descriptions."""
    shown = metadata if is_v2 else {"allOf": [metadata]}
    return {
        **{name: {"type": "string", "description": describe("", name)} for name in ("apiVersion", "kind")},
        "metadata": {"description": describe("", "metadata"), **shown},
    }


def _with_embedded(schema: served_kinds.Schema, metadata: _Json, *, is_v2: bool) -> _Json:
    """Return a schema whose embedded resources have the fields of every object."""
    shown = dict(schema)
    if "properties" in shown:
        shown["properties"] = {
            name: _with_embedded(inner, metadata, is_v2=is_v2) if "$ref" not in inner and "allOf" not in inner else inner
            for name, inner in shown["properties"].items()
        }
    for name in ("additionalProperties", "items"):
        if isinstance(shown.get(name), dict):
            shown[name] = _with_embedded(shown[name], metadata, is_v2=is_v2)
    if shown.get("x-kubernetes-embedded-resource") and not (is_v2 and shown.get(_PRESERVES)):
        shown["properties"] = {**shown.get("properties", {}), **_head(metadata, is_v2=is_v2)}
        required = shown.get("required", [])
        shown["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
    return shown


def _v2(schema: served_kinds.Schema) -> _Json:
    """Return a schema in the terms of OpenAPI version 2."""
    shown = {name: value for name, value in schema.items() if name not in _JUNCTORS}
    preserves = bool(shown.get(_PRESERVES))
    is_nullable = shown.pop("nullable", False)
    if is_nullable or preserves:
        shown.pop("items", None)
        shown.pop("properties", None)
    kind = shown.get("type")
    if is_nullable or (kind == "array" and "items" not in shown) or (preserves and kind == "object"):
        shown.pop("type", None)
    properties = shown.get("properties", {})
    required = [name for name in shown.pop("required", []) if not properties.get(name, {}).get("nullable")]
    additional = shown.get("additionalProperties")
    if required and not (isinstance(additional, dict) and additional.get("nullable")):
        shown["required"] = required
    if properties:
        shown["properties"] = {name: _v2(inner) for name, inner in properties.items()}
    for name in ("additionalProperties", "items"):
        if isinstance(shown.get(name), dict):
            shown[name] = _v2(shown[name])
    return shown


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


class _Schemas:
    """Schemas by name, collected as they are referenced. ``prefix`` is the document's prefix for references."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._is_new = prefix.startswith("#/components")
        self.definitions: dict[str, _Json] = {}

    def add(self, shape: Struct) -> str:
        name = _name(shape)
        if name not in self.definitions:
            described: _Json = {"description": text} if (text := describe(shape.name)) else {}
            described["type"] = "object"
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
        more: _Json = {"description": text} if (text := describe(struct, field.name)) else {}
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
        described: _Json
        match shape:
            case Scalar(letter="i", go=go):
                return {"type": "integer", "format": "int64" if go == "int64" else "int32"}
            case Scalar(letter=letter):
                named = _NAMED.get(letter)
                return dict(_PLAIN[letter]) if named is None else self._refer(*named)
            case MapOf():
                described = {"type": "object", "additionalProperties": self._type(shape.item)}
                return {**described, "x-kubernetes-map-type": "atomic"} if shape.is_atomic else described
            case ListOf():
                described = {"type": "array", "items": self._type(shape.item)}
                if shape.keys:
                    return {**described, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(shape.keys)}
                return {**described, "x-kubernetes-list-type": "set" if shape.is_set else "atomic"}
            case Struct():
                return self._reference(self.add(shape))

    def _refer(self, name: str, described: _Json) -> _Json:
        self.definitions.setdefault(name, _V3_DEFINITIONS.get(name, described) if self._is_new else described)
        return self._reference(name)

    def _reference(self, name: str) -> _Json:
        return {"$ref": f"{self.prefix}{name}"}

    def add_kind(self, kind: _Kind) -> None:
        """Add a kind and, for stored kinds, its list kind."""
        if isinstance(kind, served_kinds.ServedKind) and kind.custom is not None:
            name = model_name(kind)
            metadata = self._reference(self.add(schema("meta.ObjectMeta")))
            self.definitions[name] = custom_definition(kind.custom.schema, metadata, is_v2=not self._is_new)
        else:
            name = self.add(kind_schema(kind))
        self.definitions[name]["x-kubernetes-group-version-kind"] = [_gvk(kind, kind.kind)]
        if isinstance(kind, served_kinds.Review):
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
            "shardInfo": {"type": "object", "required": ["selector"], "properties": {"selector": {"type": "string"}}},
        },
    },
)  # fmt: skip


def _gvk(kind: _Kind, name: str) -> _Json:
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


def _place(kind: _Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _paths(kinds: Iterable[_Kind], *, is_v2: bool) -> _Json:
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


def _operation(kind: _Kind, action: str, parameters: tuple[str, ...], *, is_v2: bool) -> _Json:
    of_text: _Json = {"type": "string"} if is_v2 else {"schema": {"type": "string"}}
    shown = [{"name": name, "in": "query", **of_text} for name in parameters]
    group = "".join(part.title() for part in (kind.group.partition(".")[0] or "core", kind.version))
    return {
        "operationId": f"{action}{group}{'Namespaced' if kind.namespaced else ''}{kind.kind}",
        **({"parameters": shown} if shown else {}),
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind, kind.kind),
    }


def _info(version: str) -> dict[str, str]:
    return {"title": "Kubernetes", "version": version}


# -- documents ---------------------------------------------------------------------------------------------------------


def _by_place(table: served_kinds.KindTable) -> dict[str, list[_Kind]]:
    """Return all kinds by the path of their group version."""
    found: dict[str, list[_Kind]] = {}
    kinds: list[_Kind] = [*table.served, *served_kinds.MEASURED, *served_kinds.REVIEWS]
    for kind in kinds:
        found.setdefault(_place(kind), []).append(kind)
    return found


_INDEXES: Final[WeakKeyDictionary[served_kinds.KindTable, _Json]] = WeakKeyDictionary()


def index(kinds: served_kinds.KindTable = served_kinds.UNGATED_KINDS) -> _Json:
    """Return the index of all group documents."""
    if kinds not in _INDEXES:
        urls = {
            place: f"/openapi/v3/{place}?hash={_digest(tuple(held), kinds.server_version)}"
            for place, held in sorted(_by_place(kinds).items())
        }
        _INDEXES[kinds] = {"paths": {place: {"serverRelativeURL": url} for place, url in urls.items()}}
    return _INDEXES[kinds]


#: Number of documents and digests that are kept. There are about thirty built-in ones.
_KEPT: Final = 128


@lru_cache(maxsize=8 * _KEPT)
def _digest(kinds: tuple[_Kind, ...], version: str) -> str:
    return hashlib.sha512(msgspec.json.encode(_group_document(kinds, version))).hexdigest().upper()


def document_of(place: str, kinds: served_kinds.KindTable = served_kinds.UNGATED_KINDS) -> _Json | None:
    """Return the document of one group version, or None if it is not served."""
    held = _by_place(kinds).get(place)
    return _group_document(tuple(held), kinds.server_version) if held else None


@lru_cache(maxsize=_KEPT)
def _group_document(kinds: tuple[_Kind, ...], version: str) -> _Json:
    schemas = _Schemas("#/components/schemas/")
    for kind in kinds:
        schemas.add_kind(kind)
    return {
        "openapi": "3.0.0", "info": _info(version), "paths": _paths(kinds, is_v2=False),
        "components": {"schemas": dict(sorted(schemas.definitions.items()))},
    }  # fmt: skip


def swagger(kinds: served_kinds.KindTable = served_kinds.UNGATED_KINDS) -> _Json:
    """Return the single document of version 2."""
    custom = [kind for kind in kinds.served if kind.custom is not None]
    base, more = _built_in_swagger(kinds.gates), _swagger(custom)
    parts = {part: dict(sorted((base[part] | more[part]).items())) for part in ("definitions", "paths")}
    return {"swagger": "2.0", "info": _info(kinds.server_version), **parts}


@cache
def _built_in_swagger(gates: frozenset[str]) -> _Json:
    return _swagger([*served_kinds.enabled_kinds(gates), *served_kinds.MEASURED, *served_kinds.REVIEWS])


def _swagger(kinds: Iterable[_Kind]) -> _Json:
    """Return the definitions and paths of some kinds."""
    schemas = _Schemas("#/definitions/")
    for kind in kinds:
        schemas.add_kind(kind)
    return {"definitions": schemas.definitions, "paths": _paths(kinds, is_v2=True)}


# -- swagger proto -----------------------------------------------------------------------------------------------------
# The OpenAPI version 2 document in protobuf, which kubectl before 1.29 requires.
#
# The messages are those of gnostic's ``openapi.v2``. Properties without a field there are embedded as YAML, for which JSON is
# valid. Only what ``openapi.swagger`` generates is supported.
#
# Source  gnostic-models, openapiv2/OpenAPIv2.proto

#: The media type that clients request, and the one in responses; the first is not a valid media type.
SWAGGER_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
SWAGGER_SENT: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_METHODS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def swagger_protobuf(document: Mapping[str, Any]) -> bytes:
    """Return an OpenAPI version 2 document as protobuf."""
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    paths = [_named(path, b"".join(map(_operation_message, item.items()))) for path, item in document["paths"].items()]
    definitions = [_named(name, _schema(schema)) for name, schema in document["definitions"].items()]
    head = _text(1, document["swagger"]) + _message(2, info)
    return head + _message(8, _all(2, paths)) + _message(9, _all(1, definitions))


def _all(field: int, bodies: Iterable[bytes]) -> bytes:
    return b"".join(_message(field, body) for body in bodies)


def _named(name: str, body: bytes) -> bytes:
    return _text(1, name) + _message(2, body)


def _extensions(field: int, described: Mapping[str, Any]) -> Iterable[bytes]:
    return (
        _message(field, _named(name, _message(2, msgspec.json.encode(value))))
        for name, value in described.items()
        if name.startswith("x-")
    )


# -- paths -------------------------------------------------------------------------------------------------------------


def _operation_message(named: tuple[str, Mapping[str, Any]]) -> bytes:
    """Return an operation with its method."""
    method, operation = named
    answers = [_named(code, _message(1, _text(1, answer["description"]))) for code, answer in operation["responses"].items()]
    parts = [_text(5, operation["operationId"])]
    parts += [_message(8, _parameter(parameter)) for parameter in operation.get("parameters", ())]
    parts.append(_message(9, _all(1, answers)))
    return _message(_METHODS[method], b"".join([*parts, *_extensions(13, operation)]))


def _parameter(parameter: Mapping[str, Any]) -> bytes:
    """Return a query parameter, wrapped in the messages of its alternatives."""
    query = _text(2, "query") + _text(4, parameter["name"]) + _text(6, parameter["type"])
    return _message(1, _message(2, _message(3, query)))


def _schema(schema: Mapping[str, Any]) -> bytes:
    parts = [_text(field, schema[name]) for name, field in (("$ref", 1), ("format", 2), ("description", 4)) if name in schema]
    if "default" in schema:
        parts.append(_message(5, _message(2, msgspec.json.encode(schema["default"]))))
    parts += [_text(19, name) for name in schema.get("required", ())]
    if "additionalProperties" in schema:
        parts.append(_message(21, _message(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_message(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_message(23, _message(1, _schema(schema["items"]))))
    parts += [_message(24, _schema(one)) for one in schema.get("allOf", ())]
    if "properties" in schema:
        parts.append(_message(25, _all(1, [_named(name, _schema(one)) for name, one in schema["properties"].items()])))
    return b"".join([*parts, *_extensions(31, schema)])
