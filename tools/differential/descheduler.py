"""``python -m tools.differential descheduler --seed 7 --count 1000``: one cycle by us and by the descheduler's code.

Clusters and policies are random (`descheduler_worlds.py`). What is compared is which evictions each plugin of each profile asks
the API server for, in order, which of them it refuses, and which plugins end with an error. The descheduler iterates over maps:
it plays a cycle several times, and ours must be one of the outcomes. What RemoveDuplicates and
RemovePodsViolatingTopologySpreadConstraint evict comes in any order. A world on which the two differ is shrunk and written to
``--folder``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from moorage.api.core import Node, Pod
from moorage.api.pod_requests import amount
from moorage.api.selectors import compile_label_selector
from moorage.api.workloads import PodDisruptionBudget
from moorage.errors import InputError
from moorage.simulator.descheduler.cycle import run_cycle
from moorage.simulator.descheduler.policy import policy_of
from moorage.simulator.descheduler.scene import PodReport, Scene
from tools.differential.descheduler_worlds import BALANCE, DESCHEDULE, made

Document = dict[str, Any]
#: What one cycle did: evictions by profile and plugin, and the plugins that ended with an error.
Outcome = tuple[tuple[tuple[str, str, tuple[str, ...]], ...], tuple[str, ...]]

#: Where the smallest worlds go on which the two sides differ.
FOUND: Final = Path(__file__).resolve().parents[2] / "build" / "differential" / "descheduler"
_BATCH: Final = 100
#: How often a cycle is played: at first, and once more before a world is called different.
_TRIES, _MORE_TRIES = 4, 400
#: How often a smaller world is played.
_FEW_TRIES: Final = 40
_ANY_ORDER: Final = frozenset({"RemoveDuplicates", "RemovePodsViolatingTopologySpreadConstraint"})


# -- our side ---------------------------------------------------------------------------------------------------------------


def ours(world: Document) -> Outcome | str:
    """Return what one cycle does, or why the policy is refused."""
    cluster = _Cluster(world)
    try:
        evictor, errors = run_cycle(policy_of(world["policy"], "policy"), cluster.see, cluster.ask)
    except InputError as error:
        return str(error)
    waiting: dict[str, list[tuple[str, str]]] = {}
    for one in (*evictor.evicted, *(one for one in evictor.refused if one.why == _REFUSED)):
        waiting.setdefault(one.pod.key, []).append((one.profile, one.plugin))
    asked = [(*waiting[key].pop(0), f"{key}{' refused' if key in cluster.refused else ''}") for key in cluster.asked]
    return _outcome(asked, errors)


_REFUSED: Final = "refused"


class _Cluster:
    def __init__(self, world: Document) -> None:
        held = world["objects"]
        self._world = world
        self._nodes = msgspec.convert(sorted((one for one in held if one["kind"] == "Node"), key=_name), list[Node])
        documents = sorted((one for one in held if one["kind"] == "Pod"), key=_name)
        self._pods = msgspec.convert(documents, list[Pod])
        self._reports = {
            pod.metadata.uid: msgspec.convert(one["status"], PodReport) for pod, one in zip(self._pods, documents, strict=True)
        }
        self._budgets = msgspec.convert(
            [one for one in held if one["kind"] == "PodDisruptionBudget"], list[PodDisruptionBudget]
        )
        self._claims = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"].get("storageClassName", "")
            for one in held if one["kind"] == "PersistentVolumeClaim"
        }  # fmt: skip
        self.refused = frozenset(world["refused"])
        self.asked: list[str] = []
        self._going: set[str] = set()

    def ask(self, pod: Pod) -> str:
        self.asked.append(pod.key)
        if pod.key in self.refused:
            return _REFUSED
        self._going.add(pod.key)
        return ""

    def _is_covered(self, pod: Pod) -> bool:
        return any(
            one.namespace == pod.namespace and compile_label_selector(one.spec.selector).matches(pod.metadata.labels)
            for one in self._budgets
        )

    def see(self) -> Scene:
        world = self._world
        pods = [
            pod.replace(metadata=pod.metadata.replace(deletion_timestamp=world["now"])) if pod.key in self._going else pod
            for pod in self._pods
        ]
        objects = world["objects"]
        measured = world.get("nodeUsage")
        return Scene(
            self._nodes, pods, now_s=datetime.fromisoformat(world["now"]).timestamp(),
            namespaces={one["metadata"]["name"]: one["metadata"]["labels"] for one in objects if one["kind"] == "Namespace"},
            priority_classes={one["metadata"]["name"]: one["value"] for one in objects if one["kind"] == "PriorityClass"},
            reports=self._reports, is_covered=self._is_covered,
            storage_class=lambda space, name: self._claims.get((space, name), ""),
            node_usage=None if measured is None else {node: _amounts(used) for node, used in measured.items()},
            pod_usage={key: _amounts(used[0]) for key, used in world.get("podUsage", {}).items()},
            node_share=world["shares"],
        )  # fmt: skip


def _name(one: Document) -> tuple[str, str]:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _amounts(given: Document) -> dict[str, int]:
    return {name: amount(name, quantity) for name, quantity in given.items()}


def _outcome(asked: Sequence[tuple[str, str, str]], errors: Sequence[str]) -> Outcome:
    groups = []
    for (profile, plugin), found in groupby(asked, key=lambda one: one[:2]):
        pods = [one[2] for one in found]
        groups.append((profile, plugin, tuple(sorted(pods) if plugin in _ANY_ORDER else pods)))
    failed = sorted(name for text in errors for name in re.findall(r'plugin "(\w+)" finished with error', text))
    return tuple(groups), tuple(failed)


# -- the two beside each other ----------------------------------------------------------------------------------------------


def asked(program: Path, worlds: Sequence[Document], tries: int = _TRIES) -> list[Document]:
    """Return each world with what the descheduler does with it, or why it refuses the policy.

    Raises  CalledProcessError if it fails
    """
    text = "".join(json.dumps({**one, "tries": tries}) + "\n" for one in worlds)
    run = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True)  # noqa: S603  it is ours
    return [json.loads(line) for line in run.stdout.splitlines()]


def outcomes(answer: Document) -> list[Outcome | str]:
    """Return the distinct outcomes of an answer."""
    if "fault" in answer:
        return [answer["fault"]]
    found = [
        _outcome(
            [
                (each["profile"], each["plugin"], f"{each['pod']}{' refused' if each.get('refused') else ''}")
                for each in one["evicted"] or ()
            ],
            one.get("errors") or (),
        )
        for one in answer["runs"]
    ]
    return list(dict.fromkeys(found))


def difference(world: Document, theirs: Sequence[Outcome | str]) -> str:
    """Return how our outcome differs from all of the descheduler's; "" if it is one of them, or both refuse the policy."""
    mine = ours(world)
    if mine in theirs or (isinstance(mine, str) and isinstance(theirs[0], str)):
        return ""
    return f"ours {json.dumps(mine)}, the descheduler's {' or '.join(json.dumps(one) for one in theirs[:3])}"


def differs(program: Path, world: Document, tries: int = _MORE_TRIES) -> str:
    """Return how a world differs after so many plays of it; "" if it does not."""
    return difference(world, outcomes(asked(program, [world], tries)[0]))


def shrunk(world: Document, disagree: Callable[[Document], bool]) -> Document:
    """Return a smaller world on which the two still ``disagree``: fewer plugins, pods and nodes, and fewer fields of them."""
    best, again = world, True
    while again:
        again = False
        for path in reversed(list(_paths(best))):
            smaller = deepcopy(best)
            at: Any = smaller
            for step in path[:-1]:
                at = at[step]
            del at[path[-1]]
            if disagree(smaller):
                best, again = smaller, True
    return best


def _paths(world: Document) -> Iterator[tuple[Any, ...]]:
    """Yield what can be left out; what is taken from the end leaves the paths before it as they are."""
    for at, one in enumerate(world["objects"]):
        yield ("objects", at)
        if one["kind"] in {"Pod", "Node"}:
            for part in ("metadata", "spec", "status"):
                fields = (field for field in one[part] if field not in {"name", "namespace", "uid", "nodeName", "containers"})
                yield from (("objects", at, part, field) for field in fields)
    yield from (("refused", at) for at in range(len(world["refused"])))
    yield from (("policy", field) for field in world["policy"] if field not in {"apiVersion", "kind", "profiles"})
    for at, profile in enumerate(world["policy"]["profiles"]):
        yield ("policy", "profiles", at)
        for one, config in enumerate(profile["pluginConfig"]):
            yield from (("policy", "profiles", at, "pluginConfig", one, "args", field) for field in config["args"])
        for point, given in profile["plugins"].items():
            yield from (("policy", "profiles", at, "plugins", point, "enabled", one) for one in range(len(given["enabled"])))


def run(program: Path, *, seed: int, count: int, folder: Path = FOUND, shrinks: bool = True) -> Counter[str]:
    """Compare ``count`` worlds, and write the smallest ones that differ. Return how many are alike and how many differ."""
    counts: Counter[str] = Counter()
    for first in range(seed, seed + count, _BATCH):
        worlds = [made(number) for number in range(first, min(first + _BATCH, seed + count))]
        for world, answer in zip(worlds, asked(program, worlds), strict=True):
            theirs = outcomes(answer)
            found = difference(world, theirs) and differs(program, world)
            counts["different" if found else "alike"] += 1
            if not isinstance(theirs[0], str):
                counts["evictions"] += sum(len(pods) for _, _, pods in theirs[0][0])
                counts.update(plugin for _, plugin, pods in theirs[0][0] for _ in pods)
            if not found:
                continue
            least = shrunk(world, lambda one: bool(differs(program, one, _FEW_TRIES))) if shrinks else world
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{world['name'].replace(' ', '-')}.json"
            file.write_text(json.dumps({**least, "difference": differs(program, least)}, indent=1))
            sys.stdout.write(f"{world['name']}: {differs(program, least)}\n  {file}\n")
    sys.stdout.write("".join(f"{counts[name]:6} {name}\n" for name in sorted({**DESCHEDULE, **BALANCE})))
    found = f"{counts['alike']} worlds alike, {counts['different']} different"
    sys.stdout.write(f"{found}, {counts['evictions']} evictions in the descheduler's\n")
    return counts
