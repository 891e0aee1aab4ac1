"""Clusters with pod groups, played as the real kube-scheduler played them: what differs, attempt by attempt.

A document holds a cluster, rounds of changes to it, and what the real one did: which pod's turn it was, which pods were tried
where, what became of each, who waits, who is evicted, what was written of groups, and how the queue looked afterwards. Where it
draws (among the best nodes, placements, candidates for preemption, or in which order it met pods that became ready at the same
moment), ours is made to draw the same, if that is among what ours could draw.
"""

from __future__ import annotations

import contextlib
import json
from unittest import mock

from msgspec.structs import replace

from moorage.api.core import Node, Pod, PodCondition
from moorage.api.decode import decode
from moorage.api.defaults import default_node, default_pod
from moorage.api.pod_groups import PodGroup, with_condition
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_resolved
from moorage.core.config.scheduler_document import load_any
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Done, Gone, Phase, Seen
from moorage.core.engine.pod_groups import GroupScheduler
from moorage.core.engine.scheduler import Scheduler
from moorage.core.preemption.candidates import choose
from moorage.core.queue import QueuePlace
from moorage.framework.effects import Evict
from moorage.framework.placements import run_placement_generate
from moorage.framework.verdicts import fit_error
from moorage.state.pod_info import PodInfo
from tests.core.engine.driving import Outputs
from tools.recordings.scenarios import known_kinds, recorded_release

__all__ = ["differences"]

#: Attempts that are played of a document.
MOST = 60
GONE_AT = "2026-01-01T02:00:00Z"
EMPTY = {"trials": [], "failed": {}, "bound": {}, "waiting": {}, "victims": [], "conditions": {}}


class Differs(BaseException):
    """Ours parted from the real one, and cannot go on in step with it."""


class Meant(BaseException):
    """Ours woke a pod that the real one left to wait: it says more often that a change may help.

    Or it was held back while others were sent away for its group, and that is done: there nothing wakes it then.
    """


class Led(Cycle):
    """Takes of the nodes that it might choose the one that the real one took."""

    def decide(self, profile, pod, snapshot, nominated=None, scope=None):
        given = () if scope is None else (scope,)
        wanted = self.play.next_trial(pod)
        chosen = set()
        for self.seed in range(20):
            decision = super().decide(profile, pod, snapshot, nominated, *given)
            if decision.node is None or decision.node == wanted.get("host"):
                break
            chosen.add(decision.node)
        else:  # it has a small part of the ring, or none
            scored = Cycle(always_score=True, by_class=False).decide(profile, pod, snapshot, nominated, *given)
            best = {snapshot.table.nodes[row].name for row in scored.scores.best()}
            if wanted.get("host") in best and chosen <= best:
                decision = replace(scored, node=wanted["host"])
        self.play.judge_trial(wanted, decision, chosen)
        return decision


class InOrder(GroupScheduler):
    """Pods of a group that became ready at one moment are tried in the order in which the real one tried them."""

    def gather(self, first, skip):
        pods = super().gather(first, skip)
        pods.sort(key=lambda queued: (-queued.pod.priority, queued.initial_attempt or 0.0, self.play.place_of(queued.pod)))
        return pods


def known(data, where):
    kinds = {**known_kinds(), "PodGroup": PodGroup}
    return decode(data, kinds[data["kind"]], where)


class Play:
    """One document being played."""

    def __init__(self, document):
        self.document = document
        gates = ",".join(f"{gate}={'true' if value else 'false'}" for gate, value in document["featureGates"].items())
        release = recorded_release(document)
        rules = ConfigSource(feature_gates=gates, emulate=release)
        given = document.get("config")
        loaded = load_any(json.dumps(given).encode(), document["name"], rules, release) if given else load_source(rules)
        cycle = Led()
        cycle.play = self
        self.engine = engine = Scheduler(
            cycle, loaded.gates, lambda handle: build_resolved(loaded.profiles, loaded.registry, handle).profiles
        )
        engine.pod_groups = InOrder(engine.state, cycle, engine.binding_cycle, engine.failure_handler, engine.preemption)
        engine.pod_groups.play = self
        self.outputs = Outputs(engine)
        self.now, self.version = 0.0, 0
        self.pods, self.groups, self.leaving = {}, {}, []
        self.wanted, self.trial, self.placements = EMPTY, 0, {}
        mine = ("Pod", "Node", "PodGroup")
        for data in document["objects"]:
            if data["kind"] not in mine:
                self.engine.observe(Seen(known(data, "objects")), self.now)
        for data in document["objects"]:
            if data["kind"] in mine:
                self.apply({"op": "set", "obj": data})

    # -- where the real one draws ------------------------------------------------------------------------------------

    def next_trial(self, pod):
        trials = self.wanted["trials"]
        if self.trial >= len(trials):
            raise Differs(f"{pod.key} is tried (number {self.trial}), and the recording has no further trial")
        wanted = trials[self.trial]
        if wanted["pod"] != pod.key:
            raise Differs(f"{pod.key} is tried (number {self.trial}), and there {wanted['pod']}")
        self.trial += 1
        return wanted

    def judge_trial(self, wanted, decision, chosen):
        if decision.node is not None:
            if decision.node != wanted.get("host"):
                there = wanted.get("host") or wanted.get("msg")
                raise Differs(f"{wanted['pod']} could go to {sorted(chosen)}, and there {there!r} (trial {self.trial - 1})")
        elif wanted.get("host"):
            raise Differs(f"{wanted['pod']} goes nowhere: {decision.message}, and there to {wanted['host']}")
        elif decision.error is not None or wanted.get("err"):
            if (decision.error is not None) != wanted.get("err", False):
                raise Differs(f"{wanted['pod']}: {decision.error}, and there {wanted['msg']}")
        else:
            told = fit_error(decision.verdicts, "", decision.among) if decision.verdicts is not None else decision.message
            if told != wanted["msg"]:
                raise Differs(f"{wanted['pod']} gets {told!r}, and in the recording {wanted['msg']!r}")

    def place_of(self, pod):
        order = [trial["pod"] for trial in self.wanted["trials"]]
        return order.index(pod.key) if pod.key in order else len(order)

    def in_turn(self, profile, group, snapshot, within=None):
        """Placements in the order in which they were tried there."""
        found = run_placement_generate(profile, group, snapshot, within)
        if not isinstance(found, tuple):
            return found
        self.placements = {one.name: sorted(one.nodes.names()) for one in found}
        there = [trial.get("nodes") for trial in self.wanted["trials"][self.trial :]]
        everywhere = len(self.engine.cluster.table)

        def turn(one):
            nodes = self.placements[one.name]
            nodes = None if len(nodes) == everywhere else nodes
            return there.index(nodes) if nodes in there else len(there)

        return tuple(sorted(found, key=turn))

    def best_of(self, names, *_):
        """Of equal placements the one that was taken there."""
        failed = (one.get("nominated") for one in self.wanted["failed"].values())
        tried = {trial["pod"] for trial in self.wanted["trials"]}
        waiting = [node for pod, node in self.wanted["waiting"].items() if pod in tried]
        taken = {*self.wanted["bound"].values(), *waiting, *filter(None, failed)}
        return next((name for name in names if taken <= set(self.placements[name])), min(names))

    def choose(self, candidates):
        """Of candidates that do the same harm the one whose victims went there."""
        best = choose(candidates)
        gone = set(self.wanted["victims"])
        equal = [one for one in candidates if choose([one, best]) is one]
        of_those = [one for one in equal if {pod.key for pod in one.victims.pods if not pod.terminating} <= gone]
        nominated = {one.get("nominated") for one in self.wanted["failed"].values()}
        nodes = self.engine.cluster.table.nodes
        return next((one for one in of_those if nodes[one.row].name in nominated), (of_those or [best])[0])

    # -- the world ---------------------------------------------------------------------------------------------------

    def stamped(self, obj):
        self.version += 1
        return replace(obj, metadata=replace(obj.metadata, resource_version=str(self.version)))

    def set_pod(self, pod):
        pod = self.stamped(pod)
        self.pods[PodInfo(pod).key] = pod
        self.engine.observe(Seen(pod), self.now)

    def drop_pod(self, key):
        pod = self.pods.pop(key, None)
        if pod is not None:
            self.engine.observe(Gone(pod), self.now)

    def apply(self, change):
        self.now += 0.001
        obj = known(change["obj"], self.document["name"])
        if isinstance(obj, Pod):
            self.apply_pod(change["op"], default_pod(obj))
        elif isinstance(obj, Node):
            node = default_node(self.stamped(obj))
            self.engine.observe(Gone(node) if change["op"] == "gone" else Seen(node), self.now)
        else:
            key = f"{obj.metadata.namespace or 'default'}/{obj.metadata.name}"
            if change["op"] == "gone":
                if key in self.groups:
                    self.engine.observe(Gone(self.groups.pop(key)), self.now)
            else:
                self.set_group(key, obj)

    def set_group(self, key, group):
        self.groups[key] = self.stamped(group)
        self.engine.observe(Seen(self.groups[key]), self.now)

    def apply_pod(self, op, pod):
        key = PodInfo(pod).key
        old = self.pods.get(key)
        if op == "gone":
            self.drop_pod(key)
        elif op == "dying":
            if old is not None and not old.metadata.deletion_timestamp:
                self.set_pod(replace(old, metadata=replace(old.metadata, deletion_timestamp=GONE_AT)))
        elif old is None:
            self.set_pod(pod)
        else:
            metadata = replace(pod.metadata, uid=old.metadata.uid, deletion_timestamp=old.metadata.deletion_timestamp)
            self.set_pod(
                replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=old.spec.node_name), status=old.status)
            )

    # -- what is to be done ------------------------------------------------------------------------------------------

    def carry_out(self, came):
        while work := self.outputs.take("work"):
            for one in work:
                self.now += 0.001
                self.do(one, came)
            for effect in (effect for one in work for effect in one.effects):
                if isinstance(effect, Evict):
                    self.evict(effect, came)

    def do(self, work, came):
        key = work.pod.key
        if work.phase is Phase.BIND:
            came["bound"][key] = work.node
            pod = self.pods.get(key)
            if pod is not None:
                status = replace(pod.status, nominated_node_name="")
                self.set_pod(replace(pod, spec=replace(pod.spec, node_name=work.node), status=status))
        elif work.phase in (Phase.NOMINATE, Phase.EXPECT):
            pod = self.pods.get(key)
            if pod is not None:
                self.set_pod(replace(pod, status=replace(pod.status, nominated_node_name=work.node)))
        elif work.phase is Phase.GROUP_STATUS:
            (effect,) = work.effects
            group = self.groups.get(f"{effect.group.metadata.namespace}/{effect.group.name}")
            if group is not None:
                condition = effect.condition
                said = {"status": condition.status, "reason": condition.reason, "message": condition.message}
                came["conditions"][group.key] = said
                self.set_group(group.key, with_condition(group, condition, GONE_AT))
        if work.phase.is_answered:
            self.engine.observe(Done(work.ticket), self.now)

    def evict(self, effect, came):
        key = effect.victim.key
        came["victims"].append(key)
        pod = self.pods.get(key)
        if not self.document.get("lingering"):
            self.drop_pod(key)
        elif pod is not None and not pod.metadata.deletion_timestamp:
            self.leaving.append(key)
            told = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=effect.message)
            status = replace(pod.status, conditions=(*pod.status.conditions, told))
            self.set_pod(replace(pod, metadata=replace(pod.metadata, deletion_timestamp=GONE_AT), status=status))

    # -- attempts ----------------------------------------------------------------------------------------------------

    def attempt(self, wanted):
        self.wanted, self.trial = wanted, 0
        self.now += 0.001
        came = json.loads(json.dumps(EMPTY))
        self.engine.step(self.now)
        self.engine.binding_cycle.settle_waits()
        self.carry_out(came)
        self.engine.binding_cycle.settle_waits()
        self.carry_out(came)
        for decision in (*self.outputs.take("decisions"), *self.outputs.take("revoked")):
            if decision.node is None or decision.refused_after is not None:
                came["failed"][decision.pod.key] = {
                    "code": decision.code.value, "msg": decision.message, "plugins": list(decision.rejected_by),
                    "pending": list(decision.pending_on),
                }  # fmt: skip
        came["waiting"] = {one.pod.key: one.node for one in self.engine.waiting()}
        came["victims"].sort()
        came["queue"] = self.queue()
        return came

    def queue(self):
        lines = self.engine.queue.pending()
        return {
            "active": sorted(line.pod.key for line in lines if line.place is QueuePlace.ACTIVE),
            "backoff": sorted(line.pod.key for line in lines if line.place is QueuePlace.BACKOFF),
            "parked": {
                line.pod.key: {
                    "gate": self.gate_of(line.pod),
                    "plugins": [] if line.pod.spec.scheduling_gates else list(line.plugins),
                }
                for line in lines
                if line.place in (QueuePlace.GATED, QueuePlace.UNSCHEDULABLE)
            },
            "nominated": {
                node: sorted(pod.key for pod in pods)
                for node, pods in self.engine.queue.nominated.items()
                if pods and node in self.engine.cluster.table.row_of
            },
            "told": {
                key: pod.status.nominated_node_name
                for key, pod in self.pods.items()
                if pod.status.nominated_node_name and not pod.spec.node_name
            },
        }

    def gate_of(self, pod):
        """Return the plugin that gates a pod. Of several, the recording names one at random."""
        return "SchedulingGates" if pod.spec.scheduling_gates else self.engine.queue.get(pod.uid).gated_by

    def turn(self, changes):
        for key in self.leaving:
            self.now += 0.001
            self.drop_pod(key)
        self.leaving = []
        for change in changes:
            self.apply(change)
        self.engine.binding_cycle.settle_waits()
        came = json.loads(json.dumps(EMPTY))
        self.carry_out(came)
        self.now += 12.0
        self.engine.queue.tick(self.now)
        self.outputs.take("revoked")

    def passes_over(self):
        """Pass over whose turn it is, if they are on their way out."""
        queued = self.engine.queue.pop(self.now)
        if self.engine.gates["GenericWorkload"] and queued.pod.spec.scheduling_group is not None:
            return not self.engine.pod_groups.gather(queued, self.engine.skip)
        return self.engine.skip(queued)

    @property
    def is_busy(self):
        return self.engine.queue.counts()[QueuePlace.ACTIVE] > 0


def differences(document):
    """Return what differs first, if anything, and how many attempts were the same until then."""
    play, same = Play(document), 0
    with contextlib.ExitStack() as stack:
        for name, by in (
            ("moorage.core.groups.group_cycle.run_placement_generate", play.in_turn),
            ("moorage.core.groups.group_cycle.draw_by_name", play.best_of),
            ("moorage.plugins.default_preemption.choose", play.choose),
        ):
            stack.enter_context(mock.patch(name, by))
        for at, expected in enumerate(document["expected"]["rounds"]):
            if at:
                play.turn(document["rounds"][at - 1])
            try:
                here = play.queue()
                raise_if_meant(expected["start"], here)
                for field, wanted, came in compared(expected["start"], here):
                    raise Differs(f"start {field}: {came}, and there {wanted}")
                for wanted in expected.get("attempts") or []:
                    if not wanted["trials"] and not wanted["failed"]:
                        continue  # a terminating pod was skipped: ours continues with the next
                    play_one(play, wanted)
                    same += 1
                while play.is_busy and same < MOST:
                    ready = play.queue()["active"]
                    if not play.passes_over():
                        raise Differs(f"more pods are ready: {ready}")
            except Meant:
                return "", same
            except Differs as found:
                return f"{document['name']} round {at}, attempt {same}: {found}", same
    odd = [
        fault for fault in play.outputs.take("faults") if not str(fault).endswith("not found")
    ]  # a group's condition, of no group
    return (f"{document['name']}: {odd[0]}" if odd else ""), same


def play_one(play, wanted):
    if not play.is_busy:
        raise Differs(f"no pod is ready, and in the recording {wanted['pop']}")
    came = play.attempt(wanted)
    if play.trial != len(wanted["trials"]):
        raise Differs(f"{play.trial} pods were tried, and there {len(wanted['trials'])}")
    raise_if_meant(wanted["queue"], came["queue"])
    for field in ("failed", "bound", "waiting", "victims", "conditions", "queue"):
        for what, there, here in compared(wanted[field], came[field], field):
            raise Differs(f"pop {wanted['pop']}: {what}: {here}, and there {there}")


def raise_if_meant(there, here):
    woken = [key for place in ("active", "backoff") for key in here[place] if key in there["parked"]]
    plugins = [set(there["parked"][key].get("plugins") or ()) for key in woken]
    if any({"InterPodAffinity", "PodTopologySpread"} & of for of in plugins) or {"DefaultPreemption"} in plugins:
        raise Meant


def compared(there, here, path=""):
    """Yield the differences. The texts of errors may differ."""
    if isinstance(there, dict) and isinstance(here, dict) and path != "nominated":
        is_error = (
            there.get("code") == here.get("code") == "Error" or there.get("reason") == here.get("reason") == "SchedulerError"
        )
        for key in sorted({*there, *here}):
            if (is_error and key in ("msg", "message")) or (key == "nominated" and path.startswith("failed")):
                continue
            yield from compared(there.get(key), here.get(key), f"{path}.{key}")
    elif (
        path.endswith(".plugins")
        and path.startswith(("queue.parked", ".parked"))
        and "SchedulingGates" in [*(there or ()), *(here or ())]
    ):
        return  # who else holds back a pod with gates of its own is chance there, and stays noted when they are gone
    elif path.startswith("conditions") and "SchedulerError" in str((there, here)) and (there is None or here is None):
        return  # the text of an error is random there, and is written again when it changes
    elif (there or None) != (here or None):
        yield path, there, here
