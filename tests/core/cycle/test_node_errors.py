"""A node that a plugin cannot judge ends the attempt, unless an earlier plugin had refused the node anyway."""

from __future__ import annotations

import pytest

from moorage.core.cycle.cycle import Cycle
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Code, Reject
from moorage.testing.builders import a_cluster, a_node, a_pod

TEXT = 'running "Breaks" filter plugin: no such claim'


class Breaks:
    name = "Breaks"

    def filter(self, pod, nodes):
        yield Reject(nodes.named({"n1"}), "no such claim", error=True)
        yield Reject(nodes.named({"n1", "n2"}), "full")


class Refuses:
    name = "Refuses"

    def filter(self, pod, nodes):
        yield Reject(nodes.named({"n1"}), "not this one")


def decide(*plugins, **settings):
    snapshot = a_cluster([a_node("n0"), a_node("n1"), a_node("n2")]).snapshot
    names = [plugin.name for plugin in plugins]
    profile = make_profile("default-scheduler", dict(zip(names, plugins, strict=True)), {"filter": names}, {})
    return Cycle(**settings).decide(profile, a_pod(), snapshot)


def test_a_node_error_ends_the_attempt_with_the_event_text():
    decision = decide(Breaks())
    assert (decision.node, decision.code, decision.message) == (None, Code.ERROR, TEXT)
    assert decision.error is not None
    assert decision.error.plugin == "Breaks"


def test_a_node_error_can_count_as_a_rejection():
    decision = decide(Breaks(), errors_end=False)
    assert decision.node == "n0"
    assert [(s.code, s.reasons) for s in map(decision.status_of, (1, 2))] == [
        (Code.ERROR, (TEXT,)),
        (Code.UNSCHEDULABLE, ("full",)),
    ]


@pytest.mark.parametrize("errors_end", [True, False])
def test_a_node_error_is_ignored_after_an_earlier_rejection(errors_end):
    decision = decide(Refuses(), Breaks(), errors_end=errors_end)
    assert decision.node == "n0"
    assert decision.status_of(1).reasons == ("not this one",)
