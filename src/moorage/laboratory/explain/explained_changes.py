"""The least changes that would place a pod, in the values of its explanation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count
from typing import Final

from msgspec.structs import asdict, replace

from moorage.api.core import Pod
from moorage.framework.changes import Change
from moorage.laboratory.amount_text import quantity_of
from moorage.laboratory.change.advice import LEFT_OUT
from moorage.laboratory.change.change_text import describe
from moorage.laboratory.change.least_change import ChangeLimits, Remedy, find_least_change
from moorage.laboratory.explain.pod_state import REPAIR
from moorage.laboratory.surroundings import Surroundings
from moorage.laboratory.trial.trials import Trials
from moorage.report.explanation import Explanation, NearestNode, NodeGroup, PodStanding, Proof
from moorage.report.explanation_values import AtomReport, ChangeReport, LeftOut
from moorage.state.pod_info import PodInfo

#: Outcomes for which changes are searched.
CHANGEABLE: Final = frozenset({"pending", "gated", "notOurs"})

_FIT: Final = "NodeResourcesFit"
_MORE: Final = "more changes that would place the pod, and cheaper ones"


def with_changes(explanation: Explanation, trials: Trials, around: Surroundings, limits: ChangeLimits) -> Explanation:
    """Return the explanation of a pending pod with the changes that would place it, and groups in the order of their costs."""
    if not limits.probes or explanation.outcome not in CHANGEABLE:
        return explanation
    budget = limits.budget.part()
    if budget.is_over():
        budget.leave(_MORE)
        return replace(explanation, proof=Proof("bounded"), stopped=budget.stopped)
    answers = find_least_change(trials, around, replace(limits, budget=budget))
    if budget.stopped is not None:
        budget.leave(_MORE)
    at = dict(zip(explanation.nodes, count(), strict=False))
    changes = tuple(_report(one, at) for one in answers.remedies)
    groups = _ranked(explanation, changes)
    helpless = not changes and not answers.is_placed and budget.stopped is None
    return replace(
        explanation,
        changes=changes,
        left_out=tuple(LeftOut(reason, LEFT_OUT[reason], count) for reason, count in answers.left_out.items()),
        no_change_helps=helpless,
        needs=_needed(explanation, around) if helpless else "",
        groups=groups,
        nearest=_nearest(explanation, groups),
        standing=_standing(explanation, changes) if budget.stopped is None else explanation.standing,
        proof=Proof(answers.proof, answers.runs, answers.considered),
        stopped=budget.stopped,
    )


def _needed(explanation: Explanation, around: Surroundings) -> str:
    """Return the node that a pod needs, in words, if its requests keep it off every node; else ""."""
    groups = explanation.groups
    if not groups or not all(any(one.plugin == _FIT for one in group.refusals) for group in groups):
        return ""
    namespace, _, name = explanation.pod.partition("/")
    pod = around.find(Pod, namespace, name)
    requests = PodInfo(pod).requests if isinstance(pod, Pod) else {}
    amounts = [(name, quantity_of(name, count)) for name, count in requests.items() if count]
    return f"a node with {' and '.join(_amount(*one) for one in amounts)}" if amounts else ""


def _amount(resource: str, quantity: str) -> str:
    return f"{quantity} of memory" if resource == "memory" else f"{quantity} {resource}"


def _standing(explanation: Explanation, changes: Collection[ChangeReport]) -> PodStanding:
    """Return the state of the pod without the conditions of nodes, unless it could go to one of them after a repair."""
    standing = explanation.standing
    if any(atom.verb in {"repair", "wait"} for one in changes for atom in one.atoms):
        return standing
    return replace(standing, causes=tuple(text for text in standing.causes if not text.endswith(REPAIR)))


def _report(remedy: Remedy, at: dict[str, int]) -> ChangeReport:
    fields = {name: value for name, value in asdict(remedy).items() if name not in {"changes", "texts"}}
    fields["nodes"] = tuple(at[name] for name in remedy.nodes if name in at)
    return ChangeReport(**fields, atoms=tuple(map(atom_of, remedy.changes)))


def atom_of(one: Change) -> AtomReport:
    """Return a change in the values of a report."""
    return AtomReport(one.owner, one.verb, one.target, describe(one), one.cost, one.path, one.old, one.new)


def _ranked(explanation: Explanation, changes: Collection[ChangeReport]) -> tuple[NodeGroup, ...]:
    """Return the groups with the cost of the cheapest answer that places the pod on one of their nodes, the cheapest first."""
    priced = []
    for place, group in enumerate(explanation.groups):
        nodes = set(group.nodes)
        cost = min((one.cost for one in changes if not nodes.isdisjoint(one.nodes)), default=None)
        priced.append((float("inf") if cost is None else cost, place, replace(group, cost=cost)))
    return tuple(group for _, _, group in sorted(priced, key=lambda one: one[:2]))


def _nearest(explanation: Explanation, groups: Sequence[NodeGroup]) -> NearestNode | None:
    nearest = explanation.nearest
    if nearest is None or not groups or groups[0].cost is None:
        return nearest
    return replace(nearest, node=groups[0].nearest, refusals=groups[0].refusals)
