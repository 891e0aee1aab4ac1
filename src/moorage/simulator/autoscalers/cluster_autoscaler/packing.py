"""``PackingSnapshot``: nodes on which pods are packed by the Filter plugins alone, and changes that can be taken back.

cluster-autoscaler tries its ideas on such a snapshot. A pod goes to the first node that accepts it; the search starts behind
the node of the last pod that was placed so. Scores and preemption play no part.

Source  cluster-autoscaler at 87d9c45c02^, simulator/clustersnapshot/predicate/plugin_runner.go, scheduling_opts.go,
        simulator/scheduling/hinting_simulator.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Final

from msgspec import json

from moorage.api.core import Node, Pod, Volume
from moorage.core.engine.facts import Gone, Seen
from moorage.simulator.autoscalers.cluster_autoscaler.removal_rules import is_daemon_pod
from moorage.simulator.filtering import fitting_rows, refusal
from moorage.simulator.owners import controller_of
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

#: Behind the UID of a pod that will replace one that is evicted.
AGAIN: Final = "/again"
_ENCODER: Final = json.Encoder(order="deterministic")


def unplaced(pod: Pod) -> Pod:
    """Return a pod without its node."""
    return pod.replace(spec=pod.spec.replace(node_name="")) if pod.spec.node_name else pod


def likeness(pod: Pod) -> bytes | None:
    """Return what pods of one controller that need the same have in common; None for a pod without a controller."""
    owner = controller_of(pod.metadata)
    if owner is None or is_daemon_pod(pod):
        return None
    volumes = tuple(one for one in pod.spec.volumes if one != Volume(name=one.name))
    spec = pod.spec.replace(volumes=volumes, node_name="")
    return _ENCODER.encode((owner.uid or owner.name, pod.namespace, pod.metadata.labels, spec))


class PackingSnapshot:
    """See the module's description. ``scratch`` has no pods that wait; it is changed, and belongs to this object."""

    def __init__(self, scratch: SimulatedCluster) -> None:
        self.scratch = scratch
        self.order = [node.name for node in self.scratch.nodes_in_order()]
        self._undo: list[list[Callable[[], None]]] = []
        #: Where the last search ended.
        self._last = 0
        #: The order in which pods came to their nodes, by UID: changes that are taken back must not change it.
        self._came: dict[str, int] = {}
        self._arrivals = 0
        for name in self.order:
            self.pods(name)

    # -- what there is -----------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        table = self.scratch.scheduler.cluster.table
        return table.nodes[table.row_of[name]]

    def pods(self, name: str) -> list[Pod]:
        """Return the pods of a node, in the order in which they came."""
        table, came = self.scratch.scheduler.cluster.table, self._came
        held = [held.pod for held in table.pods[table.row_of[name]].values()]
        for pod in held:
            if pod.metadata.uid not in came:
                came[pod.metadata.uid] = self._arrivals = self._arrivals + 1
        return sorted(held, key=lambda pod: came[pod.metadata.uid])

    def tell(self, facts: Iterable[Seen | Gone]) -> None:
        """Report what changed in the cluster; this cannot be taken back."""
        self.scratch.tell(list(facts))
        self.order = [node.name for node in self.scratch.nodes_in_order()]

    # -- changes -----------------------------------------------------------------------------------------------------------

    @contextmanager
    def trial(self) -> Iterator[Callable[[], None]]:
        """Take back at the end of a block what it changes, unless the function that the block gets is called."""
        steps, order, kept = list[Callable[[], None]](), list(self.order), list[bool]()
        self._undo.append(steps)
        try:
            yield lambda: kept.append(True)
        finally:
            self._undo.pop()
            if not kept:
                self.order = order
                for step in reversed(steps):
                    step()
            elif self._undo:
                self._undo[-1].extend(steps)

    def _change(self, facts: Sequence[Seen | Gone], back: Sequence[Seen | Gone]) -> None:
        """Report changes, and remember what takes them back."""
        self.scratch.tell(facts)
        if self._undo:
            self._undo[-1].append(lambda: self.scratch.tell(back))

    def place(self, pod: Pod, name: str) -> None:
        """Put a pod on a node."""
        uid, placed = pod.metadata.uid, pod.replace(spec=pod.spec.replace(node_name=name))
        before = self._came.pop(uid, None)
        self._came[uid] = self._arrivals = self._arrivals + 1
        self._change([Seen(placed)], [Gone(placed)])
        if before is not None and self._undo:
            self._undo[-1].append(lambda: self._came.update({uid: before}))

    def take(self, pod: Pod) -> None:
        """Take a pod from its node."""
        self._change([Gone(pod)], [Seen(pod)])

    def add(self, node: Node, pods: Iterable[Pod] = ()) -> None:
        """Add a node with pods, behind the others."""
        held = list(pods)
        self._change([Seen(node), *map(Seen, held)], [*map(Gone, held), Gone(node)])
        self.order.append(node.name)

    def change(self, node: Node) -> None:
        """Replace a node by another of its name."""
        self._change([Seen(node)], [Seen(self.node(node.name))])

    def remove(self, name: str) -> None:
        """Remove a node with its pods."""
        node, pods = self.node(name), self.pods(name)
        self._change([*map(Gone, pods), Gone(node)], [Seen(node), *map(Seen, pods)])
        self.order.remove(name)

    def refusal(self, pod: Pod, name: str) -> tuple[str, ...] | None:
        """Return why the Filter plugins refuse a pod on a node; None if they accept it."""
        scheduler = self.scratch.scheduler
        return refusal(scheduler, PodInfo(pod), scheduler.cluster.table.row_of[name])

    def place_on(self, pod: Pod, name: str) -> tuple[str, ...] | None:
        """Put a pod on a node if the Filter plugins accept it, and return None; else return why not."""
        found = self.refusal(pod, name)
        if found is None:
            self.place(pod, name)
        return found

    def place_anywhere(self, pod: Pod, among: Collection[str]) -> str:
        """Put a pod on the next node of these that accepts it. Return its name; "" if none does."""
        scheduler = self.scratch.scheduler
        nodes = scheduler.cluster.table.nodes
        fitting = {nodes[row].name for row in fitting_rows(scheduler, PodInfo(pod)).tolist()}.intersection(among)
        if not fitting:
            return ""
        count = len(self.order)
        at = next(at % count for at in range(self._last + 1, self._last + 1 + count) if self.order[at % count] in fitting)
        self._last = at
        self.place(pod, self.order[at])
        return self.order[at]


class Packer:
    """Places pods one by one, and first where it placed them before.

    Source  cluster-autoscaler at 87d9c45c02^, simulator/scheduling/hinting_simulator.go, similar_pods.go
    """

    def __init__(self) -> None:
        self._hints: dict[str, str] = {}
        self._old: dict[str, str] = {}

    def forget_old(self) -> None:
        """Forget the places that were not used since the last call."""
        self._old, self._hints = self._hints, {}

    def pack(
        self, packed: PackingSnapshot, pods: Sequence[Pod], among: Collection[str], *, all_or_nothing: bool = False
    ) -> Mapping[str, str]:
        """Place pods on these nodes, those of higher priority first. Return the nodes by UID.

        ``all_or_nothing``  stop at the first pod without a place
        """
        found: dict[str, str] = {}
        hopeless: set[bytes] = set()
        ordered = sorted(pods, key=lambda pod: -(pod.spec.priority or 0))
        for _, group in groupby(ordered, key=lambda pod: pod.spec.priority or 0):
            left = []
            for pod in group:
                key = pod.metadata.uid.removesuffix(AGAIN)
                hint = self._hints.get(key) or self._old.get(key, "")
                if hint in among and hint in packed.order and packed.place_on(pod, hint) is None:
                    found[pod.metadata.uid] = self._hints[key] = hint
                else:
                    left.append(pod)
            for pod in left:
                uid, alike = pod.metadata.uid, likeness(pod)
                name = "" if alike in hopeless else packed.place_anywhere(pod, among)
                if name:
                    found[uid] = self._hints[uid.removesuffix(AGAIN)] = name
                    continue
                if alike is not None:
                    hopeless.add(alike)
                if all_or_nothing:
                    break
        return found
