"""Capsules: the smallest input that repeats a decision, cut out of a cluster by delta debugging.

A decision is repeated if Moorage decides on the reduced cluster what it decides on the whole one: for a pod that fits nowhere,
the same plugins give the same reasons; for a pod that fits, it goes to the same node, and the same plugins prefer that node to
the one that it is compared with. Nodes are left out with the pods on them, then other objects one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct

from moorage.api.core import Node, Object, Pod
from moorage.api.gc_pause import collector_paused
from moorage.api.kinds import KIND_OF_TYPE
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.errors import InputError
from moorage.simulator.cluster_input import DUMP_RECORD, ClusterInput
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulate import Options, prepare
from moorage.state.pod_info import PodInfo

#: Objects that are left out together.
_Group = Sequence[Object]
_NEVER: Final = frozenset[str]()


class Outcome(Struct, frozen=True, omit_defaults=True):
    """What must be repeated.

    ``node``     the chosen node, "" for none
    ``reasons``  why no node fits, without numbers of nodes
    ``plugins``  those that reject the pod, or prefer the chosen node to the other one
    ``beside``   the node that the chosen one is compared with, "" for none; ``relation``: it ties, scores lower or is refused
    """

    node: str = ""
    reasons: frozenset[str] = _NEVER
    plugins: tuple[str, ...] = ()
    beside: str = ""
    relation: str = ""

    def sentence(self) -> str:
        """Return the outcome in words."""
        if not self.node:
            return f"no node fits: {', '.join(sorted(self.reasons))}"
        if self.beside in {"", self.node}:
            return f"goes to {self.node}{'' if self.beside else ', the only node that fits'}"
        plugins = f" by {', '.join(self.plugins)}" if self.plugins else ""
        return f"goes to {self.node}; {self.beside} {self.relation}{plugins}"


@dataclass(frozen=True, slots=True)
class Capsule:
    """A reduced cluster, the pod and its outcome. ``trials``: how many decisions were made to find it."""

    objects: tuple[Object, ...]
    pod: Pod
    outcome: Outcome
    trials: int
    of_objects: int

    def documents(self) -> list[dict[str, Any]]:
        """Return the objects as plain data, the pod last."""
        kinds = [(KIND_OF_TYPE[type(obj)], obj) for obj in (*self.objects, self.pod)]
        return [{"apiVersion": kind.api_version, "kind": kind.name, **msgspec.to_builtins(obj)} for kind, obj in kinds]

    def record(self, taken_at: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record in front of the objects: a dump's, with what is repeated."""
        outcome = msgspec.to_builtins(self.outcome, order="sorted")
        head = {"apiVersion": DUMP_RECORD.api_version, "kind": DUMP_RECORD.kind, "metadata": {"name": "capsule"}}
        return {**head, "takenAt": taken_at, "capsule": {"pod": self.pod.key, "outcome": outcome, **options}}


def decide_alone(objects: Sequence[Object], pod: Pod, options: Options) -> tuple[Decision, tuple[str, ...]]:
    """Decide on one pod with these other objects, and nothing else; return the names of the nodes by row, too.

    Raises  ConfigError, InputError
    """
    simulation, _ = prepare(options)
    with collector_paused():
        simulation.load((*objects, pod))
    scheduler = simulation.scheduler
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        raise InputError(f"{pod.key}: no profile has its scheduler name, {pod.spec.scheduler_name}")
    cycle = Cycle(options.seed, always_score=True, by_class=False)
    decision = cycle.decide(profile, PodInfo(pod), scheduler.snapshot, scheduler.queue.nominated)
    return decision, tuple(node.name for node in scheduler.snapshot.table.nodes)


def outcome_of(decision: Decision, names: Sequence[str], beside: str) -> Outcome | None:
    """Return the outcome of a decision; None if a plugin failed, or ``beside`` is no node."""
    if decision.error is not None:
        return None
    if decision.node is None:
        verdicts = decision.verdicts
        return Outcome("", frozenset(verdicts.histogram() if verdicts is not None else ()), decision.rejected_by)
    if not beside:
        return Outcome(decision.node)
    if beside not in names or decision.scores is None:
        return None
    margin, plugins = decision.margin_over(names.index(beside), names.index(decision.node))
    relation = "is refused" if margin is None else "scores lower" if margin else "ties"
    return Outcome(decision.node, _NEVER, plugins if relation != "ties" else (), beside, relation)


def cut_capsule(
    cluster: ClusterInput, pod: Pod, options: Options, beside: str = "",
    on_trial: Callable[[int, int], None] = lambda made, left: None,
) -> Capsule:  # fmt: skip
    """Return the smallest capsule of a decision. ``beside``: a node to compare with; "" takes the next best.

    ``on_trial`` gets the number of decisions made, and of objects left.
    Raises  InputError if there is no decision to repeat
    """
    others = [obj for obj in objects_of(cluster) if not (isinstance(obj, Pod) and obj.metadata.uid == pod.metadata.uid)]
    search = _Search(pod, options, beside, on_trial)
    whole = search.first(others)
    placed: dict[str, list[Object]] = {obj.name: [obj] for obj in others if isinstance(obj, Node)}
    rest: list[_Group] = []
    for obj in others:
        if isinstance(obj, Pod) and obj.spec.node_name in placed:
            placed[obj.spec.node_name].append(obj)
        elif not isinstance(obj, Node):
            rest.append((obj,))
    rest = search.reduced(rest, [*placed.values()])
    kept = search.reduced([*placed.values()], rest)
    nodes = [group[:1] for group in kept]
    pods = search.reduced([(obj,) for group in kept for obj in group[1:]], [*rest, *nodes])
    rest = search.reduced(rest, [*nodes, *pods])
    objects = [obj for group in (*rest, *nodes, *pods) for obj in group]
    if not search.repeats(objects):
        raise InputError("the reduced cluster does not repeat the decision; this is a fault of Moorage, please report it")
    return Capsule((*objects,), pod, whole, search.trials, len(others))


class _Search:
    """Tries reduced clusters."""

    def __init__(self, pod: Pod, options: Options, beside: str, on_trial: Callable[[int, int], None]) -> None:
        self._pod, self._options, self._beside, self._on_trial = pod, options, beside, on_trial
        self._wanted: Outcome | None = None
        self.trials = 0

    def first(self, objects: Sequence[Object]) -> Outcome:
        """Decide on the whole cluster, and return what is to be repeated.

        Raises  InputError
        """
        decision, names = decide_alone(objects, self._pod, self._options)
        if decision.node is not None and not self._beside:
            self._beside = _next_best(decision, names)
        if self._beside == decision.node:
            raise InputError(f"{self._pod.key} goes to {self._beside} itself; name another node to compare with")
        if self._beside and self._beside not in names:
            raise InputError(f"{self._beside}: no node of this name at that moment")
        self._wanted = outcome_of(decision, names, self._beside)
        if self._wanted is None:
            raise InputError(f"{self._pod.key}: there is no decision to repeat: {decision.message}")
        return self._wanted

    def repeats(self, objects: Sequence[Object]) -> bool:
        """Return whether the decision on these objects is the wanted one."""
        self.trials += 1
        self._on_trial(self.trials, len(objects))
        decision, names = decide_alone(objects, self._pod, self._options)
        return outcome_of(decision, names, self._beside) == self._wanted

    def reduced(self, groups: list[_Group], always: Sequence[_Group]) -> list[_Group]:
        """Leave out as many groups as possible: first all, then ever smaller shares, as delta debugging does."""
        size = len(groups)
        while groups and size:
            start, left_out = 0, False
            while start < len(groups):
                fewer = [*groups[:start], *groups[start + size :]]
                if self.repeats([obj for group in (*always, *fewer) for obj in group]):
                    groups, left_out = fewer, True
                else:
                    start += size
            size = size // 2 if size > 1 or not left_out else 1
        return groups


def _next_best(decision: Decision, names: Sequence[str]) -> str:
    """Return the node with the next highest score; "" if no other node fits."""
    scores = decision.scores
    if scores is None or len(scores.rows) < 2:
        return ""
    order = np.argsort(-scores.total, kind="stable")
    return next(names[int(scores.rows[at])] for at in order.tolist() if names[int(scores.rows[at])] != decision.node)
