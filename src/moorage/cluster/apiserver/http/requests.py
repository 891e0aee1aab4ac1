"""Handle API requests: verbs, query parameters, bodies, and the representation of the response.

This module is independent of the HTTP library: requests and responses are values, and responses contain JSON.

Source  apiserver, pkg/endpoints/handlers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from moorage.api.cel.values import RightsDecision
from moorage.api.documents import statuses
from moorage.api.documents.http_messages import AUTHENTICATED, HTTPRequest, Response, User
from moorage.api.documents.records import Record, timestamp
from moorage.api.documents.request_targets import ReviewTarget, Target
from moorage.api.documents.resource_versions import parse_version_of_one
from moorage.api.documents.served_kinds import MEASURED, Document, Review, ServedKind
from moorage.api.fields.managed_fields import FieldManager, manager_of, track
from moorage.api.schema.protobuf import PROTOBUF
from moorage.api.schema.schemas import kind_schema
from moorage.cluster.apiserver.access.access_reviews import answer
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer
from moorage.cluster.apiserver.access.request_attributes import attributes_of
from moorage.cluster.apiserver.access.service_account_tokens import DEFAULT_LIFE_S, account_groups
from moorage.cluster.apiserver.access.write_rights import write_check
from moorage.cluster.apiserver.http import write_requests
from moorage.cluster.apiserver.http.lists import check_list, metadata_list, object_list, table_list
from moorage.cluster.apiserver.http.scale_requests import answer_scale
from moorage.cluster.apiserver.http.streams import STREAMS, connect
from moorage.cluster.apiserver.http.write_requests import drop_repeated_owners
from moorage.cluster.apiserver.schema import request_bodies
from moorage.cluster.apiserver.schema.representations import META as _META
from moorage.cluster.apiserver.schema.representations import accepted, form_of, metadata_of
from moorage.cluster.apiserver.tables.tables import included, table
from moorage.cluster.apiserver.tables.usage_metrics import measure, measure_all
from moorage.rules.store.deletion import DeleteOptions, options_of
from moorage.rules.store.list_selection import Selection, selection
from moorage.rules.store.object_reader import ListPage
from moorage.rules.store.policy_requests import (
    asking_for,
    of_a_collection,
    request_for,
    requested_by,
    unjudged,
    written,
)
from moorage.rules.store.store import Store
from moorage.rules.store.subresources import bind, evict


def check_may_create(store: Store, authorizer: Authorizer, request: HTTPRequest, target: Target | ReviewTarget) -> None:
    """Check that a user who replaces or applies an object that does not exist may create it.

    Raises  ApiError 403
    """
    if isinstance(target, ReviewTarget) or target.kind in MEASURED or not target.name or target.subresource:
        return
    makes = request.method == "PUT" or (request.method == "PATCH" and request.media_type == request_bodies.APPLY)
    if makes and store.find(target.kind, target.namespace or "", target.name) is None:
        authorizer.check(request.user, attributes_of("POST", target, {}))


def serve(
    store: Store, guard: Authenticator, authorizer: Authorizer, request: HTTPRequest, target: Target | ReviewTarget
) -> Response:
    """Handle a request that is not a watch.

    Raises  ApiError for a rejected request
    """
    part = target.subresource if isinstance(target, Target) and target.subresource == "approval" else ""
    decide = partial(_decide, authorizer, request.user)
    annotations: dict[str, str] | None = None
    if request.audit is not None:
        request.audit.annotations = annotations = {}  # another attempt annotates the request again
        if request.method == "PATCH":
            write_requests.note_patch(request)
    with requested_by(
        request.user, _options_of(request), subresource=part, decide=decide, annotations=annotations
    ) as warnings:  # fmt: skip
        if warning := deprecation_warning(target):
            warnings.append(warning)
        try:
            response = _serve(store, guard, authorizer, request, target)
        except statuses.ApiError as error:
            error.warnings = (*warnings, *error.warnings)
            raise
    return replace(response, warnings=(*warnings, *response.warnings)) if warnings else response


def _options_of(request: HTTPRequest) -> Document:
    """Return the parameters of a write as its options."""
    query = request.query
    options: Document = {"dryRun": [query["dryRun"]]} if query.get("dryRun") else {}
    for name in ("fieldManager", "fieldValidation"):
        if query.get(name):
            options[name] = query[name]
    if request.method == "PATCH" and "force" in query and request.media_type == request_bodies.APPLY:
        options["force"] = request.flag("force")
    return options


def _decide(authorizer: Authorizer, user: User, other: str | None, parts: Mapping[str, str]) -> RightsDecision:
    """Return whether the user of a request, or another one, may do something."""
    if other is not None:
        user = User(other, (*account_groups(other), AUTHENTICATED))
    attributes = Attributes(parts["verb"], **{name: parts[name] for name in Attributes._fields[1:] if name in parts})
    verdict = authorizer.judge(user, attributes)
    return RightsDecision(verdict.allowed, verdict.reason)


def deprecation_warning(target: Target | ReviewTarget) -> str:
    """Return the warning about a deprecated kind, or ""."""
    if not isinstance(target, Target):
        return ""
    if target.kind.custom is not None:
        return target.kind.custom.warning
    return _ENDPOINTS_WARNING if target.kind.native == "Endpoints" else ""


_ENDPOINTS_WARNING: Final = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"


def _serve(
    store: Store, guard: Authenticator, authorizer: Authorizer, request: HTTPRequest, target: Target | ReviewTarget
) -> Response:
    if isinstance(target, Target) and target.subresource in STREAMS:
        return connect(store, authorizer, request, target)
    accepted(request.accept)
    if isinstance(target, ReviewTarget):
        return _review_or_bind(store, guard, authorizer, request, target)
    if target.subresource == "token":
        return _token(store, guard, request, target)
    if target.subresource == "approval":
        target = target._replace(subresource="status")
    if target.subresource not in {"", "ephemeralcontainers", "finalize", "resize", "status"}:
        return _subresource(store, request, target)
    if target.subresource == "finalize" and request.method != "PUT":
        raise statuses.not_allowed()
    if "create" not in target.kind.verbs and request.method not in {"GET", "HEAD"}:
        raise statuses.not_allowed()
    if request.method == "POST" and target.kind.custom is not None:
        target = target._replace(name="")  # the name in the path is ignored
    if not target.name:
        return _collection(store, authorizer, request, target)
    if request.method in {"PATCH", "PUT"}:
        return _write(store, authorizer, request, target)
    verb = _VERBS.get(request.method)
    if verb is None or (target.subresource and request.method == "DELETE"):
        raise statuses.not_allowed()
    return verb(store, request, target)


def _review_or_bind(
    store: Store, guard: Authenticator, authorizer: Authorizer, request: HTTPRequest, target: ReviewTarget
) -> Response:
    if request.method != "POST":
        raise statuses.not_allowed()
    if (form := form_of(request.accept)) == "PartialObjectMetadataList":
        go = f"{target.review.group.partition('.')[0] or 'core'}.{target.review.kind}"
        raise statuses.not_acceptable_form(form, f"not a list (*{go})")
    review = target.review
    if review.kind == "Binding":
        return _bind(store, request, target.namespace or "", "", review)
    write_requests.check_options(request, "CreateOptions")
    sent, warnings = _body_as(request, review.group, review.version, review.kind, target.namespace)
    if review.kind != "SelfSubjectReview":
        _track_review(store, request, review, sent)
    with write_requests.with_warnings(warnings):
        answered = answer(review, sent, request.user, guard, authorizer, target.namespace or "")
    if review.kind == "SelfSubjectReview":
        answered["metadata"] = {"creationTimestamp": timestamp(store.clock())}
    return _json_response(answered, 201, warnings)


def _json_response(document: Document, code: int = 200, warnings: tuple[str, ...] = ()) -> Response:
    return Response(code, msgspec.json.encode(document), warnings)


def _body_as(
    request: HTTPRequest, group: str, version: str, kind: str, namespace: str | None, others: tuple[str, ...] = ()
) -> tuple[Document, tuple[str, ...]]:  # fmt: skip
    """Return the object in a request's body, of a kind that is not stored, and warnings. ``others`` are API versions in which
    the body may also be.

    Raises  ApiError 400 if the body is not such an object, or its namespace differs from the path's
    """
    shape = kind_schema(Review(group, kind, "", version=version))
    form = request_bodies.BodyForm(group, version, kind, shape, others=others)
    sent, warnings = write_requests.sent_object(request, form)
    metadata = sent.setdefault("metadata", {})
    if request.audit is not None:
        request.audit.sent(sent, form.api_version, kind)
    metadata.pop("selfLink", None)
    if namespace is None:
        metadata.pop("namespace", None)
    warnings = (*warnings, *drop_repeated_owners(sent))
    with write_requests.with_warnings(warnings):
        request_bodies.check_namespace(metadata, namespace)
    return sent, warnings


# -- single objects ----------------------------------------------------------------------------------------------------


def _check_representation(request: HTTPRequest, kind: ServedKind, *, many: bool) -> None:
    """Check that the response can have the representation that the client accepts. Writes check it before they change
    anything.

    Raises  ApiError 406; 400 for a table with an unknown ``includeObject``
    """
    form, encoding, _ = accepted(request.accept)
    if kind.custom is not None and encoding == PROTOBUF and not form:
        raise statuses.not_acceptable(["application/json", "application/yaml"])
    if form == "Table":
        _included(request)
    if many and form == "PartialObjectMetadata":
        raise statuses.not_acceptable_form(form, f"a list (*{kind.go}List)")
    if not many and form == "PartialObjectMetadataList":
        raise statuses.not_acceptable_form(form, f"not a list (*{kind.go})")


def _response(store: Store, request: HTTPRequest, kind: ServedKind, record: Record, code: int = 200) -> Response:
    _check_representation(request, kind, many=False)
    form = form_of(request.accept)
    if form == "PartialObjectMetadata":
        return Response(code, metadata_of(record))
    if form != "Table":
        return Response(code, record.body)
    shown = table(kind, [record.document()], store.clock(), _included(request))
    shown["metadata"] = _versioned(record.version)
    return _json_response(shown, code)


def _get(store: Store, request: HTTPRequest, target: Target) -> Response:
    find = measure if target.kind in MEASURED else Store.get
    wanted = parse_version_of_one(request.query.get("resourceVersion", ""))
    if wanted > store.version:
        raise statuses.timeout(wanted, store.version)
    return _response(store, request, target.kind, find(store, target.kind, target.namespace or "", target.name))


_WRITERS: Final = {"PATCH": write_requests.patch, "POST": write_requests.create, "PUT": write_requests.replace}


def _write(store: Store, authorizer: Authorizer, request: HTTPRequest, target: Target) -> Response:
    """Create or change an object, if its writer may make the resulting change."""
    _check_representation(request, target.kind, many=False)
    confirm = write_check(authorizer, request.user, request.method, target)
    written = _WRITERS[request.method](store, request, target, confirm)
    shown = _response(store, request, target.kind, written.record, 201 if written.is_new else 200)
    return replace(shown, warnings=written.warnings)


#: Kinds for which a deletion returns the deleted object; for others it returns a Status.
_RETURNED_ON_DELETE: Final = frozenset(
    ["CSIDriver", "CSINode", "DeviceClass", "PersistentVolume", "PersistentVolumeClaim", "Pod", "PodTemplate", "ResourceClaim",
     "ResourceClaimTemplate", "ResourceQuota", "ResourceSlice", "Service", "ServiceAccount", "StorageClass", "VolumeAttachment",
     "VolumeAttributesClass"]
)  # fmt: skip


def _delete(store: Store, request: HTTPRequest, target: Target) -> Response:
    kind = target.kind
    options = _delete_options(request)
    _check_answer_to_deletion(store, request, target, options)
    warnings = _orphan_warnings(kind, options)
    with write_requests.with_warnings(warnings), asking_for(options.sent):
        deleted = store.delete(kind, target.namespace or "", target.name, _with_defaults(store, kind, options))
    if not deleted.gone or kind.native in _RETURNED_ON_DELETE:
        code = 202 if not deleted.gone and options.is_cascading else 200
        shown = _response(store, request, kind, deleted.record, code)
        return replace(shown, warnings=warnings)
    uid = deleted.record.document()["metadata"]["uid"]
    return _json_response(statuses.success(kind.group, kind.resource, target.name, uid), 200, warnings)


def _check_answer_to_deletion(store: Store, request: HTTPRequest, target: Target, options: DeleteOptions) -> None:
    """Check the representation of the object that a deletion returns, unless it returns a Status.

    Raises  ApiError 406 and 400, and those of ``Store.delete``
    """
    kind = target.kind
    try:
        _check_representation(request, kind, many=False)
    except statuses.ApiError:
        options = _with_defaults(store, kind, options)
        with unjudged():
            tried = store.delete(kind, target.namespace or "", target.name, options, dry_run=True)
        if not tried.gone or kind.native in _RETURNED_ON_DELETE:
            raise


def _orphan_warnings(kind: ServedKind, options: DeleteOptions) -> tuple[str, ...]:
    return (_ORPHAN_WARNING,) if kind.native == "Job" and not options.propagation else ()


_ORPHAN_WARNING: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def _with_defaults(store: Store, kind: ServedKind, options: DeleteOptions) -> DeleteOptions:
    """Default the propagation of the oldest kinds to Orphan, if a garbage collector runs that can orphan dependents."""
    if options.propagation or store.empties_namespaces or kind.native not in {"Job", "ReplicationController"}:
        return options
    return options._replace(propagation="Orphan", is_default=True)


#: The version in which kube-apiserver's audit log shows the options of a deletion.
_INTERNAL: Final = "meta.k8s.io/__internal"


def _delete_options(request: HTTPRequest) -> DeleteOptions:
    """Return the deletion options of the body or, without one, of the parameters."""
    if request.body:
        media_type = "application/json" if request.media_type == "application/octet-stream" else request.media_type
        sent = request_bodies.read_body(request.body, media_type, request_bodies.OBJECT_TYPES).document or {}
        if request.audit is not None:
            request.audit.sent(sent, _INTERNAL, "DeleteOptions")
        return options_of(sent)
    query = request.query
    asked: Document = {name: query[name] for name in ("propagationPolicy",) if name in query}
    if "gracePeriodSeconds" in query:
        asked["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    if "orphanDependents" in query:
        asked["orphanDependents"] = request.flag("orphanDependents")
    if query.get("dryRun"):
        asked["dryRun"] = [query["dryRun"]]
    asked["preconditions"] = {name: query[name] for name in ("uid", "resourceVersion") if query.get(name)}
    return options_of(asked)


_VERBS: Final[Mapping[str, Callable[[Store, HTTPRequest, Target], Response]]] = {
    "GET": _get, "HEAD": _get, "DELETE": _delete,
}  # fmt: skip


# -- collections -------------------------------------------------------------------------------------------------------


def _collection(store: Store, authorizer: Authorizer, request: HTTPRequest, target: Target) -> Response:
    match request.method:
        case "GET" | "HEAD":
            check_list(request, is_watch=False)
            return _list_response(store, request, target.kind, _page(store, request, target))
        case "POST" if target.namespace is not None:
            return _write(store, authorizer, request, target)
        case "DELETE" if target.namespace is not None:
            kind = target.kind
            check_list(request, is_watch=request.flag("watch"))
            _check_representation(request, kind, many=True)
            page = _page(store, request, target)
            options = _delete_options(request)
            _delete_each(store, kind, page.records, options)
            return replace(_list_response(store, request, kind, page), warnings=_orphan_warnings(kind, options))
        case _:
            raise statuses.not_allowed()


def _delete_each(store: Store, kind: ServedKind, records: Iterable[Record], options: DeleteOptions) -> None:
    """Delete the objects of a list. Those that are gone meanwhile, or are of another object with the name, are passed over."""
    options = _with_defaults(store, kind, options)
    with of_a_collection(), asking_for(options.sent):
        for record in records:
            if (held := store.find(kind, record.namespace, record.name)) is None:
                continue
            if held.version != record.version and held.document()["metadata"]["uid"] != record.document()["metadata"]["uid"]:
                continue
            try:
                store.delete(kind, record.namespace, record.name, options)
            except statuses.ApiError as error:
                if error.code != 404:  # it was deleted meanwhile
                    raise


def selection_of(request: HTTPRequest, target: Target) -> Selection:
    """Return the selection of a request's path and parameters."""
    query = request.query
    namespace = target.namespace if target.kind.namespaced else None
    fields = query.get("fieldSelector", "")
    if target.name:
        fields = ",".join(filter(None, [f"metadata.name={target.name}", fields]))
    return selection(target.kind, namespace, query.get("labelSelector", ""), fields)


def _included(request: HTTPRequest) -> str:
    return included(request.query.get("includeObject", ""))


def _list_response(store: Store, request: HTTPRequest, kind: ServedKind, page: ListPage) -> Response:
    """Return a list in the representation that the client accepts."""
    _check_representation(request, kind, many=True)
    metadata = _versioned(page.version)
    if page.token:
        metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    match form_of(request.accept):
        case "PartialObjectMetadataList":
            return Response(200, metadata_list(_META, metadata, page.records))
        case "Table":
            return Response(200, table_list(kind, metadata, page.records, store.clock(), _included(request)))
        case _ if kind.custom is not None:
            return Response(200, object_list(kind, {"continue": "", **metadata}, page.records))
        case _:
            return Response(200, object_list(kind, metadata, page.records))


def _page(store: Store, request: HTTPRequest, target: Target) -> ListPage:
    query, chosen = request.query, selection_of(request, target)
    if target.kind in MEASURED:
        return ListPage(measure_all(store, target.kind, chosen), 0)
    version, match = (query.get(name, "") for name in ("resourceVersion", "resourceVersionMatch"))
    limit, token = request.number("limit"), query.get("continue", "")
    return store.page(target.kind, chosen, limit=limit, token=token, version=version, match=match)


def _versioned(version: int) -> Document:
    """Return a version as metadata; measured kinds have none."""
    return {"resourceVersion": str(version)} if version else {}


# -- subresources ------------------------------------------------------------------------------------------------------


def _subresource(store: Store, request: HTTPRequest, target: Target) -> Response:
    namespace = target.namespace or ""
    match target.subresource, request.method:
        case "scale", "GET" | "PUT" | "PATCH":
            return answer_scale(store, request, target)
        case "binding", "POST":
            return _bind(store, request, namespace, target.name, target.kind)
        case "eviction", "POST":
            sent, warnings = _body_as(request, "policy", "v1", "Eviction", namespace, ("policy/v1beta1",))
            with write_requests.with_warnings(warnings):
                evict(store, namespace, target.name, sent, dry_run=request.dry_run)
            return _json_response(statuses.success(code=201), 201, warnings)
        case _:
            raise statuses.not_allowed()


_TOKEN_REQUEST: Final = Review("authentication.k8s.io", "TokenRequest", "", version="v1")


def _track_review(store: Store, request: HTTPRequest, review: Review, sent: Document, subresource: str = "") -> None:
    """Record in an object that is answered but never stored which fields its client sent."""
    name = manager_of(request.query.get("fieldManager", ""), request.user_agent)
    writer = FieldManager(name, version=f"{review.group}/{review.version}", subresource=subresource)
    track(kind_schema(review), None, sent, writer, timestamp(store.clock()))


def _token(store: Store, guard: Authenticator, request: HTTPRequest, target: Target) -> Response:
    """Issue a service account token. Nothing is stored, so a dry run returns a valid token, too."""
    namespace = target.namespace or ""
    if request.method != "POST" or guard.accounts is None:
        raise statuses.not_allowed()
    write_requests.check_options(request, "CreateOptions")
    sent, warnings = _body_as(request, "authentication.k8s.io", "v1", "TokenRequest", target.namespace)
    spec = sent.get("spec")
    if isinstance(spec, dict) and spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = DEFAULT_LIFE_S
    _track_review(store, request, _TOKEN_REQUEST, sent, "token")
    with write_requests.with_warnings(warnings):
        asked = request_for(target.kind, None, sent, "token", name=target.name, namespace=namespace, dry_run=request.dry_run)
        if store.policies.mutate_request(asked):
            written(asked.object or {}, sent)

        def check(wanted: Document) -> None:
            store.policies.check_request(asked._replace(object={**(asked.object or {}), **wanted}))

        return _json_response(guard.accounts.issue(namespace, target.name, sent, check), 201, warnings)


def _bind(store: Store, request: HTTPRequest, namespace: str, name: str, resource: ServedKind | Review) -> Response:
    """Bind a pod, named by the path or by the binding. ``resource``: the one in the path."""
    write_requests.check_options(request, "CreateOptions")
    sent, warnings = _body_as(request, "", "v1", "Binding", namespace)
    own_name = str((sent.get("metadata") or {}).get("name") or "")
    with write_requests.with_warnings(warnings):
        if not name and not own_name:
            raise statuses.bad_request("Name parameter required.")
        bind(store, namespace, name or own_name, sent, dry_run=request.dry_run, resource=resource)
    return _json_response(statuses.success(code=201), 201, warnings)
