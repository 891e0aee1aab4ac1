"""``moorage run --verify``: a plugin that breaks a promise is logged and counted, and the pods go where they should."""

from __future__ import annotations

import moorage
from moorage.core.building.builder import complete_scheduler
from moorage.core.engine.facts import Seen
from moorage.core.engine.outbox import Decided, PluginFault
from moorage.framework.points import Reuse, Scope
from moorage.framework.verdicts import Reject
from moorage.live.server.scheduler_metrics import process_gauges
from moorage.simulator.simulate import load_options
from moorage.testing.builders import a_node, a_pod


class ReadsMore:
    """Says that it reads nothing of a pod, and reads its name."""

    name = "ReadsMore"
    reuse = Reuse(Scope.NODE, signature=lambda pod: {})

    def filter(self, pod, nodes):
        yield Reject(nodes.named([f"n{pod.name[1:]}"]), "not here")


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler, plugins: {multiPoint: {enabled: [{name: ReadsMore}]}}}]
"""


def scheduled(share):
    """Schedule pods ``pK`` that must not go to node ``nK``. Return the scheduler, the decisions and the faults."""
    options = load_options(moorage.Options(config=CONFIG.encode(), plugins=(ReadsMore,)))
    scheduler = complete_scheduler(options, 0, verified=share)
    for at in range(6):
        scheduler.observe(Seen(a_node(f"n{at}", allocatable={"cpu": "4", "memory": "8Gi", "pods": "9"})), 0.0)
    for at in range(6):
        scheduler.observe(Seen(a_pod(f"p{at}").pod), 0.0)
    while scheduler.step(0.0):
        pass
    outputs = scheduler.take()
    decisions = {one.decision.pod.name: one.decision.node for one in outputs if isinstance(one, Decided)}
    return scheduler, decisions, [str(one.error) for one in outputs if isinstance(one, PluginFault)]


def values(scheduler):
    shown = {}
    for family in process_gauges(scheduler, None, "0", "", lambda: True):
        if family.spec.name.startswith("moorage_verif"):
            shown[family.spec.name] = dict(family.read())
    return shown


def test_a_plugin_that_breaks_a_promise_is_reported_once_and_pods_go_where_they_should():
    scheduler, decisions, faults = scheduled(1.0)
    assert len(decisions) == 6
    assert all(node != f"n{pod[1:]}" for pod, node in decisions.items())
    (fault,) = faults
    assert "plugin ReadsMore has a reuse that does not hold: kept answers put pod default/p" in fault
    assert fault.endswith("It runs for every pod now")
    repeated = scheduler.cycle.verification.repeated
    assert 1 < repeated <= 7
    assert values(scheduler) == {
        "moorage_verified_decisions_total": {(): repeated},
        "moorage_verification_differences_total": {("ReadsMore",): 1},
    }


def test_nothing_is_repeated_by_default():
    scheduler, _, faults = scheduled(0.0)
    assert faults == []
    assert scheduler.cycle.verification is None
    assert values(scheduler)["moorage_verified_decisions_total"] == {(): 0}
