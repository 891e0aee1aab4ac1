"""Test the defaults that admission fills in for pods and claims, and the rejections it reports."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.admission import (
    RuntimeClass,
    add_default_tolerations,
    apply_runtime_class,
    default_storage_class,
    limit_range_defaults,
    out_of_pods_bounds,
    resolve_priority,
    set_default_storage_class,
)
from moorage.api.core import LimitRange, Pod, Toleration
from moorage.api.storage import PersistentVolumeClaim, StorageClass
from moorage.api.workloads import PriorityClass


def pod(**spec: object) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "namespace": "default"}, "spec": spec}, Pod)


def priority_class(name: str, value: int, **more: object) -> PriorityClass:
    return msgspec.convert({"metadata": {"name": name}, "value": value, **more}, PriorityClass)


HIGH = priority_class("high", 1000)
GENTLE = priority_class("gentle", 500, preemptionPolicy="Never")
BASE = priority_class("base", 10, globalDefault=True)
LOWER = priority_class("lower", 5, globalDefault=True)

PRIORITIES = {  # the pod's spec, the classes → priority, class name, policy, refusals
    "no priority class": ({}, [], 0, "", "PreemptLowerPriority", 0),
    "the default class": ({}, [HIGH, BASE], 10, "base", "PreemptLowerPriority", 0),
    "the lower of two default classes": ({}, [BASE, LOWER], 5, "lower", "PreemptLowerPriority", 0),
    "by name": ({"priorityClassName": "high"}, [HIGH, BASE], 1000, "high", "PreemptLowerPriority", 0),
    "policy of the class": ({"priorityClassName": "gentle"}, [GENTLE], 500, "gentle", "Never", 0),
    "built-in class": (
        {"priorityClassName": "system-node-critical"},
        [],
        2_000_001_000,
        "system-node-critical",
        "PreemptLowerPriority",
        0,
    ),
    "unknown": ({"priorityClassName": "gone"}, [HIGH], None, "gone", None, 1),
    "already admitted, from a dump": (
        {"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "PreemptLowerPriority"},
        [HIGH],
        1000,
        "high",
        "PreemptLowerPriority",
        0,
    ),
    "a priority that admission did not set stays": ({"priority": 7}, [], 7, "", "PreemptLowerPriority", 1),
    "a preemption policy that differs from the class's stays": (
        {"priorityClassName": "gentle", "preemptionPolicy": "PreemptLowerPriority"},
        [GENTLE],
        500,
        "gentle",
        "PreemptLowerPriority",
        1,
    ),
}


@pytest.mark.parametrize(("spec", "classes", "priority", "name", "policy", "refusals"), PRIORITIES.values(), ids=PRIORITIES)
def test_priorities(spec, classes, priority, name, policy, refusals):
    admitted = resolve_priority(pod(**spec), {found.metadata.name: found for found in classes})
    assert admitted.pod.spec.priority == priority
    assert admitted.pod.spec.priority_class_name == name
    assert admitted.pod.spec.preemption_policy == policy
    assert len(admitted.refusals) == refusals


def test_refusals_use_the_api_servers_words():
    assert resolve_priority(pod(priorityClassName="gone"), {}).refusals == ("no PriorityClass with name gone was found",)
    (refusal,) = resolve_priority(pod(priority=7), {}).refusals
    assert refusal == (
        "the integer value of priority (7) must not be provided in pod spec; "
        "priority admission controller computed 0 from the given PriorityClass name"
    )


def limit_range(name: str, *items: dict) -> LimitRange:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"limits": items}}, LimitRange)


DEFAULTS = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m", "memory": "1Gi"}}
LIMITS = {  # the container's resources, limit ranges → requests, limits
    "no resources given": ({}, [limit_range("a", DEFAULTS)], {"cpu": "500m", "memory": "1Gi"}, {"cpu": "1"}),
    "given values stay": (
        {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
        [limit_range("a", DEFAULTS)],
        {"cpu": "2", "memory": "1Gi"},
        {"cpu": "3"},
    ),
    "max alone becomes the limit and the request": (
        {},
        [limit_range("a", {"type": "Container", "max": {"cpu": "2"}})],
        {"cpu": "2"},
        {"cpu": "2"},
    ),
    "the first limit range by name wins": (
        {},
        [limit_range("b", {"type": "Container", "default": {"cpu": "9"}}), limit_range("a", DEFAULTS)],
        {"cpu": "500m", "memory": "1Gi"},
        {"cpu": "1"},
    ),
    "items of other types set no defaults": (
        {},
        [limit_range("a", {"type": "PersistentVolumeClaim", "max": {"storage": "2"}})],
        {},
        {},
    ),
}


@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize(("given", "ranges", "requests", "limits"), LIMITS.values(), ids=LIMITS)
def test_limit_ranges_set_defaults(given, ranges, requests, limits, where):
    admitted = limit_range_defaults(pod(**{where: [{"name": "c", "resources": given}]}), ranges)
    held = (*admitted.spec.containers, *admitted.spec.init_containers)[0].resources
    assert (held.requests, held.limits) == (requests, limits)


BOUNDS = {  # requests, limits, the item's bounds → rejection
    "within": ({"cpu": "1"}, {"cpu": "1"}, {"min": {"cpu": "1"}, "max": {"cpu": "1"}}, None),
    "request below min": (
        {"cpu": "50m"},
        {},
        {"min": {"cpu": "100m"}},
        "minimum cpu usage per Container is 100m, but request is 50m",
    ),
    "limit below min": (
        {"cpu": "1"},
        {"cpu": "50m"},
        {"min": {"cpu": "100m"}},
        "minimum cpu usage per Container is 100m, but limit is 50m",
    ),
    "limit above max": (
        {"memory": "1Gi"},
        {"memory": "2Gi"},
        {"max": {"memory": "1Gi"}},
        "maximum memory usage per Container is 1Gi, but limit is 2Gi",
    ),
    "ratio above the maximum": (
        {"cpu": "100m"},
        {"cpu": "2"},
        {"maxLimitRequestRatio": {"cpu": "4"}},
        "cpu max limit to request ratio per Container is 4, but provided ratio is 20.000000",
    ),
    "request above max": (
        {"cpu": "2"},
        {"cpu": "1"},
        {"max": {"cpu": "1"}},
        "maximum cpu usage per Container is 1, but request is 2",
    ),
}


@pytest.mark.parametrize(("requests", "limits", "bounds", "refusal"), BOUNDS.values(), ids=BOUNDS)
def test_limit_ranges_set_bounds(requests, limits, bounds, refusal):
    given = pod(containers=[{"name": "c", "resources": {"requests": requests, "limits": limits}}])
    refusals = out_of_pods_bounds(given, [limit_range("a", {"type": "Container", **bounds})])
    assert refusals == (() if refusal is None else (refusal,))


def test_a_pod_without_defaults_is_the_same_object():
    given = pod(containers=[{"name": "c"}])
    assert limit_range_defaults(given, [limit_range("a", {"type": "Pod", "max": {"cpu": "2"}})]) is given


def test_a_total_beyond_a_bound_of_pods_is_written_in_the_containers_suffixes():
    given = pod(containers=[{"name": name, "resources": {"limits": {"memory": "1Gi"}}} for name in ("a", "b")])
    bound = limit_range("a", {"type": "Pod", "max": {"memory": "1Gi"}})
    assert out_of_pods_bounds(given, [bound]) == ("maximum memory usage per Pod is 1Gi, but limit is 2Gi",)


NOT_READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
TOLERATIONS = {  # given tolerations → how many are added
    "none": ([], 2),
    "one of the two": ([NOT_READY], 1),
    "for another effect": ([{**NOT_READY, "effect": "NoSchedule"}], 2),
    "for every effect": ([{**NOT_READY, "effect": ""}], 1),
    "for every key": ([{"operator": "Exists"}], 0),
}


@pytest.mark.parametrize(("held", "added"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_default_tolerations_are_added(held, added):
    given = pod(tolerations=held)
    tolerant = add_default_tolerations(given)
    assert len(tolerant.spec.tolerations) == len(held) + added
    assert add_default_tolerations(tolerant) is tolerant
    assert all(one.toleration_seconds == 300 for one in tolerant.spec.tolerations[len(held) :])


def runtime_class(**fields: object) -> RuntimeClass:
    return msgspec.convert({"metadata": {"name": "box"}, "handler": "box", **fields}, RuntimeClass)


BOX = runtime_class(
    overhead={"podFixed": {"cpu": "250m"}},
    scheduling={"nodeSelector": {"box": "yes"}, "tolerations": [{"key": "box", "operator": "Exists"}]},
)


def test_a_runtime_class_sets_overhead_and_placement():
    admitted = apply_runtime_class(pod(runtimeClassName="box", nodeSelector={"zone": "a"}), {"box": BOX})
    assert admitted.refusals == ()
    spec = admitted.pod.spec
    assert (spec.overhead, spec.node_selector) == ({"cpu": "250m"}, {"box": "yes", "zone": "a"})
    assert spec.tolerations == (Toleration(key="box", operator="Exists"),)
    assert apply_runtime_class(admitted.pod, {"box": BOX}).pod is admitted.pod


RUNTIME_REFUSALS = {
    "unknown": ({"runtimeClassName": "gone"}, 'pod rejected: RuntimeClass "gone" not found'),
    "different overhead": (
        {"runtimeClassName": "box", "overhead": {"cpu": "1"}},
        "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
    ),
    "equal overhead, other notation": ({"runtimeClassName": "box", "overhead": {"cpu": "0.25"}}, None),
    "overhead without a class": (
        {"overhead": {"cpu": "1"}},
        "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
    ),
    "conflicting node selectors": (
        {"runtimeClassName": "box", "nodeSelector": {"box": "no"}},
        "conflict: runtimeClass.scheduling.nodeSelector[box] = yes; pod.spec.nodeSelector[box] = no",
    ),
}


@pytest.mark.parametrize(("spec", "refusal"), RUNTIME_REFUSALS.values(), ids=RUNTIME_REFUSALS)
def test_runtime_class_refusals(spec, refusal):
    assert apply_runtime_class(pod(**spec), {"box": BOX}).refusals == (() if refusal is None else (refusal,))


def storage_class(name: str, made: str | None = None, default: str = "true") -> StorageClass:
    metadata = {
        "name": name,
        "creationTimestamp": made,
        "annotations": {"storageclass.kubernetes.io/is-default-class": default},
    }
    return msgspec.convert({"metadata": metadata}, StorageClass)


def test_the_newest_default_storage_class_wins_then_the_first_by_name():
    old, new = storage_class("old", "2024-01-01T00:00:00Z"), storage_class("new", "2025-01-01T00:00:00Z")
    assert default_storage_class([old, new]) is new
    assert default_storage_class([storage_class("b"), storage_class("a")]).name == "a"
    assert default_storage_class([storage_class("no", default="false")]) is None


CLAIMS = {  # the claim → class name
    "no class given": ({"spec": {}}, "fast"),
    "an empty class": ({"spec": {"storageClassName": ""}}, ""),
    "a class": ({"spec": {"storageClassName": "slow"}}, "slow"),
    "a class in the annotation": ({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "slow"}}}, None),
}


@pytest.mark.parametrize(("claim", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_claims_get_the_default_storage_class(claim, expected):
    stored = set_default_storage_class(msgspec.convert(claim, PersistentVolumeClaim), [storage_class("fast")])
    assert stored.spec.storage_class_name == expected
