"""Test what the API server accepts and rejects in pods."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Pod
from moorage.api.defaults import default_pod
from moorage.api.validation import PodValidator, validate

META = {"name": "x", "namespace": "default"}


def faults(kind: type, data: dict) -> list[str]:
    """Return ``path: kind of fault`` for each fault."""
    found = msgspec.convert({"metadata": META, **data}, kind)
    return [f"{fault.field}: {fault.kind}" for fault in validate(default_pod(found) if kind is Pod else found)]


def pod_faults(**spec: object) -> list[str]:
    return faults(Pod, {"spec": {"containers": [{"name": "c"}], **spec}})


# -- metadata -----------------------------------------------------------------------------------------------------------

METADATA = {
    "sound": ({}, []),
    "no name": ({"name": ""}, ["metadata.name: Required value"]),
    "long name": ({"name": "a" * 254}, ["metadata.name: Invalid value"]),
    "253 is fine": ({"name": "a" * 253}, []),
    "upper case": ({"name": "Web"}, ["metadata.name: Invalid value"]),
    "dots": ({"name": "a..b"}, ["metadata.name: Invalid value"]),
    "a path": ({"name": "../x"}, ["metadata.name: Invalid value"]),
    "an escape": ({"name": "%2e%2e%2f"}, ["metadata.name: Invalid value"]),
    "NUL": ({"name": "a\0b"}, ["metadata.name: Invalid value"]),
    "newline": ({"name": "web\n"}, ["metadata.name: Invalid value"]),
    "emoji": ({"name": "🚢"}, ["metadata.name: Invalid value"]),
    "right to left": ({"name": "a\u202eb"}, ["metadata.name: Invalid value"]),
    "homoglyph": ({"name": "wеb"}, ["metadata.name: Invalid value"]),  # noqa: RUF001
    "generateName": ({"generateName": "web-"}, []),
    "generateName of 300": ({"generateName": "a" * 300}, ["metadata.generateName: Invalid value"]),
    "no namespace": ({"namespace": ""}, ["metadata.namespace: Required value"]),
    "a namespace with dots": ({"namespace": "a.b"}, ["metadata.namespace: Invalid value"]),
    "label key of 64": ({"labels": {"a" * 64: "b"}}, ["metadata.labels: Invalid value"]),
    "label value of 64": ({"labels": {"a": "b" * 64}}, ["metadata.labels: Invalid value"]),
    "label value with newline": ({"labels": {"a": "b\n"}}, ["metadata.labels: Invalid value"]),
    "empty label value": ({"labels": {"a": ""}}, []),
    "annotation key in upper case": ({"annotations": {"Example.COM/Key": "any thing"}}, []),
    "empty annotation key": ({"annotations": {"": "x"}}, ["metadata.annotations: Invalid value"] * 2),
    "256 KiB of annotations": ({"annotations": {"a": "b" * (256 * 1024 - 1)}}, []),
    "annotations that are too large": ({"annotations": {"a": "b" * (256 * 1024)}}, ["metadata.annotations: Too long"]),
    "two controllers": (
        {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": n, "uid": n, "controller": True} for n in "ab"]},
        ["metadata.ownerReferences: Invalid value"],
    ),
    "an owner without a name": (
        {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "uid": "u"}]},
        ["metadata.ownerReferences[0].name: Required value"],
    ),
    "a finalizer": ({"finalizers": ["no such thing"]}, ["metadata.finalizers: Invalid value"]),
}


@pytest.mark.parametrize(("metadata", "expected"), METADATA.values(), ids=METADATA)
def test_metadata(metadata, expected):
    assert faults(Pod, {"metadata": {**META, **metadata}, "spec": {"containers": [{"name": "c"}]}}) == expected


# -- containers and resources ---------------------------------------------------------------------------------------------


def container(**more: object) -> dict:
    return {"containers": [{"name": "c", **more}]}


def resources(requests: dict | None = None, limits: dict | None = None) -> dict:
    return container(resources={"requests": requests or {}, "limits": limits or {}})


RES = "spec.containers[0].resources"
CONTAINERS = {
    "sound": (container(), []),
    "no containers": ({"containers": []}, ["spec.containers: Required value"]),
    "no name": ({"containers": [{}]}, ["spec.containers[0].name: Required value"]),
    "a name with dots": ({"containers": [{"name": "a.b"}]}, ["spec.containers[0].name: Invalid value"]),
    "a name used twice": ({"containers": [{"name": "c"}, {"name": "c"}]}, ["spec.containers[1].name: Duplicate value"]),
    "a name used twice, by an init container": (
        {"containers": [{"name": "c"}], "initContainers": [{"name": "c"}]},
        ["spec.initContainers[0].name: Duplicate value"],
    ),
    "1 000 containers": ({"containers": [{"name": f"c{i}"} for i in range(1000)]}, []),
    "sidecar": ({**container(), "initContainers": [{"name": "s", "restartPolicy": "Always"}]}, []),
    "restart policy": (container(restartPolicy="Sometimes"), ["spec.containers[0].restartPolicy: Unsupported value"]),
    "requests and limits": (resources({"cpu": "1"}, {"cpu": "1", "memory": "1Gi"}), []),
    "requests above limits": (resources({"cpu": "2"}, {"cpu": "1"}), [f"{RES}.requests: Invalid value"]),
    "equal in other notation": (resources({"cpu": "1000m"}, {"cpu": "1"}), []),
    "zero": (resources({"cpu": "0", "memory": 0}), []),
    "negative request": (resources({"cpu": "-1"}), [f"{RES}.requests[cpu]: Invalid value"]),
    "negative limit": (
        resources(limits={"memory": "-1Gi"}),
        [f"{RES}.limits[memory]: Invalid value", f"{RES}.requests[memory]: Invalid value"],
    ),
    "huge": (resources({"cpu": "1e30", "memory": "9223372036854775807"}), []),
    "no quantity": (resources({"cpu": "1.1.M"}), [f"{RES}.requests[cpu]: Invalid value"]),
    "a quantity with a newline": (resources({"cpu": "1\n"}), [f"{RES}.requests[cpu]: Invalid value"]),
    "unknown resource": (resources({"foo": "1"}), [f"{RES}.requests[foo]: Invalid value"] * 2),
    "a resource of quotas": (resources({"pods": "1"}), [f"{RES}.requests[pods]: Invalid value"]),
    "kubernetes.io/foo": (resources({"kubernetes.io/foo": "1"}), []),
    "example.com/foo": (resources({"example.com/foo": "1"}, {"example.com/foo": "1"}), []),
    "extended without limit": (resources({"example.com/foo": "1"}), [f"{RES}.limits: Required value"]),
    "extended below its limit": (
        resources({"example.com/foo": "1"}, {"example.com/foo": "2"}),
        [f"{RES}.requests: Invalid value"],
    ),
    "a fraction of an extended resource": (
        resources({"example.com/foo": "100m"}, {"example.com/foo": "100m"}),
        [f"{RES}.limits[example.com/foo]: Invalid value", f"{RES}.requests[example.com/foo]: Invalid value"],
    ),
    "a reserved prefix of quotas": (
        resources(limits={"requests.example.com/foo": "1"}),
        [f"{RES}.limits[requests.example.com/foo]: Invalid value", f"{RES}.requests[requests.example.com/foo]: Invalid value"],
    ),
    "an invalid name": (
        resources({"a b": "1"}),
        [f"{RES}.requests[a b]: Invalid value", f"{RES}.requests[a b]: Invalid value"],
    ),
    "huge pages": (resources({"cpu": "1"}, {"cpu": "1", "hugepages-2Mi": "4Mi"}), []),
    "huge pages alone": (resources(limits={"hugepages-2Mi": "4Mi"}), [f"{RES}: Forbidden"]),
    "fractional huge pages": (
        resources({"cpu": "1"}, {"hugepages-2Mi": "3Mi"}),
        [f"{RES}.limits[hugepages-2Mi]: Invalid value", f"{RES}.requests[hugepages-2Mi]: Invalid value"],
    ),
    "pod level": ({**container(), "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}, []),
    "unsupported pod-level resource": (
        {**container(), "resources": {"limits": {"ephemeral-storage": "1"}}},
        ["spec.resources.limits[ephemeral-storage]: Unsupported value"],
    ),
    "pod level claims": ({**container(), "resources": {"claims": [{"name": "x"}]}}, ["spec.resources.claims: Forbidden"]),
    "overhead": ({**container(), "overhead": {"cpu": "250m"}}, []),
    "negative overhead": ({**container(), "overhead": {"cpu": "-1"}}, ["spec.overhead.limits[cpu]: Invalid value"]),
    "a claim of the pod": (
        {**container(resources={"claims": [{"name": "g"}]}), "resourceClaims": [{"name": "g", "resourceClaimName": "x"}]},
        [],
    ),
    "an undeclared claim": (container(resources={"claims": [{"name": "g"}]}), [f"{RES}.claims[0]: Not found"]),
    "a claim twice": (
        {
            **container(resources={"claims": [{"name": "g"}, {"name": "g"}]}),
            "resourceClaims": [{"name": "g", "resourceClaimName": "x"}],
        },
        [f"{RES}.claims[1]: Duplicate value"],
    ),
}


@pytest.mark.parametrize(("spec", "expected"), CONTAINERS.values(), ids=CONTAINERS)
def test_containers(spec, expected):
    assert faults(Pod, {"spec": spec}) == expected


PORT = "spec.containers[0].ports"
PORTS = {
    "none": ([], []),
    "sound": ([{"containerPort": 80, "hostPort": 8080, "protocol": "UDP", "name": "dns"}], []),
    "no port": ([{}], [f"{PORT}[0].containerPort: Required value"]),
    "negative": ([{"containerPort": 80, "hostPort": -1}], [f"{PORT}[0].hostPort: Invalid value"]),
    "port too large": (
        [{"containerPort": 65536, "hostPort": 65536}],
        [f"{PORT}[0].containerPort: Invalid value", f"{PORT}[0].hostPort: Invalid value"],
    ),
    "host port zero": ([{"containerPort": 80, "hostPort": 0}], []),
    "protocol": ([{"containerPort": 80, "protocol": "ICMP"}], [f"{PORT}[0].protocol: Unsupported value"]),
    "host port twice": ([{"containerPort": 80, "hostPort": 80}] * 2, [f"{PORT}[1].hostPort: Duplicate value"]),
    "host port on two addresses": (
        [{"containerPort": 80, "hostPort": 80, "hostIP": ip} for ip in ("10.0.0.1", "10.0.0.2")],
        [],
    ),
    "container port twice": ([{"containerPort": 80}] * 2, []),
    "a name twice": (
        [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}],
        [f"{PORT}[1].name: Duplicate value"],
    ),
    "a bad name": ([{"containerPort": 80, "name": "80"}], [f"{PORT}[0].name: Invalid value"]),
    "a very bad name": ([{"containerPort": 80, "name": "-A--0123456789012"}], [f"{PORT}[0].name: Invalid value"] * 5),
    "a host address": ([{"containerPort": 80, "hostPort": 80, "hostIP": "::"}], []),
}


@pytest.mark.parametrize(("ports", "expected"), PORTS.values(), ids=PORTS)
def test_ports(ports, expected):
    assert pod_faults(**container(ports=ports)) == expected


def test_host_ports_of_host_network_pods_default_to_container_ports():
    clash = [{"containerPort": 80, "hostPort": 81}]
    assert pod_faults(**container(ports=clash), hostNetwork=True) == [f"{PORT}[0].hostPort: Invalid value"]
    assert pod_faults(**container(ports=[{"containerPort": 80}]), hostNetwork=True) == []


# -- affinity -----------------------------------------------------------------------------------------------------------

REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def expression(operator: str, *values: str, key: str = "k") -> dict:
    return {"key": key, "operator": operator, "values": list(values)}


NODE_EXPRESSIONS = {
    "In": (expression("In", "a"), []),
    "In nothing": (expression("In"), ["values: Required value"]),
    "Exists": (expression("Exists"), []),
    "Exists with values": (expression("Exists", "x"), ["values: Forbidden"]),
    "Gt": (expression("Gt", "5"), []),
    "Gt with any value": (expression("Gt", "abc"), []),
    "Gt two": (expression("Gt", "1", "2"), ["values: Required value"]),
    "unknown operator": (expression("Foo", "x"), ["operator: Invalid value"]),
    "no operator": (expression(""), ["operator: Invalid value"]),
    "no key": (expression("Exists", key=""), ["key: Invalid value", "key: Invalid value"]),
    "an invalid label value": (expression("In", "a b"), ["values[0]: Invalid value"]),
}


@pytest.mark.parametrize(("asked", "expected"), NODE_EXPRESSIONS.values(), ids=NODE_EXPRESSIONS)
def test_node_expressions(asked, expected):
    term = {"matchExpressions": [asked]}
    at = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
    found = pod_faults(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}})
    assert found == [f"{at}.{fault}" for fault in expected]
    at = f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0]"
    found = pod_faults(affinity={"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": term}]}})
    assert found == [f"{at}.{fault}" for fault in expected if not fault.startswith("values[")]


NODE = "spec.affinity.nodeAffinity"
NODE_AFFINITY = {
    "no terms": ({REQUIRED: {"nodeSelectorTerms": []}}, [f"{NODE}.{REQUIRED}.nodeSelectorTerms: Required value"]),
    "an empty term": ({REQUIRED: {"nodeSelectorTerms": [{}]}}, []),
    "weight 0": ({PREFERRED: [{"weight": 0, "preference": {}}]}, [f"{NODE}.{PREFERRED}[0].weight: Invalid value"]),
    "weight 101": ({PREFERRED: [{"weight": 101, "preference": {}}]}, [f"{NODE}.{PREFERRED}[0].weight: Invalid value"]),
    "weight -1": ({PREFERRED: [{"weight": -1, "preference": {}}]}, [f"{NODE}.{PREFERRED}[0].weight: Invalid value"]),
    "weight 100": ({PREFERRED: [{"weight": 100, "preference": {}}]}, []),
    "by name": ({REQUIRED: {"nodeSelectorTerms": [{"matchFields": [expression("In", "n", key="metadata.name")]}]}}, []),
    "two names": (
        {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [expression("In", "n", "m", key="metadata.name")]}]}},
        [f"{NODE}.{REQUIRED}.nodeSelectorTerms[0].matchFields[0].values: Required value"],
    ),
    "an unsupported field": (
        {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [expression("In", "n", key="metadata.uid")]}]}},
        [f"{NODE}.{REQUIRED}.nodeSelectorTerms[0].matchFields[0].key: Invalid value"],
    ),
    "a supported field": (
        {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [expression("Exists", key="metadata.name")]}]}},
        [f"{NODE}.{REQUIRED}.nodeSelectorTerms[0].matchFields[0].operator: Invalid value"],
    ),
    "1 000 terms": ({REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression("Exists")]}] * 1000}}, []),
}


@pytest.mark.parametrize(("affinity", "expected"), NODE_AFFINITY.values(), ids=NODE_AFFINITY)
def test_node_affinity(affinity, expected):
    assert pod_faults(affinity={"nodeAffinity": affinity}) == expected


TERMS = {
    "sound": ({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}, []),
    "no selector": ({"topologyKey": "zone"}, []),
    "no topology key": ({}, ["topologyKey: Required value", "topologyKey: Invalid value", "topologyKey: Invalid value"]),
    "a bad topology key": ({"topologyKey": "a b"}, ["topologyKey: Invalid value"]),
    "namespaces and their selector": ({"topologyKey": "zone", "namespaces": ["a"], "namespaceSelector": {}}, []),
    "a bad namespace": ({"topologyKey": "zone", "namespaces": ["A"]}, ["namespace: Invalid value"]),
    "a bad operator": (
        {"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression("Gt", "1")]}},
        ["labelSelector.matchExpressions[0].operator: Invalid value"],
    ),
    "In nothing": (
        {"topologyKey": "zone", "namespaceSelector": {"matchExpressions": [expression("NotIn")]}},
        ["namespaceSelector.matchExpressions[0].values: Required value"],
    ),
    "Exists with values": (
        {"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression("DoesNotExist", "x")]}},
        ["labelSelector.matchExpressions[0].values: Forbidden"],
    ),
    "an invalid label value": (
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b c"}}},
        ["labelSelector.matchLabels: Invalid value"],
    ),
    "label keys": ({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["x"]}, []),
    "label keys without selector": ({"topologyKey": "zone", "matchLabelKeys": ["x"]}, ["matchLabelKeys: Forbidden"]),
    "invalid label keys": (
        {"topologyKey": "zone", "labelSelector": {}, "mismatchLabelKeys": ["a b"]},
        ["mismatchLabelKeys[0]: Invalid value"],
    ),
    "one key in both lists": (
        {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["x"], "mismatchLabelKeys": ["x"]},
        ["matchLabelKeys[0]: Invalid value"],
    ),
}


@pytest.mark.parametrize("side", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(("term", "expected"), TERMS.values(), ids=TERMS)
def test_pod_affinity_terms(term, expected, side):
    at = f"spec.affinity.{side}"
    assert pod_faults(affinity={side: {REQUIRED: [term]}}) == [f"{at}.{REQUIRED}[0].{fault}" for fault in expected]
    preferred = {"weight": 0, "podAffinityTerm": term}
    assert pod_faults(affinity={side: {PREFERRED: [preferred]}}) == [
        f"{at}.{PREFERRED}[0].weight: Invalid value",
        *(f"{at}.{PREFERRED}[0].podAffinityTerm.{fault}" for fault in expected),
    ]


def test_a_key_in_the_selector_and_in_the_label_keys():
    """Defaulting merges the key into the selector, which then holds it twice: a fault."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"x": "1"}}, "matchLabelKeys": ["x"]}
    labelled = {
        "metadata": {**META, "labels": {"x": "1"}},
        "spec": {**container(), "affinity": {"podAffinity": {REQUIRED: [term]}}},
    }
    assert faults(Pod, labelled) == [f"spec.affinity.podAffinity.{REQUIRED}[0][0]: Invalid value"]


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
SPREADS = {
    "sound": ({}, []),
    "maxSkew 0": ({"maxSkew": 0}, ["maxSkew: Invalid value"]),
    "maxSkew -1": ({"maxSkew": -1}, ["maxSkew: Invalid value"]),
    "maxSkew 2^31": ({"maxSkew": 2**31}, ["maxSkew: Invalid value"]),
    "no topology key": ({"topologyKey": ""}, ["topologyKey: Required value"]),
    "when?": ({"whenUnsatisfiable": "Maybe"}, ["whenUnsatisfiable: Unsupported value"]),
    "no when": ({"whenUnsatisfiable": ""}, ["whenUnsatisfiable: Unsupported value"]),
    "minDomains": ({"minDomains": 3}, []),
    "minDomains 0": ({"minDomains": 0}, ["minDomains: Invalid value"]),
    "minDomains of a soft constraint": (
        {"minDomains": 3, "whenUnsatisfiable": "ScheduleAnyway"},
        ["minDomains: Invalid value"],
    ),
    "policies": ({"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}, []),
    "unknown inclusion policy": ({"nodeTaintsPolicy": "Maybe"}, ["nodeTaintsPolicy: Unsupported value"]),
    "no selector": ({"labelSelector": None}, []),
    "label keys without selector": ({"labelSelector": None, "matchLabelKeys": ["x"]}, ["matchLabelKeys: Forbidden"]),
}


@pytest.mark.parametrize(("changes", "expected"), SPREADS.values(), ids=SPREADS)
def test_spread_constraints(changes, expected):
    at = "spec.topologySpreadConstraints[0]"
    assert pod_faults(topologySpreadConstraints=[{**SPREAD, **changes}]) == [f"{at}.{fault}" for fault in expected]


def test_spread_constraints_must_be_unique():
    assert pod_faults(topologySpreadConstraints=[SPREAD, SPREAD]) == [
        "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value"
    ]
    many = [{**SPREAD, "topologyKey": f"k{i}"} for i in range(500)]
    assert pod_faults(topologySpreadConstraints=many) == []


TOLERATIONS = {
    "everything": ({"operator": "Exists"}, []),
    "Equal": ({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}, []),
    "no key and Equal": ({"operator": "Equal"}, ["operator: Invalid value"]),
    "no key and no operator": ({}, ["operator: Invalid value"]),
    "seconds": ({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1}, []),
    "tolerationSeconds with another effect": (
        {"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1},
        ["effect: Invalid value"],
    ),
    "Exists with a value": ({"key": "a", "operator": "Exists", "value": "b"}, ["operator: Invalid value"]),
    "a bad value": ({"key": "a", "value": "b c"}, ["operator: Invalid value"]),
    "a bad key": ({"key": "a b"}, ["key: Invalid value"]),
    "Gt needs its gate": ({"key": "a", "operator": "Gt", "value": "1"}, ["operator: Unsupported value"]),
    "unknown operator": ({"key": "a", "operator": "Foo"}, ["operator: Unsupported value"]),
    "unknown effect": ({"key": "a", "effect": "Foo"}, ["effect: Unsupported value"]),
}


@pytest.mark.parametrize(("toleration", "expected"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_tolerations(toleration, expected):
    assert pod_faults(tolerations=[toleration]) == [f"spec.tolerations[0].{fault}" for fault in expected]


REST = {
    "node selector": ({"nodeSelector": {"a b": "c"}}, ["spec.nodeSelector: Invalid value"]),
    "gates": ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, ["spec.schedulingGates[1]: Duplicate value"]),
    "a gate without name": ({"schedulingGates": [{}]}, ["spec.schedulingGates[0]: Invalid value"] * 2),
    "restart policy": ({"restartPolicy": "Sometimes"}, ["spec.restartPolicy: Unsupported value"]),
    "preemption policy": ({"preemptionPolicy": "Always"}, ["spec.preemptionPolicy: Unsupported value"]),
    "empty preemption policy": ({"preemptionPolicy": ""}, ["spec.preemptionPolicy: Required value"]),
    "node name": ({"nodeName": "A"}, ["spec.nodeName: Invalid value"]),
    "priority": ({"priority": 2**31 - 1}, []),
    "priority 2^31": ({"priority": 2**31}, ["spec.priority: Invalid value"]),
    "priority below": ({"priority": -(2**31) - 1}, ["spec.priority: Invalid value"]),
    "priority class": ({"priorityClassName": "A b"}, ["spec.priorityClassName: Invalid value"]),
    "runtime class": ({"runtimeClassName": "A"}, ["spec.runtimeClassName: Invalid value"]),
    "any scheduler name": ({"schedulerName": "x\n" * 300}, []),
    "a volume name used twice": ({"volumes": [{"name": "v"}, {"name": "v"}]}, ["spec.volumes[1].name: Duplicate value"]),
    "a claim without a name": (
        {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
        ["spec.volumes[0].persistentVolumeClaim.claimName: Required value"],
    ),
    "claims": (
        {"resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "x"}]},
        ["spec.resourceClaims[1].name: Duplicate value"],
    ),
    "a claim without a source": ({"resourceClaims": [{"name": "a"}]}, ["spec.resourceClaims[0]: Invalid value"]),
    "a claim with two sources": (
        {"resourceClaims": [{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]},
        ["spec.resourceClaims[0]: Invalid value"],
    ),
}


@pytest.mark.parametrize(("spec", "expected"), REST.values(), ids=REST)
def test_other_fields_of_a_pod(spec, expected):
    assert pod_faults(**spec) == expected


# -- the cached path ------------------------------------------------------------------------------------------------------

specs = st.fixed_dictionaries(
    {
        "containers": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["a", "b", "A"]),
                    "resources": st.fixed_dictionaries(
                        {"requests": st.dictionaries(st.sampled_from(["cpu", "foo"]), st.sampled_from(["1", "-1"]), max_size=1)}
                    ),
                }
            ),
            min_size=0,
            max_size=2,
        ),
        "nodeName": st.sampled_from(["", "n1", "N"]),
        "volumes": st.lists(st.sampled_from([{"name": "v"}, {"name": "w"}, {}]), max_size=2),
        "tolerations": st.lists(st.sampled_from([{"operator": "Exists"}, {}]), max_size=1),
    }
)


@settings(max_examples=50)
@given(
    pods=st.lists(
        st.tuples(specs, st.sampled_from(["x", "y", "Z"]), st.sampled_from([{}, {"a": "b"}, {"a b": ""}])), max_size=6
    )
)
@pytest.mark.slow
def test_validation_by_shape_finds_what_full_validation_finds(pods):
    validator = PodValidator()
    for spec, name, noted in pods:
        data = {"metadata": {"name": name, "namespace": "default", "annotations": noted}, "spec": copy.deepcopy(spec)}
        found = default_pod(msgspec.convert(data, Pod))
        assert sorted(map(str, validator(found))) == sorted(map(str, validate(found)))
