"""Preemption finds the nodes that can help, and chooses the one where it does the least harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.workloads import PodDisruptionBudget
from moorage.core.preemption.candidates import NOT_HELPFUL, Candidate, VictimRules, choose, find_candidates
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.reprieve import Victims
from moorage.core.preemption.row_importance import Ranking
from moorage.framework.verdicts import fit_error
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_ports import NodePorts
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.testing.builders import a_cluster, a_node, a_pod, failed_attempt

NO_BUDGETS = Budgets([])


def wants(cpu, priority=0, name="pod", start=None, labels=None, ports=(), **spec):
    """A pod that requests ``cpu`` and started at minute ``start``."""
    container = {
        "name": "c",
        "resources": {"requests": {"cpu": str(cpu)}} if cpu else {},
        "ports": [{"hostPort": port, "containerPort": port, "protocol": "TCP"} for port in ports],
    }
    status = {} if start is None else {"startTime": f"2026-01-01T00:{start:02}:00Z"}
    return a_pod(name, labels, priority=priority, status=status, containers=[container], **spec)


def node(name, cpu=4, pods=10):
    return a_node(name, {"name": name}, allocatable={"cpu": str(cpu), "pods": pods})


def budget(allowed, **labels):
    document = {
        "metadata": {"name": f"budget-{labels}", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(document, PodDisruptionBudget)


def attempt(cluster, pod, nominated: Mapping[str, list] = {}, others=()):
    return failed_attempt([NodeAffinity(), NodePorts(), NodeResourcesFit(), *others], pod, cluster.snapshot, nominated)


def names(pods):
    return " ".join(pod.name for pod in pods)


# -- the choice ---------------------------------------------------------------------------------------------------------


def costs(*priorities, over=0, start=1):
    """Victims of these priorities, all started at minute ``start``; the first ``over`` of them exceed a budget."""
    pods = tuple(wants(1, priority, f"p{at}", start) for at, priority in enumerate(priorities))
    return Victims(pods, pods[:over])


CHOICES = {  # the better one, then one that is better in every later step
    "fewest budgets exceeded": (costs(9, 9, 9, over=0, start=1), costs(1, over=1, start=2)),
    "lowest of the highest priorities": (costs(8, 8, 8, start=1), costs(9, start=2)),
    "lowest sum of priorities": (costs(9, 2, 1, start=1), costs(9, 2, 2, start=2)),
    "one victim is a lower sum than two": (costs(-5, start=1), costs(-5, -6, start=2)),
    "fewest victims": (costs(9, start=1), costs(9, -(2**31), start=2)),
    "started last": (costs(9, 8, start=2), costs(9, 8, start=1)),
    "not started is the last of all": (costs(9, start=None), costs(9, start=59)),
}


@pytest.mark.parametrize(("better", "worse"), CHOICES.values(), ids=CHOICES)
def test_the_candidate_with_the_least_harm_wins(better, worse):
    assert choose([Candidate(0, better), Candidate(1, worse)]).row == 0
    assert choose([Candidate(0, worse), Candidate(1, better)]).row == 1


def test_start_times_of_lower_priorities_do_not_count():
    one = Victims((wants(1, 9, "a", 5), wants(1, 8, "b", 1)))
    other = Victims((wants(1, 9, "a", 4), wants(1, 8, "b", 9)))
    assert choose([Candidate(0, other), Candidate(1, one)]).row == 1


def test_the_first_of_equal_candidates_wins():
    assert choose([Candidate(row, costs(3, 2)) for row in (4, 2, 3)]).row == 4


# -- the search ---------------------------------------------------------------------------------------------------------


def search(cluster, pod, percentage=10, absolute=100, budgets=NO_BUDGETS, nominated: Mapping[str, list] = {}):
    return find_candidates(attempt(cluster, pod, nominated), percentage, absolute, VictimRules(budgets, Ranking()))


def test_only_nodes_that_eviction_may_help_are_tried():
    affine = {"nodeSelector": {"name": "b"}}
    cluster = a_cluster([node("a"), node("b"), node("c")], {name: [wants(4, 1, f"on-{name}")] for name in "abc"})
    found = search(cluster, wants(1, 10, **affine))
    assert [(candidate.row, names(candidate.victims.pods)) for candidate in found.candidates] == [(1, "on-b")]
    assert found.verdicts.histogram() == {NOT_HELPFUL: 3}


def test_the_reasons_why_preemption_helps_on_no_node():
    placed = {
        "a": [wants(4, 10, "a")],
        "b": [wants(3, 10, "b"), wants(1, 1, "c", ports=[80])],
        "c": [wants(2, 10, "d", ports=[80]), wants(2, 10, "e")],
        "d": [wants(2, 20, "f", ports=[80]), wants(2, 1, "g")],
    }
    cluster = a_cluster([*map(node, placed), node("tiny", cpu=1)], placed)
    found = search(cluster, wants(2, 10, ports=[80]))
    assert found.candidates == []
    assert fit_error(found.verdicts) == (
        "0/5 nodes are available: 1 Insufficient cpu, 1 Preemption is not helpful for scheduling, "
        "1 node(s) didn't have free ports for the requested pod ports, 2 No preemption victims found for incoming pod."
    )


def crowd(count):
    """Nodes that are full, all alike."""
    return a_cluster([node(f"n{at}") for at in range(count)], {f"n{at}": [wants(4, 1, f"p{at}")] for at in range(count)})


LIMITS = {  # nodes, percentage, absolute, candidates
    "all, if at least so many are wanted": (10, 10, 100, 10),
    "the absolute number": (10, 10, 3, 3),
    "the share, where it is more": (10, 50, 3, 5),
    "the share is rounded down": (19, 10, 0, 1),
    "the share of the nodes that might help": (10, 100, 0, 10),
    "a percentage that rounds to 0 finds no candidate": (9, 10, 0, 0),
}


@pytest.mark.parametrize(("nodes", "percentage", "absolute", "candidates"), LIMITS.values(), ids=LIMITS)
def test_the_number_of_candidates_to_find(nodes, percentage, absolute, candidates):
    assert len(search(crowd(nodes), wants(1, 10), percentage, absolute).candidates) == candidates


def test_the_search_continues_until_a_candidate_violates_no_budget():
    cluster = a_cluster(
        [node(f"n{at}") for at in range(6)],
        {f"n{at}": [wants(4, 1, f"p{at}", labels={"app": "web" if at != 4 else "db"})] for at in range(6)},
    )
    found = search(cluster, wants(1, 10, uid="u"), absolute=2, percentage=0, budgets=Budgets([budget(0, app="web")]))
    assert names(found.candidates[0].victims.pods) == "p4"
    assert len(found.candidates) <= 3
    beyond = search(cluster, wants(1, 10), absolute=2, percentage=0, budgets=Budgets([budget(0, app=a) for a in ("web", "db")]))
    assert [candidate.victims.violations for candidate in beyond.candidates] == [1, 1]


def test_the_start_of_the_search_depends_only_on_the_pod():
    def first(uid, cluster):
        (candidate,) = search(cluster, wants(1, 10, uid=uid), percentage=1, absolute=1).candidates
        return cluster.table.nodes[candidate.row].name

    starts = {uid: first(uid, crowd(20)) for uid in map(str, range(30))}
    assert len(set(starts.values())) > 5
    grown = crowd(20)
    grown.set_node(node("gone"))
    grown.remove_node("n0")
    grown.remove_node("gone")
    same = a_cluster([node(f"n{at}") for at in range(1, 20)], {f"n{at}": [wants(4, 1, f"p{at}")] for at in range(1, 20)})
    assert [n.name for n in grown.table.nodes] != [n.name for n in same.table.nodes]
    assert {uid: first(uid, grown) for uid in starts} == {uid: first(uid, same) for uid in starts}


def test_a_candidate_without_victims_is_an_error():
    cluster = crowd(2)
    tried = attempt(cluster, wants(1, 10))
    cluster.table.update_node(node("n1", cpu=8))
    found = find_candidates(tried, 10, 100, VictimRules(NO_BUDGETS, Ranking()))
    assert found.errors == ['expected at least one victim pod on node "n1"']
    assert [candidate.row for candidate in found.candidates] == [0]


def test_the_search_changes_no_state():
    cluster = crowd(3)
    table = cluster.table
    before = [list(pods) for pods in table.pods], table.requested("cpu").view.tolist(), table.changes.position
    search(cluster, wants(1, 10))
    assert ([list(pods) for pods in table.pods], table.requested("cpu").view.tolist(), table.changes.position) == before


# -- against the rule written plainly -------------------------------------------------------------------------------------


class Plain(NamedTuple):
    """A placed pod, as the plain rule sees it."""

    name: str
    cpu: int
    priority: int
    start: int
    app: str


plain_pods = st.builds(
    Plain, st.just(""), st.integers(0, 3), st.sampled_from([-3, 0, 5, 7]), st.integers(0, 3), st.sampled_from(["", "a", "b"])
)
clusters = st.lists(st.tuples(st.integers(2, 6), st.lists(plain_pods, max_size=5)), min_size=1, max_size=5)
budgets = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-1, 2))


def named(cluster):
    return [(cpu, [pod._replace(name=f"n{at}p{i}") for i, pod in enumerate(pods)]) for at, (cpu, pods) in enumerate(cluster)]


def importance(pod):
    return -pod.priority, pod.start


def plain_victims(cpu, pods, want, priority, allowed):
    """Victims on a node in the order of importance and how many exceed a budget; None if it is no candidate."""
    lower = sorted((pod for pod in pods if pod.priority < priority), key=importance)
    free = cpu - sum(pod.cpu for pod in pods if pod.priority >= priority) - want
    if not lower or free < 0:
        return None
    left, over = dict(allowed), []
    for pod in lower:
        if pod.app in left:
            left[pod.app] -= 1
            if left[pod.app] < 0:
                over.append(pod)
    gone = []
    for pod in [*over, *(pod for pod in lower if pod not in over)]:
        if pod.cpu <= free:
            free -= pod.cpu
        else:
            gone.append(pod)
    return sorted(gone, key=importance), sum(pod in over for pod in gone)


def plain_choice(candidates):
    """Six steps, each among those that the steps before left."""
    steps = [
        lambda gone, over: over,
        lambda gone, over: max(pod.priority for pod in gone),
        lambda gone, over: sum(pod.priority + 2**31 for pod in gone),
        lambda gone, over: len(gone),
        lambda gone, over: -min(pod.start for pod in gone if pod.priority == max(p.priority for p in gone)),
    ]
    left = dict(candidates)
    for step in steps:
        best = min(step(*answer) for answer in left.values())
        left = {name: answer for name, answer in left.items() if step(*answer) == best}
    return next(iter(left))


def built(cluster):
    return a_cluster(
        [node(f"n{at}", cpu=cpu) for at, (cpu, _) in enumerate(cluster)],
        {
            f"n{at}": [wants(p.cpu, p.priority, p.name, p.start, {"app": p.app} if p.app else {}) for p in pods]
            for at, (_, pods) in enumerate(cluster)
        },
    )


def refused(cluster, want):
    return [(f"n{at}", cpu, pods) for at, (cpu, pods) in enumerate(cluster) if cpu < want + sum(pod.cpu for pod in pods)]


@given(clusters.map(named), st.integers(1, 6), st.sampled_from([0, 5, 6, 9]), budgets)
@settings(max_examples=125, deadline=None)
def test_the_search_agrees_with_a_plain_implementation(cluster, want, priority, allowed):
    real = built(cluster)
    found = search(real, wants(want, priority), budgets=Budgets([budget(count, app=app) for app, count in allowed.items()]))
    expected = {}
    for name, cpu, pods in refused(cluster, want):
        answer = plain_victims(cpu, pods, want, priority, allowed)
        if answer is not None:
            expected[name] = ([pod.name for pod in answer[0]], answer[1])
    assert {
        real.table.nodes[row].name: ([pod.name for pod in victims.pods], victims.violations)
        for row, victims in found.candidates
    } == expected
    if expected:
        plain = {name: plain_victims(cpu, pods, want, priority, allowed) for name, cpu, pods in refused(cluster, want)}
        best = plain_choice({name: answer for name, answer in plain.items() if answer is not None})
        assert real.table.nodes[choose(found.candidates).row].name == best


@given(clusters.map(named), st.integers(1, 6), st.sampled_from([0, 5, 6, 9]), budgets, st.booleans())
@settings(max_examples=50, deadline=None)
def test_victims_have_lower_priority_and_are_sufficient_and_necessary(cluster, want, priority, allowed, port):
    real = built(cluster)
    pod = wants(want, priority, ports=[80] if port else [])
    for row, (victims, _) in search(real, pod, budgets=Budgets([budget(n, app=a) for a, n in allowed.items()])).candidates:
        assert victims
        assert all(victim.priority < priority for victim in victims)
        for victim in victims:
            real.table.remove_pod(row, victim)
        assert attempt(real, pod).verdicts.status(row) is None
        for victim in victims:
            real.table.add_pod(row, victim)
            assert attempt(real, pod).verdicts.status(row) is not None
            real.table.remove_pod(row, victim)
        for victim in victims:
            real.table.add_pod(row, victim)


class Watcher:
    """Passes every node, but might look at pods: nodes have to be tried one by one for its sake."""

    name = "Watcher"

    def filter(self, state, nodes):
        return ()


nominations = st.dictionaries(st.sampled_from(["n0", "n1", "n2", "gone"]), st.lists(plain_pods, min_size=1, max_size=2))


@given(clusters.map(named), st.integers(1, 6), st.sampled_from([0, 5, 6, 9]), budgets, nominations, st.integers(1, 4))
@settings(max_examples=75, deadline=None)
def test_the_batched_search_equals_the_search_node_by_node(cluster, want, priority, allowed, nominated, enough):
    real = built(cluster)
    limits = Budgets([budget(count, app=app) for app, count in allowed.items()])
    waiting = {
        name: [wants(p.cpu, p.priority, f"{name}-{at}") for at, p in enumerate(pods)] for name, pods in nominated.items()
    }
    pod = wants(want, priority)
    fast, slow = (
        find_candidates(attempt(real, pod, waiting, others), 0, enough, VictimRules(limits, Ranking()))
        for others in ((), (Watcher(),))
    )
    assert (fast.candidates, fast.errors) == (slow.candidates, slow.errors)
    if not fast.candidates:
        assert fast.verdicts.histogram() == slow.verdicts.histogram()
