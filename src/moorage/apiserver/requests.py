"""From a request to the store and back: verbs, query parameters, bodies, and the form an answer takes.

Nothing here knows of sockets: a request is a value, and so is its response.

Source  apiserver, pkg/endpoints/handlers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from moorage.apiserver.bodies import JSON, OBJECT_TYPES, PATCH_TYPES, object_of, read_body
from moorage.apiserver.guarding import Guard, User
from moorage.apiserver.kinds import Kind
from moorage.apiserver.patches import json_patch, merge_patch
from moorage.apiserver.pods import bind, evict, options_of
from moorage.apiserver.records import Document, Record
from moorage.apiserver.reviews import answer
from moorage.apiserver.scaling import read_scale, write_scale
from moorage.apiserver.selecting import Selection, selection
from moorage.apiserver.statuses import bad_request, conflict, not_acceptable, not_allowed, success
from moorage.apiserver.store import Page, Store
from moorage.apiserver.strategic import strategic_merge
from moorage.apiserver.tables import table
from moorage.apiserver.targets import ReviewTarget, Target

__all__ = ["Request", "Response", "chosen_by", "serve", "wants_table"]


@dataclass(frozen=True, slots=True)
class Request:
    """``path`` is as it was sent, percent signs and all; ``media_type`` is that of the body."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    media_type: str
    body: bytes
    user: User

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false.

        Raises  ApiError 400 for neither
        """
        value = self.query.get(name, "")
        if value not in {"", "0", "1", "false", "true", "False", "True"}:
            raise bad_request(f"{name}: {value} is neither true nor false")
        return value in {"1", "true", "True"}

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number, 0 where it is not given.

        Raises  ApiError 400 for anything else
        """
        value = self.query.get(name, "")
        digits = value.removeprefix("-")
        if value and not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return int(value or 0)

    @property
    def dry_run(self) -> bool:
        value = self.query.get("dryRun", "")
        if value not in {"", "All"}:
            raise bad_request(f'dryRun: Unsupported value: "{value}": supported values: "All"')
        return value == "All"

    @property
    def strict(self) -> bool:
        value = self.query.get("fieldValidation", "")
        if value not in {"", "Ignore", "Warn", "Strict"}:
            names = '"Ignore", "Strict", "Warn"'
            raise bad_request(f'fieldValidation: Unsupported value: "{value}": supported values: {names}')
        return value == "Strict"


@dataclass(frozen=True, slots=True)
class Response:
    code: int
    body: bytes
    warnings: tuple[str, ...] = ()


def serve(store: Store, guard: Guard, request: Request, target: Target | ReviewTarget) -> Response:
    """Carry out a request that is not a watch.

    Raises  ApiError for everything that is refused
    """
    _check_accept(request.accept)
    if isinstance(target, ReviewTarget):
        if request.method != "POST":
            raise not_allowed(target.review.resource, target.review.group, request.method.lower())
        document = read_body(request.body, request.media_type, OBJECT_TYPES)
        return _encoded(answer(target.review, document if isinstance(document, dict) else {}, request.user, guard), 201)
    if target.subresource not in {"", "status", "finalize"}:
        return _subresource(store, request, target)
    if not target.name:
        return _collection(store, request, target)
    verb = _VERBS.get(request.method)
    if verb is None or (target.subresource and request.method == "DELETE"):
        raise not_allowed(target.kind.resource, target.kind.group, request.method.lower())
    return verb(store, request, target)


def _check_accept(accept: str) -> None:
    types = [part.partition(";")[0].strip() for part in accept.split(",")]
    if accept and not any(one in {"*/*", "application/*", JSON} for one in types):
        raise not_acceptable([JSON])


def _encoded(document: Document, code: int = 200) -> Response:
    return Response(code, msgspec.json.encode(document))


# -- one object ---------------------------------------------------------------------------------------------------------


def _shown(store: Store, request: Request, kind: Kind, record: Record, code: int = 200) -> Response:
    if not wants_table(request.accept):
        return Response(code, record.body)
    shown = table(kind, [record.document()], store.clock(), request.query.get("includeObject", "Metadata"))
    shown["metadata"] = {"resourceVersion": str(record.version)}
    return _encoded(shown, code)


def wants_table(accept: str) -> bool:
    """Return True for a client that would rather have a ``Table``."""
    first = accept.partition(",")[0]
    return "as=Table" in first and "g=meta.k8s.io" in first and ";v=v1" in first


def _get(store: Store, request: Request, target: Target) -> Response:
    return _shown(store, request, target.kind, store.get(target.kind, target.namespace or "", target.name))


def _put(store: Store, request: Request, target: Target) -> Response:
    kind = target.kind
    sent = read_body(request.body, request.media_type, OBJECT_TYPES, strict=request.strict)
    document = object_of(kind, sent, target.namespace, target.name)
    if target.subresource == "finalize":
        return Response(200, store.get(kind, "", target.name).body)
    record = store.update(
        kind, target.namespace or "", target.name, document, subresource=target.subresource, dry_run=request.dry_run
    )
    return _shown(store, request, kind, record)


_PATCHES: Final[Mapping[str, Callable[[Kind, Document, Any], Any]]] = {
    PATCH_TYPES[0]: lambda _, document, patch: json_patch(document, patch),
    PATCH_TYPES[1]: lambda _, document, patch: merge_patch(document, patch),
    PATCH_TYPES[2]: strategic_merge,
}


def _patch(store: Store, request: Request, target: Target) -> Response:
    kind = target.kind
    patch = read_body(request.body, request.media_type, PATCH_TYPES, strict=request.strict)
    if patch is None or (request.media_type != PATCH_TYPES[0] and not isinstance(patch, dict)):
        raise bad_request("the patch is empty or no object")
    held = store.get(kind, target.namespace or "", target.name)

    def edit(document: Document) -> Document:
        patched = _PATCHES[request.media_type](kind, document, patch)
        return object_of(kind, patched, target.namespace, target.name)

    record = store.change(
        kind, target.namespace or "", held.name, edit, subresource=target.subresource, dry_run=request.dry_run
    )
    return _shown(store, request, kind, record)


def _delete(store: Store, request: Request, target: Target) -> Response:
    kind = target.kind
    options = options_of(_delete_options(request))
    deleted = store.delete(kind, target.namespace or "", target.name, options, dry_run=request.dry_run)
    if not deleted.gone or kind.kind == "Pod":
        return _shown(store, request, kind, deleted.record, 200)
    uid = deleted.record.document()["metadata"]["uid"]
    return _encoded(success(kind.group, kind.resource, target.name, uid))


def _delete_options(request: Request) -> Any:
    options = read_body(request.body, request.media_type, OBJECT_TYPES) if request.body else {}
    if "gracePeriodSeconds" in request.query:
        options = {**(options or {}), "gracePeriodSeconds": request.number("gracePeriodSeconds")}
    if "propagationPolicy" in request.query:
        options = {**(options or {}), "propagationPolicy": request.query["propagationPolicy"]}
    return options


_VERBS: Final[Mapping[str, Callable[[Store, Request, Target], Response]]] = {
    "GET": _get, "HEAD": _get, "PUT": _put, "PATCH": _patch, "DELETE": _delete,
}  # fmt: skip


# -- many objects -------------------------------------------------------------------------------------------------------


def _collection(store: Store, request: Request, target: Target) -> Response:
    match request.method:
        case "GET" | "HEAD":
            return _list(store, request, target)
        case "POST" if target.namespace is not None:
            return _create(store, request, target)
        case "DELETE" if target.namespace is not None:
            return _delete_all(store, request, target)
        case _:
            raise not_allowed(target.kind.resource, target.kind.group, request.method.lower())


def chosen_by(request: Request, target: Target) -> Selection:
    """Return the selection that a request's parameters and path make."""
    query = request.query
    namespace = target.namespace if target.kind.namespaced else None
    fields = query.get("fieldSelector", "")
    if target.name:
        fields = ",".join(filter(None, [f"metadata.name={target.name}", fields]))
    return selection(target.kind, namespace, query.get("labelSelector", ""), fields)


def _list(store: Store, request: Request, target: Target) -> Response:
    query = request.query
    page = store.page(
        target.kind,
        chosen_by(request, target),
        limit=request.number("limit"),
        token=query.get("continue", ""),
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
    )
    if wants_table(request.accept):
        include = query.get("includeObject", "Metadata")
        shown = table(target.kind, [record.document() for record in page.records], store.clock(), include)
        return _encoded({**shown, "metadata": _list_metadata(page)})
    return Response(200, _list_body(target.kind, page))


def _list_metadata(page: Page) -> Document:
    metadata: Document = {"resourceVersion": str(page.version)}
    if page.token:
        metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def _list_body(kind: Kind, page: Page) -> bytes:
    """Return a list as JSON, made of its objects' bytes as they are kept."""
    head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": _list_metadata(page)}
    return b"".join([msgspec.json.encode(head)[:-1], b',"items":[', b",".join(_bodies(page.records)), b"]}"])


def _bodies(records: Iterable[Record]) -> Iterable[bytes]:
    return (record.body for record in records)


def _create(store: Store, request: Request, target: Target) -> Response:
    kind = target.kind
    sent = read_body(request.body, request.media_type, OBJECT_TYPES, strict=request.strict)
    document = object_of(kind, sent, target.namespace, "")
    record = store.create(kind, target.namespace or "", document, dry_run=request.dry_run)
    return _shown(store, request, kind, record, 201)


def _delete_all(store: Store, request: Request, target: Target) -> Response:
    kind = target.kind
    options = options_of(_delete_options(request))
    page = Page([*store.all(kind, chosen_by(request, target))], store.version)
    for record in page.records:
        if store.find(kind, record.namespace, record.name) is not None:
            store.delete(kind, record.namespace, record.name, options, dry_run=request.dry_run)
    return Response(200, _list_body(kind, page))


# -- subresources -------------------------------------------------------------------------------------------------------


def _subresource(store: Store, request: Request, target: Target) -> Response:
    kind, namespace = target.kind, target.namespace or ""
    match target.subresource, request.method:
        case "scale", "GET":
            return _encoded(read_scale(store.get(kind, namespace, target.name)))
        case "scale", "PUT" | "PATCH":
            return _scale(store, request, target)
        case "binding", "POST":
            sent = _object(read_body(request.body, request.media_type, OBJECT_TYPES))
            bind(store, namespace, target.name, sent, dry_run=request.dry_run)
            return _encoded(success(code=201), 201)
        case "eviction", "POST":
            sent = _object(read_body(request.body, request.media_type, OBJECT_TYPES))
            evict(store, namespace, target.name, sent, dry_run=request.dry_run)
            return _encoded(success(code=201), 201)
        case _:
            raise not_allowed(f"{kind.resource}/{target.subresource}", kind.group, request.method.lower())


def _object(document: Any) -> Document:
    if not isinstance(document, dict):
        raise bad_request("the body is no object")
    return document


def _scale(store: Store, request: Request, target: Target) -> Response:
    kind, namespace = target.kind, target.namespace or ""
    record = store.get(kind, namespace, target.name)
    held = read_scale(record)
    if request.method == "PUT":
        wanted = _object(read_body(request.body, request.media_type, OBJECT_TYPES))
    else:
        patch = read_body(request.body, request.media_type, PATCH_TYPES)
        wanted = _object(_PATCHES[request.media_type](kind, held, patch))
    version = _object(wanted.get("metadata") or {}).get("resourceVersion")
    if version and version != str(record.version):
        raise conflict(kind.resource, kind.group, target.name, "the object has been modified; please apply your changes to the "
                       "latest version and try again")  # fmt: skip
    scaled = store.change(kind, namespace, target.name, lambda document: write_scale(document, wanted), dry_run=request.dry_run)
    return _encoded(read_scale(scaled))
