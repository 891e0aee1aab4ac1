"""Why a pod was placed on its node: each plugin's contribution, the margin, and the flips, which would move it elsewhere.

All values are computed in the state of the decision. The total of a node is the sum over plugins of weight times normalised
score, so flips by weight follow from the scores alone. Flips by usage are found by changing the sums of one node, and scoring
all nodes again at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace as with_fields

from moorage.api.core import Pod
from moorage.api.quantity_amounts import shown_amount
from moorage.api.selectors import Requirement
from moorage.core.cycle.cycle import rate
from moorage.core.cycle.search import draw, ring_position
from moorage.core.engine.scheduler import Scheduler
from moorage.core.preemption.filter_input import FilterInput
from moorage.errors import InputError, PluginError
from moorage.framework.plugin_runner import MAX_SCORE, Scores, ask, normalized, scored
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile
from moorage.framework.reuse import Scope
from moorage.framework.verdicts import Skip
from moorage.laboratory.explain.verdicts import engine_view, off_its_node, verdicts_of_all
from moorage.plugins.node_affinity import preferred_terms
from moorage.report.score_values import Flip, NodeTotal, ScoreReport, ScoreShare
from moorage.state.columns import Column, IntArray
from moorage.state.view import NodeView, PodInfo, Snapshot

# -- score model -------------------------------------------------------------------------------------------------------
# The scores of one decision as a function of one node's usage, computed for each amount without scoring all nodes again.
#
# Only the raw scores of that node change; normalisation then runs over all feasible nodes. Equal raw scores are normalised
# once.


class ScoreModel:
    """The Score plugins that may read the usage of a node, with their states, and the scores of a decision."""

    def __init__(self, profile: Profile, found: PreFiltered, pod: PodInfo, snapshot: Snapshot, scores: Scores) -> None:
        self._profile = profile
        self._snapshot = snapshot
        self._scores = scores
        self._view = NodeView(snapshot, scores.rows)
        states: dict[str, Any] = {}
        for step in profile.at("preScore"):
            answer = ask(step, "preScore", pod, snapshot, self._view)
            if not isinstance(answer, Skip):
                states[step.name] = answer
        steps = [step for step in profile.at("score") if step.name in scores.raw]
        self._state_of = {one.name: states.get(one.name, found.states.get(one.name, pod)) for one in steps}
        self._steps = [step for step in steps if step.reuse.scope not in {Scope.NODE, Scope.DOMAIN}]

    def totals_by_usage(self, at: int, resource: str) -> Callable[[int], IntArray]:
        """Return a function from an amount, added to what is requested of a resource on a row, to the totals of all rows.

        ``at`` is the position of the row among the scored rows.
        """
        row = int(self._scores.rows[at])
        table = self._snapshot.table
        columns: list[Column] = [table.requested(resource)]
        columns += {"cpu": [table.nonzero_cpu], "memory": [table.nonzero_memory]}.get(resource, [])
        alone = self._snapshot.nodes.at(row)
        known: dict[tuple[int, ...], IntArray] = {}

        def totals(amount: int) -> IntArray:
            raw = self._raw(alone, columns, row, amount)
            if raw not in known:
                known[raw] = self._total(at, raw)
            return known[raw]

        return totals

    def _raw(self, alone: NodeView, columns: Sequence[Column], row: int, amount: int) -> tuple[int, ...]:
        held = [int(column.data[row]) for column in columns]
        try:
            for column, value in zip(columns, held, strict=True):
                column.data[row] = value + amount
            return tuple(int(scored(step, self._state_of[step.name], alone)[0]) for step in self._steps)
        finally:
            for column, value in zip(columns, held, strict=True):
                column.data[row] = value

    def _total(self, at: int, raw: Sequence[int]) -> IntArray:
        total = self._scores.total
        for step, value in zip(self._steps, raw, strict=True):
            if value != self._scores.raw[step.name][at]:
                changed = self._scores.raw[step.name].copy()
                changed[at] = value
                share = normalized(step, self._state_of[step.name], changed, self._view)
                total = total - self._scores.final[step.name] + share * self._profile.weights.get(step.name, 1)
        return total

    def totals_with(self, plugin: str, raw: IntArray) -> IntArray:
        """Return the totals with the raw scores of one plugin replaced."""
        step = next(one for one in self._profile.at("score") if one.name == plugin)
        share = normalized(step, self._state_of[plugin], raw, self._view)
        return self._scores.total - self._scores.final[plugin] + share * self._profile.weights.get(plugin, 1)


#: A margin of at most one in this many points of the total is a near tie.
_NEAR: Final = 100
#: How many nodes are described.
_NODES: Final = 10
#: Maximum number of steps in which usage is scanned before the exact amount is searched.
_STEPS: Final = 1024
_SCANNED: Final = ("cpu", "memory")

_Rows = npt.NDArray[np.intp]
#: Returns the node that would be chosen without the named one; None if none fits.
Rerun = Callable[[str], str | None]


@dataclass(frozen=True)
class Choice:
    """A decision with its scores, in the state of the decision. ``at`` is the winner's position among the rows.

    ``rerun`` decides again without a node; None where the state cannot be changed: then the other nodes are scored again.
    """

    profile: Profile
    pod: PodInfo
    snapshot: Snapshot
    found: PreFiltered
    scores: Scores
    at: int
    seed: int
    rerun: Rerun | None = None

    @cached_property
    def model(self) -> ScoreModel:
        return ScoreModel(self.profile, self.found, self.pod, self.snapshot, self.scores)

    @property
    def winner(self) -> int:
        return int(self.scores.rows[self.at])

    def weight(self, plugin: str) -> int:
        return self.scores.weights.get(plugin) or self.profile.weights.get(plugin, 1)

    def normalised(self, plugin: str) -> IntArray:
        share: IntArray = self.scores.final[plugin] // max(1, self.weight(plugin))
        return share

    def name(self, row: int) -> str:
        return self.snapshot.table.nodes[row].name

    def drawn(self, total: IntArray, rows: _Rows | None = None) -> int:
        """Return the row with the highest of these totals; ties are broken as in the decision."""
        rows = self.scores.rows if rows is None else rows
        return draw(self.snapshot.table, rows[total == total.max()], self.pod.uid, self.seed)


def choice_of(
    profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Mapping[str, tuple[PodInfo, ...]], node: str, seed: int,
    scores: Scores | None = None, rerun: Rerun | None = None,
) -> Choice | None:  # fmt: skip
    """Return the decision that put ``pod`` on ``node``, in the present state; None if the node does not fit now.

    ``scores`` are those of the decision, if it has any; else all feasible nodes are scored.
    """
    try:
        found, verdicts = engine_view(profile, pod, snapshot, nominated)
        if scores is None:
            feasible = np.flatnonzero(verdicts.feasible)
            scores = rate(FilterInput(profile, found, pod), snapshot, feasible) if len(feasible) else None
    except PluginError:
        return None
    at = None if scores is None else np.flatnonzero(scores.rows == snapshot.table.row_of.get(node, -1))
    if scores is None or at is None or not len(at):
        return None
    return Choice(profile, pod, snapshot, found, scores, int(at[0]), seed, rerun)


def score_report(choice: Choice, *, feasible: int, refused: int, flips: bool = True) -> ScoreReport:
    """Return the contributions, the margin and the flips. ``feasible`` and ``refused`` count all nodes."""
    total = choice.scores.total
    order = _ranked(choice)
    runner_up = int(order[1]) if len(order) > 1 else None
    margin = 0 if runner_up is None else int(total[choice.at] - total[runner_up])
    tied = [int(choice.scores.rows[at]) for at in order.tolist() if total[at] == total[choice.at]]
    return ScoreReport(
        nodes=tuple(_total(choice, at, rank + 1) for rank, at in enumerate(order[:_NODES].tolist())),
        winner=choice.winner,
        runner_up=None if runner_up is None else int(choice.scores.rows[runner_up]),
        margin=margin,
        near_tie=runner_up is not None and margin * _NEAR <= int(total[choice.at]),
        tied=tuple(tied) if len(tied) > 1 else (),
        split={}
        if runner_up is None
        else {name: int(final[choice.at] - final[runner_up]) for name, final in choice.scores.final.items()},
        flips=tuple(_flips(choice, order)) if flips and runner_up is not None else (),
        feasible=feasible,
        refused=refused,
        unscored=max(0, feasible - len(choice.scores.rows)),
    )


def _ranked(choice: Choice) -> _Rows:
    """Return positions among the rows: the winner first, then by total, then by name."""
    total = choice.scores.total
    names = [choice.name(row) for row in choice.scores.rows.tolist()]
    order = sorted(range(len(names)), key=lambda at: (at != choice.at, -int(total[at]), names[at]))
    return np.array(order, dtype=np.intp)


def _total(choice: Choice, at: int, rank: int) -> NodeTotal:
    scores = choice.scores
    shares = tuple(
        ScoreShare(name, int(raw[at]), int(choice.normalised(name)[at]), choice.weight(name), int(scores.final[name][at]))
        for name, raw in scores.raw.items()
    )
    return NodeTotal(int(scores.rows[at]), rank, int(scores.total[at]), shares)


# -- flips ----------------------------------------------------------------------------------------------------------------


def _flips(choice: Choice, order: _Rows) -> Iterator[Flip]:
    runner_up = int(order[1])
    yield from _by_usage(choice, runner_up)
    for name in choice.scores.final:
        yield from _by_weight(choice, name)
    yield from _by_label(choice, order[1:_NODES])
    yield from _without(choice, runner_up)


def _by_weight(choice: Choice, name: str) -> Iterator[Flip]:
    """Yield the flips by weight: the nearest weight in 1-100 that moves the pod, and disabling the plugin if that does."""
    share, weight = choice.normalised(name), choice.weight(name)
    ties: int | None = None
    for other in sorted((w for w in range(1, MAX_SCORE + 1) if w != weight), key=lambda w: (abs(w - weight), w)):
        total = choice.scores.total + (other - weight) * share
        if total.max() > total[choice.at]:
            to = choice.drawn(total)
            tied = f" (a tie from {ties})" if ties is not None else ""
            yield Flip("weight", f"{name} weight {other}{tied}", to, name, other, ties)
            break
        if ties is None and int((total == total.max()).sum()) > 1 and choice.scores.total[choice.at] > _second(choice):
            ties = other
    total = choice.scores.total - weight * share
    to = choice.drawn(total)
    if to != choice.winner:
        tie = " (tie)" if total.max() == total[choice.at] else ""
        yield Flip("disable", f"{name} disabled{tie}", to, name)


def _second(choice: Choice) -> int:
    others = np.delete(choice.scores.total, choice.at)
    return int(others.max()) if len(others) else 0


def _by_usage(choice: Choice, runner_up: int) -> Iterator[Flip]:
    """Yield the flips by usage: the smallest increase on the winner, and decrease on the runner-up, that move the pod."""
    model = choice.model
    rival = int(choice.scores.rows[runner_up])
    for resource in _SCANNED:
        totals = model.totals_by_usage(choice.at, resource)
        more = _least(choice, totals, resource, _room(choice, choice.winner, resource), 1)
        if more is not None:
            yield _usage(choice, f"more {resource} requested on {choice.name(choice.winner)}", resource, more)
    for resource in _SCANNED:
        held = int(choice.snapshot.table.requested(resource).data[rival])
        less = _least(choice, model.totals_by_usage(runner_up, resource), resource, held, -1)
        if less is not None:
            yield _usage(choice, f"less {resource} requested on {choice.name(rival)}", resource, less)


def _usage(choice: Choice, what: str, resource: str, found: tuple[int, IntArray]) -> Flip:
    amount, totals = found
    tie = " (tie)" if totals.max() == totals[choice.at] else ""
    return Flip("usage", f"{shown_amount(resource, amount, up=True)} {what}{tie}", choice.drawn(totals), at=amount)


def _room(choice: Choice, row: int, resource: str) -> int:
    """Return how much more of a resource can be requested on a row so that the pod still fits there."""
    table = choice.snapshot.table
    free = int(table.allocatable(resource).data[row]) - int(table.requested(resource).data[row])
    return max(0, free - choice.pod.requests.get(resource, 0))


def _least(
    choice: Choice, totals: Callable[[int], IntArray], resource: str, most: int, sign: int
) -> tuple[int, IntArray] | None:
    """Return the smallest change of a row's usage, up to ``most``, that moves the pod, and the totals after it.

    Normalised scores need not move in one direction, so amounts are tried in order: every unit, or so many steps of equal
    size, and then the units within the first step that moves the pod by halving.
    """
    unit = 1 if resource == "cpu" else 2**20

    def moves(amount: int) -> bool:
        return choice.drawn(totals(sign * amount)) != choice.winner

    before = 0
    for amount in _steps(most, unit):
        if moves(amount):
            exact = _halved(moves, before, amount, unit)
            return exact, totals(sign * exact)
        before = amount
    return None


def _steps(most: int, unit: int) -> Iterator[int]:
    units = most // unit
    count = min(units, _STEPS)
    last = 0
    for step in range(1, count + 1):
        amount = units * step // count * unit
        if amount > last:
            yield amount
        last = amount


def _halved(moves: Callable[[int], bool], low: int, high: int, unit: int) -> int:
    while high - low > unit:
        middle = (low + high) // 2 // unit * unit
        low, high = (low, middle) if moves(middle) else (middle, high)
    return high


def _by_label(choice: Choice, rivals: _Rows) -> Iterator[Flip]:
    """Yield labels for rivals that would meet one of the pod's preferred terms, and move the pod. The best rivals are first."""
    step = next((one for one in choice.profile.at("score") if one.name == "NodeAffinity"), None)
    raw = choice.scores.raw.get("NodeAffinity")
    if step is None or raw is None:
        return
    for rival, (weight, term) in product(rivals.tolist(), tuple(preferred_terms(choice.pod))):
        node = choice.snapshot.table.nodes[int(choice.scores.rows[rival])]
        asked = term.requirements[0] if len(term.requirements) == 1 and not term.fields and not term.faults else None
        if asked is None or asked.operator not in {"In", "Exists"} or asked.matches(node.labels.get(asked.key)):
            continue
        changed = raw.copy()
        changed[rival] += weight
        to = choice.drawn(choice.model.totals_with(step.name, changed))
        if to != choice.winner:
            yield Flip("label", f"label {_label(asked)} on {node.name}", to, step.name)


def _label(asked: Requirement) -> str:
    return f"{asked.key}={asked.values[0]}" if asked.operator == "In" else asked.key


def _without(choice: Choice, runner_up: int) -> Iterator[Flip]:
    """Yield the node to which the pod would go without its present node."""
    winner = choice.name(choice.winner)
    if choice.rerun is not None:
        name = choice.rerun(winner)
        to = None if name is None else choice.snapshot.table.row_of[name]
    else:
        rows = np.delete(choice.scores.rows, choice.at)
        scores = rate(FilterInput(choice.profile, choice.found, choice.pod), choice.snapshot, rows)
        to = choice.drawn(scores.total, rows)
    yield Flip("withoutNode", f"Without {winner}: {_next(choice, to, runner_up)}", to)


def _next(choice: Choice, to: int | None, runner_up: int) -> str:
    """Return the next choice's name, and that it is not the runner-up nor scored as high."""
    if to is None:
        return "no node fits"
    total = choice.scores.total
    equals = choice.scores.rows[total == total[runner_up]]
    return choice.name(to) if to in equals else f"{choice.name(to)}, which is not the runner-up"


# -- pod columns -------------------------------------------------------------------------------------------------------
# A scheduler's verdicts on one pod, and the scores of the nodes that fit, as columns over all nodes.


def verdict_columns(scheduler: Scheduler, profiles: Mapping[str, Profile], pod: Pod) -> dict[str, Any]:
    """Return the first refusal of each node: its position in ``reasons``, or -1 where the pod fits.

    Raises  InputError for a pod that no profile tries
    """
    profile, free = _profile(profiles, pod)
    with off_its_node(scheduler.cluster, pod.uid, pod.spec.node_name):
        judged = verdicts_of_all(profile, free, scheduler.snapshot, scheduler.queue.nominated)
        first, kinds = judged.kinds
        statuses = [judged.first(int(row)) for row in first]
    reasons: dict[tuple[str, str], int] = {}
    places = []
    for status in statuses:
        if status is None:
            places.append(-1)
        else:
            key = (status.plugin, "; ".join(status.reasons))
            places.append(reasons.setdefault(key, len(reasons)))
    verdicts = np.array(places, dtype=np.int64)[kinds].tolist() if places else []
    return {
        "pod": pod.key,
        "nodes": judged.names,
        "verdicts": verdicts,
        "reasons": [{"plugin": plugin, "text": text} for plugin, text in reasons],
    }


def score_columns(scheduler: Scheduler, profiles: Mapping[str, Profile], pod: Pod) -> dict[str, Any]:
    """Return the normalised scores of the nodes that fit, by plugin, with the weights.

    The nodes are in the order in which equal totals are broken: the first of the best is chosen.

    Raises  InputError for a pod that no profile tries, or whose plugins fail
    """
    (profile, free), seed = _profile(profiles, pod), scheduler.cycle.seed
    with off_its_node(scheduler.cluster, pod.uid, pod.spec.node_name):
        snapshot = scheduler.snapshot
        try:
            found, verdicts = engine_view(profile, free, snapshot, scheduler.queue.nominated)
            feasible = np.flatnonzero(verdicts.feasible)
            scores = rate(FilterInput(profile, found, free), snapshot, feasible) if len(feasible) else None
        except PluginError as error:
            raise InputError(str(error)) from None
        plugins = [] if scores is None else list(scores.final)
        weights = [] if scores is None else [scores.weights.get(one) or profile.weights.get(one, 1) for one in plugins]
        order = np.argsort(snapshot.table.name_hash.view[feasible] - np.uint64(ring_position(free.uid, seed)), kind="stable")
        names = [snapshot.table.nodes[row].name for row in feasible[order]]
    return {
        "pod": pod.key,
        "nodes": names,
        "plugins": plugins,
        "weights": weights,
        "normalised": [
            (scores.final[one] // max(1, weight))[order].tolist() for one, weight in zip(plugins, weights, strict=True)
        ] if scores is not None else [],
    }  # fmt: skip


def _profile(profiles: Mapping[str, Profile], pod: Pod) -> tuple[Profile, PodInfo]:
    """Return the profile of a pod, and the pod without its node."""
    profile = profiles.get(pod.spec.scheduler_name)
    if profile is None:
        raise InputError(f"{pod.key}: its schedulerName is {pod.spec.scheduler_name}, which no profile here has")
    return profile, PodInfo(with_fields(pod, spec=with_fields(pod.spec, node_name="")))
