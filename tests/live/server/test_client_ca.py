"""Whom the server trusts: by files, or by the cluster's word; kept up to date."""

import asyncio
from datetime import UTC, datetime

import pytest

from moorage.errors import ClusterError, InputError
from moorage.live.server.authentication import FrontProxies, RequestAuthenticator
from moorage.live.server.certificates import self_signed
from moorage.live.server.client_ca import ClientCaRules, ClientCas

BUNDLES = {}


@pytest.fixture(scope="module", autouse=True)
def bundles():
    for name in ("clients", "proxies", "others"):
        BUNDLES[name] = self_signed("127.0.0.1", datetime.now(UTC)).certificate.decode()


class Cluster:
    def __init__(self, published=None):
        self.published = published

    async def lookup(self):
        if self.published is None:
            raise ClusterError("configmaps is forbidden", 403, "Forbidden")
        return self.published


class Tls:
    def __init__(self):
        self.trusted, self.changed = None, False

    def trust(self, bundle):
        self.trusted = bundle

    def reload(self):
        if self.changed == "broken":
            raise InputError("the serving certificate cannot be used")
        return self.changed


class Lines:
    def __init__(self):
        self.warnings, self.errors, self.infos = [], [], []

    def warning(self, message, **facts):
        self.warnings.append(message)

    def error(self, error, message, **facts):
        self.errors.append(str(error))

    def info(self, level, message, **facts):
        self.infos.append(message)


class Trusting:
    def __init__(self, rules, cluster):
        self.tls, self.log = Tls(), Lines()
        self.authenticator = RequestAuthenticator(None, lambda: 0.0)
        self.trust = ClientCas(rules, cluster, self.authenticator, self.tls, self.log)

    def start(self):
        asyncio.run(self.trust.start())
        return self

    def refresh(self):
        asyncio.run(self.trust.refresh())


def published(**more):
    return {
        "client-ca-file": BUNDLES["clients"],
        "requestheader-client-ca-file": BUNDLES["proxies"],
        "requestheader-allowed-names": '["front"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        **more,
    }


def test_the_client_ca_is_read_from_the_cluster():
    found = Trusting(ClientCaRules(), Cluster(published())).start()
    assert BUNDLES["clients"] in found.tls.trusted
    assert BUNDLES["proxies"] in found.tls.trusted
    assert len(found.authenticator.authorities) == 2
    assert found.authenticator.proxies.names == ("front",)
    assert found.authenticator.proxies.user_headers == ("X-Remote-User",)
    assert found.log.warnings == []


def test_ca_files_take_precedence_over_the_cluster(tmp_path):
    (tmp_path / "ca.pem").write_text(BUNDLES["others"])
    rules = ClientCaRules(str(tmp_path / "ca.pem"), str(tmp_path / "ca.pem"), FrontProxies(names=("mine",)))
    found = Trusting(rules, Cluster(published())).start()
    assert found.tls.trusted == BUNDLES["others"]
    assert found.authenticator.proxies.names == ("mine",)


def test_a_failed_lookup_is_tolerated_with_a_warning():
    found = Trusting(ClientCaRules(), Cluster()).start()
    assert found.tls.trusted == ""
    assert len(found.log.warnings) == 3
    assert "configmaps is forbidden" in found.log.warnings[0]


def test_a_failed_lookup_is_fatal_unless_tolerated():
    with pytest.raises(InputError, match="unable to load configmap based request-header-client-ca-file"):
        Trusting(ClientCaRules(tolerant=False), Cluster()).start()


def test_client_certificates_without_a_cluster_are_disabled_with_a_warning():
    found = Trusting(ClientCaRules(), None).start()
    assert len(found.log.warnings) == 2
    assert found.tls.trusted == ""


def test_the_lookup_can_be_skipped():
    found = Trusting(ClientCaRules(skip_lookup=True), Cluster()).start()
    assert (found.log.warnings, found.tls.trusted) == ([], "")


def test_a_rotated_ca_is_reloaded():
    cluster = Cluster(published())
    found = Trusting(ClientCaRules(), cluster).start()
    cluster.published = published(**{"client-ca-file": BUNDLES["others"]})
    found.tls.changed = True
    found.refresh()
    assert BUNDLES["others"] in found.tls.trusted
    assert found.log.infos == ["Reloaded the serving certificates"]


def test_a_later_invalid_ca_keeps_the_previous_one(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text(BUNDLES["clients"])
    cluster = Cluster(published())
    found = Trusting(ClientCaRules(str(file)), cluster).start()
    before = found.tls.trusted
    cluster.published = None
    found.refresh()
    assert found.tls.trusted == before
    file.write_text("nonsense")
    found.refresh()
    assert found.tls.trusted == before
    found.tls.changed = "broken"
    found.refresh()
    assert ["forbidden" in error for error in found.log.errors] == [True, True, False, True, False]


def test_an_invalid_ca_bundle_stops_the_start(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        Trusting(ClientCaRules(str(tmp_path / "none")), None).start()
