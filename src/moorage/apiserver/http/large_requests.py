"""Which requests are too much for the event loop, and how they are carried out beside it.

What a request costs goes by the values in its body and in the object that it changes. Values are counted by the characters that
part them, which is quick and errs on the side of more.
"""

from __future__ import annotations

from typing import Final

from moorage.apiserver.access.authentication import Authenticator
from moorage.apiserver.access.rbac_authorizer import Authorizer
from moorage.apiserver.http.requests import check_making, serve
from moorage.apiserver.http.responses import OutgoingResponse, answer_of
from moorage.apiserver.schema.representations import Accepted, accepted
from moorage.apiserver.schema.value_limits import count_marks
from moorage.apiserver.storage.detached_store import AskOwner, DetachedStore, StaleReadError
from moorage.apiserver.storage.store import Store
from moorage.apiserver.vocabulary.http_messages import HTTPRequest
from moorage.apiserver.vocabulary.request_targets import ReviewTarget, Target
from moorage.apiserver.vocabulary.statuses import ApiError, conflict, too_many

__all__ = ["carry_out", "is_heavy", "is_large"]

#: Up to how many bytes the loop reads a body or encodes an object, however dense it is; and from how many on never.
SMALL: Final = 8 << 10
LONG: Final = 256 << 10
#: How many values it handles beyond that: some 30 ms of work.
VALUES: Final = 2000
#: How often a request is carried out on what changes under its hands.
_TRIES: Final = 5
_MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


def is_large(store: Store, asked: HTTPRequest, target: Target | ReviewTarget) -> bool:
    """Return True for a request that could hold the loop for long."""
    if is_heavy(asked.body, counted=asked.media_type.endswith("json")):
        return True
    if isinstance(target, ReviewTarget) or not target.name:
        return False
    held = store.find(target.kind, target.namespace or "", target.name)
    if held is None or not is_heavy(held.body):
        return False
    return asked.method not in {"GET", "HEAD"} or asked.flag("pretty") or not _is_plain(asked)


def is_heavy(body: bytes, *, counted: bool = True) -> bool:
    """Return True for an object that takes long to handle. ``counted`` says that it is JSON, where counting tells."""
    if len(body) <= SMALL:
        return False
    return not counted or len(body) > LONG or count_marks(body) > VALUES


def _is_plain(asked: HTTPRequest) -> bool:
    """Return True where an object is sent as it is kept."""
    try:
        return accepted(asked.accept) == Accepted()
    except ApiError:
        return True


def carry_out(
    store: Store, guard: Authenticator, asked: HTTPRequest, target: Target | ReviewTarget, ask: AskOwner
) -> OutgoingResponse:
    """Carry out a request in another thread than the store's, which ``ask`` reaches; return what is sent.

    Raises  ApiError for everything that is refused, and 409 or 429 where what it is about never stays the same for long enough
    """
    for _ in range(_TRIES):
        try:
            return _tried(DetachedStore(store, ask), guard, asked, target)
        except StaleReadError:
            pass
    if isinstance(target, Target) and target.name:
        raise conflict(target.kind.resource, target.kind.group, target.name, _MODIFIED)
    raise too_many("too many changes at a time, please try again later", 1)


def _tried(store: Store, guard: Authenticator, asked: HTTPRequest, target: Target | ReviewTarget) -> OutgoingResponse:
    authorizer = Authorizer(store)
    check_making(store, authorizer, asked, target)
    return answer_of(asked, serve(store, guard, authorizer, asked, target))
