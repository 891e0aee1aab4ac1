"""Two ways of earlier releases: a node carries the reasons of all filters, and a plugin normalises by the nodes themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moorage.framework.plugin_runner import merged, run_filter, run_pre_filter, run_score
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Code, Reject, Status, Verdicts
from moorage.testing.builders import a_cluster, a_node, a_pod

HARD, SOFT, BROKEN = Code.UNRESOLVABLE, Code.UNSCHEDULABLE, Code.ERROR


class Refuses:
    def __init__(self, name, nodes, reason, **how):
        self.name, self.nodes, self.reason, self.how = name, nodes, reason, how

    def filter(self, state, nodes):
        yield Reject(nodes.named(self.nodes), self.reason, **self.how)


def said(run_all, *plugins):
    profile = make_profile("p", {p.name: p for p in plugins}, {"filter": [p.name for p in plugins]}, {})
    profile = replace(profile, run_all_filters=run_all)
    snapshot, pod = a_cluster([a_node("x"), a_node("y")]).snapshot, a_pod()
    verdicts = Verdicts(2)
    run_filter(profile, run_pre_filter(profile, pod, snapshot), pod, snapshot.nodes, verdicts)
    return [verdicts.status(0), verdicts.status(1)]


def test_a_node_carries_all_reasons_if_all_filters_run():
    plugins = Refuses("A", ["x"], "a"), Refuses("B", ["x", "y"], "b", unresolvable=True), Refuses("C", [], "c")
    assert said(True, *plugins) == [Status(HARD, "B", ("a", "b")), Status(HARD, "B", ("b",))]
    assert said(False, *plugins) == [Status(SOFT, "A", ("a",)), Status(HARD, "B", ("b",))]


MERGED = {  # what was said, what it comes to
    "one": ([Status(SOFT, "A", ("a",))], Status(SOFT, "A", ("a",))),
    "all reasons": ([Status(SOFT, "A", ("a",)), Status(SOFT, "B", ("b", "c"))], Status(SOFT, "A", ("a", "b", "c"))),
    "the gravest": ([Status(SOFT, "A", ("a",)), Status(HARD, "B", ("b",))], Status(HARD, "B", ("a", "b"))),
    "an error stands alone": (
        [Status(HARD, "A", ("a",)), Status(BROKEN, "B", ("b",)), Status(SOFT, "C", ("c",))], Status(BROKEN, "B", ("b",)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("statuses", "expected"), MERGED.values(), ids=MERGED)
def test_merging(statuses, expected):
    assert merged(statuses) == expected


class ByName:
    """Gives 1, 2, 3 …, and normalises to 10 on the nodes named so and 0 elsewhere."""

    name = "ByName"

    def score(self, state, nodes):
        return np.arange(1, len(nodes) + 1)

    def normalize_over(self, state, scores, nodes):
        assert scores.tolist() == list(range(1, len(nodes) + 1))
        return 10 * nodes.named(["y"]).astype(np.int64)


def test_a_plugin_may_normalise_by_the_nodes():
    profile = make_profile("p", {"ByName": ByName()}, {"score": ["ByName"]}, {"ByName": 3})
    snapshot, pod = a_cluster([a_node("x"), a_node("y"), a_node("z")]).snapshot, a_pod()
    scores = run_score(profile, run_pre_filter(profile, pod, snapshot), pod, snapshot.nodes)
    assert scores.raw["ByName"].tolist() == [1, 2, 3]
    assert scores.total.tolist() == [0, 30, 0]
