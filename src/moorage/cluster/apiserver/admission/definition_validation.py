"""Validation of CustomResourceDefinitions.

Faults of a schema, of subresources or of columns that all versions share have a path below ``spec``, as in kube-apiserver.

Source  apiextensions-apiserver, pkg/apis/apiextensions/validation/validation.go; pkg/apis/apiextensions/v1/conversion.go
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from moorage.api.names import check_dns1035_label, check_dns1123_subdomain
from moorage.api.validation.faults import duplicate, forbidden, invalid, required, too_many, unsupported
from moorage.cluster.apiserver.admission.custom_resource_rules import rule_faults, unsupported_rules
from moorage.cluster.apiserver.admission.schema_validation import SchemaCheck
from moorage.cluster.apiserver.admission.string_formats import is_recognized
from moorage.cluster.apiserver.admission.structural_schemas import MAX_SCHEMA_DEPTH, open_schema_faults, structural_faults
from moorage.cluster.apiserver.schema.custom_kinds import condition_of, drop_unknown_fields
from moorage.cluster.apiserver.vocabulary.served_kinds import Document, Schema
from moorage.errors import Fault

Faults = Iterator[Fault]
_APPROVED: Final = "api-approved.kubernetes.io"
_SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE: Final = 8
_MAX_WARNING: Final = 256


def prepare_definition(old: Document | None, new: Document) -> None:
    """Set the part of a definition's status that follows from its spec, in place."""
    if old is None:
        new["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []}
    status = new.get("status")
    spec = new.get("spec")
    versions = spec.get("versions") if isinstance(spec, dict) else None
    stored = next((one["name"] for one in versions or () if one.get("storage")), None)
    if isinstance(status, dict) and stored is not None and stored not in (status.get("storedVersions") or ()):
        status["storedVersions"] = [*(status.get("storedVersions") or ()), stored]


def new_definition_faults(definition: Document) -> Faults:
    """Yield the faults of a new definition."""
    spec, name = definition.get("spec") or {}, definition["metadata"]["name"]
    names = spec.get("names") or {}
    if name != f"{names.get('plural', '')}.{spec.get('group', '')}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from definition_faults(None, definition)


def definition_faults(old: Document | None, new: Document) -> Faults:
    """Yield the faults of a definition, new or changed."""
    spec: Document = new.get("spec") or {}
    yield from _spec_faults(spec, _schemas(old or {}))
    if old is not None:
        yield from _change_faults(old, spec)
    yield from definition_status_faults(new)
    yield from _stored_version_faults(new)
    yield from _approval_faults(old, new)
    if spec.get("preserveUnknownFields") and not (old and old["spec"].get("preserveUnknownFields")):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid("spec.preserveUnknownFields", True, why)


def definition_status_faults(definition: Document) -> Faults:
    """Yield the faults of a definition's status."""
    names = (definition.get("status") or {}).get("acceptedNames") or {}
    yield from _name_faults(names, "status.acceptedNames")


# -- spec --------------------------------------------------------------------------------------------------------------


def _schemas(definition: Document) -> Mapping[str, Schema]:
    """Return the schemas of the versions of a definition, by name."""
    versions = (definition.get("spec") or {}).get("versions") or ()
    return {one.get("name", ""): (one.get("schema") or {}).get("openAPIV3Schema") or {} for one in versions}


def _spec_faults(spec: Document, stored: Mapping[str, Schema]) -> Faults:
    group, scope, versions = spec.get("group", ""), spec.get("scope", ""), spec.get("versions") or []
    if not group:
        yield required("spec.group")
    elif why := check_dns1123_subdomain(group):
        yield invalid("spec.group", group, ",".join(why))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    if not scope:
        yield required("spec.scope")
    elif scope not in {"Cluster", "Namespaced"}:
        yield unsupported("spec.scope", scope, ("Cluster", "Namespaced"))
    for i, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"spec.versions[{i}].schema.openAPIV3Schema")
    yield from _version_faults(versions, stored)
    names = spec.get("names") or {}
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            yield required(f"spec.names.{name}")
    yield from _name_faults(names, "spec.names")
    yield from _conversion_faults(spec.get("conversion") or {})


def _version_faults(versions: Sequence[Document], stored: Mapping[str, Schema]) -> Faults:
    """Yield the faults of all versions. Parts that are equal in all versions are examined once.

    ``stored``: the schemas before the change, by version.
    """
    shared = {name for name in _SHARED if all(one.get(name) == versions[0].get(name) for one in versions)}
    for i, version in enumerate(versions):
        path = f"spec.versions[{i}]"
        if why := check_dns1035_label(version.get("name", "")):
            yield invalid(f"{path}.name", version.get("name", ""), ",".join(why))
        yield from _warning_faults(version, f"{path}.deprecationWarning")
        yield from _part_faults(version, path, set(_SHARED) - shared, stored)
    counts = [one.get("name") for one in versions]
    if len(set(counts)) < len(counts):
        yield invalid("spec.versions", versions, "must contain unique version names")
    if sum(bool(one.get("storage")) for one in versions) != 1:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    if versions:
        yield from _part_faults(versions[0], "spec", shared, stored)


def _part_faults(version: Document, path: str, parts: set[str], stored: Mapping[str, Schema]) -> Faults:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    subresources = version.get("subresources") or {}
    if "schema" in parts and schema:
        where = f"{path}.{'validation' if path == 'spec' else 'schema'}.openAPIV3Schema"
        is_stored = schema == stored.get(version.get("name", ""))
        yield from _schema_faults(schema, where, has_status="status" in subresources, is_stored=is_stored)
    if "subresources" in parts and subresources.get("scale") is not None:
        yield from _scale_faults(subresources["scale"], f"{path}.subresources.scale")
    if "additionalPrinterColumns" in parts:
        for i, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column_faults(column, f"{path}.additionalPrinterColumns[{i}]")
    if "selectableFields" in parts and schema:
        yield from _selectable_faults(version.get("selectableFields") or (), schema, f"{path}.selectableFields")


def _warning_faults(version: Document, path: str) -> Faults:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    if not version.get("deprecated"):
        yield invalid(path, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > _MAX_WARNING:
        yield invalid(path, warning, f"must be <= {_MAX_WARNING} characters long")
    if not warning:
        yield invalid(path, warning, "must not be an empty string")
    at = next((i for i, letter in enumerate(warning) if not letter.isprintable()), -1)
    if at >= 0:
        why = f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
        yield invalid(path, warning, why)


def definition_warnings(definition: Document) -> Iterator[str]:
    """Yield the warnings about the schemas of a valid new definition."""
    for version in definition["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        waiting = [schema]
        while waiting:
            one = waiting.pop()
            if one.get("format") and not is_recognized(one.get("type", ""), one["format"]):
                yield f'unrecognized format "{one["format"]}"'
            waiting += _inner(one)
        yield from unsupported_rules(schema)


# -- names -------------------------------------------------------------------------------------------------------------


def _name_faults(names: Document, path: str) -> Faults:
    for name in ("plural", "singular"):
        if (text := names.get(name)) and (why := check_dns1035_label(text)):
            yield invalid(f"{path}.{name}", text, ",".join(why))
    for name in ("kind", "listKind"):
        if (text := names.get(name)) and (why := check_dns1035_label(text.lower())):
            mixed = "may have mixed case, but should otherwise match: "
            yield invalid(f"{path}.{name}", text, mixed + ",".join(why))
    yield from _label_faults(names.get("shortNames") or (), f"{path}.shortNames")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
    yield from _label_faults(names.get("categories") or (), f"{path}.categories")


def _label_faults(texts: Sequence[str], path: str) -> Faults:
    for i, text in enumerate(texts):
        if why := check_dns1035_label(text):
            yield invalid(f"{path}[{i}]", text, ",".join(why))


# -- schemas -----------------------------------------------------------------------------------------------------------

_AT_ROOT: Final = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength",
    "MinLength", "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties",
    "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations",
)  # fmt: skip
_NAMES_AT_ROOT: Final = {name[0].lower() + name[1:] for name in _AT_ROOT} | {
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
}  # fmt: skip


def _schema_faults(schema: Schema, path: str, *, has_status: bool, is_stored: bool) -> Faults:
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        yield forbidden(path, f"schemas are nested deeper than {MAX_SCHEMA_DEPTH} levels")
        return
    found = [*_root_faults(schema, path, has_status=has_status)]
    structure = [*structural_faults(schema, path)]
    found += structure
    if not structure:
        found += _default_faults(schema, path, is_root=True)
    found += open_schema_faults(schema, path)
    yield from found
    if not found:
        yield from rule_faults(schema, path, is_stored=is_stored)


def _depth(schema: Schema) -> int:
    """Return how deep schemas are nested, but at most one more than the limit. This needs no recursion."""
    level: list[Any] = [schema]
    depth = 0
    while level and depth <= MAX_SCHEMA_DEPTH:
        depth += 1
        level = [inner for one in level for inner in _inner(one)]
    return depth


def _inner(schema: Schema) -> Iterator[Schema]:
    for name in ("properties", "patternProperties", "definitions", "dependencies"):
        yield from (one for one in schema.get(name, {}).values() if isinstance(one, Mapping))
    for name in ("items", "additionalProperties", "additionalItems", "not"):
        if isinstance(one := schema.get(name), Mapping):
            yield one
    for name in ("allOf", "anyOf", "oneOf", "items"):
        listed = schema.get(name)
        yield from (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, Mapping))


def _root_faults(schema: Schema, path: str, *, has_status: bool) -> Faults:
    if has_status:
        if schema.get("type") != "object":
            why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield invalid(f"{path}.type", schema.get("type", ""), why)
        elif any(name not in _NAMES_AT_ROOT and value for name, value in schema.items()):
            allowed = " ".join(_AT_ROOT)
            why = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
            yield invalid(path, schema, why)
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _default_faults(schema: Schema, path: str, *, is_root: bool = False) -> Faults:
    """Yield the faults of the defaults in a structural schema."""
    default = schema.get("default")
    if default is not None and not is_root:
        pruned = {"default": copy.deepcopy(default)}
        drop_unknown_fields({"type": "object", "properties": {"default": {**schema, "nullable": True}}}, pruned)
        if pruned["default"] != default:
            yield invalid(f"{path}.default", default, "must not have unknown fields")
        yield from SchemaCheck().faults(schema, default, f"{path}.default")
    if isinstance(items := schema.get("items"), Mapping):
        yield from _default_faults(items, f"{path}.items")
    for name, inner in schema.get("properties", {}).items():
        yield from _default_faults(inner, f"{path}.properties[{name}]")


# -- subresources, columns and fields ----------------------------------------------------------------------------------


def _scale_faults(scale: Document, path: str) -> Faults:
    places = (("specReplicasPath", ".spec.", "should be a json path under .spec"),
              ("statusReplicasPath", ".status.", "should be a json path under .status"))  # fmt: skip
    for name, start, why in places:
        text = scale.get(name, "")
        if not text:
            yield required(f"{path}.{name}")
        elif not text.startswith("."):
            yield invalid(f"{path}.{name}", text, "must be a simple json path starting with .")
        elif not text.startswith(start):
            yield invalid(f"{path}.{name}", text, why)
    text = scale.get("labelSelectorPath") or ""
    if text and not text.startswith("."):
        yield invalid(f"{path}.labelSelectorPath", text, "must be a simple json path starting with .")
    elif text and not text.startswith((".spec.", ".status.")):
        yield invalid(f"{path}.labelSelectorPath", text, "should be a json path under either .spec or .status")


def _column_faults(column: Document, path: str) -> Faults:
    kind, form, where = column.get("type", ""), column.get("format", ""), column.get("jsonPath", "")
    if not column.get("name"):
        yield required(f"{path}.name")
    if not kind:
        yield required(f"{path}.type", f"must be one of {','.join(sorted(_COLUMN_TYPES))}")
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", kind, f"must be one of {','.join(sorted(_COLUMN_TYPES))}")
    if form and form not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not where:
        yield required(f"{path}.JSONPath")
    elif not where.startswith("."):
        yield invalid(f"{path}.JSONPath", where, "must be a simple json path starting with .")


def _selectable_faults(fields: Sequence[Document], schema: Schema, path: str) -> Faults:
    seen: set[str] = set()
    for i, field in enumerate(fields):
        where, text = f"{path}[{i}].jsonPath", field.get("jsonPath", "")
        if not text:
            yield required(where)
            continue
        found, why = _schema_at(schema, text)
        if found is None:
            yield invalid(where, text, f"is an invalid path: {why}")
            continue
        if text.startswith(".metadata"):
            yield invalid(where, text, "must not point to fields in metadata")
        if found.get("type") not in {"boolean", "integer", "string"}:
            allowed = "must point to a field of type string, boolean or integer. "
            yield invalid(where, text, allowed + "Enum string fields and strings with formats are allowed.")
        if text in seen:
            yield duplicate(where, text)
        seen.add(text)
    if len(seen) > _MAX_SELECTABLE:
        yield too_many(path, len(seen), _MAX_SELECTABLE)


def _schema_at(schema: Schema, path: str) -> tuple[Schema | None, str]:
    """Return the schema at a path such as ``.spec.color``, or None and why there is none."""
    if "[" in path:
        return None, "array notation is not allowed"
    if not path.startswith("."):
        return None, f"expected [ or . but got: {path.partition('.')[0]}"
    current: Schema = schema
    for name in path[1:].split("."):
        if not name:
            return None, "unexpected end of JSON path"
        additional = current.get("additionalProperties")
        found = current["properties"].get(name) if current.get("properties") else additional
        if not isinstance(found, Mapping):
            return None, "does not refer to a valid field"
        current = found
    return current, ""


# -- conversion, changes and approval ----------------------------------------------------------------------------------


def _conversion_faults(conversion: Document) -> Faults:
    strategy, path = conversion.get("strategy", ""), "spec.conversion"
    if not strategy:
        yield required(f"{path}.strategy")
    elif strategy == "Webhook":
        yield forbidden(f"{path}.strategy", "this server calls no conversion webhooks; only None is supported")
    elif strategy != "None":
        yield unsupported(f"{path}.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook") or {}
    for name, shown in (("clientConfig", "webhookClientConfig"), ("conversionReviewVersions", "conversionReviewVersions")):
        if strategy != "Webhook" and webhook.get(name):
            yield forbidden(f"{path}.{shown}", "should not be set when strategy is not set to Webhook")


def _change_faults(old: Document, spec: Document) -> Faults:
    """Yield changes to immutable fields of a definition."""
    before, fixed = old["spec"], [("group",), ("names", "plural")]
    if (condition_of(old, "Established") or {}).get("status") == "True":
        fixed = [("scope",), ("names", "kind"), *fixed]
    for place in fixed:
        held, given = _at(before, place), _at(spec, place)
        if held != given:
            yield invalid(f"spec.{'.'.join(place)}", given, "field is immutable")


def _at(spec: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        spec = (spec or {}).get(name, "")
    return spec


def _stored_version_faults(definition: Document) -> Faults:
    path, stored = "status.storedVersions", (definition.get("status") or {}).get("storedVersions") or []
    if not stored:
        yield invalid(path, stored, "must have at least one stored version")
        return
    versions = [one.get("name") for one in (definition.get("spec") or {}).get("versions") or ()]
    for i, name in enumerate(stored):
        if name not in versions:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until "
                f"a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            )
            yield invalid(f"{path}[{i}]", name, why)


def _approval_faults(old: Document | None, new: Document) -> Faults:
    """Yield the fault of a definition in a group of the Kubernetes project without an approval."""
    state, why = approval_of(new)
    if old is not None and approval_of(old)[0] == state:
        return
    path = f"metadata.annotations[{_APPROVED}]"
    if state == "missing":
        yield required(path, why)
    elif state == "invalid":
        yield invalid(path, (new["metadata"].get("annotations") or {}).get(_APPROVED), why)


def approval_of(definition: Document) -> tuple[str, str]:
    """Return the state of the approval that a group of the Kubernetes project needs, and why; "" for other groups."""
    if not re.fullmatch(r"(?:.*\.)?(?:k8s|kubernetes)\.io", (definition.get("spec") or {}).get("group", "")):
        return "", ""
    text = (definition["metadata"].get("annotations") or {}).get(_APPROVED, "")
    more = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not text:
        return "missing", f'protected groups must have approval annotation "{_APPROVED}", {more}'
    if text.startswith("unapproved"):
        return "bypassed", f"not approved: {json.dumps(text, ensure_ascii=False)}"
    try:
        url = urlsplit(text)
    except ValueError:
        url = urlsplit("")
    if url.scheme and url.netloc:
        return "approved", f"approved in {text}"
    either = 'with either a URL or a reason starting with "unapproved"'
    return "invalid", f'protected groups must have approval annotation "{_APPROVED}" {either}, {more}'
