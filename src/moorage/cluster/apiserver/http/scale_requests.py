"""Requests for the ``scale`` of a workload or of a custom object: read, replace, patch and apply it.

A scale is a view of an object's replica count. Writing the scale writes that field of the object, with the same manager.

Source  kubernetes, pkg/registry/apps/deployment/storage/storage.go, scaleUpdatedObjectInfo; apimachinery,
        pkg/util/managedfields/scalehandler.go
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from moorage.api.documents.http_messages import HTTPRequest, Response
from moorage.api.documents.records import Confirm, Record
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import Document, Review, ServedKind
from moorage.api.documents.statuses import ApiError, conflict, not_acceptable_form
from moorage.api.fields import managed_fields
from moorage.api.fields.managed_fields import FieldManager
from moorage.api.schema.schemas import kind_schema
from moorage.cluster.apiserver.http.write_requests import (
    check_options,
    configuration,
    manager,
    patched,
    sent_object,
    with_warnings,
)
from moorage.cluster.apiserver.schema import request_bodies
from moorage.cluster.apiserver.schema.representations import META, form_of
from moorage.cluster.apiserver.tables.tables import included, scale_table
from moorage.rules.store.policy_requests import request_for, unjudged, written
from moorage.rules.store.store import Store
from moorage.rules.store.subresources import check_scale, read_scale, write_scale

_SHAPE: Final = kind_schema(Review("autoscaling", "Scale", "", version="v1"))
_FORM: Final = request_bodies.BodyForm("autoscaling", "v1", "Scale", _SHAPE)


def answer_scale(store: Store, request: HTTPRequest, target: Target) -> Response:
    """Handle a request for the scale of an object; return the scale, after a write the new one.

    Raises  ApiError 400 for an invalid body, 404, 409, 422 for an invalid scale
    """
    kind, namespace = target.kind, target.namespace or ""
    if request.method == "GET":
        return _response(store, request, read_scale(kind, store.get(kind, namespace, target.name).document()))
    check_options(request, "UpdateOptions" if request.method == "PUT" else "PatchOptions")
    _check_form(request)
    if request.media_type == request_bodies.APPLY and request.method == "PATCH":
        scaled, warnings = _applied(store, request, target)
    else:
        record, wanted, warnings = _wanted(store, request, target)
        with with_warnings(warnings):
            scaled = _written(store, request, target, record, wanted)
    return replace(_response(store, request, read_scale(kind, scaled.document())), warnings=warnings)


def _check_form(request: HTTPRequest) -> None:
    if form_of(request.accept) == "PartialObjectMetadataList":
        raise not_acceptable_form("PartialObjectMetadataList", "not a list (*autoscaling.Scale)")


def _response(store: Store, request: HTTPRequest, scale: Document) -> Response:
    _check_form(request)
    match form_of(request.accept):
        case "Table":
            shown = scale_table(scale, store.clock(), included(request.query.get("includeObject", "")))
        case "PartialObjectMetadata":
            shown = {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": scale["metadata"]}
        case _:
            shown = scale
    return Response(200, msgspec.json.encode(shown))


def _wanted(store: Store, request: HTTPRequest, target: Target) -> tuple[Record, Document, tuple[str, ...]]:
    """Return the object to scale, the scale that the client wants, and warnings."""
    kind, namespace = target.kind, target.namespace or ""
    if request.method == "PUT":
        wanted, warnings = sent_object(request, _FORM)
        if request.audit is not None:
            request.audit.sent(wanted, _FORM.api_version, _FORM.kind)
        record = None
    else:
        record = store.get(kind, namespace, target.name)
        wanted, warnings = patched(request, _FORM, read_scale(kind, record.document()))
    metadata = wanted.setdefault("metadata", {})
    with with_warnings(warnings):
        request_bodies.check_namespace(metadata, namespace)
        request_bodies.check_name(metadata, target.name)
        return record or store.get(kind, namespace, target.name), wanted, warnings


def _written(store: Store, request: HTTPRequest, target: Target, record: Record, wanted: Document) -> Record:
    kind, namespace, name = target.kind, target.namespace or "", target.name
    asked = request_for(
        kind, read_scale(kind, record.document()), wanted, "scale", name=name, namespace=namespace, dry_run=request.dry_run
    )
    if store.policies.mutate_request(asked):
        written(asked.object or {}, wanted)
    check_scale(wanted, name)
    sent, uid = wanted["metadata"].get("uid"), record.document()["metadata"]["uid"]
    if sent and sent != uid:
        why = f"Precondition failed: UID in precondition: {sent}, UID in object meta: {uid}"
        raise conflict(f"{kind.resource}/scale", kind.group, name, why)

    def edit(document: Document) -> None:
        document["metadata"]["resourceVersion"] = wanted["metadata"].get("resourceVersion") or str(record.version)
        write_scale(kind, document, wanted)

    with unjudged():  # policies are for the scale
        return store.change(
            kind, namespace, name, edit, dry_run=request.dry_run, manager=manager(request, kind, "scale"),
            confirm=_judged(store, request, target),
        )  # fmt: skip


def _judged(store: Store, request: HTTPRequest, target: Target) -> Confirm:
    """Return a function that checks the scale of a changed object against the policies."""

    def check(old: Document | None, new: Document) -> None:
        before, after = (None if one is None else read_scale(target.kind, one) for one in (old, new))
        store.policies.check_request(
            request_for(
                target.kind, before, after, "scale", name=target.name, namespace=target.namespace or "",
                dry_run=request.dry_run,
            )
        )  # fmt: skip

    return check


def _applied(store: Store, request: HTTPRequest, target: Target) -> tuple[Record, tuple[str, ...]]:
    """Apply a scale: the manager owns the replica count of the scaled object."""
    kind, namespace = target.kind, target.namespace or ""
    sent, warnings = configuration(request, _FORM)
    request_bodies.check_namespace(sent["metadata"], namespace)
    record = store.get(kind, namespace, target.name)
    applier = FieldManager(request.query["fieldManager"], applies=True, subresource="scale")
    shape, config, force = kind_schema(kind), _of_parent(kind, sent), request.flag("force")
    try:
        document = managed_fields.apply(shape, record.document(), config, applier, "", force=force)
    except ApiError as error:
        raise _as_of_scale(error, kind) from None
    wanted = {**read_scale(kind, record.document()), "spec": sent.get("spec") or {}}
    asked = request_for(
        kind, read_scale(kind, record.document()), wanted, "scale", name=target.name, namespace=namespace,
        dry_run=request.dry_run,
    )  # fmt: skip
    if store.policies.mutate_request(asked):
        written(asked.object or {}, wanted)
        write_scale(kind, document, wanted)
    check_scale(wanted, target.name)
    with unjudged():  # policies are for the scale
        made = store.update(
            kind, namespace, target.name, document, dry_run=request.dry_run, confirm=_judged(store, request, target)
        )
    return made, warnings


def _as_of_scale(error: ApiError, kind: ServedKind) -> ApiError:
    """Return a conflict in terms of the scale: the managers in it have the API version of scales."""
    for one in error.causes:
        if not one.message.endswith(f" using {kind.api_version}"):
            return error
    shown, wanted = f" using {kind.api_version}", f" using {_FORM.api_version}"
    causes = [replace(one, message=one.message.replace(shown, wanted)) for one in error.causes]
    return ApiError(error.code, error.reason, error.message.replace(shown, wanted), causes=causes)


def _of_parent(kind: ServedKind, scale: Document) -> Document:
    """Return the apply configuration of the scaled object that corresponds to an applied scale."""
    made: Document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
    if (scale.get("spec") or {}).get("replicas") is not None:
        write_scale(kind, made, scale)
    return made
