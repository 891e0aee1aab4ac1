"""Test hard spread constraints: rejected nodes, counted pods, simulated pod removal, and the events that wake a pod."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import TopologySpreadConstraint
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import LabelSelector
from moorage.errors import Fault, PluginError
from moorage.framework.verdicts import Code, Skip, Status
from moorage.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from moorage.state.view import NodeView
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals
from tests.executed import executed

SKEWED = Status(Code.UNSCHEDULABLE, "PodTopologySpread", ("node(s) didn't match pod topology spread constraints",))
UNLABELLED = Status(
    Code.UNRESOLVABLE,
    "PodTopologySpread",
    ("node(s) didn't match pod topology spread constraints (missing required label)",),
)
WEB = {"matchLabels": {"app": "web"}}


def constraint(key="zone", skew=1, selector=WEB, **more):
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}


def web(name="web", *constraints, labels=None, **more):
    return a_pod(name, {"app": "web"} if labels is None else labels, topologySpreadConstraints=list(constraints), **more)


def node(name, zone=None, **more):
    labels = {"host": name, **({"zone": zone} if zone is not None else {}), **more.pop("labels", {})}
    return a_node(name, labels, **more)


def attached(snapshot=None, args=None, **gates):
    plugin = PodTopologySpread(args)
    plugin.attach(SimpleNamespace(gates=FeatureGates(gates), snapshot=snapshot))
    return plugin


def holding(counts, *nodes):
    """Return a cluster of these nodes with this many web pods on each, by name."""
    pods = {n: [web(f"{n}-{i}") for i in range(count)] for n, count in counts.items()}
    return a_cluster(nodes, pods)


THREE_ZONES = (node("a1", "a"), node("a2", "a"), node("b1", "b"), node("c1", "c"))
DISKS = (node("a1", "a", labels={"disk": "ssd"}), node("b1", "b"), node("c1", "c", labels={"disk": "ssd"}))
TAINTED = (
    node("a1", "a"),
    node("b1", "b", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    node("c1", "c", taints=[{"key": "old", "effect": "PreferNoSchedule"}]),
)

# constraints; the nodes; web pods on them; other fields of the pod's spec; nodes rejected for skew; nodes rejected for a label
CASES = {
    "a balanced cluster": ([constraint()], THREE_ZONES, {}, {}, "", ""),
    "skew 2": ([constraint()], THREE_ZONES, {"a1": 1}, {}, "a1 a2", ""),
    "skew 3, maxSkew 2": ([constraint(skew=2)], THREE_ZONES, {"a1": 1, "a2": 1}, {}, "a1 a2", ""),
    "skew 2, maxSkew 2": ([constraint(skew=2)], THREE_ZONES, {"a1": 1}, {}, "", ""),
    "the least loaded domain counts": ([constraint()], THREE_ZONES, {"a1": 2, "b1": 1, "c1": 1}, {}, "a1 a2", ""),
    "hosts": ([constraint("host")], THREE_ZONES, {"a1": 1, "b1": 1}, {}, "a1 b1", ""),
    "two constraints: either rejects": (
        [constraint("zone", 2), constraint("host")], THREE_ZONES, {"a1": 2, "a2": 1}, {}, "a1 a2", "",
    ),
    "one node without the label": ([constraint()], (node("a1", "a"), node("x")), {}, {}, "", "x"),
    "no node with the label": ([constraint("rack")], THREE_ZONES, {}, {}, "", "a1 a2 b1 c1"),
    "skew is reported before a missing label of a later constraint": (
        [constraint("host"), constraint()], (node("a1", "a"), node("b1", "b"), node("x")), {"a1": 1}, {}, "a1", "x",
    ),
    "nodes without every label do not count": (
        [constraint(), constraint("host", 9)],
        (node("a1", "a"), node("b1", "b", labels={"host": ""}), a_node("c1", {"zone": "c"})),
        {"a1": 1, "b1": 1}, {}, "", "c1",
    ),
    "an empty label value is a domain": ([constraint()], (node("a1", "a"), node("e1", "")), {"e1": 1}, {}, "e1", ""),
    "fewer domains than minDomains: the least is 0": (
        [constraint(minDomains=4)], THREE_ZONES, {"a1": 1, "b1": 1, "c1": 1}, {}, "a1 a2 b1 c1", "",
    ),
    "minDomains reached": ([constraint(minDomains=3)], THREE_ZONES, {"a1": 1, "b1": 1, "c1": 1}, {}, "", ""),
    "a pod that does not match its own selector": ([constraint()], THREE_ZONES, {"a1": 1}, {"labels": {"app": "db"}}, "", ""),
    "no selector matches nothing": ([constraint(selector=None)], THREE_ZONES, {"a1": 5}, {}, "", ""),
    "an empty selector counts only the pod itself": ([constraint(selector={})], THREE_ZONES, {"a1": 5}, {}, "", ""),
    "soft constraints reject no node": (
        [constraint(whenUnsatisfiable="ScheduleAnyway")], THREE_ZONES, {"a1": 5}, {}, "", "",
    ),
    "nodes outside the pod's node selector do not count": (
        [constraint()], DISKS, {"a1": 1, "c1": 1}, {"nodeSelector": {"disk": "ssd"}}, "", "",
    ),
    "nodeAffinityPolicy Ignore: they count": (
        [constraint(nodeAffinityPolicy="Ignore")], DISKS, {"a1": 1, "c1": 1}, {"nodeSelector": {"disk": "ssd"}}, "a1 c1", "",
    ),
    "tainted nodes count": ([constraint()], TAINTED, {"a1": 1, "c1": 1}, {}, "a1 c1", ""),
    "nodeTaintsPolicy Honor: they do not count, except for soft taints": (
        [constraint(nodeTaintsPolicy="Honor")], TAINTED, {"a1": 1, "c1": 1}, {}, "", "",
    ),
    "or tolerated": (
        [constraint(nodeTaintsPolicy="Honor")], TAINTED, {"a1": 1, "c1": 1},
        {"tolerations": [{"operator": "Exists"}]}, "a1 c1", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("constraints", "nodes", "counts", "spec", "skewed", "unlabelled"), CASES.values(), ids=CASES)
def test_rejects(constraints, nodes, counts, spec, skewed, unlabelled):
    pod = web("new", *constraints, **spec)
    wanted = dict.fromkeys(skewed.split(), SKEWED) | dict.fromkeys(unlabelled.split(), UNLABELLED)
    assert refusals(PodTopologySpread(), pod, holding(counts, *nodes).snapshot) == wanted


def test_which_pods_are_counted():
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    others = [web("leaving", metadata=leaving), web("elsewhere", namespace="other"), web("db", labels={"app": "db"})]
    cluster = a_cluster(THREE_ZONES, {"a1": others})
    assert refusals(PodTopologySpread(), web("new", constraint()), cluster.snapshot) == {}
    cluster.place(web("one"), "a1")
    assert set(refusals(PodTopologySpread(), web("new", constraint()), cluster.snapshot)) == {"a1", "a2"}


@pytest.mark.parametrize(("gate", "refused"), [(True, set()), (False, {"a1", "a2"})])
def test_match_label_keys_count_pods_of_the_same_revision(gate, refused):
    old = [web("old", labels={"app": "web", "rev": "1"})]
    cluster = a_cluster(THREE_ZONES, {"a1": old})
    pod = web("new", constraint(matchLabelKeys=["rev"]), labels={"app": "web", "rev": "2"})
    plugin = attached(cluster.snapshot, MatchLabelKeysInPodTopologySpread=gate)
    assert set(refusals(plugin, pod, cluster.snapshot)) == refused


@pytest.mark.parametrize(("gate", "refused"), [(False, {}), (True, {"a1": SKEWED})])
def test_numeric_tolerations_count_when_their_gate_is_on(gate, refused):
    taint = [{"key": "sla", "value": "990", "effect": "NoSchedule"}]
    cluster = holding({"a1": 1}, node("a1", "a"), node("b1", "b", taints=taint))
    tolerations = [{"key": "sla", "operator": "Gt", "value": "950"}]
    pod = web("new", constraint(nodeTaintsPolicy="Honor"), tolerations=tolerations)
    plugin = attached(cluster.snapshot, TaintTolerationComparisonOperators=gate)
    assert refusals(plugin, pod, cluster.snapshot) == refused


def test_pods_without_hard_constraints_are_skipped():
    snapshot = a_cluster(THREE_ZONES).snapshot
    assert isinstance(PodTopologySpread().pre_filter(web(), snapshot), Skip)
    assert isinstance(PodTopologySpread().pre_filter(web("w", constraint(whenUnsatisfiable="ScheduleAnyway")), snapshot), Skip)


def test_a_malformed_selector_fails_the_attempt():
    broken = web("web", constraint(selector={"matchExpressions": [{"key": "app", "operator": "Like"}]}))
    with pytest.raises(PluginError, match=r"plugin PodTopologySpread cannot read .* of default/web: .*Like"):
        PodTopologySpread().pre_filter(broken, a_cluster(THREE_ZONES).snapshot)


# -- arguments ------------------------------------------------------------------------------------------------------------

LISTED = {"topology_key": "zone", "max_skew": 1, "when_unsatisfiable": "DoNotSchedule"}
FAULTS = {  # defaulting type; changes to LISTED, one for each constraint; the fault
    "system": ("System", [], []),
    "a list": ("List", [{}, {"topology_key": "host"}, {"when_unsatisfiable": "ScheduleAnyway"}], []),
    "an empty list": ("List", [], []),
    "unknown type": (
        "Fancy", [], [("defaultingType", 'Unsupported value: "Fancy": supported values: "System", "List"')],
    ),
    "system with a list": (
        "System", [{}], [("defaultingType", 'Invalid value: "System": when .defaultConstraints are not empty')],
    ),
    "no skew": (
        "List", [{"max_skew": 0}], [("defaultConstraints[0].maxSkew", "Invalid value: 0: not in valid range (0, inf)")],
    ),
    "no key": ("List", [{"topology_key": ""}], [("defaultConstraints[0].topologyKey", "Required value: can not be empty")]),
    "no action": (
        "List", [{"when_unsatisfiable": ""}], [("defaultConstraints[0].whenUnsatisfiable", "Required value: can not be empty")],
    ),
    "unknown whenUnsatisfiable": (
        "List", [{"when_unsatisfiable": "Maybe"}],
        [("defaultConstraints[0].whenUnsatisfiable",
          'Unsupported value: "Maybe": supported values: "DoNotSchedule", "ScheduleAnyway"')],
    ),
    "duplicate constraint": ("List", [{}, {}], [("defaultConstraints[1]", 'Duplicate value: "{zone, DoNotSchedule}"')]),
}  # fmt: skip


def arguments(kind, changes):
    constraints = tuple(TopologySpreadConstraint(**{**LISTED, **change}) for change in changes)
    return PodTopologySpreadArgs(defaulting_type=kind, default_constraints=constraints)


@pytest.mark.parametrize(("kind", "changes", "wrong"), FAULTS.values(), ids=FAULTS)
def test_arguments(kind, changes, wrong):
    found = arguments(kind, changes).faults("args", FeatureGates())
    assert [(fault.field, fault.body) for fault in found] == [(f"args.{field}", body) for field, body in wrong]


def test_other_faults_of_arguments():
    found = arguments("List", [{"topology_key": "no good", "label_selector": LabelSelector()}]).faults("", FeatureGates())
    assert [fault.field for fault in found] == ["defaultConstraints[0].topologyKey", "defaultConstraints[0].labelSelector"]
    why = "constraint must not define a selector, as they deduced for each pod"
    assert found[1] == Fault("Forbidden", "defaultConstraints[0].labelSelector", why)


# -- a reference implementation -------------------------------------------------------------------------------------------

LABELS = [{}, {"app": "web"}, {"app": "db"}, {"app": "web", "rev": "1"}, {"app": "web", "rev": "2"}]
SELECTORS = [
    None,
    WEB,
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
    {"matchExpressions": [{"key": "rev", "operator": "DoesNotExist"}]},
]


def selects(selector, labels):
    if selector is None:
        return False
    for one in selector.get("matchExpressions", []):
        if one["operator"] == "In" and labels.get(one["key"]) not in one["values"]:
            return False
        if one["operator"] == "DoesNotExist" and one["key"] in labels:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def reference_reasons(pod, constraints, nodes, placed):
    """Return the reason for each rejected node, by name, as the constraints' documentation defines it."""
    refused = {}
    everywhere = [n for n in nodes if all(c["topologyKey"] in n.labels for c in constraints)]
    for n in nodes:
        for c in constraints:
            key = c["topologyKey"]
            asked = {k: pod.labels[k] for k in c.get("matchLabelKeys", []) if k in pod.labels}

            def counts(labels, c=c, asked=asked):
                return selects(c["labelSelector"], labels) and all(labels.get(k) == v for k, v in asked.items())

            if key not in n.labels:
                refused[n.name] = UNLABELLED
                break
            counting = [m for m in everywhere if included(m, pod, c)]
            pods = Counter({m.labels[key]: 0 for m in counting})
            for m in counting:
                pods[m.labels[key]] += sum(
                    counts(p.labels) and p.namespace == pod.namespace and not p.terminating for p in placed.get(m.name, [])
                )
            least = min(pods.values(), default=0) if len(pods) >= c.get("minDomains", 1) else 0
            if pods[n.labels[key]] + counts(pod.labels) - least > c["maxSkew"]:
                refused[n.name] = SKEWED
                break
    return refused


def included(n, pod, c):
    if c.get("nodeAffinityPolicy", "Honor") == "Honor" and any(n.labels.get(k) != v for k, v in pod.spec.node_selector.items()):
        return False
    return not (c.get("nodeTaintsPolicy") == "Honor" and n.spec.taints and not pod.spec.tolerations)


def either(strategy):
    return st.one_of(st.just({}), strategy)


constraints = st.builds(
    lambda key, skew, selector, *more: constraint(key, skew, selector, **{k: v for one in more for k, v in one.items()}),
    st.sampled_from(["zone", "zone", "host", "rack"]),
    st.integers(1, 2),
    st.sampled_from(SELECTORS),
    either(st.builds(lambda n: {"minDomains": n}, st.integers(1, 4))),
    either(st.builds(lambda policy: {"nodeAffinityPolicy": policy}, st.sampled_from(["Honor", "Ignore"]))),
    either(st.builds(lambda policy: {"nodeTaintsPolicy": policy}, st.sampled_from(["Honor", "Ignore"]))),
    either(st.just({"matchLabelKeys": ["rev"]})),
)
optional_zone = st.sampled_from([None, "", "a", "b", "c"])
node_labels = st.builds(
    lambda zone, rack, disk: {k: v for k, v in (("zone", zone), ("rack", rack), ("disk", disk)) if v is not None},
    optional_zone, st.sampled_from([None, "r"]), st.sampled_from([None, "ssd"]),
)  # fmt: skip
taints = st.sampled_from([[], [{"key": "gpu", "effect": "NoSchedule"}]])
node_lists = st.lists(st.tuples(node_labels, taints), min_size=1, max_size=6).map(
    lambda all_: [a_node(f"n{i}", {"host": f"n{i}", **labels}, taints=taints) for i, (labels, taints) in enumerate(all_)]
)
waiting_pods = st.builds(
    lambda hard, labels, selector, tolerations: (
        a_pod("new", labels, topologySpreadConstraints=hard, nodeSelector=selector, tolerations=tolerations), hard,
    ),
    st.lists(constraints, min_size=1, max_size=3), st.sampled_from(LABELS),
    st.sampled_from([{}, {}, {"disk": "ssd"}]), st.sampled_from([[], [{"operator": "Exists"}]]),
)  # fmt: skip


def placed_pods(terminating=True):
    """Generate placed pods as (node number, labels, namespace, whether terminating)."""
    leaving = st.booleans() if terminating else st.just(False)
    return st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(LABELS), st.sampled_from(["default", "default", "other"]), leaving),
        max_size=12,
    )


def settle(nodes, where):
    """Build pods on nodes, by node name, from generated data."""
    placed = {}
    for i, (number, labels, namespace, leaving) in enumerate(where):
        metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}
        name = nodes[number % len(nodes)].name
        pod = a_pod(f"p{i}", labels, namespace=namespace, metadata=metadata, nodeName=name)
        placed.setdefault(name, []).append(pod)
    return placed


@settings(max_examples=50, deadline=None)
@given(node_lists, placed_pods(), waiting_pods, st.data())
def test_agrees_with_a_reference_implementation(nodes, where, waiting, data):
    placed = settle(nodes, where)
    pod, hard = waiting
    snapshot = a_cluster(nodes, placed).snapshot
    said = reference_reasons(pod, hard, nodes, placed)
    assert refusals(PodTopologySpread(), pod, snapshot) == said
    part = [n.name for n in nodes if data.draw(st.booleans())]
    view = snapshot.nodes.only(snapshot.nodes.named(part))
    assert refusals(PodTopologySpread(), pod, view) == {name: status for name, status in said.items() if name in part}


# -- simulated removal and addition ---------------------------------------------------------------------------------------


def judged(plugin, state, snapshot):
    """Return each row's reason under this state."""
    reasons = [None] * len(snapshot.table)
    for reject in plugin.filter(state, snapshot.nodes):
        for row in np.flatnonzero(reject.rows):
            assert reasons[row] is None
            reasons[row] = reject.reason
    return reasons


@settings(max_examples=50, deadline=None)
@given(node_lists, placed_pods(terminating=False), waiting_pods, st.integers(0, 5), st.data())
def test_add_and_remove_pod_equal_a_changed_cluster(nodes, where, waiting, number, data):
    placed = settle(nodes, where)
    pod, _ = waiting
    cluster = a_cluster(nodes, placed)
    snapshot, plugin = cluster.snapshot, PodTopologySpread()
    row = number % len(nodes)
    before = state = plugin.pre_filter(pod, snapshot)
    reasons_before = judged(plugin, before, snapshot)
    moves = data.draw(st.lists(st.sampled_from(placed.get(nodes[row].name, []) or [None]), unique=True))
    comers = data.draw(st.lists(st.sampled_from(LABELS), max_size=3))
    with cluster.what_if(row) as table:
        for other in filter(None, moves):
            table.remove_pod(row, other)
            state = plugin.remove_pod(state, pod, other, snapshot.nodes.one(row))
        for i, labels in enumerate(comers):
            table.add_pod(row, a_pod(f"comer{i}", labels))
            state = plugin.add_pod(state, pod, a_pod(f"comer{i}", labels), snapshot.nodes.one(row))
        assert judged(plugin, state, snapshot) == judged(plugin, plugin.pre_filter(pod, snapshot), snapshot)
        assert judged(plugin, before, snapshot) == reasons_before
        alone = list(plugin.filter(state, NodeView(snapshot, np.array([row]))))
        assert bool(alone) is (judged(plugin, state, snapshot)[row] is not None)


def test_removing_a_pod_that_was_not_counted_lowers_the_count_as_upstream():
    """A terminating pod does not count; removing it lowers the count below the number of remaining pods."""
    leaving = web("leaving", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    staying = web("staying")
    cluster = a_cluster([node("a1", "a"), node("b1", "b")], {"a1": [leaving, staying]})
    plugin, pod, snapshot = PodTopologySpread(), web("new", constraint()), cluster.snapshot
    state = plugin.pre_filter(pod, snapshot)
    assert judged(plugin, state, snapshot)[0] is not None
    with cluster.what_if(0) as table:
        table.remove_pod(0, leaving)
        assert judged(plugin, plugin.remove_pod(state, pod, leaving, snapshot.nodes.one(0)), snapshot)[0] is None


# -- signature ------------------------------------------------------------------------------------------------------------

READ = {  # two pods that the plugin may treat differently
    "labels": (web("w", constraint()), web("w", constraint(), labels={"app": "db"})),
    "namespace": (web("w", constraint()), web("w", constraint(), namespace="other")),
    "constraints": (web("w", constraint()), web("w", constraint(skew=2))),
    "node selector": (web("w", constraint()), web("w", constraint(), nodeSelector={"disk": "ssd"})),
    "tolerations": (web("w", constraint()), web("w", constraint(), tolerations=[{"operator": "Exists"}])),
    "owner": (web(), web(metadata={"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "controller": True}]})),
}


@pytest.mark.parametrize(("one", "other"), READ.values(), ids=READ)
def test_the_signature_covers_what_the_plugin_reads(one, other):
    assert PodTopologySpread().reuse.signature(one) != PodTopologySpread().reuse.signature(other)
    assert {hash(value) for value in PodTopologySpread().reuse.signature(one).values()}


def test_the_signature_is_empty_without_constraints():
    assert PodTopologySpread(arguments("List", [])).reuse.signature(web()) == {}


# -- many constraints -----------------------------------------------------------------------------------------------------


def filter_work(kind, count, nodes):
    """Return the work to filter a pod with this many constraints over topologies that no node has."""
    cluster = a_cluster([node(f"n{i}", "a") for i in range(nodes)], {"n0": [web("held")]})
    pod = web("new", constraint(), *(constraint(f"rack-{i}", whenUnsatisfiable=kind) for i in range(count)))
    plugin, snapshot = PodTopologySpread(), cluster.snapshot

    def attempt():
        list(plugin.filter(plugin.pre_filter(pod, snapshot), snapshot.nodes))
        plugin.pre_score(pod, snapshot, snapshot.nodes)

    return executed(attempt)


@pytest.mark.parametrize("kind", ["DoNotSchedule", "ScheduleAnyway"])
def test_the_cost_per_constraint_is_constant_for_any_number_of_nodes(kind):
    once = filter_work(kind, 100, 20)
    assert filter_work(kind, 200, 20) < 2.2 * once
    assert filter_work(kind, 100, 80) < 1.2 * once + 80 * 10


@pytest.mark.parametrize("others", [[], [constraint()], [constraint(), constraint("host")]], ids=len)
def test_a_topology_without_nodes_rejects_in_any_position(others):
    pod = web("new", *others, constraint("rack"), constraint("shelf"))
    cluster = holding({"a1": 1}, *THREE_ZONES)
    assert refusals(PodTopologySpread(), pod, cluster.snapshot) == dict.fromkeys(["a1", "a2", "b1", "c1"], UNLABELLED)
    cluster.set_node(node("d1", "d", labels={"rack": "r", "shelf": "s"}))
    assert "d1" not in refusals(PodTopologySpread(), pod, cluster.snapshot)
