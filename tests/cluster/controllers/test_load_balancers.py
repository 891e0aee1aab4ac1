"""Addresses of load balancers: which services get one, that it stays, and that it goes with the type."""

import pytest

from moorage.cluster.controllers.upkeep.status_controllers import LoadBalancers


@pytest.fixture
def cluster(lab):
    return lab(LoadBalancers(), nodes=1)


def make(cluster, name, **spec):
    ports = [{"port": 80}]
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, **spec}})
    cluster.settle()


def ingress(cluster, name):
    return (cluster.get("services", name)["status"].get("loadBalancer") or {}).get("ingress") or []


def test_each_gets_an_address_of_its_own_and_an_event(cluster):
    for name in ("a", "b"):
        make(cluster, name, type="LoadBalancer")
    (one,), (other,) = ingress(cluster, "a"), ingress(cluster, "b")
    assert one["ip"] != other["ip"]
    assert one["ip"].startswith(("198.18.", "198.19."))
    assert one["ipMode"] == "VIP"
    assert {event["reason"] for event in cluster.all("events")} == {"EnsuredLoadBalancer"}


OTHERS = {
    "cluster IP": {"type": "ClusterIP"},
    "node port": {"type": "NodePort"},
    "a class of another controller": {"type": "LoadBalancer", "loadBalancerClass": "example.com/own"},
}


@pytest.mark.parametrize("spec", OTHERS.values(), ids=OTHERS)
def test_other_services_get_none(cluster, spec):
    make(cluster, "a", **spec)
    assert ingress(cluster, "a") == []


def test_an_address_stays_and_goes_with_the_type(cluster):
    make(cluster, "a", type="LoadBalancer")
    before = ingress(cluster, "a")
    cluster.restart(LoadBalancers())
    cluster.edit("services", "a", lambda service: service["metadata"].update(labels={"x": "y"}))
    cluster.settle()
    assert ingress(cluster, "a") == before
    cluster.edit("services", "a", lambda service: service["spec"].update(type="ClusterIP"))
    cluster.settle()
    assert ingress(cluster, "a") == []


def test_an_address_that_another_gave_stays(cluster):
    make(cluster, "a", type="LoadBalancer")
    given = {"ingress": [{"hostname": "lb.example.com"}]}
    cluster.edit("services", "a", lambda service: service["status"].update(loadBalancer=given), subresource="status")
    cluster.settle()
    assert ingress(cluster, "a") == given["ingress"]
