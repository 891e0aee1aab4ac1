"""``Karpenter``: what it would do with a cluster that was read: new nodes for pending pods, and why each node stays or goes.

Source  karpenter, pkg/controllers/state/statenode.go, ValidateNodeDisruptable; pkg/utils/pdb;
        pkg/controllers/disruption/helpers.go, BuildDisruptionBudgetMapping
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import cached_property
from math import isfinite
from typing import Any, Final, NamedTuple

from msgspec import Struct

from moorage.api.core import Node, Object, ObjectMeta, Pod, PodTemplateSpec, Taint
from moorage.api.cron import parse_schedule
from moorage.api.documents.object_fields import seconds
from moorage.api.durations import DurationError, duration_seconds
from moorage.api.node_selectors import tolerates
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.preemption.disruption_budgets import covers
from moorage.errors import InputError
from moorage.simulator.allowed_disruptions import counted_budgets
from moorage.simulator.autoscalers import key_requirements as keys
from moorage.simulator.autoscalers.instance_types import InstanceType, PriceList, amounts
from moorage.simulator.autoscalers.karpenter import consolidation, scene
from moorage.simulator.autoscalers.karpenter.settings import KarpenterSettings, read_settings
from moorage.simulator.autoscalers.karpenter.solve import LaunchPlan, solve
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import is_active, is_owned_by

_DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
#: Begins why a pod holds its node; asked of all its pods before budgets are.
_PROTECTED: Final = f'Pod has "{_DO_NOT_DISRUPT}" annotation'
DISRUPTED: Final = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
_REASONS: Final = ("Empty", "Drifted", "Underutilized")
_UNLIMITED: Final = (1 << 31) - 1
#: Values of maxUnavailable that allow no eviction.
_NONE: Final = (0, "0%")
#: So many choices among equal domains are tried for pods that fit nowhere.
_MOST_TURNS: Final = 8


class NodeVerdict(Struct, frozen=True, kw_only=True):
    """What Karpenter does with one node: ``delete``, ``replace`` or ``keep``, and why it keeps it.

    ``pods``      that hold the node, with the reason
    ``types``     of the replacement, the cheapest first; ``saves``: of an hour's price
    """

    node: str
    decision: str
    why: str = ""
    pods: Mapping[str, str] = {}
    types: tuple[str, ...] = ()
    saves: float = 0.0


class ClaimFacts(NamedTuple):
    """What the NodeClaim of a node says; times are in Unix seconds.

    ``seen_s``  when a pod last came or went, or the node was ready; ``drifted_s``: since when it is drifted
    ``forced``  its pods have a longest time to go (terminationGracePeriod), so they do not hold it when it is drifted
    """

    consolidatable: bool = True
    seen_s: float = 0.0
    drifted_s: float | None = None
    forced: bool = False

    @classmethod
    def read(cls, claim: Mapping[str, Any]) -> ClaimFacts:
        """Read a NodeClaim."""
        held = {kind: one for kind, one in scene.conditions_of(claim).items() if one.get("status") == "True"}
        ready, drifted = held.get("Initialized"), held.get("Drifted")
        seen = None if ready is None else scene.part(claim, "status").get("lastPodEventTime") or ready.get("lastTransitionTime")
        return cls(
            "Consolidatable" in held, seconds(seen), None if drifted is None else seconds(drifted.get("lastTransitionTime")),
            scene.part(claim, "spec").get("terminationGracePeriod") is not None,
        )  # fmt: skip


UNKNOWN: Final = ClaimFacts()


class SceneJudge:
    """A scene as Karpenter judges it. ``facts``: of the NodeClaims, by node; ``now_s``: Unix seconds, 0 if unknown."""

    def __init__(
        self, cluster: scene.PoolCluster, facts: Mapping[str, ClaimFacts], budgets: Sequence[PodDisruptionBudget], now_s: float,
        *, spot_to_spot: bool = False,
    ) -> None:  # fmt: skip
        self.cluster, self._facts, self._budgets, self.now_s = cluster, facts, budgets, now_s
        self._spot_to_spot = spot_to_spot
        self._rounds: dict[int, LaunchPlan] = {}
        self._pools = {pool.name: pool for pool in cluster.pools}
        cluster.displaced = [pod for pod in cluster.displaced if self._leaves(pod)]
        self.missing = tuple(self._missing(cluster.prices))

    def _missing(self, prices: PriceList) -> Iterator[str]:
        if not self._pools:
            yield "NodePools: the input has none, so Karpenter adds no node and disrupts none"
        if not prices.currency or not prices.date:
            yield "currency and date of the prices: the file of instance types does not give them"
        if not self.now_s:
            yield "the time: the input does not say when it was taken, so consolidateAfter and budgets' schedules do not count"
        managed = [held for held in self.cluster.nodes if held.managed]
        if without := sum(held.name not in self._facts and not held.coming for held in managed):
            yield f"NodeClaims of {without} of {len(managed)} nodes: they count as consolidatable"
        unknown = sorted({held.labels.get(keys.INSTANCE_TYPE, "") for held in managed if prices.of_node(held.labels) is None})
        if unknown:
            yield f"instance types that the file does not have: {', '.join(unknown[:5])}{' …' if len(unknown) > 5 else ''}"
        for name in sorted(held.pool.name for held in self.cluster.templates if held.told):
            yield f'types of NodePool "{name}": its requirements leave none of the file'
        for pool in self._pools.values():
            yield from pool.notes
        if any(held.capacity_type == "reserved" for one_ in prices.types for held in one_.available):
            yield "how many instances capacity reservations have left: an offering of one is available or not, whatever took it"

    # -- new nodes -------------------------------------------------------------------------------------------------------

    @cached_property
    def plan(self) -> LaunchPlan:
        """Where the pods go that wait for a node: on nodes that exist, on new ones, or nowhere.

        Karpenter takes one of equal domains by chance, and tries a pod that fits nowhere again and again. So this is the first
        choice with which the fewest pods are left.
        """
        best = self.round(0)
        for turn in range(1, min(best.turns, _MOST_TURNS)):
            if not best.errors:
                break
            best = min(best, self.round(turn), key=lambda one: len(one.errors))
        return best

    def round(self, turn: int) -> LaunchPlan:
        """Return where the pods go in one round; ``turn`` stands for chance: which of equal domains is taken."""
        if turn not in self._rounds:
            self._rounds[turn] = solve(self.cluster, [*self.cluster.pending, *self.cluster.displaced], turn=turn)
        return self._rounds[turn]

    # -- nodes that exist ------------------------------------------------------------------------------------------------

    def verdict(self, name: str) -> NodeVerdict:
        """Return what Karpenter does with one node, if it looks at no other: emptiness comes first, then drift."""
        candidate = self._candidates.get(name)
        if candidate is not None and candidate.goes_as_empty and self.budgets["Empty"].get(candidate.pool.name, 0) > 0:
            return self._verdict(name, consolidation.DisruptionCommand((candidate,), reason="Empty"))
        drifted, kept = self._drifted.get(name), None
        if drifted is not None and self.budgets["Drifted"].get(drifted.pool.name, 0) > 0:
            found = self._disruptor.drift(drifted)
            if found.decision != "no-op":
                return self._verdict(name, found)
            kept = self._verdict(name, found)
        verdict = self._consolidated(name)
        return verdict if kept is None or verdict.decision != "keep" else kept

    def _consolidated(self, name: str) -> NodeVerdict:
        """Return what becomes of a node that is neither empty nor drifted."""
        why, pods = self.blocked(self.cluster.nodes[self.cluster.row_of[name]])
        if why:
            return NodeVerdict(node=name, decision="keep", why=why, pods=pods)
        candidate, disruptor = self._candidates[name], self._disruptor
        pool = candidate.pool.name
        why = disruptor.refusal(candidate)
        reason = "Empty" if candidate.is_empty else "Underutilized"
        if not why and self.budgets[reason].get(pool, 0) <= 0:
            why = f"No allowed disruptions for disruption reason {reason} due to blocking budget"
        elif not why and not disruptor.may_pass(candidate):
            why = f'NodePool "{pool}" is Balanced: even a deletion saves too little'
        found = consolidation.DisruptionCommand((), why) if why else disruptor.compute([candidate])
        if found.decision != "no-op" and not disruptor.approves(found):
            found = consolidation.DisruptionCommand((), f'NodePool "{pool}" is Balanced: the move saves too little')
        return self._verdict(name, found)

    def _verdict(self, name: str, found: consolidation.DisruptionCommand) -> NodeVerdict:
        if found.decision == "no-op":
            return NodeVerdict(node=name, decision="keep", why=found.why, pods=dict(found.errors))
        saves, why = found.savings(self.cluster.prices.well_known), "the node is drifted" if found.reason == "Drifted" else ""
        return NodeVerdict(node=name, decision=found.decision, why=why, types=found.types, saves=saves)

    def verdicts(self) -> list[NodeVerdict]:
        """Return what Karpenter does with each node, by name."""
        return [self.verdict(name) for name in sorted(self.cluster.row_of)]

    def next_command(self) -> consolidation.DisruptionCommand | None:
        """Return what Karpenter does next: remove empty nodes, replace a drifted one, several by one, or one."""
        return self._disruptor.next_command(self._candidates.values(), self.budgets, self._drifted.values())

    def still_valid(self, command: consolidation.DisruptionCommand) -> tuple[consolidation.DisruptionCandidate, ...]:
        """Return the candidates of an earlier command that still holds; () if it does not.

        Source  karpenter, pkg/controllers/disruption/validation.go
        """
        held = [self._candidates[one.name] for one in command.candidates if one.name in self._candidates]
        if command.reason == "Empty":
            return tuple(one for one in held if one.is_empty and one.consolidatable)
        if len(held) < len(command.candidates) or any(map(self._disruptor.refusal, held)):
            return ()
        found = self._disruptor.compute(held)
        if found.decision != command.decision:
            return ()
        return tuple(held) if {*command.types} <= {*found.types} else ()

    def blocked(self, held: scene.ExistingNode) -> tuple[str, dict[str, str]]:
        """Return why Karpenter disrupts a node for no reason at all, and the pods that hold it; "" if it may."""
        node = held.node
        if not held.managed:
            return "Node isn't managed by karpenter", {}
        if not held.initialized:
            return "Node isn't initialized", {}
        if held.leaving or any(taint.key == DISRUPTED.key for taint in node.spec.taints):
            return "Node is deleting or marked for deletion", {}
        if held.nominated:
            return "Node is nominated for a pending pod", {}
        if node.metadata.annotations.get(_DO_NOT_DISRUPT) == "true":
            return f'Disruption is blocked through the "{_DO_NOT_DISRUPT}" annotation', {}
        if held.pool not in self._pools:
            return f"NodePool not found (NodePool={held.pool})", {}
        key = self._holding_key(held)
        holding = held.remembered("holding", key, lambda: {one.key: told for one in held.pods if (told := self._holds(one))})
        first = (told for told in holding.values() if told.startswith(_PROTECTED))
        return next(first, next(iter(holding.values()), "")), holding

    def _holding_key(self, held: scene.ExistingNode) -> tuple[float, list[int]]:
        """Return what decides which pods hold a node, beside them: the budgets, and the time if a pod is protected for long."""
        asks = any(pod.metadata.annotations.get(_DO_NOT_DISRUPT, "true") != "true" for pod in held.pods)
        return self.now_s if asks else 0.0, list(map(id, self._budgets))

    def _holds(self, pod: Pod, *, for_good: bool = False) -> str:
        """Return why a pod must not be evicted now; ``for_good``: ever."""
        if not is_active(pod):
            return ""
        if self._is_protected(pod):
            return f"{_PROTECTED} (Pod={pod.namespace}/{pod.name})"
        if is_owned_by(pod, "Node") or any(tolerates(held, DISRUPTED) for held in pod.spec.tolerations):
            return ""
        names = [one for one in self._budgets if covers(one, pod)]
        keys = " ".join(f"{one.namespace}/{one.name}" for one in names)
        if len(names) > 1:
            return f"Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{keys}])"
        for budget in names:
            spec = budget.spec
            never = spec.max_unavailable in _NONE or spec.min_available == "100%"
            unready = any(held.type == "Ready" and held.status == "False" for held in pod.status.conditions)
            if spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and unready:
                return ""
            if never if for_good else not budget.status.disruptions_allowed:
                return f"Pdb prevents pod evictions (PodDisruptionBudget=[{keys}])"
        return ""

    def _leaves(self, pod: Pod) -> bool:
        """Return True if a pod of a node that goes will be evicted: no annotation or budget protects it for good."""
        return not self._holds(pod, for_good=True)

    def _is_protected(self, pod: Pod) -> bool:
        value = pod.metadata.annotations.get(_DO_NOT_DISRUPT)
        if value is None or value == "true":
            return value is not None
        try:
            lasts_s = duration_seconds(value)
        except DurationError:
            return False
        begun_s = seconds(pod.metadata.creation_timestamp)
        return lasts_s > 0 and (not self.now_s or not begun_s or self.now_s - begun_s < lasts_s)

    @cached_property
    def budgets(self) -> dict[str, dict[str, int]]:
        """Reason → NodePool → how many of its nodes may be disrupted now."""
        members: dict[str, list[scene.ExistingNode]] = defaultdict(list)
        for held in self.cluster.nodes:
            if held.managed and held.initialized:
                members[held.pool].append(held)
        found: dict[str, dict[str, int]] = {reason: {} for reason in _REASONS}
        for pool in self._pools.values():
            nodes = members[pool.name]
            for reason, left in found.items():
                own = (one for one in pool.budgets if one.reasons is None or reason in one.reasons)
                limits = [self._allowed(one, len(nodes)) for one in own]
                going = sum(held.leaving or not held.ready for held in nodes)
                left[pool.name] = max(min(limits, default=_UNLIMITED) - going, 0)
        return found

    def _allowed(self, limit: scene.DisruptionLimit, nodes: int) -> int:
        if limit.schedule and self.now_s:
            begins = parse_schedule(limit.schedule).after(self.now_s - limit.duration_s)
            if begins is None or begins > self.now_s:
                return _UNLIMITED
        return limit.allowed(nodes)

    @cached_property
    def _candidates(self) -> dict[str, consolidation.DisruptionCandidate]:
        return {held.name: self._candidate(held) for held in self.cluster.nodes if not self.blocked(held)[0]}

    @cached_property
    def _drifted(self) -> dict[str, consolidation.DisruptionCandidate]:
        """The nodes that are replaced because they are drifted; pods that hold them count only without a longest time to go."""
        found = {}
        for held in self.cluster.nodes:
            facts, pool = self._facts.get(held.name, UNKNOWN), self._pools.get(held.pool)
            if facts.drifted_s is not None and pool is not None and not pool.static:
                why, pods = self.blocked(held)
                if not why or (pods and facts.forced):
                    found[held.name] = self._candidate(held)
        return found

    def _candidate(self, held: scene.ExistingNode) -> consolidation.DisruptionCandidate:
        facts, key = self._facts.get(held.name, UNKNOWN), self._holding_key(held)
        pods = held.remembered("going", key, lambda: tuple(filter(self._leaves, held.reschedulable)))
        made = consolidation.candidate_of(self.cluster, held, self._pools[held.pool], consolidatable=facts.consolidatable)
        return with_fields(made, pods=pods, drifted_s=facts.drifted_s)

    @cached_property
    def _disruptor(self) -> consolidation.Disruptor:
        totals: dict[str, tuple[float, float]] = {}
        closed = set()
        for held in self.cluster.nodes:
            if held.pool in self._pools:
                one = self._candidates.get(held.name) or consolidation.candidate_of(self.cluster, held, self._pools[held.pool])
                # The price of a pool is that of its candidates; what they disturb is counted for all its nodes.
                price, cost = totals.get(held.pool, (0.0, 0.0))
                totals[held.pool] = price + (one.price if held.name in self._candidates else 0.0), cost + one.cost
                after_s, seen_s = one.pool.consolidate_after_s, self._facts.get(held.name, UNKNOWN).seen_s
                if after_s and self.now_s and seen_s and self.now_s - seen_s < after_s:
                    closed.add(held.name)
        return consolidation.Disruptor(self.cluster, totals, spot_to_spot=self._spot_to_spot, closed=frozenset(closed))


class Karpenter(SceneJudge):
    """A cluster that was read, as Karpenter judges it.

    ``now_s``    Unix seconds; None: when the input was read from the cluster, if it says that
    ``gates``    feature gates in place of those of Karpenter's Deployment, ``NAME=BOOL,…``; ``spot_to_spot``: one of them
    ``missing``  what the input does not say, and what is assumed instead
    Raises  InputError for a NodePool that is not valid
    """

    def __init__(
        self, given: ClusterInput, prices: PriceList, *, now_s: float | None = None, spot_to_spot: bool | None = None,
        gates: str | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings = read_settings(given.components, gates)
        spot_to_spot = settings.has("SpotToSpotConsolidation") if spot_to_spot is None else spot_to_spot
        documents = applied([held.document for held in given.custom], settings)
        claims = [held for held in documents if held.get("kind") == "NodeClaim"]
        by_node = _claims_by_node(claims, given.nodes)
        found = {id(claim) for claim in by_node.values()}
        coming = [claim for claim in claims if id(claim) not in found and scene.part(claim, "status").get("providerID")]
        bound: dict[str, list[Pod]] = defaultdict(list)
        for pod in given.pods:
            bound[pod.spec.node_name].append(pod)
        storage = scene.ClaimedStorage.of(given.persistent_volume_claims, given.persistent_volumes, given.storage_classes)
        asking = [
            pod for pod in bound.pop("", ())
            if is_active(pod) and not pod.spec.scheduling_gates and scene.is_evicted(pod)
            and not pod.status.nominated_node_name
        ]  # fmt: skip
        waiting = [pod for pod in asking if not storage.why_ignored(pod)]
        prices, overlaid = with_overlays(prices, documents)
        workloads = [*given.deployments, *given.stateful_sets, *given.replica_sets, *given.others]
        virtual, unknown = buffer_pods(documents, workloads)
        nodes = []
        for node in given.nodes:
            claim, pods = by_node.get(node.name), bound.get(node.name, ())
            leaving = node.metadata.deletion_timestamp is not None if claim is None else _is_deleted(claim)
            known = node if claim is None else scene.known_by_claim(node, claim)
            nodes.append(scene.ExistingNode(known, pods, leaving=leaving))
        unseen = ((scene.known_by_claim(None, held), _is_deleted(held)) for held in coming)
        nodes += [scene.ExistingNode(node, (), leaving=leaving, coming=True) for node, leaving in unseen]
        cluster = scene.PoolCluster(
            nodes, scene.read_node_pools(documents), prices, scene.daemons_of(given.daemon_sets),
            claims=storage.claims, volumes=storage.volumes, classes=storage.classes,
            namespaces={held.name: held.metadata.labels for held in given.namespaces}, pending=[*waiting, *virtual],
        )  # fmt: skip
        facts = {name: ClaimFacts.read(claim) for name, claim in by_node.items()}
        time_s = now_s if now_s is not None else seconds(given.report.taken_at)
        budgets = counted_budgets(given.pod_disruption_budgets, given.pods, [*workloads, *given.replication_controllers])
        super().__init__(cluster, facts, budgets, time_s, spot_to_spot=spot_to_spot)
        self.missing += (*overlaid, *unknown, *settings.unlike, *_limits_of_volumes(given, waiting))
        #: Pods for which Karpenter does nothing, whatever nodes there are, and why.
        self.ignored = [(pod, why) for pod in asking if (why := storage.why_ignored(pod))]


#: The gates without which objects of a kind do not count.
_GATED: Final = {"NodeOverlay": "NodeOverlay", "CapacityBuffer": "CapacityBuffer"}


def applied(documents: Iterable[Mapping[str, Any]], settings: KarpenterSettings) -> list[dict[str, Any]]:
    """Return the objects that count with Karpenter's gates."""
    gate_of = _GATED.get
    return [
        dict(one) for one in documents
        if (gate := gate_of(str(one.get("kind")))) is None or settings.applies(gate)
    ]  # fmt: skip


def facts_of(documents: Iterable[dict[str, Any]], nodes: Iterable[Node]) -> dict[str, ClaimFacts]:
    """Return what the NodeClaims among documents say of nodes."""
    claims = [held for held in documents if held.get("kind") == "NodeClaim"]
    return {name: ClaimFacts.read(claim) for name, claim in _claims_by_node(claims, nodes).items()}


def _claims_by_node(claims: Iterable[dict[str, Any]], nodes: Iterable[Node]) -> dict[str, dict[str, Any]]:
    """Return the NodeClaims of nodes, by node: that of the same machine, else the one that names the node."""
    named, machines = {}, {}
    for held in claims:
        status = scene.part(held, "status")
        named[status.get("nodeName")] = machines[status.get("providerID")] = held
    found = (
        (node.name, (node.spec.provider_id and machines.get(node.spec.provider_id)) or named.get(node.name)) for node in nodes
    )
    return {name: held for name, held in found if held is not None}


def _is_deleted(claim: Mapping[str, Any]) -> bool:
    terminating = scene.conditions_of(claim).get("InstanceTerminating", {}).get("status") == "True"
    return terminating or bool(scene.part(claim, "metadata").get("deletionTimestamp"))


# -- overlays and buffers ----------------------------------------------------------------------------------------------
# What NodeOverlays and CapacityBuffers change: prices and capacities of instance types, and pods that hold room free.
#
# Source  karpenter, pkg/controllers/nodeoverlay, pkg/cloudprovider/types.go (AdjustedPrice), pkg/state/virtualpods

#: The priority of pods that hold room free.
_LOWEST: Final = -(1 << 31)


@dataclass(eq=False)
class _Overlaid:
    """A type as overlays change it for a NodePool: the changes of prices by offering, and capacities.

    ``light``   by offering, the weight of the last overlay that selected it; ``last``: the same of capacities, with their names
    """

    kind: InstanceType
    pool: str
    labels: Mapping[str, str]
    prices: dict[int, str] = field(default_factory=dict)
    light: dict[int, int] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    last: tuple[int, Collection[str]] = (0, ())

    def selected(self, asked: keys.Requirements, undefined: Collection[str]) -> list[int]:
        """Return the offerings that an overlay is for."""
        own = keys.merged(keys.of_labels({keys.NODE_POOL: self.pool}), keys.of_labels(self.labels), self.kind.requirements)
        if not keys.is_compatible(own, asked):
            return []
        offerings = enumerate(self.kind.offerings)
        return [at for at, held in offerings if keys.is_compatible(asked, held.requirements, undefined)]

    def made(self, pools: Collection[str]) -> InstanceType:
        """Return the type for these NodePools; () if for all."""
        offerings = tuple(
            with_fields(held, price=adjusted(held.price, self.prices[at])) if at in self.prices else held
            for at, held in enumerate(self.kind.offerings)
        )
        own = {keys.NODE_POOL: keys.one(keys.NODE_POOL, "In", pools)} if pools else {}
        return with_fields(
            self.kind, requirements={**self.kind.requirements, **own}, capacity={**self.kind.capacity, **self.capacity},
            offerings=offerings,
        )  # fmt: skip


def with_overlays(prices: PriceList, documents: Iterable[Mapping[str, Any]]) -> tuple[PriceList, tuple[str, ...]]:
    """Return the types as NodeOverlays change them, and what is not applied, as sentences.

    Overlays apply by weight, the heaviest first. One that would change again, with the same weight, what another changed is
    left out as a conflict. A type that is not the same for all NodePools becomes several, each for some of them.

    Raises  InputError for a price or capacity that cannot be read
    """
    held = list(documents)
    overlays = [one_ for one_ in held if one_.get("kind") == "NodeOverlay"]
    if not overlays:
        return prices, ()
    labels = "spec", "template", "metadata", "labels"
    pools = {_name(one_): scene.part(one_, *labels) for one_ in held if one_.get("kind") == "NodePool"}
    of_types = [[_Overlaid(kind, *pool) for pool in (pools or {"": {}}).items()] for kind in prices.types]
    told = []
    overlays.sort(key=lambda one_: (int(scene.part(one_, "spec").get("weight") or 0), _name(one_)), reverse=True)
    for held_ in overlays:
        name, spec = _name(held_), scene.part(held_, "spec")
        weight, price = int(spec.get("weight") or 0), str(spec.get("price") or spec.get("priceAdjustment") or "")
        capacity = amounts(spec.get("capacity") or {}, f"NodeOverlay {name}: spec.capacity")
        try:
            if price and not isfinite(float(price.removesuffix("%"))):
                raise ValueError(price)
        except ValueError:
            text = f"NodeOverlay {name}: {price!r} is neither a price nor a change such as -10% or +0.05"
            raise InputError(text) from None
        asked = keys.of_data(spec.get("requirements") or ())
        found = [(of, rows) for every in of_types for of in every if (rows := of.selected(asked, prices.well_known))]
        if any(
            (price and any(of.light.get(row) == weight for row in rows))
            or (of.last[0] == weight and not capacity.keys().isdisjoint(of.last[1])) for of, rows in found
        ):  # fmt: skip
            told.append(f"NodeOverlay {name}: it conflicts with another of its weight, and is not applied")
            continue
        for of, rows in found:
            if price:
                of.prices = {**dict.fromkeys(rows, price), **of.prices}
                of.light |= dict.fromkeys(rows, weight)
            if capacity:
                of.capacity, of.last = {**capacity, **of.capacity}, (weight, capacity.keys())
    types = []
    for every in of_types:
        forms: dict[Any, list[_Overlaid]] = {}
        for of in every:
            form = tuple(sorted(of.prices.items())), tuple(sorted(of.capacity.items()))
            forms.setdefault(form, []).append(of)
        types += [alike[0].made([of.pool for of in alike] if len(forms) > 1 else ()) for alike in forms.values()]
    return PriceList(tuple(types), prices.currency, prices.date, prices.well_known), tuple(told)


def _name(held: Mapping[str, Any]) -> str:
    return str(scene.part(held, "metadata").get("name", ""))


def adjusted(price: float, change: str) -> float:
    """Return a price as an overlay changes it: another price, or one that is added, or a share."""
    if change[:1] not in {"+", "-"}:
        return float(change)
    found = price * (1 + float(change[:-1]) / 100) if change.endswith("%") else price + float(change)
    return max(found, 0.0)


def buffer_pods(documents: Iterable[Mapping[str, Any]], objects: Sequence[Object]) -> tuple[list[Pod], tuple[str, ...]]:
    """Return the pods for which CapacityBuffers keep room, and what the input does not say of others, as sentences.

    A buffer counts if it is ready and its status says how many replicas it has. ``objects`` have its template or workload.
    """
    found: list[Pod] = []
    told = []
    for held in documents:
        if held.get("kind") != "CapacityBuffer":
            continue
        meta, status, name = scene.part(held, "metadata"), scene.part(held, "status"), _name(held)
        ready = scene.conditions_of(held).get("ReadyForProvisioning", {}).get("status") == "True"
        count, space = int(status.get("replicas") or 0), str(meta.get("namespace", ""))
        if not ready or count <= 0:
            continue
        template = _template(scene.part(held, "spec"), space, objects)
        if template is None:
            told.append(f"the pods of CapacityBuffer {space}/{name}: its template or workload; it keeps no room")
            continue
        kept = (one_ for one_ in template.spec.volumes if one_.persistent_volume_claim is None and one_.ephemeral is None)
        spec = template.spec.replace(node_name="", volumes=tuple(kept), priority=_LOWEST)
        for at in range(1, count + 1):
            own = ObjectMeta(name=f"capacity-buffer-{name}-{at}", namespace=space, uid=f"{meta.get('uid', name)}-{at}")
            found.append(Pod(metadata=own.replace(labels=template.metadata.labels), spec=spec))
    return found, tuple(told)


def _template(spec: Mapping[str, Any], space: str, objects: Sequence[Object]) -> PodTemplateSpec | None:
    given = {"kind": "PodTemplate", **spec["podTemplateRef"]} if spec.get("podTemplateRef") else spec.get("scalableRef") or {}
    named = given.get("kind"), space, given.get("name")
    held = next((one_ for one_ in objects if (type(one_).__name__, one_.namespace, one_.name) == named), None)
    template = getattr(held, "template", None) or getattr(getattr(held, "spec", None), "template", None)
    return template if isinstance(template, PodTemplateSpec) else None


def _limits_of_volumes(given: ClusterInput, waiting: Iterable[Pod]) -> Iterator[str]:
    """Yield a note if nodes limit their volumes and pods that wait have some: such limits do not count."""
    limited = (one_.allocatable for held in given.csi_nodes for one_ in held.spec.drivers)
    if any(held is not None and held.count is not None for held in limited) and any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None
        for pod in waiting
        for volume in pod.spec.volumes
    ):
        yield "limits of volumes of nodes: a pod with claims may go onto a node that is full of volumes"
