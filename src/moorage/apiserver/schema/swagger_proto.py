"""The OpenAPI version 2 document in protobuf, which kubectl before 1.29 requires.

The messages are those of gnostic's ``openapi.v2``. Properties without a field there are embedded as YAML, for which JSON is
valid. Only what ``openapi.swagger`` generates is supported.

Source  gnostic-models, openapiv2/OpenAPIv2.proto
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from moorage.apiserver.schema.protobuf_wire import delimited as _message
from moorage.apiserver.schema.protobuf_wire import text as _text

__all__ = ["SWAGGER_PROTOBUF", "SWAGGER_SENT", "swagger_protobuf"]

#: The media type that clients request, and the one in responses; the first is not a valid media type.
SWAGGER_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
SWAGGER_SENT: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_METHODS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def swagger_protobuf(document: Mapping[str, Any]) -> bytes:
    """Return an OpenAPI version 2 document as protobuf."""
    info = _join(_text(1, document["info"]["title"]), _text(2, document["info"]["version"]))
    paths = (_message(2, _named(path, _path_item(item))) for path, item in document["paths"].items())
    definitions = (_message(1, _named(name, _schema(schema))) for name, schema in document["definitions"].items())
    return _join(_text(1, document["swagger"]), _message(2, info), _message(8, _join(*paths)), _message(9, _join(*definitions)))


def _join(*parts: bytes) -> bytes:
    return b"".join(parts)


def _named(name: str, body: bytes) -> bytes:
    return _text(1, name) + _message(2, body)


def _any(value: Any) -> bytes:
    return _message(2, msgspec.json.encode(value))


def _extensions(field: int, described: Mapping[str, Any]) -> Iterable[bytes]:
    return (_message(field, _named(name, _any(value))) for name, value in described.items() if name.startswith("x-"))


# -- paths -------------------------------------------------------------------------------------------------------------


def _path_item(item: Mapping[str, Any]) -> bytes:
    return _join(*(_message(_METHODS[method], _operation(operation)) for method, operation in item.items()))


def _operation(operation: Mapping[str, Any]) -> bytes:
    answers = (
        _message(1, _named(code, _message(1, _text(1, answer["description"]))))
        for code, answer in operation["responses"].items()
    )
    return _join(
        _text(5, operation["operationId"]),
        *(_message(8, _parameter(parameter)) for parameter in operation.get("parameters", ())),
        _message(9, _join(*answers)),
        *_extensions(13, operation),
    )


def _parameter(parameter: Mapping[str, Any]) -> bytes:
    """Return a query parameter, wrapped in the messages of its alternatives."""
    query = _join(_text(2, "query"), _text(4, parameter["name"]), _text(6, parameter["type"]))
    return _message(1, _message(2, _message(3, query)))


# -- schemas -----------------------------------------------------------------------------------------------------------


def _schema(schema: Mapping[str, Any]) -> bytes:
    parts = [_text(field, schema[name]) for name, field in (("$ref", 1), ("format", 2), ("description", 4)) if name in schema]
    if "default" in schema:
        parts.append(_message(5, _any(schema["default"])))
    parts += [_text(19, name) for name in schema.get("required", ())]
    if "additionalProperties" in schema:
        parts.append(_message(21, _message(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_message(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_message(23, _message(1, _schema(schema["items"]))))
    parts += [_message(24, _schema(one)) for one in schema.get("allOf", ())]
    if "properties" in schema:
        named = (_message(1, _named(name, _schema(inner))) for name, inner in schema["properties"].items())
        parts.append(_message(25, _join(*named)))
    return _join(*parts, *_extensions(31, schema))
