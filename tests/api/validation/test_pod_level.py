"""What a pod has as a whole must hold what its containers ask for."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.core import Pod, PodSpec
from moorage.api.validation.pod_level import pod_level_faults
from moorage.state.pod_info import PodInfo


def told(spec):
    return [str(fault) for fault in pod_level_faults("spec.resources", msgspec.convert(spec, PodSpec))]


def asks(requests=None, limits=None, **more):
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def at_least(what, part, given, needed):
    return (
        f'spec.resources.{part}[{what}]: Invalid value: "{given}": must be greater than or equal to aggregate container '
        f"{part} of {needed}"
    )


CASES = {  # the pod's, its containers, its init containers, what is told
    "enough": ({"requests": {"cpu": "1"}}, [asks({"cpu": "400m"}), asks({"cpu": "0.6"})], [], []),
    "of another resource": ({"requests": {"cpu": "1"}}, [asks({"memory": "1Gi"})], [], []),
    "too little for all": (
        {"requests": {"cpu": "1"}}, [asks({"cpu": "600m"}), asks({"cpu": "600m"})], [],
        [at_least("cpu", "requests", "1", "1200m")],
    ),
    "too little for one that runs first": (
        {"requests": {"memory": "1Gi"}}, [asks({"memory": "1Mi"})], [asks({"memory": "2Gi"})],
        [at_least("memory", "requests", "1Gi", "2Gi")],
    ),
    "one that runs first, with a sidecar": (
        {"requests": {"cpu": "1"}}, [asks({"cpu": "1m"})],
        [asks({"cpu": "500m"}, restartPolicy="Always"), asks({"cpu": "600m"})],
        [at_least("cpu", "requests", "1", "1100m")],
    ),
    "one that runs before the sidecar": (
        {"requests": {"cpu": "1"}}, [asks({"cpu": "1m"})],
        [asks({"cpu": "600m"}), asks({"cpu": "500m"}, restartPolicy="Always")], [],
    ),
    "limits that overcommit": ({"limits": {"cpu": "1"}}, [asks(limits={"cpu": "1"}), asks(limits={"cpu": "1"})], [], []),
    "a limit above the pod's": (
        {"limits": {"cpu": "1"}}, [asks(), asks(limits={"cpu": "1500m"})], [],
        ['spec.resources.containers[1][cpu].limits: Invalid value: "1500m": must be less than or equal to pod limits of 1'],
    ),
    "huge pages": (
        {"limits": {"hugepages-2Mi": "2Mi"}},
        [asks(limits={"hugepages-2Mi": "2Mi"}), asks(limits={"hugepages-2Mi": "2Mi"})], [],
        [at_least("hugepages-2Mi", "limits", "2Mi", "4Mi")],
    ),
    "what is no amount": ({"requests": {"cpu": "1"}}, [asks({"cpu": "much"})], [], []),
}  # fmt: skip


@pytest.mark.parametrize(("whole", "containers", "first", "expected"), CASES.values(), ids=CASES)
def test_a_pod_holds_its_containers(whole, containers, first, expected):
    assert told({"resources": whole, "containers": containers, "initContainers": first}) == expected


def test_pods_without_such_resources_are_as_they_are():
    assert told({"containers": [asks({"cpu": "4"})]}) == []


AMOUNTS = st.integers(0, 9).map(lambda milli: asks({"cpu": f"{milli}m"}))
FIRST = st.tuples(AMOUNTS, st.booleans()).map(lambda one: one[0] | ({"restartPolicy": "Always"} if one[1] else {}))


@given(st.lists(AMOUNTS, min_size=1, max_size=3), st.lists(FIRST, max_size=4), st.integers(1, 40))
def test_what_containers_take_is_what_a_node_is_charged(containers, first, milli):
    spec = {"containers": containers, "initContainers": first}
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)
    charged = PodInfo(pod).requests["cpu"]
    assert bool(told(spec | {"resources": {"requests": {"cpu": f"{milli}m"}}})) == (charged > milli)
