"""Horizontal pod autoscalers: what metrics ask for, how fast a workload follows, and what the status says."""

from __future__ import annotations

import math

import pytest

from moorage.api.documents.object_fields import REPLICA_SETS
from moorage.cluster.controllers.upkeep.pod_autoscaler import PodAutoscalers
from moorage.cluster.controllers.upkeep.replica_proposals import MetricError, Tolerances, proposal_of
from moorage.rules.workloads.deployment import Deployments
from moorage.rules.workloads.replica_set import ReplicaSets

#: Usage of new pods counts after so many seconds: their containers start, and one window of metrics passes.
STARTED_S = 60


def deployment(replicas, usage="", requests="100m", kind="Deployment"):
    annotations = {"moorage.dev/usage-cpu": usage} if usage else {}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": requests, "memory": "64Mi"}}}
    template = {"metadata": {"labels": {"app": "web"}, "annotations": annotations}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}


def cpu(percent):
    return {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}


def autoscaler(percent=50, most=10, least=1, **spec):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    given = {"scaleTargetRef": reference, "minReplicas": least, "maxReplicas": most, "metrics": [cpu(percent)], **spec}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}, "spec": given}


@pytest.fixture
def cluster(lab):
    made = lab(Deployments(), ReplicaSets(REPLICA_SETS), PodAutoscalers())
    yield made
    assert made.reports == []


def size(cluster):
    return cluster.get("deployments", "web")["spec"]["replicas"]


def use(cluster, cpu_milli):
    """Let each pod use so much."""

    def change(document):
        document["metadata"].setdefault("annotations", {})["moorage.dev/usage-cpu"] = f"{cpu_milli}m"

    for name in cluster.names("pods", app="web"):
        cluster.edit("pods", name, change)


def reasons(cluster):
    found = cluster.get("horizontalpodautoscalers", "web")["status"]["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in found}


def events(cluster):
    return [one["message"] for one in cluster.all("events") if one["reason"] == "SuccessfulRescale"]


SIZES = {  # replicas and their usage of 100m, the target in percent, the bounds → replicas after some minutes
    "at the target": (3, "50m", 50, {}, 3),
    "within the tolerance above": (10, "55m", 50, {"most": 20}, 10),
    "within the tolerance below": (10, "45m", 50, {"most": 20}, 10),
    "above": (3, "80m", 50, {}, 10),
    "above, and bounded": (3, "80m", 50, {"most": 4}, 4),
    "fewer than the least": (1, "50m", 50, {"least": 3}, 3),
    "more than the most": (8, "50m", 50, {"most": 5}, 5),
}  # fmt: skip


@pytest.mark.parametrize(("replicas", "usage", "percent", "bounds", "wanted"), SIZES.values(), ids=SIZES)
def test_a_workload_gets_the_replicas_that_its_usage_asks_for(cluster, replicas, usage, percent, bounds, wanted):
    cluster.apply(deployment(replicas, usage))
    cluster.advance(STARTED_S)
    cluster.apply(autoscaler(percent, **bounds))
    cluster.advance(600)
    assert size(cluster) == wanted
    assert len(cluster.names("pods", app="web")) == wanted


def test_usage_that_sinks_with_more_replicas_finds_its_size(cluster):
    """A load of 600 millicores on pods that request 100: at 50 % they are 12."""
    cluster.apply(deployment(2))
    cluster.advance(STARTED_S)
    cluster.apply(autoscaler(50, most=30))
    seen = []
    for _ in range(60):
        use(cluster, math.ceil(600 / size(cluster)))
        cluster.advance(15)
        seen.append(size(cluster))
    assert seen[-1] == 12
    assert max(seen) == 12
    assert seen == sorted(seen)


def test_a_workload_shrinks_after_the_window_alone(cluster):
    cluster.apply(deployment(6, "50m"))
    cluster.advance(STARTED_S)
    cluster.apply(autoscaler(50))
    cluster.advance(30)
    use(cluster, 10)
    cluster.advance(240)
    assert size(cluster) == 6
    assert reasons(cluster)["AbleToScale"] == ("True", "ScaleDownStabilized")
    cluster.advance(120)
    assert size(cluster) == 2
    assert events(cluster) == ["New size: 2; reason: All metrics below target"]


def rules(*policies, window=0, select="Max"):
    given = [{"type": kind, "value": value, "periodSeconds": seconds} for kind, value, seconds in policies]
    return {"stabilizationWindowSeconds": window, "selectPolicy": select, "policies": given}


def test_a_workload_grows_by_its_rate(cluster):
    cluster.apply(deployment(2, "100m"))
    cluster.advance(STARTED_S)
    cluster.apply(autoscaler(50, most=20, behavior={"scaleUp": rules(("Pods", 1, 60))}))
    sizes = []
    for seconds in (1, 60, 60, 30, 30):
        cluster.advance(seconds)
        sizes.append(size(cluster))
    assert sizes == [3, 4, 5, 5, 6]
    assert reasons(cluster)["ScalingLimited"] == ("True", "ScaleUpLimit")


RATES = {  # policies, which counts → replicas after one step from 10 down to one, or up to many
    "pods": ([("Pods", 3, 60)], "Max", 7, 13),
    "percent": ([("Percent", 25, 60)], "Max", 7, 13),
    "the highest": ([("Pods", 1, 60), ("Percent", 50, 60)], "Max", 5, 15),
    "the lowest": ([("Pods", 1, 60), ("Percent", 50, 60)], "Min", 9, 11),
    "none": ([("Pods", 5, 60)], "Disabled", 10, 10),
}  # fmt: skip


@pytest.mark.parametrize(("policies", "select", "down", "up"), RATES.values(), ids=RATES)
def test_policies_limit_a_step(cluster, policies, select, down, up):
    both = rules(*policies, select=select)
    for usage, wanted in (("1m", down), ("100m", up)):
        cluster.apply(deployment(10, usage))
        cluster.advance(STARTED_S)
        cluster.apply(autoscaler(20, most=40, behavior={"scaleDown": both, "scaleUp": both}))
        cluster.advance(10)
        assert size(cluster) == wanted
        cluster.delete("horizontalpodautoscalers", "web")
        cluster.delete("deployments", "web")
        for name in cluster.names("replicasets"):
            cluster.delete("replicasets", name)
        for name in cluster.names("pods"):
            cluster.delete("pods", name, gracePeriodSeconds=0)
        cluster.advance(60)


def test_an_own_tolerance(cluster):
    cluster.apply(deployment(10, "60m"))
    cluster.advance(STARTED_S)
    cluster.apply(autoscaler(50, most=20, behavior={"scaleUp": {**rules(("Pods", 9, 15)), "tolerance": "0.3"}}))
    cluster.advance(60)
    assert size(cluster) == 10


def test_the_status(cluster):
    cluster.apply(deployment(2, "80m"))
    cluster.advance(STARTED_S)
    cluster.apply(autoscaler(50, most=3))
    cluster.advance(5)
    status = cluster.get("horizontalpodautoscalers", "web")["status"]
    assert (status["currentReplicas"], status["desiredReplicas"]) == (2, 3)
    current = {"averageUtilization": 80, "averageValue": "80m"}
    assert status["currentMetrics"] == [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
    assert status["lastScaleTime"]
    assert reasons(cluster) == {
        "AbleToScale": ("True", "SucceededRescale"), "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("True", "TooManyReplicas"),
    }  # fmt: skip
    assert events(cluster) == ["New size: 3; reason: cpu resource utilization (percentage of request) above target"]


def test_nothing_to_scale(cluster):
    cluster.apply(autoscaler())
    cluster.settle()
    assert reasons(cluster) == {"AbleToScale": ("False", "FailedGetScale")}
    cluster.apply(deployment(2, "50m"))
    cluster.advance(STARTED_S)
    assert reasons(cluster)["AbleToScale"] == ("True", "ReadyForNewScale")


def test_a_workload_of_no_replicas_stays(cluster):
    cluster.apply(deployment(0))
    cluster.apply(autoscaler())
    cluster.advance(60)
    assert size(cluster) == 0
    assert reasons(cluster)["ScalingActive"] == ("False", "ScalingDisabled")


PODS_METRIC = {
    "type": "Pods",
    "pods": {"metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def test_a_metric_that_nobody_serves_does_not_shrink_a_workload(cluster):
    cluster.apply(deployment(4, "10m"))
    cluster.advance(STARTED_S)
    cluster.apply(autoscaler(50, metrics=[PODS_METRIC, cpu(50)], behavior={"scaleDown": rules(("Pods", 9, 15))}))
    cluster.advance(60)
    assert size(cluster) == 4
    assert reasons(cluster)["ScalingActive"] == ("False", "FailedGetPodsMetric")
    use(cluster, 100)
    cluster.advance(60)
    assert size(cluster) > 4
    assert reasons(cluster)["ScalingActive"] == ("True", "ValidMetricFound")


def test_new_pods_do_not_let_a_workload_grow_further(cluster):
    """Pods that start count as if they used nothing."""
    cluster.schedules = True
    cluster.apply(deployment(2, "100m"))
    cluster.advance(STARTED_S)
    cluster.apply(autoscaler(50, most=40))
    cluster.advance(1)
    assert size(cluster) == 4
    cluster.schedules = False
    cluster.advance(30)
    grown = size(cluster)
    cluster.advance(60)
    assert size(cluster) == grown


# -- one metric ---------------------------------------------------------------------------------------------------------

NOW = 1_750_000_000.0
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2025-06-15T14:00:00Z"}


def pod(name, usage="", requests="100m", phase="Running", ready=READY, start="2025-06-15T13:00:00Z", **metadata):
    annotations = {"moorage.dev/usage-cpu": usage, "moorage.dev/usage-memory": "100Mi"} if usage else {}
    resources = {"requests": {"cpu": requests, "memory": "200Mi"} if requests else {}}
    return {
        "metadata": {"name": name, "annotations": annotations, **metadata},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": phase, "startTime": start, "conditions": [ready]},
    }  # fmt: skip


def proposed(pods, metric=None, current=None, missing=()):
    found = proposal_of(
        metric or cpu(50), pods, len(pods) if current is None else current, Tolerances(),
        lambda one: one["metadata"]["name"] not in missing, NOW,
    )  # fmt: skip
    return found.replicas


def some(*usages):
    return [pod(f"p{i}", usage) for i, usage in enumerate(usages)]


def raw(resource, value):
    return {"type": "Resource", "resource": {"name": resource, "target": {"type": "AverageValue", "averageValue": value}}}


CONTAINER = {
    "type": "ContainerResource",
    "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 50}},
}
PROPOSALS = {  # pods, metric, pods without metrics → replicas
    "the average counts": (some("0m", "100m"), None, (), 2),
    "rounded up": (some("60m", "60m", "60m"), None, (), 4),
    "a value": (some("80m", "80m"), raw("cpu", "40m"), (), 4),
    "memory": (some("1m", "1m"), raw("memory", "50Mi"), (), 4),
    "a container": (some("100m"), CONTAINER, (), 2),
    "unknown usage is none when there would be more": (some("100m", "100m", "100m"), None, ("p2",), 4),
    "and all of the request when there would be fewer": (some("10m", "10m", "10m", "10m"), None, ("p3",), 3),
    "which does not turn the direction": (some("30m", "30m"), None, ("p1",), 2),
    "ended pods do not count": ([*some("100m"), pod("f", "0m", phase="Failed")], None, (), 2),
    "nor those that are being deleted": (
        [*some("100m"), pod("d", "0m", deletionTimestamp="2025-06-15T14:00:00Z")], None, (), 2,
    ),
    "a pending pod counts as idle": ([*some("100m"), pod("w", phase="Pending")], None, (), 2),
    "a pod that was never ready": (
        [*some("100m"), pod("u", "0m", ready={**READY, "status": "False", "lastTransitionTime": "2025-06-15T13:00:10Z"})],
        None, (), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "metric", "missing", "replicas"), PROPOSALS.values(), ids=PROPOSALS)
def test_what_a_metric_asks_for(pods, metric, missing, replicas):
    assert proposed(pods, metric, missing=missing) == replicas


ERRORS = {
    "no pods": ([], None, "failed to get cpu resource metric value: no pods returned by selector"),
    "no usage": ([pod("p", phase="Pending")], None, "did not receive metrics for targeted pods (pods might be unready)"),
    "no request": ([pod("p", "1m", requests="")], None, "missing request for cpu in container c of Pod p"),
    "no such metric": (some("1m"), PODS_METRIC, "no custom metrics API (custom.metrics.k8s.io) registered"),
    "no such resource": (some("1m"), raw("example.com/gpu", "1"), "did not receive metrics for targeted pods"),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "metric", "why"), ERRORS.values(), ids=ERRORS)
def test_a_metric_that_cannot_be_read(pods, metric, why):
    with pytest.raises(MetricError) as raised:
        proposed(pods, metric, current=1)
    assert why in str(raised.value)
