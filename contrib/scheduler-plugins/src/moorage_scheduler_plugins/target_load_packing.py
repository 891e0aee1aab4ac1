"""TargetLoadPacking: fill nodes up to a measured CPU utilization, then avoid them.

The predicted utilization of a node is what was measured, with what the pod itself will use, and its newest pods, which the
measurement does not show yet. Up to the target the score rises from the target to 100; above it falls from the target to 0.

Source  scheduler-plugins 903da7df82cb, pkg/trimaran/targetloadpacking, handler.go
"""

from __future__ import annotations

from typing import Final

import msgspec

from moorage.api.core import Container
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import ResourceList
from moorage.api.quantity import milli_value
from moorage.errors import Fault
from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, PodFollower, ScoreNodePlugin
from moorage.state.view import NodeInfo, PodInfo
from moorage_scheduler_plugins.scaling import MOST
from moorage_scheduler_plugins.trimaran import CPU, Collector, TrimaranArgs, go_round

#: For so many seconds after a pod was bound, metrics may not show it yet.
_UNSEEN_S: Final = 60


class TargetLoadPackingArgs(TrimaranArgs, frozen=True):
    """``target_utilization`` in percent. A container without a limit uses ``default_requests_multiplier`` times its request.

    One without a request uses ``default_requests``.
    """

    default_requests: ResourceList = msgspec.field(default_factory=lambda: {"cpu": "1000m"})
    default_requests_multiplier: str = "1.5"
    target_utilization: int = 40

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        found = super().faults(path, gates)
        try:
            float(self.default_requests_multiplier)
        except ValueError:
            at = f"{path}.defaultRequestsMultiplier"
            found.append(
                Fault("Invalid value", at, "must be a number in a text, such as 1.5", self.default_requests_multiplier)
            )
        return found


class TargetLoadPacking(ScoreNodePlugin[PodInfo], Attachable, PodFollower):
    name = "TargetLoadPacking"
    Args = TargetLoadPackingArgs

    def __init__(self, args: TargetLoadPackingArgs | None = None) -> None:
        args = args or TargetLoadPackingArgs()
        self._target = args.target_utilization if args.target_utilization > 0 else 40
        self._multiplier = float(args.default_requests_multiplier)
        self._usual = milli_value(args.default_requests.get("cpu", 0))
        self._handle: Handle | None = None
        #: Node → UID → since when the pod has been there, as Unix time, and what it will use in millicores.
        self._newest: dict[str, dict[str, tuple[float, int]]] = {}
        self.collector = Collector(args)

    def attach(self, handle: Handle) -> None:
        self._handle = handle
        self.collector.start(self.name, handle)

    def pod_changed(self, old: PodInfo | None, new: PodInfo | None) -> None:
        was, now = old.spec.node_name if old is not None else "", new.spec.node_name if new is not None else ""
        if old is not None and was and was != now:
            self._newest.get(was, {}).pop(old.uid, None)
        if new is not None and now and was != now and self._handle is not None:
            self._newest.setdefault(now, {})[new.uid] = self._handle.unix_s, self._prediction(new)

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        metrics = self.collector.of(node.name)
        if metrics is None:
            return 0
        measured = [one.value for one in metrics if one.kind == CPU and one.operator in {"AVG", "Latest"}]
        if not measured:
            return 0
        capacity = milli_value(node.node.status.capacity.get("cpu", 0))
        used = measured[-1] / 100 * capacity + self._prediction(pod) + self._unseen(node.name)
        predicted = 100 * used / capacity if capacity else 0.0
        if predicted > MOST:
            return 0
        if predicted > self._target:
            return go_round(self._target * (MOST - predicted) / (MOST - self._target))
        return go_round((MOST - self._target) * predicted / self._target + self._target)

    def _unseen(self, node: str) -> int:
        """Return what the pods use that came too late for the measurement."""
        end = self.collector.window_end
        pods = self._newest.get(node, {})
        # Pods that came long before are shown by every later measurement, too.
        for uid in [uid for uid, (since, _) in pods.items() if end - int(since) >= _UNSEEN_S]:
            del pods[uid]
        return sum(used for _, used in pods.values())

    def _prediction(self, pod: PodInfo) -> int:
        return sum(map(self._of_container, pod.spec.containers)) + milli_value(pod.spec.overhead.get("cpu", 0))

    def _of_container(self, container: Container) -> int:
        resources = container.resources
        if "cpu" in resources.limits:
            return milli_value(resources.limits["cpu"])
        if "cpu" in resources.requests:
            return go_round(milli_value(resources.requests["cpu"]) * self._multiplier)
        return self._usual
