"""``PlacementEnv``: a Gymnasium environment in which an agent chooses the node of each pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from moorage.api.core import Node, Object, Pod
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.laboratory.cluster_objects import ObjectLike, flat_objects, read_given
from moorage.laboratory.cluster_options import ClusterOptions, cluster_options
from moorage.laboratory.learning.chosen_placements import ChosenPlacements, OpenChoice
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.job_groups import create_for
from moorage.simulator.simulate import Options, kinds_named, load_options, prepare
from moorage.simulator.trace import Arrival, told_apart
from moorage.state.columns import Column
from moorage.state.table import NodeTable
from moorage.state.view import PodInfo

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
