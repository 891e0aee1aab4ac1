"""The room that a cluster has for the pods of a group: how many fit together in each topology domain, now and ever.

Pods with equal specs are one class. Of each class the plugins say which nodes it may use; how many fit there is arithmetic over
their requests. Plugins that count other pods can only refuse more nodes, so the arithmetic is an upper bound in any case, and
exact if there are none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from typing import Final, NamedTuple

import msgspec
import numpy as np

from moorage.framework.profile import Profile
from moorage.laboratory.capacity.capacity_bound import FIT
from moorage.laboratory.explain.verdicts import EveryVerdict, free_amount, verdicts_of_all
from moorage.plugins.node_resources_fit import RequestedResource
from moorage.simulator.owners import controller_kind, is_mirror
from moorage.state.view import BoolArray, IntArray, PodInfo, Snapshot

#: Plugins whose verdict on a node depends on the node and its free resources alone.
_OF_THE_NODE: Final = frozenset([
    FIT, "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeDeclaredFeatures", "NodeLabel",
])  # fmt: skip
#: Refusals that stay whatever pods leave the node.
_LASTING: Final = _OF_THE_NODE - {FIT, "NodePorts"}
_ENDLESS: Final = 1 << 40
#: With more classes, not every order of them is tried.
_MOST_ORDERED: Final = 4
#: Bounds of the exact search for the largest part of a domain: nodes, pods and steps.
_MOST_ROWS: Final = 16
_MOST_PODS: Final = 24
_MOST_STEPS: Final = 60_000


@dataclass(frozen=True)
class MemberClass:
    """Pods of the group with equal specs, and the verdicts of all plugins for them.

    ``needs``       the amount of each resource that one pod asks for, ``pods`` included
    ``open_now``    the rows that no plugin but NodeResourcesFit refuses now; ``open_ever``: none for a lasting reason
    ``is_exact``    whether arithmetic says how many fit; otherwise it is an upper bound
    """

    pods: tuple[PodInfo, ...]
    judged: EveryVerdict
    needs: Mapping[str, int]
    open_now: BoolArray
    open_ever: BoolArray
    is_exact: bool

    def reasons_on(self, rows: BoolArray) -> Counter[str]:
        """Return why nodes among these rows refuse the pods, resources aside, each with the number of nodes."""
        found: Counter[str] = Counter()
        first, kind = self.judged.kinds
        for number, count in enumerate(np.bincount(kind[rows & ~self.open_now], minlength=len(first)).tolist()):
            statuses = self.judged.statuses(int(first[number])) if count else []
            for status in [one for one in statuses if one.plugin != FIT][:1]:
                found.update(dict.fromkeys(status.reasons, count))
        return found


def classes_of(profile: Profile, pods: Iterable[PodInfo], snapshot: Snapshot) -> list[MemberClass]:
    """Return the classes of pods, in the order of their first pods."""
    held: dict[object, list[PodInfo]] = {}
    for pod in pods:
        spec = pod.pod.spec
        held.setdefault(msgspec.json.encode(spec), []).append(pod)
    return [_class(profile, tuple(some), snapshot) for some in held.values()]


def _class(profile: Profile, pods: tuple[PodInfo, ...], snapshot: Snapshot) -> MemberClass:
    judged = verdicts_of_all(profile, pods[0], snapshot)
    wants = next((one.state for one in judged.judgements if one.name == FIT and isinstance(one.state, tuple)), ())
    requested = [want for want in wants if isinstance(want, RequestedResource)]
    now = judged.open_without({FIT})
    ever = judged.open_without({one.name for one in judged.refusing} - _LASTING)
    others = any(not one.skips and one.name not in _OF_THE_NODE for one in judged.judgements)
    by_device = any(want.by_device for want in requested)
    needs = {want.resource: want.amount for want in requested if want.amount > 0 and not want.by_device} | {"pods": 1}
    return MemberClass(pods, judged, needs, now, ever, not others and not by_device)


def stays(pod: PodInfo) -> bool:
    """Return whether a pod stays on its node, or comes back there, whatever others do."""
    return controller_kind(pod.pod) == "DaemonSet" or is_mirror(pod.pod)


class PlacedPods(NamedTuple):
    """Pods on nodes, in the order of the rows. ``stays``: they do not leave, or come back.

    Shapes  rows, stays (pods,); amounts (pods, resources)
    """

    pods: tuple[PodInfo, ...]
    rows: IntArray
    amounts: IntArray
    stays: BoolArray


@dataclass(frozen=True, slots=True)
class Filling:
    """How many pods of each class fit in each domain together.

    Shapes  counts (domains, classes); most, the upper bound, (domains,); left (rows, resources): what stays free
    """

    counts: IntArray
    most: IntArray
    left: IntArray

    @property
    def fits(self) -> IntArray:
        """How many pods fit in each domain; shape (domains,)."""
        found: IntArray = self.counts.sum(axis=1)
        return found


class GangRoom:
    """The room for pods of some classes in the domains of a cluster; without ``key``, all nodes are one domain.

    ``domains``  the names of the domains, sorted; ``domain`` has the number of each row's, or -1 for a row without the label
    """

    def __init__(self, classes: Sequence[MemberClass], snapshot: Snapshot, key: str | None, own: Container[str]) -> None:
        self.classes, self.snapshot, self._own = classes, snapshot, own
        self._amounts: dict[int, tuple[int, ...]] = {}
        self.resources = sorted({name for one in classes for name in one.needs})
        needs = [[one.needs.get(name, 0) for name in self.resources] for one in classes]
        self.needs: IntArray = np.array(needs, dtype=np.int64)
        self.wanted = [len(one.pods) for one in classes]
        rows = len(snapshot.table)
        if key is None:
            self.domains, self.domain = ["all nodes"], np.zeros(rows, dtype=np.intp)
        else:
            column = snapshot.table.labels.column(key)
            ids = snapshot.nodes.take(column.ids)
            numbers = {number: str(column.values[number]) for number in np.unique(ids).tolist() if number}
            self.domains = sorted(numbers.values())
            place = {name: at for at, name in enumerate(self.domains)}
            self.domain = np.array([place.get(numbers.get(number, ""), -1) for number in ids.tolist()], dtype=np.intp)
        columns = [free_amount(self.snapshot.nodes, name) for name in self.resources]
        self.free: IntArray = np.array(columns, dtype=np.int64).reshape(len(columns), rows).T.copy()

    @property
    def is_plain(self) -> bool:
        """Whether the scheduler places as many pods as arithmetic says, on whichever nodes and in whichever order."""
        return self.is_exact and len(self.classes) == 1

    @property
    def is_exact(self) -> bool:
        """Whether arithmetic says how many pods fit; classes that share host ports are not told apart."""
        return all(one.is_exact for one in self.classes) and (
            len(self.classes) == 1 or not any(one.pods[0].host_ports for one in self.classes)
        )

    @cached_property
    def placed(self) -> PlacedPods:
        """The pods on nodes that could accept pods of the group."""
        table, usable = self.snapshot.table, np.logical_or.reduce([one.open_ever for one in self.classes]) & (self.domain >= 0)
        pods: list[PodInfo] = []
        lasting: list[bool] = []
        rows = np.flatnonzero(usable)
        for row in rows.tolist():
            for pod in table.pods[row].values():
                pods.append(pod)
                lasting.append(pod.uid in self._own or stays(pod))
        counts = [len(table.pods[row]) for row in rows.tolist()]
        amounts = np.array([self.amounts(pod) for pod in pods], dtype=np.int64).reshape(len(pods), len(self.resources))
        return PlacedPods(tuple(pods), np.repeat(rows, counts), amounts, np.array(lasting, dtype=bool))

    @cached_property
    def free_ever(self) -> IntArray:
        """What is free once all pods are gone but those that stay: of DaemonSets, mirror pods, and the group's placed ones."""
        nodes, placed = self.snapshot.nodes, self.placed
        columns = [nodes.allowed_pods if name == "pods" else nodes.allocatable(name) for name in self.resources]
        free = np.stack([np.asarray(one, dtype=np.int64) for one in columns], axis=1)
        np.subtract.at(free, placed.rows[placed.stays], placed.amounts[placed.stays])
        return free

    def without(self, pods: Iterable[tuple[PodInfo, int]]) -> IntArray:
        """Return what is free on each row once these pods, each with its row, have left."""
        free = self.free.copy()
        for pod, row in pods:
            free[row] += self.amounts(pod)
        return free

    def amounts(self, pod: PodInfo) -> tuple[int, ...]:
        """Return what a placed pod holds of the resources that the group asks for."""
        needs = pod.needs
        found = self._amounts.get(id(needs))
        if found is None:  # equal requests are one object, which the pods keep alive
            found = tuple([1 if name == "pods" else needs.requests.get(name, 0) for name in self.resources])
            self._amounts[id(needs)] = found
        return found

    # -- filling ---------------------------------------------------------------------------------------------------------

    def now(self) -> Filling:
        """Return how many pods fit now."""
        return self.filled(self.free, [one.open_now for one in self.classes])

    def ever(self) -> Filling:
        """Return how many pods fit once all others but those that stay are gone: more never fit."""
        return self.filled(self.free_ever, [one.open_ever for one in self.classes])

    def filled(self, free: IntArray, open_rows: Sequence[BoolArray]) -> Filling:
        """Return how many pods fit into what is free, in the best of several orders of classes and rows."""
        counts = np.zeros((len(self.domains), len(self.classes)), dtype=np.int64)
        left = free.copy()
        for order, rows in self._orders(free):
            found, rest = self._fill(free, open_rows, order, rows)
            better = found.sum(axis=1) > counts.sum(axis=1)
            counts[better] = found[better]
            chosen = np.isin(self.domain, np.flatnonzero(better))
            left[chosen] = rest[chosen]
        most = np.maximum(self._most(free, open_rows), counts.sum(axis=1))
        if len(self.classes) > 1:
            for at in np.flatnonzero(most > counts.sum(axis=1)).tolist():
                best = self._exactly(at, free, open_rows)
                if best is not None:
                    counts[at], most[at] = best, sum(best)
        return Filling(counts, most, left)

    def _orders(self, free: IntArray) -> Iterator[tuple[Sequence[int], IntArray]]:
        """Yield orders of the classes and of the rows: those with least room first, and in turn."""
        number = len(self.classes)
        share = (self.needs / np.maximum(free.max(axis=0, initial=1), 1)).max(axis=1)
        up = np.argsort(share, kind="stable").tolist()
        orders = list(permutations(range(number))) if number <= _MOST_ORDERED else [range(number), up, up[::-1]]
        tight = np.argsort((free / np.maximum(free.max(axis=0, initial=1), 1)).sum(axis=1), kind="stable")
        for order in orders:
            yield order, tight
            if number > 1:
                yield order, np.arange(len(free))

    def capacity(self, at: int, free: IntArray, open_rows: BoolArray) -> IntArray:
        """Return how many pods of one class fit on each row."""
        needs = self.needs[at]
        asked = needs > 0
        most = (np.clip(free[:, asked], 0, None) // needs[asked]).min(axis=1, initial=_ENDLESS)
        most = np.minimum(most, 1) if self.classes[at].pods[0].host_ports else most
        return np.where(open_rows & (self.domain >= 0), most, 0)

    def _fill(
        self, free: IntArray, open_rows: Sequence[BoolArray], order: Sequence[int], rows: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Fill every domain with the classes in order, on rows in order. Return the counts and what stays free."""
        left = free.copy()
        counts = np.zeros((len(self.domains), len(self.classes)), dtype=np.int64)
        rows = rows[np.argsort(self.domain[rows], kind="stable")]
        of_domain = self.domain[rows]
        starts = np.searchsorted(of_domain, np.arange(len(self.domains)))
        for at in order:
            fits = self.capacity(at, left, open_rows[at])[rows]
            before = np.concatenate(([0], np.cumsum(fits)))
            begun = before[starts][of_domain] if len(self.domains) else before[:-1]
            taken = np.clip(self.wanted[at] - (before[:-1] - begun), 0, fits)
            taken[of_domain < 0] = 0
            left[rows] -= taken[:, None] * self.needs[at]
            np.add.at(counts[:, at], of_domain[of_domain >= 0], taken[of_domain >= 0])
        return counts, left

    def _most(self, free: IntArray, open_rows: Sequence[BoolArray]) -> IntArray:
        """Return an upper bound for each domain: by the rows of each class, and by the sums of each resource."""
        number, held = len(self.domains), self.domain >= 0
        by_class = np.zeros(number, dtype=np.int64)
        any_open = np.zeros(len(free), dtype=bool)
        for at, mask in enumerate(open_rows):
            fits = np.minimum(self.capacity(at, free, mask), self.wanted[at])
            sums = np.bincount(self.domain[held], weights=fits[held], minlength=number).astype(np.int64)
            by_class += np.minimum(sums, self.wanted[at])
            any_open |= fits > 0
        among = held & any_open
        most = by_class
        for at in range(len(self.resources)):
            total = np.bincount(self.domain[among], weights=np.clip(free[among, at], 0, None), minlength=number)
            asked = np.sort(np.repeat(self.needs[:, at], self.wanted))
            most = np.minimum(most, np.searchsorted(np.cumsum(asked), total, side="right"))
        return most

    def _exactly(self, domain: int, free: IntArray, open_rows: Sequence[BoolArray]) -> tuple[int, ...] | None:
        """Return the largest part of a domain by trying every split over its rows; None if that takes too long."""
        rows = np.flatnonzero(self.domain == domain).tolist()
        if len(rows) > _MOST_ROWS or sum(self.wanted) > _MOST_PODS:
            return None
        reached: set[tuple[int, ...]] = {(0,) * len(self.wanted)}
        steps = 0
        for row in rows:
            limits = [self._on_row(at, free[row], bool(mask[row])) for at, mask in enumerate(open_rows)]
            every = np.array(list(product(*(range(limit + 1) for limit in limits))), dtype=np.int64)
            splits = every[(every @ self.needs <= np.clip(free[row], 0, None)).all(axis=1)].tolist()
            steps += len(reached) * len(splits)
            if steps > _MOST_STEPS:
                return None
            reached = {
                tuple(min(count + more, most) for count, more, most in zip(counts, split, self.wanted, strict=True))
                for counts in reached
                for split in splits
            }
        return max(reached, key=sum)

    def _on_row(self, at: int, free: IntArray, is_open: bool) -> int:
        asked, wanted = self.needs[at] > 0, self.wanted[at]
        fits = int((np.clip(free[asked], 0, None) // self.needs[at][asked]).min(initial=wanted)) if is_open else 0
        return min(fits, 1 if self.classes[at].pods[0].host_ports else fits, wanted)

    def stops(self, domain: int, filling: Filling, *, ever: bool = False) -> Counter[str]:
        """Return why no further pod fits in a domain once it is filled, each reason with the number of nodes.

        ``ever``: in a filling of the domain without the pods of others
        """
        missing = [at for at, wanted in enumerate(self.wanted) if filling.counts[domain][at] < wanted]
        if not missing:
            return Counter()
        at = missing[0]
        one, rows = self.classes[at], self.domain == domain
        open_rows = one.open_ever if ever else one.open_now
        found = one.reasons_on(rows & ~open_rows)
        among = rows & open_rows
        for number, name in enumerate(self.resources):
            short = int((filling.left[among, number] < self.needs[at][number]).sum())
            if short:
                found["Too many pods" if name == "pods" else f"Insufficient {name}"] = short
        return found
