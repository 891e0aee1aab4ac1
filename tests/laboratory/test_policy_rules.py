"""Rules of a policy: each has its own figures, in any order; a change that changes nothing makes no difference."""

import copy
import itertools
import random
from dataclasses import replace

import pytest

from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.compare.policy import check_policy, read_policy, schedules_alike
from moorage.laboratory.edit.object_edits import replaced
from moorage.report.answer import AnswerRequest
from moorage.simulator.simulate import Options

TYPES = [{"name": "small", "like": "group/n", "price": 1.5}]
RULES = [
    {"noPending": {}},
    {"noPending": {"newOnly": True}},
    {"survives": {"over": "node"}},
    {"spread": {"selector": "app=web", "atLeast": 2}},
    {"cost": {"atMost": "+3%"}},
    {"cost": {"atMost": 9}},
    {"metric": "nodesUsed > +1"},
]


def node(number):
    labels = {"topology.kubernetes.io/zone": "ab"[number % 2]}
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "labels": labels},
        "status": {"allocatable": allocatable},
    }  # fmt: skip


def app(name, replicas, cpu, **metadata):
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }  # fmt: skip


def cluster(rng):
    nodes = [node(number) for number in range(rng.randint(2, 4))]
    apps = [app(name, rng.randint(1, 5), rng.choice(["500m", "1", "3"])) for name in ("web", "db", "jobs")]
    return [*nodes, *apps]


def policy(rules):
    import yaml

    document = {"apiVersion": "moorage.dev/v1", "kind": "CheckPolicy", "types": [{"name": "small", "like": "n0", "price": 1.5}]}
    return read_policy(yaml.safe_dump({**document, "rules": list(rules)}).encode(), "policy.yaml")


def results(rules, before, after):
    request = AnswerRequest(release="1.36")
    found = check_policy(policy(rules), "policy.yaml", before, after, Options(), request, TimeBudget())
    return [(one.holds, one.text, tuple(one.findings)) for one in found.rules]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_rules_do_not_change_each_others_figures(seed):
    rng = random.Random(seed)
    objects = cluster(rng)
    before = read_given(objects)
    after = replaced(before, read_given([app("web", rng.randint(1, 9), "1")]))
    alone = [results([rule], before, after)[0] for rule in RULES]
    for _ in range(3):
        order = rng.sample(range(len(RULES)), len(RULES))
        assert results([RULES[at] for at in order], before, after) == [alone[at] for at in order]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_change_that_changes_nothing_makes_no_difference(seed):
    rng = random.Random(seed)
    objects = cluster(rng)
    before = read_given(objects)
    same = copy.deepcopy(rng.choice([one for one in objects if one["kind"] == "Deployment"]))
    same["metadata"] |= {"annotations": {"note": "applied again"}, "labels": {"team": "a"}}
    after = replaced(before, read_given([same]))
    relative = [rule for rule in RULES if "newOnly" in str(rule) or "+" in str(rule)]
    for rules in itertools.chain(([rule] for rule in relative), [RULES]):
        found = dict(zip(map(str, rules), results(rules, before, after), strict=True))
        assert [found[str(rule)][0] for rule in rules if rule in relative] == [True] * sum(rule in relative for rule in rules)


CHANGES = {
    "nothing": (lambda web: web, True),
    "an annotation of the workload": (lambda web: web["metadata"].update(annotations={"a": "b"}), True),
    "a label of the workload": (lambda web: web["metadata"].update(labels={"a": "b"}), True),
    "the number of pods": (lambda web: web["spec"].update(replicas=4), False),
    "a request": (
        lambda web: web["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].update(cpu="2"), False,
    ),
    "a label of the pods": (lambda web: web["spec"]["template"]["metadata"]["labels"].update(a="b"), False),
    "a priority": (lambda web: web["spec"]["template"]["spec"].update(priorityClassName="system-node-critical"), False),
}  # fmt: skip


@pytest.mark.parametrize(("change", "is_alike"), CHANGES.values(), ids=CHANGES)
def test_what_is_the_same_for_scheduling(change, is_alike):
    before = read_given([node(0), node(1), app("web", 2, "1"), app("db", 1, "1")])
    web = app("web", 2, "1")
    change(web)
    assert schedules_alike(before, replaced(before, read_given([web])), Options()) == is_alike


def test_an_object_less_is_a_change():
    whole = read_given([node(0), app("web", 1, "1")])
    assert not schedules_alike(whole, replace(whole, nodes=()), Options())
    assert not schedules_alike(replace(whole, nodes=()), whole, Options())
