"""check_plugin finds what is wrong with a plugin, says what it is, and finds nothing wrong with those that ship."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import find_release
from moorage.framework.effects import BindPod
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import NOTHING_TO_DO, Domains, Idle, PostFilterResult, Reuse, Scope
from moorage.framework.verdicts import SKIP, Code, Hold, Narrow, Reject
from moorage.plugins import BUILTIN
from moorage.state.cluster import Snapshot
from moorage.testing.builders import a_pod
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin, sample_cluster, sample_pods
from moorage.testing.plugin_queries import refusals


class Bench:
    """What ``attach`` gives, with no scheduler behind it."""

    gates = FeatureGates()
    now = 0.0

    def __init__(self, snapshot: Snapshot):
        self.snapshot = snapshot

    def waiting(self):
        return ()

    def evicting_for(self, uid):
        return False

    def activate(self, pods):
        pass

    def activate_group(self, pod):
        pass


def built(cls, cluster):
    args = getattr(cls, "Args", None)
    plugin = cls() if args is None else cls(args())
    if hasattr(plugin, "attach"):
        plugin.attach(Bench(cluster.snapshot))
    return plugin


@pytest.mark.parametrize("cls", BUILTIN, ids=lambda cls: cls.name)
def test_shipped_plugins_keep_the_contract(cls):
    cluster = sample_cluster()
    check_plugin(built(cls, cluster), cluster=cluster)


def test_the_samples_cover_every_kind_of_result():
    """Otherwise a plugin would pass because nothing was asked of it."""
    refused = {pod.name: 0 for pod in sample_pods()}
    cluster = sample_cluster()
    for cls in (cls for cls in BUILTIN if hasattr(cls, "filter")):
        for pod in sample_pods():
            refused[pod.name] += len(refusals(built(cls, cluster), pod, cluster.snapshot))
    assert refused["large"] > refused["plain"]
    assert refused["picky"] > refused["plain"] > 0


def plugin(its_name="Broken", **body):
    return type(its_name, (), {"name": its_name, **body})()


counter = itertools.count()


def growing(state, other):
    state.append(other.name)
    return state


def mask(nodes, *names):
    return Reject(nodes.named(names), "taken")


BROKEN = {
    "has no name": (plugin(name="", filter=lambda self, state, nodes: ()), "has no name"),
    "has no extension point": (plugin(), "implements no extension point"),
    "reserves without unreserve": (plugin(reserve=lambda self, *args: None), "has reserve and no unreserve"),
    "mask of the wrong length": (
        plugin(filter=lambda self, state, nodes: [Reject(np.zeros(2, dtype=bool), "no")]),
        "yield Reject(mask over the",
    ),
    "filter raises": (plugin(filter=lambda self, state, nodes: 1 / 0), "failed in filter: ZeroDivisionError"),
    "other answer when asked again": (
        plugin(filter=lambda self, state, nodes: [Reject(nodes.named({f"n{next(counter) % 5}"}), "no")]),
        "rejects other nodes when the call is repeated",
    ),
    "counts in the view": (
        plugin(filter=lambda self, state, nodes: [mask(nodes, "n0")] if len(nodes) > 2 else []),
        "for node n0 alone",
    ),
    "two forms of filter": (
        plugin(
            filter=lambda self, state, nodes: [mask(nodes, "n0")],
            filter_node=lambda self, state, node: Hold.because("taken") if node.name == "n1" else None,
        ),
        "filter_node returns yes for node n0",
    ),
    "two reasons": (
        plugin(
            filter=lambda self, state, nodes: [mask(nodes, "n0")],
            filter_node=lambda self, state, node: Hold.because("full") if node.name == "n0" else None,
        ),
        "filter_node returns Unschedulable: full for node n0, and filter Unschedulable: taken",
    ),
    "domains": (
        plugin(
            filter=lambda self, state, nodes: [mask(nodes, "n0")],
            reuse=Reuse(Scope.DOMAIN, domains=Domains(closed=lambda state, nodes: [("disk", np.array([False, True]))])),
        ),
        "Domains.closed rejects node n1",
    ),
    "reads a label that its signature leaves out": (
        plugin(
            filter=lambda self, pod, nodes: [mask(nodes, "n0")] if pod.labels.get("app") == "other" else [],
            reuse=Reuse(Scope.NODE, signature=lambda pod: {"priority": pod.priority}),
        ),
        "add what it reads of a pod to its signature",
    ),
    "reads requests that its signature leaves out": (
        plugin(
            score=lambda self, pod, nodes: nodes.zeros() + (pod.requests.get("cpu", 0) > 2000),
            reuse=Reuse(Scope.NODE, signature=lambda pod: {"labels": frozenset(pod.labels.items())}, signature_reads=()),
        ),
        "add what it reads of a pod to its signature",
    ),
    "score out of range": (plugin(score=lambda self, state, nodes: nodes.zeros() + 140), "scores must be in the range"),
    "score of floats": (plugin(score=lambda self, state, nodes: np.ones(len(nodes))), "return an int64 array"),
    "score depends on the other nodes": (
        plugin(score=lambda self, state, nodes: nodes.zeros() + len(nodes)),
        "compare nodes in normalize",
    ),
    "scores change": (
        plugin(score=lambda self, state, nodes: nodes.zeros() + next(counter) % 7),
        "scores differently when the call is repeated",
    ),
    "two forms of score": (
        plugin(score=lambda self, state, nodes: nodes.zeros(), score_node=lambda self, state, node: node.row),
        "score_node gives node n1 1, and score 0",
    ),
    "domain scores": (
        plugin(
            score=lambda self, state, nodes: nodes.zeros(),
            reuse=Reuse(Scope.DOMAIN, domains=Domains(scores=lambda state, nodes: ("disk", np.array([0, 5])))),
        ),
        "Domains.scores gives [5, 5, 5, 0, 0, 0]",
    ),
    "signature of lists": (plugin(filter=lambda *args: (), reuse=Reuse(signature=lambda pod: {"x": []})), "cannot be hashed"),
    "signature that changes": (
        plugin(filter=lambda *args: (), reuse=Reuse(signature=lambda pod: {"x": next(counter)})),
        "gives the same pod the signatures",
    ),
    "signature that raises": (
        plugin(filter=lambda *args: (), reuse=Reuse(signature=lambda pod: pod.nothing)),
        "AttributeError",
    ),
    "signature that says too little": (
        plugin(
            filter=lambda self, pod, nodes: [Reject(~nodes.false(), "x")] if pod.name == "web" else [],
            reuse=Reuse(signature=lambda pod: {}),
        ),
        "gives pods plain and web the same signature",
    ),
    "depends on more than it says": (
        plugin(
            reuse=Reuse(Scope.NODE_PODS),
            filter=lambda self, pod, nodes: [Reject(~nodes.false(), "x")] if nodes.table.pod_count.view.sum() > 3 else [],
        ),
        "scope is NODE_PODS, but pod other on node n0 changes",
    ),
    "depends on pods though it says nodes": (
        plugin(reuse=Reuse(Scope.NODE), filter=lambda self, pod, nodes: [Reject(nodes.pod_count > 2, "full")]),
        "scope is NODE, but pod",
    ),
    "reads more than sums over pods": (
        plugin(
            reuse=Reuse(Scope.USAGE),
            filter=lambda self, pod, nodes: [
                Reject(np.array([any(other.name == "busy-0" for other in node.pods) for node in nodes]), "busy")
            ],
        ),
        "scope is USAGE, but other pods with the same requests on node n1 change",
    ),
    "normalizes by more than the highest": (
        plugin(
            reuse=Reuse(Scope.NODE, signature=lambda pod: {}),
            score=lambda self, pod, nodes: nodes.row_numbers.astype(np.int64),
            normalize=lambda self, pod, scores: scores - scores.min(),
        ),
        "normalizes the score",
    ),
    "signature reads more than the shape": (
        plugin(filter=lambda *args: (), reuse=Reuse(signature=lambda pod: {"name": pod.name}, signature_reads=())),
        "gives pods of one shape the signatures",
    ),
    "is not idle": (
        plugin(
            pre_filter=lambda self, pod, snapshot: pod,
            filter=lambda *args: (),
            reuse=Reuse(signature=lambda pod: {}, idle=lambda pod, snapshot: Idle(now=True)),
        ),
        "is idle, but pre_filter or pre_score does not skip",
    ),
    "has something to do": (
        plugin(filter=lambda self, pod, nodes: [Reject(~nodes.false(), "x")], reuse=Reuse(signature=lambda pod: NOTHING_TO_DO)),
        "has nothing to do for pod plain, but refuses ['n0',",
    ),
    "narrows to other nodes": (
        plugin(
            pre_filter=lambda self, pod, snapshot: Narrow(frozenset(["n1"]), pod),
            filter=lambda *args: (),
            reuse=Reuse(narrows_to=lambda pod: frozenset(["n0"])),
        ),
        "narrows_to announces ['n0']",
    ),
    "does not rest": (
        plugin(
            pre_filter=lambda *args: SKIP,
            pre_bind=lambda self, state, pod, node: [BindPod(pod, node)],
            reuse=Reuse(rests_when_skipped=True),
        ),
        "rests_when_skipped, but preBind answers",
    ),
    "PostFilter reads more than the signature": (
        plugin(
            filter=lambda self, pod, nodes: [Reject(~nodes.false(), "x")],
            post_filter=lambda self, pod, attempt: PostFilterResult(Code.UNSCHEDULABLE, (pod.name,)),
            reuse=Reuse(Scope.NODE, signature=lambda pod: {}),
        ),
        "gives pods plain and web the same signature",
    ),
    "what-if spoils its state": (
        plugin(
            pre_filter=lambda self, pod, snapshot: [],
            filter=lambda self, state, nodes: [Reject(~nodes.false(), "met")] if state else [],
            add_pod=lambda self, state, pod, other, node: growing(state, other),
            remove_pod=lambda self, state, pod, other, node: state,
        ),
        "changed the state it was given",
    ),
    "what-if that is no use": (
        plugin(
            pre_filter=lambda self, pod, snapshot: int(snapshot.table.pod_count.view.sum()),
            filter=lambda self, count, nodes: [Reject(~nodes.false(), "crowded")] if count > 3 else [],
            add_pod=lambda self, count, pod, other, node: count,
            remove_pod=lambda self, count, pod, other, node: count - 1,
        ),
        "after add_pod of other returns n0: yes, and a new PreFilter gives n0: Unschedulable: crowded",
    ),
    "half a what-if": (
        plugin(filter=lambda *args: (), pre_filter=lambda *args: [], add_pod=lambda self, state, pod, other, node: state),
        "has add_pod without the other",
    ),
    "wakes on nothing sensible": (
        plugin(filter=lambda *args: (), wakes_on=lambda self: ["pod gone"]),
        "yield Wake(event, when)",
    ),
    "wakes on an invalid kind": (
        plugin(filter=lambda *args: (), wakes_on=lambda self: [Wake(ClusterEvent("foos.v1", Action.ADD))]),
        "wakes_on names 'foos.v1', which is not a kind",
    ),
    "wakes_on raises": (plugin(filter=lambda *args: (), wakes_on=lambda self: 1 / 0), "wakes_on failed: ZeroDivisionError"),
    "reserve answers yes": (
        plugin(reserve=lambda self, *args: True, unreserve=lambda self, *args: None),
        "returned True from reserve",
    ),
    "unreserve raises the second time": (
        plugin(reserve=lambda self, state, pod, node: None, unreserve=lambda self, state, pod, node: {}.pop(pod.uid)),
        "KeyError",
    ),
    "permit answers yes": (plugin(permit=lambda self, *args: True), "returned True from permit"),
    "pre_bind writes itself": (plugin(pre_bind=lambda self, *args: ["done"]), "returned 'done' from preBind"),
    "pre_filter labels the pod": (
        plugin(pre_filter=lambda self, pod, snapshot: pod.labels.update(seen="yes") or pod),
        "preFilter changes the pod: metadata.labels was absent, is {'seen': 'yes'}",
    ),
    "score notes something on a node": (
        plugin(score=lambda self, state, nodes: nodes.one(0).node.metadata.annotations.update(a="b") or nodes.zeros()),
        "score changes node n0: metadata.annotations was absent, is {'a': 'b'}",
    ),
    "reserve raises the pod's priority": (
        plugin(
            reserve=lambda self, state, pod, node: setattr(pod, "priority", 7),
            unreserve=lambda self, state, pod, node: None,
        ),
        "reserve changes the pod: priority was 0, is 7",
    ),
    "filter changes a placed pod while it yields": (
        plugin(filter=lambda self, pod, nodes: (setattr(one, "name", "x") for one in nodes.one(1).pods[:1])),
        "filter changes pod busy-0 on node n1: name was 'busy-0', is 'x'",
    ),
    "bind says so": (plugin(bind=lambda self, *args: True), "returned True from bind"),
}


@pytest.mark.parametrize(("broken", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_is_reported(broken, says):
    with pytest.raises(AssertionError) as found:
        check_plugin(broken)
    assert says in str(found.value)


def test_all_faults_of_a_plugin_are_reported_at_once():
    broken = plugin(
        score=lambda self, state, nodes: nodes.zeros() + 200,
        permit=lambda self, *args: True,
        wakes_on=lambda self: [None],
    )
    with pytest.raises(AssertionError) as found:
        check_plugin(broken)
    assert all(part in str(found.value) for part in ("score", "permit", "wakes_on"))


def test_a_valid_plugin_passes():
    class Sound:
        name = "Sound"
        reuse = Reuse(Scope.USAGE, signature=lambda pod: {}, signature_reads=())

        def filter(self, pod, nodes):
            yield Reject(nodes.pod_count > 1, "crowded")

        def filter_node(self, pod, node):
            return Hold.because("crowded") if node.pod_count > 1 else None

        def bind(self, state, pod, node):
            return [BindPod(pod, node)]

    check_plugin(Sound())


def test_a_hint_by_shape_that_reads_the_name_is_found():
    class ByName:
        name = "ByName"

        def filter(self, state, nodes):
            return ()

        def wakes_on(self):
            yield Wake(ClusterEvent(Resource.NODE, Action.ADD), lambda pod, old, new: pod.name == "web", by_shape=True)

    with pytest.raises(AssertionError, match="declares by_shape"):
        check_plugin(ByName())


def test_pods_of_one_name_are_told_apart():
    def filter_node(self, pod, node):
        return Hold.because("labelled") if pod.labels else None

    check_plugin(plugin(filter_node=filter_node), pods=[a_pod(), a_pod(labels={"app": "web"})])


def test_what_it_remembers_is_found_with_the_gates_of_an_earlier_release():
    class Remembers:
        name = "Remembers"
        first = None

        def attach(self, handle):
            self._gate = handle.gates["CSIMigrationPortworx"]  # which the newest release does not know

        def filter_node(self, pod, node):
            self.first = self.first or pod.name
            return None if pod.name == self.first else Hold.because("not the first")

    handle = FakeHandle(sample_cluster().snapshot, gates=FeatureGates(release=find_release("1.24").name))
    with pytest.raises(AssertionError, match="differently after other pods"):
        check_plugin(Remembers(), handle=handle)
