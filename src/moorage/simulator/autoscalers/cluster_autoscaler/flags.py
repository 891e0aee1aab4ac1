"""The flags of cluster-autoscaler that count here, and its expanders: which node group to enlarge among those that would help.

Source  cluster-autoscaler at 87d9c45c02^, config/flags/flags.go; expander: waste, price, mostpods, leastnodes, priority,
        factory/chain.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, tanh
from random import Random
from typing import Any, Final, TypeAlias

from msgspec import Struct

from moorage.api.core import Node
from moorage.api.durations import DurationError, duration_seconds
from moorage.api.pod_requests import amount
from moorage.api.quantity import parse_bool
from moorage.api.reading.manifests import read_first_yaml
from moorage.errors import InputError
from moorage.state.pod_info import PodInfo

_GI: Final = 1 << 30
#: The pod that keeps the ratio of prices stable: 500 millicores, 500 MiB.
_STABILIZING: Final = (500, 500 << 20)
#: The price of a GiB of memory relative to a core, as for the machines of large providers.
_GIB_PER_CORE: Final = 0.13
#: (largest number of nodes, millicores of the preferred node): the size doubles whenever the cluster grows threefold.
_PREFERRED: Final = ((2, 1000), (6, 2000), (20, 4000), (60, 8000), (200, 16_000))
_PREFERRED_LARGE: Final = 32_000


class ExpansionOption(Struct, frozen=True):
    """``count`` more nodes like ``node``, at ``price`` each, would let these pods be placed."""

    pool: str
    node: Node
    price: float
    count: int
    pods: tuple[PodInfo, ...]


#: Returns the best options: more than one if they are equally good. The last argument is the number of nodes of the cluster.
Expander: TypeAlias = Callable[[Sequence[ExpansionOption], int], list[ExpansionOption]]


def size_of(node: Node) -> tuple[int, int]:
    """Return a node's capacity: millicores, bytes of memory."""
    held = node.status.capacity or node.status.allocatable
    return amount("cpu", held.get("cpu", "0")), amount("memory", held.get("memory", "0"))


def _asked(option: ExpansionOption) -> tuple[int, int]:
    cpu, memory = (sum(pod.requests.get(name, 0) for pod in option.pods) for name in ("cpu", "memory"))
    return cpu, memory


def _least(options: Sequence[ExpansionOption], score: Callable[[ExpansionOption], float]) -> list[ExpansionOption]:
    scores = list(map(score, options))
    return [option for option, found in zip(options, scores, strict=True) if found == min(scores)]


def least_waste(options: Sequence[ExpansionOption], nodes: int) -> list[ExpansionOption]:
    """Return the options that leave the least cpu and memory unused: the sum of both shares."""

    def waste(option: ExpansionOption) -> float:
        pairs = [(size * option.count, asked) for size, asked in zip(size_of(option.node), _asked(option), strict=True)]
        return sum((offered - asked) / offered if offered else 0.0 for offered, asked in pairs)

    return _least(options, waste)


def cheapest(options: Sequence[ExpansionOption], nodes: int) -> list[ExpansionOption]:
    """Return the options with the lowest price relative to the price of the pods, on nodes of a size that suits the cluster.

    The price of a pod: its requests at the prices of the cheapest pool, where a GiB of memory costs 0.13 of a core. (A cloud
    provider has a price list for pods.)
    """
    unit = min(option.price / _cores(*size_of(option.node)) for option in options)
    preferred, stable = preferred_cpu(nodes), unit * _cores(*_STABILIZING)

    def score(option: ExpansionOption) -> float:
        worth, cpu = unit * _cores(*_asked(option)), max(size_of(option.node)[0], 1)
        paid = (option.price * option.count + stable) / (worth + stable)
        unfitness = max(preferred / cpu, cpu / preferred)
        return ((unfitness - 1.0) * (1.0 - tanh((option.count - 1) / 15.0)) + 1.0) * paid

    return _least(options, score)


def preferred_cpu(nodes: int) -> int:
    """Return the millicores of the node that suits a cluster of so many nodes."""
    return next((cpu for most, cpu in _PREFERRED if nodes <= most), _PREFERRED_LARGE)


def _cores(cpu_milli: int, memory_bytes: int) -> float:
    return max(cpu_milli / 1000 + _GIB_PER_CORE * memory_bytes / _GI, 1e-9)


def priority_expander(priorities: str, where: str = "priorities of the config map") -> Expander:
    """Return the expander of the config map ``cluster-autoscaler-priority-expander``: groups of the highest priority.

    The map has regular expressions of names of groups by priority, as YAML. A group that none matches is not used, unless none
    of the groups is matched.

    Raises  InputError for another form, or a faulty expression
    """
    found = read_first_yaml(priorities, where)
    if not isinstance(found, dict) or not found:
        raise InputError(f"{where}: expected lists of regular expressions by priority, such as 10: [.*large.*]")
    expressions: list[tuple[int, re.Pattern[str]]] = []
    for priority, texts in found.items():
        if not str(priority).lstrip("-").isdigit() or not isinstance(texts, list):
            raise InputError(f"{where}: {priority}: expected a number with a list of regular expressions")
        for text in texts:
            try:
                expressions.append((int(priority), re.compile(str(text))))
            except re.error as error:
                raise InputError(f"{where}: {priority}: {text!r} is no regular expression: {error}") from None

    def rank(option: ExpansionOption) -> float:
        return max((rank for rank, one in expressions if one.search(option.pool)), default=-inf)

    return lambda options, _: _least(options, lambda option: -rank(option))


#: ``most-pods`` places the most pods, ``least-nodes`` adds the fewest nodes, ``random`` leaves all to chance.
EXPANDERS: Final[Mapping[str, Expander]] = {
    "least-waste": least_waste,
    "price": cheapest,
    "most-pods": lambda options, _: _least(options, lambda option: -len(option.pods)),
    "least-nodes": lambda options, _: _least([one for one in options if one.count], lambda option: option.count),
    "random": lambda options, _: list(options),
}


def read_expander(names: str, priorities: str = "") -> Expander:
    """Return the expander of the flag ``--expander``: names in order, each chooses among the best of those before.

    ``priorities``  the config map of ``priority``

    Raises  InputError
    """
    chain: list[Expander] = []
    for name in names.split(","):
        if name != "priority" and name not in EXPANDERS:
            raise InputError(f"expander: {name!r} is none of {', '.join((*EXPANDERS, 'priority'))}")
        chain.append(priority_expander(priorities) if name == "priority" else EXPANDERS[name])

    def filtered(options: Sequence[ExpansionOption], nodes: int) -> list[ExpansionOption]:
        left = list(options)
        for expander in chain:
            left = expander(left, nodes) if len(left) > 1 else left
        return left

    return filtered


def chosen(options: Sequence[ExpansionOption], expander: Expander, nodes: int, random: Random) -> ExpansionOption:
    """Return the option that an expander prefers; of equally good ones, a random one."""
    best = expander(options, nodes)
    return best[random.randrange(len(best))] if len(best) > 1 else best[0]


Seconds: TypeAlias = float
Name: TypeAlias = str
Names: TypeAlias = tuple[str, ...]
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
    balancing_ignore_label: Names = ()
    cloud_provider: Name = ""
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
    "str": _expander, "Name": str, "int": int, "float": float, "bool": parse_bool, "Seconds": duration_seconds,
    "Bounds": lambda text: tuple(map(int, text.partition(":")[::2])),
}  # fmt: skip
#: Flags that say nothing about decisions.
_SILENT: Final = frozenset({
    "v", "stderrthreshold", "logtostderr", "cloud-config", "namespace", "kubeconfig", "address",
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
            elif kind == "Names":
                found[field] = (*found.get(field, ()), text)
            elif kind in _READERS:
                found[field] = _READERS[kind](text)
            elif name not in _SILENT:
                ignored.append(f"--{name}")
        except (ValueError, DurationError):
            raise InputError(f"{where}: --{name}: {text!r} cannot be read") from None
    return AutoscalerFlags(nodes=tuple(nodes), ignored=tuple(ignored), **found)
