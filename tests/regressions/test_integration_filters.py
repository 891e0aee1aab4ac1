"""Each filter has its say, end to end: kube-scheduler's integration tests of filters, in a table."""

import asyncio
from types import SimpleNamespace

import pytest

from moorage.api.validation.pods import VALUES
from tests.regressions import cluster_objects as on
from tools.simtest.stage import on_stage

ZONE, HOST = "zone", "node"


def two_nodes(w):
    """Two nodes of one zone."""
    for name in ("n1", "n2"):
        on.node(w, name, {HOST: name, ZONE: "z"})


def one_node(w):
    on.node(w, "n1", {HOST: "n1", ZONE: "z"})


def four_nodes(w):
    """Two zones of two nodes."""
    for number, zone in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
        on.node(w, f"n{number}", {HOST: f"n{number}", ZONE: zone})


def beside(place, *placed):
    """A place, and pods on it: node and labels, and what else is to be said of them."""

    def made(w):
        place(w)
        for number, (at, labels, *more) in enumerate(placed):
            on.pod(w, f"x{number}", labels, nodeName=at, **(more[0] if more else {}))

    return made


def both(one, other):
    """Spec of a pod with the affinity of two."""
    return {"affinity": {**one["affinity"], **other["affinity"]}}


def selecting(operator, *values):
    wanted = {"key": "s", "operator": operator, **({"values": list(values)} if values else {})}
    return {"labelSelector": {"matchExpressions": [wanted]}}


DB, WEB = {"db": ""}, {"web": ""}
NEAR_DB, FAR_FROM_DB = on.near("db", HOST), on.away("db", HOST)

AFFINITY = {  # the world, the pod's labels and spec, where it goes: nodes, or nowhere
    "no pod matches": (one_node, {}, NEAR_DB, ""),
    "one pod matches": (beside(two_nodes, ("n2", DB)), {}, NEAR_DB, "n2"),
    "matches by In": (beside(one_node, ("n1", {"s": "a"})), {}, on.near("", HOST, **selecting("In", "a", "b")), "n1"),
    "matches by NotIn": (beside(one_node, ("n1", {"s": "c"})), {}, on.near("", HOST, **selecting("NotIn", "a", "b")), "n1"),
    "does not match by NotIn": (
        beside(one_node, ("n1", {"s": "a"})), {"s": "a"}, on.near("", HOST, **selecting("NotIn", "a")), "",
    ),
    "matches by DoesNotExist": (beside(one_node, ("n1", DB)), {}, on.near("", HOST, **selecting("DoesNotExist")), "n1"),
    "the first of its kind": (one_node, DB, NEAR_DB, "n1"),
    "no node has the topology": (one_node, DB, on.near("db", "rack"), ""),
    "in the same zone": (beside(two_nodes, ("n1", DB)), {}, both(on.near("db", ZONE), FAR_FROM_DB), "n2"),
    "near one and away from another": (
        beside(two_nodes, ("n1", DB), ("n2", {**DB, **WEB})), {}, both(NEAR_DB, on.away("web", HOST)), "n1",
    ),
    "away from who is there": (beside(one_node, ("n1", DB)), {}, FAR_FROM_DB, ""),
    "away from who is elsewhere": (beside(two_nodes, ("n1", DB)), {}, FAR_FROM_DB, "n2"),
    "avoided by who is there": (beside(one_node, ("n1", {}, FAR_FROM_DB)), DB, {}, ""),
    "avoided by who is elsewhere": (beside(two_nodes, ("n1", {}, FAR_FROM_DB)), DB, {}, "n2"),
    "avoided in the whole zone": (beside(two_nodes, ("n1", {}, on.away("db", ZONE))), DB, {}, ""),
    "both avoid each other": (beside(two_nodes, ("n1", DB, FAR_FROM_DB)), DB, FAR_FROM_DB, "n2"),
    "of another namespace": (
        lambda w: (on.namespace(w, "other"), one_node(w), on.pod(w, "x", DB, "other", nodeName="n1")), {}, NEAR_DB, "",
    ),
    "of a namespace that is named": (
        lambda w: (on.namespace(w, "other"), one_node(w), on.pod(w, "x", DB, "other", nodeName="n1")),
        {}, on.near("db", HOST, namespaces=["other"]), "n1",
    ),
}  # fmt: skip


def teams(w):
    """Two nodes, and a database of each of two teams, in namespaces of their own."""
    two_nodes(w)
    for team, node in (("red", "n1"), ("blue", "n2")):
        on.namespace(w, f"of-{team}", team=team)
        on.pod(w, "x", DB, f"of-{team}", nodeName=node)


def of(team, **more):
    return {"namespaceSelector": {"matchLabels": {"team": team}}, **more}


RED, EVERYWHERE = of("red"), {"namespaceSelector": {}}
FAR_FROM_RED = on.away("db", HOST, **RED)
NAMESPACES = {
    "near one team": (teams, {}, on.near("db", HOST, **RED), "n1"),
    "away from one team": (teams, {}, FAR_FROM_RED, "n2"),
    "near an unknown team": (teams, {}, on.near("db", HOST, **of("green")), ""),
    "away from an unknown team": (teams, {}, on.away("db", HOST, **of("green")), "n1 n2"),
    "near a team, or a namespace that is named": (
        teams, {}, both(on.near("db", HOST, **of("green", namespaces=["of-blue"])), FAR_FROM_RED), "n2",
    ),
    "near pods of any namespace": (teams, {}, on.near("db", HOST, **EVERYWHERE), "n1 n2"),
    "away from pods of any namespace": (teams, {}, on.away("db", HOST, **EVERYWHERE), ""),
    "away from pods of its own namespace": (teams, {}, on.away("db", HOST), "n1 n2"),
    "avoided by another team": (
        lambda w: (two_nodes(w), on.namespace(w, "of-red"), on.pod(
            w, "x", {}, "of-red", nodeName="n1", **on.away("db", HOST, namespaceSelector={
                "matchLabels": {"kubernetes.io/metadata.name": "default"}}),
        )), DB, {}, "n2",
    ),
}  # fmt: skip


def apart(key=HOST, **more):
    return on.spread("s", key, **more)


S = {"s": ""}
SPREAD = {
    "the node with fewer": (beside(two_nodes, ("n1", S)), S, apart(), "n2"),
    "the zone with fewer": (beside(four_nodes, ("n1", S), ("n2", S), ("n3", S)), S, apart(ZONE), "n3 n4"),
    "skew of two": (beside(two_nodes, ("n1", S)), S, apart(maxSkew=2), "n1 n2"),
    "one that does not count itself": (beside(two_nodes, ("n1", S)), {}, apart(), "n1 n2"),
    "zone and node": (
        beside(four_nodes, ("n1", S), ("n3", S), ("n4", S)), S,
        {"topologySpreadConstraints": [
            *apart(ZONE)["topologySpreadConstraints"], *apart()["topologySpreadConstraints"]
        ]}, "n2",
    ),
    "zone and node that exclude each other": (
        beside(four_nodes, ("n1", S), ("n2", S), ("n3", S), ("n3", S)), S,
        {"topologySpreadConstraints": [
            *apart(ZONE)["topologySpreadConstraints"], *apart(maxSkew=1)["topologySpreadConstraints"]
        ]}, "n4",
    ),
    "nodes without the topology": (lambda w: on.node(w, "n1"), S, apart(), ""),
    "too few domains": (beside(two_nodes, ("n1", S), ("n2", S)), S, apart(minDomains=3), ""),
    "enough domains": (beside(two_nodes, ("n1", S), ("n2", S)), S, apart(minDomains=2), "n1 n2"),
    "tainted nodes count": (
        lambda w: (one_node(w), on.node(w, "n2", {HOST: "n2"}, [on.no_schedule("k")]), on.pod(w, "x", S, nodeName="n1")),
        S, apart(), "",
    ),
    "tainted nodes do not count": (
        lambda w: (one_node(w), on.node(w, "n2", {HOST: "n2"}, [on.no_schedule("k")]), on.pod(w, "x", S, nodeName="n1")),
        S, apart(nodeTaintsPolicy="Honor"), "n1",
    ),
    "nodes it may not go to do not count": (
        beside(two_nodes, ("n1", S)), S, {**apart(), "nodeSelector": {HOST: "n1"}}, "n1",
    ),
    "nodes it may not go to count": (
        beside(two_nodes, ("n1", S)), S, {**apart(nodeAffinityPolicy="Ignore"), "nodeSelector": {HOST: "n1"}}, "",
    ),
    "old revisions do not count": (
        beside(two_nodes, ("n1", {**S, "rev": "1"}), ("n1", {**S, "rev": "1"}), ("n2", {**S, "rev": "2"})),
        {**S, "rev": "2"}, apart(matchLabelKeys=["rev"]), "n1",
    ),
    "old revisions count": (
        beside(two_nodes, ("n1", {**S, "rev": "1"}), ("n1", {**S, "rev": "1"}), ("n2", {**S, "rev": "2"})),
        {**S, "rev": "2"}, apart(), "n2",
    ),
}  # fmt: skip

REVISION = {**DB, "rev": "2"}
MATCH_KEYS = {
    "near those of its own revision": (
        beside(two_nodes, ("n1", {**DB, "rev": "1"}), ("n2", REVISION)), REVISION,
        on.near("db", HOST, matchLabelKeys=["rev"]), "n2",
    ),
    "away from those of its own revision": (
        beside(two_nodes, ("n1", {**DB, "rev": "1"}), ("n2", REVISION)), REVISION,
        on.away("db", HOST, matchLabelKeys=["rev"]), "n1",
    ),
    "away from those of other revisions": (
        beside(two_nodes, ("n1", {**DB, "rev": "1"}), ("n2", REVISION)), REVISION,
        on.away("db", HOST, mismatchLabelKeys=["rev"]), "n2",
    ),
}  # fmt: skip


def at_level(operator, value):
    return {"tolerations": [{"key": "level", "operator": operator, "value": value, "effect": "NoSchedule"}]}


def levelled(level):
    return lambda w: on.node(w, "n1", taints=[on.no_schedule("level", level)])


COMPARING = {"TaintTolerationComparisonOperators": True}
GREATER_AND_LESS = {
    "a taint above": (levelled("950"), {}, at_level("Gt", "900"), "n1"),
    "a taint not above": (levelled("900"), {}, at_level("Gt", "900"), ""),
    "a taint below": (levelled("800"), {}, at_level("Lt", "900"), "n1"),
    "a taint not below": (levelled("950"), {}, at_level("Lt", "900"), ""),
    "a taint that is no number": (levelled("high"), {}, at_level("Gt", "900"), ""),
    "above what is below zero": (levelled("5"), {}, at_level("Gt", "-10"), "n1"),
}  # fmt: skip

TAKEN = beside(one_node, ("n1", {}, on.port(80, "10.0.0.1")))
RESTARTS = {"container": {"restartPolicy": "Never", "restartPolicyRules": [
    {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]}}  # fmt: skip
FEATURE = "UserNamespacesHostNetworkSupport"
DISK = {"requests": {"ephemeral-storage": "3Gi"}}

OTHERS = {
    "a port that is taken": (TAKEN, {}, on.port(80, "10.0.0.1"), ""),
    "a port on every address": (TAKEN, {}, on.port(80), ""),
    "a port on another address": (TAKEN, {}, on.port(80, "10.0.0.2"), "n1"),
    "a port of another protocol": (TAKEN, {}, on.port(80, "10.0.0.1", "UDP"), "n1"),
    "another port": (TAKEN, {}, on.port(81, "10.0.0.1"), "n1"),
    "too little CPU": (beside(one_node, ("n1", {}, {"cpu": "3"})), {}, {"cpu": "2"}, ""),
    "enough CPU": (beside(one_node, ("n1", {}, {"cpu": "3"})), {}, {"cpu": "1"}, "n1"),
    "nothing asked for on a full node": (beside(one_node, ("n1", {}, {"cpu": "4"})), {}, {}, "n1"),
    "too many pods": (lambda w: (on.node(w, "n1", pods=1), on.pod(w, "x", nodeName="n1")), {}, {}, ""),
    "too little of an extended resource": (lambda w: on.node(w, "n1", **{"a.b/c": 1}), {}, {"requests": {"a.b/c": "2"}}, ""),
    "enough of an extended resource": (lambda w: on.node(w, "n1", **{"a.b/c": 2}), {}, {"requests": {"a.b/c": "2"}}, "n1"),
    "too little local disk": (
        lambda w: (on.node(w, "n1", **{"ephemeral-storage": "5Gi"}), on.pod(w, "x", nodeName="n1", **DISK)), {}, DISK, "",
    ),
    "enough local disk": (lambda w: on.node(w, "n1", **{"ephemeral-storage": "5Gi"}), {}, DISK, "n1"),
    "a container before that asks for more": (one_node, {}, {
        "cpu": "1", "initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": "5"}}}]}, "",
    ),
    "node affinity": (two_nodes, {}, on.on_nodes(HOST, "n2"), "n2"),
    "node affinity to a missing node": (two_nodes, {}, on.on_nodes(HOST, "n3"), ""),
    "node selector": (two_nodes, {}, {"nodeSelector": {HOST: "n1"}}, "n1"),
    "an operator that compares": (
        lambda w: (on.node(w, "n1", {"gen": "4"}), on.node(w, "n2", {"gen": "6"})), {},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["5"]}]}]}}}}, "n2",
    ),
    "a taint": (lambda w: on.node(w, "n1", taints=[on.no_schedule("k", "v")]), {}, {}, ""),
    "a taint that is tolerated": (lambda w: on.node(w, "n1", taints=[on.no_schedule("k", "v")]), {}, on.tolerating("k"), "n1"),
    "a feature that is not declared": (one_node, {}, {"hostNetwork": True, "hostUsers": False}, ""),
    "a feature that is declared": (
        lambda w: (one_node(w), on.node(w, "n2", features=[FEATURE])), {}, {"hostNetwork": True, "hostUsers": False}, "n2",
    ),
}  # fmt: skip

CASES = {**AFFINITY, **NAMESPACES, **SPREAD, **MATCH_KEYS, **OTHERS}


async def goes(stage, world, labels, spec, nodes):
    world(stage.world)
    await asyncio.sleep(0.5)
    on.pod(stage.world, "p", labels, **spec)
    await asyncio.sleep(2)
    assert stage.node_of("p") in (nodes.split() or [""])
    if not nodes:
        (condition,) = stage.pod("p")["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")


@pytest.mark.parametrize(("world", "labels", "spec", "nodes"), CASES.values(), ids=CASES)
def test_the_node_of_a_pod(world, labels, spec, nodes):
    # The oracle reads neither selectors of namespaces nor the finer points of spread.
    on_stage(lambda stage: goes(stage, world, labels, spec, nodes), terms=None, settle_s=2.0)


@pytest.fixture
def comparing(monkeypatch):
    """Let the embedded API server take what it has no gate for: tolerations that compare."""

    def faults(*rule):
        return (fault for fault in VALUES.faults(*rule) if ".tolerations[" not in str(fault))

    monkeypatch.setattr("moorage.api.validation.pods.VALUES", SimpleNamespace(faults=faults))


@pytest.mark.parametrize(("world", "labels", "spec", "nodes"), GREATER_AND_LESS.values(), ids=GREATER_AND_LESS)
@pytest.mark.usefixtures("comparing")
def test_taints_are_compared_with_numbers(world, labels, spec, nodes):
    on_stage(lambda stage: goes(stage, world, labels, spec, nodes), opened=COMPARING, terms=None, settle_s=2.0)


@pytest.mark.usefixtures("comparing")
def test_taints_are_not_compared_without_the_gate():
    world, labels, spec, _ = GREATER_AND_LESS["a taint above"]
    on_stage(lambda stage: goes(stage, world, labels, spec, ""), terms=None, settle_s=2.0)


def test_declared_features_are_not_required_without_the_gate():
    closed = {"NodeDeclaredFeatures": False, "InPlacePodLevelResourcesVerticalScaling": False}
    on_stage(lambda stage: goes(stage, one_node, {}, {"hostNetwork": True, "hostUsers": False}, "n1"), opened=closed)
