"""A lower bound of the cost of nodes, which holds for any scheduler.

The program counts, for each offer, the nodes to buy and the pods of each shape that they take together. It sums the room of
nodes, so it allows more than any real packing: its optimum is a lower bound. Without a solver, the bound is the largest of
those for single resources.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Node, Object, Pod
from moorage.framework.verdicts import Code
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.capacity.capacity_bound import FIT, room_for
from moorage.laboratory.explain.verdicts import EveryVerdict, free_amount, verdicts_now
from moorage.laboratory.plan.node_types import Offer, TypeLimit, add_nodes
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.simulator.replacements import replacement
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

# -- linear programs ---------------------------------------------------------------------------------------------------
# Linear and integer programs, solved by HiGHS if it is installed (the extra ``plan``).

ENDLESS: Final = float("inf")


@cache
def _highs() -> Any:
    """Return the module ``highspy``; None if it is not installed."""
    try:
        return importlib.import_module("highspy")
    except ImportError:
        return None


def has_solver() -> bool:
    """Return True if programs can be solved."""
    return _highs() is not None


@dataclass(frozen=True, slots=True)
class Solution:
    """The best values found.

    ``cost``    their cost
    ``bound``   no values cost less
    ``duals``   by row; for linear programs only
    ``proven``  whether the values are optimal
    """

    values: tuple[float, ...]
    cost: float
    bound: float
    duals: tuple[float, ...] = ()
    proven: bool = True


@dataclass
class LinearProgram:
    """Minimise cost over columns from 0 on, subject to rows. Add columns first."""

    costs: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[tuple[float, float, Mapping[int, float]]] = field(default_factory=list)

    def column(self, cost: float = 0.0, most: float = ENDLESS, *, whole: bool = False) -> int:
        """Add a column with values from 0 to ``most`` and return its number."""
        self.costs.append(cost)
        self.most.append(most)
        self.whole.append(whole)
        return len(self.costs) - 1

    def row(self, entries: Mapping[int, float], *, least: float = -ENDLESS, most: float = ENDLESS) -> int:
        """Add a row and return its number."""
        self.rows.append((least, most, entries))
        return len(self.rows) - 1

    def solve(self, budget: TimeBudget, *, relaxed: bool = False) -> Solution | None:
        """Return the best solution; None if there is none, or none was found within the budget.

        ``relaxed``: whole columns may have fractions.
        """
        highs = _highs()
        solver = highs.Highs()
        for name, value in (
            ("output_flag", False), ("threads", 1), ("random_seed", 1), ("time_limit", max(0.1, budget.left_s)),
            ("mip_rel_gap", 1e-9), ("mip_abs_gap", 1e-9),
        ):  # fmt: skip
            solver.setOptionValue(name, value)
        solver.passModel(self._model(highs, relaxed=relaxed))
        solver.run()
        if solver.getModelStatus() == highs.HighsModelStatus.kTimeLimit:
            budget.note_spent()
        info = solver.getInfo()
        if info.primal_solution_status != 2:  # feasible
            return None
        solution = solver.getSolution()
        integer = any(self.whole) and not relaxed
        bound = float(info.mip_dual_bound) if integer else float(info.objective_function_value)
        proven = solver.getModelStatus() == highs.HighsModelStatus.kOptimal
        if not integer and not proven:
            bound = 0.0
        duals = () if integer else tuple(solution.row_dual)
        return Solution(tuple(solution.col_value), float(info.objective_function_value), bound, duals, proven)

    def _model(self, highs: Any, *, relaxed: bool) -> Any:
        model = highs.HighsLp()
        model.num_col_, model.num_row_ = len(self.costs), len(self.rows)
        model.col_cost_ = np.array(self.costs, dtype=float)
        model.col_lower_ = np.zeros(len(self.costs))
        model.col_upper_ = np.array(self.most, dtype=float)
        model.row_lower_ = np.array([least for least, _, _ in self.rows], dtype=float)
        model.row_upper_ = np.array([most for _, most, _ in self.rows], dtype=float)
        counts = [len(entries) for _, _, entries in self.rows]
        matrix = model.a_matrix_
        matrix.format_ = highs.MatrixFormat.kRowwise
        matrix.start_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        matrix.index_ = np.array([at for _, _, entries in self.rows for at in entries], dtype=np.int32)
        matrix.value_ = np.array([value for _, _, entries in self.rows for value in entries.values()], dtype=float)
        if not relaxed and any(self.whole):
            kinds = highs.HighsVarType
            model.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in self.whole]
        return model


@dataclass(frozen=True, slots=True)
class CostBound:
    """``cost`` is None if no number of nodes within the limits of the types is enough.

    ``kind``    ``integer``, ``linear`` or ``resource``: which program gave it
    ``counts``  the nodes by offer of the program's best solution; not a packing
    """

    cost: float | None
    kind: str
    counts: tuple[int, ...] = ()


def cost_bound(problem: PlanProblem, prices: Sequence[float], budget: TimeBudget) -> CostBound:
    """Return the bound for prices by offer."""
    if not has_solver():
        return CostBound(_resource_bound(problem, prices), "resource")
    program, nodes = _program(problem, prices)
    relaxed = program.solve(budget, relaxed=True)
    if relaxed is None:
        return CostBound(None, "linear")
    whole = program.solve(budget)
    if whole is None:
        return CostBound(relaxed.bound, "linear")
    counts = tuple(round(whole.values[column]) for column in nodes)
    cost = max(relaxed.bound, whole.bound)
    return CostBound(round(cost, 9), "integer" if whole.proven else "linear", counts)


def _program(problem: PlanProblem, prices: Sequence[float]) -> tuple[LinearProgram, list[int]]:
    program = LinearProgram()
    nodes = [program.column(price, whole=True) for price in prices]
    placed: list[dict[int, float]] = [{} for _ in problem.shapes]
    for o in range(len(problem.offers)):
        _add_room(program, problem, placed, problem.fits[o], problem.room[o], nodes[o])
    for name in problem.resources:  # all requests that do not fit into really free room: evicted pods need room as well
        if (need := _lacking(problem, name)) > 0:
            rooms = {nodes[o]: room.get(name, 0) / need for o, room in enumerate(problem.room) if room.get(name, 0) > 0}
            program.row(rooms, least=1.0)
    add_limits(program, problem, list(enumerate(nodes)))
    add_existing_nodes(program, problem, placed)
    for s, shape in enumerate(problem.shapes):
        program.row(placed[s], least=float(shape.count))
    return program, nodes


def _lacking(problem: PlanProblem, name: str) -> int:
    """Return how much of a resource the existing nodes lack."""
    need = sum(shape.needs.get(name, 0) * shape.count for shape in problem.shapes)
    return need - problem.spare.get(name, 0)


def add_limits(program: LinearProgram, problem: PlanProblem, columns: Sequence[tuple[int, int]]) -> list[int]:
    """Add a row for each limit, over columns that stand for nodes of offers; return the rows."""
    weights = [[limit.weights.get(offer.type.name, 0.0) for offer in problem.offers] for limit in problem.limits]
    return [
        program.row({column: of[o] / max(limit.most, 1.0) for o, column in columns if of[o]}, most=min(limit.most, 1.0))
        for limit, of in zip(problem.limits, weights, strict=True)
    ]


def add_existing_nodes(program: LinearProgram, problem: PlanProblem, placed: list[dict[int, float]]) -> None:
    """Add columns and rows for the pods of each shape that existing nodes can take."""
    for held in problem.held:
        _add_room(program, problem, placed, held.fits, held.free, nodes=held.nodes)


def _add_room(
    program: LinearProgram, problem: PlanProblem, placed: list[dict[int, float]], fits: Sequence[bool],
    room: Mapping[str, int], bought: int | None = None, nodes: int = 0,
) -> None:  # fmt: skip
    """Add a column for the pods of each shape that fits, and rows for their room: of ``nodes``, or of each node ``bought``."""

    def limited(entries: Mapping[int, float], amount: float) -> None:
        if bought is None:
            program.row(entries, most=amount)
        else:
            program.row({**entries, bought: -amount}, most=0.0)

    pods = {s: program.column(whole=True) for s, does in enumerate(fits) if does}
    for s, column in pods.items():
        placed[s][column] = 1.0
        if problem.shapes[s].alone:
            limited({column: 1.0}, 1.0 if bought is not None else float(nodes))
    for name in problem.resources:
        used = {column: float(problem.shapes[s].needs.get(name, 0)) for s, column in pods.items()}
        scale = max([room.get(name, 0), *used.values(), 1])
        entries = {column: need / scale for column, need in used.items() if need}
        if entries:
            limited(entries, room.get(name, 0) / scale)


def _resource_bound(problem: PlanProblem, prices: Sequence[float]) -> float:
    """Return the largest cost that any single resource requires, counting shapes that no existing node takes as well."""
    best = 0.0
    for name in problem.resources:
        need = _lacking(problem, name)
        rates = [price / room[name] for price, room in zip(prices, problem.room, strict=True) if room.get(name, 0) > 0]
        if need > 0 and rates:
            best = max(best, need * min(rates))
    least = least_count(problem)
    return max(best, least * min(prices, default=0.0))


def least_count(problem: PlanProblem) -> int:
    """Return a number of nodes below which no set is enough: by the largest room of each resource."""
    least = 0
    for name in problem.resources:
        need = _lacking(problem, name)
        most = max((room.get(name, 0) for room in problem.room), default=0)
        if need > 0 and most > 0:
            least = max(least, math.ceil(need / most))
    for s, shape in enumerate(problem.shapes):
        if shape.alone:
            least = max(least, shape.count - sum(one.nodes for one in problem.held if one.fits[s]))
    return least


# -- plan problem ------------------------------------------------------------------------------------------------------
# The pods to place and the nodes that could take them, as the numbers from which bounds and packings are computed.
#
# Pods of one shape need the same and fit on the same nodes. A type of node with several zones is one offer for each set of
# zones where the same shapes fit. Rules that count pods (spreading, affinity between pods) are left out: without them more
# pods fit, so bounds stay valid, and the engine judges the result.

#: Plugins whose verdicts depend on where other pods are.
COUNTING: Final = frozenset(["PodTopologySpread", "InterPodAffinity", ""])


@dataclass(frozen=True, slots=True)
class PlanShape:
    """Pods with equal needs. ``alone``: a node takes at most one of them."""

    pods: tuple[Pod, ...]
    needs: Mapping[str, int]
    alone: bool = False

    @property
    def count(self) -> int:
        return len(self.pods)


@dataclass(frozen=True, slots=True)
class Held:
    """Existing nodes that accept the same shapes: their number, and the sum of their free amounts."""

    nodes: int
    free: Mapping[str, int]
    fits: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a shape fits on no node of a type: plugin and reason."""

    shape: int
    offer: str
    plugin: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """The shapes to place, and the offers and existing nodes that could take them.

    ``room[o]``     the amounts for pods on an empty node of offer o
    ``fits[o][s]``  whether shape s fits on such a node
    ``held``        the existing nodes. If pods may evict others, the requests of these count as free.
    ``spare``       the really free amounts on all existing nodes, by resource
    ``limits``      of the offers' types
    """

    shapes: tuple[PlanShape, ...]
    offers: tuple[Offer, ...]
    room: tuple[Mapping[str, int], ...]
    fits: tuple[tuple[bool, ...], ...]
    held: tuple[Held, ...]
    misfits: tuple[Misfit, ...] = ()
    spare: Mapping[str, int] = field(default_factory=dict)
    limits: tuple[TypeLimit, ...] = ()

    def counted(self, limit: TypeLimit, counts: Sequence[int]) -> float:
        """Return what nodes of these numbers by offer come to for a limit."""
        return sum(limit.weights.get(offer.type.name, 0.0) * n for offer, n in zip(self.offers, counts, strict=True))

    def reached(self, counts: Sequence[int], o: int) -> str:
        """Return the text of the first limit that one more node of an offer would exceed; "" if there is none."""
        for limit in self.limits:
            weight = limit.weights.get(self.offers[o].type.name, 0.0)
            if weight and self.counted(limit, counts) + weight > limit.most:
                return limit.text
        return ""

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for shape in self.shapes for name in shape.needs))

    @property
    def impossible(self) -> list[int]:
        """The shapes that fit on no offer and on no existing node."""
        return [
            s for s in range(len(self.shapes))
            if not any(row[s] for row in self.fits) and not any(held.fits[s] for held in self.held)
        ]  # fmt: skip


def state_problem(
    cluster: AskedCluster, pods: Sequence[Pod], offers: Iterable[Offer], policies: Sequence[Object],
    limits: tuple[TypeLimit, ...] = (),
) -> PlanProblem:  # fmt: skip
    """Return the problem of placing pending pods of a cluster, with nodes of these offers."""
    probes = [(one, zone, one.node(at)) for one in offers for at, zone in enumerate(one.zones or ("",))]
    with cluster.transaction():
        simulation = cluster.simulation
        old = len(simulation.scheduler.snapshot.table)
        taken = {node.name for node in simulation.scheduler.snapshot.table.nodes}
        fresh = [_renamed(node, taken) for _, _, node in probes]
        add_nodes(simulation, fresh, policies)
        table = simulation.scheduler.snapshot.table
        rows = [table.row_of[node.name] for node in fresh]
        groups = _groups(pods)
        judged = [verdicts_now(simulation.scheduler, members[0]) for members in groups]
        shapes = tuple(_shape(members, one) for members, one in zip(groups, judged, strict=True))
        names = tuple(dict.fromkeys(name for shape in shapes for name in shape.needs))
        opens = [_open(one) for one in judged]
        kept = _merged(probes, rows, opens, shapes, names, simulation)
        held, spare = _held(range(old), pods, judged, names, simulation)
        misfits = tuple(_misfits(judged, shapes, probes, rows, opens, held))
    return PlanProblem(shapes, *kept, held, misfits, spare, limits)


def _renamed(node: Node, taken: set[str]) -> Node:
    name = node.name
    while name in taken:
        name += "-x"
    taken.add(name)
    return node if name == node.name else replace(node, metadata=replace(node.metadata, name=name))


def _groups(pods: Iterable[Pod]) -> list[list[Pod]]:
    held: dict[Hashable, list[Pod]] = {}
    for pod in pods:
        held.setdefault(PodInfo(pod).shape(), []).append(pod)
    return list(held.values())


def _shape(pods: Sequence[Pod], judged: EveryVerdict) -> PlanShape:
    room = room_for(judged)
    info = judged.pod
    labels = judged.snapshot.namespace_labels(info.namespace)
    apart = any(
        term.topology_key == "kubernetes.io/hostname" and term.matches(info, labels) for term in info.required_anti_affinity
    )
    return PlanShape(tuple(pods), room.needs, alone=bool(info.host_ports) or apart)


def _open(judged: EveryVerdict, ignored: Collection[str] = COUNTING) -> Any:
    """Return the rows where a pod fits if some plugins are ignored, except for refusals of these that eviction cannot help."""
    open_rows = judged.open_without(ignored)
    for one in judged.refusing:
        if one.name == FIT and FIT in ignored:
            open_rows[one.verdicts.rows_with(Code.UNRESOLVABLE)] = False
    return open_rows


def _merged(
    probes: Sequence[tuple[Offer, str, Node]], rows: Sequence[int], opens: Sequence[Any], shapes: Sequence[PlanShape],
    names: Sequence[str], simulation: SimulatedCluster,
) -> tuple[tuple[Offer, ...], tuple[Mapping[str, int], ...], tuple[tuple[bool, ...], ...]]:  # fmt: skip
    """Return the offers, with equivalent zones merged into one offer, and the room and the fitting shapes of each."""
    free = {name: free_amount(simulation.scheduler.snapshot.nodes, name) for name in names}
    zones: dict[tuple[str, tuple[bool, ...]], list[str]] = {}
    first: dict[tuple[str, tuple[bool, ...]], tuple[Offer, int]] = {}
    for (offer, zone, _), row in zip(probes, rows, strict=True):
        fits = tuple(bool(opens[s][row]) for s in range(len(shapes)))
        key = offer.type.name, fits
        zones.setdefault(key, []).append(zone)
        first.setdefault(key, (offer, row))
    offers = tuple(Offer(one.type, one.pattern, tuple(filter(None, zones[key]))) for key, (one, _) in first.items())
    room = tuple({name: int(free[name][row]) for name in names} for _, row in first.values())
    return offers, room, tuple(key[1] for key in first)


def _held(
    rows: Sequence[int], pods: Sequence[Pod], judged: Sequence[EveryVerdict], names: Sequence[str], simulation: SimulatedCluster
) -> tuple[tuple[Held, ...], dict[str, int]]:
    """Return the existing nodes by the shapes that they accept, and the sum of the free amounts on all of them.

    A full node accepts a shape that could evict pods there, and the requests of these pods count as free. In the sum, only the
    requests of pods that no controller replaces count as free.
    """
    table = simulation.scheduler.snapshot.table
    highest = max((pod.spec.priority or 0 for pod in pods), default=0)
    lower = [(row, other) for row in rows for other in table.pods[row].values() if other.priority < highest]
    ignored = {*COUNTING, FIT} if lower else COUNTING
    opens = [_open(one, ignored) for one in judged]
    free = {name: free_amount(simulation.scheduler.snapshot.nodes, name) for name in names}
    spare = {name: int(np.clip(free[name][list(rows)], 0, None).sum()) for name in names}
    for row, other in lower:
        gone = replacement(other.pod) is None
        for name in names:
            request = 1 if name == "pods" else other.requests.get(name, 0)
            free[name][row] += request
            spare[name] += request if gone else 0
    groups: dict[tuple[bool, ...], list[int]] = {}
    for row in rows:
        fits = tuple(bool(one[row]) for one in opens)
        if any(fits):
            groups.setdefault(fits, []).append(row)
    held = tuple(
        Held(len(members), {name: int(np.clip(free[name][members], 0, None).sum()) for name in names}, fits)
        for fits, members in groups.items()
    )
    return held, spare


def _misfits(
    judged: Sequence[EveryVerdict], shapes: Sequence[PlanShape], probes: Sequence[tuple[Offer, str, Node]], rows: Sequence[int],
    opens: Sequence[Any], held: Sequence[Held],
) -> Iterable[Misfit]:  # fmt: skip
    """Yield, for each shape that fits nowhere, why it does not fit on a node of each type."""
    for s in range(len(shapes)):
        if any(opens[s][row] for row in rows) or any(one.fits[s] for one in held):
            continue
        seen = set()
        for (offer, _, _), row in zip(probes, rows, strict=True):
            for status in judged[s].statuses(row):
                for reason in status.reasons:
                    key = offer.type.name, status.plugin, reason
                    if status.plugin not in COUNTING and key not in seen:
                        seen.add(key)
                        yield Misfit(s, offer.type.name, status.plugin or "", reason)
