"""Compute the loss of each node, each zone, or each domain of a label, each in a transaction, and whether it is survived.

Pending pods are placed before. A loss is survived if no pod is pending afterwards that was not before. Of equal nodes, one loss
is computed. Of many losses, only those are run whose outcome is not certain without (``certain_losses``); those come first that
are the likeliest to leave pods pending, in case the budget ends early.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from multiprocessing import TimeoutError as NotReadyError
from multiprocessing import get_context
from typing import Final, NamedTuple

from msgspec.structs import replace

from moorage.api.core import Node, NodeSelectorTerm, Pod
from moorage.api.packing import pack
from moorage.api.storage import PersistentVolume
from moorage.basis.ending import begin_worker
from moorage.basis.printable import close_to, one_line, some
from moorage.core.engine.facts import Gone
from moorage.errors import InputError
from moorage.laboratory.budget import POLL_S, BudgetSpentError, TimeBudget, results_of
from moorage.laboratory.survive.certain_losses import CertainLosses, frees_zones, helpless_pods
from moorage.laboratory.survive.failures import NodeFailures
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.history import Ran, Told
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.laboratory.trial.workers import kept, workers_of
from moorage.report.survival_report import NodeLoss
from moorage.simulator.owners import controller_of
from moorage.simulator.replacements import REPLACING_ELSEWHERE, replacement

# Nodes whose loss has the same consequences apart from names: of several such nodes, only one loss is computed.
#
# Two nodes are equal if they have the same labels (except those with their own name), taints, amounts and images, and pods of
# the same shapes, and if no node selector, affinity or volume in the cluster names one of them. Pods of a StatefulSet and
# pods with claims are never equal to others. kube-scheduler may still break ties differently.

_encode: Final = partial(pack, ordered=True)
#: Labels to which controllers give a different value on each pod.
_OWN_LABELS: Final = frozenset(["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"])


def twins_of(simulation: RecordedSimulation, on_node: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return for each node, by name, the name of the first node that is equal to it."""
    table = simulation.scheduler.cluster.table
    named = _named(simulation)
    first: dict[bytes, str] = {}
    found: dict[str, str] = {}
    shapes: dict[str, bytes | None] = {}
    for node in table.nodes:
        key = None if node.name in named else _key(node, [simulation.pods[uid] for uid in on_node.get(node.name, ())], shapes)
        found[node.name] = node.name if key is None else first.setdefault(key, node.name)
    return found


def _key(node: Node, pods: Iterable[Pod], shapes: dict[str, bytes | None]) -> bytes | None:
    """Return a key that is the same for equal nodes; None for a node that is equal to no other."""
    held = []
    for pod in pods:
        if pod.uid not in shapes:
            shapes[pod.uid] = pod_shape(pod)
        shape = shapes[pod.uid]
        if shape is None:
            return None
        held.append(shape)
    labels = {key: value for key, value in node.labels.items() if value != node.name}
    status = node.status
    return _encode(
        [labels, node.spec.taints, node.spec.unschedulable, status.allocatable, status.images, status.declared_features,
         sorted(held)]
    )  # fmt: skip


def pod_shape(pod: Pod) -> bytes | None:
    """Return a key that is the same for interchangeable pods; None for a pod that has claims or an identity of its own."""
    owner = controller_of(pod.metadata)
    if (owner is not None and owner.kind == "StatefulSet") or _OWN_LABELS & pod.labels.keys():
        return None
    spec = pod.spec
    if spec.resource_claims or any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        return None
    about = (owner.kind, owner.uid or owner.name) if owner is not None else None
    leaving = pod.metadata.deletion_timestamp is not None
    return _encode([pod.namespace, pod.labels, about, leaving, pod.status.phase, spec.replace(node_name="")])


def _named(simulation: RecordedSimulation) -> set[str]:
    """Return the names, and all other values, by which pods and volumes select nodes."""
    found: set[str] = set()
    seen: set[int] = set()
    for pod in simulation.pods.values():
        found.update(pod.spec.node_selector.values())
        affinity = pod.spec.affinity
        if affinity is None or affinity.node_affinity is None or id(affinity) in seen:
            continue
        seen.add(id(affinity))
        wanted = affinity.node_affinity
        required = wanted.required_during_scheduling_ignored_during_execution
        terms = list(required.node_selector_terms) if required is not None else []
        terms += [one.preference for one in wanted.preferred_during_scheduling_ignored_during_execution]
        found.update(_values(terms))
    for volume in simulation.scheduler.cluster.objects(PersistentVolume).values():
        if volume.spec.node_affinity is not None and volume.spec.node_affinity.required is not None:
            found.update(_values(volume.spec.node_affinity.required.node_selector_terms))
    return found


def _values(terms: Iterable[NodeSelectorTerm]) -> Iterable[str]:
    for term in terms:
        for one in (*term.match_expressions, *term.match_fields):
            yield from one.values


ZONE: Final = "topology.kubernetes.io/zone"
#: Up to so many losses are all run; of more, those are not whose outcome is certain without.
ALL_RUN: Final = 500
#: How many losses are computed before it is known how often helpless pods matter.
_FIRST: Final = 8
_HOSTNAME: Final = "kubernetes.io/hostname"
_OLD_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"


class FailureDomain(NamedTuple):
    """A set of nodes that are lost together."""

    name: str
    nodes: tuple[str, ...]


class Losses(NamedTuple):
    """The losses in order, how many were computed, the nodes that are in no domain, and how many losses there are in all.

    ``unknown``  the domains whose own loss was not computed
    """

    all: tuple[NodeLoss, ...]
    computed: int
    without: tuple[str, ...] = ()
    of: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def survived(self) -> bool | None:
        """Whether all losses are survived; None if some were not computed, and all others are survived."""
        if any(loss.pending or loss.stuck for loss in self.all):
            return False
        return True if self.is_complete else None

    @property
    def is_complete(self) -> bool:
        return len(self.all) == self.of


def failure_domains(nodes: Sequence[Node], over: str) -> tuple[list[FailureDomain], list[str]]:
    """Return the domains of ``node``, ``zone`` or a label, and the nodes that are in none.

    Raises  InputError if there is no domain
    """
    if over == "node":
        return [FailureDomain(node.name, (node.name,)) for node in nodes], []
    found: dict[str, list[str]] = {}
    without: list[str] = []
    for node in nodes:
        value = node.labels.get(ZONE if over == "zone" else over, "") or (
            node.labels.get(_OLD_ZONE, "") if over == "zone" else ""
        )
        if value:
            found.setdefault(value, []).append(node.name)
        else:
            without.append(node.name)
    if not found:
        wanted = ZONE if over == "zone" else over
        keys = sorted({key for node in nodes for key in node.labels})
        ends = {key.rpartition("/")[2]: key for key in keys}
        close = close_to(wanted, {**ends, **{key: key for key in keys}, "node": "node", "zone": "zone"})
        have = "" if close else f"; nodes have {some(keys)}" if keys else "; nodes have no labels"
        raise InputError(one_line(f"no node has the label {wanted}{close}{have}"))
    return [FailureDomain(value, tuple(found[value])) for value in sorted(found)], without


@dataclass
class SurvivalRun:
    """Losses of one cluster, in an open transaction. ``on_loss`` is called with every loss that was computed.

    ``processes``  compute losses in so many forked processes; ``executor``: or on its workers, which get a copy of the cluster
    ``budget``     ends the losses, and other runs, when it is spent
    """

    cluster: AskedCluster
    over: str = "node"
    depth: int = 1
    on_loss: Callable[[NodeLoss], None] | None = None
    processes: int = 1
    executor: Executor | None = None
    budget: TimeBudget = field(default_factory=TimeBudget)
    #: The number of losses that were run, and of those that are certain without a run.
    computed: int = field(default=0, init=False)
    certain: int = field(default=0, init=False)

    def rest(self) -> None:
        """Let time pass until no more pending pods are placed."""
        self.cluster._step(Ran(None))

    def losses(self) -> Losses:
        """Compute every loss; the cluster is at rest."""
        failures = NodeFailures(self.cluster)
        domains, without = failure_domains(self.cluster.simulation.nodes_in_order(), self.over)
        began = self.computed
        single = list(self._single(failures, domains))
        pairs = list(self._pairs(failures, domains)) if self.depth > 1 else []
        of = len(domains) * (len(domains) + 1) // 2 if self.depth > 1 else len(domains)
        known = {loss.lost for loss in single}
        unknown = tuple(domain.name for domain in domains if domain.name not in known)
        return Losses((*single, *pairs), self.computed - began, tuple(without), of, unknown)

    def first_failed(self, order: Sequence[str] = ()) -> NodeLoss | None:
        """Return the first loss that is not survived, trying the named ones before all others; None if all are survived.

        Raises  BudgetSpentError
        """
        failures = NodeFailures(self.cluster)
        domains, _ = failure_domains(self.cluster.simulation.nodes_in_order(), self.over)
        turn = {name: at for at, name in enumerate(order)}
        twins = self._twins(failures)
        done: set[str] = set()
        known = CertainLosses(self.cluster, failures) if len(domains) > ALL_RUN else None
        for domain in self._with_pairs(sorted(domains, key=lambda one: turn.get(one.name, len(turn)))):
            representative = twins.get(domain.name, domain.name)
            if representative in done:
                continue
            done.add(representative)
            self.budget.check()
            if known is not None and isinstance(known.loss(domain.name, domain.nodes), NodeLoss):
                continue
            with self.cluster.within(self.budget):
                loss = self._noted(self._lose(failures, domain))
            if loss.pending or loss.stuck:
                return loss
        return None

    def _with_pairs(self, domains: Sequence[FailureDomain]) -> Iterator[FailureDomain]:
        yield from domains
        if self.depth > 1:
            yield from (_joined(*pair) for pair in combinations(domains, 2))

    def _twins(self, failures: NodeFailures) -> dict[str, str]:
        if self.over != "node":
            return {}
        return twins_of(self.cluster.simulation, failures.on_node)

    def _single(self, failures: NodeFailures, domains: Sequence[FailureDomain]) -> Iterator[NodeLoss]:
        twins = self._twins(failures)
        first = [domain for domain in domains if twins.get(domain.name, domain.name) == domain.name]
        known = {loss.lost: loss for loss in self._computed(failures, first)}
        for domain in domains:
            loss, like = known.get(domain.name), known.get(twins.get(domain.name, domain.name))
            if like is not None:
                yield _as_twin(failures, like, domain.name) if loss is None else loss

    def _pairs(self, failures: NodeFailures, domains: Sequence[FailureDomain]) -> Iterator[NodeLoss]:
        pairs = [_joined(*pair) for pair in combinations(domains, 2)]
        known = {loss.lost: loss for loss in self._computed(failures, pairs)}
        return (known[pair.name] for pair in pairs if pair.name in known)

    def _without_run(
        self, failures: NodeFailures, domains: Sequence[FailureDomain]
    ) -> tuple[list[NodeLoss], list[FailureDomain]]:
        """Return the losses of many that are certain without a run, and the domains of the others, the likeliest to hurt first.

        Those are the ones with a pod that too few nodes accept now; among equals, the ones with the most used cpu.
        """
        table = self.cluster.simulation.scheduler.cluster.table
        used = table.requested("cpu").view
        known = CertainLosses(self.cluster, failures) if len(domains) > ALL_RUN else None
        found, left = list[NodeLoss](), list[tuple[int, int, FailureDomain]]()
        half_s = self.budget.left_s / 2  # the other half is for the runs of those that may hurt
        for domain in domains:
            late = known is None or self.budget.is_over() or self.budget.left_s < half_s
            loss = 0 if late or known is None else known.loss(domain.name, domain.nodes)
            if isinstance(loss, NodeLoss):
                found.append(self._noted(loss, ran=False))
            else:
                left.append((loss, -sum(int(used[table.row_of[name]]) for name in domain.nodes), domain))
        return found, [domain for *_, domain in sorted(left, key=lambda one: one[:2])]

    def _computed(self, failures: NodeFailures, domains: Sequence[FailureDomain]) -> Iterator[NodeLoss]:
        """Compute losses until the budget is spent, without the pending pods that no loss can help.

        A loss in which they may matter after all, because pods were preempted, is computed again with them.
        """
        certain, left = self._without_run(failures, domains)
        yield from certain
        helpless, size = helpless_pods(self.cluster), _FIRST
        while left:
            some, left = (left[:size], left[size:]) if helpless else (left, [])
            again = [domain for domain in some if helpless and frees_zones(failures.pods_of(domain.nodes))]
            set_aside = {domain.name for domain in again}
            named = {domain.name: domain for domain in some if domain.name not in set_aside}
            with self.cluster.transaction():
                self.cluster._step(Told(tuple(map(Gone, helpless))))
                for loss in self._each(failures, list(named.values())):
                    if helpless and loss.preempted:
                        again.append(named[loss.lost])
                    else:
                        yield self._noted(loss)
            for loss in self._each(failures, again):
                yield self._noted(loss)
            size *= 4
            if 2 * len(again) > len(some):
                helpless = []

    def _each(self, failures: NodeFailures, domains: Sequence[FailureDomain]) -> Iterator[NodeLoss]:
        """Compute losses in order until the budget is spent; elsewhere or in several processes if asked for."""
        if self.executor is not None and len(domains) > 1:
            yield from self._spread(self.executor, domains)
            return
        if self.processes < 2 or len(domains) < 2 or not hasattr(os, "fork"):
            with suppress(BudgetSpentError):
                for domain in domains:
                    self.budget.check()
                    with self.cluster.within(self.budget):
                        loss = self._lose(failures, domain)
                    yield loss
            return
        _forked.append((self, failures, domains))
        try:
            with get_context("fork").Pool(min(self.processes, len(domains)), begin_worker, (os.getpid(),)) as pool:
                found = pool.imap(_lose_forked, range(len(domains)))
                for _ in domains:
                    ready: NodeLoss | None = None
                    while ready is None:
                        if self.budget.is_over():
                            return
                        with suppress(NotReadyError):
                            ready = found.next(timeout=POLL_S)
                    yield ready
        finally:
            _forked.pop()

    def _spread(self, executor: Executor, domains: Sequence[FailureDomain]) -> Iterator[NodeLoss]:
        cluster = pickle.dumps(self.cluster)
        size = max(1, len(domains) // (4 * workers_of(executor)))
        chunks = [tuple(domains[at : at + size]) for at in range(0, len(domains), size)]
        waiting = [executor.submit(_lose_elsewhere, cluster, chunk) for chunk in chunks]
        for losses in results_of(waiting, self.budget):
            yield from losses

    def _lose(self, failures: NodeFailures, domain: FailureDomain) -> NodeLoss:
        with self.cluster.transaction():
            return failures.lose(domain.name, domain.nodes)

    def _noted(self, loss: NodeLoss, *, ran: bool = True) -> NodeLoss:
        self.computed += ran
        self.certain += not ran
        if self.on_loss is not None:
            self.on_loss(loss)
        return loss


#: The run whose losses forked processes compute; they inherit it from their parent.
_forked: list[tuple[SurvivalRun, NodeFailures, Sequence[FailureDomain]]] = []


def _lose_forked(at: int) -> NodeLoss:
    run, failures, domains = _forked[-1]
    return run._lose(failures, domains[at])


def _lose_elsewhere(data: bytes, domains: Sequence[FailureDomain]) -> list[NodeLoss]:
    """Compute losses in a worker, which keeps the cluster of its last call."""
    cluster: AskedCluster = kept(data)
    run = SurvivalRun(cluster)
    failures = NodeFailures(cluster)
    return [run._lose(failures, domain) for domain in domains]


def _joined(first: FailureDomain, second: FailureDomain) -> FailureDomain:
    return FailureDomain(f"{first.name} + {second.name}", (*first.nodes, *second.nodes))


def _as_twin(failures: NodeFailures, loss: NodeLoss, node: str) -> NodeLoss:
    """Return the loss of a node that is equal to another: that of the other one, with the names of this node's pods."""
    mine, other = (sorted(failures.pods_of([name]), key=lambda pod: pod_shape(pod) or b"") for name in (node, loss.lost))
    names = {theirs.key: ours.key for theirs, ours in zip(other, mine, strict=True)}
    names |= {_next_key(theirs): _next_key(ours) for theirs, ours in zip(other, mine, strict=True)}
    return replace(
        loss,
        lost=node,
        nodes=(node,),
        pending=tuple(names.get(key, key) for key in loss.pending),
        lost_for_good=tuple(names.get(key, key) for key in loss.lost_for_good),
        same_as=loss.lost,
    )


def _next_key(pod: Pod) -> str:
    fresh = replacement(pod, REPLACING_ELSEWHERE)
    return pod.key if fresh is None else fresh.key


def worst_of(losses: Sequence[NodeLoss], priorities: Callable[[str], int]) -> tuple[str, ...]:
    """Return the worst losses, with ties; empty if every loss is survived.

    Losses are compared by the number of pending pods of the highest priority class, then of the next classes, then by the
    number of all pending and stuck pods, then by the cpu that the pending ones request.
    """
    classes = sorted({name for loss in losses for name in loss.by_priority}, key=lambda name: (-priorities(name), name))

    def key(loss: NodeLoss) -> tuple[int, ...]:
        return (
            *(loss.by_priority.get(name, 0) for name in classes),
            len(loss.pending) + len(loss.stuck),
            loss.pending_cpu_milli,
        )

    bad = [loss for loss in losses if loss.pending or loss.stuck]
    most = max(map(key, bad), default=None)
    return tuple(loss.lost for loss in bad if key(loss) == most)
