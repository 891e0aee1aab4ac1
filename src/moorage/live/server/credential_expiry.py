"""Log when the credentials of a client are about to expire: a day, an hour and a minute before."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cryptography import x509

from moorage.basis.client.credentials import Credentials, Identity
from moorage.errors import InputError
from moorage.live.runtime.attempt_metrics import Log

_EVERY_S: Final = 30.0
_WARNED_S: Final = (("a day", 86400.0), ("an hour", 3600.0), ("a minute", 60.0))
#: A part of its life in which a credential is renewed, as a kubelet does with tokens: no warning before that.
_RENEWED_IN: Final = 0.2


class Lifetime(NamedTuple):
    """From when until when a credential is valid, in seconds since 1970."""

    what: str
    begins: float
    ends: float


def lifetimes(identity: Identity) -> Iterator[Lifetime]:
    """Yield the lifetimes of a client certificate and of a token that tells its own."""
    if identity.certificate is not None:
        try:
            found = x509.load_pem_x509_certificate(identity.certificate)
            yield Lifetime(
                "client certificate", found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()
            )  # fmt: skip
        except ValueError:
            pass  # the API server says what is wrong with it
    parts = identity.token.split(".")
    if len(parts) == 3:
        try:
            claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            yield Lifetime("bearer token", float(claims.get("iat", claims["exp"] - 3600)), float(claims["exp"]))
        except (binascii.Error, ValueError, KeyError, TypeError, AttributeError):
            return


def warning(life: Lifetime, now: float) -> str:
    """Return "a day", "an hour" or "a minute" if a credential expires within that time, "expired" after it, else ""."""
    left_s = life.ends - now
    if left_s <= 0:
        return "expired"
    due = [name for name, before_s in _WARNED_S if left_s <= before_s <= (life.ends - life.begins) * _RENEWED_IN]
    return due[-1] if due else ""


async def watch_expiry(credentials: Credentials, log: Log, wall: Callable[[], float], every_s: float = _EVERY_S) -> None:
    """Log once at each of the times before credentials expire, until cancelled. New credentials begin again."""
    said: dict[Lifetime, str] = {}
    while True:
        try:
            found = [*lifetimes(await credentials.identity())]
        except InputError:
            found = []  # the requests that need them report it
        said = {life: said.get(life, "") for life in found}
        for life in found:
            due = warning(life, wall())
            if due and due != said[life]:
                said[life] = due
                when = datetime.fromtimestamp(life.ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                message = "Credentials have expired" if due == "expired" else f"Credentials expire in less than {due}"
                log.warning(message, credential=life.what, expires=when)
        await asyncio.sleep(every_s)
