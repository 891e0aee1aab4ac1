"""Large requests, which would block the event loop for too long: recognize them, and handle them in another thread.

The cost of a request is estimated from the number of values in its body and in the object that it changes. Values are
counted by the JSON punctuation between them, which is fast and may overestimate.
"""

from __future__ import annotations

from typing import Final

from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import check_may_create, serve
from moorage.cluster.apiserver.http.responses import OutgoingResponse, encode_response
from moorage.cluster.apiserver.schema.representations import Accepted, accepted
from moorage.cluster.apiserver.schema.value_limits import count_marks
from moorage.cluster.apiserver.storage.definitions import AskOwner
from moorage.cluster.apiserver.storage.detached_store import DetachedStore, StaleReadError
from moorage.cluster.apiserver.storage.store import Store
from moorage.cluster.apiserver.vocabulary.http_messages import HTTPRequest, ReviewTarget, Target
from moorage.cluster.apiserver.vocabulary.served_kinds import MEASURED
from moorage.cluster.apiserver.vocabulary.statuses import ApiError, conflict, too_many

__all__ = ["carry_out", "is_heavy", "is_large"]

#: Bodies and objects up to ``SMALL`` bytes are always handled on the event loop, those above ``LONG`` never.
SMALL: Final = 8 << 10
LONG: Final = 256 << 10
#: Between these sizes, the event loop handles bodies with at most this number of values: about 30 ms of work.
VALUES: Final = 2000
#: Maximum number of objects of a kind for which the loop deletes a collection.
OBJECTS: Final = 50
#: Maximum number of attempts when objects that a request read change meanwhile.
_MAX_ATTEMPTS: Final = 5
_MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


def is_large(store: Store, request: HTTPRequest, target: Target | ReviewTarget) -> bool:
    """Return True for a request that could block the event loop for long."""
    if isinstance(target, Target) and target.kind.custom is not None and request.method in {"PATCH", "POST", "PUT"}:
        return True  # patterns and rules can take long, however small the object is
    if is_heavy(request.body, counted=request.media_type.endswith("json")):
        return True
    if isinstance(target, ReviewTarget) or target.kind in MEASURED:
        return False
    if not target.name:
        return request.method == "DELETE" and store.count(target.kind) > OBJECTS
    held = store.find(target.kind, target.namespace or "", target.name)
    if held is None or not is_heavy(held.body):
        return False
    return request.method not in {"GET", "HEAD"} or request.flag("pretty") or not _is_plain(request)


def is_heavy(body: bytes, *, counted: bool = True) -> bool:
    """Return True for an object that takes long to handle. ``counted``: it is JSON, so its values can be counted."""
    if len(body) <= SMALL:
        return False
    return not counted or len(body) > LONG or count_marks(body) > VALUES


def _is_plain(request: HTTPRequest) -> bool:
    """Return True if the object is sent as stored."""
    try:
        return accepted(request.accept) == Accepted()
    except ApiError:
        return True


def carry_out(
    store: Store, guard: Authenticator, request: HTTPRequest, target: Target | ReviewTarget, ask: AskOwner
) -> OutgoingResponse:
    """Handle a request in a worker thread, and return the response. ``ask`` calls functions on the store's thread.

    Raises  ApiError for a rejected request, and 409 or 429 if the objects that it read keep changing
    """
    for _ in range(_MAX_ATTEMPTS):
        try:
            return _attempt(DetachedStore(store, ask), guard, request, target)
        except StaleReadError:
            pass
    if isinstance(target, Target) and target.name:
        raise conflict(target.kind.resource, target.kind.group, target.name, _MODIFIED)
    raise too_many("too many changes at a time, please try again later", 1)


def _attempt(store: Store, guard: Authenticator, request: HTTPRequest, target: Target | ReviewTarget) -> OutgoingResponse:
    authorizer = Authorizer(store)
    check_may_create(store, authorizer, request, target)
    return encode_response(request, serve(store, guard, authorizer, request, target))
