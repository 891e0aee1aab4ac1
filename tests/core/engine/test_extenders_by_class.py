"""With extenders of any kind, what is kept of classes and of failures changes nothing: the engine beside one without it."""

from __future__ import annotations

import json
from random import Random

import pytest
from msgspec.structs import replace

from moorage.core.engine.facts import Answered, Phase
from moorage.framework.effects import Evict
from moorage.testing.builders import a_node, a_pod
from tests.core.engine.test_extenders import Consulted

GPU = "example.com/gpu"
VERBS = ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb")
HOST = "kubernetes.io/hostname"


def an_extender(random, number, binds):
    """Return any extender; only one may bind."""
    verbs = [verb for verb in VERBS if random.random() < 0.5 and (verb != "bindVerb" or binds)]
    fields = {verb: verb.removesuffix("Verb") for verb in verbs or ["filterVerb"]}
    if "prioritizeVerb" in fields:
        fields["weight"] = random.randint(1, 3)
    if random.random() < 0.4:
        fields["managedResources"] = [{"name": GPU, "ignoredByScheduler": random.random() < 0.5}]
    return {
        "urlPrefix": f"http://e{number}/",
        "nodeCacheCapable": random.random() < 0.6,
        "ignorable": random.random() < 0.4,
        **fields,
    }


def listed(body):
    """Return the nodes that a question is about."""
    items = body["Nodes"]["items"] if body.get("Nodes") else []
    return body.get("NodeNames") or [item["metadata"]["name"] for item in items]


class Whims:
    """Replies by chance, which are the same to the same question."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, question, body):
        about = body.get("Pod", {}).get("metadata", {}).get("name") or body.get("PodName")
        chance = Random(f"{self.seed} {question.url} {about} {sorted(listed(body))}")
        if chance.random() < 0.15:
            return chance.choice([OSError("connection refused"), b"<html>", {"Error": "out of order"}, b"[[]]", b""])
        return getattr(self, f"_{question.verb}")(chance, body)

    def _filter(self, chance, body):
        names = listed(body)
        kept = [name for name in names if chance.random() < 0.7]
        reply = {
            "FailedNodes": {name: chance.choice(["too hot", "too far"]) for name in names if name not in kept},
            "FailedAndUnresolvableNodes": {name: "never" for name in names if name not in kept and chance.random() < 0.3},
        }
        if body.get("NodeNames") is not None:
            return {"NodeNames": kept, **reply}
        return {"Nodes": {"items": [item for item in body["Nodes"]["items"] if item["metadata"]["name"] in kept]}, **reply}

    def _prioritize(self, chance, body):
        return [{"Host": name, "Score": chance.randint(0, 10)} for name in listed(body) if chance.random() < 0.8]

    def _preempt(self, chance, body):
        offered = body.get("NodeNameToMetaVictims") or body.get("NodeNameToVictims") or {}
        named = {}
        for node, victims in offered.items():
            if chance.random() < 0.7:
                uids = [pod.get("UID") or pod["metadata"]["uid"] for pod in victims["Pods"]]
                named[node] = {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": chance.randint(0, 1)}
        return {"NodeNameToMetaVictims": named}

    def _bind(self, chance, body):
        return {}


class Twins:
    """An engine that keeps what it learned of classes and failures, and one that does not. The same happens to both."""

    def __init__(self, seed):
        self.random = Random(seed)
        binder = self.random.choice([0, 1, None])
        extenders = [an_extender(self.random, number, number == binder) for number in range(self.random.randint(1, 3))]
        self.both = [Consulted(*extenders, reply=Whims(seed)) for _ in range(2)]
        self.both[1].engine.cycle.by_class = False
        self.placed, self.number = {}, 0

    def see(self, *objects):
        for driven in self.both:
            driven.see(*objects)

    # -- what happens ------------------------------------------------------------------------------------------------------

    def node(self):
        name = f"n{self.random.randint(0, 5)}"
        offer = {"cpu": self.random.randint(2, 4), "memory": "8Gi", "pods": 9, GPU: self.random.randint(0, 2)}
        self.see(a_node(name, {HOST: name, "disk": self.random.choice(["ssd", "hdd"])}, allocatable=offer))

    def pods(self):
        """A few replicas, so that classes and failures are met again."""
        spec = self.random.choice([{}, {}, {"nodeSelector": {"disk": "ssd"}}, {"preemptionPolicy": "Never"}])
        requests = {"cpu": str(self.random.randint(1, 3)), **({GPU: "1"} if self.random.random() < 0.3 else {})}
        priority = self.random.choice([0, 0, 5, 10])
        container = {"name": "c", "resources": {"requests": requests}}
        for _ in range(self.random.randint(1, 4)):
            self.number += 1
            self.see(a_pod(f"p{self.number}", priority=priority, containers=[container], **spec).pod)

    def remove(self):
        if self.placed:
            gone = self.placed.pop(self.random.choice(list(self.placed)))
            for driven in self.both:
                driven.gone(gone)

    def wait(self):
        for driven in self.both:
            driven.now += self.random.choice([0.5, 12, 400]) if driven is self.both[0] else self.both[0].now - driven.now

    # -- and what comes of it ---------------------------------------------------------------------------------------------

    def steps(self):
        """Let both try all that is ready, and compare what they asked, decided and want done."""
        for _ in range(60):
            decisions = [self.decision(driven) for driven in self.both]
            assert self.told(decisions[0]) == self.told(decisions[1])
            assert self.both[0].asked == self.both[1].asked
            self.carry_out()
            if decisions[0] is None:
                return

    def decision(self, driven):
        while True:
            decision = driven.attempt()
            queries = driven.outputs.take("queries")
            if decision is not None or not queries:
                return decision
            for query in queries:
                driven.answer(query)

    @staticmethod
    def told(decision):
        if decision is None:
            return None
        outcome = decision.post_filter
        preempts = outcome and (outcome.code, outcome.reasons, outcome.nominated, [pod.name for pod in outcome.victims])
        without = list(map(str, decision.done_without))
        return decision.pod.name, decision.node, decision.message, decision.rejected_by, preempts, without

    def carry_out(self):
        """Bind what was placed, and send away who has to go, in both alike."""
        done = [[self.done(driven, work) for work in driven.work()] for driven in self.both]
        assert done[0] == done[1]
        queues = [{line.pod.name: line.place for line in driven.engine.queue.pending()} for driven in self.both]
        assert queues[0] == queues[1]

    def done(self, driven, work):
        victims = [effect.victim for effect in work.effects if isinstance(effect, Evict)]
        driven.done(work)
        for victim in victims:
            driven.gone(victim.pod)
            self.placed.pop(victim.uid, None)
        if work.phase is Phase.BIND:
            pod = work.pod.pod
            bound = replace(pod, spec=replace(pod.spec, node_name=work.node))
            driven.see(bound)
            self.placed[pod.uid] = bound
        return work.phase, work.pod.name, work.node, [victim.name for victim in victims]


EVENTS = [Twins.node, Twins.pods, Twins.pods, Twins.pods, Twins.remove, Twins.wait]


def play(seed, events=14):
    twins = Twins(seed)
    for _ in range(3):
        twins.node()
    for _ in range(events):
        twins.random.choice(EVENTS)(twins)
        twins.steps()
    return twins


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_caches_change_neither_extender_calls_nor_decisions(seed):
    play(seed)


def test_a_late_extender_reply_is_ignored_with_and_without_caches():
    twins = Twins(7)
    for _ in range(3):
        twins.node()
    twins.pods()
    for driven in twins.both:
        while driven.attempt() is not None:
            pass
        for query in driven.outputs.take("queries"):
            driven.attempt(driven.now + 60)
            driven.engine.observe(Answered(query.ticket, json.dumps({}).encode()), driven.now + 60)
    twins.steps()
