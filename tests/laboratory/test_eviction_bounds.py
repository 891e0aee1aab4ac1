"""The cheap tests of preemption answer only what a real attempt would answer."""

from __future__ import annotations

import random

import pytest

import moorage
from moorage.errors import InputError
from moorage.laboratory import cluster_trials
from moorage.laboratory.dry_run import OnlyNode, quick_decision
from tests.laboratory.random_world import HOST


def pod(name, cpu, priority, **spec):
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [container], "priority": priority, "terminationGracePeriodSeconds": 30, **spec},
    }  # fmt: skip


def node(name, cpu):
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOST: name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": 9}},
    }  # fmt: skip


def world(chance, **spec):
    nodes = [node(f"n{at}", chance.choice([2, 3, 4])) for at in range(5)]
    placed = [
        pod(f"p{at}", chance.choice([300, 600, 900]), chance.choice([0, 0, 20]), nodeName=f"n{at % 5}") for at in range(15)
    ]
    return moorage.Cluster.from_objects(nodes, placed, pod("new", chance.choice([2600, 3300]), 10, **spec))


SPREAD = {"topologySpreadConstraints": [
    {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}}}
]}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("spec", [{}, SPREAD], ids=["alone", "beside others"])
def test_what_the_tests_rule_out_fails_in_an_attempt(monkeypatch, spec):
    bounded, alone = [], []

    def checked(simulation, asked, profile, cycle=None, changed=None):
        found = quick_decision(simulation, asked, profile, cycle, changed)
        if cycle is not None and isinstance(found, OnlyNode):
            (limited,) = cluster.schedule([asked.uid], nodes=[found.name], dry_run=True)
            (came,) = cluster.schedule([asked.uid], dry_run=True)
            assert (came.node, came.nominated, came.victims) == (limited.node, limited.nominated, limited.victims)
            alone.append(found)
        elif cycle is not None and found is not None and found.node is None:
            (came,) = cluster.schedule([asked.uid])  # in the transaction of the trial
            assert (came.node, came.victims) == (None, ()), [one.name for one in simulation.scheduler.snapshot.table.nodes]
            bounded.append(changed)
            return None
        return found

    monkeypatch.setattr(cluster_trials, "quick_decision", checked)
    for seed in range(12):
        cluster = world(random.Random(seed), **spec)
        if seed % 3 == 0:
            cluster.schedule()  # it may be nominated, and wait for its victims
        cluster.least_change("new", probes=60)
    assert any(changed for changed in bounded) is (not spec), "no trial was answered by the changed rows"
    assert bool(alone) is (not spec)


def test_answers_are_those_of_real_attempts(monkeypatch):
    for seed in range(6):
        told = []
        for quick in (quick_decision, lambda simulation, asked, profile, cycle=None, changed=None: None):
            monkeypatch.setattr(cluster_trials, "quick_decision", quick)
            cluster = world(random.Random(seed))
            if seed % 2:
                cluster.schedule()
            try:
                told.append(cluster.least_change("new", probes=60))
            except InputError as error:
                told.append(str(error))
        assert told[0] == told[1]
