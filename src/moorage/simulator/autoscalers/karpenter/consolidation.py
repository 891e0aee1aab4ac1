"""Disruption: which nodes Karpenter deletes or replaces, and why it keeps the others.

Source  karpenter, pkg/controllers/disruption/consolidation.go, types.go, multinodeconsolidation.go, singlenodeconsolidation.go,
        emptiness.go, drift.go, balanced.go, helpers.go; pkg/utils/disruption/disruption.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import inf
from typing import Final

from moorage.api.core import Pod
from moorage.simulator.autoscalers.instance_types import InstanceType, missing_min_values
from moorage.simulator.autoscalers.karpenter.scene import ExistingNode, PoolCluster, ProvisioningPool
from moorage.simulator.autoscalers.karpenter.solve import HopelessError, LaunchClaim, LaunchPlan, solve
from moorage.simulator.autoscalers.key_requirements import CAPACITY_TYPE, INSTANCE_TYPE, ZONE, add_to, exists, of_labels, one

_SPOT_TYPES: Final = 15
_BATCH: Final = 100
_SPOT: Final = one(CAPACITY_TYPE, "In", ("spot",))
#: A Balanced pool accepts a move that saves at least this share of its cost for each share of disruption: 1 / BalancedK.
_THRESHOLD: Final = 0.5


@dataclass(frozen=True, eq=False)
class DisruptionCandidate:
    """A node that may be disrupted. ``price`` is 0 if its offering is unknown; ``drifted_s``: since when it is drifted."""

    node: ExistingNode
    pool: ProvisioningPool
    type: InstanceType | None
    pods: tuple[Pod, ...]
    price: float
    cost: float
    consolidatable: bool = True
    drifted_s: float | None = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def is_empty(self) -> bool:
        """True if no pod's eviction costs anything."""
        return self.cost <= 1.0

    @property
    def goes_as_empty(self) -> bool:
        """True if it is removed as empty, whatever other pods wait for."""
        return self.is_empty and self.consolidatable and not self.pool.static and self.pool.consolidate_after_s is not None

    @property
    def capacity_type(self) -> str:
        return self.node.labels.get(CAPACITY_TYPE, "")


def candidate_of(
    scene: PoolCluster, node: ExistingNode, pool: ProvisioningPool, *, consolidatable: bool = True
) -> DisruptionCandidate:
    """Return a node as candidate: its pods, price and cost."""
    held = scene.prices.of_node(node.labels)
    price = held.price_in(node.labels.get(ZONE, ""), node.labels.get(CAPACITY_TYPE, "")) if held is not None else None
    return DisruptionCandidate(node, pool, held, node.reschedulable, price or 0.0, node.disturbance, consolidatable)


@dataclass
class DisruptionCommand:
    """What is to be done with candidates. Without ``why``: delete them, or replace them by the claims.

    ``why``     why nothing is done, by Karpenter's event where it has one
    ``errors``  by pod, why it would fit nowhere
    """

    candidates: tuple[DisruptionCandidate, ...]
    why: str = ""
    claims: Sequence[LaunchClaim] = ()
    solution: LaunchPlan = field(default_factory=LaunchPlan)
    errors: Mapping[str, str] = field(default_factory=dict)
    reason: str = "Underutilized"

    @property
    def decision(self) -> str:
        return "no-op" if self.why or not self.candidates else "replace" if self.claims else "delete"

    @property
    def types(self) -> tuple[str, ...]:
        """The names of the types of the replacements, the cheapest first."""
        return tuple(dict.fromkeys(held.name for claim in self.claims for held in claim.types))

    def savings(self, undefined: frozenset[str]) -> float:
        """Return what an hour costs less: a replacement counts with its cheapest type's cheapest offering."""
        prices = [claim.types[0].cheapest(claim.requirements, undefined) for claim in self.claims if claim.types]
        return sum(held.price for held in self.candidates) - sum(price for price in prices if price != inf)


def savings_pass(savings: float, cost: float, total_price: float, total_cost: float) -> bool:
    """Return True if a move of a Balanced pool saves enough for the disruption that it causes."""
    if total_price <= 0 or total_cost <= 0:
        return False
    saved, disturbed = savings / total_price, cost / total_cost
    score = 0.0 if saved <= 0 else inf if disturbed == 0 else saved / disturbed
    return score >= _THRESHOLD


class Disruptor:
    """Judges candidates.

    ``totals``         price and disruption cost of all nodes of a pool, for Balanced pools
    ``spot_to_spot``   the feature gate SpotToSpotConsolidation
    ``closed``         nodes under consolidateAfter: they take no pods of candidates
    """

    def __init__(
        self, scene: PoolCluster, totals: Mapping[str, tuple[float, float]] | None = None, *, spot_to_spot: bool = False,
        closed: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self._scene, self._totals, self._spot_to_spot, self._closed = scene, totals or {}, spot_to_spot, closed
        self._undefined = scene.prices.well_known
        self._displaced = {pod.metadata.uid for pod in scene.displaced}

    # -- one command -----------------------------------------------------------------------------------------------------

    def refusal(self, held: DisruptionCandidate) -> str:
        """Return why a node is no candidate for consolidation; "" if it is one, or is empty."""
        if held.pool.static:
            return f'NodePool "{held.pool.name}" is static'
        if held.type is None:
            return f'Instance Type "{held.node.labels.get(INSTANCE_TYPE, "")}" not found'
        for label in (CAPACITY_TYPE, ZONE):
            if label not in held.node.labels:
                return f'Node does not have label "{label}"'
        if held.pool.consolidate_after_s is None:
            return f'NodePool "{held.pool.name}" has consolidation disabled'
        if held.pool.policy == "WhenEmpty" and not held.is_empty:
            return f'NodePool "{held.pool.name}" has consolidation policy WhenEmpty, but node is not empty'
        if not held.consolidatable:
            return "Node is not consolidatable: consolidateAfter has not passed since its last pod event"
        return ""

    def compute(self, candidates: Sequence[DisruptionCandidate], *, briefly: bool = False) -> DisruptionCommand:
        """Return what can be done with these nodes together. ``briefly``: without all that is known of why nothing can be.

        Source  karpenter, pkg/controllers/disruption/consolidation.go, computeConsolidation
        """
        held = tuple(candidates)
        try:
            found = self._without(held, self._closed, sum(one_.price for one_ in held) if briefly else None)
        except HopelessError:
            return DisruptionCommand(held, "Can't replace with a cheaper node")
        if len(found.claims) == 1:
            found.why = self._dearer(held, found.claims[0])
        elif found.claims:
            uids = {pod.metadata.uid for one_ in held for pod in one_.pods} | self._displaced
            for_others = sum(not any(pod.metadata.uid in uids for pod in claim.pods) for claim in found.claims)
            found.why = f"Can't remove without creating {len(found.claims)} candidates"
            found.why += f", {for_others} of them for pods that are pending anyway" if for_others else ""
        found.claims = () if found.why else found.claims
        return found

    def drift(self, held: DisruptionCandidate) -> DisruptionCommand:
        """Return what replaces a drifted node: as many nodes as its pods need, at any price.

        Source  karpenter, pkg/controllers/disruption/drift.go
        """
        found = self._without((held,))
        found.reason = "Drifted"
        return found

    def _without(
        self, held: tuple[DisruptionCandidate, ...], closed: frozenset[str] = frozenset(), below: float | None = None
    ) -> DisruptionCommand:
        """Return where the pods of nodes go, at any price; ``why`` if one would fit nowhere.

        Raises  HopelessError with ``below``
        """
        moving = [*(pod for one_ in held for pod in one_.pods), *self._scene.displaced]
        uids = {pod.metadata.uid: pod for pod in moving}
        found = solve(
            self._scene, [*self._scene.pending, *moving], without=[one_.name for one_ in held], closed=closed,
            moving=uids.keys(), below=below,
        )  # fmt: skip
        errors = {f"{uids[uid].namespace}/{uids[uid].name}": told for uid, told in found.errors.items() if uid in uids}
        starting = (name for name in found.placed if not self._scene.nodes[self._scene.row_of[name]].initialized)
        errors |= {
            f"{pod.namespace}/{pod.name}": f"would schedule against uninitialized node/{name}"
            for name in starting for pod in found.placed[name] if pod.metadata.uid not in self._displaced
        }  # fmt: skip
        listed = " ".join(f"{name} => {told}" for name, told in list(errors.items())[:5])
        more = f" and {len(errors) - 5} other(s)" if len(errors) > 5 else ""
        why = f"Not all pods would schedule, {listed}{more}" if errors else ""
        return DisruptionCommand(held, why, () if errors else found.claims, found, errors)

    def _dearer(self, held: tuple[DisruptionCandidate, ...], claim: LaunchClaim) -> str:
        """Keep the types of a claim that may replace nodes. Return why none is left."""
        kinds = claim.requirements.get(CAPACITY_TYPE) or exists(CAPACITY_TYPE)
        to_spot = all(one_.capacity_type == "spot" for one_ in held) and kinds.has("spot")
        if to_spot:
            if not self._spot_to_spot:
                return "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
            add_to(claim.requirements, (_SPOT,))
            claim.types = [one_ for one_ in claim.types if one_.offered(claim.requirements, self._undefined)]
        why = self._below(claim, sum(one_.price for one_ in held))
        if not why and to_spot and len(held) == 1:
            if len(claim.types) < _SPOT_TYPES:
                return (
                    f"SpotToSpotConsolidation requires {_SPOT_TYPES} cheaper instance type options than the current candidate "
                    f"to consolidate, got {len(claim.types)}"
                )
            needed, _ = missing_min_values(claim.types, claim.requirements)
            claim.types = claim.types[: max(_SPOT_TYPES, needed)]
        elif not why and kinds.has("spot") and kinds.has("on-demand"):
            # Prices were compared with spot: a launch that falls back to on-demand could cost more.
            add_to(claim.requirements, (_SPOT,))
        return why

    def _below(self, claim: LaunchClaim, price: float) -> str:
        """Keep the types that are launched below a price. Return why none is left."""
        claim.types = [one_ for one_ in claim.types if one_.worst_launch_price(claim.requirements, self._undefined) < price]
        short = missing_min_values(claim.types, claim.requirements)[1]
        if short:
            return f"Filtering by price: minValues requirement is not met for label(s) (label(s)=[{' '.join(sorted(short))}])"
        return "" if claim.types else "Can't replace with a cheaper node"

    # -- the next command ------------------------------------------------------------------------------------------------

    def next_command(
        self, candidates: Iterable[DisruptionCandidate], budgets: Mapping[str, Mapping[str, int]],
        drifted: Iterable[DisruptionCandidate] = (),
    ) -> DisruptionCommand | None:  # fmt: skip
        """Return the command that Karpenter runs next: empty nodes, a drifted one, several, or one; None if there is none.

        ``budgets``  reason → pool → how many nodes may be disrupted
        """
        held = [one_ for one_ in candidates if not one_.pool.static and one_.pool.consolidate_after_s is not None]
        ordered = sorted(held, key=lambda one_: -one_.price / one_.cost)
        empty = self._within((one_ for one_ in ordered if one_.goes_as_empty), budgets["Empty"])
        if empty:
            return DisruptionCommand(tuple(empty), reason="Empty")
        for one_ in sorted(drifted, key=lambda one_: (bool(one_.node.reschedulable), one_.drifted_s or 0.0)):
            if budgets["Drifted"].get(one_.pool.name, 0) > 0 and (found := self.drift(one_)).decision != "no-op":
                return found
        used = [one_ for one_ in ordered if not one_.is_empty and not self.refusal(one_)]
        return self._several(self._within(used, budgets["Underutilized"])) or self._single(used, budgets["Underutilized"])

    @staticmethod
    def _within(candidates: Iterable[DisruptionCandidate], budget: Mapping[str, int]) -> list[DisruptionCandidate]:
        left, found = dict(budget), []
        for held in candidates:
            if left.get(held.pool.name, 0) > 0:
                left[held.pool.name] -= 1
                found.append(held)
        return found

    def _several(self, candidates: Sequence[DisruptionCandidate]) -> DisruptionCommand | None:
        """Search for the largest number of first candidates that can go together, by halving."""
        least, most = 1, min(len(candidates) - 1, _BATCH)
        best: DisruptionCommand | None = None
        while least <= most:
            middle = (least + most) // 2
            found = self.compute(candidates[: middle + 1], briefly=True)
            if found.claims:
                self._cheaper_than_same(found, found.claims[0])
            if found.decision != "no-op" and self.approves(found):
                best, least = found, middle + 1
            else:
                most = middle - 1
        return best

    def _cheaper_than_same(self, command: DisruptionCommand, claim: LaunchClaim) -> None:
        """Refuse a replacement of a type that is among the removed: keeping that node would disturb less."""
        prices: dict[str, float] = {}
        for held in command.candidates:
            assert held.type is not None
            labels = of_labels(held.node.labels).items()
            offered = [of.price for of in held.type.offerings if of.requirements.items() <= labels]
            prices[held.type.name] = min(prices.get(held.type.name, inf), *offered, inf)
        limit = min((prices[one_.name] for one_ in claim.types if one_.name in prices), default=inf)
        command.why = self._below(claim, limit)

    def _single(self, candidates: Sequence[DisruptionCandidate], budget: Mapping[str, int]) -> DisruptionCommand | None:
        for row in zip_longest(*_by_pool(candidates).values()):
            for held in row:
                if held is not None and budget.get(held.pool.name, 0) > 0 and self.may_pass(held):
                    found = self.compute([held], briefly=True)
                    if found.decision != "no-op" and self.approves(found):
                        return found
        return None

    # -- balanced --------------------------------------------------------------------------------------------------------

    def may_pass(self, held: DisruptionCandidate) -> bool:
        """Return True if at least the deletion of a node would save enough for its pool."""
        price, cost = self._totals.get(held.pool.name, (0.0, 0.0))
        return held.pool.policy != "Balanced" or price <= 0 or savings_pass(held.price, held.cost, price, cost)

    def approves(self, command: DisruptionCommand) -> bool:
        """Return True if every Balanced pool of a command saves enough for its disruption."""
        saved, pools = command.savings(self._undefined), _by_pool(command.candidates)
        whole = sum(held.price for held in command.candidates)
        for name, members in pools.items():
            price, cost = sum(held.price for held in members), sum(held.cost for held in members)
            share = price / whole if whole > 0 and len(pools) > 1 else 1.0
            balanced = members[0].pool.policy == "Balanced"
            if balanced and not savings_pass(saved * share, cost, *self._totals.get(name, (0.0, 0.0))):
                return False
        return True


def _by_pool(candidates: Iterable[DisruptionCandidate]) -> dict[str, list[DisruptionCandidate]]:
    pools: dict[str, list[DisruptionCandidate]] = {}
    for held in candidates:
        pools.setdefault(held.pool.name, []).append(held)
    return pools
