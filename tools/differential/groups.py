"""Pod groups and composite groups: kube-scheduler's whole cycle and ours make an attempt with each, and write the same.

Compared are the pods that are bound and to which nodes, the texts and nominations of the others, victims and the
conditions of groups. Where kube-scheduler draws, it is asked again, and ours takes the node that it took if that is as
good: they agree if one of its answers is ours. Of several placements it tells of the one that it tries first, which is
chance: texts are not compared then. Of what is written only the conditions of groups come back to a scheduler, so evicted
pods stay. Evictions are not asynchronous, as in the program.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.api.decode import decode
from moorage.api.defaults import default_node, default_pod
from moorage.api.meta import Object
from moorage.api.pod_groups import CompositePodGroup, PodGroup, with_condition
from moorage.api.releases import find_release
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_resolved
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.core.engine.facts import Done, Phase, Seen, Work
from moorage.core.engine.outbox import Decided, Revoked
from moorage.core.engine.scheduler import Scheduler
from moorage.core.preemption.what_if import Nominated
from moorage.core.queue import QueuePlace
from moorage.errors import MoorageError
from moorage.framework.effects import Evict
from moorage.framework.profile import Profile
from moorage.state.view import PodInfo, Snapshot
from tools.differential.bred_clusters import OF_GROUPS
from tools.differential.oracle import record
from tools.differential.shapes import HOST, RACK, ZONE, cluster_of
from tools.recordings.scenarios import known_kinds, recorded_release

Document = dict[str, Any]

MODE: Final = "groups"
#: How often each side is asked.
AGAIN: Final = 8
MOST_ATTEMPTS: Final = 200
#: How often a tie is drawn until it falls as there.
_DRAWS: Final = 30
#: Gates that the program closes.
SYNCHRONOUS: Final = MappingProxyType({"SchedulerAsyncPreemption": False, "SchedulerAsyncAPICalls": False})
#: The releases whose attempts the program can make, and the version of groups that each reads.
VERSIONS: Final[Mapping[str, str]] = {"1.36": "v1alpha2", "1.37": "v1beta1"}


def are_in(release: str) -> bool:
    """Return whether groups of a release are compared unasked. Those of 1.36, an alpha version, only if they are named."""
    found = find_release(release)
    return found is not None and found.series == "1.37"


def clusters_of_groups(seed: int, release: str) -> Document:
    """Return a cluster of racks with one to three groups, in 1.37 also composite ones."""
    found = find_release(release)
    assert found is not None
    rng = random.Random(f"groups {release} {seed}")  # noqa: S311  draws no secrets
    made = cluster_of("racks", seed, release)
    objects = [one for one in made["objects"] if one["kind"] != "Pod" or one["spec"].get("nodeName")]
    gates = {gate: True for gate in OF_GROUPS[:-1] if gate in found.gates and not found.gates[gate].locked}
    composite = "CompositePodGroup" in found.gates and rng.random() < 0.5
    if composite:
        gates["CompositePodGroup"] = True
    elif rng.random() < 0.2:
        gates["TopologyAwareWorkloadScheduling"] = False
    for at, one in enumerate(one for one in objects if one["kind"] == "Pod"):
        one["spec"]["priority"] = rng.choice((0, 0, 5))
        one["status"]["startTime"] = f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"
    for at, one in enumerate(one for one in objects if one["kind"] == "Node"):
        amounts = one["status"]["allocatable"]
        amounts |= {
            "cpu": f"{rng.choice((2, 4, 8)) * 1000 + 137 * at}m",
            "memory": f"{rng.choice((4, 8, 16)) * 1024 + 61 * at}Mi",
        }
    version = VERSIONS.get(found.series, "v1beta1")
    parents = _parents(rng) if composite else []
    for at in range(rng.randint(1, 3)):
        objects += _group(rng, at, version, [one["metadata"]["name"] for one in parents])
    return {
        **made,
        "name": f"groups-{seed}",
        "family": "groups",
        "mode": MODE,
        "objects": objects + parents,
        "featureGates": gates,
    }


def _policy(rng: random.Random, field: str, most: int) -> Document:
    return {"gang": {field: rng.randint(1, most)}} if rng.random() < 0.75 else {"basic": {}}


def _constraints(rng: random.Random) -> Document:
    if rng.random() < 0.5:
        return {}
    return {"schedulingConstraints": {"topology": [{"key": rng.choice((ZONE, RACK, HOST))}]}}


def _group(rng: random.Random, at: int, version: str, parents: list[str]) -> list[Document]:
    name, size, priority = f"g{at}", rng.randint(1, 5), rng.choice((0, 3, 10))
    spec: Document = {"schedulingPolicy": _policy(rng, "minCount", size + 1), "priority": priority, **_constraints(rng)}
    if rng.random() < 0.4:
        one = rng.random() < 0.5
        spec["disruptionMode"] = ("PodGroup" if one else "Pod") if version == "v1alpha2" else {"all" if one else "single": {}}
    if parents and rng.random() < 0.8:
        spec["parentCompositePodGroupName"] = rng.choice(parents)
        spec["priority"] = priority = 3
    made = [_thing(f"scheduling.k8s.io/{version}", "PodGroup", name, spec=spec)]
    alike = rng.random() < 0.6
    for number in range(size):
        amounts = {"cpu": "1" if alike else rng.choice(("250m", "1", "2", "3")), "memory": rng.choice(("256Mi", "1Gi"))}
        pod: Document = {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": amounts}}],
            "priority": priority,
            "schedulingGroup": {"podGroupName": name},
        }
        if rng.random() < 0.15:
            pod["nodeSelector"] = {ZONE: rng.choice(("z0", "z1"))}
        if rng.random() < 0.2:
            pod["tolerations"] = [{"key": "held", "operator": "Exists"}]
        made.append(_thing("v1", "Pod", f"{name}-{number}", spec=pod, status={}))
        made[-1]["metadata"] |= {"labels": {"app": "job"}, "creationTimestamp": f"2026-01-01T01:{at:02}:{number:02}Z"}
    return made


def _parents(rng: random.Random) -> list[Document]:
    made = []
    for at in range(rng.randint(1, 2)):
        spec: Document = {"schedulingPolicy": _policy(rng, "minGroupCount", 2), "priority": 3, **_constraints(rng)}
        if at and rng.random() < 0.5:
            spec["parentCompositePodGroupName"] = "c0"
        made.append(_thing("scheduling.k8s.io/v1alpha3", "CompositePodGroup", f"c{at}", spec=spec))
    return made


def _thing(api_version: str, kind: str, name: str, **more: Any) -> Document:
    metadata = {"name": name, "namespace": "default", "uid": f"{kind.lower()}-{name}", "generation": 1}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


@cache
def _kinds() -> Mapping[str, type[Object]]:
    return {**known_kinds(), "PodGroup": PodGroup, "CompositePodGroup": CompositePodGroup}


class Guided(Cycle):
    """Takes of the nodes that are equally good the one that kube-scheduler took."""

    taken: Mapping[str, str] = MappingProxyType({})

    def decide(
        self,
        profile: Profile,
        pod: PodInfo,
        snapshot: Snapshot,
        nominated: Nominated | None = None,
        scope: SearchScope = EVERYWHERE,
    ) -> Decision:
        first = super().decide(profile, pod, snapshot, nominated, scope)
        wanted, drawn = self.taken.get(pod.key), self.seed
        if first.node is None or wanted in {None, first.node}:
            return first
        for seed in range(_DRAWS):
            self.seed = seed
            decision = super().decide(profile, pod, snapshot, nominated, scope)
            if decision.node == wanted:
                self.seed = drawn
                return decision
        self.seed = drawn
        scores = Cycle(always_score=True, by_class=False).decide(profile, pod, snapshot, nominated, scope).scores
        best = () if scores is None else {snapshot.table.nodes[row].name for row in scores.best()}
        return replace(first, node=wanted) if wanted in best else first


def played(document: Mapping[str, Any], there: Mapping[str, Any] | None = None, seed: int = 0) -> Document:
    """Return what our scheduler writes of a cluster, in the form of the program's answer.

    ``there``: the program's answer, whose nodes are taken where others are as good; ``seed``: another one draws otherwise
    """
    release = recorded_release(document)
    gates = ",".join(f"{gate}={value}" for gate, value in {**SYNCHRONOUS, **document.get("featureGates", {})}.items())
    loaded = load_source(ConfigSource(feature_gates=gates, emulate=release))
    cycle = Guided(seed=seed)
    cycle.taken = {**there["nominated"], **there["bound"]} if there is not None else {}
    engine = Scheduler(cycle, loaded.gates, lambda handle: build_resolved(loaded.profiles, loaded.registry, handle).profiles)
    now = 0.0
    for data in sorted(document["objects"], key=_as_listed):
        now += 0.001
        engine.observe(Seen(_known(data)), now)
    came: Document = {"bound": {}, "failed": {}, "nominated": {}, "groups": {}, "victims": set()}
    for _ in range(MOST_ATTEMPTS):
        if not engine.queue.counts()[QueuePlace.ACTIVE]:
            break
        now += 0.001
        engine.step(now)
        _carry_out(engine, came, now)
    return {**came, "victims": sorted(came["victims"])}


_ORDER: Final = {"Node": 0, "CompositePodGroup": 1, "PodGroup": 2, "Pod": 3}


def _as_listed(data: Document) -> tuple[int, str, str]:
    return _ORDER.get(data["kind"], 1), data["metadata"].get("namespace", ""), data["metadata"]["name"]


def _known(data: Document) -> Object:
    found = decode(
        {**data, "metadata": {**data["metadata"], "resourceVersion": "1"}}, _kinds()[data["kind"]], data["metadata"]["name"]
    )
    return default_pod(found) if isinstance(found, Pod) else default_node(found) if isinstance(found, Node) else found


def _carry_out(engine: Scheduler, came: Document, now: float) -> None:
    engine.binding_cycle.settle_waits()
    while outputs := list(engine.take()):
        for output in outputs:
            if isinstance(output, (Decided, Revoked)):
                decision = output.decision
                if decision.node is None or decision.refused_after is not None:
                    came["failed"][decision.pod.key] = decision.message
            elif isinstance(output, Work):
                _do(engine, output, came, now)
        engine.binding_cycle.settle_waits()


def _do(engine: Scheduler, work: Work, came: Document, now: float) -> None:
    for effect in work.effects:
        if isinstance(effect, Evict):
            came["victims"].add(effect.victim.key)
    if work.phase is Phase.BIND:
        came["bound"][work.pod.key] = work.node
    elif work.phase in (Phase.NOMINATE, Phase.EXPECT) and work.node:
        came["nominated"][work.pod.key] = work.node
    elif work.phase is Phase.GROUP_STATUS:
        for effect in work.effects:
            group, condition = getattr(effect, "group"), getattr(effect, "condition")  # noqa: B009
            resource = "compositepodgroups" if isinstance(group, CompositePodGroup) else "podgroups"
            told = {"status": condition.status, "reason": condition.reason, "message": condition.message}
            came["groups"][f"{resource} {group.metadata.namespace}/{group.metadata.name} {condition.type}"] = told
            engine.observe(Seen(with_condition(group, condition, None)), now)
    if work.phase.is_answered:
        engine.observe(Done(work.ticket), now)


def differences(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return what differs between two answers, a line for each pod, group or victim."""
    found = []
    if any(map(_CHOICE.search, _texts(wanted))):
        wanted, given = _without_texts(wanted), _without_texts(given)
    for part in ("bound", "failed", "nominated", "groups"):
        for key in sorted({*wanted[part], *given[part]}):
            there, here = wanted[part].get(key), given[part].get(key)
            if part == "nominated" and key in wanted["bound"]:
                continue  # whether a pod is bound before its nomination is written is chance
            if there != here:
                found.append(f"{key}: {part}")
    if list(wanted["victims"]) != list(given["victims"]):
        found.append("victims: names")
    return found


#: kube-scheduler tells how many placements a group had; here more than one.
_CHOICE: Final = re.compile(r"0/(?!1 )\d+ placements are available")


def _texts(answer: Mapping[str, Any]) -> Iterator[str]:
    yield from answer["failed"].values()
    yield from (told["message"] for told in answer["groups"].values())


def _without_texts(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        **answer,
        "failed": dict.fromkeys(answer["failed"], ""),
        "groups": {key: (told["status"], told["reason"]) for key, told in answer["groups"].items()},
    }


def settled(program: Path, scenario: Document, expected: Mapping[str, Any]) -> list[str]:
    """Return how the nearest two answers differ; nothing if one answer of kube-scheduler is one of ours."""
    if "played" not in expected:
        return []
    wanted: list[Mapping[str, Any]] = [expected["played"]]
    try:
        nearest = differences(wanted[0], played(scenario, wanted[0]))
        for seed in range(1, AGAIN + 1):
            if not nearest:
                break
            asked = record(program, [scenario] * 2)
            wanted += [one["played"] for one in asked if "played" in one and one["played"] not in wanted]
            found = [differences(there, played(scenario, there, seed)) for there in wanted]
            nearest = min([nearest, *found], key=len)
    except MoorageError as error:
        return [f"refused: {error}"]
    return nearest
