"""The flags of cluster-autoscaler that count here, as its command line gives them.

Source  cluster-autoscaler at 87d9c45c02^, config/flags/flags.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeAlias

from msgspec import Struct

from moorage.api.durations import DurationError, duration_seconds
from moorage.api.quantity import parse_bool
from moorage.errors import InputError
from moorage.simulator.autoscalers.cluster_autoscaler.expanders import read_expander

Seconds: TypeAlias = float
Bounds: TypeAlias = tuple[int, int]


class AutoscalerFlags(Struct, frozen=True, kw_only=True):
    """All flags by their names, with cluster-autoscaler's defaults. Times are in seconds; ``memory_total`` is in GiB.

    ``nodes``    the groups of --nodes, as (name, minimum, maximum)
    ``ignored``  flags that change nothing here
    """

    expander: str = "least-waste"
    nodes: tuple[tuple[str, int, int], ...] = ()
    scan_interval: Seconds = 10.0
    max_nodes_total: int = 0
    max_nodes_per_scaleup: int = 1000
    cores_total: Bounds = (0, 320_000)
    memory_total: Bounds = (0, 6_400_000)
    balance_similar_node_groups: bool = False
    enforce_node_group_min_size: bool = False
    expendable_pods_priority_cutoff: int = -10
    new_pod_scale_up_delay: Seconds = 0.0
    scale_down_enabled: bool = True
    scale_down_delay_after_add: Seconds = 600.0
    scale_down_delay_after_delete: Seconds = 0.0
    scale_down_unneeded_time: Seconds = 600.0
    scale_down_unready_enabled: bool = True
    scale_down_unready_time: Seconds = 1200.0
    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    unremovable_node_recheck_timeout: Seconds = 300.0
    max_scale_down_parallelism: int = 10
    max_drain_parallelism: int = 1
    ignore_daemonsets_utilization: bool = False
    ignore_mirror_pods_utilization: bool = False
    skip_nodes_with_system_pods: bool = True
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    min_replica_count: int = 0
    blocking_system_pod_distruption_timeout: Seconds = 3600.0
    ignored: tuple[str, ...] = ()


def _expander(text: str) -> str:
    read_expander(",".join(one for one in text.split(",") if one != "priority") or "random")
    return text


#: How the text of a flag is read, by the type of its field.
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "str": _expander, "int": int, "float": float, "bool": parse_bool, "Seconds": duration_seconds,
    "Bounds": lambda text: tuple(map(int, text.partition(":")[::2])),
}  # fmt: skip
#: Flags that say nothing about decisions.
_SILENT: Final = frozenset({
    "v", "stderrthreshold", "logtostderr", "cloud-provider", "cloud-config", "namespace", "kubeconfig", "address",
    "leader-elect", "node-group-auto-discovery", "estimator", "cluster-name", "status-config-map-name",
    "write-status-configmap",
})  # fmt: skip


def read_flags(arguments: Iterable[str], where: str = "flags of cluster-autoscaler") -> AutoscalerFlags:
    """Return the flags of a command line such as ``["--expander=least-waste", "--nodes", "1:10:pool"]``.

    Raises  InputError for a value that cannot be read
    """
    found: dict[str, Any] = {}
    nodes, ignored, words = [], [], [*arguments, "-"]
    for argument, following in pairwise(words):
        name, given, text = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            continue
        field = name.replace("-", "_")
        kind = AutoscalerFlags.__annotations__.get(field, "")
        if not given:
            text = "true" if kind == "bool" or following.startswith("-") else following
        try:
            if name == "nodes":
                low, high, group = text.split(":", 2)
                nodes.append((group, int(low), int(high)))
            elif kind in _READERS:
                found[field] = _READERS[kind](text)
            elif name not in _SILENT:
                ignored.append(f"--{name}")
        except (ValueError, DurationError):
            raise InputError(f"{where}: --{name}: {text!r} cannot be read") from None
    return AutoscalerFlags(nodes=tuple(nodes), ignored=tuple(ignored), **found)
