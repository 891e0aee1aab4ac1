"""Who is asking, and whether they may: proxies, certificates, tokens, and the cluster's word."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from multidict import CIMultiDict

from moorage.api.documents.http_messages import User
from moorage.errors import ClusterError, InputError
from moorage.live.server.authentication import (
    ANONYMOUS,
    Expiring,
    FrontProxies,
    RequestAuthenticator,
    UnauthorizedError,
)
from moorage.live.server.authorization import AccessDecision, Delegate, OpenPaths, PathAccess, RequestAuthorizer, read_lookup


def issued(common, authority=None, groups=()):
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    parts += [x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else []
    subject, now = x509.Name(parts), datetime.now(UTC)
    signer, signed_by = (key, subject) if authority is None else (authority[1], authority[0].subject)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(signed_by).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return builder.sign(signer, hashes.SHA256()), key


def der(certificate):
    return certificate.public_bytes(serialization.Encoding.DER)


CLIENTS, PROXIES, STRANGERS = (issued(name) for name in ("clients", "proxies", "strangers"))
ADMIN = der(issued("admin", CLIENTS, ("system:masters", "ops"))[0])
NAMELESS = der(issued("", CLIENTS, ("ops",))[0])
PROXY = der(issued("front", PROXIES)[0])
OTHER_PROXY = der(issued("back", PROXIES)[0])
STRANGER = der(issued("admin", STRANGERS, ("system:masters",))[0])
SPOKEN = [
    ("X-Remote-User", "alice"), ("x-remote-group", "dev"), ("X-Remote-Group", "ops"),
    ("X-Remote-Extra-Scopes%2Fa", "one"), ("X-Remote-Extra-Scopes%2Fa", "two"),
]  # fmt: skip


class Reviews:
    """Knows two tokens, counts what it is asked, and may be down."""

    def __init__(self):
        self.asked, self.down = [], False

    async def review(self, token):
        self.asked.append(token)
        if self.down:
            raise ClusterError("down")
        return {"good": User("bob", ("dev",), "u1", {"k": ("v",)})}.get(token)

    async def access(self, caller, access):
        self.asked.append((caller.name, access.verb, access.path))
        if self.down:
            raise ClusterError("down")
        return AccessDecision(caller.name == "bob", "because")


def authenticator(reviewer=None, clock=lambda: 0.0, names=("front",)):
    proxies = FrontProxies((PROXIES[0],), names, ("x-remote-user",), ("x-remote-group",), (), ("x-remote-extra-",))
    review = None if reviewer is None else reviewer.review
    return RequestAuthenticator(review, clock, 10.0, (CLIENTS[0],), proxies)


def authenticate(who, headers=(), certificate=None):
    return asyncio.run(who.authenticate(CIMultiDict(headers), certificate))


BEARER = [("Authorization", "Bearer good")]
AUTHENTICATED = "system:authenticated"
ALICE = User("alice", ("dev", "ops", AUTHENTICATED), "", {"scopes/a": ("one", "two")})
BOB_KNOWN = User("bob", ("dev", AUTHENTICATED), "u1", {"k": ("v",)})
CASES = {  # headers, certificate, who that is
    "anonymous": ([], None, ANONYMOUS),
    "a certificate": ([], ADMIN, User("admin", ("system:masters", "ops", AUTHENTICATED))),
    "a stranger's certificate": ([], STRANGER, ANONYMOUS),
    "a proxy for a user": (SPOKEN, PROXY, ALICE),
    "a proxy of another name": (SPOKEN, OTHER_PROXY, ANONYMOUS),
    "a client that would be a proxy": (SPOKEN, ADMIN, User("admin", ("system:masters", "ops", AUTHENTICATED))),
    "headers without a certificate": (SPOKEN, None, ANONYMOUS),
    "a proxy without a user": ([], PROXY, ANONYMOUS),
    "a token": (BEARER, None, BOB_KNOWN),
    "a token in another case": ([("authorization", "bearer  good")], None, BOB_KNOWN),
    "a certificate before a token": (BEARER, ADMIN, User("admin", ("system:masters", "ops", AUTHENTICATED))),
    "another kind of authorization": ([("Authorization", "Basic Zm9v")], None, ANONYMOUS),
    "an empty token": ([("Authorization", "Bearer ")], None, ANONYMOUS),
}  # fmt: skip


@pytest.mark.parametrize(("headers", "certificate", "caller"), CASES.values(), ids=CASES)
def test_a_caller_is_authenticated(headers, certificate, caller):
    assert authenticate(authenticator(Reviews()), headers, certificate) == caller


def test_any_proxy_certificate_of_the_ca_is_allowed_without_allowed_names():
    assert authenticate(authenticator(names=()), SPOKEN, OTHER_PROXY) == ALICE


CLAIMS = {
    "an unknown token": ([("Authorization", "Bearer bad")], None),
    "a token longer than any": ([("Authorization", f"Bearer {'x' * 20000}")], None),
    "a certificate without a name": ([], NAMELESS),
}


@pytest.mark.parametrize(("headers", "certificate"), CLAIMS.values(), ids=CLAIMS)
def test_an_unverified_identity_is_rejected(headers, certificate):
    with pytest.raises(UnauthorizedError) as refusal:
        authenticate(authenticator(Reviews()), headers, certificate)
    assert "bad" not in str(refusal.value)


def test_tokens_are_not_accepted_without_a_cluster():
    assert authenticate(authenticator(None), BEARER) == ANONYMOUS


def test_token_reviews_are_cached():
    now, reviews = [0.0], Reviews()
    who = authenticator(reviews, lambda: now[0])
    authenticate(who, BEARER)
    now[0] = 9.9
    authenticate(who, BEARER)
    assert reviews.asked == ["good"]
    now[0] = 10.1
    authenticate(who, BEARER)
    assert reviews.asked == ["good", "good"]
    for _ in range(2):
        with pytest.raises(UnauthorizedError):
            authenticate(who, [("Authorization", "Bearer bad")])
    assert reviews.asked.count("bad") == 1


def test_no_token_is_kept():
    who = authenticator(Reviews())
    authenticate(who, BEARER)
    assert "good" not in repr(who._known._held)


def test_a_failed_token_review_is_not_cached():
    reviews = Reviews()
    reviews.down = True
    with pytest.raises(ClusterError):
        authenticate(authenticator(reviews), BEARER)


# -- may they -----------------------------------------------------------------------------------------------------------

BOB, EVE = User("bob"), User("eve")
METRICS = PathAccess("/metrics", "get")


def authorize(reviewer, caller, path="/metrics", paths=("/healthz", "/readyz", "/livez"), clock=lambda: 0.0):
    return asyncio.run(RequestAuthorizer(reviewer, clock, OpenPaths(paths)).authorize(caller, PathAccess(path, "get")))


ALLOWED = {  # reviewer?, caller, path, may they
    "an administrator, without asking": (False, User("x", ("system:masters",)), "/metrics", True),
    "anonymous at an open path": (False, ANONYMOUS, "/healthz", True),
    "not below an open path": (False, ANONYMOUS, "/healthz/ping", False),
    "not without a reviewer": (False, BOB, "/metrics", False),
    "whom the cluster lets": (True, BOB, "/metrics", True),
    "not whom it does not": (True, EVE, "/metrics", False),
}


@pytest.mark.parametrize(("asks", "caller", "path", "allowed"), ALLOWED.values(), ids=ALLOWED)
def test_a_caller_is_authorized(asks, caller, path, allowed):
    assert authorize(Reviews() if asks else None, caller, path).allowed is allowed


PATHS = {  # open paths, path, is it open
    "itself": (["/a"], "/a", True),
    "without its slash": (["a"], "/a", True),
    "another": (["/a"], "/ab", False),
    "all below": (["/a/*"], "/a/b/c", True),
    "not itself": (["/a/*"], "/a", False),
    "everything": (["*"], "/x", True),
    "the root": (["/"], "/", True),
    "nothing": ([], "/healthz", False),
}


@pytest.mark.parametrize(("paths", "path", "is_open"), PATHS.values(), ids=PATHS)
def test_always_allowed_paths_need_no_authorization(paths, path, is_open):
    assert (path in OpenPaths(paths)) is is_open


def test_an_inner_wildcard_in_a_path_is_rejected():
    with pytest.raises(InputError, match="only trailing"):
        OpenPaths(["/a*b"])


def test_access_reviews_are_cached_by_verdict():
    now, reviews = [0.0], Reviews()

    async def main():
        rules = RequestAuthorizer(reviews, lambda: now[0], OpenPaths(()), allowed_ttl_s=10, refused_ttl_s=1)
        for moment in (0.0, 0.5, 2.0, 11.0):
            now[0] = moment
            await rules.authorize(BOB, METRICS)
            await rules.authorize(EVE, METRICS)
        await rules.authorize(User("bob", ("other",)), METRICS)
        await rules.authorize(BOB, PathAccess("/metrics", "put"))

    asyncio.run(main())
    assert [ask for ask in reviews.asked if ask[0] == "eve"] == [("eve", "get", "/metrics")] * 3
    assert [ask[1] for ask in reviews.asked if ask[0] == "bob"] == ["get", "get", "get", "put"]


def test_the_review_caches_are_bounded():
    held = Expiring(capacity=3)
    for i in range(10):
        held.put(i, str(i), 5.0, 0.0)
    assert len(held) == 3
    assert (held.get(9, 1.0), held.get(0, 1.0), held.get(9, 5.0)) == (("9",), None, None)
    held.put("late", "x", 1.0, 2.0)
    assert held.get("late", 0.0) is None


# -- asking the cluster -------------------------------------------------------------------------------------------------


class Wire:
    """Answers as an API server would, and keeps what it was sent."""

    def __init__(self, *answers):
        self.answers, self.sent = list(answers), []

    async def send(self, method, path, body=None):
        self.sent.append((method, path, body))
        return self.answers.pop(0)


def test_a_token_is_reviewed():
    user = b'{"username":"bob","groups":["dev",7],"uid":"u1","extra":{"k":["v"]}}'
    wire = Wire(b'{"status":{"authenticated":true,"user":%s}}' % user, b'{"status":{}}', b"[]", b"nonsense")
    delegate = Delegate(wire)
    assert asyncio.run(delegate.review("t")) == User("bob", ("dev",), "u1", {"k": ("v",)})
    assert asyncio.run(delegate.review("t")) is None
    assert asyncio.run(delegate.review("t")) is None
    with pytest.raises(ClusterError, match="not a review"):
        asyncio.run(delegate.review("t"))
    assert wire.sent[0][1] == "/apis/authentication.k8s.io/v1/tokenreviews"


def test_access_is_reviewed():
    wire = Wire(b'{"status":{"allowed":true}}', b'{"status":{"allowed":"yes","reason":"no rule"}}')
    delegate = Delegate(wire)
    assert asyncio.run(delegate.access(User("bob", ("dev",), "u1", {"k": ("v",)}), METRICS)) == AccessDecision(True)
    assert asyncio.run(delegate.access(EVE, METRICS)) == AccessDecision(False, "no rule")
    assert b'"nonResourceAttributes": {"path": "/metrics", "verb": "get"}' in wire.sent[0][2]
    assert b'"extra": {"k": ["v"]}' in wire.sent[0][2]


LISTS = {"a list": ('["a","b"]', ("a", "b")), "no list": ('"a"', ()), "nonsense": ("{", ()), "nothing": ("", ())}


@pytest.mark.parametrize(("text", "found"), LISTS.values(), ids=LISTS)
def test_lists_that_the_cluster_publishes(text, found):
    assert read_lookup({"names": text}, "names") == found
