"""``python -m tools.differential karpenter --seed 7 --count 1000``: new nodes and disruptions by us and by Karpenter's code.

Clusters are random (`karpenter_worlds.py`). What is compared: the plan (new claims with their pods and types, pods on nodes
that exist, pods that fit nowhere) and the sentence of each pod that is left, what becomes of each node alone and the sentence
if it stays, and the next disruption. Where Karpenter says nothing of a node, ours may say more. Karpenter takes one of equal
domains by chance: it is asked several times, and ours must be one of its answers. A world on which the two differ is shrunk and
written to ``--folder``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from moorage.laboratory.cluster_objects import read_given
from moorage.simulator.autoscalers import KINDS, Karpenter
from moorage.simulator.autoscalers.instance_types import price_list
from moorage.simulator.autoscalers.karpenter.solve import LaunchPlan
from tools.differential.karpenter_worlds import made

Document = dict[str, Any]

#: Where the smallest worlds go on which the two sides differ.
FOUND: Final = Path(__file__).resolve().parents[2] / "build" / "differential" / "karpenter"
_ASKS: Final = ("plan", "verdicts", "command")
_BATCH: Final = 50
#: Questions whose answer is a sentence.
_SENTENCES: Final = ("pod ", "why ")
#: How often Karpenter is asked: at first, once more before a world is called different, and about a smaller world.
_TRIES, _MORE_TRIES, _FEW_TRIES = 3, 60, 12
#: How many of our own choices among equal domains are looked at.
_TURNS: Final = 8


def ours(world: Document) -> dict[str, list[str]]:
    """Return our answers, each as text: of the plan one for each choice among equal domains."""
    given = read_given(world["objects"], validated=False, custom=KINDS)
    judged = Karpenter(
        given, price_list(json.dumps(world["types"]), "types"), now_s=world["now"], spot_to_spot=world["spotToSpot"]
    )
    names = {pod.metadata.uid: pod.key for pod in (*judged.cluster.pending, *judged.cluster.displaced)}
    turns = min(judged.round(0).turns, _TURNS)
    rounds = [judged.round(turn) for turn in range(turns)]
    found = {"plan": list(dict.fromkeys(_planned(one, names) for one in rounds))}
    for plan in rounds:
        for uid, text in plan.errors.items():
            found.setdefault(f"pod {names[uid]}", []).append(_sentence(text))
    for verdict in judged.verdicts():
        decision = "no-op" if verdict.decision == "keep" else verdict.decision
        if decision == "no-op":
            found[f"why {verdict.node}"] = [_sentence(verdict.why)]
        found[f"verdict {verdict.node}"] = [_text([decision, sorted(set(verdict.types))])]
    command = judged.next_command()
    if command is None or command.decision == "no-op":
        found["command"] = [_text(["no-op", [], []])]
    else:
        types = sorted(one.name for claim in command.claims for one in claim.types)
        found["command"] = [_text([command.decision, sorted(one.name for one in command.candidates), types])]
    return found


def _planned(plan: LaunchPlan, names: dict[str, str]) -> str:
    claims = sorted(
        [held.pool.name, sorted(pod.key for pod in held.pods), sorted(one.name for one in held.types)] for held in plan.claims
    )
    placed = {node: sorted(pod.key for pod in pods) for node, pods in sorted(plan.placed.items()) if pods}
    return _text([claims, placed, sorted(names[uid] for uid in plan.errors)])


#: What differs from run to run in a sentence, and what ours adds to Karpenter's.
_NUMBERED: Final = re.compile(r"hostname-placeholder-\d+|, \d+ of them for pods that are pending anyway")


def _sentence(text: str) -> str:
    """Return a sentence without the numbers of placeholders; its parts come in any order."""
    plain = _NUMBERED.sub(lambda found: "hostname-placeholder" if found[0].startswith("h") else "", " ".join(text.split()))
    return "; ".join(sorted(plain.split("; ")))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def asked(program: Path, worlds: Sequence[Document], tries: int = _TRIES) -> list[Document]:
    """Return each world with Karpenter's answers.

    Raises  CalledProcessError if it fails
    """
    text = "".join(json.dumps({**one, "asks": _ASKS, "tries": tries}) + "\n" for one in worlds)
    run = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True)  # noqa: S603  it is ours
    return [json.loads(line) for line in run.stdout.splitlines()]


def theirs(answer: Document) -> dict[str, set[str]]:
    """Return the distinct answers of Karpenter to each question, in our form. A fault is the answer to ``fault``."""
    if "fault" in answer:
        return {"fault": {answer["fault"]}}
    found: dict[str, set[str]] = {}
    for run in answer["runs"]:
        plan = run["plan"]
        claims = sorted([one["pool"], one["pods"], one["types"]] for one in plan["claims"])
        found.setdefault("plan", set()).add(_text([claims, plan["existing"], sorted(plan["errors"])]))
        for pod, problem in plan["errors"].items():
            found.setdefault(f"pod {pod}", set()).add(_sentence(problem))
        for node, told in (run.get("verdicts") or {}).items():
            text = _text([told["decision"], sorted(set(told.get("types") or ()))])
            found.setdefault(f"verdict {node}", set()).add(text)
            if why := told.get("why"):
                found.setdefault(f"why {node}", set()).update(map(_sentence, why.split(" | ")))
        told = run["command"]
        text = _text([told["decision"], sorted(told.get("removed") or ()), sorted(told.get("types") or ())])
        found.setdefault("command", set()).add(text)
    return found


def differences(world: Document, answer: Document) -> Iterator[tuple[str, str]]:
    """Yield the questions to which none of our answers is Karpenter's, with both."""
    mine, known = ours(world), theirs(answer)
    if "fault" in known:
        yield "fault", f"Karpenter's program: {min(known['fault'])}"
        return
    for question in sorted(mine.keys() | known.keys()):
        own, other = mine.get(question, ["-"]), known.get(question, {"-"})
        if question.startswith(_SENTENCES) and (question not in mine or question not in known):
            continue  # the decision differs, which is told, or Karpenter says nothing
        if not other.intersection(own):
            yield question, f"ours {own[0]}, Karpenter's {' or '.join(sorted(other)[:3])}"


def differs(program: Path, world: Document, tries: int = _MORE_TRIES) -> dict[str, str]:
    """Return the differences of a world after so many answers of Karpenter's, by question."""
    return dict(differences(world, asked(program, [world], tries)[0]))


def shrunk(world: Document, disagree: Callable[[Document], bool]) -> Document:
    """Return a smaller world on which the two still ``disagree``: fewer objects, types, and fields of pods and pools."""
    best, again = world, True
    while again:
        again = False
        for name in [one["metadata"]["name"] for one in best["objects"] if one["kind"] == "Node"]:
            smaller = {**best, "objects": [one for one in best["objects"] if name not in _nodes_of(one)]}
            if disagree(smaller):
                best, again = smaller, True
        for path in reversed(list(_paths(best))):
            smaller = deepcopy(best)
            at: Any = smaller
            for step in path[:-1]:
                at = at[step]
            del at[path[-1]]
            if _is_whole(smaller) and disagree(smaller):
                best, again = smaller, True
    return best


def _nodes_of(one: Document) -> tuple[str, ...]:
    """Return the node that an object is, or belongs to."""
    held = {"Node": one["metadata"], "NodeClaim": one.get("status", {}), "Pod": one.get("spec", {})}.get(one["kind"], {})
    return tuple(held[field] for field in ("name", "nodeName") if field in held)


def _paths(world: Document) -> Iterator[tuple[Any, ...]]:
    """Yield what can be left out; what is taken from the end leaves the paths before it as they are."""
    for at, one in enumerate(world["types"]):
        yield ("types", at)
        yield from (("types", at, "offerings", offered) for offered in range(len(one["offerings"])))
    for at, one in enumerate(world["objects"]):
        yield ("objects", at)
        if one["kind"] == "Pod":
            yield from (("objects", at, "spec", field) for field in one["spec"] if field not in {"containers", "nodeName"})
            yield from (("objects", at, "metadata", field) for field in ("annotations",) if one["metadata"].get(field))
        if one["kind"] == "NodePool":
            yield from (("objects", at, "spec", field) for field in ("weight", "limits") if field in one["spec"])
            template = one["spec"]["template"]["spec"]
            yield from (
                ("objects", at, "spec", "template", "spec", "requirements", n) for n in range(len(template["requirements"]))
            )


def _is_whole(world: Document) -> bool:
    """Return whether all that is named exists, and every type is offered."""
    held = world["objects"]
    nodes = {one["metadata"]["name"] for one in held if one["kind"] == "Node"}
    claimed = {one["status"]["nodeName"] for one in held if one["kind"] == "NodeClaim"}
    bound = {one["spec"]["nodeName"] for one in held if one["kind"] == "Pod" and "nodeName" in one["spec"]}
    pools = {one["metadata"]["name"] for one in held if one["kind"] == "NodePool"}
    used = {one["metadata"]["labels"]["karpenter.sh/nodepool"] for one in held if one["kind"] == "NodeClaim"}
    offered = bool(world["types"]) and all(one["offerings"] for one in world["types"])
    return offered and nodes == claimed and bound <= nodes and bool(pools) and used <= pools


def run(program: Path, *, seed: int, count: int, folder: Path = FOUND, shrinks: bool = True) -> Counter[str]:
    """Compare ``count`` worlds, and write the smallest ones that differ. Return how many are alike and how many differ."""
    counts: Counter[str] = Counter()
    for first in range(seed, seed + count, _BATCH):
        worlds = [made(number) for number in range(first, min(first + _BATCH, seed + count))]
        for world, answer in zip(worlds, asked(program, worlds), strict=True):
            _note(counts, theirs(answer))
            found = dict(differences(world, answer)) and differs(program, world)
            counts["different" if found else "alike"] += 1
            if not found:
                continue
            counts.update(f"different {question.split()[0]}" for question in found)
            least = world
            if shrinks:
                first_one = min(found)
                least = shrunk(world, lambda one: first_one in differs(program, one, _FEW_TRIES))  # noqa: B023
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{world['name'].replace(' ', '-')}.json"
            told = differs(program, least)
            file.write_text(json.dumps({**least, "differences": told}, indent=1))
            sys.stdout.write("".join(f"{world['name']}: {question}: {text}\n" for question, text in told.items()))
            sys.stdout.write(f"  {file}\n")
    figures = ", ".join(f"{counts[name]} {name}" for name in ("claims", "pods on nodes", "pods left", "disruptions"))
    sys.stdout.write(f"{counts['alike']} worlds alike, {counts['different']} different; {figures} in Karpenter's\n")
    return counts


def _note(counts: Counter[str], known: dict[str, set[str]]) -> None:
    if "fault" in known:
        return
    claims, placed, left = json.loads(min(known["plan"]))
    counts["claims"] += len(claims)
    counts["pods on nodes"] += sum(map(len, placed.values()))
    counts["pods left"] += len(left)
    texts = (min(told) for question, told in known.items() if question.startswith(("verdict ", "command")))
    counts["disruptions"] += sum(json.loads(text)[0] != "no-op" for text in texts)
