"""Continue tokens of lists: position and resource version of the next page, signed against forgery.

Source  apiserver, pkg/storage/continue.go, for the messages; the token format is our own
"""

from __future__ import annotations

import base64
import binascii
import hmac
from bisect import bisect_right
from typing import Any, Final, NamedTuple

import msgspec

from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import ApiError, bad_request, expired

__all__ = ["ListPosition", "is_more", "read_token", "too_old", "write_token"]

_MAX_TOKEN: Final = 4096


class ListPosition(NamedTuple):
    """The resource version that a list shows, and the key after which its next page starts."""

    version: int
    after: str


class _Token(msgspec.Struct, frozen=True, array_like=True):
    version: int
    after: str
    resource: str
    namespace: str | None


def write_token(key: bytes, kind: ServedKind, namespace: str | None, position: ListPosition) -> str:
    """Return the token for the next page of a list of one kind, in one namespace or in all (None)."""
    body = msgspec.json.encode(_Token(position.version, position.after, kind.qualified, namespace))
    return base64.urlsafe_b64encode(_signature(key, body) + body).decode().rstrip("=")


def read_token(key: bytes, kind: ServedKind, namespace: str | None, text: str) -> ListPosition:
    """Return the position in a token.

    Raises  ApiError 400 for a token that this server did not sign or that belongs to another list
    """
    invalid_token = bad_request("invalid continue token: continue key is not valid")
    if len(text) > _MAX_TOKEN or not text.isascii():
        raise invalid_token
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise invalid_token from None
    signature, body = raw[:16], raw[16:]
    if not hmac.compare_digest(signature, _signature(key, body)):
        raise invalid_token
    token: Any = msgspec.json.decode(body, type=_Token)
    if (token.resource, token.namespace) != (kind.qualified, namespace):
        raise invalid_token
    return ListPosition(token.version, token.after)


def is_more(keys: list[str], namespace: str | None, after: str) -> bool:
    """Return True if the namespace or kind has objects after a key, even if the selectors do not match them."""
    following = bisect_right(keys, after)
    return following < len(keys) and (namespace is None or keys[following].startswith(f"{namespace}/"))


def too_old() -> ApiError:
    """Return the 410 error for a token whose resource version is no longer in the watch cache."""
    return expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter."
    )


def _signature(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:16]
