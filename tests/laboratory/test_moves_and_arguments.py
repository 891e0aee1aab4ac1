"""Changes that move another pod away, and changes of plugins' arguments."""

from __future__ import annotations

import random

import numpy as np
import pytest

import moorage
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.search import SearchScope
from moorage.errors import InputError
from moorage.laboratory.change.least_change import ChangeLimits, find_least_change
from moorage.laboratory.edit.changes import apply_all
from moorage.laboratory.explain.verdicts import off_its_node
from moorage.laboratory.trial.cluster_trials import ClusterTrials
from moorage.laboratory.trial.trials import PodMoves, unplaced
from moorage.plugins.shared.evictions import evict
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node, a_pod
from tests.laboratory.brute_force import NEW, random_cluster
from tests.laboratory.fresh_trials import FreshTrials
from tests.laboratory.random_world import World

HOST = "kubernetes.io/hostname"


def node(name, cpu="4", **labels):
    return a_node(name, {HOST: name, **labels}, allocatable={"cpu": cpu, "pods": 10})


def asking(name, cpu="1", on="", labels=None, extra=None, **spec):
    requests = {"cpu": cpu, **(extra or {})}
    return a_pod(
        name,
        labels,
        nodeName=on,
        containers=[{"name": "c", "resources": {"requests": requests, "limits": extra or {}}}],
        **spec,
    ).pod


def lines(remedies):
    return [(one.owner, one.cost, " and ".join(one.texts)) for one in remedies]


def test_a_pod_moves_to_where_it_fits():
    cluster = moorage.Cluster.from_objects(node("n1"), node("n2", "2"), asking("old", "2", "n1"), asking("new", "3"))
    found = cluster.least_change("new", may=["cluster"], all_changes=True)
    assert ("cluster", 3, "move default/old to n2") in lines(found)
    held = cluster.objects()
    assert find_least_change(FreshTrials(held, NEW), held, ChangeLimits(may=("cluster",), all_changes=True)).remedies == tuple(
        found
    )


def test_a_pod_that_fits_nowhere_else_does_not_move():
    cluster = moorage.Cluster.from_objects(node("n1"), node("n2", "1"), asking("old", "2", "n1"), asking("new", "3"))
    found = cluster.least_change("new", may=["cluster"], alternatives=9, all_changes=True)
    assert not any("move" in text for _, _, text in lines(found))


def places_of_moves(cluster):
    """Yield for each placed pod without volumes the node that it would move to, and the one that a cycle chooses for it."""
    snapshot, profile = cluster.snapshot, cluster.scheduler.profiles["default-scheduler"]
    for pod in [pod for pod in snapshot.pods() if pod.volumes is None]:
        row = snapshot.table.row_of[snapshot.where(pod.uid)]
        moved = PodMoves(profile, snapshot).instead_of([evict(pod, snapshot.table.nodes[row].name)])
        others = SearchScope(np.delete(np.arange(len(snapshot.table)), row), post_filter=False)
        with off_its_node(cluster.scheduler.cluster, pod.uid):
            cycle = Cycle(by_class=False, nominated_first=False, errors_end=False)
            node = cycle.decide(profile, PodInfo(unplaced(pod.pod)), snapshot, {}, others).node
        yield [one.new for one in moved if one.verb == "move"], [] if node is None else [node]


def test_a_pod_moves_to_the_node_that_a_cycle_chooses():
    places = [place for seed in range(8) for place in places_of_moves(World(seed).cluster())]
    assert sum(bool(cycle) for _, cycle in places) > 20
    assert [move for move, _ in places] == [cycle for _, cycle in places]


def test_two_pods_do_not_move_to_a_place_for_one():
    pods = [asking("a", "2", "n1"), asking("b", "2", "n1"), asking("new", "4")]
    cluster = moorage.Cluster.from_objects(node("n1"), node("n2", "3"), *pods)
    found = cluster.least_change("new", may=["cluster"], alternatives=9, all_changes=True)
    assert all(sum(change.verb == "move" for change in one.changes) <= 1 for one in found)


@pytest.mark.slow
def test_every_move_that_is_proposed_works():
    moved = 0
    for seed in range(60):
        cluster = moorage.Cluster.from_objects(random_cluster(random.Random(seed)), node("spare", "1"))
        held = cluster.objects()
        limits = ChangeLimits(may=("cluster",), alternatives=6, probes=80, all_changes=True)
        answers = find_least_change(ClusterTrials(cluster, NEW), held, limits)
        for one in answers.remedies:
            moves = [change for change in one.changes if change.verb == "move"]
            moved += len(moves)
            placed = moorage.Cluster.from_objects(apply_all(held, one.changes)).schedule([NEW])[0]
            assert placed.node or placed.nominated
            others = [change for change in one.changes if change.verb != "move"]
            if len(moves) == 1:
                cleared = moorage.Cluster.from_objects(apply_all(held, others))
                pod = cleared.pod(moves[0].target.removeprefix("pod/"))
                cleared.remove(moves[0].target)
                cleared.add(unplaced(pod))
                assert moves[0].new in cleared.can_schedule(pod.key).nodes
    assert moved >= 5


# -- arguments of plugins ---------------------------------------------------------------------------------------------------

AFFINITY = """
- name: NodeAffinity
  args:
    addedAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [a]}]}]
"""
SPREAD = """
- name: PodTopologySpread
  args:
    defaultingType: List
    defaultConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}]
"""
HEAD = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
"""
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "s", "namespace": "default"},
    "spec": {"selector": {"app": "x"}},
}
REQUIRED = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
APP = {"app": "x"}
CASES = {  # plugin arguments, objects, the change in words, the edits that make it
    "affinity that is added to every pod": (
        AFFINITY, [node("n1"), asking("new")],
        f"NodeAffinity of profile default-scheduler: drop {REQUIRED}", f"NodeAffinity {REQUIRED}-",
    ),
    "a default constraint that spreads over hosts": (
        SPREAD, [SERVICE, node("n1"), node("n2", "1m"), asking("a", on="n1", labels=APP), asking("new", labels=APP)],
        "PodTopologySpread of profile default-scheduler: defaultConstraints[0].maxSkew 1 → 2",
        "PodTopologySpread defaultConstraints[0].maxSkew=2",
    ),
    "an extended resource that no node has": (
        "[]", [node("n1"), asking("new", extra={"example.com/gpu": "1"})],
        "NodeResourcesFit of profile default-scheduler: ignoredResources + example.com/gpu",
        "NodeResourcesFit ignoredResources=example.com/gpu",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("args", "objects", "text", "edit"), CASES.values(), ids=CASES)
def test_an_argument_is_offered_and_holds(tmp_path, args, objects, text, edit):
    config = tmp_path / "config.yaml"
    config.write_text(f"{HEAD}  pluginConfig: {args.replace(chr(10), chr(10) + '  ') if args.startswith(chr(10)) else args}\n")
    cluster = moorage.Cluster.from_objects(objects, config=str(config))
    found = cluster.least_change("new", may=["config"], alternatives=9, all_changes=True)
    assert ("config", 12, text) in lines(found)
    held = cluster.objects()
    fresh = find_least_change(
        FreshTrials(held, NEW, cluster.options), held, ChangeLimits(may=("config",), alternatives=9, all_changes=True)
    )
    assert lines(fresh.remedies) == lines(found)
    assert not cluster.schedule(["new"], dry_run=True)[0]
    cluster.apply(f"config/default-scheduler/{edit}")
    assert cluster.schedule(["new"])[0]


WRONG = {
    "NodeAffinity nothing=1": "unknown field `nothing`",
    "PodTopologySpread defaultConstraints[3].maxSkew=2": "there is no defaultConstraints[3].maxSkew",
    "PodTopologySpread defaultingType=None": "Unsupported value",
    "NodeName maxSkew=2": "takes no arguments",
    "NodeAffinity off": "write 'disable'",
}


@pytest.mark.parametrize(("edit", "says"), WRONG.items(), ids=WRONG)
def test_an_argument_that_cannot_be_set_is_an_error(edit, says):
    cluster = moorage.Cluster.from_objects(node("n1"))
    with pytest.raises(InputError, match=says.replace("[", r"\[").replace("]", r"\]")):
        cluster.apply(f"config/default-scheduler/{edit}")
