"""``PlacementEnv``: a Gymnasium environment in which an agent chooses the node of each pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces

from moorage.api.core import Node, Pod
from moorage.api.meta import Object
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.laboratory.cluster_options import ClusterOptions, cluster_options
from moorage.laboratory.learning.chosen_placements import ChosenPlacements, OpenChoice
from moorage.laboratory.learning.observations import PODS, Floats, NodeFeatures
from moorage.laboratory.objects import ObjectLike, flat_objects, read_given
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.pod_creation import create_pods
from moorage.simulator.simulate import Options, kinds_named, load_options, prepare
from moorage.simulator.trace import Arrival

__all__ = ["ArrivalsOfEpisode", "PlacementEnv"]

#: The pods of an episode, or a function that draws them with the environment's generator.
ArrivalsOfEpisode: TypeAlias = Sequence[Pod | Arrival] | Callable[[np.random.Generator], Iterable[Pod | Arrival]]
Observation: TypeAlias = dict[str, np.ndarray[Any, np.dtype[Any]]]
#: The reward of an illegal action.
PENALTY: Final = 1.0
_RESOURCES: Final = ("cpu", "memory", PODS)
_time_of: Final = attrgetter("time_s")


class PlacementEnv(gymnasium.Env[Observation, np.int64]):
    """The agent chooses a node for each pod that fits somewhere, in the order of the scheduling queue.

    ``objects``    nodes, and pods and other objects that exist from the beginning
    ``arrivals``   the pods of an episode: pods at time 0, or ``Arrival`` with times and lifetimes; or a function that
                   draws them with the environment's generator
    ``reward``     ``utilisation``: the highest share of the cluster's resources that the placed pod requests; ``placed``: 1 for
                   each; or a function of the environment, the pod and its node's row, called before the pod is placed
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
        if isinstance(reward, str) and reward not in {"utilisation", "placed"}:
            raise InputError(f"reward: {reward!r} is neither 'utilisation' nor 'placed' nor a function")
        self._options: Options = cluster_options(options)
        given = read_given(flat_objects(list(objects)), custom=kinds_named(self._options))
        self._objects: tuple[Object, ...] = tuple(objects_of(create_pods(given, quota=self._options.quota).cluster))
        self._loaded = load_options(self._options)
        self._arrivals = arrivals if callable(arrivals) else _as_arrivals(arrivals)
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
        found = _as_arrivals(self._arrivals(self.np_random)) if callable(self._arrivals) else self._arrivals
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
        truncated = self._max_steps is not None and self._steps >= self._max_steps
        return self._observation(), reward, self._choice is None, truncated, self._info()

    def _reward_of(self, choice: OpenChoice, row: int) -> float:
        if callable(self._reward):
            return float(self._reward(self, choice.pod, row))
        return 1.0 if self._reward == "placed" else self._features.share_of_all(choice.pod)

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


def _as_arrivals(given: Iterable[Pod | Arrival]) -> list[Arrival]:
    return [one if isinstance(one, Arrival) else Arrival(0.0, one) for one in given]
