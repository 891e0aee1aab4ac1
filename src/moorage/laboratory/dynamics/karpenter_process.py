"""``KarpenterProcess``: Karpenter in virtual time. It launches nodes for pods that wait, and consolidates and loses them.

Its decisions are those of ``simulator.autoscalers.karpenter``; this gives them times, and their effects on the cluster. A
node is there ``provision_s`` after its launch. Spot nodes are interrupted at random: Karpenter then drains them at once.

Source  karpenter, pkg/controllers/provisioning/batcher.go; pkg/controllers/disruption/controller.go, validation.go, queue.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import Namespace, Node, Pod
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.workloads import DaemonSet
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.laboratory.dynamics.node_pools import delete_node, empty_node, taint_node
from moorage.laboratory.dynamics.node_scalers import NodeScaler, PaidNode
from moorage.laboratory.dynamics.pod_arrivals import DistributionLike, Exponential, distribution_of
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.plan.node_types import daemon_pods, policies_of
from moorage.simulator.autoscalers.instance_types import PriceList, launched
from moorage.simulator.autoscalers.karpenter import judgement, scene
from moorage.simulator.autoscalers.karpenter.consolidation import DisruptionCandidate, DisruptionCommand
from moorage.simulator.autoscalers.karpenter.settings import KarpenterSettings
from moorage.simulator.autoscalers.karpenter.solve import LaunchClaim
from moorage.simulator.autoscalers.key_requirements import CAPACITY_TYPE, NODE_POOL, ZONE
from moorage.simulator.autoscalers.providers import ZONE_KEYS
from moorage.state.pod_info import PodInfo

#: How often a replacement is looked for; the shortest idle time of a batch; how often pods that wait are considered again; how
#: often Karpenter looks for nodes to disrupt, and how long it then waits.
_LOOK_S: Final = 1.0
_LEAST_S: Final = 0.1
_AGAIN_S: Final = 10.0
_POLL_S: Final = 10.0
_VALIDATED_AFTER_S: Final = 15.0
#: For so long, a node that pods are expected on is not disrupted: twice the longest batch.
_NOMINATED_S: Final = 20.0
_HOUR_S: Final = 3600.0
#: The simulated day on which a run begins for budgets with a schedule: a Monday, 2026-08-17T00:00:00Z.
MONDAY_S: Final = 1_786_924_800.0


@dataclass
class _Machine:
    """A node that was launched or existed, and its pool."""

    node: Node
    pool: str
    joined: bool = True
    leaving: bool = False


class KarpenterProcess(NodeScaler):
    """See the module's description.

    ``documents``       NodePools as in a dump, and other objects, which are ignored
    ``settings``        gates, and how long pods are gathered; ``spot_to_spot``: one of the gates
    ``provision_s``     from a launch until the node takes pods
    ``interruptions``   of a spot node in an hour, on average
    ``events``          have also ``empty``, ``drifted``, ``underutilized`` and ``interrupted``, before a node goes
    ``start_s``         the time of day and week for the schedules of budgets: Unix seconds at the beginning of the run
    Raises  InputError without a NodePool, and for one that is not valid
    """

    def __init__(
        self,
        documents: Iterable[Mapping[str, Any]],
        prices: PriceList,
        *,
        provision_s: DistributionLike = 60.0,
        interruptions: float = 0.0,
        spot_to_spot: bool | None = None,
        settings: KarpenterSettings | None = None,
        start_s: float = MONDAY_S,
        name: str = "karpenter",
    ) -> None:
        self.settings = settings = settings or KarpenterSettings()
        self._documents = judgement.applied(documents, settings)
        self._pools = scene.read_node_pools(self._documents)
        prices, self._overlaid = judgement.with_overlays(prices, self._documents)
        if not self._pools:
            raise InputError("Karpenter adds no nodes: the input has no NodePool of karpenter.sh/v1")
        if not 0 <= interruptions < inf:
            raise InputError(f"interruptions: {interruptions!r} is no number of interruptions of a spot node in an hour")
        super().__init__(prices.currency)
        self.prices, self._delay, self._interruptions = prices, distribution_of(provision_s), interruptions
        self._spot_to_spot = settings.has("SpotToSpotConsolidation") if spot_to_spot is None else spot_to_spot
        self._start_s, self._name = start_s, name

    def start(self, simulation: Simulation) -> None:
        self._begin(simulation, [pool.name for pool in self._pools])
        self._random = simulation.random(self._name)
        self._machines: dict[str, _Machine] = {}
        self._pending: frozenset[str] = frozenset()
        self._since_s, self._solved_s = inf, -inf
        self._solved: tuple[Any, ...] = ()
        self._lost = False
        self._turn = 0
        self._nominated: dict[str, float] = {}
        self._seen: dict[str, tuple[frozenset[str], float]] = {}
        self._made = 0
        self._claimed = judgement.facts_of(self._documents, simulation.table.nodes)
        self._existed: dict[str, scene.ExistingNode] = {}
        self._asked: dict[str, Any] = {}
        self._told: tuple[int, Mapping[str, str]] = (-1, {})
        self._busy = False
        self._idle_at: tuple[Any, ...] = ()
        for node in simulation.engine.nodes_in_order():
            self._adopt(node)
        self._virtual, unknown = judgement.buffer_pods(self._documents, tuple(simulation.aside.values()))
        self._lost = bool(self._virtual)
        self.missing = (*self._judge().missing, *self._overlaid, *unknown, *self.settings.unlike)
        self._note_rate()
        simulation.every(self.settings.idle_s or _LEAST_S, self._batch)
        simulation.every(_POLL_S, self._disrupt)

    # -- what it did -----------------------------------------------------------------------------------------------------

    def why_not_added(self, pod: PodInfo) -> str:
        """Return why Karpenter launches no node for a pending pod; "" if it does."""
        if self._told[0] != (state := self._simulation.engine.scheduler.state.facts):
            ignored = {pod.metadata.uid: f"ignoring pod, {why}" for pod, why in self._ignored()}
            self._told = state, {**self._judge(self._waiting()).plan.errors, **ignored}
        return self._told[1].get(pod.uid, "").partition(", requirements=")[0]

    # -- the cluster as Karpenter sees it ----------------------------------------------------------------------------------

    def _judge(self, pending: Sequence[Pod] = ()) -> judgement.SceneJudge:
        simulation, now_s = self._simulation, self._simulation.now_s
        table, cluster = simulation.table, simulation.engine.scheduler.cluster
        nodes, facts = [], {}
        for name, row in table.row_of.items():
            machine = self._machines.get(name)
            leaving, nominated = machine is not None and machine.leaving, self._nominated.get(name, -inf) > now_s
            nodes.append(self._existing(table.nodes[row], [held.pod for held in table.pods[row].values()], leaving, nominated))
            uids = frozenset(table.pods[row])
            if name not in self._seen or self._seen[name][0] != uids:
                self._seen[name] = uids, now_s if name in self._seen or now_s else -inf
            seen_s = self._seen[name][1]
            after_s = next((pool.consolidate_after_s for pool in self._pools if pool.name == nodes[-1].pool), None) or 0.0
            facts[name] = self._claimed.get(name, judgement.UNKNOWN)._replace(
                consolidatable=now_s - seen_s >= after_s, seen_s=0.0 if seen_s == -inf else self._start_s + seen_s
            )
        if len(self._asked) > 2 * (len(simulation.engine.pods) + len(self._virtual)):
            self._asked.clear()  # most of them are of pods that are gone
        nodes += [scene.ExistingNode(held.node, (), coming=True) for held in self._machines.values() if not held.joined]
        daemons = scene.daemons_of(obj for obj in simulation.aside.values() if isinstance(obj, DaemonSet))
        waiting = [*pending, *self._virtual]
        storage = self._storage()
        seen = scene.PoolCluster(
            nodes, self._pools, self.prices, daemons, claims=storage.claims, volumes=storage.volumes, classes=storage.classes,
            namespaces={one.name: one.metadata.labels for one in cluster.objects(Namespace).values()},
            pending=waiting, asked=self._asked,
        )  # fmt: skip
        return judgement.SceneJudge(seen, facts, self._budgets(), self._start_s + now_s, spot_to_spot=self._spot_to_spot)

    def _waiting(self) -> list[Pod]:
        waiting = super()._waiting()
        storage = self._storage() if any(pod.spec.volumes for pod in waiting) else None
        return waiting if storage is None else [pod for pod in waiting if not storage.why_ignored(pod)]

    def _ignored(self) -> Iterator[tuple[Pod, str]]:
        """Yield the pods for which Karpenter does nothing, whatever nodes there are, and why."""
        storage = self._storage()
        yield from ((pod, why) for pod in super()._waiting() if (why := storage.why_ignored(pod)))

    def _storage(self) -> scene.ClaimedStorage:
        of = self._simulation.engine.scheduler.cluster.objects
        return scene.ClaimedStorage.of(
            of(PersistentVolumeClaim).values(), of(PersistentVolume).values(), of(StorageClass).values()
        )

    def _registered(self, node: Node) -> Node:
        """Return a launched node with the zone under the keys of the drivers in use, whose own pods on the node set them."""
        storage, zone = self._storage(), node.labels.get(ZONE)
        used = {key for one in storage.classes.values() for term in one.allowed_topologies
                for key in (asked.key for asked in term.match_label_expressions)}  # fmt: skip
        terms = (one.required_affinity for one in storage.volumes.values())
        used.update(asked.key for one in terms if one for term in one.node_selector_terms for asked in term.match_expressions)
        labels = {key: zone for key in ZONE_KEYS if zone and key in used}
        return node.replace(metadata=node.metadata.replace(labels={**node.labels, **labels})) if labels else node

    def _existing(self, node: Node, pods: list[Pod], leaving: bool, nominated: bool) -> scene.ExistingNode:
        """Return a node as Karpenter sees it: the one of the last time, if nothing of it changed."""
        known = self._existed.get(node.name)
        if (
            known is None or known.node is not node or known.leaving != leaving or known.nominated != nominated
            or len(known.pods) != len(pods) or any(one is not other for one, other in zip(known.pods, pods, strict=True))
        ):  # fmt: skip
            known = self._existed[node.name] = scene.ExistingNode(node, pods, leaving=leaving, nominated=nominated)
        return known

    # -- launches --------------------------------------------------------------------------------------------------------

    def _batch(self, simulation: Simulation) -> None:
        """Wait until no more pods come for a second, ten seconds at most, and place all that wait; again after a change."""
        pods = self._waiting() if simulation.pending else []
        uids, now_s = frozenset(pod.metadata.uid for pod in pods), simulation.now_s
        fresh, self._pending = uids - self._pending, uids
        if fresh:
            self._since_s = min(self._since_s, now_s)
            if now_s - self._since_s < self.settings.longest_s:
                return
        state = (simulation.engine.scheduler.state.facts, uids)
        again = (state != self._solved or self._turn > 0) and now_s - self._solved_s >= _AGAIN_S
        leaving = any(held.leaving for held in self._machines.values())
        if not (self._since_s < inf or self._lost or ((pods or leaving or self._virtual) and again)):
            return
        self._since_s, self._lost, self._solved, self._solved_s = inf, False, state, now_s
        plan = self._judge(pods).round(self._turn)
        # A pod that fits nowhere is tried again, and chance may then take another of the equal domains.
        self._turn = self._turn + 1 if plan.errors and self._turn + 1 < plan.turns else 0
        expected = (name for name, placed in plan.placed.items() if any(pod not in self._virtual for pod in placed))
        self._nominated.update(dict.fromkeys(expected, now_s + _NOMINATED_S))
        for claim in plan.claims:
            self._launch(claim)

    def _launch(self, claim: LaunchClaim) -> str | None:
        """Launch the cheapest type in its cheapest offering, as a provider is expected to do. Return the node's name."""
        offers = [
            (offering.price, held.name, held, offering)
            for held in claim.types for offering in held.offered(claim.requirements, self.prices.well_known)
        ]  # fmt: skip
        if not offers:
            return None
        price, _, held, offering = min(offers, key=lambda one: one[:2])
        self._made += 1
        name = f"{claim.pool.name}-{self._made:04d}"
        # A node is registered later.
        asked = {key: one for key, one in claim.requirements.items() if key not in {scene.REGISTERED, scene.INITIALIZED}}
        node = self._registered(launched(held, offering, asked, name, claim.pool.taints))
        self._machines[node.name] = _Machine(node, claim.pool.name, joined=False)
        self._note("up", claim.pool.name, [node.name])
        self._pay(node.name, claim.pool.name, price, joined=False)
        self._later(self._delay.draw(self._random), partial(self._join, node.name))
        return node.name

    def _join(self, name: str) -> None:
        simulation, machine = self._simulation, self._machines[name]
        meta = machine.node.metadata
        labels = {**meta.labels, scene.REGISTERED: "true", scene.INITIALIZED: "true"}
        machine.node = replace(machine.node, metadata=replace(meta, labels=labels))
        machine.joined = self._paid[name].joined = True
        self._nominated[name] = simulation.now_s + _NOMINATED_S
        self._note("ready", machine.pool, [name])
        policies = policies_of(simulation.aside.values())
        simulation.tell(Seen(machine.node), *map(Seen, daemon_pods([machine.node], policies)))
        self._interrupt_later(name)

    def _adopt(self, node: Node) -> None:
        """Take over a node that exists, if a NodePool made it."""
        labels = node.metadata.labels
        if NODE_POOL not in labels:
            return
        held = self.prices.of_node(labels)
        price = held.price_in(labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, "")) if held is not None else None
        self._machines[node.name] = _Machine(node, labels[NODE_POOL])
        self._paid[node.name] = PaidNode(labels[NODE_POOL], price or 0.0, self._simulation.now_s)
        self._interrupt_later(node.name)

    # -- interruptions and disruption --------------------------------------------------------------------------------------

    def _interrupt_later(self, name: str) -> None:
        if self._interruptions and self._machines[name].node.metadata.labels.get(CAPACITY_TYPE) == "spot":
            self._later(Exponential(_HOUR_S / self._interruptions).draw(self._random), partial(self._interrupt, name))

    def _interrupt(self, name: str) -> None:
        machine = self._machines.get(name)
        if machine is not None and not machine.leaving:
            self._note("interrupted", machine.pool, [name])
            self._mark(name)
            self._drain(name)

    def _disrupt(self, simulation: Simulation) -> None:
        """Find the next command. Unless a node is drifted, it is validated after 15 s; until then no other is looked for."""
        if self._busy or self._stamp() == self._idle_at:
            return
        command = self._judge(self._waiting()).next_command()
        if command is None:
            self._idle_at = self._stamp()
            return
        if command.reason == "Drifted":
            self._run(command, command.candidates)
            return
        self._busy = True
        self._later(_VALIDATED_AFTER_S, partial(self._validate, command))

    def _stamp(self) -> tuple[Any, ...]:
        """Return what decides whether a node is disrupted, as Karpenter keeps it of clusters that are consolidated.

        Source  karpenter, pkg/controllers/state/cluster.go, ConsolidationState
        """
        simulation, after_s = self._simulation, {pool.name: pool.consolidate_after_s or 0.0 for pool in self._pools}
        now_s, timed = simulation.now_s, any(limit.schedule for pool in self._pools for limit in pool.budgets)
        young = frozenset(
            name for name, (_, seen_s) in self._seen.items()
            if name in self._machines and now_s - seen_s < after_s.get(self._machines[name].pool, 0.0)
        )  # fmt: skip
        expected = frozenset(name for name, until_s in self._nominated.items() if until_s > now_s)
        state = simulation.engine.scheduler.state.facts, simulation.pending
        return (*state, young, expected, now_s if timed else 0.0)

    def _validate(self, command: DisruptionCommand) -> None:
        self._busy = False
        self._run(command, self._judge(self._waiting()).still_valid(command))

    def _run(self, command: DisruptionCommand, left: Sequence[DisruptionCandidate]) -> None:
        """Launch what replaces nodes, and drain them when it is there; nothing if a launch fails."""
        launched = [self._launch(claim) for claim in command.claims] if left else []
        if None in launched:
            return
        for held in left:
            self._note(command.reason.lower(), held.pool.name, [held.name])
            self._mark(held.name)
        self._drain_when_ready([name for name in launched if name is not None], [held.name for held in left])

    def _drain_when_ready(self, launched: Sequence[str], names: Sequence[str]) -> None:
        if any(name in self._machines and not self._machines[name].joined for name in launched):
            self._later(_LOOK_S, partial(self._drain_when_ready, launched, names))
            return
        for name in names:
            self._drain(name)

    def _mark(self, name: str) -> None:
        """Let a node take no more pods, and find a place for its own."""
        self._machines[name].leaving = self._lost = True
        taint_node(self._simulation, name, judgement.DISRUPTED)

    def _drain(self, name: str) -> None:
        """Evict the pods of a node, and delete it when they are gone."""
        row = self._simulation.table.row_of.get(name)
        if row is not None:
            pods = [held for held in self._simulation.table.pods[row].values() if scene.is_reschedulable(held.pod)]
            empty_node(self._simulation, name, pods, judgement.DISRUPTED, partial(self._remove, name))

    def _remove(self, name: str) -> None:
        machine = self._machines.pop(name, None)
        if machine is None:
            return
        self._seen.pop(name, None)
        self._existed.pop(name, None)
        self._note("down", machine.pool, [name])
        self._end(name)
        delete_node(self._simulation, name)

    def _later(self, after_s: float, call: Callable[[], None]) -> None:
        self._simulation.call_at(self._simulation.now_s + after_s, call)
