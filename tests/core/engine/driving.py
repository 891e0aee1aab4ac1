"""A scheduler whose every fact and every piece of work is in the test's hands."""

from __future__ import annotations

import itertools
from collections import deque

from msgspec.structs import replace

from moorage.api.feature_gates import TODAY, FeatureGates
from moorage.basis.inputs.scheduler_config import registry_with
from moorage.core.building.builder import build_profiles
from moorage.core.config.configuration_loader import load
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import NO_LONGER_WANTED, Done, Gone, Phase, Query, Seen, Work
from moorage.core.engine.outbox import Cancel, Decided, GroupAttempted, PluginFault, Preempted, Revoked, Skipped
from moorage.core.engine.scheduler import Scheduler
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


class Outputs:
    """What an engine produced, sorted by kind; a test takes of it what it looks at."""

    def __init__(self, engine):
        self.engine = engine
        self.decisions = deque()
        self.revoked, self.work, self.queries, self.cancelled = [], [], [], []
        self.skipped, self.preempted, self.groups, self.faults = [], [], [], []

    def collect(self):
        for output in self.engine.take():
            match output:
                case Decided(decision):
                    self.decisions.append(decision)
                case Revoked(decision):
                    self.revoked.append(decision)
                case Work():
                    self.work.append(output)
                case Query():
                    self.queries.append(output)
                case Cancel(ticket):
                    self.cancelled.append(ticket)
                case Skipped(pod):
                    self.skipped.append(pod)
                case Preempted(eviction):
                    self.preempted.append(eviction)
                case GroupAttempted(report):
                    self.groups.append(report)
                case PluginFault(error):
                    self.faults.append(error)

    def take(self, kind):
        """Return the outputs of one kind and forget them."""
        self.collect()
        taken = list(getattr(self, kind))
        getattr(self, kind).clear()
        return taken


def release_of(gates):
    """Return the release to test with gates: 1.36 for those of pod groups that end with it, else the default."""
    return "1.36" if "GangScheduling=" in gates else TODAY


class Driven:
    """The engine with default plugins and these, which are enabled at every extension point they have."""

    def __init__(self, *plugins, config=None, gates="", release=None):
        gates = FeatureGates.parse(gates, release or release_of(gates))
        registry = registry_with(plugins, release=gates.release)
        names = ", ".join(f"{{name: {p.name}}}" for p in plugins)
        text = config or HEAD + f"profiles:\n- plugins:\n    multiPoint:\n      enabled: [{names}]\n"
        configuration = load(text.encode(), "test", registry, gates)
        self.engine = Scheduler(Cycle(), gates, lambda handle: build_profiles(configuration, registry, gates, handle).profiles)
        self.now = 0.0
        self.outputs = Outputs(self.engine)

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
        decision = self.attempt()
        return None if decision is None else (decision.pod.name, decision.node)

    def attempt(self, now=None):
        """Return the next decision: of an attempt made now, or of another pod of the group that was tried last."""
        if not self.outputs.decisions:
            self.engine.step(self.now if now is None else now)
            self.outputs.collect()
        return self.outputs.decisions.popleft() if self.outputs.decisions else None

    @property
    def faults(self):
        self.outputs.collect()
        return self.outputs.faults

    def steps(self, seconds=0.0):
        self.now += seconds
        return list(itertools.takewhile(lambda tried: tried is not None, (self.step() for _ in range(50))))

    def work(self, *phases):
        """What is to be done now, of these phases."""
        wanted = []
        for work in self.outputs.take("work"):
            if self.engine.is_wanted(work.ticket):
                wanted.append(work)
            else:
                self.engine.observe(Done(work.ticket, NO_LONGER_WANTED, 0), self.now)
        return [work for work in wanted if not phases or work.phase in phases]

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
        assert not self.faults


__all__ = ["HEAD", "Driven", "Outputs", "Phase", "bound", "dying", "node", "pod"]
