"""``AutoscalerLoop``: what one round of cluster-autoscaler does: scale up for pods that wait, remove unneeded nodes.

A round works on a ``PackingSnapshot``, which it leaves as it was, and only says what is to be done.

Source  cluster-autoscaler at 87d9c45c02^, core/static_autoscaler.go, core/podlistprocessor
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as grown_by
from datetime import datetime
from math import inf
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.api.durations import DurationError, duration_seconds
from moorage.api.workloads import PodDisruptionBudget
from moorage.simulator.autoscalers.cluster_autoscaler.drain_rules import is_daemon_pod
from moorage.simulator.autoscalers.cluster_autoscaler.expanders import Expander
from moorage.simulator.autoscalers.cluster_autoscaler.packing import AGAIN, Packer, PackingSnapshot, unplaced
from moorage.simulator.autoscalers.cluster_autoscaler.scale_down import NodeRemoval, ScaleDownPlanner, cropped, is_ready
from moorage.simulator.autoscalers.cluster_autoscaler.scale_up import GroupSize, ScaleUp, ScaleUpFlags, least_sizes, scale_up
from moorage.simulator.owners import is_mirror

__all__ = ["AutoscalerLoop", "LoopFlags", "Round", "RoundView"]

_DELAY: Final = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
#: Younger pods are not yet a reason to scale up, unless older ones wait, too.
_NEW_S: Final = 2.0
#: A cluster with more unready nodes, and a larger share of them, is left alone.
_UNREADY, _UNREADY_SHARE = 3, 0.45


class LoopFlags(Struct, frozen=True, kw_only=True):
    """Flags of cluster-autoscaler, with its defaults. Times are in seconds.

    ``scan_s``               --scan-interval
    ``after_add_s``          --scale-down-delay-after-add
    ``after_delete_s``       --scale-down-delay-after-delete
    ``young_s``              --new-pod-scale-up-delay
    ``scale_down``           --scale-down-enabled
    """

    scan_s: float = 10.0
    after_add_s: float = 600.0
    after_delete_s: float = 0.0
    young_s: float = 0.0
    scale_down: bool = True


@dataclass
class RoundView:
    """The cluster of a round.

    ``packed``    all nodes, with the pods that are placed on them or nominated for them
    ``waiting``   pods that the scheduler found no node for; ``born_s``: their creation by UID
    ``upcoming``  by group, nodes that were ordered and are not ready
    """

    packed: PackingSnapshot
    nodes: Sequence[Node]
    waiting: Sequence[Pod]
    groups: Sequence[GroupSize]
    group_of: Mapping[str, str]
    budgets: Sequence[PodDisruptionBudget] = ()
    upcoming: Mapping[str, int] = field(default_factory=dict)
    born_s: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Round:
    """What is to be done: nodes to add by group, empty nodes to remove, nodes to drain and remove."""

    up: ScaleUp = field(default_factory=ScaleUp)
    more: dict[str, int] = field(default_factory=dict)
    empty: list[NodeRemoval] = field(default_factory=list)
    drains: list[NodeRemoval] = field(default_factory=list)


class AutoscalerLoop:
    """See the module's description. It remembers what rounds before did."""

    def __init__(
        self, expander: Expander, random: Random, *, planner: ScaleDownPlanner | None = None,
        up: ScaleUpFlags | None = None, flags: LoopFlags | None = None,
    ) -> None:  # fmt: skip
        self.planner = planner if planner is not None else ScaleDownPlanner()
        self.up = up if up is not None else ScaleUpFlags()
        self.flags = flags if flags is not None else LoopFlags()
        self._expander, self._random = expander, random
        self._packer = Packer()
        self.added_s = self.deleted_s = -inf
        #: Nodes that are being deleted: empty ones, and those that are drained.
        self.leaving_empty: set[str] = set()
        self.leaving_drained: set[str] = set()

    def in_cooldown(self, now_s: float) -> bool:
        """Return True while no node is removed because one was added or removed before."""
        flags = self.flags
        return self.added_s + flags.after_add_s > now_s or self.deleted_s + flags.after_delete_s > now_s

    def run_once(self, view: RoundView, now_s: float) -> Round:
        """Return what a round does at a time, in Unix seconds or from the beginning of a simulation."""
        made = Round()
        packed, nodes = view.packed, view.nodes
        unready = sum(not is_ready(node) for node in nodes)
        if unready > _UNREADY and unready > _UNREADY_SHARE * len(nodes):
            self.planner.unneeded = {}
            return made
        packed.fork()
        try:
            templates = {group.name: group.template for group in view.groups}
            for name, count in view.upcoming.items():
                for at in range(count):
                    one = templates[name].copy(f"{templates[name].node.name}-upcoming-{at}")
                    packed.add(one.node, one.pods)
            waiting = self._unhelped(view, now_s)
            waits_for_more = False
            ready = sum(is_ready(node) and not node.spec.unschedulable for node in nodes)
            if waiting and self.up.most_nodes and ready >= self.up.most_nodes:
                made.up.reasons = {pod.metadata.uid: {} for pod in waiting}
            elif waiting:
                waits_for_more = all(self._born_s(view, pod) + _NEW_S > now_s for pod in waiting)
                if not waits_for_more:
                    made.up = scale_up(packed, view.groups, waiting, self.up, self._expander, self._random)
                    made.more = dict(made.up.more)
            if made.more:
                self.added_s = now_s
            grown = {one.name: grown_by(one, target=one.target + made.more.get(one.name, 0)) for one in view.groups}
            if self.flags.scale_down:
                self._scale_down(view, grown, made, now_s, held=waits_for_more)
        finally:
            packed.revert()
        if self.up.enforce_least:
            for name, count in least_sizes(grown.values(), nodes, self.up).items():
                made.more[name] = made.more.get(name, 0) + count
                self.added_s = now_s
        return made

    def _unhelped(self, view: RoundView, now_s: float) -> list[Pod]:
        """Return the pods that fit on no node that exists or is coming, and that nodes may be added for.

        The others are placed. Pods of nodes that are drained need a place, too.
        """
        waiting = [pod for pod in view.waiting if (pod.spec.priority or 0) >= self.up.cutoff]
        for name in sorted(self.leaving_drained & {*view.packed.order}):
            waiting += [_again(pod) for pod in view.packed.pods(name) if _is_recreated(pod)]
        waiting.sort(key=lambda pod: -(pod.spec.priority or 0))
        found = self._packer.pack(view.packed, waiting, {*view.packed.order}) if waiting else {}
        self._packer.forget_old()
        return [
            pod for pod in waiting
            if pod.metadata.uid not in found and not is_daemon_pod(pod)
            and now_s - self._born_s(view, pod) > self._delay_s(pod)
        ]  # fmt: skip

    def _born_s(self, view: RoundView, pod: Pod) -> float:
        known = view.born_s.get(pod.metadata.uid)
        if known is not None:
            return known
        born = pod.metadata.creation_timestamp
        return datetime.fromisoformat(born).timestamp() if born else -inf

    def _delay_s(self, pod: Pod) -> float:
        try:
            return max(duration_seconds(pod.metadata.annotations.get(_DELAY, "0")), self.flags.young_s)
        except DurationError:
            return self.flags.young_s

    def _scale_down(self, view: RoundView, groups: Mapping[str, GroupSize], made: Round, now_s: float, *, held: bool) -> None:
        leaving = self.leaving_empty | self.leaving_drained
        self.planner.update(view.packed, view.nodes, groups, view.group_of, view.budgets, leaving, now_s)
        if held or self.in_cooldown(now_s) or not self.planner.unneeded:
            return
        empty, drains = self.planner.removable(view.packed, groups, view.group_of, leaving, self.up, now_s)
        made.empty, made.drains = cropped(
            empty, drains, view.group_of, self.planner.flags, len(self.leaving_empty), len(self.leaving_drained)
        )
        self.leaving_empty |= {one.name for one in made.empty}
        self.leaving_drained |= {one.name for one in made.drains}
        if made.empty or made.drains:
            self.deleted_s = now_s

    def gone(self, name: str) -> None:
        """Note that a node was deleted."""
        self.leaving_empty.discard(name)
        self.leaving_drained.discard(name)


def _is_recreated(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and not is_daemon_pod(pod) and not is_mirror(pod)


def _again(pod: Pod) -> Pod:
    """Return the pod that a controller would create for one that is evicted."""
    meta = replace(pod.metadata, name=f"{pod.name}-again", uid=f"{pod.metadata.uid}{AGAIN}")
    return replace(unplaced(pod), metadata=meta)
