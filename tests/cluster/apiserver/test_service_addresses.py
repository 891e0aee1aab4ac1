"""Cluster IPs and node ports of services: allocated, kept and released as in kube-apiserver v1.36.2."""

from ipaddress import ip_address, ip_network

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError

SERVICES = served("services")
RANGE = ip_network("10.96.0.0/12")


def service(name="s", ports=(80,), **spec):
    given = [{"port": one, "name": str(one)} if isinstance(one, int) else one for one in ports]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": given, **spec}}


@pytest.fixture
def make(store):
    return lambda name="s", **spec: store.create(SERVICES, "default", service(name, **spec)).document()["spec"]


@pytest.fixture
def change(store):
    def replace(name="s", **spec):
        return store.update(SERVICES, "default", name, service(name, **spec)).document()["spec"]

    return replace


def test_every_service_has_its_own_address(make):
    made = [make(f"s{i}", selector={"a": "b"}) for i in range(50)]
    assert len({one["clusterIP"] for one in made}) == 50
    assert all(ip_address(one["clusterIP"]) in RANGE for one in made)
    assert made[0] == {
        "clusterIP": made[0]["clusterIP"], "clusterIPs": [made[0]["clusterIP"]], "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": {"a": "b"}, "sessionAffinity": "None",
        "ports": [{"name": "80", "port": 80, "protocol": "TCP", "targetPort": 80}], "type": "ClusterIP",
    }  # fmt: skip


def test_a_replaced_service_keeps_its_address(make, change):
    made = make(type="NodePort", ports=(80, 81))
    again = change(type="NodePort", ports=(81, 82))
    assert again["clusterIP"] == made["clusterIP"]
    assert again["ports"][0]["nodePort"] == made["ports"][1]["nodePort"]
    assert again["ports"][1]["nodePort"] in range(30000, 32768)


def test_fields_that_a_type_does_not_use_are_dropped(make, change):
    made = make(type="LoadBalancer")
    assert made["ports"][0]["nodePort"] in range(30000, 32768)
    inside = change(type="ClusterIP")
    assert inside["clusterIP"] == made["clusterIP"]
    assert "nodePort" not in inside["ports"][0]
    assert not {"externalTrafficPolicy", "allocateLoadBalancerNodePorts"} & set(inside)
    outside = change(type="ExternalName", externalName="x.y", ports=(80,))
    assert set(outside) == {"externalName", "ports", "sessionAffinity", "type"}
    assert ip_address(change(type="ClusterIP")["clusterIP"]) in RANGE


def test_unchanged_fields_are_dropped_with_the_type(store, make):
    make(type="NodePort")
    for kind, gone in (("ClusterIP", "externalTrafficPolicy"), ("ExternalName", "clusterIP")):
        document = store.get(SERVICES, "default", "s").document()
        document["spec"] |= {"type": kind, "externalName": "x.y"} if kind == "ExternalName" else {"type": kind}
        held = store.update(SERVICES, "default", "s", document).document()["spec"]
        assert gone not in held
        assert "nodePort" not in held["ports"][0]


HEADLESS = {
    "with a selector": ({"selector": {"a": "b"}}, ["IPv4"], "SingleStack"),
    "without one": ({}, ["IPv4", "IPv6"], "RequireDualStack"),
}


@pytest.mark.parametrize(("more", "families", "policy"), HEADLESS.values(), ids=HEADLESS)
def test_headless_services(make, more, families, policy):
    made = make(clusterIP="None", **more)
    assert (made["clusterIP"], made["clusterIPs"]) == ("None", ["None"])
    assert (made["ipFamilies"], made["ipFamilyPolicy"]) == (families, policy)
    assert make("t", clusterIP="None", **more)["clusterIP"] == "None"


def test_a_service_may_request_an_address(make):
    assert make(clusterIP="10.43.0.10")["clusterIPs"] == ["10.43.0.10"]  # another cluster's range
    assert make("six", clusterIP="fd00::1")["ipFamilies"] == ["IPv6"]
    assert make("n", type="NodePort", ports=[{"port": 80, "nodePort": 30001}])["ports"][0]["nodePort"] == 30001
    udp = [{"port": 80, "protocol": "UDP", "nodePort": 30001}]
    assert make("u", type="NodePort", ports=udp)["ports"][0]["nodePort"] == 30001
    free = make("l", type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    assert "nodePort" not in free["ports"][0]


def port(**more):
    return [{"port": 80, **more}]


REFUSED = {
    "taken": (
        {"clusterIP": "10.96.7.7"},
        'spec.clusterIPs: Invalid value: ["10.96.7.7"]: failed to allocate IP 10.96.7.7: provided IP is already allocated',
    ),
    "no address": ({"clusterIP": "foo"}, 'spec.clusterIPs[0]: Invalid value: "foo": must be a valid IP address'),
    "the list alone": (
        {"clusterIPs": ["10.96.0.9"]},
        'spec.clusterIPs: Invalid value: ["10.96.0.9"]: must be empty when `clusterIP` is not specified',
    ),
    "of another name": (
        {"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.96.0.9"},
        "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
    ),
    "none on nodes": (
        {"type": "NodePort", "clusterIP": "None"},
        'spec.clusterIPs[0]: Invalid value: "None": may not be set to \'None\' for NodePort services',
    ),
    "a port inside": (
        {"ports": port(nodePort=30003)}, "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
    ),
    "a port out of range": (
        {"type": "NodePort", "ports": port(nodePort=80)},
        "nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
    ),
    "a port taken": (
        {"type": "NodePort", "ports": port(nodePort=30001)},
        "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
    ),
    "a port twice": (
        {"type": "NodePort", "ports": [{"port": n, "name": f"p{n}", "nodePort": 30003} for n in (80, 81)]},
        "spec.ports[1].nodePort: Invalid value: 30003: provided port is already allocated",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "why"), REFUSED.values(), ids=REFUSED)
def test_rejected_address_requests(make, spec, why):
    make("first", clusterIP="10.96.7.7", type="NodePort", ports=port(nodePort=30001))
    with pytest.raises(ApiError) as refused:
        make("second", **spec)
    assert refused.value.code == 422
    assert str(refused.value).startswith('Service "second" is invalid: spec.')
    assert why in str(refused.value)


def test_an_address_is_immutable(make, change):
    make()
    with pytest.raises(ApiError, match=r'spec.clusterIPs\[0\]: Invalid value: \["10.96.9.9"\]: may not change once set'):
        change(clusterIP="10.96.9.9")


def test_an_update_keeps_the_allocated_addresses(store, make):
    """An unrelated update allocates nothing, whatever else was created."""
    made = make(type="NodePort")
    for i in range(5):
        make(f"s{i}", type="NodePort")
    document = store.get(SERVICES, "default", "s").document()
    document["metadata"]["labels"] = {"a": "b"}
    assert store.update(SERVICES, "default", "s", document).document()["spec"] == made
