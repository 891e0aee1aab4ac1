"""Validation of services, with kube-apiserver's messages."""

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError

SERVICES = served("services", "")
RANGE = "must be between 1 and 65535, inclusive"
BALANCED = "Forbidden: may only be used when `type` is 'LoadBalancer'"
CHECKED = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"


def service(**spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}


def one(**more):
    return {"ports": [{"port": 80, **more}]}


def with_port(**more):
    return {**one(), **more}


def for_clients(seconds):
    config = {"clientIP": {"timeoutSeconds": seconds}}
    return with_port(sessionAffinity="ClientIP", sessionAffinityConfig=config)


AFFINITY = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
SAME = '{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}'
REFUSED = {  # what is asked for, all that is wrong with it; as kube-apiserver v1.36.2 answered
    "no port": (
        one(port=99999),
        [f"spec.ports[0].port: Invalid value: 99999: {RANGE}", f"spec.ports[0].targetPort: Invalid value: 99999: {RANGE}"],
    ),
    "nothing of a port": (
        {"ports": [{}]},
        [f"spec.ports[0].port: Invalid value: 0: {RANGE}", f"spec.ports[0].targetPort: Invalid value: 0: {RANGE}"],
    ),
    "a target that is no name": (
        one(targetPort="Bad_name"),
        [('spec.ports[0].targetPort: Invalid value: "Bad_name": must contain only alpha-numeric characters (a-z, 0-9), and '
         "hyphens (-)")],
    ),
    "a target that is a number in quotes": (
        one(targetPort="80"), ['spec.ports[0].targetPort: Invalid value: "80": must contain at least one letter (a-z)'],
    ),
    "the same name twice": (
        {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}, ['spec.ports[1].name: Duplicate value: "a"'],
    ),
    "the same port twice, nameless": (
        {"ports": [{"port": 80}, {"port": 80}]},
        ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value", f"spec.ports[1]: Duplicate value: {SAME}"],
    ),
    "another protocol": (
        one(protocol="HTTP"),
        ['spec.ports[0].protocol: Unsupported value: "HTTP": supported values: "SCTP", "TCP", "UDP"'],
    ),
    "another affinity": (
        with_port(sessionAffinity="Bad"),
        ['spec.sessionAffinity: Unsupported value: "Bad": supported values: "ClientIP", "None"'],
    ),
    "for no time": (for_clients(0), [f"{AFFINITY}: Invalid value: 0: must be greater than 0 and less than 86400"]),
    "for too long": (for_clients(90000), [f"{AFFINITY}: Invalid value: 90000: must be greater than 0 and less than 86400"]),
    "no external name": ({"type": "ExternalName"}, ["spec.externalName: Required value"]),
    "a policy for outside that is inside": (
        with_port(externalTrafficPolicy="Local"),
        ['spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services'],
    ),
    "another policy": (
        with_port(type="NodePort", externalTrafficPolicy="Bad", internalTrafficPolicy="Bad"),
        ['spec.internalTrafficPolicy: Unsupported value: "Bad": supported values: "Cluster", "Local"',
         'spec.externalTrafficPolicy: Unsupported value: "Bad": supported values: "Cluster", "Local"'],
    ),
    "an unused health check port": (
        with_port(healthCheckNodePort=30000), [f"spec.healthCheckNodePort: Invalid value: 30000: {CHECKED}"],
    ),
    "no address": (
        with_port(externalIPs=["a"]),
        ['spec.externalIPs[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'],
    ),
    "an address of one's own": (
        with_port(externalIPs=["127.0.0.1"]),
        ['spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)'],
    ),
    "what balancers have": (
        with_port(loadBalancerSourceRanges=["1.2.3.0/24"], allocateLoadBalancerNodePorts=True, loadBalancerClass="a/b"),
        [f"spec.LoadBalancerSourceRanges: {BALANCED}", f"spec.allocateLoadBalancerNodePorts: {BALANCED}",
         f"spec.loadBalancerClass: {BALANCED}"],
    ),
    "no range": (
        with_port(type="LoadBalancer", loadBalancerSourceRanges=["x"]),
        [('spec.LoadBalancerSourceRanges[0]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or '
         "2001:db8::/64)")],
    ),
    "another family": (
        with_port(ipFamilies=["IPv9"], ipFamilyPolicy="Bad"),
        ['spec.ipFamilies[0]: Unsupported value: "IPv9": supported values: "IPv4", "IPv6"',
         ('spec.ipFamilyPolicy: Unsupported value: "Bad": supported values: "PreferDualStack", "RequireDualStack", '
         '"SingleStack"')],
    ),
    "another distribution": (
        with_port(trafficDistribution="Bad"),
        [('spec.trafficDistribution: Unsupported value: "Bad": supported values: "PreferClose", "PreferSameZone", '
         '"PreferSameNode"')],
    ),
}  # fmt: skip


def refused(store, spec):
    with pytest.raises(ApiError) as caught:
        store.create(SERVICES, "default", service(**spec))
    assert caught.value.code == 422
    return str(caught.value).removeprefix('Service "s" is invalid: ')


@pytest.mark.parametrize(("spec", "wrong"), REFUSED.values(), ids=REFUSED)
def test_invalid_services(store, spec, wrong):
    assert refused(store, spec) == (wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


LABELS = {  # what is not a name, and where
    "a port's name": ({"ports": [{"port": 80, "name": "A_b"}]}, 'spec.ports[0].name: Invalid value: "A_b": a lowercase RFC'),
    "a protocol on top": (one(appProtocol="a/b/c"), 'spec.ports[0].appProtocol: Invalid value: "a/b/c": a valid label key'),
    "a key": (with_port(selector={"a b": "c"}), 'spec.selector: Invalid value: "a b": name part must consist of'),
    "a value": (with_port(selector={"a": "c d"}), 'spec.selector: Invalid value: "c d": a valid label must be'),
    "another's name": ({"type": "ExternalName", "externalName": "a b"}, 'spec.externalName: Invalid value: "a b": a lowercase'),
    "a class": (with_port(type="LoadBalancer", loadBalancerClass="b b"), 'spec.loadBalancerClass: Invalid value: "b b": name'),
}


@pytest.mark.parametrize(("spec", "begins"), LABELS.values(), ids=LABELS)
def test_invalid_names(store, spec, begins):
    assert refused(store, spec).startswith(begins)


TAKEN = {
    "a port by its name": one(targetPort="http", appProtocol="http"),
    "one port, two protocols": {
        "ports": [{"port": 53, "name": "a", "protocol": "UDP"}, {"port": 53, "name": "b", "protocol": "TCP"}]
    },
    "no head, no ports": {"clusterIP": "None"},
    "a name that says where it ends": {"type": "ExternalName", "externalName": "example.com."},
    "an address outside": with_port(externalIPs=["1.2.3.4"], externalTrafficPolicy="Local"),
    "near": with_port(trafficDistribution="PreferClose", internalTrafficPolicy="Local"),
    "clients": for_clients(86400),
}


@pytest.mark.parametrize("spec", TAKEN.values(), ids=TAKEN)
def test_valid_services(store, spec):
    assert store.create(SERVICES, "default", service(**spec)).name == "s"


def edit(store, **spec):
    document = store.get(SERVICES, "default", "s").document()
    document["spec"] |= spec
    return store.update(SERVICES, "default", "s", document).document()["spec"]


def test_a_load_balancer_gets_a_health_check_port_and_keeps_it_and_its_class(store):
    wanted = with_port(type="LoadBalancer", externalTrafficPolicy="Local", loadBalancerClass="a/b")
    made = store.create(SERVICES, "default", service(**wanted)).document()["spec"]
    port = made["healthCheckNodePort"]
    assert 30000 <= port <= 32767
    assert port != made["ports"][0]["nodePort"]
    assert edit(store, healthCheckNodePort=None)["healthCheckNodePort"] == port
    for change, why in (
        ({"loadBalancerClass": "a/c"}, 'spec.loadBalancerClass: Invalid value: "a/c": may not change once set'),
        ({"healthCheckNodePort": 30001}, "spec.healthCheckNodePort: Forbidden: field is immutable"),
    ):
        with pytest.raises(ApiError) as caught:
            edit(store, **change)
        assert str(caught.value) == f'Service "s" is invalid: {why}'
    assert "healthCheckNodePort" not in edit(store, type="ClusterIP")
