"""``python -m tools.differential kueue --seed 7 --count 1000``: random worlds of queues, admitted by us and by Kueue's code.

A world has the objects of administrators and events: workloads that are created or finish. After each event both sides run
cycles until nothing changes, and evicted workloads give their quota back at once. What is compared is what each workload holds
then, and by which rules it was evicted. A world on which the two differ is shrunk and written to ``--folder``.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from moorage.simulator.kueue import QueueAdmission, Workload, read_objects, read_workload
from moorage.simulator.kueue.settings import GATES

Document = dict[str, Any]

#: Where the smallest worlds go on which the two sides differ.
FOUND: Final = Path(__file__).resolve().parents[2] / "build" / "differential" / "kueue"
_API: Final = "kueue.x-k8s.io/v1beta2"
#: As in ``oracles/kueue``: heads of StrictFIFO queues are tried again without end.
_MOST_CYCLES: Final = 20
_MOST_ROUNDS: Final = 4
_QUIET: Final = 3
_BATCH: Final = 50
_START_S: Final = 1785578400.0


# -- worlds -----------------------------------------------------------------------------------------------------------------


def made(seed: int) -> Document:
    """Return the random world of a seed."""
    rng = random.Random(seed)  # noqa: S311  the worlds are to be the same again
    flavors = [f"flavor{number}" for number in range(rng.choice([1, 1, 2, 3]))]
    resources = rng.choice([["cpu"], ["cpu"], ["cpu", "memory"]])
    objects: list[Document] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}]
    objects += [{"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": name}} for name in flavors]
    cohorts = rng.choice([[], ["left"], ["left"], ["left", "right"]])
    for name in cohorts if len(cohorts) > 1 else ():
        spec: Document = {"parentName": "top"}
        if rng.random() < 0.4:
            spec["resourceGroups"] = _groups(rng, flavors, resources, lowest=0)
        objects.append({"apiVersion": _API, "kind": "Cohort", "metadata": {"name": name}, "spec": spec})
    queues = [f"queue{number}" for number in range(rng.randint(1, 4))]
    for name in queues:
        objects.append(_queue(rng, name, rng.choice(cohorts) if cohorts else "", flavors, resources))
        objects.append({
            "apiVersion": _API, "kind": "LocalQueue", "metadata": {"namespace": "default", "name": f"to-{name}"},
            "spec": {"clusterQueue": name},
        })  # fmt: skip
    events: list[Document] = []
    present: list[str] = []
    for number in range(rng.randint(3, 14)):
        if present and rng.random() < 0.25:
            events.append({"finish": present.pop(rng.randrange(len(present)))})
            continue
        name = f"w{number:02}"
        present.append(name)
        events.append({"create": _workload(rng, name, rng.choice(queues), resources)})
    return {"name": f"seed {seed}", "objects": objects, "fairSharing": bool(cohorts) and rng.random() < 0.35, "events": events}


def _groups(rng: random.Random, flavors: Sequence[str], resources: Sequence[str], *, lowest: int, limits: bool = False) -> Any:
    listed = []
    for flavor in flavors:
        quotas = []
        for resource in resources:
            quota: Document = {"name": resource, "nominalQuota": str(rng.randint(lowest, 6))}
            for limit in ("borrowingLimit", "lendingLimit") if limits else ():
                if rng.random() < 0.2:
                    most = 4 if limit == "borrowingLimit" else int(quota["nominalQuota"])
                    quota[limit] = str(rng.randint(0, most))
            quotas.append(quota)
        listed.append({"name": flavor, "resources": quotas})
    return [{"coveredResources": list(resources), "flavors": listed}]


def _queue(rng: random.Random, name: str, cohort: str, flavors: Sequence[str], resources: Sequence[str]) -> Document:
    reclaim = rng.choice(["Never", "LowerPriority", "Any"]) if cohort else "Never"
    borrow: Document = {"policy": "Never"}
    if reclaim != "Never" and rng.random() < 0.4:
        borrow = {"policy": "LowerPriority"}
        if rng.random() < 0.5:
            borrow["maxPriorityThreshold"] = rng.randint(0, 2)
    used = flavors if rng.random() < 0.7 else rng.sample(list(flavors), len(flavors))
    spec: Document = {
        "namespaceSelector": {},
        "queueingStrategy": rng.choice(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
        "stopPolicy": "None",
        "flavorFungibility": {
            "whenCanBorrow": rng.choice(["MayStopSearch", "TryNextFlavor"]),
            "whenCanPreempt": rng.choice(["MayStopSearch", "TryNextFlavor"]),
        },
        "preemption": {
            "reclaimWithinCohort": reclaim,
            "borrowWithinCohort": borrow,
            "withinClusterQueue": rng.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        },
        "resourceGroups": _groups(rng, used, resources, lowest=0 if cohort else 1, limits=bool(cohort)),
    }
    if cohort:
        spec["cohortName"] = cohort
        if rng.random() < 0.25:
            spec["fairSharing"] = {"weight": str(rng.choice([1, 2, 3]))}
    return {"apiVersion": _API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def _workload(rng: random.Random, name: str, queue: str, resources: Sequence[str]) -> Document:
    sets = []
    for number in range(rng.choice([1, 1, 1, 2])):
        asked = {resource: str(rng.randint(1, 3)) for resource in resources if resource == "cpu" or rng.random() < 0.7}
        count = rng.choice([1, 1, 2, 3])
        pod_set: Document = {
            "name": f"set{number}", "count": count,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "resources": {"requests": asked}}]},
            },
        }  # fmt: skip
        if count > 1 and rng.random() < 0.2:
            pod_set["minCount"] = 1
        sets.append(pod_set)
    return {
        "apiVersion": _API, "kind": "Workload", "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "spec": {"queueName": f"to-{queue}", "priority": rng.randint(0, 3), "active": True, "podSets": sets},
    }  # fmt: skip


# -- our side ---------------------------------------------------------------------------------------------------------------


class _Replay:
    def __init__(self, world: Document) -> None:
        documents = list(world["objects"])
        self.admission = QueueAdmission(read_objects(documents), fair=world["fairSharing"], gates=GATES)
        self.workloads: dict[str, Workload] = {}
        self.evictions: dict[str, list[str]] = {}
        self.now = _START_S

    def apply(self, event: Document) -> None:
        self.now += 1.0
        if "finish" in event:
            workload = self.workloads.pop(event["finish"])
            if workload.cluster_queue:
                self.admission.release(workload)
            self.admission.forget(workload)
            return
        workload = read_workload(event["create"], self.now)
        self.workloads[event["create"]["metadata"]["name"]] = workload
        self.admission.add(workload, self.now)

    def settle(self) -> None:
        for _ in range(_MOST_ROUNDS):
            self.admission.wake(self.now)
            changed, quiet = False, 0
            for _ in range(_MOST_CYCLES):
                if quiet == _QUIET:
                    break
                if self._cycle():
                    changed, quiet = True, 0
                else:
                    quiet += 1
            self.now += 1.0
            if not changed:
                return

    def _cycle(self) -> bool:
        if not self.admission.runnable:
            return False
        result = self.admission.cycle(self.now)
        for eviction in sorted(result.evicted, key=lambda one: one.workload.key):
            self.evictions.setdefault(eviction.workload.name, []).append(eviction.reason)
            self.admission.requeue_evicted(eviction.workload, self.now)
        return bool(result.evicted or result.admitted)

    def answers(self) -> list[Document]:
        found = []
        for name, one in sorted(self.workloads.items()):
            told: Document = {"name": name}
            held = [
                f"{each.name} {each.count} {' '.join(f'{key}={flavor}' for key, flavor in sorted(each.flavors.items()))}"
                for each in one.admission or ()
            ]
            if held:
                told["admitted"] = held
            if name in self.evictions:
                told["evictions"] = list(self.evictions[name])
            found.append(told)
        return found


def ours(world: Document) -> list[list[Document]]:
    """Return what becomes of each workload after each event."""
    replay, found = _Replay(world), []
    for event in world["events"]:
        replay.apply(event)
        replay.settle()
        found.append(replay.answers())
    return found


# -- the two beside each other ----------------------------------------------------------------------------------------------


def asked(program: Path, worlds: Sequence[Document]) -> list[list[list[Document]]]:
    """Return what Kueue's code does with each world.

    Raises  CalledProcessError if it fails
    """
    run = subprocess.run(  # noqa: S603  the program is ours
        [str(program)], input="".join(json.dumps(one) + "\n" for one in worlds), capture_output=True, text=True, check=True
    )
    return [json.loads(line)["answers"] for line in run.stdout.splitlines()]


def differences(world: Document, theirs: list[list[Document]]) -> Iterator[str]:
    """Yield how our answers differ from Kueue's after the first event at which they do."""
    for number, (mine, other) in enumerate(zip(ours(world), theirs, strict=True)):
        told = [{name: one[name] for name in ("name", "admitted", "evictions") if one.get(name)} for one in other or ()]
        for one, another in zip(mine, told, strict=True):
            if one != another:
                yield f"event {number}: ours {json.dumps(one)}, Kueue's {json.dumps(another)}"
        if mine != told:
            return


def shrunk(world: Document, disagree: Callable[[Document], bool]) -> Document:
    """Return a smaller world on which the two still ``disagree``: with fewer events, then fewer objects."""
    best, again = world, True
    while again:
        again = False
        for field in ("events", "objects"):
            for at in reversed(range(len(best[field]))):
                smaller = {**best, field: [*best[field][:at], *best[field][at + 1 :]]}
                if _is_whole(smaller) and disagree(smaller):
                    best, again = smaller, True
    return best


def _is_whole(world: Document) -> bool:
    """Return whether all that is named exists."""
    names = {(one["kind"], one["metadata"]["name"]) for one in world["objects"]}
    created: set[str] = set()
    for event in world["events"]:
        if "finish" in event and event["finish"] not in created:
            return False
        if "create" in event:
            created.add(event["create"]["metadata"]["name"])
            if ("LocalQueue", event["create"]["spec"]["queueName"]) not in names:
                return False
    wanted = {("Namespace", "default")}
    for one in world["objects"]:
        if one["kind"] == "LocalQueue":
            wanted.add(("ClusterQueue", one["spec"]["clusterQueue"]))
        groups = (one.get("spec") or {}).get("resourceGroups", ())
        wanted |= {("ResourceFlavor", flavor["name"]) for group in groups for flavor in group["flavors"]}
    return wanted <= names


def run(program: Path, *, seed: int, count: int, folder: Path = FOUND, shrinks: bool = True) -> Counter[str]:
    """Compare ``count`` worlds, and write the smallest ones that differ. Return how many are alike and how many differ."""
    counts: Counter[str] = Counter()
    for first in range(seed, seed + count, _BATCH):
        worlds = [made(number) for number in range(first, min(first + _BATCH, seed + count))]
        for world, theirs in zip(worlds, asked(program, worlds), strict=True):
            found = list(differences(world, theirs))
            counts["different" if found else "alike"] += 1
            counts["evictions"] += sum(len(one.get("evictions") or ()) for one in theirs[-1] or ())
            if not found:
                continue
            least = world
            if shrinks:
                least = shrunk(world, lambda one: any(differences(one, asked(program, [one])[0])))
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{world['name'].replace(' ', '-')}.json"
            file.write_text(
                json.dumps({**least, "differences": list(differences(least, asked(program, [least])[0]))}, indent=1)
            )
            sys.stdout.write(f"{world['name']}: {found[0]}\n  {file}\n")
    sys.stdout.write(
        f"{counts['alike']} worlds alike, {counts['different']} different, {counts['evictions']} evictions in Kueue's\n"
    )
    return counts
