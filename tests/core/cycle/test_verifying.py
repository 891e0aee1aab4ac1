"""Repeating decisions without caches finds plugins that break their promises, and honest plugins are never reported."""

from __future__ import annotations

import numpy as np
import pytest

from moorage.core.cycle import verifying
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.verifying import Verification
from moorage.framework.points import Domains, Idle, Reuse, Scope
from moorage.framework.profile import make_profile, points_of
from moorage.framework.registry import Registry
from moorage.framework.verdicts import SKIP, Reject
from moorage.plugins import BUILTIN
from moorage.testing.builders import a_cluster, a_node, a_pod
from tests.core.cycle.test_pod_classes import ORDER, WEIGHTS, Bench

ZONE = "topology.kubernetes.io/zone"
ROOM = {"cpu": "8", "memory": "16Gi", "pods": "50"}


class ReadsMore:
    """Says that it reads nothing of a pod, and reads a label."""

    name = "ReadsMore"
    reuse = Reuse(Scope.NODE, signature=lambda pod: {})

    def filter(self, pod, nodes):
        yield Reject(nodes.named([pod.labels["not"]]), "unwanted")


class CountsPods:
    """Says that it reads only the node, and counts the pods there."""

    name = "CountsPods"
    reuse = Reuse(Scope.NODE, signature=lambda pod: {})

    def score(self, pod, nodes):
        return np.maximum(100 - nodes.pod_count, 0)


class ReadsOthers:
    """Says that it reads the pods of a node, and reads those of all nodes."""

    name = "ReadsOthers"
    reuse = Reuse(Scope.NODE_PODS, signature=lambda pod: {})

    def filter(self, pod, nodes):
        placed = len(list(nodes.snapshot.pods()))
        yield Reject(nodes.named([f"n{placed}"]), "unlucky")


class NeverIdle:
    """Says that it skips all pods, and skips only the first."""

    name = "NeverIdle"
    reuse = Reuse(Scope.DOMAIN, signature=lambda pod: {}, idle=lambda pod, snapshot: Idle(now=True))

    def pre_filter(self, pod, snapshot):
        return SKIP if pod.labels["not"] == "n0" else "some"

    def filter(self, state, nodes):
        yield Reject(nodes.named(["n1", "n2", "n3"]), "not there")


def _first_zone(nodes):
    return ZONE, np.arange(len(nodes.label(ZONE).values)) == 1


class OtherDomains:
    """Closes another zone when it is asked for zones than when it is asked for nodes."""

    name = "OtherDomains"
    reuse = Reuse(Scope.DOMAIN, signature=lambda pod: {}, domains=Domains(closed=lambda state, nodes: [_first_zone(nodes)]))

    def filter(self, pod, nodes):
        yield Reject(nodes.named(["n1"]), "closed")


class Honest:
    name = "Honest"
    reuse = Reuse(Scope.NODE, signature=lambda pod: {"not": pod.labels["not"]})

    def filter(self, pod, nodes):
        yield Reject(nodes.named([pod.labels["not"]]), "unwanted")


def profile_with(*custom):
    registry = Registry(BUILTIN)
    plugins = {name: registry.build(name) for name in ORDER if name in registry}
    for plugin in plugins.values():
        if hasattr(plugin, "attach"):
            plugin.attach(Bench())
    plugins |= {plugin.name: plugin for plugin in custom}
    points = {}
    for name, plugin in plugins.items():
        for point in points_of(plugin):
            points.setdefault(point, []).append(name)
    return make_profile("default-scheduler", plugins, points, WEIGHTS)


def differences(custom, share=1.0, pods=24):
    """Schedule pods with a plugin. Return what was reported, and the decisions as they were and as they should be."""
    reported, made, right = [], [], []
    cycle, profile = Cycle(seed=3, verification=Verification(share, reported.append)), profile_with(custom)
    cluster = a_cluster([a_node(f"n{at}", {ZONE: f"z{at % 3}"}, allocatable=ROOM) for at in range(9)])
    for at in range(pods):
        pod = a_pod(f"p{at}", {"not": f"n{at % 7}", "app": "a"})
        right.append(Cycle(seed=3, by_class=False).decide(profile, pod, cluster.snapshot).node)
        if at % 2:
            made.append(cycle.decide(profile, pod, cluster.snapshot).node)
        else:
            quick = cycle.at_once(profile).decide_known(pod, cluster.snapshot, 3)
            known = cycle.decide(profile, pod, cluster.snapshot).node if quick is None else None
            made.append(known or cluster.snapshot.table.nodes[quick.row].name)
        cluster.assume(pod, right[-1])
    return reported, made, right


@pytest.mark.parametrize("custom", [ReadsMore, CountsPods, ReadsOthers, NeverIdle, OtherDomains], ids=lambda cls: cls.name)
def test_a_plugin_that_breaks_its_promise_is_named_and_no_longer_trusted(custom):
    reported, made, right = differences(custom())
    assert [error.plugin for error in reported] == [custom.name]
    assert f"plugin {custom.name} has a reuse that does not hold: kept answers put pod default/p" in str(reported[0])
    assert made == right


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_plugins_that_keep_their_promises_are_not_reported(share):
    reported, made, right = differences(Honest(), share)
    assert reported == []
    assert made == right


def test_only_the_given_share_of_decisions_is_repeated(monkeypatch):
    repeated = []
    decided = verifying._decided
    monkeypatch.setattr(verifying, "_decided", lambda *args: (repeated.append(1), decided(*args))[1])
    differences(Honest(), 0.25, 40)
    assert len(repeated) == 10


def test_without_it_a_broken_promise_changes_decisions():
    reported, made, right = differences(ReadsMore(), 0.0)
    assert reported == []
    assert made != right


class RefusesFirst:
    """Says that it reads nothing of a pod, and refuses all nodes to some."""

    name = "RefusesFirst"
    reuse = Reuse(Scope.NODE, signature=lambda pod: {})

    def filter(self, pod, nodes):
        yield Reject(np.full(len(nodes), pod.name == "p0"), "first")


def test_a_failure_that_was_kept_is_repeated():
    reported = []
    cycle, profile = Cycle(verification=Verification(1.0, reported.append)), profile_with(RefusesFirst())
    cluster = a_cluster([a_node(f"n{at}", allocatable=ROOM) for at in range(3)])
    decided = [cycle.decide(profile, a_pod(f"p{at}"), cluster.snapshot).node for at in range(3)]
    assert decided[0] is None
    assert None not in decided[1:]
    assert [error.plugin for error in reported] == ["RefusesFirst"]
