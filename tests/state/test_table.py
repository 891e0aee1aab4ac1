"""The node table after any history is the table that would be built from what there is now; what-ifs leave no trace."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from msgspec.structs import replace

from moorage.api.core import ContainerImage, NodeCondition
from moorage.api.selectors import EVERYTHING, selector_from_map
from moorage.errors import StateError
from moorage.state.change_log import ChangeLog
from moorage.state.cluster import ClusterState
from moorage.state.counts import MatchTerm, PodMatcher
from moorage.state.pod_info import HostPort
from moorage.state.ring import Ring
from moorage.state.table import NodeTable
from moorage.testing.builders import a_cluster, a_node, a_pod

NODES = ["n0", "n1", "n2", "n3", "n4"]
UIDS = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7"]
SOME_UID = st.sampled_from(UIDS)
PORTS = [HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "10.0.0.1", 80), HostPort("UDP", "0.0.0.0", 53)]
MATCHERS = [
    PodMatcher((MatchTerm(None, EVERYTHING),)),
    PodMatcher((MatchTerm(frozenset(["red"]), selector_from_map({"app": "web"})),)),
    PodMatcher((MatchTerm(None, selector_from_map({"app": "db"})),), live_only=True),
]
TERMS = [
    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}},
    {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": {}},
]
RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu")
KINDS = ("required_affinity", "required_anti_affinity", "preferred_affinity", "preferred_anti_affinity")

node_facts = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.sampled_from([{"zone": "a"}, {"zone": "b", "disk": "ssd"}]),
        "allocatable": st.sampled_from([{"cpu": "2", "pods": 10}, {"memory": "1Gi", "example.com/gpu": 2}]),
        "unschedulable": st.booleans(),
        "taints": st.sampled_from([(), ({"key": "k", "effect": "NoSchedule"},)]),
        "images": st.lists(st.sampled_from([{"names": ("a", "a:1"), "sizeBytes": 5}, {"names": ("b",), "sizeBytes": 7}])),
        "declared_features": st.sampled_from([(), ("F",)]),
    },
)


@st.composite
def affinities(draw):
    required = st.lists(st.sampled_from(TERMS), max_size=2)
    preferred = st.lists(st.sampled_from([{"weight": w, "podAffinityTerm": t} for w, t in zip((1, 2), TERMS, strict=True)]))
    return {
        side: {
            "requiredDuringSchedulingIgnoredDuringExecution": draw(required),
            "preferredDuringSchedulingIgnoredDuringExecution": draw(preferred),
        }
        for side in ("podAffinity", "podAntiAffinity")
    }


@st.composite
def pods(draw, uids=SOME_UID):
    ports = draw(st.lists(st.sampled_from(PORTS), max_size=2))
    container = {
        "name": "c",
        "resources": {"requests": draw(st.sampled_from([{}, {"cpu": "1"}, {"memory": "1Mi", "example.com/gpu": 1}]))},
        "ports": [{"hostPort": p.port, "hostIP": p.ip, "protocol": p.protocol, "containerPort": 1} for p in ports],
    }
    affinity = {"affinity": draw(affinities())} if draw(st.booleans()) else {}
    labels = draw(st.sampled_from([{}, {"app": "web"}, {"app": "db"}]))
    namespace = draw(st.sampled_from(["red", "blue"]))
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if draw(st.booleans()) else {}
    return a_pod(labels=labels, namespace=namespace, uid=draw(uids), metadata=leaving, containers=[container], **affinity)


def described(table: NodeTable) -> dict[str, object]:
    """Everything the table says, by node name, so that it does not matter which row a node is on."""
    names = [node.name for node in table.nodes]

    def by_name(values):
        return dict(zip(names, np.asarray(values).tolist(), strict=True))

    def by_value(key, counts):
        return {value: count for value, count in zip(table.labels.column(key).values, counts.tolist(), strict=True) if count}

    return {
        "nodes": {node.name: node for node in table.nodes},
        "rows": {name: names[row] for name, row in table.row_of.items()},
        "pods": {name: set(map(id, held.values())) for name, held in zip(names, table.pods, strict=True)},
        "uids": {name: set(held) for name, held in zip(names, table.pods, strict=True)},
        "allocatable": {resource: by_name(table.allocatable(resource).view) for resource in RESOURCES},
        "divisors": {resource: by_name(table.divisors(resource).amounts) for resource in RESOURCES},
        "requested": {resource: by_name(table.requested(resource).view) for resource in RESOURCES},
        "plain": {
            column: by_name(getattr(table, column).view)
            for column in ("name_hash", "unschedulable", "allowed_pods", "pod_count", "nonzero_cpu", "nonzero_memory")
        },
        "labels": {name: table.labels.of(row) for name, row in table.row_of.items()},
        "zone": {
            name: table.labels.column("zone").values[table.labels.column("zone").ids[row]] for row, name in enumerate(names)
        },
        "taints": {name: table.taints.values[table.taints.ids[row]] for row, name in enumerate(names)},
        "features": {name: table.features.values[table.features.ids[row]] for row, name in enumerate(names)},
        "images": {image: (size, {names[row] for row in rows}) for image, (size, rows) in table.images.holders.items()},
        "matching": [by_name(table.pod_counts.of(matcher)) for matcher in MATCHERS],
        "matching in zones": [by_value("zone", table.pod_counts.by_domain(matcher, "zone")) for matcher in MATCHERS],
        "nodes in zones": by_value("zone", table.labels.column("zone").held),
        "terms": {
            kind: {held: by_value(held.term.topology_key, counts) for held, counts in getattr(table, kind)} for kind in KINDS
        },
        "ports": {
            (*wanted, address): {names[row]: count for row, count in holders.items()}
            for wanted, by_address in table.host_ports.items()
            for address, holders in by_address.items()
        },
    }


def internals(table: NodeTable) -> dict[str, object]:
    """Caches that no check reads but a later result may depend on."""
    counts = table.pod_counts
    return {
        "order": [list(held) for held in table.pods],
        "changes": (table.changes.position, table.changes.layout, table.changes.images),
        "classes": {key: dict(label_class.rows) for key, label_class in counts._classes.items()},
        "places": {place: set(at) for place, at in counts._classes_at.items()},
        "totals": {kind: {held: of.total for held, of in getattr(table, kind)._held.items()} for kind in KINDS},
        "filed": {kind: {at: set(items) for at, items in getattr(table, kind)._filed._filed.items()} for kind in KINDS},
        "by label": {
            kind: {at: set(items) for at, items in getattr(table, kind)._filed_by_label._filed.items()} for kind in KINDS
        },
        "arrival": table.arrival.view.tolist(),
    }


def scratch(nodes, placed) -> ClusterState:
    return a_cluster(nodes, {name: [pod for pod, at in placed if at == name] for name in {at for _, at in placed}})


class Histories(RuleBasedStateMachine):
    """Nodes and pods come, change and go in any order, also pods before their node."""

    assumed = Bundle("assumed")

    def __init__(self):
        super().__init__()
        self.cluster = ClusterState()
        self.nodes = {}
        self.placed = {}
        described(self.cluster.table)  # the columns are asked for while empty, and have to be kept current

    @rule(name=st.sampled_from(NODES), facts=node_facts)
    def set_node(self, name, facts):
        node = a_node(name, **facts)
        assert self.cluster.set_node(node) is self.nodes.get(name)
        self.nodes[name] = node

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name):
        assert self.cluster.remove_node(name) is self.nodes.pop(name, None)

    @rule(pod=pods(), name=st.sampled_from(NODES))
    def place(self, pod, name):
        known, is_assumed = self.placed.get(pod.uid, (None,))[0], self.cluster.is_assumed(pod.uid)
        before = self.cluster.place(pod, name)
        assert before is known or (is_assumed and before is pod)  # what was assumed may have come true
        self.placed[pod.uid] = (pod, name)

    @rule(target=assumed, pod=pods(), name=st.sampled_from(NODES))
    def assume(self, pod, name):
        if pod.uid in self.placed:
            with pytest.raises(StateError, match=f"is on {self.placed[pod.uid][1]} already"):
                self.cluster.assume(pod, name)
            return multiple()
        self.cluster.assume(pod, name)
        self.placed[pod.uid] = (pod, name)
        return pod.uid

    @rule(uid=consumes(assumed))
    def confirm(self, uid):
        if uid in self.placed:
            self.cluster.place(*self.placed[uid])
            assert not self.cluster.is_assumed(uid)

    @rule(uid=consumes(assumed))
    def forget(self, uid):
        if self.cluster.is_assumed(uid):
            assert self.cluster.forget(uid) is self.placed.pop(uid)[0]
        else:
            assert self.cluster.forget(uid) is None

    @rule(uid=st.sampled_from(UIDS))
    def remove_pod(self, uid):
        assert self.cluster.remove_pod(uid) is self.placed.pop(uid, (None,))[0]
        assert not self.cluster.is_assumed(uid)

    @rule()
    def look_at_rooms_and_ring(self):
        table = self.cluster.table
        ring, sorted_again = table.ring(), Ring.of(table.name_hash.view)
        assert (ring.rows.tolist(), ring.place_of.tolist()) == (sorted_again.rows.tolist(), sorted_again.place_of.tolist())
        assert table.domains_in_ring("zone").tolist() == table.labels.column("zone").ids[ring.rows].tolist()
        assert ring.hash_at.tolist() == sorted_again.hash_at.tolist()
        numbers = table.rooms.followed().view.tolist()
        rooms = [tuple(column.cells[row] for column in table._sums) for row in range(len(table))]
        assert len(set(zip(numbers, rooms, strict=True))) == len(set(numbers))

    @invariant()
    def is_as_if_built_from_scratch(self):
        fresh = scratch(self.nodes.values(), self.placed.values())
        assert described(self.cluster.table) == described(fresh.table)
        assert {uid: self.cluster.node_of(uid) for uid in self.placed} == {uid: at for uid, (_, at) in self.placed.items()}

    @invariant()
    def the_newest_node_has_the_highest_arrival(self):
        table = self.cluster.table
        assert [table.nodes[row].name for row in np.argsort(table.arrival.view)] == _in_order_of_arrival(self.nodes)


def _in_order_of_arrival(nodes):
    """A dict keeps a replaced key in its place, and puts one that was deleted and set again last: as nodes arrive."""
    return list(nodes)


Histories.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
test_any_history = pytest.mark.slow(Histories.TestCase)


@st.composite
def clusters(draw):
    placed = {name: [] for name in NODES[:2]}
    for uid in draw(st.lists(st.sampled_from(UIDS[:6]), unique=True)):
        placed[draw(st.sampled_from(NODES[:2]))].append(draw(pods(st.just(uid))))
    return a_cluster([a_node(name, {"zone": name}) for name in NODES[:2]], placed)


@given(cluster=clusters(), pod=pods(st.just("new")), row=st.integers(0, 1))
@settings(max_examples=30, deadline=None)
def test_adding_and_removing_a_pod_changes_nothing(cluster, pod, row):
    table = cluster.table
    before = described(table), {**internals(table), "changes": None}
    table.add_pod(row, pod)
    assert described(table) != before[0]
    table.remove_pod(row, pod)
    assert (described(table), {**internals(table), "changes": None}) == before


@pytest.mark.slow
@given(cluster=clusters(), row=st.integers(0, 1), fresh=st.lists(pods(), max_size=4), data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_what_if_leaves_no_trace(cluster, row, fresh, data):
    table = cluster.table
    described(table)
    position = table.changes.position
    before = described(table), internals(table)
    with table.what_if(row):
        move_about(table, row, fresh, data, depth=2)
    assert (described(table), internals(table)) == before
    assert table.changes.since(position) == []
    table.changes.note(row)
    assert table.changes.since(position) == [row]


def move_about(table, row, fresh, data, depth):
    """Add and remove pods on the row as drawn, opening further what-ifs inside."""
    for _ in range(data.draw(st.integers(0, 5))):
        kind = data.draw(st.sampled_from(["add", "remove", "nest"]))
        here = list(table.pods[row].values())
        addable = [pod for pod in fresh if pod.uid not in table.pods[row]]
        if kind == "add" and addable:
            table.add_pod(row, data.draw(st.sampled_from(addable)))
        elif kind == "remove" and here:
            table.remove_pod(row, data.draw(st.sampled_from(here)))
        elif kind == "nest" and depth:
            inside = described(table), list(table.pods[row])
            with table.what_if(row):
                move_about(table, row, fresh, data, depth - 1)
            assert (described(table), list(table.pods[row])) == inside


def test_a_raising_what_if_is_rolled_back():
    pod = a_pod("web", {"app": "web"})
    table = a_cluster([a_node("n")], {"n": [pod]}).table
    before = described(table), internals(table)
    with suppress(RuntimeError), table.what_if(0):
        table.remove_pod(0, pod)
        raise RuntimeError
    assert (described(table), internals(table)) == before


def with_port(name):
    return a_pod(name, containers=[{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80}]}])


def test_removing_one_holder_in_a_what_if_frees_the_port():
    one, other = with_port("one"), with_port("other")
    table = a_cluster([a_node("n")], {"n": [one, other]}).table
    assert table.host_ports == {("TCP", 80): {"0.0.0.0": {0: 2}}}
    with table.what_if(0):
        table.remove_pod(0, one)
        assert table.host_ports == {}
        table.add_pod(0, one)
        assert table.host_ports == {("TCP", 80): {"0.0.0.0": {0: 1}}}
        with table.what_if(0):
            table.remove_pod(0, other)
            assert table.host_ports == {}
        assert table.host_ports == {("TCP", 80): {"0.0.0.0": {0: 1}}}
    assert table.host_ports == {("TCP", 80): {"0.0.0.0": {0: 2}}}


def test_removing_one_holder_outside_a_what_if_keeps_the_port():
    one, other = with_port("one"), with_port("other")
    table = a_cluster([a_node("n")], {"n": [one, other]}).table
    table.remove_pod(0, one)
    assert table.host_ports == {("TCP", 80): {"0.0.0.0": {0: 1}}}


def test_what_ifs_on_different_rows_are_independent():
    one, other = with_port("one"), with_port("other")
    table = a_cluster([a_node("a"), a_node("b")], {"a": [one], "b": [other]}).table
    before = described(table), internals(table)
    with table.what_if(0):
        table.remove_pod(0, one)
        with table.what_if(1):
            table.remove_pod(1, other)
            assert table.host_ports == {}
        assert table.host_ports == {("TCP", 80): {"0.0.0.0": {1: 1}}}
    assert (described(table), internals(table)) == before


def test_a_reader_too_far_behind_rereads_every_row():
    log = ChangeLog()
    for _ in range(2 * ChangeLog.keep):
        log.note(3)
    assert log.since(0) is None
    assert log.position == 2 * ChangeLog.keep
    assert log.since(log.position) == []
    assert log.since(ChangeLog.keep) == [3] * ChangeLog.keep


def test_many_changed_rows_are_listed_without_those_that_are_gone():
    log = ChangeLog()
    for row in (4, 1, 1, 4, 7):
        log.note(row)
    assert [log.many_since(position, 8).tolist() for position in (0, 2, 5)] == [[4, 1, 1, 4, 7], [1, 4, 7], []]
    assert [log.many_since(position, 5).tolist() for position in (0, 2)] == [[4, 1, 1, 4], [1, 4]]
    assert log.many_since(0, 4).tolist() == [1]


def test_only_changed_rows_are_logged():
    table = a_cluster([a_node("a"), a_node("b")]).table
    position = table.changes.position
    pod = a_pod()
    table.add_pod(1, pod)
    table.remove_pod(1, pod)
    table.update_node(a_node("b", {"zone": "z"}))
    assert table.changes.since(position) == [1, 1, 1]


def of_version(node, version, **status):
    return replace(node, metadata=replace(node.metadata, resource_version=version), status=replace(node.status, **status))


HEARTBEATS = {  # what differs beside the resource version; does it count as a change?
    "nothing": ({}, False),
    "a condition": ({"conditions": (NodeCondition(type="Ready", status="False"),)}, True),
    "the capacity": ({"capacity": {"cpu": "64"}}, True),
    "allocatable": ({"allocatable": {"cpu": "1", "pods": 9}}, True),
    "images": ({"images": (ContainerImage(("x:1",), 5),)}, True),
}


@pytest.mark.parametrize(("status", "changes"), HEARTBEATS.values(), ids=HEARTBEATS)
def test_an_update_of_a_node_counts_unless_it_is_a_heartbeat(status, changes):
    table = NodeTable()
    table.add_node(a_node("a"))
    table.add_node(a_node("b"))
    before = table.changes.nodes, table.changes.position
    newest = of_version(a_node("a"), "2", **status)
    table.update_node(newest)
    assert table.nodes[0] is newest
    assert ((table.changes.nodes, table.changes.position) != before) is changes


TAINT = {"key": "k", "effect": "NoSchedule"}
LABELLING = {  # what an update sets, and whether it changes labels or taints
    "a label": ({"labels": {"zone": "b"}}, True),
    "a taint": ({"taints": [TAINT]}, True),
    "cordoned": ({"unschedulable": True}, False),
    "allocatable": ({"allocatable": {"cpu": 9}}, False),
}


@pytest.mark.parametrize(("update", "changes"), LABELLING.values(), ids=LABELLING)
def test_updates_of_labels_and_taints_are_counted(update, changes):
    table = NodeTable()
    table.add_node(a_node("n", labels={"zone": "a"}))
    log = table.changes
    before = log.labels, log.nodes
    table.update_node(a_node("n", **{"labels": {"zone": "a"}, **update}))
    assert (log.labels > before[0]) is changes
    assert log.nodes > before[1]


def test_a_heartbeat_counts_where_a_plugin_reads_when_nodes_were_described():
    table = NodeTable()
    for name in "abc":
        table.add_node(a_node(name))
    assert table.descriptions().tolist() == [1, 2, 3]
    before = table.changes.nodes
    table.update_node(of_version(a_node("a"), "2"))
    assert (table.descriptions().tolist(), table.changes.nodes) == ([3, 2, 3], before + 1)
    table.update_node(of_version(a_node("a"), "3"))
    assert table.changes.nodes == before + 1
