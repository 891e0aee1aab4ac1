"""Test that pod-level resources cover the containers' requests and limits."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.core import Pod, PodSpec
from moorage.api.validation.pods import pod_level_faults
from moorage.state.pod_info import PodInfo


def faults_of(spec):
    return [str(fault) for fault in pod_level_faults("spec.resources", msgspec.convert(spec, PodSpec))]


def container(requests=None, limits=None, **more):
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def at_least(what, part, given, needed):
    return (
        f'spec.resources.{part}[{what}]: Invalid value: "{given}": must be greater than or equal to aggregate container '
        f"{part} of {needed}"
    )


CASES = {  # the pod's resources, its containers', its init containers', the reported fault
    "enough": ({"requests": {"cpu": "1"}}, [container({"cpu": "400m"}), container({"cpu": "0.6"})], [], []),
    "a resource the pod level omits": ({"requests": {"cpu": "1"}}, [container({"memory": "1Gi"})], [], []),
    "less than the sum": (
        {"requests": {"cpu": "1"}}, [container({"cpu": "600m"}), container({"cpu": "600m"})], [],
        [at_least("cpu", "requests", "1", "1200m")],
    ),
    "less than an init container": (
        {"requests": {"memory": "1Gi"}}, [container({"memory": "1Mi"})], [container({"memory": "2Gi"})],
        [at_least("memory", "requests", "1Gi", "2Gi")],
    ),
    "an init container with a sidecar": (
        {"requests": {"cpu": "1"}}, [container({"cpu": "1m"})],
        [container({"cpu": "500m"}, restartPolicy="Always"), container({"cpu": "600m"})],
        [at_least("cpu", "requests", "1", "1100m")],
    ),
    "an init container before the sidecar": (
        {"requests": {"cpu": "1"}}, [container({"cpu": "1m"})],
        [container({"cpu": "600m"}), container({"cpu": "500m"}, restartPolicy="Always")], [],
    ),
    "overcommitted limits": (
        {"limits": {"cpu": "1"}}, [container(limits={"cpu": "1"}), container(limits={"cpu": "1"})], [], [],
    ),
    "a container limit above the pod's": (
        {"limits": {"cpu": "1"}}, [container(), container(limits={"cpu": "1500m"})], [],
        ['spec.resources.containers[1][cpu].limits: Invalid value: "1500m": must be less than or equal to pod limits of 1'],
    ),
    "huge pages": (
        {"limits": {"hugepages-2Mi": "2Mi"}},
        [container(limits={"hugepages-2Mi": "2Mi"}), container(limits={"hugepages-2Mi": "2Mi"})], [],
        [at_least("hugepages-2Mi", "limits", "2Mi", "4Mi")],
    ),
    "an invalid quantity": ({"requests": {"cpu": "1"}}, [container({"cpu": "much"})], [], []),
}  # fmt: skip


@pytest.mark.parametrize(("pod_resources", "containers", "first", "expected"), CASES.values(), ids=CASES)
def test_pod_level_resources_cover_containers(pod_resources, containers, first, expected):
    assert faults_of({"resources": pod_resources, "containers": containers, "initContainers": first}) == expected


def test_pods_without_pod_level_resources_pass():
    assert faults_of({"containers": [container({"cpu": "4"})]}) == []


AMOUNTS = st.integers(0, 9).map(lambda milli: container({"cpu": f"{milli}m"}))
FIRST = st.tuples(AMOUNTS, st.booleans()).map(lambda one: one[0] | ({"restartPolicy": "Always"} if one[1] else {}))


@given(st.lists(AMOUNTS, min_size=1, max_size=3), st.lists(FIRST, max_size=4), st.integers(1, 40))
def test_pod_level_requests_must_cover_what_the_node_is_charged(containers, first, milli):
    spec = {"containers": containers, "initContainers": first}
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)
    charged = PodInfo(pod).requests["cpu"]
    assert bool(faults_of(spec | {"resources": {"requests": {"cpu": f"{milli}m"}}})) == (charged > milli)
