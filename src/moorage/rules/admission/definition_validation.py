"""Validation of CustomResourceDefinitions.

Faults of a schema, of subresources or of columns that all versions share have a path below ``spec``, as in kube-apiserver. The
rules about single fields stand in ``rules/definitions.toml``.

Source  apiextensions-apiserver, pkg/apis/apiextensions/validation/validation.go; pkg/apis/apiextensions/v1/conversion.go
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from moorage.api.documents.served_kinds import Document, Schema
from moorage.api.names import check_dns1035_label, check_dns1123_subdomain
from moorage.api.schema.custom_kinds import drop_unknown_fields, is_established
from moorage.api.validation.faults import Faults, duplicate, forbidden, invalid, required, too_many
from moorage.api.validation.rule_tables import Holders, check, field_of
from moorage.errors import Fault
from moorage.rules.admission.custom_resource_rules import rule_faults, unsupported_rules
from moorage.rules.admission.pod_checks import RULES
from moorage.rules.admission.schema_validation import SchemaCheck
from moorage.rules.admission.string_formats import is_recognized
from moorage.rules.admission.structural_schemas import MAX_SCHEMA_DEPTH, open_schema_faults, structural_faults

_APPROVED: Final = "api-approved.kubernetes.io"
_SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_MAX_SELECTABLE: Final = 8


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
        if is_established(old):
            yield from RULES.faults("EstablishedDefinitionChange", new, "", old)
        yield from RULES.faults("DefinitionChange", new, "", old)
    yield from definition_status_faults(new)
    yield from _stored_version_faults(new)
    yield from _approval_faults(old, new)
    if spec.get("preserveUnknownFields") and not (old and old["spec"].get("preserveUnknownFields")):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid("spec.preserveUnknownFields", True, why)


def definition_status_faults(definition: Document) -> Faults:
    """Yield the faults of a definition's status."""
    return RULES.faults("DefinitionNames", field_of(definition, "status.acceptedNames") or {}, "status.acceptedNames")


# -- spec --------------------------------------------------------------------------------------------------------------


def _schemas(definition: Document) -> Mapping[str, Schema]:
    """Return the schemas of the versions of a definition, by name."""
    versions = (definition.get("spec") or {}).get("versions") or ()
    return {one.get("name", ""): (one.get("schema") or {}).get("openAPIV3Schema") or {} for one in versions}


def _spec_faults(spec: Document, stored: Mapping[str, Schema]) -> Faults:
    yield from RULES.faults("DefinitionSpec", spec, "spec")
    yield from _version_faults(spec.get("versions") or [], stored)
    yield from RULES.faults("DefinitionSpecNames", spec, "spec")


@check("name of group")
def _group(path: str, group: str) -> Iterable[Fault]:
    why = check_dns1123_subdomain(group) or ([] if "." in group else ["should be a domain with at least one dot"])
    return (invalid(path, group, ",".join(why)),) if why else ()


def _version_faults(versions: Sequence[Document], stored: Mapping[str, Schema]) -> Faults:
    """Yield the faults of all versions. Parts that are equal in all versions are examined once.

    ``stored``: the schemas before the change, by version.
    """
    shared = {name for name in _SHARED if all(one.get(name) == versions[0].get(name) for one in versions)}
    for i, version in enumerate(versions):
        path = f"spec.versions[{i}]"
        yield from RULES.faults("DefinitionVersion", version, path)
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
        yield from RULES.faults("DefinitionScale", subresources["scale"], f"{path}.subresources.scale")
    if "additionalPrinterColumns" in parts:
        for i, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from RULES.faults("DefinitionColumn", column, f"{path}.additionalPrinterColumns[{i}]")
    if "selectableFields" in parts and schema:
        yield from _selectable_faults(version.get("selectableFields") or (), schema, f"{path}.selectableFields")


@check("printable")
def _printable(path: str, text: str) -> Iterable[Fault]:
    at = next((i for i, letter in enumerate(text) if not letter.isprintable()), -1)
    why = f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
    return (invalid(path, text, why),) if at >= 0 else ()


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


@check("dns1035 label")
def _label(path: str, text: str) -> Iterable[Fault]:
    why = check_dns1035_label(text)
    return (invalid(path, text, ",".join(why)),) if why else ()


@check("dns1035 label in any case")
def _mixed_label(path: str, text: str) -> Iterable[Fault]:
    why = "may have mixed case, but should otherwise match: "
    return (invalid(path, text, f"{why}{fault.detail}") for fault in _label(path, text.lower()))


@check("list kind", of_holder=True)
def _list_kind(path: str, list_kind: str | None, names: Document, *_: Any) -> Iterable[Fault]:
    is_same = list_kind and list_kind == names.get("kind")
    return (invalid(path, list_kind, "kind and listKind may not be the same"),) if is_same else ()


@check("review versions")
def _review_versions(path: str, versions: Sequence[str]) -> Iterable[Fault]:
    """Check the versions of ConversionReview that a webhook reads."""
    repeated = [i for i, one in enumerate(versions) if one in versions[:i]]
    yield from (invalid(f"{path}[{i}]", versions[i], "duplicate version") for i in repeated)
    for i, one in enumerate(versions):
        yield from _label(f"{path}[{i}]", one)
    if not {"v1", "v1beta1"} & {*versions}:
        yield invalid(path, versions, "must include at least one of v1, v1beta1")


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


# -- fields ------------------------------------------------------------------------------------------------------------


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


#: A step of a path: a quoted name in brackets, or a name after a point. Names may have escaped quotes.
_STEP: Final = re.compile(r"\['((?:[^'\\]|\\.)*)'\]|\.([^.\[\]]+)")


def _schema_at(schema: Schema, path: str, *, has_brackets: bool = False) -> tuple[Schema | None, str]:
    """Return the schema at a path such as ``.spec.color``, or None and why there is none. ``has_brackets``: ``['a']``, too."""
    if "[" in path and not has_brackets:
        return None, "array notation is not allowed"
    current, at = schema, 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            if path[at] not in ".[":
                found_text = re.split(r"[.\[]", path[at:])[0]
                return None, f"expected [ or . but got: {found_text}"
            return None, "unexpected end of JSON path"
        name, at = step[2] if step[1] is None else re.sub(r"\\(.)", r"\1", step[1]), step.end()
        additional = current.get("additionalProperties")
        found = current["properties"].get(name) if current.get("properties") else additional
        if not isinstance(found, Mapping):
            return None, "does not refer to a valid field"
        current = found
    return current, ""


@check("path in schema", of_holder=True)
def _path_in_schema(path: str, text: str | None, _: Document, up: Holders, *__: Any) -> Iterable[Fault]:
    """Yield the fault of the path of a rule that leads to no field of the schema that has the rule."""
    if not text or up is None or _schema_at(up[0], text, has_brackets=True)[0] is not None:
        return ()
    return (invalid(path, text, "must be a valid path"),)


# -- changes and approval ----------------------------------------------------------------------------------------------


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
