"""The types of a CustomResourceDefinition's fields. A schema contains schemas, so these types refer to themselves.

Source  apiextensions-apiserver, pkg/apis/apiextensions/v1: types.go, types_jsonschema.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.apiserver.schema.field_types import Field, ListOf, MapOf, Scalar, Struct, Type

__all__ = ["DEFINITION_FIELDS", "SCHEMA"]

_TEXT: Final = Scalar("s", "string")
_INT: Final = Scalar("i", "int64")
_INT32: Final = Scalar("i", "int32")
_BOOL: Final = Scalar("b", "bool")
_FLOAT: Final = Scalar("f", "float64")
_JSON: Final = Scalar("R", "v1.JSON")
#: A schema, or another value that the field allows in its place: a bool, a list of schemas, or a list of strings.
_SCHEMA_OR_MORE: Final = Scalar("P", "v1.JSONSchemaProps")
_TEXTS: Final = ListOf(_TEXT, "[]string")


def _struct(name: str, /, **fields: Type) -> Struct:
    return Struct(f"apiextensions.{name}", name, {one: _field(one, held) for one, held in fields.items()})


def _field(name: str, held: Type) -> Field:
    return Field(name, held, is_pointer=isinstance(held, Struct), omits_empty=True)


def _written(struct: Struct, *names: str) -> Struct:
    """Return a struct with some fields written even when empty."""
    fields = {name: Field(name, one.type, is_required=True) if name in names else one for name, one in struct.fields.items()}
    return Struct(struct.name, struct.go, fields, struct.is_atomic)


_SCHEMA_FIELDS: Final[dict[str, Field]] = {}
#: An OpenAPI schema.
SCHEMA: Final = Struct("apiextensions.JSONSchemaProps", "JSONSchemaProps", _SCHEMA_FIELDS)
_RULE: Final = _written(
    _struct("ValidationRule", rule=_TEXT, message=_TEXT, messageExpression=_TEXT, reason=_TEXT, fieldPath=_TEXT,
            optionalOldSelf=_BOOL),
    "rule",
)  # fmt: skip
_SCHEMAS: Final = ListOf(SCHEMA, "[]v1.JSONSchemaProps")
_NAMED_SCHEMAS: Final = MapOf(SCHEMA, "map[string]v1.JSONSchemaProps")
_SCHEMA_TYPES: Final[Mapping[str, Type]] = {
    "id": _TEXT, "$schema": _TEXT, "$ref": _TEXT, "description": _TEXT, "type": _TEXT, "format": _TEXT, "title": _TEXT,
    "default": _JSON, "maximum": _FLOAT, "exclusiveMaximum": _BOOL, "minimum": _FLOAT, "exclusiveMinimum": _BOOL,
    "maxLength": _INT, "minLength": _INT, "pattern": _TEXT, "maxItems": _INT, "minItems": _INT, "uniqueItems": _BOOL,
    "multipleOf": _FLOAT, "enum": ListOf(_JSON, "[]v1.JSON"), "maxProperties": _INT, "minProperties": _INT, "required": _TEXTS,
    "items": _SCHEMA_OR_MORE, "allOf": _SCHEMAS, "oneOf": _SCHEMAS, "anyOf": _SCHEMAS, "not": SCHEMA,
    "properties": _NAMED_SCHEMAS, "additionalProperties": _SCHEMA_OR_MORE, "patternProperties": _NAMED_SCHEMAS,
    "dependencies": MapOf(_SCHEMA_OR_MORE, "v1.JSONSchemaDependencies"), "additionalItems": _SCHEMA_OR_MORE,
    "definitions": _NAMED_SCHEMAS, "externalDocs": _struct("ExternalDocumentation", description=_TEXT, url=_TEXT),
    "example": _JSON, "nullable": _BOOL, "x-kubernetes-preserve-unknown-fields": _BOOL,
    "x-kubernetes-embedded-resource": _BOOL, "x-kubernetes-int-or-string": _BOOL, "x-kubernetes-list-map-keys": _TEXTS,
    "x-kubernetes-list-type": _TEXT, "x-kubernetes-map-type": _TEXT,
    "x-kubernetes-validations": ListOf(_RULE, "v1.ValidationRules", ("rule",)),
}  # fmt: skip
#: Fields that distinguish an empty value from an absent one.
_POINTERS: Final = frozenset(
    ["$ref", "maximum", "minimum", "maxLength", "minLength", "maxItems", "minItems", "multipleOf", "maxProperties",
     "minProperties", "default", "example", "items", "additionalProperties", "additionalItems", "not",
     "externalDocs", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-map-type"]
)  # fmt: skip
_SCHEMA_FIELDS.update(
    {name: Field(name, held, is_pointer=name in _POINTERS, omits_empty=True) for name, held in _SCHEMA_TYPES.items()}
)

_NAMES: Final = _written(
    _struct("CustomResourceDefinitionNames", plural=_TEXT, singular=_TEXT, shortNames=_TEXTS, kind=_TEXT, listKind=_TEXT,
            categories=_TEXTS),
    "plural", "kind",
)  # fmt: skip
_SCALE: Final = _written(
    _struct("CustomResourceSubresourceScale", specReplicasPath=_TEXT, statusReplicasPath=_TEXT, labelSelectorPath=_TEXT),
    "specReplicasPath", "statusReplicasPath",
)  # fmt: skip
_COLUMN: Final = _written(
    _struct("CustomResourceColumnDefinition", name=_TEXT, type=_TEXT, format=_TEXT, description=_TEXT, priority=_INT32,
            jsonPath=_TEXT),
    "name", "type", "jsonPath",
)  # fmt: skip
_VERSION: Final = _written(
    _struct(
        "CustomResourceDefinitionVersion", name=_TEXT, served=_BOOL, storage=_BOOL, deprecated=_BOOL, deprecationWarning=_TEXT,
        schema=_struct("CustomResourceValidation", openAPIV3Schema=SCHEMA),
        subresources=_struct("CustomResourceSubresources", status=_struct("CustomResourceSubresourceStatus"), scale=_SCALE),
        additionalPrinterColumns=ListOf(_COLUMN, "[]v1.CustomResourceColumnDefinition"),
        selectableFields=ListOf(_struct("SelectableField", jsonPath=_TEXT), "[]v1.SelectableField"),
    ),
    "name", "served", "storage",
)  # fmt: skip
_CLIENT: Final = _struct(
    "WebhookClientConfig", url=_TEXT, caBundle=Scalar("y", "[]uint8"),
    service=_struct("ServiceReference", namespace=_TEXT, name=_TEXT, path=_TEXT, port=_INT32),
)  # fmt: skip
_WEBHOOK: Final = _struct("WebhookConversion", clientConfig=_CLIENT, conversionReviewVersions=_TEXTS)
_SPEC: Final = _written(
    _struct(
        "CustomResourceDefinitionSpec", group=_TEXT, names=_NAMES, scope=_TEXT,
        versions=ListOf(_VERSION, "[]v1.CustomResourceDefinitionVersion"),
        conversion=_written(_struct("CustomResourceConversion", strategy=_TEXT, webhook=_WEBHOOK), "strategy"),
        preserveUnknownFields=_BOOL,
    ),
    "group", "names", "scope", "versions",
)  # fmt: skip
_CONDITION: Final = _written(
    _struct("CustomResourceDefinitionCondition", type=_TEXT, status=_TEXT, lastTransitionTime=Scalar("T", "v1.Time"),
            reason=_TEXT, message=_TEXT, observedGeneration=_INT),
    "type", "status",
)  # fmt: skip
_STATUS: Final = _struct(
    "CustomResourceDefinitionStatus", conditions=ListOf(_CONDITION, "[]v1.CustomResourceDefinitionCondition", ("type",)),
    acceptedNames=_NAMES, storedVersions=_TEXTS, observedGeneration=_INT,
)  # fmt: skip

#: The fields of the kind, apart from metadata.
DEFINITION_FIELDS: Final[Mapping[str, Field]] = {
    "spec": Field("spec", _SPEC, is_required=True),
    "status": Field("status", _STATUS, omits_empty=True),
}
