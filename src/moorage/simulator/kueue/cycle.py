"""Admission: one cycle takes the head of every queue, finds flavors and victims, and admits in order.

The cycle works on one tree of quota. What an entry takes counts for the entries after it; quota that is only kept free, for a
workload that waits for its victims, is given back at the end of the cycle.

Source  Kueue, pkg/scheduler: scheduler.go, fair_sharing_iterator.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

from moorage.simulator.kueue.flavors import Assignment, Grade, Mode, assign_flavors, most_pods, placement_requests
from moorage.simulator.kueue.objects import ClusterQueue, Objects
from moorage.simulator.kueue.preemption import Asking, Victim, find_targets, possibility_of
from moorage.simulator.kueue.quota import ClusterQueueNode, QuotaNode
from moorage.simulator.kueue.replacement import NewPlacement, apply_replacements, find_replacements, needs_replacement
from moorage.simulator.kueue.settings import GATES, STRATEGIES, UsageRules
from moorage.simulator.kueue.topology import FreeNode, TopologyTree, Usage, add_usage, find_places
from moorage.simulator.kueue.topology_requests import PlacementRequest
from moorage.simulator.kueue.usage_ledger import UsageLedger
from moorage.simulator.kueue.waiting import FairOrder, QueueEntry, Requeue, Waiting, classical_order
from moorage.simulator.kueue.workloads import Amounts, Key, Workload

_WAITING: Final = "WaitingForQuota"
_OVERLAP: Final = "Workload has overlapping preemption targets with another workload"
_NOT_READY: Final = "waiting for all admitted workloads to be in PodsReady condition"
_PREEMPTING: Final = "WaitingForPreemptedWorkloads"
#: So often a search for flavors goes on from the same flavors while nothing changes: one that goes round would never end.
_MOST_ROUNDS: Final = 10
_WHY: Final = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}


Places = Mapping[str, Sequence[PlacementRequest]]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A workload that a cycle evicts, for whom, and by which rule."""

    workload: Workload
    preemptor: Workload
    reason: str


@dataclass(slots=True)
class CycleResult:
    """What a cycle decided, in the order of the decisions.

    ``replaced``  gangs that left a failed node; ``failed``: those that found no other
    ``placed``    workloads that have found their places in a topology after their checks; ``unplaced``: those that have not
    """

    heads: int = 0
    admitted: list[Workload] = field(default_factory=list)
    evicted: list[Eviction] = field(default_factory=list)
    replaced: list[Workload] = field(default_factory=list)
    failed: list[Workload] = field(default_factory=list)
    placed: list[Workload] = field(default_factory=list)
    unplaced: list[Workload] = field(default_factory=list)


class QueueAdmission:
    """Queues, quota and waiting workloads. Times are seconds, given by the caller."""

    def __init__(
        self, objects: Objects, *, fair: bool = False, strategies: Sequence[str] = STRATEGIES, usage: UsageRules | None = None,
        gates: frozenset[str] = GATES,
    ) -> None:  # fmt: skip
        self.objects = objects
        self.fair = fair
        self._gates = gates
        self._by_priority = "PrioritySortingWithinCohort" in gates
        self._strategies = strategies
        #: What LocalQueues used of late, if ClusterQueues may share by it.
        self.ledger = None if usage is None else UsageLedger(usage, objects.local_weights)
        for queue in objects.queues.values():
            queue.usage_of = self.ledger.usage if self.ledger is not None and queue.usage_based else None
        alike = "SchedulingEquivalenceHashing" in gates
        self.waiting = {
            name: Waiting(strict=queue.strict, usage=queue.usage_of, alike=alike) for name, queue in objects.queues.items()
        }
        #: Whether a search for flavors goes on where it stopped, also if what it found no longer fits in the end.
        self._goes_on = "FlavorFungibilityPreserveScanProgress" in gates
        self._lines = [(queue, self.waiting[name]) for name, queue in objects.queues.items()]
        self.cycles = 0
        #: Asked before a workload is admitted, with the number of those that this cycle admitted: whether it must wait.
        self.blocks: Callable[[int], bool] | None = None
        self._tried: set[str] = set()
        #: The time of the last cycle, and from which flavors searches went on then.
        self._begun: tuple[float, list[tuple[str, list[dict[str, int]]]]] = (0.0, [])
        #: The topologies of flavors, with the nodes that ``set_nodes`` told.
        self.trees: dict[str, TopologyTree] = {}
        self.set_nodes(())
        self._reserved: list[tuple[ClusterQueue, Amounts]] = []
        #: By queue the head that found nothing to preempt, and what its cycles keep free for it; see ``_to_reserve``.
        self.kept: dict[str, tuple[Workload, Amounts]] = {}
        #: The workloads that the cycle evicts, and what they leave in topologies.
        self._victims: dict[str, Victim] = {}
        self._nodes: list[QuotaNode] = [*objects.queues.values(), *objects.cohorts.values()]
        #: Workloads on failed nodes, which the next cycle moves.
        self._on_failed: list[Workload] = []
        #: Workloads with quota for which the next cycle finds places.
        self._to_place: dict[str, Workload] = {}
        self._vacated: dict[str, Usage] = {}
        self._notified: set[str] = set()

    # -- facts

    def add(self, workload: Workload, now: float) -> bool:
        """Queue a workload. Return False if its LocalQueue or ClusterQueue does not exist."""
        queue = self.objects.queue_of(workload.namespace, workload.queue_name)
        if queue is None or not workload.active:
            return False
        workload.cluster_queue = queue.name
        self._tried.discard(workload.key)
        self.waiting[queue.name].add(workload, now)
        return True

    def hold(self, workload: Workload) -> None:
        """Count a workload that already holds quota."""
        queue = self.objects.queues[workload.cluster_queue]
        queue.workloads[workload.key] = workload
        queue.changed()
        queue.add(workload.usage)
        if needs_replacement(workload):
            self._on_failed.append(workload)

    def place_later(self, workload: Workload) -> None:
        """Let the next cycle find the places of a workload that holds quota and has passed its checks."""
        self._to_place[workload.key] = workload

    def set_nodes(self, nodes: Iterable[FreeNode]) -> None:
        """Tell the nodes that take pods, and what pods leave free on them that have no place in a topology."""
        known, flavors = list(nodes), self.objects.flavors.values()
        self.trees = {
            one.name: TopologyTree(one.topology, self.objects.topologies[one.topology], one.tolerations)
            for one in flavors
            if one.topology in self.objects.topologies
        }
        for name, tree in self.trees.items():
            labels = self.objects.flavors[name].labels.items()
            for node in known:
                if labels <= node.labels.items() and all(level in node.labels for level in tree.levels):
                    tree.add_node(*node)

    def _count_places(self) -> None:
        """Count the pods of all workloads that hold quota; flavors with hosts as the lowest level share them."""
        for tree in self.trees.values():
            for leaf in tree.leaves.values():
                leaf.used.clear()
        for name, tree in self.trees.items():
            for other in [one for one in self.trees.values() if one.of_hosts] if tree.of_hosts else [tree]:
                for queue in self.objects.queues.values():
                    for workload in queue.workloads.values():
                        workload.take_places({name: other})

    def release(self, workload: Workload, *, comes_back: bool = False) -> None:
        """Take the quota of a workload that finished or was evicted, and note that others may fit now."""
        if self.ledger is not None:
            self.ledger.stop(workload, comes_back=comes_back)
        queue = self.objects.queues[workload.cluster_queue]
        if queue.workloads.pop(workload.key, None) is not None:
            queue.changed()
            queue.add(workload.usage, -1)
            queue.generation += 1
        workload.let_go()
        self._begun[1].clear()
        self._notified.add(queue.name)

    def shrink(self, workload: Workload, at: int, count: int) -> None:
        """Take the quota of pods that ended while others of their workload go on: ``count`` of pod set ``at`` are left."""
        queue = self.objects.queues[workload.cluster_queue]
        queue.add(workload.shrink(at, count), -1)
        queue.generation += 1
        self._notified.add(queue.name)

    def note_eviction(self, workload: Workload) -> None:
        """Note that a workload holds its quota only until its pods are gone. Kueue counts it again, as it is written."""
        workload.evicted = True
        queue = self.objects.queues[workload.cluster_queue]
        queue.generation += 1
        queue.changed()

    def requeue_evicted(self, workload: Workload, now: float) -> None:
        """Release the quota of an evicted workload whose pods are gone, and queue it again."""
        self.release(workload, comes_back=True)
        workload.wait("Pending", workload.conditions.get("Evicted", ("", "", "The workload waits for quota again"))[2])
        self.add(workload, now)

    def forget(self, workload: Workload) -> None:
        """Drop a workload that is gone."""
        if workload.cluster_queue in self.waiting:
            self.waiting[workload.cluster_queue].forget(workload.key)

    def wake(self, now: float) -> None:
        """Wake the inadmissible workloads in the trees of all queues where something changed."""
        self.try_again()
        for root in dict.fromkeys(self.objects.queues[name].root() for name in sorted(self._notified)):
            for queue in root.all_queues():
                self.waiting[queue.name].wake(now, partial(self.objects.accepts, queue.name), self.cycles)
        self._notified.clear()

    @property
    def runnable(self) -> bool:
        return bool(self._on_failed or self._to_place) or any(queue.active and waiting.active for queue, waiting in self._lines)

    def has_untried(self) -> bool:
        """Return whether a head was not tried since the last change, or has more flavors to try."""
        heads = (waiting.head() for queue, waiting in self._lines if waiting.active and queue.active)
        return bool(self._on_failed or self._to_place) or any(head is not None and self._is_untried(head) for head in heads)

    def _is_untried(self, head: Workload) -> bool:
        scan = head.scan
        goes_on = scan is not None and scan.pending and self._begun[1].count((head.key, scan.tried)) < _MOST_ROUNDS
        return goes_on or head.key not in self._tried

    def try_again(self) -> None:
        """Note that what was tried before may be admitted now."""
        self._tried.clear()
        self._begun[1].clear()

    def cycle(self, now: float) -> CycleResult:
        """Run one cycle over the heads of all queues."""
        self.cycles += 1
        if self.ledger is not None:
            self.ledger.advance(now)
            for queue in self.objects.queues.values():
                queue.changed()
        self._count_places()
        result = CycleResult()
        planned = [(one, find_replacements(one, self.trees)) for one in self._on_failed]
        entries = list(self._nominated(result, now))
        self._on_failed.clear()
        for one, found in planned:
            self._replace(one, found, result)
        nominal = "FairSharingPrioritizeNonBorrowing" in self._gates
        for entry in FairOrder(entries, nominal=nominal) if self.fair else sorted(entries, key=classical_order):
            self._process(entry, now, result)
        self._unreserve()
        for entry in entries:
            if entry.holds and not entry.admitted:
                result.unplaced.append(entry.workload)
            elif entry.admitted:
                entry.queue.workloads[entry.workload.key] = entry.workload
                entry.queue.changed()
                if self.ledger is not None and entry.queue.usage_based and not entry.holds:
                    self.ledger.reserve(entry.workload)
                self.waiting[entry.queue.name].forget(entry.workload.key)
            else:
                self.waiting[entry.queue.name].requeue(entry.workload, entry.why, now, self.cycles)
                entry.workload.wait(entry.reason, entry.message)
        if result.admitted or result.evicted:
            self.try_again()
        for eviction in result.evicted:
            self.note_eviction(eviction.workload)
        return result

    def _replace(self, workload: Workload, found: list[NewPlacement] | str, result: CycleResult) -> None:
        """Move a workload off a failed node, or evict it if there is no room elsewhere."""
        requests = [one.requests for one in workload.pod_sets]
        if not isinstance(found, str) and not all(self.trees[one.flavor].fits(one.part, requests[one.at], {}) for one in found):
            found = find_replacements(workload, self.trees)
        if isinstance(found, str):
            nodes = ",".join(workload.unhealthy)
            text = f"Workload was evicted as there was no replacement for unhealthy node(s): {nodes}"
            workload.conditions["Evicted"] = ("True", "NodeFailures", text)
            workload.evicted = True
            result.failed.append(workload)
        else:
            apply_replacements(workload, found, self.trees)
            text = f"Quota reserved in ClusterQueue {workload.cluster_queue}"
            workload.conditions["QuotaReserved"] = ("True", "QuotaReserved", text)
            result.replaced.append(workload)

    def _nominated(self, result: CycleResult, now: float) -> Iterator[QueueEntry]:
        """Yield the heads that take part; those that cannot are put back. Before them come those that wait for their places."""
        if now != self._begun[0]:
            self._begun = (now, [])
        waiting_for_places, self._to_place = [one for one in self._to_place.values() if one.needs_places], {}
        for one in waiting_for_places:
            queue = self.objects.queues[one.cluster_queue]
            if queue.active and self._refusal(one, queue) is None:
                yield self._entry(one, queue, *self._assign(one, queue))
            else:
                result.unplaced.append(one)
        for queue, waiting in self._lines:
            head = waiting.pop() if waiting.active and queue.active else None
            if head is None:
                continue
            result.heads += 1
            self._tried.add(head.key)
            if (refusal := self._refusal(head, queue)) is not None:
                message, reason, why = refusal
                waiting.requeue(head, why, now, self.cycles)
                head.wait(reason, message)
            else:
                assignment, targets = self._assign(head, queue)
                head.scan = assignment.scan
                yield self._entry(head, queue, assignment, targets)

    def _entry(self, workload: Workload, queue: ClusterQueue, assignment: Assignment, targets: list[Victim]) -> QueueEntry:
        priority = workload.priority if self._by_priority else 0
        return QueueEntry(
            workload, queue, assignment, targets, assignment.message(),
            preemptor="PrioritizePreemptorWorkloads" in self._gates and self.waiting[queue.name].preemptor == workload.key,
            place=(-priority, workload.order_time), holds=bool(workload.admission),
        )  # fmt: skip

    def _asking(
        self, workload: Workload, queue: ClusterQueue, needed: frozenset[Key], requests: Amounts,
        places: Places = MappingProxyType({}),
    ) -> Asking:  # fmt: skip
        entitles = "FairSharingPreemptWithinNominal" in self._gates
        return Asking(workload, queue, self.objects.queues, needed, requests, self.trees, places, self._strategies, entitles)

    def _refusal(self, workload: Workload, queue: ClusterQueue) -> tuple[str, str, Requeue] | None:
        name, labels = workload.namespace, self.objects.namespaces.get(workload.namespace)
        if labels is None:
            text = f'workload namespace "{name}" does not exist: namespaces "{name}" not found'
            return text, "Misconfigured", Requeue.GENERIC
        if not queue.namespaces.matches(labels):
            text = "workload namespace doesn't match ClusterQueue selector"
            return text, "Misconfigured", Requeue.NAMESPACE_MISMATCH
        return (workload.invalid, "Misconfigured", Requeue.GENERIC) if workload.invalid else None

    def _assign(self, workload: Workload, queue: ClusterQueue) -> tuple[Assignment, list[Victim]]:
        """Return flavors and victims; a workload that preempts gets the places that it will have."""
        found, targets = self._assign_flavors(workload, queue)
        if self.trees and found.mode.preempts:
            asked = placement_requests(found, workload, queue, self.trees)
            for target in targets:
                target.workload.take_places(self.trees, -1)
            found.note_placed(find_places(asked, self.trees, empty=not targets)[0], asked)
            for target in targets:
                target.workload.take_places(self.trees)
        if workload.admission:  # its quota is in use already
            found.usage = {}
        return found, targets

    def _assign_flavors(self, workload: Workload, queue: ClusterQueue) -> tuple[Assignment, list[Victim]]:
        scan = workload.scan
        if scan is not None and (
            scan.shape != workload.shape
            or (queue.generation > scan.generation and (not self._goes_on or self.cycles - scan.cycle > 1))
        ):
            workload.scan = None
        elif scan is not None:
            self._begun[1].append((workload.key, scan.tried))

        def oracle(key: Key, amount: int) -> Grade:
            asked = self._asking(workload, queue, frozenset((key,)), {key: amount})
            return possibility_of(asked, key, amount, fair=self.fair)

        def attempt(counts: Sequence[int] | None, *, guess: bool = self.fair) -> tuple[Assignment, list[Victim]]:
            found = assign_flavors(
                workload, queue, self.objects.flavors, oracle, self.cycles, fair=self.fair, counts=counts, trees=self.trees,
                guess=guess and queue.preemption.reclaim != "Never",
            )  # fmt: skip
            targets: list[Victim] = []
            if found.mode.preempts:
                places = placement_requests(found, workload, queue, self.trees) if self.trees else {}
                requests = found.total_requests(workload)
                asked = self._asking(workload, queue, found.needing_preemption(), requests, places)
                targets = find_targets(asked, fair=self.fair)
            return attempt(counts, guess=False) if found.guessed and not targets else (found, targets)

        def good(counts: Sequence[int]) -> tuple[Assignment, list[Victim]] | None:
            found, targets = attempt(counts)
            return (found, targets) if found.mode is Mode.FIT or targets else None

        full, targets = attempt(None)
        if full.mode is Mode.FIT or targets or "PartialAdmission" not in self._gates:
            return full, targets
        return most_pods(workload.pod_sets, good) or (full, [])

    def _process(self, entry: QueueEntry, now: float, result: CycleResult) -> None:
        queue, victims = entry.queue, self._victims
        self.kept.pop(queue.name, None)
        fits = self._fits(entry)
        overlaps = _overlap(entry.targets, victims) and "RecomputeAssignmentUponPreemptionTargetsOverlap" in self._gates
        if overlaps or (not fits and entry.queue_fits and "TASRecomputeAssignmentWithinSchedulingCycle" in self._gates):
            fits = self._reassign(entry, overlaps)
        mode = entry.assignment.mode
        if mode is Mode.NO_FIT:
            entry.why, entry.reason = Requeue.NO_FIT, entry.assignment.no_fit_reason
        elif mode.preempts and not entry.targets:
            entry.why, entry.reason = Requeue.NO_CANDIDATES, _WAITING
            self._keep_free(entry)
        elif mode is Mode.DEFERRED_FIT:
            entry.message = f"{_OVERLAP}, but will fit after these preemptions complete"
            entry.reason, entry.why, entry.workload.scan = _PREEMPTING, Requeue.PENDING_PREEMPTION, None
            self._reserve(entry, entry.assignment.usage)
        elif (late := _overlap(entry.targets, victims)) or not fits:
            entry.why, entry.reason = Requeue.FAILED_AFTER_NOMINATION, _WAITING
            entry.workload.scan = entry.workload.scan if self._goes_on else None
            entry.message = _OVERLAP if late else "Workload no longer fits after processing another workload"
        elif mode.preempts:
            # for those that come later in the cycle, they are gone
            gone = {target.workload.key: target for target in entry.targets if target.workload.key not in self._victims}
            for node in () if self._victims else self._nodes:
                node.left = dict(node.usage)
            self._victims.update(gone)
            self._vacate(gone.values())
            self._reserve(entry, entry.assignment.usage)
            self._preempt(entry, result, now)
        elif entry.holds:
            entry.admitted = True
            before = dict(entry.workload.usage)
            assert entry.workload.reserved_at is not None
            entry.workload.hold(queue.name, entry.assignment.admission(), entry.workload.reserved_at)
            queue.add({key: amount - entry.workload.usage.get(key, 0) for key, amount in before.items()}, -1)
            self._take_places(entry)
            result.placed.append(entry.workload)
        elif self.blocks is not None and self.blocks(len(result.admitted)):
            entry.why = Requeue.FAILED_AFTER_NOMINATION
            entry.reason, entry.message = "WaitingForPodsReady", _NOT_READY
        else:
            entry.admitted = True
            entry.workload.hold(queue.name, entry.assignment.admission(), now)
            if not self._by_priority:
                entry.workload.order_time = entry.workload.created
            self._add(queue, entry.workload.usage)
            self._take_places(entry)
            result.admitted.append(entry.workload)

    def _keep_free(self, entry: QueueEntry) -> None:
        """Keep quota free for a head without victims, unless its queue can always get it back from others."""
        if entry.queue.preemption.reclaim != "Any" or entry.preemptor:
            kept = _to_reserve(entry)
            self.kept[entry.queue.name] = entry.workload, {key: amount for key, amount in kept.items() if amount > 0}
            self._reserve(entry, kept)

    def _preempt(self, entry: QueueEntry, result: CycleResult, now: float) -> None:
        workload = entry.workload
        entry.reason, entry.why, workload.scan = _PREEMPTING, Requeue.PENDING_PREEMPTION, None
        entry.message += f". Pending the preemption of {len(entry.targets)} workload(s)"
        job = workload.labels.get("kueue.x-k8s.io/job-uid") or "UNKNOWN"
        for target in entry.targets:
            victim = target.workload
            if victim.evicted:
                continue
            text = (
                f"Preempted to accommodate a workload (UID: {workload.uid or 'UNKNOWN'}, JobUID: {job}) due to "
                f"{_WHY[target.reason]}; preemptor path: {_path(entry.queue)}; preemptee path: {_path(target.queue)}"
            )
            victim.conditions["Evicted"] = ("True", "Preempted", text)
            victim.conditions["Preempted"] = ("True", target.reason, text)
            if not self._by_priority and target.reason == "InCohortReclaimWhileBorrowing":
                victim.order_time = now + 0.001  # behind the workload that preempts it
            result.evicted.append(Eviction(victim, workload, target.reason))

    def _reassign(self, entry: QueueEntry, overlaps: bool) -> bool:
        """Look again, as if the victims of others were gone where they are its own; else only its places are taken.

        Return whether the new assignment fits.
        """
        workload = entry.workload
        gone = list(self._victims.values()) if overlaps else []
        for target in gone:
            target.queue.workloads.pop(target.workload.key, None)
            target.workload.take_places(self.trees, -1)
        parted = [node for node in self._nodes if node.left != node.usage] if overlaps else []
        for node in parted:
            node.turn(upward=False)
        workload.scan, workload.nominated = None, entry.assignment.flavors_by_pod_set()
        entry.assignment, entry.targets = self._assign(workload, entry.queue)
        workload.scan, workload.nominated = entry.assignment.scan, {}
        entry.message = entry.assignment.message()
        for target in gone:
            target.queue.workloads[target.workload.key] = target.workload
            target.queue.changed()
            target.workload.take_places(self.trees)
        for node in parted:
            node.turn(upward=False)
        if overlaps and entry.assignment.mode is Mode.FIT:
            entry.assignment.set_mode(Mode.DEFERRED_FIT)  # once others' victims are gone
        return self._fits(entry)

    def _fits(self, entry: QueueEntry) -> bool:
        """Return whether the entry fits without its victims and those of others; ``queue_fits`` says whether quota does."""
        gone = [target for target in entry.targets if target.workload.key not in self._victims]
        self._vacate(gone)
        entry.queue.turn()
        entry.queue_fits = entry.queue.fits(entry.assignment.usage)
        entry.queue.turn()
        fits = entry.queue_fits and all(
            self.trees[flavor].fits(placed, requests, self._vacated.get(flavor, {}))
            for flavor, placed, requests in entry.assignment.placements(entry.workload)
        )
        self._vacate(gone, -1)
        return fits

    def _vacate(self, targets: Iterable[Victim], sign: int = 1) -> None:
        """Take workloads off what is left without victims, or with -1 count them there again."""
        for target in targets:
            target.queue.turn()
            target.queue.add(target.workload.usage, -sign)
            target.queue.turn()
            for flavor, placed, requests in target.workload.places(self.trees):
                add_usage(self._vacated.setdefault(flavor, {}), placed, requests, sign)

    def _add(self, queue: ClusterQueueNode, amounts: Amounts) -> None:
        """Add to what is in use, and to what is left without victims."""
        queue.add(amounts)
        if self._victims:
            queue.turn()
            queue.add(amounts)
            queue.turn()

    def _take_places(self, entry: QueueEntry) -> None:
        for flavor, placed, requests in entry.assignment.placements(entry.workload):
            self.trees[flavor].use(placed, requests)

    def _reserve(self, entry: QueueEntry, amounts: Amounts) -> None:
        self._add(entry.queue, amounts)
        if self._victims and any(amount < 0 for amount in amounts.values()):
            # A negative amount does not go up the tree, and so it matters what was counted before.
            for node in self._nodes:
                node.left = dict(node.usage)
            self._vacated.clear()
            self._vacate(self._victims.values())
        self._take_places(entry)
        self._reserved.append((entry.queue, amounts))

    def _unreserve(self) -> None:
        """Give back what was only kept free. A negative amount (more is in use than there is) never went up the tree."""
        for queue, amounts in self._reserved:
            queue.add({key: amount for key, amount in amounts.items() if amount > 0}, -1)
            for key in [key for key, amount in amounts.items() if amount < 0]:
                queue.usage[key] -= amounts[key]
            queue.changed()
        self._reserved.clear()
        self._victims.clear()
        self._vacated.clear()
        for node in self._nodes:
            node.left = node.usage


def _overlap(targets: Sequence[Victim], victims: Mapping[str, Victim]) -> bool:
    return any(target.workload.key in victims for target in targets)


def _path(queue: ClusterQueueNode) -> str:
    return "".join(f"/{node.name}" for node in reversed((queue, *queue.ancestors())))


def _to_reserve(entry: QueueEntry) -> Amounts:
    """Return what to keep free for a workload that may not reclaim: no more than its queue could ever hold."""
    queue, kept = entry.queue, {}
    for key, amount in entry.assignment.usage.items():
        quota = queue.quota(key)
        limit, left = quota.borrowing_limit, quota.nominal - queue.usage.get(key, 0)
        if entry.assignment.borrows == 0:
            kept[key] = max(0, min(amount, left))
        else:
            kept[key] = amount if limit is None else min(amount, left + limit)
    return kept
