"""``Cluster``: a cluster that a program can question and change.

It holds the engine in virtual time, as ``moorage simulate`` runs it, before anything was scheduled. Nothing happens by itself:
``schedule`` tries pods now, ``run`` lets time pass. Objects go in as API structs, dicts, YAML text or paths.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace as with_fields
from os import PathLike
from pathlib import Path
from typing import Any

from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.config.scheduler_document import Loaded
from moorage.cycle.cycle import Cycle
from moorage.cycle.decision import Decision
from moorage.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.framework.changes import Owner
from moorage.framework.effects import Question
from moorage.framework.verdicts import Code
from moorage.laboratory.costs import Costs
from moorage.laboratory.frames import ColumnFrame, frame_of, nodes_frame, pods_frame
from moorage.laboratory.history import History, Ran, Step, Tried, play, scope_of, take
from moorage.laboratory.least_change import OWNERS, Remedy, find_least_change
from moorage.laboratory.objects import ObjectLike, read_given, text_of
from moorage.laboratory.placements import Feasibility, PodPlacement
from moorage.laboratory.present import aside_of, cluster_input, present_objects
from moorage.laboratory.trials import FreshTrials
from moorage.report.outcome import InputNote, Run
from moorage.simulator.admission import admit
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read
from moorage.simulator.cluster_run import input_notes, objects_of, workload_names
from moorage.simulator.lost_pods import lose_pods
from moorage.simulator.outcome import collect
from moorage.simulator.simulate import Options, kinds_named, load_options
from moorage.simulator.simulation import SimulatedAttempt, Simulation, State
from moorage.simulator.workloads import expand
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["Cluster"]


#: Filters every node, and keeps nothing between calls.
_JUDGE = Cycle(by_class=False, nominated_first=False, errors_end=False)


class Cluster:
    """A cluster and the scheduler's state of it. It serves one thread at a time; ``fork`` makes one for each thread.

    ``options`` say how it is scheduled, ``notes`` what a reader should know of the input.
    """

    def __init__(self, given: ClusterInput, options: Options) -> None:
        kept, lost = lose_pods(given)
        cluster = admit(expand(kept))
        lost = lost.with_replacements(kept, cluster)
        self.options = options
        self.notes: tuple[InputNote, ...] = (*input_notes(cluster), *lost.notes())
        self._workloads = workload_names(cluster, lost.pods)
        self._lost = tuple(lost.records())
        self._aside = aside_of(cluster)
        self._history = History(options, tuple(objects_of(cluster)))
        self._simulation: Simulation | None = None
        self._on_attempt: Callable[[SimulatedAttempt], None] | None = None

    # -- ways in ---------------------------------------------------------------------------------------------------------

    @classmethod
    def read(
        cls,
        *paths: str | PathLike[str],
        config: str | PathLike[str] | bytes | None = None,
        release: str | None = None,
        seed: int = 0,
        feature_gates: str = "",
        plugins: Iterable[type[Any]] = (),
        ask: Callable[[Question], bytes] | None = None,
        recursive: bool = False,
    ) -> Cluster:
        """Read files and directories of manifests and dumps, as ``moorage simulate -f`` does.

        ``config``         a KubeSchedulerConfiguration or a Policy: a path, or its text; None: kube-scheduler's defaults
        ``release``        whose rules apply (1.19, 1.20, 1.21 or 1.36); None: the one that the configuration stands for
        ``feature_gates``  as kube-scheduler takes the flag
        ``plugins``        classes beside the built-in ones
        ``ask``            puts a question to an extender; without it, configured extenders are skipped

        Raises  InputError, ConfigError
        """
        options = _options(config, release, seed, feature_gates, plugins, ask)
        return cls(read(map(str, paths), recursive, custom=kinds_named(options)), options)

    @classmethod
    def from_objects(
        cls,
        *objects: ObjectLike | Iterable[ObjectLike],
        config: str | PathLike[str] | bytes | None = None,
        release: str | None = None,
        seed: int = 0,
        feature_gates: str = "",
        plugins: Iterable[type[Any]] = (),
        ask: Callable[[Question], bytes] | None = None,
    ) -> Cluster:
        """Make a cluster of objects, each an API struct, a dict, YAML text or a path; iterables of these are taken apart.

        Defaults are filled in, and objects without a UID get one. For the options see ``read``.

        Raises  InputError, ConfigError
        """
        options = _options(config, release, seed, feature_gates, plugins, ask)
        return cls(read_given(_flat(objects), custom=kinds_named(options)), options)

    # -- what it stands on -----------------------------------------------------------------------------------------------

    @property
    def simulation(self) -> Simulation:
        """The engine in virtual time. Change it through this cluster's methods only."""
        if self._simulation is None:
            self._simulation = play(self._history)
            self._simulation.on_attempt = self._hear
        return self._simulation

    @property
    def scheduler(self) -> Scheduler:
        return self.simulation.scheduler

    @property
    def snapshot(self) -> Snapshot:
        return self.scheduler.snapshot

    @property
    def loaded(self) -> Loaded:
        """The configuration, as read."""
        return load_options(self.options)

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
        """The pods in the order they came, as columns."""
        return pods_frame([PodInfo(pod) for pod in self.simulation.pods.values()], self._state_of)

    def objects(self) -> list[Object]:
        """Return all objects as they are now: workloads and policies first, then nodes, placed pods and waiting pods."""
        return present_objects(self._aside, self.simulation)

    def input(self) -> ClusterInput:
        """Return the same by kind, as ``moorage.simulate_cluster`` takes them."""
        return cluster_input(self.objects())

    def pod(self, ref: str | Pod) -> Pod:
        """Return a pod by ``namespace/name``, ``name`` (in the namespace ``default``) or UID, as it is now.

        Raises  InputError if there is none
        """
        pods = self.simulation.pods
        uid = ref.metadata.uid if isinstance(ref, Pod) else ref
        if uid in pods:
            return pods[uid]
        name = ref.key if isinstance(ref, Pod) else ref.removeprefix("pod/")
        found = self.simulation.pod_named(name if "/" in name else f"default/{name}")
        if found is None:
            raise InputError(f"there is no pod {name}")
        return found

    def _state_of(self, pod: PodInfo) -> str:
        record = self.simulation.records.get(pod.uid)
        if record is not None:
            return record.state
        return State.PLACED if pod.spec.node_name else State.PENDING

    # -- scheduling ------------------------------------------------------------------------------------------------------

    def schedule(
        self,
        pods: Iterable[str | Pod] | None = None,
        *,
        nodes: Sequence[str] | None = None,
        stop_on_failure: bool = False,
    ) -> list[PodPlacement]:
        """Try pods now, one attempt each, in this order, and return what came of each. Time does not go on.

        ``pods``   None: all pending pods, in the order of the queue
        ``nodes``  limits the search to these nodes

        Raises  InputError for a pod or a node that is not there
        """
        tried = self._queued() if pods is None else [self.pod(pod) for pod in pods]
        if nodes is not None:
            scope_of(self.simulation, nodes)
        placements: list[PodPlacement] = []
        for pod in tried:
            placements.append(self._try(pod, None if nodes is None else tuple(nodes)))
            if stop_on_failure and not placements[-1]:
                break
        return placements

    def run(self, until_s: float | None = None) -> Run:
        """Let time pass until nothing more can happen, or until a time, and return what came of every pod."""
        self._step(Ran(until_s))
        release = self.scheduler.gates.release
        return collect(self.simulation, release, notes=self.notes, workloads=self._workloads, gone=self._lost)

    def can_schedule(self, pod: str | Pod, nodes: Sequence[str] | None = None) -> Feasibility:
        """Return where a pod could go now, by the verdicts of the Filter plugins. Nothing changes, and nothing is preempted.

        Raises  InputError for a pod or a node that is not there
        """
        info = PodInfo(self.pod(pod))
        scheduler = self.scheduler
        profile = scheduler.profiles.get(info.spec.scheduler_name)
        if profile is None:
            return Feasibility(
                info.key, [], _refusals(None, self.snapshot), f"no profile has the name {info.spec.scheduler_name}"
            )
        scope = with_fields(scope_of(self.simulation, nodes), post_filter=False)
        everywhere = with_fields(profile, percentage_of_nodes_to_score=100)
        decision = _JUDGE.decide(everywhere, info, self.snapshot, scheduler.queue.nominated, scope)
        names = [node.name for row, node in enumerate(self.snapshot.table.nodes) if scope.covers(row)]
        fitting = [] if decision.error is not None else [n for n in names if _fits(decision, self.snapshot, n)]
        return Feasibility(info.key, fitting, _refusals(decision, self.snapshot), "" if fitting else decision.message)

    def least_change(
        self,
        pod: str | Pod,
        may: Collection[Owner] = OWNERS,
        alternatives: int = 3,
        probes: int = 2000,
        costs: Costs | None = None,
    ) -> list[Remedy]:
        """Return the cheapest changes that would place a waiting pod: the best of each owner, and ``alternatives`` more.

        Each answer is verified by a run of the engine in which the pod is tried next and all else is as it is now. The list is
        empty if the pod fits as it is, or nothing known helps; ``find_least_change`` tells which, and how far it is proven.

        Raises  InputError for a pod that is not there
        """
        objects = self.objects()
        trials = FreshTrials(objects, self.pod(pod).key, self.options)
        answers = find_least_change(trials, objects, may=may, alternatives=alternatives, probes=probes, costs=costs)
        return list(answers.remedies)

    def _queued(self) -> list[Pod]:
        """Return the waiting pods that no plugin gates, in the order of the queue: as if all backoffs were over."""
        return [queued.pod.pod for queued in self.scheduler.queue.ranked()]

    def _try(self, pod: Pod, nodes: tuple[str, ...] | None) -> PodPlacement:
        heard: list[Decision] = []
        self._on_attempt = lambda attempt: heard.append(attempt.decision)
        try:
            self._step(Tried(pod.metadata.uid, nodes))
        finally:
            self._on_attempt = None
        return self._placement(pod, [decision for decision in heard if decision.pod.uid == pod.metadata.uid])

    def _placement(self, pod: Pod, decisions: Sequence[Decision]) -> PodPlacement:
        now = self.simulation.pods.get(pod.metadata.uid, pod)
        if now.spec.node_name:
            feasible = decisions[-1].feasible if decisions else 0
            return PodPlacement(
                pod.key, now.spec.node_name, feasible=feasible, evaluated=decisions[-1].evaluated if decisions else 0
            )
        if not decisions:
            return PodPlacement(pod.key, message=self._why_untried(now))
        last = decisions[-1]
        after = last.post_filter
        return PodPlacement(
            pod.key,
            message=last.message or f"waits to be bound to {last.node}",
            nominated=self.scheduler.queue.nomination(now.metadata.uid) or "",
            victims=() if after is None else tuple(victim.key for victim in after.victims),
            evaluated=last.evaluated,
        )

    def _why_untried(self, pod: Pod) -> str:
        queued = self.scheduler.queue.get(pod.metadata.uid)
        if queued is not None and queued.gate is not None:
            return ", ".join(queued.gate.reasons)
        if pod.spec.scheduler_name not in self.scheduler.profiles:
            return f"no profile has the name {pod.spec.scheduler_name}"
        return "the pod waits for no node"

    # -- steps -----------------------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        """Make a step and remember it."""
        simulation = self.simulation
        take(simulation, step)
        self._history.steps.append(step)

    def _hear(self, attempt: SimulatedAttempt) -> None:
        if self._on_attempt is not None:
            self._on_attempt(attempt)


def _options(
    config: str | PathLike[str] | bytes | None, release: str | None, seed: int, feature_gates: str,
    plugins: Iterable[type[Any]], ask: Callable[[Question], bytes] | None,
) -> Options:  # fmt: skip
    text, where = config, "the configuration"
    if isinstance(config, str | PathLike):
        inline = text_of(config)
        text, where = (inline.encode(), where) if inline is not None else (_bytes_of(Path(config)), str(config))
    return Options(
        config=text if isinstance(text, bytes) else None, where=where, emulate=release, seed=seed, feature_gates=feature_gates,
        plugins=tuple(plugins), ask=ask, skip_extenders=ask is None,
    )  # fmt: skip


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _flat(objects: Iterable[ObjectLike | Iterable[ObjectLike]]) -> Iterable[ObjectLike]:
    for one in objects:
        if isinstance(one, Object | Mapping | str | PathLike):
            yield one
        elif isinstance(one, Collection) or hasattr(one, "__iter__"):
            yield from one
        else:
            raise InputError(f"expected objects, found {type(one).__name__}")


def _fits(decision: Decision, snapshot: Snapshot, name: str) -> bool:
    return decision.status_of(snapshot.table.row_of[name]) is None


def _refusals(decision: Decision | None, snapshot: Snapshot) -> ColumnFrame:
    rows = []
    for row, node in enumerate(snapshot.table.nodes if decision is not None else ()):
        status = None if decision is None else decision.status_of(row)
        if status is not None:
            rows += [(node.name, status.plugin, reason, status.code is Code.UNSCHEDULABLE) for reason in status.reasons]
    return frame_of(("node", "plugin", "reason", "resolvable"), rows)
