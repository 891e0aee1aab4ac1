"""One descheduling cycle: the deschedule plugins of all profiles, then their balance plugins, on one view of the cluster.

Source  descheduler 0.36, pkg/descheduler/descheduler.go (runProfiles), pkg/framework/profile/profile.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage.api.core import Node, Pod
from moorage.errors import InputError
from moorage.simulator.descheduler.balancing import duplicates, violating_spread
from moorage.simulator.descheduler.evictor import CycleLimits, DefaultEvictor, Evictor, PluginRun
from moorage.simulator.descheduler.policy import DefaultEvictorArgs, DeschedulerPolicy
from moorage.simulator.descheduler.removals import (
    failed_pods,
    pod_life_time,
    too_many_restarts,
    violating_anti_affinity,
    violating_node_affinity,
    violating_node_taints,
)
from moorage.simulator.descheduler.scene import Scene
from moorage.simulator.descheduler.utilization import high_node_utilization, low_node_utilization

__all__ = ["run_cycle", "run_plugin"]

_PLUGINS: Final[Mapping[str, Callable[..., None]]] = {
    "HighNodeUtilization": high_node_utilization, "LowNodeUtilization": low_node_utilization, "PodLifeTime": pod_life_time,
    "RemoveDuplicates": duplicates, "RemoveFailedPods": failed_pods, "RemovePodsHavingTooManyRestarts": too_many_restarts,
    "RemovePodsViolatingInterPodAntiAffinity": violating_anti_affinity,
    "RemovePodsViolatingNodeAffinity": violating_node_affinity, "RemovePodsViolatingNodeTaints": violating_node_taints,
    "RemovePodsViolatingTopologySpreadConstraint": violating_spread,
}  # fmt: skip
#: With so few nodes the descheduler does nothing.
_FEWEST_NODES: Final = 2


def run_plugin(run: PluginRun, args: Any, nodes: Sequence[Node]) -> None:
    """Run the plugin that a run names.

    Raises  InputError if metrics that it needs are missing
    """
    _PLUGINS[run.plugin](run, args, nodes)


def run_cycle(policy: DeschedulerPolicy, see: Callable[[], Scene], ask: Callable[[Pod], str]) -> tuple[Evictor, list[str]]:
    """Run all profiles and return the evictions, and the errors of plugins, which end only that plugin.

    ``see``  returns the cluster before each plugin: pods that an earlier one evicted are terminating or gone
    ``ask``  asks the API server for an eviction and returns its error, or "" if it is allowed
    """
    evictor, errors = Evictor(CycleLimits.of(policy), ask), []
    if len(see().ready_nodes(policy.node_selector or "")) < _FEWEST_NODES:
        return evictor, ["the cluster size is 0 or 1: the descheduler does nothing"]
    for point in ("deschedule", "balance"):
        for profile in policy.profiles:
            for name in getattr(profile.plugins, point).enabled:
                scene, given = see(), profile.args("DefaultEvictor")
                assert isinstance(given, DefaultEvictorArgs)
                run = PluginRun(scene, DefaultEvictor(given, scene), evictor, name, profile.name)
                try:
                    run_plugin(run, profile.args(name), scene.ready_nodes(policy.node_selector or ""))
                except InputError as error:
                    errors.append(f'plugin "{name}" finished with error: {error}')
    return evictor, errors
