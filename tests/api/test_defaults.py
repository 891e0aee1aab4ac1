"""Test the defaults that the API server fills in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import LimitRange, Namespace, Node, Pod, ReplicationController
from moorage.api.defaults import (
    complete_pod_level,
    default_limit_range,
    default_namespace,
    default_node,
    default_pod,
    default_replication_controller,
    default_resource_claim,
    default_resource_claim_template,
)
from moorage.api.devices import ResourceClaim, ResourceClaimTemplate


def pod(spec: dict, labels: dict | None = None) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "labels": labels or {}}, "spec": spec}, Pod)


def containers(*resources: dict, **more: object) -> dict:
    return {"containers": [{"name": f"c{i}", "resources": r} for i, r in enumerate(resources)], **more}


REQUESTS = {  # limits, requests → requests
    "nothing": ({}, {}, {}),
    "limits alone": ({"cpu": "1", "nvidia.com/gpu": 2}, {}, {"cpu": "1", "nvidia.com/gpu": 2}),
    "requests alone": ({}, {"cpu": "1"}, {"cpu": "1"}),
    "one of two requests is missing": ({"cpu": "2", "memory": "1Gi"}, {"cpu": "1"}, {"cpu": "1", "memory": "1Gi"}),
    "an explicit zero stays": ({"cpu": "2"}, {"cpu": "0"}, {"cpu": "0"}),
}


@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize(("limits", "requests", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_limits_become_requests(limits, requests, expected, where):
    stored = default_pod(pod({where: [{"name": "c", "resources": {"limits": limits, "requests": requests}}]}))
    held = stored.spec.containers or stored.spec.init_containers
    assert held[0].resources.requests == expected


POD_LEVEL = {  # pod-level resources, containers' resources → pod-level requests, limits
    "no resources": (None, [{"limits": {"cpu": "1"}}], None, None),
    "empty": ({}, [{"requests": {"cpu": "1"}}], {}, {}),
    "requests alone stay": ({"requests": {"cpu": "2"}}, [{"requests": {"memory": "1Gi"}}], {"cpu": "2"}, {}),
    "limit becomes request": ({"limits": {"cpu": "2"}}, [{}], {"cpu": "2"}, {"cpu": "2"}),
    "containers' sum comes first": (
        {"limits": {"cpu": "2"}},
        [{"requests": {"cpu": "300m"}}, {"requests": {"cpu": "400m", "memory": "1Gi"}}],
        {"cpu": "700m", "memory": "1Gi"},
        {"cpu": "2"},
    ),
    "containers' limits count as requests": (
        {"limits": {"cpu": "2"}},
        [{"limits": {"cpu": "1"}}],
        {"cpu": "1"},
        {"cpu": "2"},
    ),
    "extended resources stay with the containers": (
        {"limits": {"cpu": "2"}},
        [{"limits": {"nvidia.com/gpu": 1}}],
        {"cpu": "2"},
        {"cpu": "2"},
    ),
    "ephemeral storage too": (
        {"limits": {"cpu": "2"}},
        [{"requests": {"ephemeral-storage": "1Gi"}}],
        {"cpu": "2"},
        {"cpu": "2"},
    ),
    "huge pages: limit from containers, request from limit": (
        {"limits": {"cpu": "2"}},
        [{"limits": {"hugepages-2Mi": "4Mi"}}],
        {"cpu": "2", "hugepages-2Mi": "4Mi"},
        {"cpu": "2", "hugepages-2Mi": "4Mi"},
    ),
    "huge pages requested by the pod get no limit": (
        {"requests": {"hugepages-2Mi": "2Mi"}},
        [{"limits": {"hugepages-2Mi": "4Mi"}}],
        {"hugepages-2Mi": "2Mi"},
        {},
    ),
}


@pytest.mark.parametrize(("own", "parts", "requests", "limits"), POD_LEVEL.values(), ids=POD_LEVEL)
def test_pod_level_resources_get_defaults(own, parts, requests, limits):
    stored = default_pod(pod(containers(*parts, resources=own))).spec.resources
    assert (stored and stored.requests) == requests
    assert (stored and stored.limits) == limits


def test_pod_level_requests_account_for_init_containers():
    inits = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "big", "resources": {"requests": {"cpu": "5"}}},
    ]
    spec = containers({"requests": {"cpu": "2"}}, initContainers=inits, resources={"limits": {"cpu": "9"}})
    assert default_pod(pod(spec)).spec.resources.requests == {"cpu": "6"}


PORTS = {  # host network?, port → host port, protocol
    "no host network": (False, {"containerPort": 80}, 0, "TCP"),
    "host network": (True, {"containerPort": 80}, 80, "TCP"),
    "an explicit host port stays": (True, {"containerPort": 80, "hostPort": 81}, 81, "TCP"),
    "an explicit protocol stays": (False, {"containerPort": 53, "protocol": "UDP"}, 0, "UDP"),
    "empty protocol": (False, {"containerPort": 53, "protocol": ""}, 0, "TCP"),
}


@pytest.mark.parametrize(("host_network", "port", "host_port", "protocol"), PORTS.values(), ids=PORTS)
def test_ports(host_network, port, host_port, protocol):
    spec = {"hostNetwork": host_network, "containers": [{"name": "c", "ports": [port]}]}
    stored = default_pod(pod(spec)).spec.containers[0].ports[0]
    assert (stored.host_port, stored.protocol) == (host_port, protocol)


def test_empty_strings_and_nulls_get_defaults():
    spec = default_pod(pod({"schedulerName": "", "restartPolicy": "", "terminationGracePeriodSeconds": None})).spec
    assert (spec.scheduler_name, spec.restart_policy, spec.termination_grace_period_seconds) == (
        "default-scheduler",
        "Always",
        30,
    )


def test_a_ceph_volume_gets_its_default_pool():
    stored = default_pod(pod({"volumes": [{"name": "v", "rbd": {"image": "i", "monitors": ["m"]}}]}))
    assert stored.spec.volumes[0].rbd == {"image": "i", "monitors": ["m"], "pool": "rbd"}


TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
LABEL_KEYS = {  # the term's keys → what is added to its selector
    "a label of the pod": ({"matchLabelKeys": ["hash"]}, [("hash", "In", ("a1",))]),
    "a label the pod lacks": ({"matchLabelKeys": ["other"]}, []),
    "mismatch": ({"mismatchLabelKeys": ["hash"]}, [("hash", "NotIn", ("a1",))]),
    "both": (
        {"matchLabelKeys": ["hash"], "mismatchLabelKeys": ["tenant"]},
        [("hash", "In", ("a1",)), ("tenant", "NotIn", ("t",))],
    ),
    "already merged": (
        {
            "matchLabelKeys": ["hash"],
            "labelSelector": {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["a1"]}]},
        },
        [("hash", "In", ("a1",))],
    ),
}


@pytest.mark.parametrize("side", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("strength", ["required", "preferred"])
@pytest.mark.parametrize(("keys", "added"), LABEL_KEYS.values(), ids=LABEL_KEYS)
def test_label_keys_of_affinity_terms_are_merged(keys, added, side, strength):
    term = {**TERM, **keys}
    terms = [term] if strength == "required" else [{"weight": 1, "podAffinityTerm": term}]
    spec = {"affinity": {side: {f"{strength}DuringSchedulingIgnoredDuringExecution": terms}}}
    affinity = default_pod(pod(spec, {"hash": "a1", "tenant": "t"})).spec.affinity
    half = affinity.pod_affinity or affinity.pod_anti_affinity
    required = half.required_during_scheduling_ignored_during_execution
    stored = required[0] if required else half.preferred_during_scheduling_ignored_during_execution[0].pod_affinity_term
    assert [(e.key, e.operator, e.values) for e in stored.label_selector.match_expressions] == added


def test_label_keys_of_spread_constraints_are_merged_and_a_nil_selector_stays_nil():
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["hash"]}
    spec = {"topologySpreadConstraints": [{**constraint, "labelSelector": {}}, constraint]}
    with_selector, without = default_pod(pod(spec, {"hash": "a1"})).spec.topology_spread_constraints
    assert [(e.key, e.operator, e.values) for e in with_selector.label_selector.match_expressions] == [("hash", "In", ("a1",))]
    assert without.label_selector is None


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu"]), st.integers(0, 5).map(str))
resources = st.fixed_dictionaries({"limits": amounts, "requests": amounts})
ports = st.lists(st.fixed_dictionaries({"containerPort": st.integers(1, 9), "hostPort": st.integers(0, 2)}), max_size=2)
holders = st.lists(
    st.fixed_dictionaries({"resources": resources, "ports": ports, "restartPolicy": st.sampled_from([None, "Always"])}),
    max_size=3,
)
specs = st.fixed_dictionaries(
    {
        "containers": holders,
        "initContainers": holders,
        "hostNetwork": st.booleans(),
        "resources": st.none() | resources,
        "affinity": st.none() | st.just({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}),
    }
)


@pytest.mark.slow
@settings(max_examples=50)
@given(spec=specs)
def test_defaulting_is_idempotent_and_keeps_the_object(spec):
    once = default_pod(pod(spec))
    assert default_pod(once) is once


FROM_1_37 = {  # pod-level resources, the containers' → requests, limits
    "a request above the limits of all containers": (
        {"requests": {"memory": "5Gi"}},
        [{"limits": {"memory": "300Mi"}}],
        {"memory": "5Gi"},
        {"memory": "5Gi"},
    ),
    "the containers' limits": (
        {"requests": {"cpu": "1"}},
        [{"limits": {"cpu": "2", "memory": "1Gi"}}, {"limits": {"cpu": "500m", "memory": "1Gi"}}],
        {"cpu": "1", "memory": "2Gi"},
        {"cpu": "2500m", "memory": "2Gi"},
    ),
    "a container without limit": (
        {"requests": {"cpu": "1"}},
        [{"limits": {"cpu": "2"}}, {"requests": {"memory": "1Gi"}}],
        {"cpu": "1", "memory": "1Gi"},
        {},
    ),
}


@pytest.mark.parametrize(("own", "parts", "requests", "limits"), FROM_1_37.values(), ids=FROM_1_37)
def test_pod_level_resources_are_completed_on_creation(own, parts, requests, limits):
    stored = complete_pod_level(default_pod(pod(containers(*parts, resources=own)))).spec.resources
    assert (stored.requests, stored.limits) == (requests, limits)


NODES = {  # capacity, allocatable → allocatable
    "defaults to capacity": ({"cpu": "4"}, {}, {"cpu": "4"}),
    "given": ({"cpu": "4"}, {"cpu": "3"}, {"cpu": "3"}),
    "neither": ({}, {}, {}),
}


@pytest.mark.parametrize(("capacity", "allocatable", "expected"), NODES.values(), ids=NODES)
def test_nodes(capacity, allocatable, expected):
    node = msgspec.convert({"status": {"capacity": capacity, "allocatable": allocatable}}, Node)
    stored = default_node(node)
    assert stored.status.allocatable == expected
    assert default_node(stored) is stored


def test_namespaces_get_their_name_label():
    namespace = msgspec.convert({"metadata": {"name": "prod", "labels": {"team": "a"}}}, Namespace)
    stored = default_namespace(namespace)
    assert stored.metadata.labels == {"team": "a", "kubernetes.io/metadata.name": "prod"}
    assert default_namespace(stored) is stored


def test_replication_controllers_select_their_template_labels():
    made = {"template": {"metadata": {"labels": {"app": "a"}}}}
    stored = default_replication_controller(msgspec.convert({"spec": made}, ReplicationController))
    assert stored.spec.selector == {"app": "a"}
    assert default_replication_controller(stored) is stored


def test_limit_ranges_complete_their_default_requests():
    item = {
        "type": "Container",
        "max": {"cpu": "4", "memory": "4Gi"},
        "min": {"cpu": "100m", "ephemeral-storage": "1Gi"},
        "default": {"cpu": "1"},
    }
    stored = default_limit_range(
        msgspec.convert({"spec": {"limits": [item, {"type": "Pod", "max": {"cpu": "9"}}]}}, LimitRange)
    )
    container, whole = stored.spec.limits
    assert container.default == {"cpu": "1", "memory": "4Gi"}
    assert container.default_request == {"cpu": "1", "memory": "4Gi", "ephemeral-storage": "1Gi"}
    assert whole.default == {}
    assert default_limit_range(stored) is stored


DEVICE_REQUESTS = {  # the request → mode, count
    "no mode": ({}, "ExactCount", 1),
    "none": ({"count": 0}, "ExactCount", 1),
    "empty mode": ({"allocationMode": "", "count": 3}, "ExactCount", 3),
    "all": ({"allocationMode": "All", "count": 0}, "All", 0),
}


@pytest.mark.parametrize(("asked", "mode", "count"), DEVICE_REQUESTS.values(), ids=DEVICE_REQUESTS)
def test_device_requests_default_to_one_device(asked, mode, count):
    exactly = {"name": "a", "exactly": {"deviceClassName": "gpu", **asked}}
    choice = {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "gpu", **asked}]}
    spec = {"devices": {"requests": [exactly, choice]}}
    stored = default_resource_claim(msgspec.convert({"spec": spec}, ResourceClaim))
    held = [stored.spec.devices.requests[0].exactly, stored.spec.devices.requests[1].first_available[0]]
    assert [(one.allocation_mode, one.count) for one in held] == [(mode, count)] * 2
    assert default_resource_claim(stored) is stored
    template = default_resource_claim_template(msgspec.convert({"spec": {"spec": spec}}, ResourceClaimTemplate))
    assert template.spec.spec == stored.spec
