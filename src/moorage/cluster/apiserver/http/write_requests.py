"""Create, replace, patch and apply requests, with their parameters.

Source  apiserver, pkg/endpoints/handlers: create.go, update.go, patch.go; apimachinery, pkg/apis/meta/v1/validation
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.documents import statuses
from moorage.api.documents.http_messages import HTTPRequest
from moorage.api.documents.records import Confirm, Record, timestamp
from moorage.api.documents.request_targets import Target
from moorage.api.documents.resource_versions import check_sent_version
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import ApiError, bad_request, go_word, invalid
from moorage.api.fields import managed_fields
from moorage.api.fields.field_merge import type_faults
from moorage.api.fields.managed_fields import FieldManager, manager_of
from moorage.api.fields.patches import json_patch, merge_patch
from moorage.api.fields.strategic_merge import strategic_merge
from moorage.api.reading.manifests import read_first_yaml
from moorage.api.schema.normalization import FieldTypeError
from moorage.api.schema.schemas import kind_schema
from moorage.cluster.apiserver.schema import request_bodies
from moorage.errors import Fault, InputError
from moorage.rules.admission.object_warnings import object_warnings
from moorage.rules.admission.strategy import set_defaults_and_decode
from moorage.rules.admission.update_validation import needs_version, unversioned
from moorage.rules.store.store import Store

# Drop repeated owner references of written objects, with a warning.
#
# Source  apiserver, pkg/endpoints/handlers/rest.go, dedupOwnerReferences


def drop_repeated_owners(document: Document, *, is_patch: bool = False) -> tuple[str, ...]:
    """Drop the owner references that occur again, in place. Return the warning about them."""
    kept: dict[bytes, Any] = {}
    repeated = []
    for owner in document["metadata"].get("ownerReferences") or ():
        key = msgspec.json.encode(owner, order="deterministic")
        if key in kept:
            repeated.append(str(owner.get("uid") or ""))
        kept.setdefault(key, owner)
    if not repeated:
        return ()
    document["metadata"]["ownerReferences"] = [*kept.values()]
    when = " after mutating admission happens" if is_patch else ""
    why = (
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may "
        f"reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {', '.join(repeated)}"
    )
    return (why,)


class WriteResult(NamedTuple):
    record: Record
    is_new: bool = False
    warnings: tuple[str, ...] = ()


# -- parameters --------------------------------------------------------------------------------------------------------

_MAX_MANAGER: Final = 128


def check_options(request: HTTPRequest, kind: str) -> None:
    """Validate the parameters of a write. ``kind`` is their name in the API, such as ``CreateOptions``.

    Raises  ApiError 422 with all faults
    """
    if faults := list(_option_faults(request, kind)):
        raise invalid(kind, "meta.k8s.io", "", faults)


def _option_faults(request: HTTPRequest, kind: str) -> Iterator[Fault]:
    query = request.query
    name = query.get("fieldManager", "")
    if kind == "PatchOptions":
        if request.media_type == request_bodies.APPLY:
            if not name:
                yield Fault("Required value", "fieldManager", "is required for apply patch")
        elif "force" in query:
            yield Fault("Forbidden", "force", "may not be specified for non-apply patch")
    if len(name.encode()) > _MAX_MANAGER:
        yield Fault("Too long", "fieldManager", f"may not be more than {_MAX_MANAGER} bytes")
    for at, letter in enumerate(name):
        if not letter.isprintable():
            yield Fault("Invalid value", "fieldManager", f"invalid character U+{ord(letter):04X} (at position {at})", name)
    if query.get("dryRun", "") not in {"", "All"}:
        yield Fault("Unsupported value", "dryRun", 'supported values: "All"', [query["dryRun"]])
    if query.get("fieldValidation", "") not in {"", "Ignore", "Warn", "Strict"}:
        supported = 'supported values: "", "Ignore", "Strict", "Warn"'
        yield Fault("Unsupported value", "fieldValidation", supported, query["fieldValidation"])


def manager(request: HTTPRequest, kind: ServedKind, subresource: str = "") -> FieldManager:
    """Return the field manager of a write."""
    name = manager_of(request.query.get("fieldManager", ""), request.user_agent)
    return FieldManager(name, version=kind.api_version, subresource=subresource)


# -- create and replace ------------------------------------------------------------------------------------------------


def create(store: Store, request: HTTPRequest, target: Target, confirm: Confirm | None) -> WriteResult:
    """Create an object.

    Raises  ApiError 400 for an invalid body, 404, 409, 422 and others of ``Store.create`` and ``confirm``
    """
    check_options(request, "CreateOptions")
    document, warnings = _read_object(request, target)
    try:
        with with_warnings(warnings):
            record = _created(store, request, target, document, confirm)
    except ApiError as error:
        if error.reason == "AlreadyExists":  # found after the object was checked
            error.warnings = (*warnings, *object_warnings(target.kind, None, document))
        raise
    if not request.dry_run:
        store.raw_fields.created(target.kind.native, record, request.media_type, request.body)
    return WriteResult(record, True, (*warnings, *object_warnings(target.kind, None, record.document())))


def _created(store: Store, request: HTTPRequest, target: Target, document: Document, confirm: Confirm | None) -> Record:
    """Create an object in the name of its writer; an applied one already has a manager."""
    writer = None if request.media_type == request_bodies.APPLY else manager(request, target.kind)
    namespace = target.namespace or ""
    return store.create(target.kind, namespace, document, dry_run=request.dry_run, manager=writer, confirm=confirm)


def _change_warnings(target: Target, old: Document | None, record: Record) -> tuple[str, ...]:
    """Return the warnings about the new version of an object; a subresource has none."""
    return () if target.subresource else object_warnings(target.kind, old, record.document())


@contextmanager
def with_warnings(warnings: tuple[str, ...]) -> Iterator[None]:
    """Add the warnings about a body to an error that is raised."""
    try:
        yield
    except ApiError as error:
        error.warnings = warnings
        raise


#: Kinds for which PUT creates the object if it does not exist.
_CREATED_BY_PUT: Final = frozenset([
    "ClusterRole", "ClusterRoleBinding", "Endpoints", "Event", "Lease", "LimitRange", "Role", "RoleBinding", "RuntimeClass",
    "Service",
])  # fmt: skip


def replace(store: Store, request: HTTPRequest, target: Target, confirm: Confirm | None) -> WriteResult:
    """Replace an object.

    Raises  ApiError 400 for an invalid body, 404, 409, 422, and what ``confirm`` raises
    """
    kind, place = target.kind, (target.namespace or "", target.name)
    check_options(request, "UpdateOptions")
    document, warnings = _read_object(request, target)
    with with_warnings(warnings):
        may_create = kind.native in _CREATED_BY_PUT and not target.subresource
        if may_create and not document["metadata"].get("resourceVersion") and store.find(kind, *place) is None:
            if uid := document["metadata"].get("uid"):
                key = "/".join(filter(None, ("/registry", kind.resource, target.namespace, target.name)))
                why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                why = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
                raise statuses.conflict(kind.resource, kind.group, target.name, why)
            return WriteResult(_created(store, request, target, document, confirm), True, warnings)
        held = store.find(kind, *place)
        if held is not None:
            _check_raw_fields(store, request, target, document, held)
        record = _updated(store, request, target, document, confirm)
    old = held.document() if held is not None else None
    return WriteResult(record, False, (*warnings, *_change_warnings(target, old, record)))


def _check_raw_fields(store: Store, request: HTTPRequest, target: Target, document: Document, held: Record) -> None:
    """Check that an update of the newest version has the same bytes in a raw field that is immutable.

    Raises  ApiError 422
    """
    kind, is_newest = target.kind, document["metadata"].get("resourceVersion") in {None, "", str(held.version)}
    if target.subresource or not is_newest:
        return
    if (fault := store.raw_fields.fault(kind.native, held, request.media_type, request.body)) is not None:
        raise invalid(kind.kind, kind.group, target.name, [fault])


def _updated(store: Store, request: HTTPRequest, target: Target, document: Document, confirm: Confirm | None) -> Record:
    """Update an object in the name of its writer; an applied one already has a manager."""
    kind, part = target.kind, target.subresource
    writer = None if request.media_type == request_bodies.APPLY else manager(request, kind, part)
    return store.update(
        kind, target.namespace or "", target.name, document, subresource=part, dry_run=request.dry_run, manager=writer,
        confirm=confirm,
    )  # fmt: skip


def sent_object(request: HTTPRequest, form: request_bodies.BodyForm) -> tuple[Document, tuple[str, ...]]:
    """Return the object in the body of a request, normalized to its form, and warnings.

    Raises  ApiError 400, 413 and 415 for a body that cannot be read or is of another kind
    """
    types, is_strict = request_bodies.OBJECT_TYPES, request.looks_closely
    body = request_bodies.read_body(request.body, request.media_type, types, kind=form.kind, strict=is_strict)
    request_bodies.check_custom_head(form, body.document, request.body)
    return request_bodies.normalized_body(form, body, request.validation)


def _read_object(request: HTTPRequest, target: Target) -> tuple[Document, tuple[str, ...]]:
    kind = target.kind
    document, warnings = sent_object(request, request_bodies.form_of_kind(kind))
    if request.audit is not None:
        request.audit.sent(document, kind.api_version, kind.kind, partial(set_defaults_and_decode, kind, sent=True))
    with with_warnings(warnings):
        document = request_bodies.object_of(target.kind, document, target.namespace, target.name)
    return document, (*warnings, *drop_repeated_owners(document))


def note_patch(request: HTTPRequest) -> None:
    """Note a patch for the audit log, as JSON."""
    if request.audit is None or not request.audit.keeps_request:
        return
    with suppress(InputError, ApiError, msgspec.DecodeError):
        if request.media_type == request_bodies.APPLY:
            request.audit.request = msgspec.json.encode(read_first_yaml(request.body, "patch"))
        else:
            msgspec.json.decode(request.body)
            request.audit.request = request.body


# -- patches -----------------------------------------------------------------------------------------------------------

#: Prefixes of the errors about a patch.
_PREFIXES: Final = dict.fromkeys(request_bodies.PATCH_TYPES[:2], "error decoding patch: ")
#: Fields of a JSON patch operation that Go decodes as strings.
_STRING_FIELDS: Final = ("op", "path", "from")


class _Patch(NamedTuple):
    """A decoded patch with its duplicate fields and warnings."""

    wanted: Any
    repeats: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def patched(request: HTTPRequest, form: request_bodies.BodyForm, document: Document) -> tuple[Document, tuple[str, ...]]:
    """Apply the patch in a request (any but server-side apply) to a document; return the new document and warnings.

    Raises  ApiError 400, 413, 422 and 500 for patches that are invalid or cannot be applied
    """
    sent, name = _read_patch(request), document["metadata"]["name"]
    if request.media_type == request_bodies.PATCH_TYPES[0]:
        made = json_patch(document, sent.wanted or [])
    elif request.media_type == request_bodies.PATCH_TYPES[1]:
        made = merge_patch(document, sent.wanted)
    else:
        made = strategic_merge(form.shape, document, sent.wanted or {})
    return _normalized_patch(request, form, made, sent, name)


def _read_patch(request: HTTPRequest) -> _Patch:
    head = _PREFIXES.get(request.media_type, "")
    try:
        body = request_bodies.read_patch(request.body, strict=request.looks_closely)
    except ApiError as error:
        raise _decoding_error(error, head) from None
    wanted = body.document
    if request.media_type == request_bodies.PATCH_TYPES[0]:
        return _Patch(wanted, (), _read_operations(wanted))
    if wanted is None and request.media_type == request_bodies.PATCH_TYPES[1]:
        raise bad_request("Invalid JSON Patch")
    if wanted is not None and not isinstance(wanted, dict):
        raise bad_request(f"{head}json: cannot unmarshal {go_word(wanted)} into Go value of type map[string]interface {{}}")
    return _Patch(wanted, body.repeats)


def _read_operations(wanted: Any) -> tuple[str, ...]:
    """Return warnings about unknown fields of operations.

    Raises  ApiError 400 if they are not operations
    """
    head = _PREFIXES[request_bodies.PATCH_TYPES[0]]
    if wanted is not None and not isinstance(wanted, list):
        raise bad_request(f"{head}json: cannot unmarshal {go_word(wanted)} into Go value of type []handlers.jsonPatchOp")
    warnings: list[str] = []
    for i, operation in enumerate(wanted or ()):
        if not isinstance(operation, dict):
            raise bad_request(f"{head}json: cannot unmarshal {go_word(operation)} into Go value of type handlers.jsonPatchOp")
        for name, value in operation.items():
            if name in _STRING_FIELDS and value is not None and not isinstance(value, str):
                field = f"Go struct field jsonPatchOp.{name} of type string"
                raise bad_request(f"{head}json: cannot unmarshal {go_word(value)} into {field}")
            if name not in (*_STRING_FIELDS, "value"):
                warnings.append(f'json patch unknown field "[{i}].{name}"')
    return tuple(warnings)


def patch(store: Store, request: HTTPRequest, target: Target, confirm: Confirm | None) -> WriteResult:
    """Patch an object; an apply may create it.

    Raises  ApiError 400 and 422 for a patch that is invalid or cannot be applied, 404, 409, 415, and what ``confirm`` raises
    """
    kind, namespace = target.kind, target.namespace or ""
    if request.media_type in request_bodies.PATCH_TYPES:
        check_options(request, "PatchOptions")
    if request.media_type == request_bodies.APPLY:
        return _apply(store, request, target, confirm)
    held = store.get(kind, namespace, target.name)
    before = held.document()
    document, warnings = patched(request, request_bodies.form_of_kind(kind), before)
    with with_warnings(warnings):
        document = request_bodies.object_of(kind, document, target.namespace, target.name)
        check_identity(kind, before, document)
    warnings = (*warnings, *drop_repeated_owners(document, is_patch=True))
    with with_warnings(warnings):
        _check_raw_fields(store, request, target, document, held)
        record = _updated(store, request, target, document, confirm)
    return WriteResult(record, False, (*warnings, *_change_warnings(target, before, record)))


def check_identity(kind: ServedKind, before: Document, after: Document) -> None:
    """Check that a patch does not change the uid.

    Raises  ApiError 422 with the fault twice, as two checks of kube-apiserver report it
    """
    uid = after["metadata"].get("uid")
    if uid and uid != before["metadata"]["uid"]:
        fault = Fault("Invalid value", "metadata.uid", "field is immutable", uid)
        raise invalid(kind.kind, kind.group, before["metadata"]["name"], [fault, fault])


def _normalized_patch(
    request: HTTPRequest, form: request_bodies.BodyForm, made: Any, sent: _Patch, name: str
) -> tuple[Document, tuple[str, ...]]:
    """Return the patched document, of the object with this name, normalized to its form, and warnings."""
    is_strategic = request.media_type == request_bodies.PATCH_TYPES[2]
    shown = statuses.go_value(sent.wanted) if is_strategic else msgspec.json.encode(made).decode()
    if not isinstance(made, dict):
        raise bad_request(f"json: cannot unmarshal {go_word(made)} into Go value of type v1.{form.kind}")
    if not is_strategic and (why := request_bodies.kind_mismatch(form, made)):
        raise _bad_patch(shown, why)
    if not is_strategic:
        _check_patched_head(request, form, made, shown, name)
    try:
        document, unknown_fields = request_bodies.fit(form, made, wraps=is_strategic)
    except FieldTypeError as misfit:
        raise _bad_patch(shown, misfit.converted if is_strategic else str(misfit)) from None
    if request.media_type != request_bodies.PATCH_TYPES[0]:
        unknown_fields = sorted(unknown_fields)  # Go's maps are unordered and encoded by name
    found = (*sent.repeats, *(f'unknown field "{path}"' for path in unknown_fields))
    if request.validation == "Strict" and (strange := (*sent.warnings, *found)):
        raise _bad_patch(shown, f"strict decoding error: {', '.join(strange)}")
    return document, (*sent.warnings, *found) if request.looks_closely else ()


def _check_patched_head(request: HTTPRequest, form: request_bodies.BodyForm, made: Document, shown: str, name: str) -> None:
    """Check that a patched object states its API version and, for a custom kind, its kind.

    Without a version, kube-apiserver reads an object of a built-in kind in its internal form, in which no field is known.

    Raises  ApiError 400, 422 and 500
    """
    if form.custom is not None and not made.get("kind"):
        raise _bad_patch(shown, f"Object 'Kind' is missing in '{shown}'")
    if made.get("apiVersion"):
        return
    if form.custom is not None:
        raise ApiError(500, "InternalError", f"Internal error occurred: {_NO_VERSION}")
    lost = tuple(f'unknown field "{name}"' for name in sorted(made) if name not in {"apiVersion", "kind"})
    if request.validation == "Strict" and lost:
        raise _bad_patch(shown, f"strict decoding error: {', '.join(lost)}")
    with with_warnings(lost if request.looks_closely else ()):
        request_bodies.check_name({}, name)


_NO_VERSION: Final = "Object 'apiVersion' is missing in 'object has no apiVersion field'"


def _bad_patch(shown: str, why: str) -> ApiError:
    return invalid("", "", "", [Fault("Invalid value", "patch", why, shown)])


# -- apply -------------------------------------------------------------------------------------------------------------


def _apply(store: Store, request: HTTPRequest, target: Target, confirm: Confirm | None) -> WriteResult:
    """Apply a configuration (server-side apply)."""
    kind, namespace = target.kind, target.namespace or ""
    held = store.find(kind, namespace, target.name)
    if held is None and target.subresource:
        raise statuses.not_found(kind.resource, kind.group, target.name)
    config, warnings = configuration(request, request_bodies.form_of_kind(kind))
    document = _merge_configuration(store, request, target, held, config)
    warnings = (*warnings, *drop_repeated_owners(document, is_patch=True))
    if held is not None:
        if config["metadata"].get("resourceVersion") == "0" and needs_version(kind):
            raise unversioned(kind, target.name)
        _check_raw_fields(store, request, target, document, held)
        record = _updated(store, request, target, document, confirm)
        return WriteResult(record, False, (*warnings, *_change_warnings(target, held.document(), record)))
    check_sent_version(str(document["metadata"].pop("resourceVersion", None) or ""))
    if uid := document["metadata"].get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise statuses.conflict(kind.resource, kind.group, target.name, why)
    made = _created(store, request, target, document, confirm)
    return WriteResult(made, True, (*warnings, *object_warnings(kind, None, made.document())))


def configuration(request: HTTPRequest, form: request_bodies.BodyForm) -> tuple[Document, tuple[str, ...]]:
    """Return the configuration of a form in an apply request, and warnings.

    Raises  ApiError 400 for a configuration of another kind, or with duplicate fields if validation is strict; 500 for one
            with values of the wrong type
    """
    body = _read_configuration(request)
    config = _checked_configuration(form, body.document)
    _, faults = statuses.bounded(type_faults(form.shape, config))
    if faults:
        metadata = config["metadata"]
        subject = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {form.group}/{form.version}, Kind={form.kind}"
        why = faults[0] if len(faults) == 1 else "errors:\n" + "\n".join(f"  {fault}" for fault in faults)
        raise statuses.unknown(f"failed to create typed patch object ({subject}): {why}")
    if body.repeats and request.validation == "Strict":
        lines = "\n".join(f"  {line}" for line in body.repeats)
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n{lines}")
    return config, body.repeats


def _read_configuration(request: HTTPRequest) -> request_bodies.Body:
    try:
        return request_bodies.read_body(
            request.body, request_bodies.APPLY, request_bodies.PATCH_TYPES, strict=request.looks_closely
        )
    except ApiError as error:
        _, found, fault = error.message.partition("json parse error: json: ")
        if found:
            fault = f"{fault.partition(' of type struct')[0]} of type map[string]interface {{}}"
            raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: json: {fault}") from None
        raise _decoding_error(error, "error decoding YAML: error converting YAML to JSON: ") from None


def _decoding_error(error: ApiError, head: str) -> ApiError:
    """Return the error for a body that cannot be decoded; an error about its size is returned unchanged."""
    return error if error.code == 413 else bad_request(f"{head}{error.message}")


def _checked_configuration(form: request_bodies.BodyForm, config: Document) -> Document:
    if not isinstance(config.get("metadata", {}), dict):
        raise bad_request("error decoding YAML: the configuration's metadata is no object")
    version, name = str(config.get("apiVersion", "")), config.get("kind", "")
    if (version, name) != (form.api_version, form.kind):
        group, _, short = version.rpartition("/")
        raise bad_request(f"invalid object type: {group}/{short}, Kind={name}")
    config.setdefault("metadata", {})
    if config["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    return config


def _merge_configuration(store: Store, request: HTTPRequest, target: Target, held: Record | None, config: Document) -> Document:
    kind, namespace = target.kind, target.namespace or ""
    live = held.document() if held is not None else None
    applier = FieldManager(request.query["fieldManager"], applies=True, subresource=target.subresource)
    ignored, force = managed_fields.fields_not_written(kind, target.subresource), request.flag("force")
    shape, now = kind_schema(kind), timestamp(store.clock())
    made = managed_fields.apply(shape, live, config, applier, now, force=force, ignored=ignored)
    try:
        document, _ = request_bodies.fit(request_bodies.form_of_kind(kind), made, wraps=True)
    except FieldTypeError as misfit:
        what = f"{kind.group}/{kind.version}, Kind={kind.kind}"
        why = f"to proper version: unable to convert unstructured object to {what}: {misfit.converted}"
        raise statuses.unknown(f"failed to convert new object ({namespace}/{target.name}; {what}) {why}") from None
    document = request_bodies.object_of(kind, document, target.namespace, target.name)
    if live is not None:
        check_identity(kind, live, document)
    return document
