"""The authority's certificate in every namespace: there from the start, put back where it goes, in step with the authority."""

import json

import pytest

from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster, publish_client_ca
from moorage.cluster.controllers.all_controllers import all_controllers
from moorage.cluster.controllers.nodes.kubelets import Kubelets

NAME = "kube-root-ca.crt"


@pytest.fixture
def cluster(lab):
    cluster = lab(*[one for one in all_controllers() if not isinstance(one, Kubelets)])
    bootstrap_cluster(cluster.store)
    return cluster


def certificate(cluster, namespace="default"):
    held = cluster.get("configmaps", NAME, namespace)
    return held and held["data"]["ca.crt"]


def test_nothing_is_published_without_a_root_ca(cluster):
    cluster.settle()
    assert certificate(cluster) is None


def test_every_namespace_has_the_root_ca(cluster):
    publish_client_ca(cluster.store, b"one")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    cluster.settle()
    assert certificate(cluster) == certificate(cluster, "team") == certificate(cluster, "kube-system") == "one"
    held = cluster.get("configmaps", NAME)
    assert held["metadata"]["annotations"]["kubernetes.io/description"].startswith("Contains a CA bundle")


def test_the_root_ca_is_restored_and_follows_rotation(cluster):
    publish_client_ca(cluster.store, b"one")
    cluster.settle()
    cluster.delete("configmaps", NAME)
    cluster.settle()
    assert certificate(cluster) == "one"
    cluster.edit("configmaps", NAME, lambda document: document.update(data={"ca.crt": "forged"}))
    cluster.settle()
    assert certificate(cluster) == "one"
    publish_client_ca(cluster.store, b"two")
    cluster.settle()
    assert certificate(cluster) == "two"


def test_the_root_ca_does_not_delay_namespace_deletion(cluster):
    publish_client_ca(cluster.store, b"one")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    cluster.settle()
    cluster.delete("namespaces", "team")
    cluster.settle()
    assert cluster.get("namespaces", "team") is None
    assert cluster.reports == []


def test_the_api_server_has_a_service(cluster):
    held = cluster.get("services", "kubernetes")
    assert held["spec"]["clusterIP"] == "10.96.0.1"
    assert held["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}


def test_the_request_header_ca_is_published(cluster):
    publish_client_ca(cluster.store, b"one", b"front")
    data = cluster.get("configmaps", "extension-apiserver-authentication", "kube-system")["data"]
    assert (data["client-ca-file"], data["requestheader-client-ca-file"]) == ("one", "front")
    assert json.loads(data["requestheader-allowed-names"]) == ["front-proxy-client"]
    assert json.loads(data["requestheader-username-headers"]) == ["X-Remote-User"]
