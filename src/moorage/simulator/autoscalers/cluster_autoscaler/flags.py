"""The flags of cluster-autoscaler that count here, as its command line gives them.

Source  cluster-autoscaler at 87d9c45c02^, config/flags/flags.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final

from msgspec import Struct

from moorage.api.durations import DurationError, duration_seconds
from moorage.errors import InputError
from moorage.simulator.autoscalers.cluster_autoscaler.drain_rules import DrainOptions
from moorage.simulator.autoscalers.cluster_autoscaler.eligibility import ScaleDownFlags
from moorage.simulator.autoscalers.cluster_autoscaler.expanders import read_expander
from moorage.simulator.autoscalers.cluster_autoscaler.loop import AutoscalerLoop, LoopFlags
from moorage.simulator.autoscalers.cluster_autoscaler.scale_down import PlannerFlags, ScaleDownPlanner
from moorage.simulator.autoscalers.cluster_autoscaler.scale_up import ScaleUpFlags

__all__ = ["AutoscalerFlags", "read_flags"]

_DEFAULT_EXPANDER: Final = "least-waste"


class AutoscalerFlags(Struct, frozen=True, kw_only=True):
    """All flags. ``nodes``: the groups of --nodes, as (name, minimum, maximum). ``ignored``: flags that change nothing here."""

    loop: LoopFlags = LoopFlags()
    up: ScaleUpFlags = ScaleUpFlags()
    planner: PlannerFlags = PlannerFlags()
    eligibility: ScaleDownFlags = ScaleDownFlags()
    drain: DrainOptions = DrainOptions()
    expander: str = _DEFAULT_EXPANDER
    nodes: tuple[tuple[str, int, int], ...] = ()
    ignored: tuple[str, ...] = ()

    def make_loop(self, random: Random, priorities: str = "", replicas: Any = None) -> AutoscalerLoop:
        """Return a loop with these flags. ``priorities``: the config map of the expander ``priority``."""
        planner = ScaleDownPlanner(self.planner, self.eligibility, self.drain, replicas)
        expander = read_expander(self.expander, priorities)
        return AutoscalerLoop(expander, random, planner=planner, up=self.up, flags=self.loop)


def _truth(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


def _bounds(unit: int) -> Callable[[str], tuple[int, int]]:
    def read(text: str) -> tuple[int, int]:
        low, _, high = text.partition(":")
        return int(low) * unit, int(high) * unit

    return read


#: Flag → the struct that has it, its field there, and how its value is read.
_FLAGS: Final[Mapping[str, tuple[str, str, Callable[[str], Any]]]] = {
    "scan-interval": ("loop", "scan_s", duration_seconds),
    "scale-down-delay-after-add": ("loop", "after_add_s", duration_seconds),
    "scale-down-delay-after-delete": ("loop", "after_delete_s", duration_seconds),
    "new-pod-scale-up-delay": ("loop", "young_s", duration_seconds),
    "scale-down-enabled": ("loop", "scale_down", _truth),
    "max-nodes-total": ("up", "most_nodes", int),
    "max-nodes-per-scaleup": ("up", "most_per_scale_up", int),
    "cores-total": ("up", "cores", _bounds(1)),
    "memory-total": ("up", "memory", _bounds(1 << 30)),
    "balance-similar-node-groups": ("up", "balance", _truth),
    "expendable-pods-priority-cutoff": ("up", "cutoff", int),
    "enforce-node-group-min-size": ("up", "enforce_least", _truth),
    "scale-down-unneeded-time": ("planner", "unneeded_s", duration_seconds),
    "scale-down-unready-time": ("planner", "unready_s", duration_seconds),
    "unremovable-node-recheck-timeout": ("planner", "recheck_s", duration_seconds),
    "max-scale-down-parallelism": ("planner", "parallel", int),
    "max-drain-parallelism": ("planner", "drains", int),
    "scale-down-utilization-threshold": ("eligibility", "utilisation", float),
    "scale-down-gpu-utilization-threshold": ("eligibility", "gpu_utilisation", float),
    "ignore-daemonsets-utilization": ("eligibility", "ignore_daemons", _truth),
    "ignore-mirror-pods-utilization": ("eligibility", "ignore_mirrors", _truth),
    "scale-down-unready-enabled": ("eligibility", "unready", _truth),
    "skip-nodes-with-system-pods": ("drain", "skip_system_pods", _truth),
    "skip-nodes-with-local-storage": ("drain", "skip_local_storage", _truth),
    "skip-nodes-with-custom-controller-pods": ("drain", "skip_custom_controllers", _truth),
    "min-replica-count": ("drain", "min_replicas", int),
    "blocking-system-pod-distruption-timeout": ("drain", "system_pod_timeout_s", duration_seconds),
}
_STRUCTS: Final[Mapping[str, Callable[..., Any]]] = {
    "loop": LoopFlags, "up": ScaleUpFlags, "planner": PlannerFlags, "eligibility": ScaleDownFlags, "drain": DrainOptions,
}  # fmt: skip
#: Flags that say nothing about decisions.
_SILENT: Final = frozenset({
    "v", "stderrthreshold", "logtostderr", "cloud-provider", "cloud-config", "namespace", "kubeconfig", "address",
    "leader-elect",
    "node-group-auto-discovery", "estimator", "cluster-name", "status-config-map-name", "write-status-configmap",
})  # fmt: skip


def read_flags(arguments: Iterable[str], where: str = "flags of cluster-autoscaler") -> AutoscalerFlags:
    """Return the flags of a command line such as ``["--expander=least-waste", "--nodes=1:10:pool"]``.

    Raises  InputError for a value that cannot be read
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in _STRUCTS}
    expander, nodes, ignored = _DEFAULT_EXPANDER, [], []
    for argument in arguments:
        name, given, text = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            continue
        text = text if given else "true"
        try:
            if name == "expander":
                read_expander(",".join(one for one in text.split(",") if one != "priority") or "random")
                expander = text
            elif name == "nodes":
                low, high, group = text.split(":", 2)
                nodes.append((group, int(low), int(high)))
            elif name in _FLAGS:
                holder, key, read = _FLAGS[name]
                found[holder][key] = read(text)
            elif name not in _SILENT:
                ignored.append(f"--{name}")
        except (ValueError, DurationError):
            raise InputError(f"{where}: --{name}: {text!r} cannot be read") from None
    made = {name: make(**found[name]) for name, make in _STRUCTS.items()}
    return AutoscalerFlags(expander=expander, nodes=tuple(nodes), ignored=tuple(ignored), **made)
