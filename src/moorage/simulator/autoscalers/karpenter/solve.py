"""``solve``: place pods on nodes that exist and on claims for new nodes, as Karpenter's provisioner does.

Pods are tried by size. Each goes to the first existing node that takes it, else to the open claim with the fewest pods, else
to a claim of the first pool by weight. A pod that fits nowhere is relaxed; if it still fits nowhere it waits until others are
placed.

Source  karpenter, pkg/controllers/provisioning/scheduling/scheduler.go, nodeclaim.go, existingnode.go, queue.go
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

import numpy as np

from moorage.api.core import Pod
from moorage.api.node_selectors import find_untolerated
from moorage.framework.changes import taint_text
from moorage.plugins.node_ports import clash
from moorage.report.queue_report import amount_text
from moorage.simulator.autoscalers import key_requirements as keys
from moorage.simulator.autoscalers.instance_types import InstanceType, missing_min_values
from moorage.simulator.autoscalers.karpenter.scene import Bools, Ints, PoolCluster, Template, needs_of
from moorage.simulator.autoscalers.karpenter.topology import Census, NoPlaceError, Topology
from moorage.state.pod_info import HostPort, PodInfo

#: At most so many types of a claim go to the provider.
_MOST_TYPES: Final = 600
_NO_ROWS: Final[Ints] = np.zeros(0, dtype=np.int64)
#: What types lack, if they lack several things, or one: requirements, resources, an offering. Karpenter's words.
_SEVERAL: Final = ("met the scheduling requirements", "had enough resources", "had a required offering")
_ONE: Final = ("met all requirements", "has enough resources", "has the required offering")


class _Asking:
    """A pod to place, with what it asks for in its present, perhaps relaxed, form."""

    def __init__(self, scene: PoolCluster, pod: Pod) -> None:
        self.pod = pod
        needs, meta = needs_of(pod), pod.metadata
        self.vector = scene.vector(needs)
        self.ports = PodInfo(pod).host_ports
        self.requirements = keys.of_pod(pod.spec)
        self.strict = keys.of_pod(pod.spec, strict=True)
        self.volumes = scene.volume_alternatives(pod) or [{}]
        self.key, self.resources = frozenset(self.requirements.values()), scene.resources
        self.rank = -needs.get("cpu", 0), -needs.get("memory", 0), meta.creation_timestamp or "", meta.uid

    @classmethod
    def of(cls, scene: PoolCluster, pod: Pod) -> _Asking:
        """Return what a pod asks for, as remembered if neither the pod nor the resources have changed."""
        known: _Asking | None = scene.asked.get(pod.metadata.uid)
        if known is None or known.pod is not pod or known.resources != scene.resources or pod.spec.volumes:
            known = scene.asked[pod.metadata.uid] = cls(scene, pod)
        return known


class LaunchClaim:
    """A new node: the pool and the types that are left for its pods."""

    def __init__(self, template: Template, host: str, rows: Ints, size: int) -> None:
        self.template, self.host, self.rows = template, host, rows
        self.pool = template.pool
        self.requirements: dict[str, keys.KeyRequirement] = keys.merged(
            template.pool.requirements, {keys.HOSTNAME: keys.one(keys.HOSTNAME, "In", (host,))}
        )
        self.pods: list[Pod] = []
        self.total = np.zeros(size, dtype=np.int64)
        self.ports = frozenset[HostPort]()
        self.types: list[InstanceType] = []

    def cheapest(self, undefined: Collection[str]) -> float:
        """Return the price that the provider is expected to take."""
        return min((held.cheapest(self.requirements, undefined) for held in self.types), default=inf)


@dataclass
class LaunchPlan:
    """Where pods go. ``placed`` is by node, ``errors`` by the UID of pods that fit nowhere.

    ``reasons``  the parts of these errors, one for each NodePool
    ``turns``    among how many equal domains chance decided at most: another round may choose others
    """

    claims: list[LaunchClaim] = field(default_factory=list)
    placed: dict[str, list[Pod]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    turns: int = 1
    relaxations: dict[str, list[str]] = field(default_factory=dict)


class HopelessError(Exception):
    """Whatever becomes of the other pods, more than one claim is needed, or none of its types is cheap enough."""


def solve(
    scene: PoolCluster, pods: Sequence[Pod], *, without: Collection[str] = (), closed: Collection[str] = (),
    moving: Collection[str] = (), below: float | None = None, turn: int = 0,
) -> LaunchPlan:  # fmt: skip
    """Place pods.

    ``without``  names of nodes that do not exist any more
    ``closed``   nodes that take only pending pods, because they changed a short time ago (consolidateAfter)
    ``moving``   UIDs of pods that are not pending: closed nodes do not take them
    ``below``    only a plan with at most one claim that costs less is wanted
    ``turn``     which of several equal domains is taken, by name; Karpenter takes one by chance in each round

    Raises  HopelessError as soon as there cannot be one; only with ``below``
    """
    return _Solver(scene, pods, scene.leaving.union(without), closed, moving, below, turn).run()


class _Solver:
    def __init__(
        self, scene: PoolCluster, pods: Sequence[Pod], without: frozenset[str], closed: Collection[str],
        moving: Collection[str], below: float | None, turn: int,
    ) -> None:  # fmt: skip
        self._scene, self._pods, self._moving = scene, pods, moving
        self._undefined = scene.prices.well_known
        self._free = scene.free.copy()
        self._alive = np.ones(len(scene.nodes), dtype=np.bool_)
        self._alive[[scene.row_of[name] for name in without if name in scene.row_of]] = False
        self._open = self._alive.copy()
        self._open[[scene.row_of[name] for name in closed if name in scene.row_of]] = False
        self._held: dict[int, keys.Requirements] = {}
        #: Nodes that got a pod which says something of a label that they lack: the node then has it, for later pods.
        self._widened: set[int] = set()
        self._ports: dict[int, frozenset[HostPort]] = {}
        census = scene.remembered.of("census", lambda: Census(scene.domains, scene.nodes, scene.namespaces))
        self._topology = Topology(census, {pod.metadata.uid for pod in pods}, without, turn)
        self._templates = [held for held in scene.templates if not held.told]
        # A claim that lacks minValues is dropped at the end, so claims do not count before.
        strict = any(asked.min_values for held in self._templates for asked in held.pool.requirements.values())
        self._below = None if strict else below
        self._limits = {pool.name: scene.remaining(pool, without) for pool in scene.pools if pool.limits is not None}
        self._claims: list[LaunchClaim] = []
        self._made = 0
        self._tolerate = any(taint.effect == "PreferNoSchedule" for pool in scene.pools for taint in pool.taints)
        self._solution = LaunchPlan()
        self._reasons: dict[str, list[str]] = {}

    def run(self) -> LaunchPlan:
        for pod in self._pods:
            self._topology.own(pod)
        queue = deque(sorted((_Asking.of(self._scene, pod) for pod in self._pods), key=lambda asking: asking.rank))
        seen: dict[str, int] = {}
        errors = self._solution.errors
        while queue and seen.get(queue[0].pod.metadata.uid) != len(queue):
            asking = queue.popleft()
            uid = asking.pod.metadata.uid
            told = self._try(asking)
            if told is None:
                errors.pop(uid, None)
                continue
            errors[uid] = told
            self._topology.own(asking.pod)
            queue.append(asking)
            seen[uid] = len(queue)
        for claim in self._claims:
            self._finish(claim)
        self._solution.turns = self._topology.turns
        self._solution.reasons = {uid: told for uid, told in self._reasons.items() if uid in errors}
        return self._solution

    def _finish(self, claim: LaunchClaim) -> None:
        del claim.requirements[keys.HOSTNAME]
        prices = self._scene.prices
        cheapest = prices.cheapest(claim.requirements)  # types of one price keep their order; upstream's order of these varies
        rows = sorted(map(int, claim.rows), key=cheapest.__getitem__)
        claim.types = [prices.types[row] for row in rows[:_MOST_TYPES]]
        short = missing_min_values(claim.types, claim.requirements)[1]
        if short:
            for pod in claim.pods:
                self._solution.errors[pod.metadata.uid] = (
                    "pod didn’t schedule because NodePool couldn’t meet minValues requirements, validating minValues, "  # noqa: RUF001
                    f"{_short(short)} (NodePool={claim.pool.name})"
                )
        else:
            self._solution.claims.append(claim)

    def _try(self, asking: _Asking) -> str | None:
        """Place a pod, relaxing it as far as needed. Return None, or why it fits nowhere."""
        dropped: list[str] = []
        while True:
            told = self._add(asking)
            if told is None:
                if dropped:
                    self._solution.relaxations[asking.pod.metadata.uid] = dropped
                return None
            found = keys.relaxed(asking.pod, tolerate=self._tolerate)
            if found is None:
                return told
            dropped.append(found[1])
            asking = _Asking(self._scene, found[0])
            self._topology.own(asking.pod)

    def _add(self, asking: _Asking) -> str | None:
        if asking.pod.spec.resource_claims:
            return "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"
        if self._to_node(asking):
            return None
        self._claims.sort(key=lambda claim: len(claim.pods))
        for claim in self._claims:
            try:
                self._extend(claim, asking)
            except NoPlaceError:
                continue
            return None
        if not self._templates:
            return "nodepool requirements filtered out all available instance types"
        return self._to_claim(asking)

    # -- nodes that exist ------------------------------------------------------------------------------------------------

    def _to_node(self, asking: _Asking) -> bool:
        pod = asking.pod
        open_ = self._open if pod.metadata.uid in self._moving else self._alive
        # A node that is short of something takes no pod, even if the pod asks for none of it.
        mask = open_ & self._scene.taking(pod.spec.tolerations, asking.key, asking.requirements)
        for row in self._widened:
            tolerated = find_untolerated(self._scene.nodes[row].taints, pod.spec.tolerations) is None
            mask[row] = open_[row] and tolerated and keys.is_compatible(self._held[row], asking.requirements)
        mask &= (self._free >= asking.vector).all(axis=1)
        near = self._topology.rows(pod, asking.strict) if mask.any() else None
        for row in map(int, np.flatnonzero(mask if near is None else mask & near)):
            held = self._scene.nodes[row]
            if asking.ports and clash(asking.ports, self._ports.get(row, held.ports)):
                continue
            try:
                found, _ = self._narrowed(asking, self._held.get(row, held.requirements))
            except NoPlaceError:
                continue
            self._held[row] = found
            if found.keys() > held.requirements.keys():
                self._widened.add(row)
            self._free[row] -= asking.vector
            if asking.ports:
                self._ports[row] = self._ports.get(row, held.ports) | asking.ports
            self._topology.record(pod, held.taints, found)
            self._solution.placed.setdefault(held.name, []).append(pod)
            return True
        return False

    def _narrowed(
        self, asking: _Asking, held: keys.Requirements, claim: LaunchClaim | None = None
    ) -> tuple[keys.Requirements, Ints]:
        """Return a node's requirements narrowed by a pod, with the first of its volumes' alternatives that goes.

        For a claim also the types that are left. Raises  NoPlaceError with why the last alternative does not go
        """
        undefined = frozenset() if claim is None else self._undefined
        _check(held, asking.requirements, undefined, "incompatible requirements, ")
        base, last = _both(held, asking.requirements), None
        for volumes in asking.volumes:
            try:
                _check(base, volumes, undefined, "incompatible volume requirements, ")
                found = _both(base, volumes)
                narrowed = self._topology.narrow(asking.pod, asking.strict, found)
                if narrowed is not found:
                    _check(found, narrowed, undefined)
                found = _both(found, narrowed)
                return found, _NO_ROWS if claim is None else self._left(claim, asking, found)
            except NoPlaceError as error:
                last = error
        assert last is not None  # a pod without volumes has one alternative, that asks for nothing
        raise last

    # -- claims ----------------------------------------------------------------------------------------------------------

    def _to_claim(self, asking: _Asking) -> str | None:
        """Open a claim for a pod; return None, or why no pool can."""
        told = []
        for template in self._templates:
            pool, rows = template.pool, template.rows
            remaining = self._limits.get(pool.name)
            if remaining is not None:
                if remaining.get("nodes") == 0:
                    told.append(f"node limits have been exhausted for nodepool (NodePool={pool.name})")
                    continue
                types = self._scene.prices.types
                rows = np.array(
                    [row for row in rows if all(types[row].capacity.get(k, 0) <= v for k, v in remaining.items())],
                    dtype=np.int64,
                )
                if not len(rows):
                    told.append(f"all available instance types exceed limits for nodepool (NodePool={pool.name})")
                    continue
            self._made += 1
            claim = LaunchClaim(template, f"hostname-placeholder-{self._made:04d}", rows, len(self._scene.resources))
            try:
                self._extend(claim, asking)
            except NoPlaceError as error:
                told.append("" if self._below is not None else error.told())
                continue
            self._claims.append(claim)
            if self._below is not None and len(self._claims) > 1:
                raise HopelessError
            if remaining is not None:
                largest = [self._scene.prices.types[row].capacity for row in claim.rows]
                # A type has no amount of the resource "nodes": claims of one round do not count against that limit.
                self._limits[pool.name] = {
                    name: left - max(held.get(name, 0) for held in largest) for name, left in remaining.items()
                }
            return None
        self._reasons[asking.pod.metadata.uid] = told
        return "; ".join(told)

    def _extend(self, claim: LaunchClaim, asking: _Asking) -> None:
        """Add a pod to a claim.

        Raises  NoPlaceError
        """
        pod = asking.pod
        taint = find_untolerated(claim.pool.taints, pod.spec.tolerations)
        if taint is not None:
            raise NoPlaceError(lambda: f"did not tolerate taint (taint={taint_text(taint)})")
        held, rows = self._narrowed(asking, claim.requirements, claim)
        claim.pods.append(pod)
        claim.rows, claim.requirements = rows, dict(held)
        claim.total = claim.total + asking.vector
        claim.ports |= asking.ports
        if len(claim.pods) == 1:
            self._topology.host(claim.host)
        self._topology.record(pod, claim.pool.taints, held)
        if self._below is not None and self._scene.prices.cheapest(held)[rows].min() >= self._below:
            raise HopelessError

    def _left(self, claim: LaunchClaim, asking: _Asking, held: keys.Requirements) -> Ints:
        """Return the rows of the types that can still be launched with one more pod.

        Raises  NoPlaceError with Karpenter's sentence on what no type has
        """
        scene, template = self._scene, claim.template
        rows = claim.rows
        if asking.ports:
            rows = np.array([row for row in rows if not clash(asking.ports, claim.ports | template.ports[row])], dtype=np.int64)
        meets, offered = (mask[rows] for mask in scene.fitting(held))
        total = claim.total + asking.vector + template.overhead[rows]
        room = scene.allocatable[rows]
        fits = offered & (room >= 0).all(axis=1) & (room >= total).all(axis=1)
        left = rows[meets & fits]
        short = missing_min_values([scene.prices.types[row] for row in left], held)[1]
        if len(left) and not short:
            return left
        raise NoPlaceError(
            lambda: (
                f"{_short(short) if short else _lacking(meets, fits, offered)}, requirements={keys.text_of(held)}, "
                f"resources={self._resources(claim, asking)}"
            )
        )

    def _resources(self, claim: LaunchClaim, asking: _Asking) -> str:
        names = self._scene.resources
        over = claim.template.overhead[claim.template.rows]
        over = over[over.any(axis=1)]  # types without daemons do not count
        texts = []
        for more in (over.min(axis=0), over.max(axis=0)) if len(over) else (np.zeros_like(asking.vector),) * 2:
            total = zip(names, more + asking.vector, strict=True)
            texts.append("{" + ",".join(f'"{name}":"{amount_text(name, int(held))}"' for name, held in total if held) + "}")
        return texts[0] if texts[0] == texts[1] else f"min={texts[0]}, max={texts[1]}"


def _check(held: keys.Requirements, asked: keys.Requirements, undefined: frozenset[str], prefix: str = "") -> None:
    if not keys.is_compatible(held, asked, undefined):
        raise NoPlaceError(lambda: f"{prefix}{keys.incompatibility(held, asked, undefined)}")


def _both(held: keys.Requirements, more: keys.Requirements) -> keys.Requirements:
    """Return requirements narrowed by others; without a copy where those are none, or the same."""
    return held if not more or more is held else keys.merged(held, more)


def _short(short: Mapping[str, int]) -> str:
    return f"minValues requirement is not met for label(s) (label(s)=[{' '.join(sorted(short))}])"


def _lacking(meets: Bools, fits: Bools, offered: Bools) -> str:
    """Return Karpenter's sentence on what no type has.

    Source  karpenter, pkg/controllers/provisioning/scheduling/nodeclaim.go, InstanceTypeFilterError
    """
    missing = [at for at, held in enumerate((meets, fits, offered)) if not held.any()]
    if missing:
        return f"no instance type {_ONE[missing[0]] if len(missing) == 1 else ' or '.join(_SEVERAL[at] for at in missing)}"
    if (fits & offered & ~meets).any():
        return "no instance type which had enough resources and the required offering met the scheduling requirements"
    if (meets & offered & ~fits).any():
        return "no instance type which met the scheduling requirements and the required offering had the required resources"
    return "no instance type met the requirements/resources/offering tuple"
