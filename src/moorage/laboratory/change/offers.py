"""The changes that would let a pod onto each node: one set of changes for each constraint that refuses the node.

Every Filter plugin judges every node with its own state. Of nodes that the same plugins refuse, only a few are examined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, islice, product
from math import prod
from operator import is_
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.core import Node
from moorage.framework.changes import Change, Remedies, taint_text
from moorage.framework.explaining import has_shortfall
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.laboratory.edit.changes import apply, is_transient
from moorage.laboratory.explain.verdicts import Stage, judgements_of
from moorage.laboratory.node_groups import pool_of
from moorage.state.cluster import ClusterState
from moorage.state.table import NodeTable
from moorage.state.view import BoolArray, IntArray, PodInfo, Snapshot

# Nodes that could be added to a cluster, one more of each group, and what refuses a pod even on an empty one.

_HOST: Final = "kubernetes.io/hostname"
#: Maximum number of groups for which one more node is offered.
_MOST_GROUPS: Final = 32


class NodeKinds:
    """The groups of a cluster's nodes: nodes of a group differ in their names alone. Kept until nodes change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._table = snapshot.table
        #: For each row: the node, its name and the number of its kind.
        self._rows: list[tuple[Node, str, int]] = []
        self._nodes: list[Node] = []
        self._numbers: dict[Any, int] = {}
        self._first: list[str] = []
        self._further: FurtherNodes | None = None

    def further(self, patterns: Sequence[Node]) -> FurtherNodes:
        """Return one more node of each group, and one like each pattern."""
        names = self.first_names()
        if self._further is None or self._further.patterns is not patterns:
            self._further = FurtherNodes(self._table, names, patterns)
        return self._further

    def first_names(self) -> list[str]:
        """Return the first name of each group, sorted."""
        nodes, rows = self._table.nodes, self._rows
        if len(nodes) == len(self._nodes) and all(map(is_, nodes, self._nodes)):
            return self._first
        del rows[len(nodes) :]
        rows += [self._row_of(node) for node in nodes[len(rows) :]]
        for at, (node, held) in enumerate(zip(nodes, rows, strict=True)):
            if node is not held[0]:
                rows[at] = self._row_of(node)
        first: dict[int, str] = {}
        for _, name, kind in rows:
            known = first.get(kind)
            if known is None or name < known:
                first[kind] = name
        self._nodes, self._first, self._further = nodes.copy(), sorted(first.values()), None
        return self._first

    def _row_of(self, node: Node) -> tuple[Node, str, int]:
        return node, node.name, self._numbers.setdefault(_kind_of(node), len(self._numbers))


def _kind_of(node: Node) -> Any:
    labels = {**node.labels, _HOST: ""}
    taints = [taint_text(one) for one in node.spec.taints if not is_transient(one.key)]
    return tuple(labels.items()), tuple(taints), tuple(node.status.allocatable.items())


class FurtherNodes:
    """One more node like each of these and like each pattern, with names that are not in use.

    ``nodes``        the change that adds each node, and the node
    ``beside``       a cluster of these nodes, in order, without pods
    ``is_complete``  False if there are so many that some are left out
    """

    def __init__(self, table: NodeTable, like: Sequence[str], patterns: Sequence[Node]) -> None:
        self.is_complete = len(like) <= _MOST_GROUPS
        self.nodes: list[tuple[Change, Node]] = []
        self.patterns = patterns
        state = ClusterState()
        held = {name: table.nodes[table.row_of[name]] for name in like[:_MOST_GROUPS]}
        for name, pattern in ({one.name: one for one in patterns} | held).items():
            group = f"group {pool}" if (pool := pool_of(pattern)) else ""
            names = (f"{name}-new{f'-{number}' if number > 1 else ''}" for number in count(1))
            free = next(one for one in names if one not in table.row_of)
            change = Change("cluster", "add-node", f"node/{free}", group, None, f"like {name}")
            *_, node = apply([pattern], change)
            assert isinstance(node, Node)
            self.nodes.append((change, node))
            state.set_node(node)
        self.beside = state.snapshot


def judging_nodes_alone(profile: Profile, pod: PodInfo) -> Profile:
    """Return a profile with only the plugins of a profile whose verdict on a node does not depend on other nodes or pods."""
    alone = {step.name for step in profile.at("filter") if _judges_alone(step, pod)}
    steps: Mapping[str, tuple[Step, ...]] = {
        point: tuple(step for step in profile.at(point) if step.name in alone) for point in ("preFilter", "filter")
    }
    return replace(profile, steps={**profile.steps, **steps})


def _judges_alone(step: Step, pod: PodInfo) -> bool:
    reuse = step.reuse
    return (
        reuse.scope is Scope.NODE
        and reuse.other_nodes is None
        and reuse.signature is not None
        and reuse.signature(pod) is not None
    )


#: A set of changes that are made together.
ChangeSet = frozenset[Change]
#: The largest cluster, in nodes, in which every node is examined.
FEW_NODES: Final = 64
#: In larger clusters, the number of nodes to examine for each set of refusing plugins: those that lack least.
MOST_ALIKE: Final = 4
#: Maximum number of combined sets of changes for one plugin.
MOST_SETS: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """The rows that one plugin refuses, and those among them where eviction cannot help."""

    plugin: str
    rows: BoolArray
    unresolvable: BoolArray
    instance: Any = None
    state: Any = None


class NodeOffers(NamedTuple):
    """For one node, the sets of changes that lift each refusal: one set of each is needed."""

    node: str
    constraints: tuple[tuple[ChangeSet, ...], ...]


class Offers(NamedTuple):
    """The offers for the examined nodes. ``is_complete``: no node and no offer was left out."""

    nodes: tuple[NodeOffers, ...]
    is_complete: bool


NO_OFFERS: Final = Offers((), True)


# -- verdicts ---------------------------------------------------------------------------------------------------------


def refusals_of(profile: Profile, pod: PodInfo, snapshot: Snapshot) -> list[Refusal]:
    """Return the rows that each plugin refuses, including those that PreFilter rejects or leaves out."""
    found: dict[str, Refusal] = {}
    for one in judgements_of(profile, pod, snapshot):
        if not one.refuses_any:
            continue
        before = found.get(one.name)
        state = pod if one.state is None else one.state
        found[one.name] = Refusal(
            one.name,
            one.refused if before is None else before.rows | one.refused,
            one.unresolvable if before is None else before.unresolvable | one.unresolvable,
            one.plugin,
            state if before is None or one.stage is Stage.FILTER else before.state,
        )
    return list(found.values())


@dataclass(slots=True)
class FirstLook:
    """The set of plugins that refused each row before any change, as a number for each distinct set.

    ``patterns``  nodes that can be added, apart from those of the groups
    """

    kinds: IntArray | None = None
    bits: dict[str, int] = field(default_factory=dict)
    patterns: Sequence[Node] = ()


def offers_of(
    profile: Profile, pod: PodInfo, snapshot: Snapshot, changes: Collection[Change] = (), first: FirstLook | None = None
) -> Offers:
    """Return the changes that would let the pod onto each node; without ``changes``, also the nodes that could be added.

    ``changes`` were made already. In a large cluster only some nodes are examined again: those that other plugins refuse than
    at the ``first`` look, and those that the changes concern. The offers for all others are known.
    """
    nodes = snapshot.table.nodes
    if not nodes:
        return NO_OFFERS
    first = first or FirstLook()
    refusals = refusals_of(profile, pod, snapshot)
    kinds = _kinds(refusals, len(nodes), first.bits)
    rows = _rows_to_look_at(refusals, kinds, pod, snapshot, _changed_rows(kinds, first, changes, snapshot))
    cut: set[str] = set()
    offers = [NodeOffers(nodes[row].name, tuple(_constraints(refusals, row, profile, pod, snapshot, cut))) for row in rows]
    offers += () if changes else _new_nodes(profile, pod, snapshot, cut, first.patterns)
    return Offers(tuple(offers), len(rows) == np.count_nonzero(kinds) and not cut)


def _changed_rows(kinds: IntArray, first: FirstLook, changes: Collection[Change], snapshot: Snapshot) -> BoolArray | None:
    """Return the rows whose refusing plugins differ from those at the first look; None if this is the first."""
    if first.kinds is None:
        first.kinds = None if changes else kinds
        return None
    before = np.zeros(len(kinds), dtype=np.int64)
    before[: len(first.kinds)] = first.kinds[: len(kinds)]
    changed: BoolArray = kinds != before
    for change in changes:
        name = change.target.removeprefix("node/") if change.owner == "node" else str(change.old or "")
        row = snapshot.table.row_of.get(name)
        if row is not None:
            changed[row] = True
    return changed


def _new_nodes(
    profile: Profile, pod: PodInfo, snapshot: Snapshot, cut: set[str], patterns: Sequence[Node]
) -> Iterator[NodeOffers]:
    """Offer one more node of each group and one like each pattern. Add to ``cut`` if groups are left out.

    Constraints that would refuse the pod even on the new node, such as a taint, have to be lifted as well.
    """
    added = snapshot.index(NodeKinds).further(patterns)
    if not added.is_complete:
        cut.add("nodes")
    if not added.nodes:
        return
    refusals = refusals_of(judging_nodes_alone(profile, pod), pod, added.beside)
    ready: list[ChangeSet] = []
    for row, (change, node) in enumerate(added.nodes):
        lifted = tuple(_constraints(refusals, row, profile, pod, added.beside, cut))
        if lifted:
            yield NodeOffers(node.name, ((frozenset([change]),), *lifted))
        else:
            ready.append(frozenset([change]))
    if ready:
        yield NodeOffers("", (tuple(ready),))


def _kinds(refusals: Sequence[Refusal], rows: int, bits: dict[str, int]) -> IntArray:
    """Return the number of the set of plugins that refuse each row; 0 for open rows. ``bits`` stores the bit of each plugin."""
    kinds = np.zeros(rows, dtype=np.int64)
    for refusal in refusals:
        kinds |= refusal.rows.astype(np.int64) << (bits.setdefault(refusal.plugin, len(bits)) % 62)
    return kinds


def _rows_to_look_at(
    refusals: Sequence[Refusal], kinds: IntArray, pod: PodInfo, snapshot: Snapshot, among: BoolArray | None
) -> list[int]:
    """Return the rows of each kind that lack least, ``among`` these; all rows if there are few."""
    if len(kinds) <= FEW_NODES:
        return [int(row) for row in np.flatnonzero(kinds > 0)]
    if among is not None:
        kinds = np.where(among, kinds, 0)
    if not kinds.any():
        return []
    short = np.zeros(len(kinds))
    for refusal in refusals:
        if has_shortfall(refusal.instance):
            with suppress(Exception):  # an explanation must not fail where the decision did not
                short += np.where(refusal.rows, refusal.instance.shortfall(refusal.state, pod, snapshot.nodes), 0.0)
    found: list[int] = []
    for kind in np.unique(kinds[kinds > 0]):
        rows = np.flatnonzero(kinds == kind)
        found += rows[_least(short[rows], MOST_ALIKE)].tolist()
    return found


def _least(values: npt.NDArray[np.float64], number: int) -> npt.NDArray[np.intp]:
    """Return the positions of the smallest values; of equal values, the first ones."""
    if len(values) > number:
        among = np.flatnonzero(values <= np.partition(values, number - 1)[number - 1])
        return among[np.argsort(values[among], kind="stable")[:number]]
    return np.argsort(values, kind="stable")


def _constraints(
    refusals: Iterable[Refusal], row: int, profile: Profile, pod: PodInfo, snapshot: Snapshot, cut: set[str]
) -> Iterator[tuple[ChangeSet, ...]]:
    """Yield for each plugin that refuses a row the sets of changes that lift its refusal; disabling the plugin is one."""
    for refusal in refusals:
        if not refusal.rows[row]:
            continue
        disable = Change("config", "disable-plugin", f"config/{profile.scheduler_name}/{refusal.plugin}")
        sets = [frozenset([disable]), *_plugin_sets(refusal, row, pod, snapshot, cut)]
        if not refusal.unresolvable[row]:
            sets += _raising(pod, snapshot.table.pods[row].values())
        yield tuple(dict.fromkeys(sets))


def _plugin_sets(refusal: Refusal, row: int, pod: PodInfo, snapshot: Snapshot, cut: set[str]) -> Iterator[ChangeSet]:
    """Yield the combinations of a plugin's offers, one for each of its terms; add to ``cut`` if there are too many."""
    by_term: dict[str, list[tuple[Change, ...]]] = {}
    for offer in _remedies(refusal, row, pod, snapshot):
        changes = offer if isinstance(offer, tuple) else (offer,)
        by_term.setdefault(changes[0].term, []).append(changes)
    if prod(map(len, by_term.values())) > MOST_SETS:
        cut.add(refusal.plugin)
    if by_term:
        yield from (
            frozenset(change for some in sets for change in some) for sets in islice(product(*by_term.values()), MOST_SETS)
        )


def _remedies(refusal: Refusal, row: int, pod: PodInfo, snapshot: Snapshot) -> list[Remedies]:
    remedies = getattr(refusal.instance, "remedies", None)
    if remedies is None:
        return []
    try:
        return [offer for offer in remedies(refusal.state, pod, snapshot.nodes.at(row)) if offer]
    except Exception:  # an explanation must not fail where the decision did not
        return []


def _raising(pod: PodInfo, others: Iterable[PodInfo]) -> list[ChangeSet]:
    """Return the changes that let the pod preempt others on their node: a priority just above that of each."""
    target, policy = f"pod/{pod.key}", pod.spec.preemption_policy
    never = Change("pod", "preemption-policy", target, "preemptionPolicy", policy, "PreemptLowerPriority")
    allow = [never] if policy == "Never" else []
    placed = sorted({other.priority for other in others})
    raised = [Change("pod", "priority", target, "priority", pod.priority, p + 1) for p in placed if p >= pod.priority]
    return [*([frozenset(allow)] if allow else []), *(frozenset([one, *allow]) for one in raised)]
