"""``WeightsEnv``: a Gymnasium environment in which an action sets the weights of Score plugins for a whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from moorage.api.core import Node
from moorage.errors import InputError
from moorage.laboratory.cluster_objects import ObjectLike, flat_objects, read_given
from moorage.laboratory.cluster_options import ClusterOptions
from moorage.laboratory.dynamics.pod_arrivals import TraceArrivals
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.learning.placement import ArrivalsOfEpisode, as_arrivals
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.pod_creation import create_pods
from moorage.simulator.trace import Arrival
from moorage.state.pod_info import PodInfo

#: kube-scheduler's default Score plugins that read requests, with their weights.
DEFAULT_PLUGINS: Final[Mapping[str, int]] = {
    "NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1, "PodTopologySpread": 2, "InterPodAffinity": 2,
}  # fmt: skip
#: The highest weight that an action sets, and the upper limit of features.
_MOST: Final = 10.0
Features: TypeAlias = npt.NDArray[np.float32]


def configuration_of_weights(weights: Mapping[str, float]) -> str:
    """Return a KubeSchedulerConfiguration with these weights of Score plugins, rounded; plugins of weight 0 are disabled.

    Weights are multiplied by ten before rounding, so that tenths count. All other plugins are those of the default profile.
    """
    whole = {name: round(10 * weight) for name, weight in weights.items()}
    lines = ["apiVersion: kubescheduler.config.k8s.io/v1", "kind: KubeSchedulerConfiguration", "profiles:", "- plugins:"]
    lines += ["    score:", f"      disabled: [{', '.join(f'{{name: {name}}}' for name in whole)}]"]
    enabled = ", ".join(f"{{name: {name}, weight: {weight}}}" for name, weight in whole.items() if weight > 0)
    return "\n".join([*lines, f"      enabled: [{enabled}]", ""])


class WeightsEnv(gymnasium.Env[Features, Features]):
    """An episode is one step: the action sets the weights, and the reward is measured after the whole run.

    ``objects``, ``arrivals``  as for ``PlacementEnv``
    ``score_plugins``  the plugins whose weights an action sets; all others keep their weights
    ``reward``         a function of the simulation at the end; by default minus the mean wait in minutes, where a pod that is
                       pending has waited until the end
    ``until_s``        the length of a run in seconds; None: until nothing more can happen

    Action       one number from 0 to 1 for each plugin: ten times that is the weight, in tenths; 0 disables the plugin
    Observation  what the episode's pods request: their number for each node, and for cpu and memory the mean and the deviation
                 of the shares of a node, at most 10
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        objects: Iterable[ObjectLike],
        arrivals: ArrivalsOfEpisode,
        score_plugins: Sequence[str] = tuple(DEFAULT_PLUGINS),
        *,
        reward: Callable[[Simulation], float] | None = None,
        until_s: float | None = None,
        **options: Unpack[ClusterOptions],
    ) -> None:
        if options.get("config") is not None:
            raise InputError("config: an action makes the configuration; give score_plugins")
        self._objects = tuple(objects_of(create_pods(read_given(flat_objects(list(objects)))).cluster))
        self._nodes = sum(isinstance(obj, Node) for obj in self._objects)
        if not self._nodes or not score_plugins:
            raise InputError("weights are learned on at least one node, for at least one plugin")
        self._arrivals, self._plugins, self._reward = arrivals, tuple(score_plugins), reward or _no_waits
        self._until_s, self._options = until_s, options
        self._episode: list[Arrival] | None = None
        table = Simulation.from_objects(self._objects).table
        self._offered = {name: max(float(table.allocatable(name).view.mean()), 1.0) for name in ("cpu", "memory")}
        self.action_space = spaces.Box(0.0, 1.0, (len(self._plugins),), np.float32)
        self.observation_space = spaces.Box(0.0, _MOST, (5,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, dict[str, Any]]:
        super().reset(seed=seed)
        given = self._arrivals(self.np_random) if callable(self._arrivals) else self._arrivals
        found = as_arrivals(given)
        self._episode = sorted(found, key=lambda arrival: arrival.time_s)
        return self._observation(self._episode), {"pods": len(found)}

    def step(self, action: Features) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        if self._episode is None:
            raise InputError("the episode is over; call reset()")
        episode, self._episode = self._episode, None
        weights = dict(zip(self._plugins, (_MOST * np.asarray(action, dtype=np.float64)).tolist(), strict=True))
        simulation = self.simulated(episode, configuration_of_weights(weights))
        totals = simulation.totals()
        return self._observation(episode), float(self._reward(simulation)), True, False, dict(totals.to_dict())

    def simulated(self, episode: Iterable[Arrival], config: str | None) -> Simulation:
        """Return a simulation after a run of these arrivals with a configuration (None: kube-scheduler's defaults)."""
        options: ClusterOptions = {**self._options, "config": config}
        simulation = Simulation.from_objects(self._objects, **options)
        simulation.use(TraceArrivals(episode))
        simulation.run(until=self._until_s)
        return simulation

    def _observation(self, episode: Sequence[Arrival]) -> Features:
        asked = [PodInfo(arrival.pod).requests for arrival in episode]
        seen = [len(asked) / self._nodes]
        for name, whole in self._offered.items():
            shares = np.array([one.get(name, 0) / whole for one in asked] or [0.0])
            seen += [float(shares.mean()), float(shares.std())]
        found: Features = np.clip(np.array(seen), 0.0, _MOST).astype(np.float32)
        return found


def _no_waits(simulation: Simulation) -> float:
    """Return the negated mean wait in minutes; a pending pod counts as waiting until now."""
    totals = simulation.totals()
    waited = totals.wait_mean_s * totals.placed
    waited += sum(simulation.now_s - one.arrived_s for one in simulation.engine.records.values() if not one.node)
    return -waited / max(totals.placed + totals.pending, 1) / 60
