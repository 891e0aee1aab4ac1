"""What the Trimaran plugins share: measured load of nodes from a load watcher, and the requests and limits of pods.

Source  scheduler-plugins 903da7df82cb, pkg/trimaran/collector.go and resourcestats.go; the load watcher's own JSON
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from moorage.api.core import Container
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import Value
from moorage.api.quantity import milli_value, value
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.handle import Handle
from moorage.state.view import NodeInfo, PodInfo

CPU: Final = "CPU"
MEMORY: Final = "Memory"
_AVERAGE: Final = "AVG"
_STD: Final = "STD"
_LATEST: Final = "Latest"
#: How often metrics are fetched, and how long a request may take, in seconds.
_EVERY_S: Final = 30.0
_PATIENCE_S: Final = 10.0
_FILE: Final = "file:"


class MetricProvider(Value):
    type: Literal["KubernetesMetricsServer", "Prometheus", "SignalFx", ""] = ""
    address: str = ""
    token: str = ""
    insecure_skip_verify: bool | None = None


class TrimaranArgs(PluginArgs, frozen=True):
    """Where metrics come from: the address of a load watcher, ``http://…`` or the ``file:…`` of an answer of one.

    A ``metric_provider`` is accepted and not asked: without a load watcher there are no metrics.
    """

    metric_provider: MetricProvider = MetricProvider()
    watcher_address: str = ""

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        address = self.watcher_address
        if address and not address.startswith(("http://", "https://", _FILE)):
            return [Fault("Invalid value", f"{path}.watcherAddress", "must begin with http://, https:// or file:", address)]
        return []


class Metric(NamedTuple):
    """A measured value of a node: percents of its capacity."""

    kind: str
    operator: str
    value: float


class Collector:
    """The newest metrics of nodes. ``version`` grows when they change; they were taken up to the Unix time ``window_end``.

    ``metrics`` is None until metrics have arrived.
    """

    def __init__(self, args: TrimaranArgs) -> None:
        self._address = args.watcher_address
        self.metrics: Mapping[str, tuple[Metric, ...]] | None = None
        self.window_end = 0
        self.version = 0

    def start(self, plugin: str, handle: Handle) -> None:
        """Fetch metrics now and then, beside scheduling. In a simulation only a file is read."""
        if self._address:
            handle.refresh(plugin, _EVERY_S, self.fetch, self.fetch if self._address.startswith(_FILE) else None)

    def fetch(self) -> None:
        """Fetch the metrics once.

        Raises  OSError or ValueError if the load watcher has none; the metrics then stay as they are
        """
        self.take(json.loads(self._read()))

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take an answer of a load watcher."""
        found = answer.get("data", {}).get("NodeMetricsMap") or {}
        metrics = {
            node: tuple(
                Metric(one.get("type", ""), one.get("operator", ""), float(one.get("value", 0)))
                for one in of_node.get("metrics") or ()
            )
            for node, of_node in found.items()
        }
        end = int(answer.get("window", {}).get("end", 0))
        if (metrics, end) != (self.metrics, self.window_end):
            self.metrics, self.window_end, self.version = metrics, end, self.version + 1

    def of(self, node: str) -> tuple[Metric, ...] | None:
        """Return the metrics of a node; None if there are none."""
        return None if self.metrics is None else self.metrics.get(node)

    def _read(self) -> bytes:
        if self._address.startswith(_FILE):
            return Path(self._address.removeprefix(_FILE).removeprefix("//")).read_bytes()
        url = f"{self._address.rstrip('/')}/watcher"
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as response:  # noqa: S310 (the address is http or https)
            body: bytes = response.read()
            return body


class Amounts(NamedTuple):
    """CPU in millicores and memory in bytes."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory)

    def least(self, other: Amounts) -> Amounts:
        return Amounts(min(self.cpu, other.cpu), min(self.memory, other.memory))

    def most(self, other: Amounts) -> Amounts:
        return Amounts(max(self.cpu, other.cpu), max(self.memory, other.memory))


def amounts_of(resources: Mapping[str, Any]) -> Amounts:
    """Return the amounts of a list of resources."""
    return Amounts(milli_value(resources.get("cpu", 0)), value(resources.get("memory", 0)))


def requested_by(pod: PodInfo) -> Amounts:
    """Return what the containers of a pod request together, at least what each init container does, with the overhead."""
    return _effective(pod, lambda container: container.resources.requests)


def limits_of(pod: PodInfo) -> Amounts:
    """Return the limits of a pod, which are at least its requests."""
    return _effective(pod, lambda container: container.resources.limits).most(requested_by(pod))


def _effective(pod: PodInfo, of: Callable[[Container], Mapping[str, Any]]) -> Amounts:
    together = Amounts()
    for container in pod.spec.containers:
        together = together.plus(amounts_of(of(container)))
    for container in pod.spec.init_containers:
        together = together.most(amounts_of(of(container)))
    return together.plus(amounts_of(pod.spec.overhead)) if pod.spec.overhead else together


class Load(NamedTuple):
    """The measured load of a resource as shares of what the node offers: the average, and the standard deviation."""

    mean: float
    deviation: float
    capacity: int


def load_of(metrics: Iterable[Metric], kind: str, node: NodeInfo, wanted: int = 0) -> Load | None:
    """Return the load of a node with ``wanted`` more of a resource; None without metrics of it. Shares are within 0 and 1."""
    average = deviation = 0.0
    has_average = found = False
    for metric in metrics:
        if metric.kind != kind:
            continue
        found = True
        if metric.operator == _AVERAGE:
            average, has_average = metric.value, True
        elif metric.operator == _STD:
            deviation = metric.value
        elif metric.operator in {"", _LATEST} and not has_average:
            average = metric.value
    if not found:
        return None
    offered = amounts_of(node.node.status.allocatable)
    capacity = offered.cpu if kind == CPU else offered.memory
    if capacity <= 0:
        return Load(0.0, 0.0, capacity)
    used, spread = average * capacity / 100, deviation * capacity / 100
    return Load(_share((used + wanted) / capacity), _share(spread / capacity), capacity)


def _share(number: float) -> float:
    return max(0.0, min(1.0, number))


def go_round(number: float) -> int:
    """Return the nearest integer; halves go away from zero."""
    return int(number + 0.5) if number >= 0 else -int(0.5 - number)
