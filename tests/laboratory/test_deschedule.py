"""What ``deschedule_report`` says of small clusters: evictions, where the pods go, budgets, oscillation."""

from __future__ import annotations

from typing import Any

import pytest

from moorage import Cluster
from moorage.basis.inputs.usage import MeasuredUsage
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.deschedule.deschedule_question import DescheduleOptions, deschedule_report
from moorage.report.answer import AnswerRequest
from moorage.report.moves import DescheduleReport
from moorage.simulator.descheduler.policy import read_descheduler_policy

REQUEST = AnswerRequest(release="1.36")


def policy(point: str = "balance", *, evictor: str = "{}", limit: str = "", **plugins: str) -> str:
    configs = "".join(f"  - {{name: {name}, args: {args}}}\n" for name, args in plugins.items())
    return (
        f"apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n{limit}\nprofiles:\n- name: all\n  pluginConfig:\n"
        f"  - {{name: DefaultEvictor, args: {evictor}}}\n{configs}"
        f"  plugins: {{{point}: {{enabled: [{', '.join(plugins)}]}}}}\n"
    )


def node(name: str, **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
    }  # fmt: skip


def pod(name: str, on: str, cpu: str = "500m", app: str = "web", **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    return {
        "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}, "ownerReferences": [owner],
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": on, "containers": [{"name": "c", "image": app, "resources": {"requests": {"cpu": cpu}}}], **spec},
    }  # fmt: skip


def budget(least: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}},
    }  # fmt: skip


def ask(
    text: str, *objects: dict[str, Any], cycles: int = 10, time: TimeBudget | None = None, usage: MeasuredUsage | None = None
) -> DescheduleReport:
    options = DescheduleOptions(now_s=1_768_000_000.0, cycles=cycles, usage=usage)
    return deschedule_report(
        Cluster.from_objects(*objects), REQUEST, read_descheduler_policy(text.encode(), "policy.yaml"), options, time
    )


def test_duplicates_move_to_the_other_node_and_the_evictions_end() -> None:
    found = ask(policy(RemoveDuplicates="{}"), node("a"), node("b"), *(pod(f"web-{n}", "a") for n in range(4)))
    assert [len(one.evicted) for one in found.cycles] == [2] + [0] * 9
    assert [(one.outcome, one.node, one.to) for one in found.cycles[0].evicted] == [("moves", "a", "b")] * 2
    assert (found.settles, found.holds, found.oscillating) == (True, True, ())
    assert found.summary == "2 evictions: 2 move. Nothing is evicted after cycle 1."
    assert found.nodes_in_use == (1, 2)


def test_a_pod_that_the_scheduler_sends_back_is_evicted_again_and_again() -> None:
    """The taint is only preferred: the scheduler takes the tainted node again, which is the emptier one."""
    text = policy("deschedule", RemovePodsViolatingNodeTaints="{includePreferNoSchedule: true}")
    tainted = node("a", taints=[{"key": "old", "effect": "PreferNoSchedule"}])
    found = ask(text, tainted, node("b", unschedulable=True), pod("web-1", "a"), cycles=3)
    assert [[(one.outcome, one.to) for one in cycle.evicted] for cycle in found.cycles] == [[("stays", "a")]] * 3
    [again] = found.oscillating
    assert (again.pod, again.evictions, again.nodes) == ("default/web-1", 3, ("a", "a", "a"))
    assert (found.settles, found.holds) == (False, False)
    assert "The evictions go on in the last of 3 cycles; 1 pod is evicted more than once." in found.summary


def test_a_budget_lets_as_many_go_in_a_cycle_as_it_allows() -> None:
    pods = [pod(f"web-{n}", "a") for n in range(4)]
    found = ask(policy(RemoveDuplicates="{}"), node("a"), node("b"), *pods, budget(3), cycles=3)
    assert [(len(one.evicted), sum(one.refused.values())) for one in found.cycles] == [(1, 1), (1, 0), (0, 0)]
    assert list(found.cycles[0].refused) == ["The disruption budget web needs 3 healthy pods and has 4 currently"]


def test_the_policy_limits_evictions_of_a_cycle() -> None:
    found = ask(
        policy(RemoveDuplicates="{}", limit="maxNoOfPodsToEvictTotal: 1"), node("a"), node("b"),
        *(pod(f"web-{n}", "a") for n in range(6)), cycles=4,
    )  # fmt: skip
    assert [len(one.evicted) for one in found.cycles] == [1, 1, 1, 0]
    assert "maximum number of evicted pods per a descheduling cycle reached" in found.cycles[0].refused


def test_a_replacement_without_a_node_is_pending_and_the_answer_is_no() -> None:
    """The descheduler looks at requests and labels only: it does not know that a port is taken on the other node."""
    ports = [
        {"name": "c", "image": "web", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}
    ]
    tainted = node("a", taints=[{"key": "old", "effect": "NoSchedule"}])
    text = policy("deschedule", RemovePodsViolatingNodeTaints="{}", evictor="{nodeFit: true}")
    found = ask(text, tainted, node("b"), pod("web-1", "a", containers=ports), pod("web-2", "b", containers=ports), cycles=2)
    [one] = found.cycles[0].evicted
    assert (one.outcome, one.to) == ("pending", "")
    assert "free ports" in one.why
    assert found.holds is False
    assert len(found.pending) == 1


def test_a_replacement_is_as_old_as_its_cycle() -> None:
    """PodLifeTime evicts the old pod, and its replacement once it is too old as well."""
    text = policy("deschedule", PodLifeTime="{maxPodLifeTimeSeconds: 700}")
    found = ask(text, node("a"), node("b"), pod("web-1", "a"), cycles=5)
    assert [len(one.evicted) for one in found.cycles] == [1, 0, 0, 1, 0]


def test_low_utilisation_empties_the_hot_node_and_high_utilisation_the_cool_one() -> None:
    pods = [pod(f"web-{n}", "a") for n in range(7)]
    low = policy(LowNodeUtilization="{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}")
    assert ask(low, node("a"), node("b"), *pods).nodes_in_use == (1, 2)
    high = policy(HighNodeUtilization="{thresholds: {cpu: 20}}")
    found = ask(high, node("a"), node("b"), *pods[:4], pod("db-1", "b", app="db"), cycles=1)
    assert [one.pod for one in found.cycles[0].evicted] == ["default/db-1"]


def test_measured_usage_that_is_missing_ends_the_plugin_with_its_error() -> None:
    limits = "thresholds: {cpu: 20}, targetThresholds: {cpu: 50}"
    text = policy(LowNodeUtilization=f"{{{limits}, metricsUtilization: {{source: KubernetesMetrics}}}}")
    found = ask(text, node("a"), node("b"), pod("web-1", "a"), cycles=1)
    assert found.cycles[0].errors == (
        'plugin "LowNodeUtilization" finished with error: unable to find node "a" in the collected metrics',
    )


def test_measured_usage_decides_instead_of_requests() -> None:
    limits = "thresholds: {cpu: 20}, targetThresholds: {cpu: 50}"
    text = policy(LowNodeUtilization=f"{{{limits}, metricsUtilization: {{source: KubernetesMetrics}}}}")
    pods = [pod(f"web-{n}", "a", "100m") for n in range(3)]
    usage = MeasuredUsage({(f"default/web-{n}", "c"): {"cpu": 1000, "memory": 1} for n in range(3)})
    found = ask(text, node("a"), node("b"), *pods, cycles=3, usage=usage)
    assert [[(one.node, one.to) for one in cycle.evicted] for cycle in found.cycles] == [[("a", "b")], [], []]


def test_one_node_is_too_few() -> None:
    found = ask(policy(RemoveDuplicates="{}"), node("a"), pod("web-1", "a"), pod("web-2", "a"), cycles=1)
    assert found.summary == "1 cycle evicts no pod: the cluster size is 0 or 1: the descheduler does nothing"


def test_protected_pods_are_counted_with_the_reason() -> None:
    local = pod("web-1", "a", volumes=[{"name": "v", "emptyDir": {}}])
    alone = pod("web-2", "a")
    del alone["metadata"]["ownerReferences"]
    found = ask(policy(RemoveDuplicates="{}"), node("a"), node("b"), local, alone, cycles=1)
    assert found.protected == {
        "pod has local storage and is protected against eviction": 1, "pod does not have any ownerRefs": 1,
    }  # fmt: skip


def test_a_spent_budget_leaves_cycles_out_and_the_answer_open() -> None:
    ticks = iter(range(1000))
    time = TimeBudget(2.0, lambda: float(next(ticks)))
    found = ask(policy(RemoveDuplicates="{}"), node("a"), node("b"), pod("web-1", "a"), time=time)
    assert 1 <= len(found.cycles) < 10
    assert found.stopped is not None
    assert found.holds is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: DeschedulerPolicy", "policy.yaml: Object missing required field `apiVersion`"),
        (policy(RemoveDupes="{}"), r"profiles\[0\]\.pluginConfig\[1\]: plugin RemoveDupes is not one of the default plugins"),
        (
            policy(RemoveDuplicates="{space: 1}"),
            r"profiles\[0\]\.pluginConfig\[1\]\.args: Object contains unknown field `space`",
        ),
        (policy("deschedule", RemoveDuplicates="{}"), r"profiles\[0\]\.plugins\.deschedule: RemoveDuplicates is none of"),
        (policy("deschedule", PodLifeTime="{}"), "at least one filtering criterion must be specified"),
    ],
)
def test_a_faulty_policy_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_descheduler_policy(text.encode(), "policy.yaml")
