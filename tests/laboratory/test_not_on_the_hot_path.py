"""Explanations cost nothing where none is asked for: scheduling imports no laboratory and asks no plugin why it refused."""

from __future__ import annotations

import subprocess
import sys

import moorage
from moorage.testing.builders import a_node, a_pod

SCHEDULING = """
import sys
import moorage.live.runtime.loop, moorage.core.engine.scheduler, moorage.live.server.live_scheduler
from moorage.simulator.cluster_reader import read
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_node, a_pod
simulation, _ = prepare(Options())
big = a_pod("big", containers=[{"name": "c", "image": "x", "resources": {"requests": {"cpu": "99"}}}])
simulation.load([a_node("n", allocatable={"cpu": "4", "memory": "8Gi", "pods": 10}), a_pod("small").pod, big.pod])
simulation.run()
assert [record.state for record in simulation.records.values()] == ["Placed", "Pending"], simulation.records
print(*(name for name in sys.modules if name.startswith("moorage.laboratory")))
"""


def test_scheduling_imports_no_laboratory():
    came = subprocess.run([sys.executable, "-c", SCHEDULING], capture_output=True, text=True, check=True)
    assert came.stdout.strip() == ""


def test_plugins_are_asked_why_only_for_an_explanation(monkeypatch):
    asked = []
    profile = moorage.Cluster.from_objects(a_node("n")).scheduler.profiles["default-scheduler"]
    for plugin in {type(one) for one in profile.plugins.values()}:
        for method in ("why", "remedies"):
            if hasattr(plugin, method):
                original = getattr(plugin, method)

                def counting(*args, _original=original, **given):
                    asked.append(_original)
                    return _original(*args, **given)

                monkeypatch.setattr(plugin, method, counting)
    big = a_pod("big", containers=[{"name": "c", "image": "x", "resources": {"requests": {"cpu": "99"}}}])
    node = a_node("n", allocatable={"cpu": "4", "memory": "8Gi", "pods": 10})
    cluster = moorage.Cluster.from_objects(node, a_pod("small", containers=[{"name": "c", "image": "x"}]).pod, big.pod)
    cluster.run()
    assert not asked
    cluster.explain("big")
    assert asked
