"""The cheap tests of preemption answer only what a real attempt would answer."""

from __future__ import annotations

import random

import pytest

import moorage
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.trial import cluster_trials
from moorage.laboratory.trial.dry_run import Nominated, quick_decision
from tests.laboratory.random_world import HOST, ZONE


def pod(name, cpu, priority, **spec):
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [container], "priority": priority, "terminationGracePeriodSeconds": 30, **spec},
    }  # fmt: skip


def node(name, cpu, **labels):
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOST: name, **labels}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": 9}},
    }  # fmt: skip


def world(chance, **spec):
    nodes = [
        node(f"n{at}", chance.choice([2, 3, 4]), **{ZONE: "yz"[at % 2]}, disk=chance.choice(["ssd", "hdd"])) for at in range(5)
    ]
    placed = [
        pod(f"p{at}", chance.choice([300, 600, 900]), chance.choice([0, 0, 20]), nodeName=f"n{at % 5}") for at in range(15)
    ]
    for one in placed:
        one["metadata"]["labels"]["app"] = chance.choice("abcc")
    rival = pod("rival", 2400, 30) if chance.random() < 0.5 else None
    cluster = moorage.Cluster.from_objects(
        nodes, placed, pod("new", chance.choice([2600, 3300]), 10, **spec), *filter(None, [rival])
    )
    if rival is not None:
        cluster.schedule(["rival"])  # it is nominated, or placed
    return cluster


def spread(key, app="a", **more):
    selector = {"matchLabels": {"app": app}}
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [{**constraint, **more}]}


def beside(kind, key, app):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


SPECS = {
    "alone": {},
    "spread by host": spread(HOST),
    "spread by zone on some nodes": {**spread(ZONE), "nodeSelector": {"disk": "ssd"}},
    "spread over several zones": {**spread(ZONE, "c", minDomains=2), "nodeSelector": {"disk": "ssd"}},
    "apart": beside("podAntiAffinity", HOST, "b"),
    "near": beside("podAffinity", ZONE, "a"),
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_what_the_tests_rule_out_fails_in_an_attempt(monkeypatch, spec):
    bounded, alone = [], []

    def checked(simulation, asked, profile, cycle=None):
        found = quick_decision(simulation, asked, profile, cycle)
        if cycle is not None and isinstance(found, Nominated):
            (came,) = cluster.schedule([asked.uid], dry_run=True)
            assert (came.node, came.nominated, came.victims) == (None, *found)
            alone.append(found)
        elif cycle is not None and found is not None and found.node is None:
            (came,) = cluster.schedule([asked.uid])  # in the transaction of the trial
            assert (came.node, came.victims) == (None, ())
            bounded.append(asked.uid)
            return None
        return found

    monkeypatch.setattr(cluster_trials, "quick_decision", checked)
    for seed in range(12):
        cluster = world(random.Random(seed), **spec)
        if seed % 3 == 0:
            cluster.schedule()  # it may be nominated, and wait for its victims
        cluster.least_change("new", probes=60)
    assert bounded
    assert alone


LIMITED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 10, minCandidateNodesAbsolute: %d}
"""


@pytest.mark.parametrize("absolute", [0, 1])
def test_the_only_candidate_of_many_nodes_is_found_whatever_the_limits(absolute):
    """A tenth of one node is none, but a tenth of all refused nodes is more than one."""
    nodes = [node(f"n{at}", 4) for at in range(20)]
    placed = [
        pod(f"{name}{at}", cpu, priority, nodeName=f"n{at}")
        for at in range(20)
        for name, cpu, priority in (("low", 1000, 0), ("high", 2000, 100))
    ]
    cluster = moorage.Cluster.from_objects(nodes, placed, pod("new", 3000, 10), config=LIMITED % absolute)
    trials = cluster_trials.ClusterTrials(cluster, "default/new")
    assert not trials.attempt(frozenset()).node
    found = trials.attempt(frozenset([Change("node", "allocatable", "node/n3", "allocatable.cpu", 4000, 5500)]))
    assert (found.node, found.displaced) == ("n3", ("default/low3",))


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_answers_are_those_of_real_attempts(monkeypatch, spec):
    for seed in range(8):
        told = []
        for quick in (quick_decision, lambda simulation, asked, profile, cycle=None: None):
            monkeypatch.setattr(cluster_trials, "quick_decision", quick)
            cluster = world(random.Random(seed), **spec)
            if seed % 2:
                cluster.schedule()
            try:
                told.append(cluster.least_change("new", probes=60))
            except InputError as error:
                told.append(str(error))
        assert told[0] == told[1]
