"""What pods of one group hear of each other while they are tried: less than they would of others, as in kube-scheduler."""

from __future__ import annotations

import pytest

from moorage.api.decode import decode
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.core.engine.facts import Phase
from tests.core.engine.driving import Driven, dying, node, pod
from tests.core.engine.test_pod_groups import GANGS, gang, member

HOST = "kubernetes.io/hostname"
TERM = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOST}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
PREFERRED = [{"weight": 100, "podAffinityTerm": TERM}]
NEAR = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED}}
OTHERS = {**TERM, "labelSelector": {"matchLabels": {"app": "none"}}}
ELSEWHERE = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": OTHERS}]}}


def driven(*objects, gates=GANGS):
    run = Driven(gates=gates)
    run.see(*objects)
    return run


def a_node(name="n", cpu="8"):
    return node(name, cpu, labels={HOST: name})


def placed(run):
    return {name: where for name, where in run.steps() if where}


def pair(**demands):
    """The first has demands, which are about the second."""
    return member("a", priority=10, labels={"app": "y"}, affinity=demands), member("b", labels={"app": "x"})


@pytest.mark.parametrize(
    ("there", "second"),
    [
        pytest.param([], "n", id="no placed pod has an affinity"),
        pytest.param([pod("old", on="n", affinity=NEAR)], "n", id="a placed pod has affinity"),
        pytest.param([pod("old", on="n", affinity=APART)], None, id="a placed pod has anti-affinity"),
    ],
)
def test_anti_affinity_of_group_pods_counts_on_nodes_listed_at_the_start(there, second):
    """kube-scheduler looks for anti-affinity on the nodes that it had listed when the attempt began."""
    expected = {"a": "n"} if second is None else {"a": "n", "b": second}
    assert placed(driven(a_node(), *there, gang(least=1), *pair(**APART))) == expected


def test_anti_affinity_counts_for_all_pods_after_the_group_attempt():
    run = driven(a_node(), gang(least=1), *pair(**APART))
    placed(run)
    run.see(pod("plain", labels={"app": "x"}))
    assert run.step() == ("plain", None)


def test_anti_affinity_of_a_single_pod_counts_at_once():
    run = driven(a_node(), pod("a", priority=10, affinity=APART), pod("b", labels={"app": "x"}))
    assert placed(run) == {"a": "n"}


@pytest.mark.parametrize(
    ("there", "second"),
    [
        pytest.param([], "roomy", id="no placed pod has a preference"),
        pytest.param([pod("old", on="small", cpu="0", affinity=ELSEWHERE)], "small", id="a placed pod prefers other pods"),
    ],
)
def test_preferred_affinity_of_a_group_pod_scores_its_node(there, second):
    first = member("a", priority=10, nodeSelector={HOST: "small"}, affinity=NEAR)
    run = driven(a_node("small", "4"), a_node("roomy", "64"), *there, gang(least=1), first, member("b", labels={"app": "x"}))
    assert placed(run) == {"a": "small", "b": second}


def test_a_pod_with_preferences_is_scored_by_its_group_pods():
    keep = member("a", priority=10, labels={"app": "x"}, nodeSelector={HOST: "small"}, affinity=NEAR)
    other = member("b", labels={"app": "x"}, affinity=NEAR)
    run = driven(a_node("small", "4"), a_node("roomy", "64"), gang(least=1), keep, other)
    assert placed(run) == {"a": "small", "b": "small"}


@pytest.mark.parametrize(("made", "where"), [(member, {"a": "n", "b": "n"}), (pod, {"a": "n"})], ids=["fellows", "no fellows"])
def test_a_single_pod_claim_is_shared_within_a_group(made, where):
    """kube-scheduler notes who uses which claim before it tries a group."""
    head = {"metadata": {"name": "c", "namespace": "default", "uid": "c"}}
    spec = {"accessModes": ["ReadWriteOncePod"], "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}
    bound_to = {"metadata": {**head["metadata"], "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
    claim = decode({**bound_to, "spec": spec, "status": {"phase": "Bound"}}, PersistentVolumeClaim, "claim")
    ref = {"name": "c", "namespace": "default", "uid": "c"}
    volume = decode(
        {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOncePod"], "claimRef": ref}}, PersistentVolume, "v"
    )
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    run = driven(a_node(), volume, claim, gang(least=1), made("a", volumes=volumes, priority=1), made("b", volumes=volumes))
    assert placed(run) == where


# -- nominations ----------------------------------------------------------------------------------------------------------


def test_nominated_group_pods_reserve_nothing_during_the_group_attempt():
    """Of pods in flight kube-scheduler's nominator knows the name alone."""
    fellow = member("late", cpu="2", nominated="n", priority=10, nodeSelector={"is": "nowhere"})
    run = driven(a_node(cpu="2"), gang(least=1), member("a", cpu="2"), fellow)
    assert placed(run) == {"a": "n"}


def test_a_group_pod_keeps_the_nomination_of_the_api():
    gates = f"{GANGS},WorkloadAwarePreemption=true"
    run = driven(a_node(cpu="2"), member("a", cpu="3", nominated="n"), gang(least=1), gates=gates)
    assert not run.engine.queue.nominated  # it was gated when it came
    assert run.step() == ("a", None)
    assert {at: [one.name for one in pods] for at, pods in run.engine.queue.nominated.items()} == {"n": ["a"]}
    assert run.work(Phase.NOMINATE) == []


@pytest.mark.parametrize("grouped", [True, False])
def test_a_terminating_pod_stays_nominated_until_deleted(grouped):
    made = member if grouped else pod
    going = made("going", cpu="2", nominated="n")
    run = driven(a_node(cpu="2"), gang(least=1), going)
    run.see(dying(going))
    assert run.step() is None
    assert [one.name for one in run.engine.queue.nominated["n"]] == ["going"]
    run.see(pod("plain", cpu="2"))
    assert run.step() == ("plain", "n")
    run.gone(dying(going))
    assert not run.engine.queue.nominated


@pytest.mark.parametrize(("gates", "nominated"), [("", ["low", "top"]), ("SchedulerAsyncPreemption=false", ["top"])])
def test_no_nomination_is_cleared_while_victims_terminate_asynchronously(gates, nominated):
    run = driven(a_node(cpu="2"), dying(pod("old", "2", on="n")), gates=gates)
    run.see(pod("low", "2", nominated="n", priority=5), pod("top", "2", priority=10))
    assert run.step() == ("top", None)
    assert sorted(one.name for one in run.engine.queue.nominated["n"]) == nominated
