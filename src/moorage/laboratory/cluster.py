"""``Cluster``: a cluster that a program can question and change.

It holds the engine in virtual time, as ``moorage simulate`` runs it, before anything was scheduled. Nothing happens by itself:
``schedule`` tries pods now, ``run`` lets time pass. Objects go in as API structs, dicts, YAML text or paths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace as with_fields
from itertools import takewhile
from operator import itemgetter
from os import PathLike
from typing import Any, Self, Unpack

from moorage.api.core import Node, Object, Pod
from moorage.api.gc_pause import collector_paused
from moorage.core.config.scheduler_document import Loaded
from moorage.core.cycle.decision import Decision
from moorage.core.engine.facts import Gone, Seen
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.framework.changes import Change, Owner
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.change.least_change import OWNERS, ChangeLimits, Remedy, find_least_change
from moorage.laboratory.change.untouchable import Untouchable
from moorage.laboratory.cluster_objects import ObjectLike, aside_of, cluster_input, flat_objects, present_objects, read_given
from moorage.laboratory.cluster_options import ClusterOptions, cluster_options, refuse_unpicklable, rules_for
from moorage.laboratory.cluster_questions import ClusterQuestions
from moorage.laboratory.costs import Costs
from moorage.laboratory.edit.object_edits import ChangeLike, ObjectEdit, ObjectEdits, read_change
from moorage.laboratory.explain.explained_changes import with_changes
from moorage.laboratory.explain.explanation import Subject, explain_now
from moorage.laboratory.explain.pod_state import state_of
from moorage.laboratory.explain.starvation import may_starve, starved
from moorage.laboratory.frames import ColumnFrame, nodes_frame, pods_frame
from moorage.laboratory.inventory import Inventory, PresentObjects
from moorage.laboratory.placements import Feasibility, PodPlacement, placement_of
from moorage.laboratory.transactions import Transaction
from moorage.laboratory.trial.cluster_trials import ClusterTrials
from moorage.laboratory.trial.digest import Digests
from moorage.laboratory.trial.dry_run import quick_placements
from moorage.laboratory.trial.feasibility import feasibility_of
from moorage.laboratory.trial.history import Evicted, History, Ran, Step, Told, Tried, copy_of, play, scope_of, take
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.laboratory.trial.recorded_state import UndoLog
from moorage.report.answer import LateText
from moorage.report.explanation import ExplainRequest, Explanation
from moorage.report.outcome import InputNote, Run
from moorage.simulator.cluster_input import ClusterInput, WrittenObjects
from moorage.simulator.cluster_reader import read
from moorage.simulator.cluster_run import input_notes, objects_of, workload_names
from moorage.simulator.job_groups import create_for
from moorage.simulator.outcome_collector import collect, refused_outcomes
from moorage.simulator.pod_records import in_turn
from moorage.simulator.simulate import Options, kinds_named
from moorage.simulator.simulation import SimulatedAttempt
from moorage.state.view import PodInfo, Snapshot

#: A digest of the state, with the engine's revision, number of facts and time.
_Digest = tuple[tuple[int, int, float], LateText]
#: The fields of the cluster that a transaction restores: simulation, history and its length, objects aside, agenda, digest.
_Mark = tuple[RecordedSimulation, History, int, Mapping[str, Object], tuple[tuple[float, ChangeLike], ...], _Digest | None]


class Cluster(ClusterQuestions):
    """A cluster and the state of its scheduler. It serves one thread at a time; ``fork`` returns a copy for another thread.

    ``options`` are those of the scheduler, ``notes`` describe the input, ``refused`` lists pods that could not be created.
    """

    patterns: Sequence[Node] = ()  # nodes that the cluster does not have, and that a change can add

    def __init__(self, given: ClusterInput, options: Options) -> None:
        created = create_for(given, options)
        cluster, lost = created.cluster, created.lost
        self.options = options
        self.notes: tuple[InputNote, ...] = (*input_notes(cluster), *lost.notes())
        self._workloads = workload_names(cluster, (*lost.pods, *(one.pod for one in created.refused)))
        self.refused = refused_outcomes(created.refused, cluster.pods, self._workloads)
        self._lost = tuple(lost.records())
        self._aside: Mapping[str, Object] = aside_of(cluster)
        #: What admission policies read of the input.
        self._written = cluster.written
        #: Scheduled changes, with their times.
        self._agenda: tuple[tuple[float, ChangeLike], ...] = ()
        self._history = History(options, tuple(objects_of(cluster)))
        self._forget()

    def _forget(self) -> None:
        """Drop everything that is derived from the history."""
        self._simulation: RecordedSimulation | None = None
        self._log = UndoLog()
        self._marks: list[_Mark] = []
        self._on_attempt: Callable[[SimulatedAttempt], None] | None = None
        self._budget: TimeBudget | None = None
        #: The digest of the present state with the values that it was computed from; None until it is needed.
        self._digest: _Digest | None = None
        self._digests = Digests()

    # -- ways in ---------------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, *paths: str | PathLike[str], recursive: bool = False, **options: Unpack[ClusterOptions]) -> Self:
        """Read files and directories of manifests and dumps, as ``moorage simulate -f`` does. See ``ClusterOptions``.

        Raises  InputError, ConfigError
        """
        made = cluster_options(options)
        return cls(read(map(str, paths), recursive, custom=kinds_named(made), rules=rules_for(made)), made)

    @classmethod
    def from_objects(cls, *objects: ObjectLike | Iterable[ObjectLike], **options: Unpack[ClusterOptions]) -> Self:
        """Make a cluster of objects, each an API struct, a dict, YAML text or a path; iterables of these are taken apart.

        Defaults are filled in, and objects without a UID get one. See ``ClusterOptions``.

        Raises  InputError, ConfigError
        """
        made = cluster_options(options)
        return cls(read_given(flat_objects(objects), custom=kinds_named(made), rules=rules_for(made)), made)

    @classmethod
    def live(
        cls, context: str | None = None, kubeconfig: str | PathLike[str] | None = None, **options: Unpack[ClusterOptions]
    ) -> Self:
        """Take a dump of a live cluster now, with read-only requests. ``notes`` say when it was taken.

        ``kubeconfig`` and ``context`` are found as kubectl finds them. Kinds that are forbidden or not served are left out,
        and notes say so. See ``ClusterOptions``. In a coroutine, call it with ``asyncio.to_thread``.

        Raises  InputError, ConfigError; ClusterError if the API server cannot be asked, or refuses nodes or pods
        """
        made = cluster_options(options)
        from moorage.laboratory.dump.live_cache import take_dump  # a client, which files need not load
        from moorage.laboratory.dump.live_dump import endpoint_of

        return cls(take_dump(endpoint_of(kubeconfig, context), kinds_named(made)), made)

    @classmethod
    def of_simulation(
        cls,
        simulation: RecordedSimulation,
        options: Options,
        aside: Mapping[str, Object],
        written: WrittenObjects | None = None,
    ) -> Self:
        """Return a cluster in the state of a simulation, which belongs to the cluster from then on.

        ``aside`` are the objects that the scheduler does not read; ``written`` is what admission policies read. A copy of the
        cluster, and a rollback that cannot be reversed, start from the present objects and lose backoffs.
        """
        cluster = cls.__new__(cls)
        objects = present_objects({}, simulation)
        cluster.__setstate__({
            "options": options, "notes": (), "_workloads": {}, "_lost": (), "refused": (), "_aside": aside, "_written": written,
            "_agenda": (), "_history": History(options, tuple(objects)),
        })  # fmt: skip
        cluster._take_up(simulation)
        return cluster

    # -- what it stands on -----------------------------------------------------------------------------------------------

    @property
    def simulation(self) -> RecordedSimulation:
        """The engine in virtual time. Change it through this cluster's methods only.

        Ask for it each time: a rollback may replace it.
        """
        return self._take_up(play(self._history)) if self._simulation is None else self._simulation

    def _take_up(self, simulation: RecordedSimulation) -> RecordedSimulation:
        self._simulation = simulation
        simulation.on_attempt = self._hear
        simulation.on_decision = in_turn(self.options.on_decision, self._check_budget)
        simulation.record(self._log)
        return simulation

    @property
    def scheduler(self) -> Scheduler:
        return self.simulation.scheduler

    @property
    def snapshot(self) -> Snapshot:
        return self.scheduler.snapshot

    @property
    def loaded(self) -> Loaded:
        """The configuration, as read and changed."""
        return self._history.load()

    @property
    def config_changes(self) -> tuple[Change, ...]:
        """The changes made to the configuration in the options."""
        return self._history.config

    @property
    def now_s(self) -> float:
        """Seconds of simulated time since the cluster was read."""
        return self.simulation.now

    # -- what there is ---------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> ColumnFrame:
        """The nodes in the order they were added, as columns."""
        return nodes_frame(self.snapshot.table)

    @property
    def pods(self) -> ColumnFrame:
        """The pods in the order they arrived, as columns."""
        return pods_frame([PodInfo(pod) for pod in self.simulation.pods_in_order()], self.simulation.state_of)

    def objects(self) -> list[Object]:
        """Return the current objects: workloads and policies first, then nodes, placed pods and pending pods."""
        return present_objects(self._aside, self.simulation)

    def input(self) -> ClusterInput:
        """Return the current objects by kind, as ``moorage.simulate_cluster`` takes them."""
        return cluster_input(self.objects())

    def get(self, ref: str | Object) -> Object:
        """Return a current object by ``kind/namespace/name``, ``kind/name``, or the name of a pod.

        Kinds are named as for kubectl. The namespace may be left out if it is ``default``.

        Raises  InputError if there is none
        """
        return self._inventory().get(ref)

    def pod(self, ref: str | Pod) -> Pod:
        """Return a current pod by ``namespace/name``, ``name`` (in the namespace ``default``) or UID.

        Raises  InputError if there is none
        """
        pods = self.simulation.pods
        uid = ref.metadata.uid if isinstance(ref, Pod) else ref
        if uid in pods:
            return pods[uid]
        found = self.get(ref)
        if not isinstance(found, Pod):
            raise InputError(f"{ref} is not a pod")
        return found

    def digest(self) -> str:
        """Return a digest of the state. Clusters with equal digests and options decide alike."""
        return str(self._late_digest())

    def _late_digest(self) -> LateText:
        simulation = self.simulation
        state = simulation.scheduler.state
        stamp = state.revision, state.facts, simulation.now
        if self._digest is None or self._digest[0] != stamp:
            self._digest = stamp, self._digests.of(simulation, [sorted(self._aside), self._agenda])
        return self._digest[1]

    # -- changes ---------------------------------------------------------------------------------------------------------

    def apply(self, *changes: ChangeLike) -> None:
        """Change, patch or create objects: all of them, or none if one cannot be applied.

        A change is a ``Change``; an edit as text (``"node/n1 unschedulable=false"``); or objects in any form. If an object of
        that name exists, a struct replaces it, and any other form is merged into it as by ``kubectl patch``. A change of the
        configuration restarts the scheduler: backoffs are lost, and simulated time begins at 0.

        Raises  InputError
        """
        if len(changes) == 1:
            self._apply(read_change(changes[0]))
            return
        with self.transaction() as whole:
            for change in map(read_change, changes):
                self._apply(change)
            whole.commit()

    def _apply(self, change: ChangeLike) -> None:
        if isinstance(change, Change) and change.owner == "config":
            self._reconfigure(change)
        else:
            self._make(self._edits().apply(change))

    def add(self, *objects: ObjectLike | Iterable[ObjectLike]) -> None:
        """Add new objects. They pass admission, and the missing pods of workloads are created.

        Raises  InputError for objects that cannot be read or that exist
        """
        self._make(self._edits().add(flat_objects(objects)))

    def remove(self, *refs: str | Object) -> None:
        """Delete objects at once. For names see ``get``. Controllers do not replace a pod deleted this way; see ``evict``.

        Raises  InputError for an object that is not there
        """
        self._make(self._edits().remove(refs))

    def bind(self, pod: str | Pod, node: str) -> None:
        """Bind a pending pod to a node, without checking whether it fits.

        Raises  InputError for a pod or a node that does not exist; StateError if the pod is already on a node
        """
        self._make(self._edits().bind(self.pod(pod), node))

    def evict(self, *pods: str | Pod, grace_s: float | None = None) -> None:
        """Evict pods: they leave after ``grace_s`` seconds (None: their own grace period), and their controllers replace them.

        ``grace_s=0`` lets them leave now; otherwise they leave while ``run`` lets time pass.

        Raises  InputError for a pod that is not there
        """
        for uid in [self.pod(pod).metadata.uid for pod in pods]:
            self._step(Evicted(uid, grace_s))

    def at(self, time_s: float, change: ChangeLike) -> None:
        """Apply a change when ``run`` comes to this time.

        Raises  InputError for a time before ``now_s``
        """
        if time_s < self.now_s:
            raise InputError(f"{time_s:g} s is before the present time of the cluster, {self.now_s:g} s")
        self._agenda, self._digest = tuple(sorted((*self._agenda, (time_s, change)), key=itemgetter(0))), None

    def tell(self, facts: Iterable[Seen | Gone]) -> None:
        """Report objects as a watch does: new, changed and deleted ones. They pass no admission, and no pods are created."""
        self._step(Told(tuple(facts)))

    def shorten_history(self) -> None:
        """Let the history begin with the present objects: a copy that is played from it has no backoffs.

        No transaction may be open.
        """
        self._history = History(self.options, tuple(self.simulation_objects()), config=self._history.config)

    def transaction(self) -> Transaction:
        """Return a context manager that rolls back all changes of its block, unless it commits. May be nested."""
        return Transaction(self)

    def fork(self) -> Self:
        """Return an independent cluster in the same state, which shares the objects.

        With a third-party plugin, the copy is rebuilt from the history when it is first used: that takes as long as loading the
        objects and repeating everything that was scheduled since.
        """
        other = object.__new__(type(self))
        other.__setstate__(self._state())
        if self._simulation is not None:
            known = [(self.options, self.options), (self, other), (self._log, other._log)]
            other._simulation = copy_of(self._simulation, known)
        return other

    # -- scheduling ------------------------------------------------------------------------------------------------------

    def schedule(
        self,
        pods: Iterable[str | Pod] | None = None,
        *,
        nodes: Sequence[str] | None = None,
        stop_on_failure: bool = False,
        dry_run: bool = False,
    ) -> list[PodPlacement]:
        """Try pods now, one attempt each, in this order, and return the outcome of each. Time does not advance.

        ``pods``     None: all pending pods, in the order of the queue, as if all backoffs were over
        ``nodes``    limits the search to these nodes
        ``dry_run``  roll all changes back

        Raises  InputError for a pod or a node that is not there
        """
        tried = self._waiting() if pods is None else [self.pod(pod) for pod in pods]
        scope = scope_of(self.simulation, nodes)
        if dry_run:
            quick = quick_placements(self.simulation, tried, scope, stop_on_failure=stop_on_failure)
            if quick is not None:
                return quick
            with self.transaction():
                return self.schedule(tried, nodes=nodes, stop_on_failure=stop_on_failure)
        placements: list[PodPlacement] = []
        for pod in tried:
            placements.append(self._try(pod, None if nodes is None else tuple(nodes)))
            if stop_on_failure and not placements[-1]:
                break
        return placements

    def _waiting(self) -> list[Pod]:
        return [queued.pod.pod for queued in self.scheduler.queue.ranked()]

    def can_schedule(self, pod: str | Pod, nodes: Sequence[str] | None = None) -> Feasibility:
        """Return the nodes that all Filter plugins accept for a pod now. Nothing changes, and nothing is preempted.

        Raises  InputError for a pod or a node that is not there
        """
        return feasibility_of(self.simulation, PodInfo(self.pod(pod)), nodes)

    @collector_paused()
    def explain(
        self,
        pod: str | Pod,
        may: Collection[Owner] = OWNERS,
        alternatives: int = 3,
        probes: int = 2000,
        costs: Costs | None = None,
        with_queue: bool = False,
        time_limit_s: float | None = None,
        all_changes: bool = False,
        untouched: Iterable[str] = (),
    ) -> Explanation:
        """Return why a pod is pending, or why it would now be placed on its node. Nothing changes.

        The other arguments are those of ``least_change``; its answers are part of the explanation of a pending pod, unless
        ``probes=0``.

        Raises  InputError for a pod that is not there
        """
        now = self.pod(pod)
        notes = tuple(note.text for note in self.notes)
        request = ExplainRequest(
            pod=now.key,
            release=self.scheduler.gates.release,
            seeds=(self.options.seed,),
            digest=self._late_digest(),
            notes=notes,
        )
        explanation = explain_now(
            state_of(self.simulation, self.options), Subject(request, now), self.simulation.records.get(now.uid)
        )
        ahead = list(takewhile(lambda other: other.uid != now.uid, self._waiting()))
        if may_starve(explanation, ahead) and not self.schedule([*ahead, now], dry_run=True)[-1]:
            explanation = starved(explanation, now, ahead)
        if not probes:
            return explanation
        trials, costs = self.trials_of(now.key, costs, with_queue=with_queue)
        budget, left_alone = TimeBudget(time_limit_s, time.monotonic), Untouchable(tuple(untouched))
        limits = ChangeLimits(tuple(may), alternatives, probes, costs, with_queue, budget, all_changes, left_alone)
        return with_changes(explanation, trials, self.present(), limits)

    def least_change(
        self,
        pod: str | Pod,
        may: Collection[Owner] = OWNERS,
        alternatives: int = 3,
        probes: int = 2000,
        costs: Costs | None = None,
        with_queue: bool = False,
        time_limit_s: float | None = None,
        all_changes: bool = False,
        untouched: Iterable[str] = (),
    ) -> list[Remedy]:
        """Return the cheapest changes that would place a pending pod: the best of each owner, and ``alternatives`` more.

        Each answer is verified by a run of the engine in the present state in which the pod is tried next; with ``with_queue``,
        the pods ahead of it in the queue are tried first. The list is empty if the pod fits without changes, or if no known
        change helps; ``find_least_change`` returns which of the two holds, and how complete the search was. ``time_limit_s``
        ends the search; None: no limit. ``all_changes`` also lists what no one should do. ``untouched``: what they leave
        alone: ``pods:app=db``, ``namespaces:payments``, ``nodes:n1``.

        Raises  InputError for a pod that is not there, and for a text that names nothing to leave alone
        """
        trials, costs = self.trials_of(self.pod(pod).key, costs, with_queue=with_queue)
        budget, left_alone = TimeBudget(time_limit_s, time.monotonic), Untouchable(tuple(untouched))
        limits = ChangeLimits(tuple(may), alternatives, probes, costs, with_queue, budget, all_changes, left_alone)
        return list(find_least_change(trials, self.present(), limits).remedies)

    def run(self, until_s: float | None = None) -> Run:
        """Let time pass until a time in seconds (None: until nothing more can happen), and return the outcome of every pod."""
        while self._agenda and (until_s is None or self._agenda[0][0] <= until_s):
            (time_s, change), *rest = self._agenda
            self._step(Ran(max(time_s, self.now_s)))
            self._agenda, self._digest = tuple(rest), None
            self.apply(change)
        self._step(Ran(until_s))
        release = self.scheduler.gates.release
        run = collect(self.simulation, release, notes=self.notes, workloads=self._workloads, gone=self._lost)
        return with_fields(run, refused=self.refused)

    def _try(self, pod: Pod, nodes: tuple[str, ...] | None) -> PodPlacement:
        heard: list[Decision] = []
        self._on_attempt = lambda attempt: heard.append(attempt.decision)
        try:
            self._step(Tried(pod.metadata.uid, nodes))
        finally:
            self._on_attempt = None
        return placement_of(self.simulation, pod, [one for one in heard if one.pod.uid == pod.metadata.uid])

    # -- steps -----------------------------------------------------------------------------------------------------------

    def _inventory(self) -> Inventory:
        return Inventory(self.simulation, self._aside, self.patterns)

    def trials_of(self, pod: str, costs: Costs | None, *, with_queue: bool = False) -> tuple[ClusterTrials, Costs]:
        """Return trials of a pod, ``namespace/name``, with the nodes that can be bought, and the costs of these nodes."""
        around = self.present()
        costs = (costs or Costs()).with_nodes(around).with_zones(self.pod(pod), around)
        known = {node.name for node in costs.patterns}
        self.patterns = (*costs.patterns, *(node for node in self.patterns if node.name not in known))
        return ClusterTrials(self, pod, with_queue, costs.patterns), costs

    def present(self) -> PresentObjects:
        """Return a view of the cluster's objects that always shows the current ones, to look up by kind and name."""
        return PresentObjects(self._inventory, self._written)

    def _edits(self) -> ObjectEdits:
        return ObjectEdits(self._inventory(), self.scheduler.cluster.custom_kinds or (), quota=self.options.quota)

    def _make(self, edit: ObjectEdit) -> None:
        for step in edit.steps:
            self._step(step)
        if edit.aside is not None:
            self._aside, self._digest = edit.aside, None

    def _step(self, step: Step) -> None:
        """Make a step and add it to the history."""
        self._digest = None
        take(self.simulation, step)
        self._history.steps.append(step)

    def _reconfigure(self, change: Change) -> None:
        """Begin a new history with the present objects and another configuration."""
        history = History(self.options, tuple(self.simulation_objects()), config=(*self._history.config, change))
        history.load()
        self._history, self._simulation, self._digest = history, None, None

    def simulation_objects(self) -> Iterable[Object]:
        """Return the current objects that the scheduler may read."""
        return objects_of(self.input())

    @contextmanager
    def within(self, budget: TimeBudget) -> Iterator[None]:
        """Let runs in this block end with BudgetSpentError once a budget is spent; a transaction around it rolls back."""
        before, self._budget = self._budget, budget
        try:
            yield
        finally:
            self._budget = before

    def _check_budget(self, decision: Decision) -> None:
        if self._budget is not None:
            self._budget.check()

    def _hear(self, attempt: SimulatedAttempt) -> None:
        if self._on_attempt is not None:
            self._on_attempt(attempt)

    # -- transactions ----------------------------------------------------------------------------------------------------

    def open_transaction(self) -> int:
        """Open a transaction and return its depth; ``transaction`` does so."""
        simulation = self.simulation
        simulation.begin()
        marked = simulation, self._history, len(self._history.steps), self._aside, self._agenda, self._digest
        self._marks.append(marked)
        return len(self._marks)

    def close_transaction(self, depth: int, *, keep: bool) -> None:
        """Close the transaction of a depth, and those that are open in it."""
        while len(self._marks) >= depth:
            self._keep() if keep else self._roll_back()

    def _keep(self) -> None:
        self._marks.pop()
        self._log.commit()
        if not self._log.is_open and self._simulation is not None:
            self._simulation.scheduler.cluster.table.changes.settle()

    def _roll_back(self) -> None:
        simulation, self._history, steps, self._aside, self._agenda, self._digest = self._marks.pop()
        del self._history.steps[steps:]
        self._simulation = simulation if self._log.roll_back() else None

    # -- copies ----------------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        made = {"_simulation", "_log", "_marks", "_on_attempt", "_budget", "_digest", "_digests"}
        kept = {name: value for name, value in vars(self).items() if name not in made}
        return {**kept, "_history": self._history.copy()}

    def __getstate__(self) -> dict[str, Any]:
        refuse_unpicklable(self.options)
        return self._state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()
