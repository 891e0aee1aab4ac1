import pytest

from moorage.framework.events import Action, Resource
from moorage.testing.plugin_queries import wakes
from tests.plugins.test_pod_topology_spread_wakes import attached, constraint, web

APP, TIER = {"matchLabels": {"app": "web"}}, {"matchLabels": {"tier": "front"}}
FIRST, BOTH = {"app": "web"}, {"app": "web", "tier": "front"}
CASES = {
    "starts to count for one of two constraints": (
        Action.UPDATE_POD_LABEL,
        web("p", labels=FIRST, nodeName="a1"),
        web("p", labels=BOTH, nodeName="a1"),
    ),
    "counts for one of two constraints, and comes": (Action.ADD, None, web("p", labels=FIRST, nodeName="a1")),
    "counts for one of two constraints, and goes": (Action.DELETE, web("p", labels=FIRST, nodeName="a1"), None),
}


@pytest.mark.parametrize(("action", "old", "new"), CASES.values(), ids=CASES)
def test_a_pod_that_counts_for_one_constraint_wakes(action, old, new):
    waiting = web("pending", constraint(selector=APP), constraint("host", selector=TIER), labels=BOTH)
    assert wakes(attached(), waiting, Resource.ASSIGNED_POD, action, old, new)
