"""Issue and verify service account tokens: signed JWTs with audiences, an expiry and references to the objects they are
bound to.

Tokens are JSON Web Tokens signed with the cluster's key (ES256); PyJWT signs them and checks signatures. A token is valid while
its service account and the object that it is bound to exist with the same uid: a pod's token ends with the pod.

Source  kubernetes, pkg/registry/core/serviceaccount/storage/token.go; pkg/serviceaccount/claims.go and jwt.go; RFC 7515,
        7518
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.api.documents.http_messages import User
from moorage.api.documents.records import timestamp
from moorage.api.documents.served_kinds import Document, ServedKind, as_mapping, served
from moorage.api.documents.statuses import bad_request, conflict, invalid
from moorage.api.reading.json_tree import UNREADABLE
from moorage.errors import ConfigError, Fault
from moorage.rules.store.store import Store

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_PREFIX: Final = "system:serviceaccount:"
_MIN_LIFE_S, _MAX_LIFE_S, DEFAULT_LIFE_S = 600, 2**32, 3600
_ACCOUNTS: Final = served("serviceaccounts")
_BOUND: Final[Mapping[str, ServedKind]] = {"Node": served("nodes"), "Pod": served("pods"), "Secret": served("secrets")}
_ALGORITHM: Final = "ES256"
#: A signature of 64 bytes in its canonical encoding. PyJWT's decoder ignores invalid characters and unused bits, so that it
#: would accept several texts for one signature.
_GROUP: Final = "authentication.k8s.io"
_COMPACT_JWS: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]{85}[AQgw]", re.ASCII)
#: PyJWT checks only the signature: this module checks the claims, with the store's clock and objects.
_SIGNATURE_ONLY: Final[Any] = {"verify_signature": True} | dict.fromkeys(
    ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss", "verify_sub", "verify_jti"), False
)
#: Maximum number of tokens whose verified claims are cached, so that a signature is not verified on every request.
_MAX_CACHED: Final = 2048


class TokenIdentity(NamedTuple):
    """The user of a valid token, and the requested audiences that the token is valid for."""

    user: User
    audiences: tuple[str, ...]


def account_groups(name: str) -> tuple[str, ...]:
    """Return the groups of a service account by its user name; () for any other user."""
    home, _, account = name.removeprefix(_PREFIX).partition(":")
    if not name.startswith(_PREFIX) or not home or not account:
        return ()
    return ("system:serviceaccounts", f"system:serviceaccounts:{home}")


class AccountTokens:
    """Issues and verifies service account tokens. ``key`` is an EC private key on P-256, in PEM."""

    def __init__(self, store: Store, key: bytes, now: Callable[[], float] | None = None) -> None:
        self._store = store
        self._now = now or store.clock
        try:
            loaded = serialization.load_pem_private_key(key, None)
        except ValueError as error:
            raise ConfigError(f"the key that signs service accounts' tokens cannot be read: {error}") from None
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or not isinstance(loaded.curve, ec.SECP256R1):
            raise ConfigError("the key that signs service accounts' tokens must be an EC key on P-256")
        self._key = loaded
        public = loaded.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self._key_id = base64.urlsafe_b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")
        self._verified_claims: dict[str, Document] = {}

    # -- issuing -------------------------------------------------------------------------------------------------------

    def issue(
        self, namespace: str, name: str, request: Document, check: Callable[[Document], None] = lambda request: None
    ) -> Document:  # fmt: skip
        """Return the response to a ``TokenRequest``. ``check`` is called with the complete request and may raise an error.

        Raises  ApiError 404 if the account or the bound object does not exist, 409 if the uid differs, 422 or 400 for an
                invalid request
        """
        spec, sent = as_mapping(request.get("spec")), as_mapping(request.get("metadata"))
        if (other := sent.get("name")) not in {None, "", name}:
            why = "must match the service account name if specified"
            raise invalid("TokenRequest", _GROUP, name, [Fault("Invalid value", "metadata.name", why, other)])
        account = self._store.get(_ACCOUNTS, namespace, name).document()["metadata"]
        if (uid := sent.get("uid")) not in {None, "", account["uid"]}:
            why = f"the UID in the token request ({uid}) does not match the UID of the service account ({account['uid']})"
            raise conflict("TokenRequest", _GROUP, name, why)
        if (attestations := spec.get("attestations")) and not _is_for_webhooks(as_mapping(spec.get("boundObjectRef"))):
            why = "attestations may only be specified with a webhook bound object reference"
            faults = [Fault("Invalid value", "spec.attestations", why, attestations)]
        else:
            faults = [*_faults(spec)]
        if faults:
            raise invalid("TokenRequest", _GROUP, "", faults)  # kube-apiserver reports no name here
        reference = as_mapping(spec.get("boundObjectRef"))
        lasts_s = spec.get("expirationSeconds") or DEFAULT_LIFE_S
        audiences = list(spec.get("audiences") or [ISSUER])
        now = int(self._now())
        shown = {"audiences": audiences, "expirationSeconds": lasts_s, "boundObjectRef": reference or None}
        own = {"name": name, "namespace": namespace, "uid": account["uid"], "creationTimestamp": timestamp(now)}
        metadata = {**sent, **own}
        check({"metadata": metadata, "spec": shown})
        bound = self._bound(namespace, name, reference) if reference else {}
        private = {"namespace": namespace, "serviceaccount": {"name": name, "uid": account["uid"]}, **bound}
        claims = {
            "aud": audiences, "exp": now + lasts_s, "iat": now, "iss": ISSUER, "jti": str(uuid.uuid4()),
            "kubernetes.io": private, "nbf": now, "sub": f"{_PREFIX}{namespace}:{name}",
        }  # fmt: skip
        token = jwt.encode(claims, self._key, _ALGORITHM, headers={"kid": self._key_id, "typ": None})
        return {
            "kind": "TokenRequest", "apiVersion": f"{_GROUP}/v1",
            "metadata": metadata, "spec": shown,
            "status": {"token": token, "expirationTimestamp": timestamp(now + lasts_s)},
        }  # fmt: skip

    def _bound(self, namespace: str, account: str, reference: Document) -> Document:
        """Return the claims for the object that the token is bound to."""
        kind = _BOUND.get(str(reference.get("kind")))
        if kind is None or reference.get("apiVersion", "v1") != "v1":
            group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
            why = " (feature gate APIServerWebhookAuthenticationToken is disabled)" if _is_for_webhooks(reference) else ""
            raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={reference.get('kind', '')}{why}")
        found = self._store.get(kind, namespace if kind.namespaced else "", str(reference.get("name"))).document()
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        if str(reference.get("uid") or "") not in {"", uid}:
            why = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise conflict(kind.resource, "", name, why)
        claims: Document = {kind.singular: {"name": name, "uid": uid}}
        spec = as_mapping(found.get("spec"))
        if kind.native == "Pod":
            if spec.get("serviceAccountName") != account:
                why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
                raise bad_request(why)
            if node := spec.get("nodeName"):
                claims["node"] = {"name": node}
        return claims

    # -- verifying -----------------------------------------------------------------------------------------------------

    def authenticate_token(self, token: str, audiences: tuple[str, ...] = (ISSUER,)) -> TokenIdentity | None:
        """Return the user of a token that is valid for one of ``audiences``; None for any invalid token."""
        claims = self._claims(token)
        if claims is None:
            return None
        matching = tuple(one for one in audiences if one in (claims.get("aud") or ()))
        return TokenIdentity(_user(claims), matching) if matching and self._is_valid(claims) else None

    def _claims(self, token: str) -> Document | None:
        held = self._verified_claims.get(token)
        if held is None and (held := self._verified(token)) is not None:
            if len(self._verified_claims) >= _MAX_CACHED:
                self._verified_claims.clear()
            self._verified_claims[token] = held
        return held

    def _verified(self, token: str) -> Document | None:
        """Return the claims of a token signed with this key, or None."""
        if _COMPACT_JWS.fullmatch(token) is None:
            return None
        try:
            claims: Document = jwt.decode(token, self._key.public_key(), [_ALGORITHM], options=_SIGNATURE_ONLY)
        except (jwt.PyJWTError, *UNREADABLE):
            return None
        return claims

    def _is_valid(self, claims: Document) -> bool:
        """Return True if a token has not expired and its account and bound objects exist."""
        if claims.get("iss") != ISSUER or not claims["nbf"] - 60 <= self._now() < claims["exp"]:
            return False
        private = claims["kubernetes.io"]
        home = private["namespace"]
        if not self._exists(_ACCOUNTS, home, private["serviceaccount"]):
            return False
        bound = [(kind, private[kind.singular]) for kind in _BOUND.values() if "uid" in private.get(kind.singular, {})]
        return all(self._exists(kind, home if kind.namespaced else "", one) for kind, one in bound)

    def _exists(self, kind: ServedKind, namespace: str, wanted: Document) -> bool:
        record = self._store.find(kind, namespace, wanted["name"])
        return record is not None and bool(record.document()["metadata"]["uid"] == wanted["uid"])


def _user(claims: Document) -> User:
    private = claims["kubernetes.io"]
    extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
    for kind in ("pod", "node"):
        for field, value in private.get(kind, {}).items():
            extra[f"authentication.kubernetes.io/{kind}-{field}"] = (value,)
    return User(claims["sub"], account_groups(claims["sub"]), private["serviceaccount"]["uid"], extra)


def _faults(spec: Document) -> Iterator[Fault]:
    lasts_s = spec.get("expirationSeconds")
    path = "spec.expirationSeconds"
    if lasts_s is not None and (isinstance(lasts_s, bool) or not isinstance(lasts_s, int)):
        yield Fault("Invalid value", path, "must be an integer", lasts_s)
    elif lasts_s and lasts_s < _MIN_LIFE_S:
        yield Fault("Invalid value", path, "may not specify a duration less than 10 minutes", lasts_s)
    elif lasts_s and lasts_s > _MAX_LIFE_S:
        yield Fault("Invalid value", path, "may not specify a duration larger than 2^32 seconds", lasts_s)
    attestations, audiences = spec.get("attestations"), spec.get("audiences") or []
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        yield Fault("Invalid value", "spec.audiences", "must be a list of strings", audiences)
    elif _is_for_webhooks(as_mapping(spec.get("boundObjectRef"))):
        if len(audiences) != 1:
            yield Fault("Invalid value", "spec.audiences", "must be length 1 when bound to a webhook config", audiences or None)
        yield from _attestation_faults(attestations)


_GROUPS: Final = "admissionReviewAPIGroups"


def _is_for_webhooks(reference: Document) -> bool:
    kinds = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    return reference.get("kind") in kinds and reference.get("apiVersion") == "admissionregistration.k8s.io/v1"


def _attestation_faults(attestations: Document | None) -> Iterator[Fault]:
    path = "spec.attestations"
    if len(attestations or {}) != 1:
        why = f"webhook bound requests require exactly one {_GROUPS} attestation"
        yield Fault("Invalid value", path, why, attestations)
        return
    for key, values in (attestations or {}).items():
        if key != _GROUPS:
            yield Fault("Unsupported value", f"{path}[{key}]", f'supported values: "{_GROUPS}"', key)
        elif len(values or ()) != 1:
            yield Fault("Invalid value", f"{path}[{key}]", "must specify a single value", values)
