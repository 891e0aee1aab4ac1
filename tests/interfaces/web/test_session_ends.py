"""A session of the page ends with the credential for which it was made: in requests, commands and streams."""

import asyncio
import copy
import random
import ssl
import time
from types import SimpleNamespace

import aiohttp
import pytest

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import served
from moorage.basis.serving.certificate_authority import make_authority
from moorage.cluster.apiserver.access.authentication import Authenticator, certificate_end
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.access.service_account_tokens import AccountTokens
from moorage.cluster.apiserver.http.serve import serving
from moorage.interfaces.web import change_stream
from moorage.interfaces.web.embedded_site import EmbeddedSite
from moorage.rules.store.deletion import options_of
from moorage.rules.store.store import Store
from tests.interfaces.web.test_site import ADMIN, NODES, PODS, Browser, node, pod

ACCOUNTS, BINDINGS = served("serviceaccounts"), served("clusterrolebindings", "rbac.authorization.k8s.io")
RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "page"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": "page", "namespace": "default"}],
}  # fmt: skip
CORDON = {"command": "kubectl cordon n0"}


def a_cluster(tmp_path):
    clock = SimpleNamespace(offset=0.0)
    store = Store(lambda: time.time() + clock.offset, random.Random(5), b"k")
    bootstrap_cluster(store)
    store.create(NODES, "", node("n0"))
    store.create(ACCOUNTS, "default", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "page"}})
    store.create(BINDINGS, "", copy.deepcopy(RIGHTS))
    made = pod("page")
    made["spec"]["serviceAccountName"] = "page"
    store.create(PODS, "default", made)
    return clock, store, make_authority(tmp_path / "authority")


def token_of(accounts, *, bound):
    spec = {"expirationSeconds": 600}
    if bound:
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": "page"}
    return accounts.issue("default", "page", {"spec": spec})["status"]["token"]


async def to_the_end(events):
    while True:
        await events.next()


def expire(clock, store):
    clock.offset += 601


def delete_pod(clock, store):
    _delete(store, PODS, "default", "page")


def delete_account(clock, store):
    _delete(store, ACCOUNTS, "default", "page")


def revoke_rights(clock, store):
    _delete(store, BINDINGS, "", "page")


def _delete(store, kind, namespace, name):
    store.delete(kind, namespace, name, options_of({"gracePeriodSeconds": 0}))


ENDS = {"token expired": expire, "pod gone": delete_pod, "account gone": delete_account, "rights revoked": revoke_rights}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("is_asked", [True, False], ids=["requests", "stream"])
def test_a_session_ends_with_the_credential_of_its_link(end, is_asked, tmp_path, monkeypatch):
    monkeypatch.setattr(change_stream, "_QUIET_S", 0.1)
    clock, store, authority = a_cluster(tmp_path)
    accounts = AccountTokens(store, authority.signing_key)

    async def run():
        site = EmbeddedSite(store, on_change=lambda line: None)
        guard = Authenticator({"secret": ADMIN}, accounts=accounts)
        jar = aiohttp.CookieJar(unsafe=True)
        async with serving(store, guard, site=site) as port, aiohttp.ClientSession(cookie_jar=jar) as http:
            browser = Browser(http, port, site)
            bearer = f"Bearer {token_of(accounts, bound=True)}"
            status, made = await browser.ask("POST", "/lab/v1/links", Authorization=bearer)
            assert status == 201
            _, unused = await browser.ask("POST", "/lab/v1/links", Authorization=bearer)
            assert (await browser.ask("POST", "/lab/v1/session", {"token": made["token"]}))[0] == 204
            assert (await browser.get("/lab/v1/snapshot"))[0] == 200
            assert (await browser.ask("POST", "/lab/v1/commands", CORDON))[0] == 200
            async with browser.events() as events:
                end(clock, store)
                if is_asked:
                    assert (await browser.get("/lab/v1/snapshot"))[0] == 401
                else:
                    with pytest.raises((AssertionError, aiohttp.ClientError)):
                        await to_the_end(events)
            assert (await browser.get("/lab/v1/snapshot"))[0] == 401
            assert (await browser.ask("POST", "/lab/v1/commands", CORDON))[0] == 401
            assert (await browser.get("/lab/v1/questions"))[0] in {401, 404}
            opened, _ = await browser.ask("POST", "/lab/v1/session", {"token": unused["token"]})
            assert opened == 401 or end is revoke_rights

    asyncio.run(run())


def test_a_user_without_rights_is_refused_and_keeps_the_session(tmp_path):
    _, store, _ = a_cluster(tmp_path)

    async def run():
        site = EmbeddedSite(store)
        jar = aiohttp.CookieJar(unsafe=True)
        async with serving(store, Authenticator({}), site=site) as port, aiohttp.ClientSession(cookie_jar=jar) as http:
            browser = Browser(http, port, site)
            await browser.enter(User("bob", ()))
            assert [(await browser.get("/lab/v1/snapshot"))[0] for _ in range(2)] == [403, 403]

    asyncio.run(run())


def test_a_certificate_proves_its_user_until_it_expires():
    end = {"notAfter": "Nov 28 22:00:00 2026 GMT"}
    assert certificate_end(end) == ssl.cert_time_to_seconds(end["notAfter"])
    assert certificate_end(None) == certificate_end({}) == float("inf")
    guard = Authenticator({})
    assert guard.prove({}, User("ann", ()), time.time() + 60).holds()
    assert not guard.prove({}, User("ann", ()), time.time() - 1).holds()
    assert guard.prove({}, None, float("inf")) is None


def test_a_stream_looks_at_its_reader_within_ten_seconds():
    assert change_stream._QUIET_S < 10
