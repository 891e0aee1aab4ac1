"""What is certain about a loss of nodes without a run: which pending pods it cannot help, and that all its pods find nodes.

A loss takes nodes and moves their pods, m of them, to others. If the verdict of a node on a pod depends on that node and its
pods alone, a pod finds a node whenever m others accept it now: its m - 1 companions take at most m - 1 of them. The same holds
for a pod with required topology spread, if its constraints count none of its companions: then nothing but its own departure
changes the counts, and nodes that are gone can only raise the least of them. What becomes of such a loss follows by sums.

All this is for the default plugins and configuration, without extenders and pod groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from moorage.api.core import Pod, Volume
from moorage.api.storage import PersistentVolumeClaim
from moorage.core.cycle.decision import Feasible
from moorage.core.engine.facts import Gone
from moorage.framework.plugin_runner import run_pre_filter
from moorage.laboratory.survive.failures import NodeFailures, replacement_of
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.dry_run import known_feasible
from moorage.laboratory.trial.history import Told
from moorage.plugins.affinity.affinity_counts import AffinityCounts
from moorage.plugins.spread.spread_counts import Spread
from moorage.report.survival_report import NodeLoss
from moorage.state.pod_info import PodInfo
from moorage.state.pod_volumes import claims_used

_HOSTNAME: Final = "kubernetes.io/hostname"
_UNSCHEDULABLE: Final = frozenset(["", "node.kubernetes.io/unschedulable"])
_SPREAD: Final = "PodTopologySpread"
#: Plugins that look beyond a node and its pods only for claims that are not bound.
_OF_CLAIMS: Final = frozenset(["NodeVolumeLimits", "VolumeBinding", "VolumeRestrictions", "VolumeZone"])


def helpless_pods(cluster: AskedCluster) -> list[Pod]:
    """Return the pending pods that a loss cannot help and that cannot change its outcome, unless it preempts pods."""
    if not _is_default(cluster):
        return []
    nomination = cluster.simulation.scheduler.queue.nomination
    return [pod for pod in cluster.simulation.pending_pods() if nomination(pod.uid) is None and _is_helpless(cluster, pod)]


def frees_zones(pods: Sequence[Pod]) -> bool:
    """Return whether one of these pods keeps others off more than its own node, which it may no longer do elsewhere."""
    return any(term.topology_key != _HOSTNAME for pod in pods for term in PodInfo(pod).required_anti_affinity)


def _is_default(cluster: AskedCluster) -> bool:
    options, scheduler = cluster.options, cluster.simulation.scheduler
    if options.config is not None or options.plugins or options.provider or cluster._history.config:
        return False
    return not scheduler.cycle.extenders and scheduler.cluster.groups is None


def _is_helpless(cluster: AskedCluster, pod: Pod) -> bool:
    """Return whether a pod that fits on no node, and not with preemption either, fits on none after a loss.

    That is so if it counts no other nodes, is gated, has a claim that is not there, or needs to be near pods that do not exist.
    """
    spec, info = pod.spec, PodInfo(pod)
    if spec.resource_claims or spec.scheduling_group:
        return False
    spreads = any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints)
    held = any(
        volume != Volume(name=volume.name, empty_dir=volume.empty_dir, host_path=volume.host_path) for volume in spec.volumes
    )
    if spec.scheduling_gates or not (spreads or held or info.required_affinity or info.required_anti_affinity):
        return True
    scheduler = cluster.simulation.scheduler
    profile = scheduler.profiles.get(info.spec.scheduler_name)
    found = None if profile is None else run_pre_filter(profile, info, scheduler.snapshot)
    if found is None:
        return False
    if found.refused is not None:
        return found.refused.plugin == "VolumeBinding" or all(why.endswith("not found") for why in found.refused.reasons)
    near = found.states.get("InterPodAffinity")
    if not isinstance(near, AffinityCounts) or not near.affinity or near.matches_itself:
        return False
    terms = [term.match for term in near.affinity]
    pods = cluster.simulation.pods.values()
    return not any(all(term.matches(one.namespace, one.labels) for term in terms) for one in pods)


@dataclass
class CertainLosses:
    """Finds losses of a cluster at rest after which every pod certainly has a node. It holds for the present state only."""

    cluster: AskedCluster
    failures: NodeFailures

    def __post_init__(self) -> None:
        waiting = {pod.uid for pod in self.cluster.simulation.pending_pods()} - {pod.uid for pod in helpless_pods(self.cluster)}
        nominated = any(self.cluster.simulation.scheduler.queue.nominated.values())
        self._works = _is_default(self.cluster) and not waiting and not nominated
        #: The rows that accept a pod, by its shape, and their number.
        self._known: dict[bytes, Feasible | None] = {}

    def loss(self, lost: str, nodes: Sequence[str]) -> NodeLoss | int:
        """Return the outcome of a loss in which all pods certainly find nodes.

        If it takes a run to know: at most 0, and the less the likelier it is that a pod stays pending.
        """
        if not self._works:
            return 0
        held = self.failures.pods_of(nodes)
        made = [(pod, fresh) for pod in held if (fresh := replacement_of(pod)) is not None]
        scheduler = self.cluster.simulation.scheduler
        if frees_zones(held) or any(fresh.spec.scheduler_name not in scheduler.profiles for _, fresh in made):
            return 0
        closed = np.array([scheduler.cluster.table.row_of[name] for name in nodes], dtype=np.intp)
        spare = 0
        for pod, fresh in made:
            known = self._accepting(pod, fresh, made)
            accepting = None if known is None else known.number - int(np.count_nonzero(known.rows[closed]))
            spare = min(spare, -1 if accepting is None else accepting - len(made))
        return spare or self.failures.without_harm(lost, nodes, [fresh for _, fresh in made])

    def _accepting(self, pod: Pod, fresh: Pod, made: Sequence[tuple[Pod, Pod]]) -> Feasible | None:
        """Return the rows that accept a pod whatever its companions do; None if that is not known."""
        spec, info = fresh.spec, PodInfo(fresh)
        if spec.resource_claims or spec.scheduling_group or spec.scheduling_gates or not self._claims_are_bound(fresh):
            return None
        if self.failures.has_cordoned and any(one.key in _UNSCHEDULABLE for one in spec.tolerations):
            return None  # the free amounts afterwards are those of nodes that are not cordoned
        known = self._feasible(info)
        others = None if known is None or known.beside is None else known.beside - _OF_CLAIMS
        if known is None or not others:
            return known if others is not None else None
        if others != {_SPREAD} or not _counts_no_companion(known.found.states.get(_SPREAD), fresh, made):
            return None
        with self.cluster.transaction():
            self.cluster._step(Told((Gone(pod),)))
            return self._asked(info)

    def _feasible(self, pod: PodInfo) -> Feasible | None:
        if pod.spec.volumes:  # hardly two pods are alike
            return self._asked(pod)
        shape = pod.shape()
        if shape not in self._known:
            self._known[shape] = self._asked(pod)
        return self._known[shape]

    def _asked(self, pod: PodInfo) -> Feasible | None:
        scheduler = self.cluster.simulation.scheduler
        return known_feasible(scheduler, scheduler.cycle, pod, scheduler.profiles[pod.spec.scheduler_name])

    def _claims_are_bound(self, pod: Pod) -> bool:
        claims = self.cluster.simulation.scheduler.cluster.objects(PersistentVolumeClaim)
        held = ((use, claims.get(use.key)) for use in claims_used(pod))
        return all(not use.ephemeral and claim is not None and claim.spec.volume_name for use, claim in held)


def _counts_no_companion(spreads: object, pod: Pod, made: Sequence[tuple[Pod, Pod]]) -> bool:
    """Return whether required constraints count none of the other pods that move, and ask for no number of domains."""
    if not isinstance(spreads, Sequence) or not all(isinstance(one, Spread) for one in spreads):
        return False
    others = [fresh for _, fresh in made if fresh is not pod and fresh.namespace == pod.namespace]
    return not any(
        spread.constraint.min_domains > 1 or any(spread.constraint.selector.matches(other.labels) for other in others)
        for spread in spreads
    )
