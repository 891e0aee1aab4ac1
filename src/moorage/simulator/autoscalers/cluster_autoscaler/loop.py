"""``AutoscalerLoop``: what one round of cluster-autoscaler does: scale up for pods that wait, remove unneeded nodes.

A round works on a ``PackingSnapshot``, which it leaves as it was, and only says what is to be done.

Source  cluster-autoscaler at 87d9c45c02^, core/static_autoscaler.go, core/podlistprocessor
"""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from math import inf
from random import Random
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.durations import DurationError, duration_seconds
from moorage.cluster.controllers.machinery.object_fields import seconds
from moorage.simulator.autoscalers.cluster_autoscaler.drain_rules import Replicas, is_daemon_pod, is_ready
from moorage.simulator.autoscalers.cluster_autoscaler.flags import AutoscalerFlags, read_expander
from moorage.simulator.autoscalers.cluster_autoscaler.packing import AGAIN, Packer, unplaced
from moorage.simulator.autoscalers.cluster_autoscaler.scale_down import NodeRemoval, ScaleDownPlanner, cropped
from moorage.simulator.autoscalers.cluster_autoscaler.scale_up import RoundView, ScaleUp, least_sizes, scale_up
from moorage.simulator.owners import is_mirror

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
        made, packed, nodes, most = Round(), view.packed, view.nodes, self.flags.max_nodes_total
        unready = sum(not is_ready(node) for node in nodes)
        if unready > _UNREADY and unready > _UNREADY_SHARE * len(nodes):
            self.planner.unneeded = {}
            return made
        with packed.trial():
            for name, count in view.upcoming.items():
                template = view.by_name[name].template
                for at in range(count):
                    one = template.copy(f"{template.node.name}-upcoming-{at}")
                    packed.add(one.node, one.pods)
            waiting = self._unhelped(view, now_s)
            waits_for_more = False
            ready = sum(is_ready(node) and not node.spec.unschedulable for node in nodes)
            if waiting and most and ready >= most:
                made.up.reasons = {pod.metadata.uid: {} for pod in waiting}
            elif waiting:
                waits_for_more = all(_born_s(view, pod) + _NEW_S > now_s for pod in waiting)
                if not waits_for_more:
                    made.up = scale_up(packed, view.groups, waiting, self.flags, self.expander, self._random)
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
    meta = replace(pod.metadata, name=f"{pod.name}-again", uid=f"{pod.metadata.uid}{AGAIN}")
    return replace(unplaced(pod), metadata=meta)
