"""A scheduler whose every fact and every piece of work is in the test's hands."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from moorage.config.loading import load
from moorage.cycle.cycle import Cycle
from moorage.engine.facts import Done, Gone, Phase, Seen
from moorage.engine.scheduler import Scheduler
from moorage.engine.profiles import build_profiles
from moorage.framework.features import FeatureGates
from moorage.simulator.simulate import registry_with
from moorage.testing.builders import a_node, a_pod

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def node(name="n", cpu="2", **kwargs):
    return a_node(name, allocatable={"cpu": cpu, "memory": "8Gi", "pods": 110}, **kwargs)


def pod(name, cpu="1", *, on="", uid="", version="", labels=None, nominated="", **spec):
    return a_pod(
        name, labels, uid=uid, metadata={"resourceVersion": version}, nodeName=on,
        status={"nominatedNodeName": nominated} if nominated else None,
        containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec,
    ).pod  # fmt: skip


def bound(pod, node):
    return replace(pod, spec=replace(pod.spec, node_name=node), status=replace(pod.status, nominated_node_name=""))


def dying(pod):
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp="1970-01-01T00:00:00Z"))


class Driven:
    """The engine with default plugins and these, which are enabled wherever they have a say."""

    def __init__(self, *plugins, config=None, gates=""):
        gates = FeatureGates.parse(gates)
        registry = registry_with(plugins)
        names = ", ".join(f"{{name: {p.name}}}" for p in plugins)
        text = config or HEAD + f"profiles:\n- plugins:\n    multiPoint:\n      enabled: [{names}]\n"
        configuration = load(text.encode(), "test", registry, gates)
        self.engine = Scheduler(Cycle(), gates)
        self.engine.use(build_profiles(configuration, registry, gates, self.engine).profiles)
        self.now = 0.0

    def see(self, *objects):
        for obj in objects:
            self.engine.observe(Seen(obj), self.now)

    def gone(self, *objects):
        for obj in objects:
            self.engine.observe(Gone(obj), self.now)

    def done(self, work, error=None):
        self.engine.observe(Done(work.ticket, error), self.now)

    def step(self, seconds=0.0):
        """Make one attempt, ``seconds`` later. Returns (pod, node or None), or None if no pod is ready."""
        self.now += seconds
        decision = self.engine.step(self.now)
        return None if decision is None else (decision.pod.name, decision.node)

    def steps(self, seconds=0.0):
        self.now += seconds
        return list(itertools.takewhile(lambda tried: tried is not None, (self.step() for _ in range(50))))

    def work(self, *phases):
        """What is to be done now, of these phases."""
        return [work for work in self.engine.take_work() if not phases or work.phase in phases]

    def only_work(self, phase):
        (work,) = self.work(phase)
        return work

    def place(self, uid):
        queued = self.engine.queue.get(uid)
        return None if queued is None else queued.place

    def on(self, name):
        """Names of the pods that count on a node."""
        found = self.engine.snapshot.node(name)
        return [] if found is None else sorted(pod.name for pod in found.pods)

    def check_settled(self):
        engine = self.engine
        assert not engine.cluster.assumed
        assert not list(engine.waiting())
        assert engine.queue.logged_events == 0
        assert not engine.queue.nominated
        assert not engine.faults


__all__ = ["HEAD", "Driven", "Phase", "bound", "dying", "node", "pod"]
