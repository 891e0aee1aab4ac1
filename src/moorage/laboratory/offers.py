"""What would let a pod onto each node: the constraints that refuse the node, and the changes that would lift each of them.

Every Filter plugin judges every node with its own state. Of nodes that are refused alike, a few are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from moorage.api.core import Node
from moorage.errors import PluginError
from moorage.framework.change_values import taint_text
from moorage.framework.changes import Change, Remedies, RemedyingPlugin
from moorage.framework.explaining import ShortfallPlugin
from moorage.framework.plugin_runner import ask, drained
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Hold, Narrow, Skip
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray
from moorage.state.pod_info import PodInfo

__all__ = ["ChangeSet", "NodeOffers", "Offers", "Refusal", "offers_of", "refusals_of"]

#: Changes that are made together.
ChangeSet = frozenset[Change]
#: In a cluster of so many nodes, every node is looked at.
FEW_NODES: Final = 64
#: In larger ones, so many of those that the same plugins refuse: the ones that lack least.
MOST_ALIKE: Final = 4
#: How many sets of changes are combined for one plugin.
MOST_SETS: Final = 256
#: How many groups of nodes are offered to grow.
MOST_GROUPS: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """The rows that one plugin refuses, and those of them where eviction cannot help."""

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
    """The offers for the nodes that were looked at, and the names of the nodes that nothing refuses."""

    nodes: tuple[NodeOffers, ...]
    fits: tuple[str, ...]
    is_complete: bool


# -- verdicts ---------------------------------------------------------------------------------------------------------


def refusals_of(profile: Profile, pod: PodInfo, snapshot: Snapshot) -> list[Refusal]:
    """Return what each plugin refuses, in running order, rejections and narrowings by PreFilter included."""
    before = {step.name: _asked(step, pod, snapshot) for step in profile.at("preFilter")}
    filters = {step.name: step for step in profile.at("filter")}
    found: list[Refusal] = []
    for name in dict.fromkeys((*before, *filters)):
        closed, state = _closed(before.get(name), snapshot)
        unresolvable = closed.copy()
        step = filters.get(name)
        if step is not None and not isinstance(before.get(name), Skip | PluginError):
            for rows, hopeless in _filtered(step, pod if state is None else state, snapshot):
                closed |= rows
                unresolvable |= hopeless
        if closed.any():
            plugin = step.plugin if step is not None else None
            found.append(Refusal(name, closed, unresolvable, plugin, pod if state is None else state))
    return found


def _asked(step: Step, pod: PodInfo, snapshot: Snapshot) -> Any:
    try:
        return ask(step, "preFilter", pod, snapshot)
    except PluginError as error:
        return error


def _closed(answer: Any, snapshot: Snapshot) -> tuple[BoolArray, Any]:
    """Return the rows that PreFilter closed, and the state for Filter; None where that is the pod."""
    nodes = snapshot.nodes
    if isinstance(answer, Hold | PluginError):
        return np.ones(len(nodes), dtype=bool), None
    if isinstance(answer, Narrow):
        return ~nodes.named(answer.nodes), answer.state
    return nodes.false(), None if isinstance(answer, Skip) else answer


def _filtered(step: Step, state: Any, snapshot: Snapshot) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Yield the rows that Filter refuses, and those of them where eviction cannot help. A plugin that raises refuses all."""
    try:
        for reject in drained(step, state, snapshot.nodes):
            hopeless = reject.rows & np.broadcast_to(reject.unresolvable, reject.rows.shape)
            yield reject.rows, hopeless
    except PluginError:
        every = np.ones(len(snapshot.nodes), dtype=bool)
        yield every, every


# -- offers -------------------------------------------------------------------------------------------------------------


def offers_of(profile: Profile, pod: PodInfo, snapshot: Snapshot, *, grow: bool = True) -> Offers:
    """Return what would let the pod onto each node, and with ``grow`` the nodes that could be added."""
    refusals = refusals_of(profile, pod, snapshot)
    names = [node.name for node in snapshot.table.nodes]
    if not names:
        return Offers((), (), True)
    kinds = _kinds(refusals, len(names))
    fits = tuple(sorted(names[row] for row in np.flatnonzero(kinds == 0)))
    rows = _rows_to_look_at(refusals, kinds, pod, snapshot)
    raising = _raising(pod, snapshot)
    cut: set[str] = set()
    nodes = [NodeOffers(names[row], tuple(_constraints(refusals, row, profile, pod, snapshot, raising, cut))) for row in rows]
    nodes += _new_nodes(snapshot.table.nodes, cut) if grow else ()
    return Offers(tuple(nodes), fits, len(rows) + len(fits) == len(names) and not cut)


def _new_nodes(nodes: Sequence[Node], cut: set[str]) -> Iterator[NodeOffers]:
    """Offer one more node of each group: nodes of a group differ in their names alone. Add to ``cut`` if some are left out."""
    groups: dict[Any, str] = {}
    taken = {node.name for node in nodes}
    for node in sorted(nodes, key=lambda one: one.name):
        labels = {key: value for key, value in node.labels.items() if key != "kubernetes.io/hostname"}
        taints = sorted(taint_text(one) for one in node.spec.taints if one.key != "node.kubernetes.io/unschedulable")
        groups.setdefault((str(sorted(labels.items())), str(taints), str(sorted(node.status.allocatable.items()))), node.name)
    if len(groups) > MOST_GROUPS:
        cut.add("nodes")
    offers = [
        frozenset([Change("cluster", "add-node", f"node/{name}-new", "", None, f"like {name}")])
        for name in list(groups.values())[:MOST_GROUPS]
        if f"{name}-new" not in taken
    ]
    if offers:
        yield NodeOffers("", (tuple(offers),))


def _kinds(refusals: Sequence[Refusal], rows: int) -> Any:
    """Number the sets of plugins that refuse rows; 0 for rows that nothing refuses."""
    kinds = np.zeros(rows, dtype=np.int64)
    for at, refusal in enumerate(refusals):
        kinds |= refusal.rows.astype(np.int64) << (at % 62)
    return kinds


def _rows_to_look_at(refusals: Sequence[Refusal], kinds: Any, pod: PodInfo, snapshot: Snapshot) -> list[int]:
    """Return the rows of each kind that lack least; all rows if there are few."""
    if len(kinds) <= FEW_NODES:
        return [int(row) for row in np.flatnonzero(kinds > 0)]
    short = np.zeros(len(kinds))
    for refusal in refusals:
        if isinstance(refusal.instance, ShortfallPlugin):
            with suppress(Exception):  # an explanation must not fail where the decision did not
                short += np.where(refusal.rows, refusal.instance.shortfall(refusal.state, pod, snapshot.nodes), 0.0)
    found: list[int] = []
    for kind in np.unique(kinds[kinds > 0]):
        rows = np.flatnonzero(kinds == kind)
        found += rows[np.argsort(short[rows], kind="stable")[:MOST_ALIKE]].tolist()
    return found


def _constraints(
    refusals: Iterable[Refusal],
    row: int,
    profile: Profile,
    pod: PodInfo,
    snapshot: Snapshot,
    raising: Sequence[ChangeSet],
    cut: set[str],
) -> Iterator[tuple[ChangeSet, ...]]:
    """Yield for each plugin that refuses a row the sets of changes that lift its refusal; disabling the plugin is one."""
    for refusal in refusals:
        if not refusal.rows[row]:
            continue
        disable = Change("config", "disable-plugin", f"config/{profile.scheduler_name}/{refusal.plugin}")
        sets = [frozenset([disable]), *_plugin_sets(refusal, row, pod, snapshot, cut)]
        if not refusal.unresolvable[row]:
            sets += raising
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
    if not isinstance(refusal.instance, RemedyingPlugin):
        return []
    try:
        return [offer for offer in refusal.instance.remedies(refusal.state, pod, snapshot.nodes.at(row)) if offer]
    except Exception:  # an explanation must not fail where the decision did not
        return []


def _raising(pod: PodInfo, snapshot: Snapshot) -> list[ChangeSet]:
    """Return the changes that let the pod preempt others: each priority just above one that is present."""
    target, policy = f"pod/{pod.key}", pod.spec.preemption_policy
    placed = {other.priority for pods in snapshot.table.pods for other in pods.values()}
    never = Change("pod", "preemption-policy", target, "preemptionPolicy", policy, "PreemptLowerPriority")
    allow = [never] if policy == "Never" else []
    raised = [Change("pod", "priority", target, "priority", pod.priority, p + 1) for p in sorted(placed) if p >= pod.priority]
    return [*([frozenset(allow)] if allow else []), *(frozenset([one, *allow]) for one in raised)]
