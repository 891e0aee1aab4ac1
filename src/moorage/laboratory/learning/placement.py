"""``PlacementEnv``: a Gymnasium environment in which an agent chooses the node of each pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from moorage.api.core import Node, Object, Pod
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Feasible, Quick
from moorage.core.cycle.search import SearchScope
from moorage.core.cycle.sheets import Sheets
from moorage.core.engine.facts import Seen
from moorage.core.engine.placer import Found
from moorage.core.preemption.what_if import Nominated
from moorage.core.queue import QueuePlace
from moorage.errors import InputError
from moorage.framework.profile import Profile
from moorage.laboratory.cluster_objects import ObjectLike, flat_objects, read_given
from moorage.laboratory.cluster_options import ClusterOptions, cluster_options
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.filtering import fitting_rows
from moorage.simulator.job_groups import create_for
from moorage.simulator.pod_records import PodRecord
from moorage.simulator.simulate import Options, kinds_named, load_options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.simulator.trace import Arrival, told_apart
from moorage.state.columns import Column
from moorage.state.table import NodeTable
from moorage.state.view import PodInfo, Snapshot

# -- observations ------------------------------------------------------------------------------------------------------
# Observations of nodes and of the pod to place, as arrays of float32.
#
# A node has two features for each resource: the free share of its allocatable amount, and its allocatable amount divided by
# the largest of any node. A pod has one feature for each resource: its request divided by that largest amount. Only the rows
# of changed nodes are computed again; a step creates no objects.

#: The name among resources that stands for the number of pods on a node.
PODS: Final = "pods"
#: More changed rows than this are computed as columns.
_FEW: Final = 8
Floats = npt.NDArray[np.float32]


class NodeFeatures:
    """The features of the rows of one node table, whose nodes do not change.

    ``values`` has shape (max_nodes, 2 · resources): free shares first, then sizes; rows without a node are 0.
    """

    def __init__(self, table: NodeTable, resources: Iterable[str], max_nodes: int) -> None:
        self.resources = tuple(resources)
        self._table = table
        offered = [table.allowed_pods if name == PODS else table.allocatable(name) for name in self.resources]
        self._requested: list[Column] = [table.pod_count if name == PODS else table.requested(name) for name in self.resources]
        self._nodes, count = len(table), len(self.resources)
        self._offered = np.array([column.view for column in offered], dtype=np.float64).reshape(count, self._nodes)
        #: The largest allocatable amount of any node, by resource.
        self.most = np.maximum(self._offered.max(axis=1, initial=0.0), 1.0)
        #: The allocatable amounts of all nodes together.
        self.whole = np.maximum(self._offered.sum(axis=1), 1.0)
        self._divisors = np.maximum(self._offered, 1.0)
        self._cells = self._divisors.T.tolist()
        self._there = (self._offered > 0).astype(np.float64)
        self._there_cells = self._there.T.tolist()
        self.values: Floats = np.zeros((max_nodes, 2 * count), dtype=np.float32)
        self.values[: self._nodes, count:] = (self._offered / self.most[:, None]).T
        self._position = -1
        self._pods: dict[tuple[str | int, ...], Floats] = {}
        self._shares: dict[tuple[str | int, ...], float] = {}

    def refresh(self) -> Floats:
        """Return the values, brought up to date; the array belongs to this object."""
        changes = self._table.changes
        changed = None if self._position < 0 else changes.since(self._position)
        self._position = changes.position
        if changed is None or len(changed) > _FEW:
            self._compute_all()
        else:
            for row in changed:
                self._compute(row)
        return self.values

    def _compute_all(self) -> None:
        free = self._there.copy()
        for at, column in enumerate(self._requested):
            free[at] -= column.view / self._divisors[at]
        self.values[: self._nodes, : len(self.resources)] = np.clip(free, 0.0, 1.0).T

    def _compute(self, row: int) -> None:
        values = self.values[row]
        known = zip(self._requested, self._there_cells[row], self._cells[row], strict=True)
        for at, (column, there, most) in enumerate(known):
            free = there - column.cells[row] / most
            values[at] = 0.0 if free < 0.0 else min(free, 1.0)

    def of_pod(self, pod: PodInfo) -> Floats:
        """Return the features of a pod; the array must not be changed."""
        found = self._pods.get(pod.needs.key)
        if found is None:
            asked = pod.requests
            shares = [1.0 if name == PODS else asked.get(name, 0) for name in self.resources] / self.most
            found = self._pods[pod.needs.key] = np.clip(shares, 0.0, 1.0).astype(np.float32)
        return found

    def share_of_all(self, pod: PodInfo) -> float:
        """Return the pod's request as a share of what all nodes offer: the highest share of any resource."""
        found = self._shares.get(pod.needs.key)
        if found is None:
            asked = pod.requests
            shares = [asked.get(name, 0) / whole for name, whole in zip(self.resources, self.whole.tolist(), strict=True)]
            found = self._shares[pod.needs.key] = max(shares, default=0.0)
        return found


#: The pods of an episode, or a function that draws them with the environment's generator.
ArrivalsOfEpisode: TypeAlias = Sequence[Pod | Arrival] | Callable[[np.random.Generator], Iterable[Pod | Arrival]]
Observation: TypeAlias = dict[str, np.ndarray[Any, np.dtype[Any]]]
#: The reward of an illegal action.
PENALTY: Final = 1.0
_REWARDS: Final = ("utilisation", "placed", "wait")
_RESOURCES: Final = ("cpu", "memory", PODS)
_time_of: Final = attrgetter("time_s")


class PlacementEnv(gymnasium.Env[Observation, np.int64]):
    """The agent chooses a node for each pod that fits somewhere, in the order of the scheduling queue.

    ``objects``    nodes, and pods and other objects that exist from the beginning
    ``arrivals``   the pods of an episode: pods at time 0, or ``Arrival`` with times and lifetimes; or a function that
                   draws them with the environment's generator
    ``reward``     ``utilisation``: the highest share of the cluster's resources that the placed pod requests; ``placed``: 1 for
                   each; ``wait``: minus the minutes that the placed pod has waited and, at the end of the episode, minus those
                   of all pods that stay pending; or a function of the environment, the pod and its node's row, called before
                   the pod is placed
    ``resources``  the resources in observations
    ``max_nodes``  the number of actions; None: the number of nodes
    ``max_steps``  the number of steps after which an episode is truncated; None: never
    ``shuffle``    shuffle arrivals of equal times, if they are a sequence

    Action       the row of a node. For a row that the mask closes, the reward is -1, the attempt fails, and the pod waits for
                 an event, as a pod does that fits nowhere
    Observation  ``nodes`` (see ``NodeFeatures``), ``pod``, ``action_mask`` (1: no Filter plugin refuses the node)
    Info         ``pod``, its name; ``seconds``, the simulated time; at the end ``placed`` and ``pending``

    An episode ends when no pod can be placed any more. Equal seeds give equal episodes. See ``ClusterOptions`` for the others.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        objects: Iterable[ObjectLike],
        arrivals: ArrivalsOfEpisode,
        *,
        reward: str | Callable[[PlacementEnv, Any, int], float] = "utilisation",
        resources: Sequence[str] = _RESOURCES,
        max_nodes: int | None = None,
        max_steps: int | None = None,
        shuffle: bool = False,
        **options: Unpack[ClusterOptions],
    ) -> None:
        if isinstance(reward, str) and reward not in _REWARDS:
            raise InputError(f"reward: {reward!r} is no reward; use {', '.join(_REWARDS)}, or a function")
        self._options: Options = cluster_options(options)
        given = read_given(flat_objects(list(objects)), custom=kinds_named(self._options))
        self._objects: tuple[Object, ...] = tuple(objects_of(create_for(given, self._options).cluster))
        self._loaded = load_options(self._options)
        self._arrivals = arrivals if callable(arrivals) else as_arrivals(arrivals)
        self._reward, self._resources = reward, tuple(resources)
        self._max_steps, self._shuffle = max_steps, shuffle
        nodes = sum(isinstance(obj, Node) for obj in self._objects)
        self.max_nodes = max_nodes or nodes
        if not 0 < nodes <= self.max_nodes:
            raise InputError(f"max_nodes: {self.max_nodes} actions are too few for {nodes} nodes; give one node or more")
        there = [obj for obj in self._objects if isinstance(obj, Pod)]
        self._kept = frozenset(pod.metadata.uid for pod in there)
        #: True if all initial pods have nodes, so that no episode places them.
        self._stay = all(pod.spec.node_name for pod in there)
        self._simulation: ChosenPlacements | None = None
        self._choice: OpenChoice | None = None
        self._features: NodeFeatures
        self._no_pod = np.zeros(len(self._resources), dtype=np.float32)
        self.action_space = spaces.Discrete(self.max_nodes)
        self.observation_space = spaces.Dict(
            {
                "nodes": spaces.Box(0.0, 1.0, (self.max_nodes, 2 * len(self._resources)), np.float32),
                "pod": spaces.Box(0.0, 1.0, (len(self._resources),), np.float32),
                "action_mask": spaces.Box(0, 1, (self.max_nodes,), np.int8),
            }
        )  # type: ignore[assignment, unused-ignore]

    @property
    def simulation(self) -> ChosenPlacements:
        """The engine in virtual time. Read only."""
        if self._simulation is None:
            raise InputError("call reset() first")
        return self._simulation

    # -- episodes --------------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        arrivals = self._drawn()
        simulation = self._begun([arrival.pod for arrival in arrivals if arrival.time_s <= 0])
        self._steps = self._placed = 0
        for arrival in arrivals:
            if arrival.duration_s is not None:
                simulation.durations[arrival.pod.metadata.uid] = arrival.duration_s
            if arrival.time_s > 0:
                simulation.at(arrival.time_s, Seen(arrival.pod))
        self._choice = simulation.next_choice()
        return self._observation(), self._info()

    def _begun(self, pods: Sequence[Pod]) -> ChosenPlacements:
        """Return the simulation at time 0, with the pods that arrive then."""
        simulation = self._simulation
        if simulation is None or not self._stay or not simulation.begin_again(self._kept, pods):
            simulation = self._simulation = self._made()
            self._features = NodeFeatures(simulation.scheduler.cluster.table, self._resources, self.max_nodes)
            simulation.begin(pods)
        return simulation

    def _made(self) -> ChosenPlacements:
        made, _ = prepare(self._options, simulation=ChosenPlacements, loaded=self._loaded)
        assert isinstance(made, ChosenPlacements)
        made.keeps_records = False
        made.load(self._objects)
        return made

    def _drawn(self) -> list[Arrival]:
        found = as_arrivals(self._arrivals(self.np_random)) if callable(self._arrivals) else self._arrivals
        if self._shuffle:
            found = [found[at] for at in self.np_random.permutation(len(found)).tolist()]
        return sorted(found, key=_time_of)

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        choice, simulation = self._choice, self.simulation
        if choice is None:
            raise InputError("the episode is over; call reset()")
        row = int(action)
        is_open = 0 <= row < len(choice.rows) and bool(choice.rows[row])
        reward = self._reward_of(choice, row) if is_open else -PENALTY
        self._placed += simulation.place(choice, row)
        self._steps += 1
        self._choice = simulation.next_choice()
        if self._choice is None and self._reward == "wait":
            reward -= sum(map(self._waited, simulation.pending_pods()))
        truncated = self._max_steps is not None and self._steps >= self._max_steps
        return self._observation(), reward, self._choice is None, truncated, self._info()

    def _reward_of(self, choice: OpenChoice, row: int) -> float:
        if callable(self._reward):
            return float(self._reward(self, choice.pod, row))
        if self._reward == "wait":
            return -self._waited(choice.pod.pod)
        return 1.0 if self._reward == "placed" else self._features.share_of_all(choice.pod)

    def _waited(self, pod: Pod) -> float:
        """Return the minutes since a pending pod arrived."""
        record = self.simulation.records.get(pod.metadata.uid)
        return 0.0 if record is None else (self.simulation.now - record.arrived_s) / 60

    def expert_action(self) -> int:
        """Return the row that the scheduler itself would choose now, with the scores of the configuration.

        Agents imitate it, and baselines play it.

        Raises  InputError at the end of an episode
        """
        choice, scheduler = self._choice, self.simulation.scheduler
        if choice is None:
            raise InputError("the episode is over; call reset()")
        profile = scheduler.profiles[choice.pod.spec.scheduler_name]
        decision = scheduler.cycle.decide(profile, choice.pod, scheduler.snapshot, scheduler.queue.nominated)
        if decision.node is None:
            raise InputError(f"the scheduler places {choice.pod.key} nowhere: {decision.message}")
        return scheduler.snapshot.table.row_of[decision.node]

    # -- what agents see -------------------------------------------------------------------------------------------------

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return the action mask as booleans, under the name that agents with action masking call."""
        return self._mask().astype(np.bool_)

    def _mask(self) -> np.ndarray[Any, np.dtype[np.int8]]:
        choice = self._choice
        if choice is not None and len(choice.rows) == self.max_nodes:
            return choice.rows.astype(np.int8)
        mask = np.zeros(self.max_nodes, dtype=np.int8)
        if choice is not None:
            mask[: len(choice.rows)] = choice.rows
        return mask

    def _observation(self) -> Observation:
        choice = self._choice
        pod: Floats = self._no_pod if choice is None else self._features.of_pod(choice.pod)
        return {"nodes": self._features.refresh().copy(), "pod": pod.copy(), "action_mask": self._mask()}

    def _info(self) -> dict[str, Any]:
        simulation = self.simulation
        info: dict[str, Any] = {
            "pod": "" if self._choice is None else self._choice.pod.key, "seconds": simulation.now,
        }  # fmt: skip
        if self._choice is None:
            info |= {"placed": self._placed, "pending": len(simulation.scheduler.queue)}
        return info


def as_arrivals(given: Iterable[Pod | Arrival]) -> list[Arrival]:
    """Return arrivals, each of a pod of its own; pods arrive at time 0."""
    return list(told_apart(one if isinstance(one, Arrival) else Arrival(0.0, one) for one in given))


# -- chosen placements -------------------------------------------------------------------------------------------------
# A simulation in which the caller chooses the node of each pod: the engine runs the queue, the filters and the clock.
#
# A pod that fits nowhere fails as usual: PostFilter runs, and the pod waits for an event that helps it. A pod that fits
# somewhere waits for ``place``. The engine itself places pods of pod groups; the caller does not choose for them.


class _ChosenPath(Sheets):
    """A cached path that returns the caller's choice."""

    choice: Quick | None = None

    def decide_known(
        self, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated = MappingProxyType({})
    ) -> Quick | None:
        return self.choice


class _OneChoice(Cycle):
    """A cycle whose fast path returns the caller's choice."""

    chosen: _ChosenPath | None = None
    choice: Quick | None = None

    def at_once(self, profile: Profile) -> Sheets:
        chosen = self.chosen = self.chosen or _ChosenPath(profile)
        chosen.choice = self.choice
        return chosen


class OpenChoice:
    """A pod that waits for a choice. ``rows`` is a mask of the node table's rows; it is valid until something changes."""

    __slots__ = ("_known", "pod", "rows")

    def __init__(self, pod: PodInfo, rows: npt.NDArray[np.bool_], known: Feasible | None) -> None:
        self.pod, self.rows, self._known = pod, rows, known

    def quick(self, row: int) -> Quick | None:
        """Return the decision for a row, for the fast path; None if the answers of the pod's class are not cached."""
        return None if self._known is None else Quick(row, self._known.number, self._known.found)


class ChosenPlacements(SimulatedCluster):
    """A simulated cluster whose caller chooses nodes; see the module's description."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chooser = _OneChoice()
        #: The engine's count of facts after a placement that the fast path completed; -1 after anything else.
        self._facts = -1
        self._unscored: dict[str, Profile] = {}
        #: The first pods of the last episode, by UID, if they can be put back; and the number of all pods at that time.
        self._first: dict[str, PodInfo] = {}
        self._population = 0

    def next_choice(self) -> OpenChoice | None:
        """Let time pass until a pod that fits somewhere is first in the queue; None if nothing more can happen."""
        scheduler = self.scheduler
        while True:
            if scheduler.state.facts != self._facts or (self._events and self._events[0][0] <= self.now):
                self._process_due()
            queued = scheduler.queue.first_active(self.now)
            if queued is None:
                self._facts = -1
                if not self._deliver() and not self._advance():
                    return None
                continue
            choice = None if scheduler.state.is_in_group(queued.pod) else self._choice_for(queued.pod)
            if choice is not None:
                return choice
            self._facts = -1
            scheduler.step(self.now)
            self._deliver()

    def _choice_for(self, pod: PodInfo) -> OpenChoice | None:
        scheduler = self.scheduler
        if pod.terminating or scheduler.cluster.node_of(pod.uid) is not None:
            return None
        known = None
        if not scheduler.queue.nominated:
            known = scheduler.cycle.path(self._profile_of(pod.spec.scheduler_name)).feasible(pod, scheduler.snapshot)
        if known is not None:
            return OpenChoice(pod, known.rows, known) if known.number else None
        rows = np.zeros(len(scheduler.snapshot.table), dtype=np.bool_)
        rows[fitting_rows(scheduler, pod)] = True
        return OpenChoice(pod, rows, None) if rows.any() else None

    def _profile_of(self, name: str) -> Profile:
        """Return the profile of a scheduler name without Score plugins, which a choice does not need."""
        found = self._unscored.get(name)
        if found is None:
            found = self._unscored[name] = self.scheduler.profiles[name].without_scores()
        return found

    def place(self, choice: OpenChoice, row: int) -> bool:
        """Schedule the pod with this row as the only candidate. Return whether it was bound; a closed row refuses it."""
        scheduler, pod = self.scheduler, choice.pod
        is_open = 0 <= row < len(choice.rows) and bool(choice.rows[row])
        if is_open:
            self._chooser.choice = choice.quick(row)
            found = scheduler.lane.find(self._chooser, self.now)
            if isinstance(found, Found) and found.pod is pod:
                facts = scheduler.state.facts
                scheduler.state.placer.assume(found)
                self._note(found.decision)
                quiet = scheduler.state.facts == facts
                scheduler.state.placer.confirm(found, self._bound(pod.pod, found.node))
                self._facts = facts + 1 if quiet else -1
                return True
        self._facts = -1
        self.attempt(pod.pod, SearchScope(np.array([row] if is_open else [], dtype=np.intp), post_filter=False))
        now = self.pods.get(pod.uid)
        return now is not None and bool(now.spec.node_name)

    # -- beginning again -------------------------------------------------------------------------------------------------

    def begin(self, pods: Sequence[Pod]) -> None:
        """Begin an episode: add the pods that arrive at time 0."""
        self.tell([Seen(pod) for pod in pods])
        self._first, self._population = self._untried(pods), len(self._pods)

    def begin_again(self, kept: frozenset[str], pods: Sequence[Pod]) -> bool:
        """Begin another episode: keep the placed pods with the UIDs ``kept``, and add the pods that arrive at time 0.

        Return False if the initial state cannot be restored: a pod to keep was deleted, or more than pods changed.
        """
        if kept <= self._pods.keys() and self._put_back(pods):
            return True
        if not self._restore(kept):
            return False
        self.begin(pods)
        return True

    def _untried(self, pods: Sequence[Pod]) -> dict[str, PodInfo]:
        """Return the pods in the queue, by UID; empty if ``_put_back`` cannot put them back."""
        queue, cluster = self.scheduler.queue, self.scheduler.cluster
        if cluster.groups is not None or queue.nominated or len(queue) != len(pods):
            return {}
        found = [queue.get(pod.metadata.uid) for pod in pods]
        first: dict[str, PodInfo] = {}
        for pod, queued in zip(pods, found, strict=True):
            active = queued is not None and queued.place is QueuePlace.ACTIVE and not queued.attempts
            if queued is None or not active or queued.pod.pod is not pod or not _is_plain(pod):
                return {}
            first[queued.uid] = queued.pod
        return first

    def _put_back(self, pods: Sequence[Pod]) -> bool:
        """Move the pods of the last episode back to the queue. Return False, and change nothing, if that is impossible."""
        first, scheduler, state = self._first, self.scheduler, self.scheduler.state
        infos = [info for pod in pods if (info := first.get(pod.metadata.uid)) is not None and info.pod is pod]
        if not infos or not len(infos) == len(pods) == len(first):
            return False
        if len(self._pods) != self._population or not first.keys() <= self._pods.keys():
            return False  # other pods came, or some ended or were evicted
        if self._waiting_work or state.bindings.by_uid or scheduler.queue.nominated:
            return False
        self._clear()
        queue, cluster = scheduler.queue, scheduler.cluster
        for info in infos:
            uid = info.uid
            if cluster.remove_pod(uid) is None:
                queue.delete(info, 0.0)
            del self._pods[uid]
            self._arrivals += 1
            self._pods[uid], self._came[uid] = info.pod, self._arrivals
            self.records[uid] = PodRecord(info.pod, 0.0)
            queue.put_back(info, 0.0)
        self.arrived += len(infos)
        state.facts += 2 * len(infos)
        state.revision += 2 * len(infos)
        return True

    def _clear(self) -> None:
        """Drop scheduled events and records, and set the time to 0."""
        self._facts, self._may_fit, self.now = -1, "", 0.0
        self._events.clear()
        for book in (self.durations, self.records, self.victims, self._last_attempts, self._timeouts):
            book.clear()

    def _restore(self, kept: frozenset[str]) -> bool:
        """Delete all pods except those with the UIDs ``kept``, drop scheduled events, and set the time to 0.

        Return False if the initial state cannot be restored: a pod to keep was deleted, or more than pods changed.
        """
        if not kept <= self._pods.keys() or self._waiting_work or self.scheduler.state.bindings.by_uid:
            return False
        self._clear()
        placed = self.scheduler.cluster.uids
        for uid in [uid for uid, pod in self._pods.items() if uid not in kept and not (uid in placed and _is_plain(pod))]:
            self.delete(uid)
        if len(self.scheduler.queue):
            return False
        gone = [pod for uid, pod in self._pods.items() if uid not in kept]
        self.scheduler.event_handlers.forget(gone)
        for pod in gone:
            del self._pods[pod.metadata.uid], self._came[pod.metadata.uid]
            self._named.put(pod.metadata.namespace, pod.metadata.name, None)
        return True


def _is_plain(pod: Pod) -> bool:
    """Return True if the pod has no claims or volumes, so that no controller acts when it is deleted."""
    return not (pod.spec.resource_claims or pod.spec.volumes)
