"""Disruption budgets: which pods would go beyond what is allowed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.workloads import PodDisruptionBudget
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.testing.builders import a_pod

WEB = {"matchLabels": {"app": "web"}}


def budget(allowed, selector=WEB, namespace="default", disrupted=()):
    return msgspec.convert(
        {
            "metadata": {"name": "budget", "namespace": namespace},
            "spec": {} if selector is None else {"selector": selector},
            "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")},
        },
        PodDisruptionBudget,
    )


def web(name, **labels):
    return a_pod(name, {"app": "web", **labels})


ABC = [web("a"), web("b"), web("c")]
BOTH = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}

CASES = {  # budgets, pods in the order they go, names of those that exceed
    "no budget": ([], ABC, ""),
    "what is allowed is spent in order": ([budget(1)], ABC, "bc"),
    "none is allowed": ([budget(0)], ABC, "abc"),
    "over-drawn already": ([budget(-1)], ABC, "abc"),
    "enough is allowed": ([budget(3)], ABC, ""),
    "other namespace": ([budget(0, namespace="other")], ABC, ""),
    "other labels": ([budget(0, {"matchLabels": {"app": "db"}})], ABC, ""),
    "an absent selector matches nothing": ([budget(0, None)], ABC, ""),
    "an empty selector matches nothing": ([budget(0, {})], ABC, ""),
    "a malformed selector matches nothing": (
        [budget(0, {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w"]}]})],
        ABC,
        "",
    ),
    "a malformed one does not hide others": (
        [budget(0, {"matchExpressions": [{"key": "app", "operator": "In"}]}), budget(1)],
        ABC,
        "bc",
    ),
    "pods without labels have no budget": (
        [budget(0, {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})],
        [a_pod("a"), a_pod("b", {"tier": "x"})],
        "b",
    ),
    "disrupted already is paid for": ([budget(1, disrupted=["a"])], ABC, "c"),
    "disrupted already, none allowed": ([budget(0, disrupted=["b"])], ABC, "ac"),
    "exceeding one of two is enough": ([budget(3), budget(1, BOTH)], ABC, "bc"),
    "each budget is spent by itself": (
        [budget(1), budget(1, {"matchLabels": {"app": "db"}})],
        [web("a"), a_pod("b", {"app": "db"}), web("c"), a_pod("d", {"app": "db"})],
        "cd",
    ),
    "a pod that exceeds one budget still spends another": (
        [budget(0, {"matchLabels": {"tier": "x"}}), budget(1)],
        [web("a", tier="x"), web("b")],
        "ab",
    ),
}


@pytest.mark.parametrize(("budgets", "pods", "exceeding"), CASES.values(), ids=CASES)
def test_split(budgets, pods, exceeding):
    over, others = Budgets(budgets).split(pods)
    assert "".join(pod.name for pod in over) == exceeding
    assert others == [pod for pod in pods if pod not in over]


def test_each_node_starts_from_the_allowed_disruptions():
    budgets = Budgets([budget(1)])
    assert budgets.split(ABC) == budgets.split(ABC)


@given(st.integers(-1, 5), st.lists(st.sampled_from(["web", "db"]), max_size=8))
def test_a_budget_covers_no_more_pods_than_it_allows(allowed, apps):
    pods = [a_pod(f"p{at}", {"app": app}) for at, app in enumerate(apps)]
    over, others = Budgets([budget(allowed)]).split(pods)
    within = [pod for pod in others if pod.labels["app"] == "web"]
    assert len(within) == min(max(allowed, 0), apps.count("web"))
    assert all(pod.labels["app"] == "web" for pod in over)
