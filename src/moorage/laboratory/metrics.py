"""Metrics of a cluster's state, as pure functions: how full its nodes are, how evenly, and how usable the free amounts are.

Units    cpu in millicores, memory in bytes, others in counts; shares are floats from 0 to 1
Symbols  for node i and resource r: a allocatable, q requested, f = max(0, a - q) free, u = q / a (0 if a is 0)

``docs/reference/metrics.md`` has every formula. All functions look only at the nodes that count (``NodeUse.counted``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.quantity import INT64_MAX

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: The resource of which every pod takes one. It limits how many pods fit, and does not count for dominant shares.
PODS: Final = "pods"
#: The number of instances per node of a shape that requests nothing: more than any node holds.
_NO_LIMIT: Final = 2**62


@dataclass(frozen=True, eq=False)
class NodeUse:
    """Allocatable and requested amounts of nodes. Arrays have shape (nodes, resources), or (nodes,).

    ``counted``  the nodes that metrics include: those that are ready and schedulable, or all
    """

    names: tuple[str, ...]
    resources: tuple[str, ...]
    allocatable: Ints
    requested: Ints
    counted: Mask
    groups: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()

    @property
    def free(self) -> Ints:
        """The free amounts on each node, at least 0."""
        left: Ints = np.maximum(self.allocatable - self.requested, 0)
        return left

    @property
    def shares(self) -> Floats:
        """The share in use on each node."""
        return np.divide(
            self.requested, self.allocatable, out=np.zeros(self.requested.shape), where=self.allocatable > 0
        )  # fmt: skip

    def only(self, rows: Mask) -> NodeUse:
        """Return the same nodes, of which only those in ``rows`` that counted before count."""
        return replace(self, counted=self.counted & rows)

    def __len__(self) -> int:
        return len(self.names)


class WorkShape(NamedTuple):
    """Pods that request the same. ``weight``: their share of the typical mix.

    ``eligible``  the nodes that no other filter than that of resources refuses; None: all
    """

    requests: Mapping[str, int]
    weight: float = 1.0
    eligible: Mask | None = None
    name: str = ""


class Balance(NamedTuple):
    """How evenly a resource is used: the standard deviation (of the population) of the nodes' shares, and Jain's index."""

    sigma: float
    jain: float


def sums(amounts: Ints | Floats) -> list[int | float]:
    """Return the sum of each column; exact, as amounts of nodes may be as large as 64 bits hold."""
    found: list[int | float] = amounts.sum(axis=0).tolist()
    if amounts.dtype.kind != "i" or not len(amounts) or int(amounts.max(initial=0)) <= INT64_MAX // len(amounts):
        return found
    return [sum(column) for column in amounts.T.tolist()]


def utilisation(use: NodeUse) -> dict[str, float]:
    """Return by resource the requested share of the allocatable amounts: Σq / Σa. Resources that no node has are left out."""
    offered, asked = sums(use.allocatable[use.counted]), sums(use.requested[use.counted])
    return {name: q / a for name, a, q in zip(use.resources, offered, asked, strict=True) if a}


def dominant_shares(use: NodeUse) -> Floats:
    """Return for each counted node the highest share in use of any resource."""
    columns = [at for at, name in enumerate(use.resources) if name != PODS]
    shares = use.shares[use.counted][:, columns]
    found: Floats = shares.max(axis=1, initial=0.0)
    return found


def balance(use: NodeUse) -> dict[str, Balance]:
    """Return, by resource, how evenly it is used by the nodes that offer it."""
    found = {}
    shares = use.shares
    for at, name in enumerate(use.resources):
        rows = use.counted & (use.allocatable[:, at] > 0)
        if rows.any():
            found[name] = _balance(shares[rows, at])
    return found


def _balance(shares: Floats) -> Balance:
    squares = float((shares * shares).sum())
    jain = float(shares.sum()) ** 2 / (len(shares) * squares) if squares else 1.0
    return Balance(float(shares.std()), jain)


def skews(use: NodeUse) -> Floats:
    """Return for each counted node |u_cpu - u_memory| / 2, which NodeResourcesBalancedAllocation scores."""
    shares = use.shares[use.counted]
    cpu, memory = (shares[:, use.resources.index(name)] for name in ("cpu", "memory"))
    return np.abs(cpu - memory) / 2


# -- what is free, and for what ------------------------------------------------------------------------------------------


def instances(use: NodeUse, shape: WorkShape) -> Ints:
    """Return how many pods of a shape fit on each node by arithmetic: min_r ⌊f / req⌋; 0 where it is not eligible."""
    fit = _fitting(use.free, _wants(use, shape))
    fit[~_open_to(use, shape)] = 0
    return fit


def _wants(use: NodeUse, shape: WorkShape) -> Ints:
    """Return the requests of one pod, by column; -1 in the first column if it requests a resource that no node has."""
    wants = {PODS: 1, **{name: amount for name, amount in shape.requests.items() if amount}}
    row = np.array([wants.get(name, 0) for name in use.resources], dtype=np.int64)
    if any(name not in use.resources and name != PODS for name in wants):
        row[0] = -1
    return row


def _fitting(free: Ints, wants: Ints) -> Ints:
    if (wants < 0).any():
        return np.zeros(len(free), dtype=np.int64)
    columns = np.flatnonzero(wants)
    if not len(columns):
        return np.full(len(free), _NO_LIMIT, dtype=np.int64)
    fit: Ints = (free[:, columns] // wants[columns]).min(axis=1)
    return fit


def _open_to(use: NodeUse, shape: WorkShape) -> Mask:
    return use.counted if shape.eligible is None else use.counted & shape.eligible


def fragmentation(use: NodeUse, shape: WorkShape) -> float:
    """Return the share of a shape's instances that is lost because the free amounts are spread over nodes.

    E = 1 - Σ k_i / ⌊min_r Σ f_ir / req_r⌋ over the eligible nodes; 0 if none would fit in one piece either.
    """
    rows = _open_to(use, shape)
    wants = _wants(use, shape)
    pooled = int(_fitting(use.free[rows].sum(axis=0, keepdims=True), wants)[0])
    return 0.0 if pooled == 0 else 1.0 - int(_fitting(use.free[rows], wants).sum()) / pooled


def mix_fragmentation(use: NodeUse, shapes: Sequence[WorkShape]) -> float:
    """Return the fragmentation for the typical mix: the weighted mean over its shapes."""
    whole = sum(shape.weight for shape in shapes)
    return sum(shape.weight * fragmentation(use, shape) for shape in shapes) / whole if whole else 0.0


def stranded(use: NodeUse, shapes: Sequence[WorkShape]) -> dict[str, float]:
    """Return by resource the share of the free amounts that is on nodes where no typical shape fits."""
    useful = np.zeros(len(use), dtype=np.bool_)
    for shape in shapes:
        useful |= instances(use, shape) > 0
    return _share_of_free(use, np.where(useful[:, None], 0, use.free).astype(np.float64))


def fragmented(use: NodeUse, shapes: Sequence[WorkShape]) -> dict[str, float]:
    """Return by resource the share of the free amounts that a pod of the typical mix cannot use (Weng et al., ATC'23).

    F_r = Σ_m p_m Σ_i φ_im / Σ_i f_ir; φ is the whole free amount on a node where the shape cannot run, else the amount that is
    left after placing as many pods of the shape as fit.
    """
    whole = sum(shape.weight for shape in shapes)
    lost = np.zeros(use.free.shape)
    for shape in shapes:
        used = instances(use, shape)[:, None] * np.maximum(_wants(use, shape), 0)
        lost += shape.weight / whole * (use.free - used)
    return _share_of_free(use, lost)


def _share_of_free(use: NodeUse, amounts: Floats) -> dict[str, float]:
    free, lost, offered = sums(use.free[use.counted]), sums(amounts[use.counted]), sums(use.allocatable[use.counted])
    columns = zip(use.resources, free, lost, (whole > 0 for whole in offered), strict=True)
    return {name: part / whole if whole else 0.0 for name, whole, part, is_there in columns if is_there}


def headroom(use: NodeUse, shape: WorkShape, by: Sequence[str] = ()) -> dict[str, int]:
    """Return how many more pods of a shape fit by arithmetic, by group, zone or other names of nodes; ``""`` without names."""
    found: dict[str, int] = {}
    labels = by or ("",) * len(use)
    for label, count, counts in zip(labels, instances(use, shape).tolist(), use.counted.tolist(), strict=True):
        if counts:
            found[label] = found.get(label, 0) + count
    return found
