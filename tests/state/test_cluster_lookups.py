"""Looking things up by selector: services of a pod, namespaces of a selector."""

from __future__ import annotations

from moorage.api.core import Namespace, Service, ServiceSpec
from moorage.api.meta import ObjectMeta
from moorage.api.selectors import EVERYTHING, selector_from_map
from moorage.state.cluster import ClusterState
from moorage.testing.builders import a_pod


def a_service(name, selector, namespace="default"):
    return Service(metadata=ObjectMeta(name=name, namespace=namespace), spec=ServiceSpec(selector=selector))


def a_namespace(name, **labels):
    return Namespace(metadata=ObjectMeta(name=name, labels=labels))


def names(services):
    return sorted(service.metadata.name for service in services)


def test_services_that_select_a_pod():
    cluster = ClusterState()
    for service in (
        a_service("web", {"app": "web"}),
        a_service("web-front", {"app": "web", "tier": "front"}),
        a_service("db", {"app": "db"}),
        a_service("elsewhere", {"app": "web"}, namespace="other"),
        a_service("external", {}),
    ):
        cluster.set_object(service)
    assert names(cluster.snapshot.services_selecting(a_pod(labels={"app": "web"}))) == ["web"]
    assert names(cluster.snapshot.services_selecting(a_pod(labels={"app": "web", "tier": "front"}))) == ["web", "web-front"]
    assert names(cluster.snapshot.services_selecting(a_pod(labels={"app": "web"}, namespace="other"))) == ["elsewhere"]


def test_changed_and_deleted_services_are_followed():
    cluster = ClusterState()
    cluster.set_object(a_service("web", {"app": "web"}))
    replaced = cluster.set_object(a_service("web", {"app": "shop"}))
    assert replaced == a_service("web", {"app": "web"})
    assert names(cluster.services_selecting(a_pod(labels={"app": "web"}))) == []
    assert names(cluster.services_selecting(a_pod(labels={"app": "shop"}))) == ["web"]
    cluster.remove_object(a_service("web", {}))
    assert names(cluster.services_selecting(a_pod(labels={"app": "shop"}))) == []
    assert cluster.remove_object(a_service("web", {})) is None


def test_namespaces_by_label_follow_their_changes():
    cluster = ClusterState()
    team_a = selector_from_map({"team": "a"})
    cluster.set_namespace(a_namespace("red", team="a"))
    cluster.set_namespace(a_namespace("blue", team="b"))
    assert cluster.snapshot.namespaces_selected(team_a) == {"red"}
    assert cluster.snapshot.namespaces_selected(EVERYTHING) == {"red", "blue"}
    cluster.set_namespace(a_namespace("blue", team="a"))
    assert cluster.snapshot.namespaces_selected(team_a) == {"red", "blue"}
    cluster.remove_namespace("red")
    assert cluster.snapshot.namespaces_selected(team_a) == {"blue"}


def test_there_is_one_index_of_a_kind():
    class Index:
        def __init__(self, snapshot):
            self.snapshot = snapshot

    cluster = ClusterState()
    found = cluster.snapshot.index(Index)
    assert found.snapshot is cluster.snapshot
    assert cluster.snapshot.index(Index) is found
    assert ClusterState().snapshot.index(Index) is not found
