"""What pods ask for, in the scheduler's units."""

from itertools import chain

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.core import Pod
from moorage.api.pod_requests import (
    PLACED,
    PodRequests,
    RequestOptions,
    amount,
    is_counted,
    pod_requests,
    with_greatest_of_each_container,
)
from moorage.api.quantity import QuantityError
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_cluster, a_node, a_pod

MI = 1024 * 1024
DEFAULT = 200 * MI


def asks(requests=None, **more):
    return {"name": "c", "resources": {"requests": requests or {}}, **more}


def sidecar(requests, name="s"):
    return asks(requests, name=name, restartPolicy="Always")


# pod's spec → requests, non-zero cpu, non-zero memory
SPECS = {
    "no container": ({}, {}, 0, 0),
    "nothing asked for": ({"containers": [asks()]}, {}, 100, DEFAULT),
    "both asked for": ({"containers": [asks({"cpu": "250m", "memory": "1Mi"})]}, {"cpu": 250, "memory": MI}, 250, MI),
    "containers add up": (
        {"containers": [asks({"cpu": 1, "memory": "1Mi"}), asks({"cpu": "0.5"}), asks()]},
        {"cpu": 1500, "memory": MI}, 1600, MI + 2 * DEFAULT,
    ),
    "an explicit zero stays zero": ({"containers": [asks({"cpu": 0, "memory": "0"})]}, {"cpu": 0, "memory": 0}, 0, 0),
    "a large init container is the peak": (
        {"containers": [asks({"cpu": 1})], "initContainers": [asks({"cpu": 3}), asks({"cpu": 2, "memory": "1Mi"})]},
        {"cpu": 3000, "memory": MI}, 3000, DEFAULT,
    ),
    "a small init container costs nothing": (
        {"containers": [asks({"cpu": 4})], "initContainers": [asks({"cpu": 3})]}, {"cpu": 4000}, 4000, DEFAULT,
    ),
    "a sidecar runs along": (
        {"containers": [asks({"cpu": 1})], "initContainers": [sidecar({"cpu": 2})]}, {"cpu": 3000}, 3000, 2 * DEFAULT,
    ),
    "init containers run beside earlier sidecars": (
        {"containers": [asks({"cpu": 1})], "initContainers": [sidecar({"cpu": 2}), asks({"cpu": 5}), sidecar({"cpu": 1})]},
        {"cpu": 7000}, 7000, 3 * DEFAULT,
    ),
    "init containers run before later sidecars": (
        {"containers": [asks({"cpu": 1})], "initContainers": [asks({"cpu": 5}), sidecar({"cpu": 2})]},
        {"cpu": 5000}, 5000, 2 * DEFAULT,
    ),
    "overhead comes on top": (
        {"containers": [asks({"cpu": 1})], "overhead": {"cpu": "50m", "memory": "10Mi"}},
        {"cpu": 1050, "memory": 10 * MI}, 1050, 10 * MI + DEFAULT,
    ),
    "devices, pages and storage": (
        {"containers": [asks({"example.com/gpu": 2, "hugepages-2Mi": "4Mi", "ephemeral-storage": "1k"})]},
        {"example.com/gpu": 2, "hugepages-2Mi": 4 * MI, "ephemeral-storage": 1000}, 100, DEFAULT,
    ),
    "resources that are not counted": (
        {"containers": [asks({"pods": 1, "storage": "1Gi", "requests.example.com/x": 1})]}, {}, 100, DEFAULT,
    ),
    "sums are rounded, not parts": (
        {"containers": [asks({"memory": "400m"}), asks({"memory": "400m"})]}, {"memory": 1}, 200, 1,
    ),
    "parts are rounded to thousandths": (
        {"containers": [asks({"cpu": "0.1m", "memory": "1"}), asks({"cpu": "0.1m", "memory": "1"})]},
        {"cpu": 2, "memory": 2}, 2, 2,
    ),
    "beyond 2^53": (
        {"containers": [asks({"memory": "4Ei", "cpu": 1}), asks({"memory": 1, "cpu": 1})]},
        {"memory": 2**62 + 1, "cpu": 2000}, 2000, 2**62 + 1,
    ),
    "capped at 2^63-1": (
        {"containers": [asks({"memory": "7Ei", "cpu": 1}), asks({"memory": "7Ei", "cpu": 1})]},
        {"memory": 2**63 - 1, "cpu": 2000}, 2000, 2**63 - 1,
    ),
    "the pod's own word overrides": (
        {"containers": [asks({"cpu": 1}), asks()], "resources": {"requests": {"cpu": 3, "memory": "64Mi"}}},
        {"cpu": 3000, "memory": 64 * MI}, 3000, 64 * MI,
    ),
    "the pod's own word may be less": (
        {"containers": [asks({"cpu": 4})], "resources": {"requests": {"cpu": 3}}}, {"cpu": 3000}, 3000, DEFAULT,
    ),
    "a default only where pod and containers are silent": (
        {"containers": [asks({"memory": "1Mi"}), asks()], "resources": {"requests": {"cpu": 1}}},
        {"memory": MI, "cpu": 1000}, 1000, MI,
    ),
    "overhead speaks for the pod": (
        {"containers": [asks()], "overhead": {"memory": "1Mi"}, "resources": {"requests": {"cpu": 1}}},
        {"cpu": 1000, "memory": MI}, 1000, MI,
    ),
    "the pod's pages override, its devices do not count": (
        {"containers": [asks({"example.com/gpu": 1, "hugepages-2Mi": "2Mi", "cpu": 1, "memory": 1})],
         "resources": {"requests": {"example.com/gpu": 5, "hugepages-2Mi": "8Mi"}}},
        {"example.com/gpu": 1, "hugepages-2Mi": 8 * MI, "cpu": 1000, "memory": 1}, 1000, 1,
    ),
    "an own word about nothing supported": (
        {"containers": [asks()], "resources": {"requests": {"example.com/gpu": 5}}}, {}, 100, DEFAULT,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "requests", "cpu", "memory"), SPECS.values(), ids=SPECS)
def test_requests(spec, requests, cpu, memory):
    key = tuple(chain.from_iterable(sorted(requests.items())))
    assert pod_requests(a_pod(**spec).pod) == PodRequests(requests, cpu, memory, key)


def resized(status, spec=None, own=None):
    spec = {"containers": [asks(spec or {"cpu": 2, "memory": "2Mi"})], **({"resources": {"requests": own}} if own else {})}
    return msgspec.convert({"spec": spec, "status": status}, Pod)


def reported(actual, allocated=None, name="c"):
    return {"name": name, "resources": {"requests": actual}, "allocatedResources": allocated or {}}


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {**INFEASIBLE, "reason": "Deferred"}

# pod's status → requested cpu
RESIZES = {
    "kubelet reports nothing": ({"containerStatuses": [{"name": "c"}]}, 2000),
    "kubelet reports the same": ({"containerStatuses": [reported({"cpu": "2"}, {"cpu": "2"})]}, 2000),
    "still running larger": ({"containerStatuses": [reported({"cpu": "3"}, {"cpu": "2"})]}, 3000),
    "granted more": ({"containerStatuses": [reported({"cpu": "1"}, {"cpu": "2500m"})]}, 2500),
    "wants more than it has": ({"containerStatuses": [reported({"cpu": "1"}, {"cpu": "1"})]}, 2000),
    "wants what it cannot get": (
        {"containerStatuses": [reported({"cpu": "1"}, {"cpu": "1500m"})], "conditions": [INFEASIBLE]},
        1500,
    ),
    "wants what it may get later": (
        {"containerStatuses": [reported({"cpu": "1"}, {"cpu": "1500m"})], "conditions": [DEFERRED]},
        2000,
    ),
    "the first condition decides": (
        {"containerStatuses": [reported({"cpu": "1"})],
         "conditions": [DEFERRED, INFEASIBLE]},
        2000,
    ),
    "infeasible, and only granted": (
        {"containerStatuses": [reported({}, {"cpu": "1"})], "conditions": [INFEASIBLE]}, 1000,
    ),
    "another container's status": ({"containerStatuses": [reported({"cpu": "3"}, name="other")]}, 2000),
    "granted but not reported as running": ({"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}]}, 3000),
}  # fmt: skip


@pytest.mark.parametrize(("status", "cpu"), RESIZES.values(), ids=RESIZES)
def test_a_resize_counts_while_in_progress(status, cpu):
    pod = resized(status)
    assert pod_requests(pod).requests["cpu"] == cpu
    assert pod_requests(pod, RequestOptions(use_status=False)).requests["cpu"] == 2000


@pytest.mark.parametrize(("status", "cpu"), RESIZES.values(), ids=RESIZES)
def test_a_resize_of_one_container_counts_alike_up_to_1_36(status, cpu):
    """But what is only granted does not."""
    before = {"granted but not reported as running": 2000}
    name = next(name for name, case in RESIZES.items() if case == (status, cpu))
    assert pod_requests(with_greatest_of_each_container(resized(status))).requests["cpu"] == before.get(name, cpu)


def test_the_status_of_init_containers_counts_up_to_1_36_for_sidecars_only():
    spec = {"containers": [asks({"cpu": 1})], "initContainers": [sidecar({"cpu": 1}), asks({"cpu": 1}, name="i")]}
    status = {"initContainerStatuses": [reported({"cpu": 4}, name="s"), reported({"cpu": 9}, name="i")]}
    pod = msgspec.convert({"spec": spec, "status": status}, Pod)
    assert pod_requests(pod).requests == {"cpu": 13000}
    assert pod_requests(with_greatest_of_each_container(pod)).requests == {"cpu": 5000}


def test_two_containers_that_are_resized_in_opposite_directions():
    """One shrinks from 3 to 1 and one grows from 1 to 3: 4 at any time since 1.37, 6 up to 1.36."""
    spec = {"containers": [asks({"cpu": 1}), asks({"cpu": 3}, name="d")]}
    grown = [
        {"name": name, "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
        for name, cpu in (("c", 3), ("d", 1))
    ]
    pod = msgspec.convert({"spec": spec, "status": {"containerStatuses": grown}}, Pod)
    assert pod_requests(pod).requests == {"cpu": 4000}
    assert pod_requests(with_greatest_of_each_container(pod)).requests == {"cpu": 6000}


def test_what_a_whole_pod_has_stands_for_its_containers_since_1_37():
    whole = {"resources": {"requests": {"cpu": 5}}, "allocatedResources": {"cpu": 4}}
    pod = resized({"containerStatuses": [reported({"cpu": 1}, {"cpu": 1})], "conditions": [INFEASIBLE], **whole})
    assert pod_requests(pod).requests["cpu"] == 5000
    assert pod_requests(with_greatest_of_each_container(pod)).requests["cpu"] == 1000


def test_up_to_1_36_no_default_counts_for_what_a_status_says():
    """Of a container whose spec requests no CPU."""
    pod = msgspec.convert(
        {
            "spec": {"containers": [asks({"memory": 1})]},
            "status": {"containerStatuses": [reported({"cpu": "1m", "memory": 1})]},
        },
        Pod,
    )
    assert pod_requests(pod).nonzero_cpu == 100
    assert pod_requests(with_greatest_of_each_container(pod)).nonzero_cpu == 1


# status, options → requested cpu of a pod that asks for 3 as a whole, its container for 2
OWN = {
    "nothing reported": ({}, PLACED, 3000),
    "still running larger": ({"resources": {"requests": {"cpu": 5}}}, PLACED, 5000),
    "granted more": ({"resources": {"requests": {}}, "allocatedResources": {"cpu": 4}}, PLACED, 4000),
    "only granted": ({"allocatedResources": {"cpu": 4}}, PLACED, 3000),
    "infeasible": (
        {"resources": {"requests": {"cpu": 1}}, "conditions": [INFEASIBLE]}, PLACED, 1000,
    ),
    "infeasible, and not running at all": (
        {"resources": {"requests": {}}, "conditions": [INFEASIBLE]}, PLACED, 0,
    ),
    "gate closed: resize of the pod": ({"resources": {"requests": {"cpu": 5}}}, RequestOptions(pod_level_status=False), 3000),
    "gate closed: resize": ({"resources": {"requests": {"cpu": 5}}}, RequestOptions(use_status=False), 3000),
    "gate closed: the pod's own word": ({"resources": {"requests": {"cpu": 5}}}, RequestOptions(pod_level=False), 2000),
}  # fmt: skip


@pytest.mark.parametrize(("status", "options", "cpu"), OWN.values(), ids=OWN)
def test_pod_level_requests_and_their_resize(status, options, cpu):
    pod = resized(status, own={"cpu": 3})
    assert pod_requests(pod, options).requests["cpu"] == cpu
    assert PodInfo(pod).needs_under(options).requests["cpu"] == cpu


def test_copies_share_one_sum():
    one, other = (a_pod(name, containers=[asks({"cpu": 1})]) for name in ("a", "b"))
    assert one.needs is other.needs
    assert one.needs_under(RequestOptions(False, False, False)) is one.needs


def test_a_request_that_is_not_a_quantity_is_rejected():
    with pytest.raises(QuantityError):
        pod_requests(a_pod(containers=[asks({"cpu": "much"})]).pod)


AMOUNTS = {
    "cpu": ("cpu", "100m", 100),
    "memory": ("memory", "1Ki", 1024),
    "a fraction": ("memory", "100m", 1),
    "a count": ("a/b", 3, 3),
}


@pytest.mark.parametrize(("name", "quantity", "expected"), AMOUNTS.values(), ids=AMOUNTS)
def test_amount(name, quantity, expected):
    assert amount(name, quantity) == expected


@pytest.mark.parametrize(
    "name", ["cpu", "memory", "ephemeral-storage", "hugepages-1Gi", "example.com/gpu", "x.kubernetes.io/y"]
)
def test_counted(name):
    assert is_counted(name)


@pytest.mark.parametrize("name", ["pods", "storage", "gpu", "requests.example.com/gpu", ""])
def test_not_counted(name):
    assert not is_counted(name)


milli = st.integers(0, 4000)
lists = st.fixed_dictionaries({}, optional={"cpu": milli, "memory": milli, "example.com/gpu": milli})


def texts(requests):
    return {name: f"{count}m" for name, count in requests.items()}


@given(st.lists(lists, max_size=3), st.lists(st.tuples(st.booleans(), lists), max_size=4), lists)
def test_the_peak_over_the_pods_life(containers, init, overhead):
    """A pod needs the most it ever has running at once: an init container with the sidecars before it, or all the rest."""
    pod = a_pod(
        containers=[asks(texts(c)) for c in containers],
        initContainers=[sidecar(texts(c)) if side else asks(texts(c)) for side, c in init],
        overhead=texts(overhead),
    )
    for name in ("cpu", "memory", "example.com/gpu"):
        started = [c.get(name, 0) if side else 0 for side, c in init]
        moments = [sum(started[:i]) + c.get(name, 0) for i, (_, c) in enumerate(init)]
        moments.append(sum(started) + sum(c.get(name, 0) for c in containers))
        peak = max(moments) + overhead.get(name, 0)
        assert pod.requests.get(name, 0) == (peak if name == "cpu" else -(-peak // 1000))
    assert pod.needs.nonzero_cpu >= pod.requests.get("cpu", 0)
    assert pod.needs.nonzero_memory >= pod.requests.get("memory", 0)


@given(st.lists(lists, min_size=1, max_size=3), st.lists(lists, max_size=2))
def test_adding_then_removing_a_pod_leaves_requests_unchanged(containers, already):
    here = [a_pod(f"p{i}", containers=[asks(texts(c))]) for i, c in enumerate(already)]
    cluster = a_cluster([a_node("n", allocatable={"cpu": 1})], {"n": here})
    names = ("cpu", "memory", "example.com/gpu")
    node = cluster.snapshot.node("n")

    def counted():
        return [node.requested(name) for name in names], node.nonzero_cpu, node.nonzero_memory, node.pod_count

    before = counted()
    pod = a_pod("new", containers=[asks(texts(c)) for c in containers])
    cluster.place(pod, "n")
    assert node.pod_count == len(here) + 1
    cluster.remove_pod(pod.uid)
    assert counted() == before
