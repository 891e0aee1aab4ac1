"""The kinds that a CustomResourceDefinition defines: one for each of its versions.

Source  apiextensions-apiserver, pkg/apiserver/customresource_handler.go and pkg/apihelpers/helpers.go
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from moorage.api.documents import served_kinds
from moorage.api.documents.records import is_condition_true
from moorage.api.documents.served_kinds import CustomVersion, Document, Schema, ServedKind, version_priority
from moorage.api.documents.statuses import ApiError
from moorage.api.schema.normalization import MAX_UNKNOWN, FieldTypeError, Place, conform, path_of
from moorage.api.schema.schemas import schema

#: The finalizer that keeps a definition until its objects are deleted.
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
#: The bytes of JSON that the defaults of an object may have: those of a stored object.
MAX_DEFAULTS: Final = 3 << 19
#: The bytes around a field of an object: two quotes, a colon and a comma.
_SEPARATORS: Final = 4
#: What each map and list in a default counts more than its JSON: it is made and looked at.
_CONTAINER: Final = 16
_HTTPS: Final = 443
_AGE: Final = served_kinds.PrinterColumn("Age", "date", ".metadata.creationTimestamp")


def is_established(definition: Document) -> bool:
    """Return True if the definition's kinds are served."""
    return is_condition_true(definition.get("status") or {}, "Established")


def served_state(definition: Document) -> tuple[Any, ...]:
    """Return the fields of a definition that its kinds are made from. Equal values give equal kinds."""
    metadata, status = definition["metadata"], definition.get("status") or {}
    is_terminating = "deletionTimestamp" in metadata
    return metadata["uid"], definition["spec"], status.get("acceptedNames"), is_established(definition), is_terminating


def custom_kinds(definition: Document) -> tuple[ServedKind, ...]:
    """Return the kinds of a definition, the stored one first; none if it is not established."""
    if not is_established(definition):
        return ()
    versions = sorted(definition["spec"].get("versions") or (), key=lambda one: not one.get("storage"))
    if not versions:
        return ()
    stored = _kind(definition, versions[0], None)
    return (stored, *(_kind(definition, version, stored) for version in versions[1:]))


def _kind(definition: Document, version: Document, stored: ServedKind | None) -> ServedKind:
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    subresources = tuple(name for name in ("scale", "status") if name in (version.get("subresources") or {}))
    return ServedKind(
        spec["group"], names["kind"], names["plural"], tuple(names.get("shortNames") or ()),
        namespaced=spec["scope"] == "Namespaced", subresources=subresources, has_generation=True,
        fields=tuple((one["jsonPath"].removeprefix("."), "") for one in version.get("selectableFields") or ()),
        version=version["name"], custom=_custom_version(definition, version, None if stored is None else stored.custom),
        stored_as=stored,
    )  # fmt: skip


def _custom_version(definition: Document, version: Document, stored: CustomVersion | None) -> CustomVersion:
    names = definition["status"]["acceptedNames"]
    given = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    schema: Schema = copy.deepcopy(given)  # a copy, so that no later change of the document affects it
    return CustomVersion(
        schema=stored.schema if stored is not None and stored.schema == schema else schema,
        singular=names["singular"],
        list_kind=names["listKind"],
        categories=tuple(names.get("categories") or ()),
        columns=tuple(_columns(version)),
        scale=_scale(version),
        warning=_warning(definition["spec"], version),
        is_served=bool(version.get("served")),
        is_terminating="deletionTimestamp" in definition["metadata"],
        webhook=_webhook(definition["spec"].get("conversion") or {}),
    )


def _webhook(conversion: Document) -> served_kinds.ConversionWebhook | None:
    """Return the webhook that converts between the versions; None if only their apiVersion differs."""
    if conversion.get("strategy") != "Webhook":
        return None
    webhook = conversion.get("webhook") or {}
    config = webhook.get("clientConfig") or {}
    service, address = config.get("service"), ""
    if service is not None:
        host = f"{service.get('name', '')}.{service.get('namespace', '')}.svc"
        address = f"https://{host}:{service.get('port', _HTTPS)}/{(service.get('path') or '').lstrip('/')}"
    try:
        authority = base64.b64decode(config.get("caBundle") or "").decode().strip()
    except ValueError:
        authority = ""
    reviews = tuple(webhook.get("conversionReviewVersions") or ())
    return served_kinds.ConversionWebhook(config.get("url") or "", address, authority, reviews)


def _columns(version: Document) -> Iterator[served_kinds.PrinterColumn]:
    """Yield the columns of a version: its own ones, or the age."""
    columns = version.get("additionalPrinterColumns") or ()
    for one in columns:
        shown = one.get("format", ""), one.get("description", ""), one.get("priority", 0)
        yield served_kinds.PrinterColumn(one["name"], one["type"], one["jsonPath"], *shown)
    if not columns:
        yield _AGE


def _scale(version: Document) -> served_kinds.ScalePaths | None:
    found: Mapping[str, str] | None = (version.get("subresources") or {}).get("scale")
    if found is None:
        return None
    return served_kinds.ScalePaths(found["specReplicasPath"], found["statusReplicasPath"], found.get("labelSelectorPath") or "")


def _warning(spec: Document, version: Document) -> str:
    """Return the warning of a deprecated version, or ""."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    name, kind, group = version["name"], spec["names"]["kind"], spec["group"]
    current = [one["name"] for one in spec["versions"] if one.get("served") and not one.get("deprecated")]
    newest = min(current, key=version_priority, default=name)
    better = f"; use {group}/{newest} {kind}" if version_priority(newest) < version_priority(name) else ""
    return f"{group}/{name} {kind} is deprecated{better}"


# -- custom objects ----------------------------------------------------------------------------------------------------
# Objects of custom kinds: drop unknown fields, set defaults and coerce metadata, as the schema of their kind says.
#
# These functions may recurse, because limits of request bodies bound the nesting.
#
# Source  apiextensions-apiserver, pkg/apiserver/schema: pruning/algorithm.go, defaulting/algorithm.go and prunenulls.go,
#         objectmeta/algorithm.go

PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
_HEAD: Final = frozenset(["apiVersion", "kind", "metadata"])
_METADATA: Final = "meta.ObjectMeta"


def fit_custom(version_schema: Schema, document: Any) -> tuple[Document, list[str]]:
    """Return an object as its kind's schema reads it, and the paths of unknown fields.

    Raises  FieldTypeError for metadata of the wrong type
    """
    if not isinstance(document, dict):
        raise FieldTypeError("Object 'Kind' is missing")
    made = copy.deepcopy(document)
    unknown = _fit_metadata(made, None)
    unknown += sorted(drop_unknown_fields(version_schema, made))
    for place, resource in embedded_resources(version_schema, made):
        for name in ("apiVersion", "kind"):
            if name in resource and not isinstance(resource[name], str):
                raise FieldTypeError(f"{path_of((place, name))}: Invalid value: must be a string")
        unknown += _fit_metadata(resource, place)
    return made, unknown[:MAX_UNKNOWN]


def _fit_metadata(holder: Document, place: Place) -> list[str]:
    """Normalize the metadata of an object or of an embedded resource, in place; return the paths of unknown fields."""
    if "metadata" not in holder:
        return []
    fitted, unknown = conform(schema(_METADATA), {} if holder["metadata"] is None else holder["metadata"])
    holder["metadata"] = fitted
    base = path_of((place, "metadata"))
    return [f"{base}.{path}" for path in unknown]


def embedded_resources(root: Schema, document: Document) -> Iterator[tuple[Place, Document]]:
    """Yield the embedded resources of an object, with their places."""
    if _has_embedded(root):
        yield from _embedded(root, document, None)


def _has_embedded(node: Schema) -> bool:
    return bool(node.get(EMBEDDED)) or any(map(_has_embedded, inner_schemas(node)))


def inner_schemas(node: Schema) -> Iterator[Schema]:
    """Yield the schemas of the parts of a structural schema's values."""
    yield from node.get("properties", {}).values()
    for name in ("items", "additionalProperties"):
        if isinstance(inner := node.get(name), Mapping):
            yield inner


def _embedded(node: Schema, value: Any, place: Place) -> Iterator[tuple[Place, Document]]:
    if isinstance(value, dict):
        if node.get(EMBEDDED):
            yield place, value
        for name, inner in value.items():
            below = field_schema(node, name)
            if below is not None:
                yield from _embedded(below, inner, (place, name))
    elif isinstance(value, list) and isinstance(items := node.get("items"), Mapping):
        for i, inner in enumerate(value):
            yield from _embedded(items, inner, (place, i))


def field_schema(node: Schema, name: str) -> Schema | None:
    """Return the schema of a field of an object, or None if it has none."""
    found: Schema | None = node.get("properties", {}).get(name)
    if found is None and isinstance(additional := node.get("additionalProperties"), Mapping):
        return additional
    return found


# -- unknown fields ----------------------------------------------------------------------------------------------------


def drop_unknown_fields(root: Schema, document: Document) -> list[str]:
    """Drop fields that are not in an object's schema, and nulls that it does not allow, in place; return the dropped paths."""
    dropped: list[str] = []
    _drop_in_object(root, document, None, dropped, is_resource=True)
    _drop_nulls(root, document)
    return dropped


def _drop(node: Schema | None, value: Any, place: Place, dropped: list[str]) -> None:
    if isinstance(value, dict):
        _drop_in_object(node or {}, value, place, dropped, is_resource=bool(node and node.get(EMBEDDED)))
    elif isinstance(value, list):
        items = None if node is None else node.get("items")
        if items is not None or not (node and node.get(PRESERVES)):
            for i, inner in enumerate(value):
                _drop(items, inner, (place, i), dropped)


def _drop_in_object(node: Schema, value: Document, place: Place, dropped: list[str], *, is_resource: bool) -> None:
    for name in list(value):
        if is_resource and name in _HEAD:
            continue
        below = field_schema(node, name)
        if below is not None or node.get("additionalProperties") is not None:
            _drop(below, value[name], (place, name), dropped)
        elif not node.get(PRESERVES):
            if len(dropped) < MAX_UNKNOWN:
                dropped.append(path_of((place, name)))
            del value[name]


def _drop_nulls(node: Schema | None, value: Any) -> None:
    """Drop nulls of fields that are not nullable, unless a default replaces them."""
    if isinstance(value, dict):
        for name in list(value):
            below = None if node is None else field_schema(node, name)
            if value[name] is None and below is not None and not below.get("nullable") and below.get("default") is None:
                del value[name]
            else:
                _drop_nulls(below, value[name])
    elif isinstance(value, list):
        items = None if node is None else node.get("items")
        for inner in value:
            _drop_nulls(items, inner)


# -- defaults ----------------------------------------------------------------------------------------------------------


def apply_defaults(node: Schema, value: Any) -> None:
    """Set the defaults of a value's fields, in place.

    Raises  ApiError 413 if they have more bytes than a stored object may have
    """
    _Defaults().apply(node, value)


class _Defaults:
    """The defaults that one object gets, with a limit on their size: a small object may have many parts without a value."""

    def __init__(self) -> None:
        self._left = MAX_DEFAULTS
        #: by schema: the fields that have defaults, and the default as JSON
        self._fields: dict[int, list[tuple[str, Schema]]] = {}
        #: by schema: the default as JSON, and the bytes that a copy counts as
        self._texts: dict[int, tuple[bytes, int]] = {}

    def apply(self, node: Schema, value: Any) -> None:
        if isinstance(value, dict):
            for name, below in self._with_defaults(node):
                if name not in value or _is_forbidden_null(below, value[name]):
                    value[name] = self._copy(below, len(name))
            properties: Mapping[str, Schema] = node.get("properties", {})
            for name in value:
                inner = field_schema(node, name)
                if inner is not None:
                    if name not in properties and _is_forbidden_null(inner, value[name]):
                        value[name] = self._copy(inner)
                    self.apply(inner, value[name])
        elif isinstance(value, list) and isinstance(items := node.get("items"), Mapping):
            for i, one in enumerate(value):
                if _is_forbidden_null(items, one):
                    value[i] = self._copy(items)
                self.apply(items, value[i])

    def _with_defaults(self, node: Schema) -> list[tuple[str, Schema]]:
        found = self._fields.get(id(node))
        if found is None:
            properties: Mapping[str, Schema] = node.get("properties", {})
            found = [(name, below) for name, below in properties.items() if below.get("default") is not None]
            self._fields[id(node)] = found
        return found

    def _copy(self, node: Schema, name_bytes: int = 0) -> Any:
        default, known = node.get("default"), self._texts.get(id(node))
        if known is None:
            text = msgspec.json.encode(default)
            containers = text.count(b"{") + text.count(b"[")
            known = self._texts[id(node)] = text, len(text) + containers * _CONTAINER
        text, size = known
        self._left -= size + name_bytes + _SEPARATORS
        if self._left < 0:
            why = f"Request entity too large: the defaults of the object have more than {MAX_DEFAULTS} bytes"
            raise ApiError(413, "RequestEntityTooLarge", why)
        return msgspec.json.decode(text) if isinstance(default, dict | list) else default


def _is_forbidden_null(node: Schema, value: Any) -> bool:
    return value is None and not node.get("nullable")
