"""Service account tokens: their content, their validity, and that they cannot be forged."""

import base64
import json
import string

import pytest

from moorage.api.documents.http_messages import User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.basis.serving.certificate_authority import make_authority
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.access.service_account_tokens import ISSUER, AccountTokens
from moorage.cluster.apiserver.http.requests import HTTPRequest, serve
from moorage.cluster.apiserver.http.serve import open_store
from moorage.errors import ConfigError

ACCOUNTS, PODS = served("serviceaccounts"), served("pods")


class Hands:
    def __init__(self):
        self.now = 1_750_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return [make_authority(tmp_path_factory.mktemp("pki")).signing_key for _ in range(2)]


@pytest.fixture
def clock():
    return Hands()


@pytest.fixture
def cluster(clock):
    return open_store(clock=clock, seed=1)


@pytest.fixture
def accounts(cluster, keys):
    return AccountTokens(cluster, keys[0])


def token_of(accounts, **spec):
    return accounts.issue("default", "default", {"spec": spec})["status"]["token"]


def claims_of(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_a_token_states_its_account_audience_and_expiry(accounts, cluster, clock):
    answer = accounts.issue("default", "default", {"spec": {"audiences": ["a"], "expirationSeconds": 900}})
    claims = claims_of(answer["status"]["token"])
    uid = cluster.get(ACCOUNTS, "default", "default").document()["metadata"]["uid"]
    assert claims.pop("jti")
    assert claims == {
        "aud": ["a"], "exp": int(clock.now) + 900, "iat": int(clock.now), "nbf": int(clock.now), "iss": ISSUER,
        "sub": "system:serviceaccount:default:default",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "default", "uid": uid}},
    }  # fmt: skip
    identity = accounts.authenticate_token(answer["status"]["token"], ("x", "a"))
    assert (identity.user.name, identity.user.uid, identity.audiences) == (claims["sub"], uid, ("a",))
    assert identity.user.groups == ("system:serviceaccounts", "system:serviceaccounts:default")
    assert accounts.authenticate_token(answer["status"]["token"]) is None


def test_a_token_expires(accounts, clock):
    token = token_of(accounts, expirationSeconds=600)
    clock.now += 599
    assert accounts.authenticate_token(token) is not None
    clock.now += 1
    assert accounts.authenticate_token(token) is None


def test_a_token_ends_with_its_account_even_if_that_is_recreated(accounts, cluster):
    token = token_of(accounts)
    assert accounts.authenticate_token(token) is not None
    cluster.delete(ACCOUNTS, "default", "default")
    assert cluster.find(ACCOUNTS, "default", "default") is not None
    assert accounts.authenticate_token(token) is None


def test_a_token_ends_with_the_pod_it_is_bound_to(accounts, cluster):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = cluster.create(PODS, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    token = token_of(accounts, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    extra = accounts.authenticate_token(token).user.extra
    assert extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert extra["authentication.kubernetes.io/pod-uid"] == (made.document()["metadata"]["uid"],)
    cluster.delete(PODS, "default", "p")
    assert accounts.authenticate_token(token) is None


REFUSED = {
    "too short": ({"expirationSeconds": 599}, 422),
    "too long": ({"expirationSeconds": 2**32 + 1}, 422),
    "no number": ({"expirationSeconds": "600"}, 422),
    "no list of audiences": ({"audiences": "a"}, 422),
    "bound to what is not there": ({"boundObjectRef": {"kind": "Pod", "name": "absent"}}, 404),
    "bound to what tokens are not bound to": ({"boundObjectRef": {"kind": "ConfigMap", "name": "x"}}, 400),
    "bound to another than is meant": ({"boundObjectRef": {"kind": "Node", "name": "n", "uid": "other"}}, 409),
}


@pytest.mark.parametrize(("spec", "code"), REFUSED.values(), ids=REFUSED)
def test_rejected_token_requests(accounts, cluster, spec, code):
    cluster.create(served("nodes"), "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    with pytest.raises(ApiError) as caught:
        accounts.issue("default", "default", {"spec": spec})
    assert caught.value.code == code


def test_a_request_for_another_namespace_than_its_path_is_rejected(accounts, cluster):
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    for namespace, code in (("default", 201), ("other", 400)):
        body = json.dumps({"metadata": {"namespace": namespace}, "spec": {}}).encode()
        request = HTTPRequest("POST", path, {}, "application/json", "application/json", body, User("x"))
        try:
            found = serve(cluster, Authenticator({}, accounts=accounts), Authorizer(cluster), request, find_target(path)).code
        except ApiError as error:
            found = error.code
        assert found == code


def _unsigned(token):
    header, body, _ = token.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    return [f"{none}.{body}.", f"{header}.{body}.", f"{none}.{body}.{token.split('.')[2]}"]


def test_forged_tokens_are_rejected(accounts, cluster, keys):
    token = token_of(accounts)
    assert AccountTokens(cluster, keys[1]).authenticate_token(token) is None
    claims = claims_of(token)
    claims["sub"] = "system:serviceaccount:kube-system:default"
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    header, _, signature = token.split(".")
    forged = [f"{header}.{body}.{signature}", token[:-4], token + "AAAA", "..", "a.b.c", "", "ä.ö.ü", *_unsigned(token)]
    assert [one for one in forged if accounts.authenticate_token(one) is not None] == []
    flipped = [token[:i] + ("A" if token[i] != "A" else "B") + token[i + 1 :] for i in range(0, len(token), 7)]
    assert [one for one in flipped if accounts.authenticate_token(one) is not None] == []


def test_a_token_has_one_spelling(accounts):
    token = token_of(accounts)
    others = [token[:-1] + last for last in string.ascii_letters + string.digits + "-_=" if last != token[-1]]
    padded = [token + "=", token + "==", token[:-1] + "!" + token[-1], token + "\n", " " + token]
    assert [one for one in others + padded if accounts.authenticate_token(one) is not None] == []


def test_the_authenticator_accepts_them(accounts):
    guard = Authenticator({}, accounts=accounts)
    user = guard.authenticate("/api", {"Host": "localhost", "Authorization": f"Bearer {token_of(accounts)}"})
    assert (user.name, user.groups[-1]) == ("system:serviceaccount:default:default", "system:authenticated")
    with pytest.raises(ApiError) as caught:
        guard.authenticate("/api", {"Host": "localhost", "Authorization": "Bearer " + token_of(accounts, audiences=["other"])})
    assert caught.value.code == 401


def test_an_invalid_signing_key_is_rejected(cluster):
    with pytest.raises(ConfigError, match="signs service accounts' tokens"):
        AccountTokens(cluster, b"nonsense")
