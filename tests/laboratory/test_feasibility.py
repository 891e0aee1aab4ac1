"""``can_schedule`` gives for each node what Filter says of it, whatever else runs in an attempt."""

from __future__ import annotations

import pytest

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.search import SearchScope
from moorage.framework.verdicts import Code
from moorage.laboratory.trial.history import scope_of
from moorage.state.pod_info import PodInfo
from tests.laboratory.random_world import World


def node_by_node(cluster, pod, nodes):
    """Return the nodes that accept a pod, and the refusals of the others, from the verdict on each node."""
    scheduler, table = cluster.scheduler, cluster.snapshot.table
    scope = SearchScope(scope_of(cluster.simulation, nodes).rows, post_filter=False)
    judge = Cycle(by_class=False, nominated_first=False, errors_end=False)
    profile = scheduler.profiles[pod.spec.scheduler_name]
    decision = judge.decide(profile, PodInfo(pod), cluster.snapshot, scheduler.queue.nominated, scope)
    accepted, refused = [], []
    for row in range(len(table)) if scope.rows is None else scope.rows.tolist():
        status = decision.status_of(row)
        if status is None:
            accepted += [table.nodes[row].name]
        else:
            says = status.plugin, status.code is Code.UNSCHEDULABLE
            refused += [(table.nodes[row].name, says[0], reason, says[1]) for reason in status.reasons]
    return [] if decision.node is None else accepted, refused, decision.message


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_are_those_on_each_node(seed):
    world = World(seed)
    cluster = world.cluster()
    cluster.add([world.pod() for _ in range(6)])
    seen = 0
    for _ in range(8):
        world.act(cluster)
        names = cluster.nodes["name"].tolist()
        for pod in cluster.pods:
            if pod["node"]:
                continue
            nodes = world.random.choice([None, None, names[:2]])
            found = cluster.can_schedule(pod["name"], nodes)
            accepted, refused, message = node_by_node(cluster, cluster.pod(pod["name"]), nodes)
            verdicts = [(one["node"], one["plugin"], one["reason"], one["resolvable"]) for one in found.verdicts]
            assert (found.nodes, verdicts, found.message) == (accepted, refused, message)
            seen += len(refused)
    assert seen > 10
