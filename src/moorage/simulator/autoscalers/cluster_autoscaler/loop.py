"""``AutoscalerLoop``: what one round of cluster-autoscaler does: scale up for pods that wait, remove unneeded nodes.

A round works on a ``PackingSnapshot``, which it leaves as it was, and only says what is to be done. A ``ScaleDownPlanner``
finds out which nodes are unneeded, and why the others stay; it remembers since when a node is unneeded, and until when one that
could not be removed is passed over.

Source  cluster-autoscaler at 87d9c45c02^, core/static_autoscaler.go, core/podlistprocessor; core/scaledown/planner, unneeded,
        unremovable, budgets, pdb, simulator/cluster.go, processors/scaledowncandidates
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from math import inf
from random import Random
from typing import Final

from msgspec import Struct

from moorage.api.core import Node, Pod, Taint
from moorage.api.documents.object_fields import seconds
from moorage.api.durations import DurationError, duration_seconds
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.preemption.disruption_budgets import covers
from moorage.simulator.autoscalers.cluster_autoscaler import removal_rules
from moorage.simulator.autoscalers.cluster_autoscaler.flags import AutoscalerFlags, read_expander
from moorage.simulator.autoscalers.cluster_autoscaler.packing import AGAIN, Packer, PackingSnapshot, unplaced
from moorage.simulator.autoscalers.cluster_autoscaler.removal_rules import Replicas, is_daemon_pod
from moorage.simulator.autoscalers.cluster_autoscaler.scale_up import ResourceBounds, RoundView, ScaleUp, least_sizes, scale_up
from moorage.simulator.owners import is_mirror

_TAINT: Final = Taint(key=removal_rules.DELETED, effect="NoSchedule")


class Unremovable(Struct, frozen=True):
    """Why a node is not removed: cluster-autoscaler's reason, a sentence, and the pod that keeps the node, if one does."""

    reason: str
    text: str = ""
    pod: str = ""


@dataclass(frozen=True)
class NodeRemoval:
    """A node that can be removed, with the pods that move, and those that are left to complete.

    ``risky``  its pods cannot leave at once without spending a budget
    """

    name: str
    pods: tuple[Pod, ...] = ()
    waiting: tuple[Pod, ...] = ()
    risky: bool = False


def _left_by(pods: Collection[Pod], budgets: Iterable[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    """Return the budgets as the evictions of pods leave them: below zero, the pods cannot all leave at once."""
    counted = ((budget, sum(covers(budget, pod) for pod in pods)) for budget in budgets)
    return [
        budget.replace(status=budget.status.replace(disruptions_allowed=budget.status.disruptions_allowed - count))
        if count else budget for budget, count in counted
    ]  # fmt: skip


class ScaleDownPlanner:
    """See the module's description. ``replicas`` is as for ``DrainContext``."""

    def __init__(self, flags: AutoscalerFlags, replicas: Replicas | None = None) -> None:
        self.flags, self._replicas = flags, replicas
        #: Node → since when it is unneeded, and its removal.
        self.unneeded: dict[str, tuple[float, NodeRemoval]] = {}
        #: Node → why it is not removed, as of the last update.
        self.reasons: dict[str, Unremovable] = {}
        self._until: dict[str, float] = {}
        self._packer = Packer()
        self._interval_s = flags.scale_down_unneeded_time
        self._updated_s: float | None = None

    def next_change_s(self, now_s: float) -> float:
        """Return when time alone changes something: a node was unneeded for long enough, or is looked at again."""
        waits = {self.flags.scale_down_unneeded_time, self.flags.scale_down_unready_time}
        times = [since + wait for since, _ in self.unneeded.values() for wait in waits]
        return min((time_s for time_s in (*times, *self._until.values()) if time_s >= now_s), default=inf)

    def update(self, view: RoundView, leaving: Collection[str], now_s: float) -> None:
        """Find out which nodes are unneeded. ``leaving``: nodes that are being deleted."""
        packed, flags = view.packed, self.flags
        if self._updated_s is not None:
            self._interval_s = min(self._interval_s, now_s - self._updated_s)
        self._updated_s = now_s
        self.reasons = {}
        self._until = {name: until_s for name, until_s in self._until.items() if until_s > now_s and name in packed.order}
        names = {node.name for node in view.nodes} - set(leaving)
        budgets = list(view.budgets)
        found: list[NodeRemoval] = []
        eligible = []
        for node in self._candidates(view, now_s):
            if node.name in leaving:
                continue
            why, text = "RecentlyUnremovable", ""
            if node.name not in self._until:
                why, text = removal_rules.unremovable_reason(node, packed.pods(node.name), flags, now_s)
            if why:
                self.reasons[node.name] = Unremovable(why, text)
            else:
                eligible.append(node)
        parallel, interval_s = flags.max_scale_down_parallelism, max(self._interval_s, 1e-9)
        rounds = int(max(flags.scale_down_unneeded_time, interval_s) / interval_s)
        limit = min(len(self.unneeded) + 2 * parallel, parallel * rounds + parallel)
        with packed.trial():
            for node in eligible:
                if len(found) >= limit:
                    break
                removal = self._simulated(packed, node, names, budgets, now_s)
                if isinstance(removal, Unremovable):
                    self.reasons[node.name] = removal
                    self._until[node.name] = now_s + flags.unremovable_node_recheck_timeout
                    continue
                names.discard(node.name)
                budgets = _left_by(removal.pods, budgets)
                found.append(removal)
        self.unneeded = {one.name: (self.unneeded.get(one.name, (now_s,))[0], one) for one in found}
        self._packer.forget_old()

    def _candidates(self, view: RoundView, now_s: float) -> list[Node]:
        """Return the nodes of groups above their minimum: empty ones first, then those that were unneeded before."""
        open_ = [node for node in view.nodes if (group := view.group(node.name)) is not None and group.target > group.least]
        context = removal_rules.DrainContext(now_s, flags=self.flags)

        def rank(node: Node) -> tuple[bool, bool, bool]:
            moves = removal_rules.pods_to_move(view.packed.pods(node.name), context)
            is_empty = moves.blocking is None and not moves.pods
            return not is_empty, is_empty and bool(moves.waiting), node.name not in self.unneeded

        return sorted(open_, key=rank)

    def _simulated(
        self, packed: PackingSnapshot, node: Node, names: Collection[str], budgets: Sequence[PodDisruptionBudget], now_s: float
    ) -> NodeRemoval | Unremovable:
        """Move the pods of a node elsewhere, and keep that if all find a place."""
        moves = removal_rules.pods_to_move(
            packed.pods(node.name), removal_rules.DrainContext(now_s, budgets, self._replicas, self.flags)
        )
        if moves.blocking is not None:
            pod, status = moves.blocking
            return Unremovable(f"BlockedByPod: {status.reason}", status.text, pod.key)
        pods = moves.pods
        with packed.trial() as keep:
            # The node stays as a domain of topology spread, without pods, and closed to them.
            for pod in packed.pods(node.name):
                packed.take(pod)
            packed.change(node.replace(spec=node.spec.replace(taints=(*node.spec.taints, _TAINT))))
            found = self._packer.pack(packed, [*map(unplaced, pods)], {*names} - {node.name}, all_or_nothing=True)
            if len(found) != len(pods):
                stuck = next((pod.key for pod in pods if pod.metadata.uid not in found), "")
                return Unremovable("NoPlaceToMovePods", f"can reschedule only {len(found)} out of {len(pods)} pods", stuck)
            packed.remove(node.name)
            keep()
        after = zip(budgets, _left_by(pods, budgets), strict=True)
        risky = any(left is not budget and left.status.disruptions_allowed < 0 for budget, left in after)
        return NodeRemoval(node.name, pods, tuple(moves.waiting), risky)

    def judge(self, view: RoundView, name: str, now_s: float) -> NodeRemoval | Unremovable:
        """Return whether a node alone could be removed, with the pods that would move, or why not. Delays do not count."""
        packed, group = view.packed, view.group(name)
        node = packed.node(name)
        why, text = removal_rules.unremovable_reason(node, packed.pods(name), self.flags, now_s, autoscaled=group is not None)
        if why or group is None:
            return Unremovable(why, text)
        if group.target <= group.least:
            text = f"node group {group.name} has its minimum of {group.least} nodes"
            return Unremovable("NodeGroupMinSizeReached", text)
        with packed.trial():
            return self._simulated(packed, node, set(packed.order), view.budgets, now_s)

    def removable(self, view: RoundView, leaving: Collection[str], now_s: float) -> tuple[list[NodeRemoval], list[NodeRemoval]]:
        """Return the nodes that were unneeded for long enough: empty ones, and those to drain."""
        packed, flags = view.packed, self.flags
        bounds = ResourceBounds([packed.node(name) for name in packed.order], flags, lowest=True)
        sizes = {group.name: group.target for group in view.groups}
        going = [view.group_of.get(name) for name in leaving]
        found: list[NodeRemoval] = []
        for since_s, removal in sorted(self.unneeded.values(), key=lambda one: (bool(one[1].pods), one[1].name)):
            node, group = packed.node(removal.name), view.by_name[view.group_of[removal.name]]
            ready = node.is_ready
            threshold_s = flags.scale_down_unneeded_time if ready else flags.scale_down_unready_time
            if threshold_s > 0 and since_s + threshold_s >= now_s:
                why = "NotUnneededLongEnough" if ready else "NotUnreadyLongEnough"
            elif sizes[group.name] - going.count(group.name) <= group.least:
                why = "NodeGroupMinSizeReached"
            elif not bounds.consume(node, 1):
                why = "MinimalResourceLimitExceeded"
            else:
                sizes[group.name] -= 1
                why = "BlockedByOnCompletionPod" if removal.waiting else ""
            if why:
                self.reasons[removal.name] = Unremovable(why)
            else:
                found.append(removal)
        drains = sorted((one for one in found if one.pods), key=lambda one: one.risky)
        return [one for one in found if not one.pods], drains


def cropped(
    empty: Sequence[NodeRemoval], drains: Sequence[NodeRemoval], group_of: Mapping[str, str], flags: AutoscalerFlags,
    leaving_empty: int, leaving_drained: int,
) -> tuple[list[NodeRemoval], list[NodeRemoval]]:  # fmt: skip
    """Return the nodes whose deletion may begin now, beside those that are being deleted, group by group.

    Source  cluster-autoscaler at 87d9c45c02^, core/scaledown/budgets/budgets.go
    """

    def by_group(removals: Sequence[NodeRemoval]) -> list[NodeRemoval]:
        groups = [group_of.get(one.name, "") for one in removals]
        return sorted(removals, key=lambda one: groups.index(group_of.get(one.name, "")))

    left = flags.max_scale_down_parallelism - leaving_empty - leaving_drained
    first = by_group(empty)[: max(left, 0)]
    drain_left = min(left - len(first), flags.max_drain_parallelism - leaving_drained)
    return first, by_group(drains)[: max(drain_left, 0)]


# -- rounds ------------------------------------------------------------------------------------------------------------

#: Why nothing is added to a cluster with as many nodes as --max-nodes-total allows.
_FULL: Final = "max nodes total reached"
_DELAY: Final = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
#: Younger pods are not yet a reason to scale up, unless older ones wait, too.
_NEW_S: Final = 2.0
#: A cluster with more unready nodes, and a larger share of them, is left alone.
_UNREADY, _UNREADY_SHARE = 3, 0.45


@dataclass
class Round:
    """What is to be done: nodes to add by group, empty nodes to remove, nodes to drain and remove."""

    up: ScaleUp = field(default_factory=ScaleUp)
    more: dict[str, int] = field(default_factory=dict)
    empty: list[NodeRemoval] = field(default_factory=list)
    drains: list[NodeRemoval] = field(default_factory=list)


class AutoscalerLoop:
    """See the module's description. It remembers what rounds before did.

    ``priorities``  the config map of the expander ``priority``
    """

    def __init__(self, flags: AutoscalerFlags, random: Random, priorities: str = "", replicas: Replicas | None = None) -> None:
        self.flags, self.expander, self._random = flags, read_expander(flags.expander, priorities), random
        self.planner = ScaleDownPlanner(flags, replicas)
        self._packer = Packer()
        self.added_s = self.deleted_s = -inf
        #: Nodes that are being deleted: empty ones, and those that are drained.
        self.leaving_empty: set[str] = set()
        self.leaving_drained: set[str] = set()

    def in_cooldown(self, now_s: float) -> bool:
        """Return True while no node is removed because one was added or removed before."""
        flags = self.flags
        until_s = self.added_s + flags.scale_down_delay_after_add, self.deleted_s + flags.scale_down_delay_after_delete
        return max(until_s) > now_s

    def run_once(self, view: RoundView, now_s: float) -> Round:
        """Return what a round does at a time, in Unix seconds or from the beginning of a simulation."""
        made, packed, nodes = Round(), view.packed, view.nodes
        unready = sum(not node.is_ready for node in nodes)
        if unready > _UNREADY and unready > _UNREADY_SHARE * len(nodes):
            self.planner.unneeded = {}
            return made
        with packed.trial():
            waiting = self._waiting(view, now_s)
            waits_for_more = bool(waiting) and all(_born_s(view, pod) + _NEW_S > now_s for pod in waiting)
            if not waits_for_more or self._is_full(view):
                waits_for_more = False
                made.up = self._up(view, waiting)
                made.more = dict(made.up.more)
            if made.more:
                self.added_s = now_s
            grown = [with_fields(one, target=one.target + made.more.get(one.name, 0)) for one in view.groups]
            view = with_fields(view, groups=grown)
            if self.flags.scale_down_enabled:
                self._scale_down(view, made, now_s, held=waits_for_more)
        if self.flags.enforce_node_group_min_size:
            for name, count in least_sizes(view.groups, nodes, self.flags).items():
                made.more[name] = made.more.get(name, 0) + count
                self.added_s = now_s
        return made

    def growth(self, view: RoundView) -> ScaleUp:
        """Return how groups would grow now, and why nothing is added for the other pods that fit nowhere.

        Times for which new pods wait are taken as over.
        """
        with view.packed.trial():
            made = self._up(view, self._waiting(view, inf))
        if self._is_full(view):
            made.reasons = {uid: {"": (_FULL,)} for uid in made.reasons}
        cutoff = self.flags.expendable_pods_priority_cutoff
        for pod in view.waiting:
            if (priority := pod.spec.priority or 0) < cutoff:
                why = f"priority {priority} is below the cutoff of {cutoff} (--expendable-pods-priority-cutoff)"
                made.reasons[pod.metadata.uid] = {"": (why,)}
        return made

    def _waiting(self, view: RoundView, now_s: float) -> list[Pod]:
        """Return the pods that nodes may be added for, after nodes that are coming and pods that fit have their places."""
        for name, count in view.upcoming.items():
            template = view.by_name[name].template
            for at in range(count):
                one = template.copy(f"{template.node.name}-upcoming-{at}")
                view.packed.add(one.node, one.pods)
        return self._unhelped(view, now_s)

    def _is_full(self, view: RoundView) -> bool:
        """Return True if the cluster has as many ready nodes as --max-nodes-total allows."""
        most = self.flags.max_nodes_total
        return bool(most) and sum(node.is_ready and not node.spec.unschedulable for node in view.nodes) >= most

    def _up(self, view: RoundView, waiting: Sequence[Pod]) -> ScaleUp:
        if not waiting:
            return ScaleUp()
        if self._is_full(view):
            return ScaleUp(reasons={pod.metadata.uid: {} for pod in waiting})
        return scale_up(view.packed, view.groups, waiting, self.flags, self.expander, self._random)

    def _unhelped(self, view: RoundView, now_s: float) -> list[Pod]:
        """Return the pods that fit on no node that exists or is coming, and that nodes may be added for.

        The others are placed. Pods of nodes that are drained need a place, too.
        """
        cutoff = self.flags.expendable_pods_priority_cutoff
        waiting = [pod for pod in view.waiting if (pod.spec.priority or 0) >= cutoff]
        for name in sorted(self.leaving_drained & {*view.packed.order}):
            moving = (pod for pod in view.packed.pods(name) if not is_daemon_pod(pod) and not is_mirror(pod))
            waiting += [_again(pod) for pod in moving if pod.metadata.deletion_timestamp is None]
        waiting.sort(key=lambda pod: -(pod.spec.priority or 0))
        found = self._packer.pack(view.packed, waiting, {*view.packed.order}) if waiting else {}
        self._packer.forget_old()
        return [
            pod for pod in waiting
            if pod.metadata.uid not in found and not is_daemon_pod(pod) and now_s - _born_s(view, pod) > self._delay_s(pod)
        ]  # fmt: skip

    def _delay_s(self, pod: Pod) -> float:
        try:
            return max(duration_seconds(pod.metadata.annotations.get(_DELAY, "0")), self.flags.new_pod_scale_up_delay)
        except DurationError:
            return self.flags.new_pod_scale_up_delay

    def _scale_down(self, view: RoundView, made: Round, now_s: float, *, held: bool) -> None:
        leaving = self.leaving_empty | self.leaving_drained
        self.planner.update(view, leaving, now_s)
        if held or self.in_cooldown(now_s) or not self.planner.unneeded:
            return
        empty, drains = self.planner.removable(view, leaving, now_s)
        made.empty, made.drains = cropped(
            empty, drains, view.group_of, self.flags, len(self.leaving_empty), len(self.leaving_drained)
        )
        self.leaving_empty |= {one.name for one in made.empty}
        self.leaving_drained |= {one.name for one in made.drains}
        if made.empty or made.drains:
            self.deleted_s = now_s

    def gone(self, name: str) -> None:
        """Note that a node was deleted."""
        self.leaving_empty.discard(name)
        self.leaving_drained.discard(name)


def _born_s(view: RoundView, pod: Pod) -> float:
    known = view.born_s.get(pod.metadata.uid)
    return known if known is not None else seconds(pod.metadata.creation_timestamp) or -inf


def _again(pod: Pod) -> Pod:
    """Return the pod that a controller would create for one that is evicted."""
    meta = pod.metadata.replace(name=f"{pod.name}-again", uid=f"{pod.metadata.uid}{AGAIN}")
    return unplaced(pod).replace(metadata=meta)
