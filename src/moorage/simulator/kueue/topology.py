"""Placement in a topology: which domains (blocks, racks, hosts) take the pods of a pod set, as its request says.

Pods that fit are counted for each leaf and summed up the tree. Then a level is found at which the whole request fits, in one
domain if it is required, and the pods are divided down the tree so that few domains are used. Slices are pods that stay
together at a level; layers of slices do so at several. A leader stands beside its workers. Unconstrained pods go where
the least room is left, all others where they fit best.

Units   requests are in base units; a count is of pods
Source  Kueue, pkg/cache/scheduler: tas_flavor_snapshot.go, tas_topology_tree.go, scheduling_simulator_default.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from moorage.api.core import PodSpec, Taint, Toleration
from moorage.api.node_selectors import NodeSelectorMatcher, compile_node_selector, find_untolerated, required_nodes
from moorage.api.pod_requests import add_amounts
from moorage.simulator.kueue.topology_requests import PlacementRequest, TopologyPlacement, TopologyRequest

HOSTNAME: Final = "kubernetes.io/hostname"
_MOST: Final = 2**31 - 1
_SCHEDULING: Final = frozenset({"NoSchedule", "NoExecute"})
#: How many slices fit into a domain, alone and beside a leader.
_room: Final = attrgetter("slices")
_room_led: Final = attrgetter("slices_led")


@dataclass(slots=True, eq=False)
class Domain:
    """A domain, and how much of the request under way fits: ``pods``, ``slices``, and the same beside a leader (``_led``)."""

    values: tuple[str, ...]
    children: list[Domain] = field(default_factory=list)
    parent: Domain | None = None
    pods: int = 0
    slices: int = 0
    pods_led: int = 0
    slices_led: int = 0
    leaders: int = 0


@dataclass(slots=True, eq=False)
class Leaf:
    """A domain of the lowest level. ``labels`` and ``taints`` are those of its node, if the level is that of hosts."""

    domain: Domain
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    name: str
    free: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)


Usage = dict[str, dict[str, int]]


class FreeNode(NamedTuple):
    """A node that takes pods, and what is free on it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: Mapping[str, int]


class TopologyTree:
    """The nodes of a flavor by the levels of its topology. ``used`` of a leaf is what workloads with a placement hold."""

    def __init__(self, name: str, levels: Sequence[str], tolerations: tuple[Toleration, ...] = ()) -> None:
        self.name = name
        self.levels = tuple(levels)
        self.of_hosts = bool(levels) and levels[-1] == HOSTNAME
        self.leaves: dict[str, Leaf] = {}
        self._tolerations = tolerations
        self._levels: list[dict[tuple[str, ...], Domain]] = [{} for _ in levels]

    def add_node(self, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...], free: Mapping[str, int]) -> None:
        """Add a node, with what pods outside of the topology leave free."""
        values = tuple(labels.get(level, "") for level in self.levels)
        leaf_id = values[-1] if self.of_hosts else ",".join(values)
        leaf = self.leaves.get(leaf_id)
        if leaf is None:
            leaf = self.leaves[leaf_id] = Leaf(
                self._domain(values), labels if self.of_hosts else {}, taints if self.of_hosts else (), name
            )
        add_amounts(leaf.free, free)

    def _domain(self, values: tuple[str, ...]) -> Domain:
        known = self._levels[len(values) - 1]
        found = known.get(values)
        if found is None:
            found = known[values] = Domain(values)
            if len(values) > 1:
                found.parent = self._domain(values[:-1])
                found.parent.children.append(found)
        return found

    # -- usage

    def use(self, placed: TopologyPlacement, requests: Mapping[str, int], sign: int = 1) -> None:
        """Count the pods of a placement, or with -1 take them off. Domains that are gone are passed over."""
        for leaf_id, usage in usage_of(placed, requests).items():
            if (leaf := self.leaves.get(leaf_id)) is not None:
                add_amounts(leaf.used, usage, sign)

    def fits(self, placed: TopologyPlacement, requests: Mapping[str, int], vacated: Usage) -> bool:
        """Return whether each domain of a placement has room for its pods, without what is ``vacated``."""
        for values, count in placed.domains:
            leaf = self.leaves.get(leaf_id := ",".join(values))
            if leaf is None:
                return False
            left = self.left(leaf, {}, empty=False)
            add_amounts(left, vacated.get(leaf_id, {}))
            if _count_in(requests, left)[0] < count:
                return False
        return True

    def left(self, leaf: Leaf, assumed: Mapping[str, int], *, empty: bool) -> dict[str, int]:
        """Return what is free for workloads in a domain without what is ``assumed``; ``empty``: as if none stood there."""
        left = dict(leaf.free)
        add_amounts(left, assumed, -1)
        if not empty:
            add_amounts(left, leaf.used, -1)
        return left

    # -- the search

    def place(
        self, asked: Sequence[PlacementRequest], *, empty: bool = False, assumed: Usage | None = None
    ) -> dict[str, TopologyPlacement | str]:
        """Return a placement for each pod set, or why there is none; the search ends with the first that fails.

        ``empty``: as if no workload had a placement; ``assumed``: what else is taken, to which the placements are added
        """
        assumed = {} if assumed is None else assumed
        groups: dict[str, list[PlacementRequest]] = {}
        for number, one in enumerate(asked):
            groups.setdefault(str(number) if one.terms.group is None else one.terms.group, []).append(one)
        found: dict[str, TopologyPlacement | str] = {}
        for members in groups.values():
            workers, leader = members[0], members[1] if len(members) > 1 else None
            if leader is not None and leader.count > workers.count:
                workers, leader = leader, workers
            placed = _Search(self, workers, leader, assumed, empty=empty).place()
            for one in members:
                found[one.name] = placed if isinstance(placed, str) else placed[one.name]
            if isinstance(placed, str):
                return found
            for one in members:
                add_usage(assumed, placed[one.name], one.requests)
        return found

    def place_within(
        self, asked: PlacementRequest, assumed: Usage, within: tuple[str, ...]
    ) -> dict[str, TopologyPlacement] | str:  # fmt: skip
        """Return a placement below the domain with these values, or why there is none."""
        return _Search(self, asked, None, assumed, empty=False, within=within).place()

    def main_level(self, request: PlacementRequest) -> str | None:
        """Return the level that a request names, or the one that stands for none."""
        if request.terms.level is not None or not request.unconstrained:
            return request.terms.level
        return self.levels[0 if request.terms.layers else -1]

    def level_of(self, key: str) -> int | None:
        return self.levels.index(key) if key in self.levels else None

    def has_levels(self, asked: TopologyRequest | None) -> bool:
        """Return whether the topology has all levels that a request names."""
        if asked is None:
            return False
        return (asked.level or self.levels[0]) in self.levels and all(layer.topology in self.levels for layer in asked.layers)

    def level(self, number: int) -> list[Domain]:
        return list(self._levels[number].values())

    def reset(self) -> None:
        for level in self._levels:
            for one in level.values():
                one.pods = one.slices = one.pods_led = one.slices_led = one.leaders = 0

    def refusal(self, leaf: Leaf, spec: PodSpec, selector: NodeSelectorMatcher | None) -> str | None:
        """Return why a host cannot take pods of this kind; ``selector``: the nodes that their affinity requires."""
        taint = find_untolerated(leaf.taints, (*spec.tolerations, *self._tolerations), _SCHEDULING, numeric=True)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            return f'taint "{taint.key}{value}:{taint.effect}"'
        if any(leaf.labels.get(key) != value for key, value in spec.node_selector.items()):
            return "nodeSelector"
        return None if selector is None or selector.matches(leaf.labels, leaf.name) else "affinity"


def usage_of(placed: TopologyPlacement, requests: Mapping[str, int]) -> Usage:
    """Return what the pods of a placement use, by leaf; each is one of ``pods``."""
    found: Usage = {}
    for values, count in placed.domains:
        held = found.setdefault(",".join(values), {})
        add_amounts(held, requests, count)
        add_amounts(held, {"pods": count})
    return found


def add_usage(total: Usage, placed: TopologyPlacement, requests: Mapping[str, int], sign: int = 1) -> None:
    """Add what the pods of a placement use to a total by leaf, or with -1 take it off."""
    for leaf_id, usage in usage_of(placed, requests).items():
        add_amounts(total.setdefault(leaf_id, {}), usage, sign)


def _with_pod(one: PlacementRequest) -> dict[str, int]:
    return {**one.requests, "pods": one.requests.get("pods", 0) + 1}


def _count_in(requests: Mapping[str, int], capacity: Mapping[str, int]) -> tuple[int, str]:
    """Return how many pods fit, and the resource that limits them."""
    fits, limit = -1, ""
    for resource, amount in requests.items():
        count = _MOST if amount == 0 else max(0, min(capacity.get(resource, 0) // amount, _MOST))
        if fits < 0 or count < fits or (count == fits and resource < limit):
            fits, limit = count, resource
    return max(fits, 0), limit


def find_places(
    asked: Mapping[str, Sequence[PlacementRequest]], trees: Mapping[str, TopologyTree], *, empty: bool = False
) -> tuple[dict[str, TopologyPlacement], tuple[str, str, str] | None]:
    """Return a placement for each pod set, by flavor, or the pod set, the flavor and the reason of a failure."""
    assumed: Usage = {}
    found: dict[str, TopologyPlacement] = {}
    failed = None
    for flavor, requests in sorted(asked.items()):
        tree = trees[flavor]
        for name, placed in tree.place(requests, empty=empty, assumed=assumed if tree.of_hosts else None).items():
            if isinstance(placed, str):
                failed = failed or (name, flavor, placed)
            else:
                found[name] = placed
    return found, failed


class _Search:
    """One search for workers, and their leader if there is one."""

    def __init__(
        self, tree: TopologyTree, workers: PlacementRequest, leader: PlacementRequest | None, assumed: Usage, *, empty: bool,
        within: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._tree = tree
        self._asked = workers
        self._leader = leader
        self._leaders = int(leader is not None)
        self._assumed = assumed
        self._empty = empty
        self._within = within
        self._slice = workers.terms.layers[0].size if workers.terms.layers else 1
        self._slice_level = 0
        self._inner: dict[int, int] = {}
        self._least_free = workers.unconstrained
        self._nodes = 0
        self._excluded: dict[str, int] = {}

    def place(self) -> dict[str, TopologyPlacement] | str:
        """Return the placements, or why there are none."""
        tree, asked = self._tree, self._asked
        if self._slice <= 0:
            return "slice topology requested, but slice size not provided"
        key = tree.main_level(asked)
        if key is None:
            return "topology level not specified"
        level = tree.level_of(key)
        if level is None:
            return f"no requested topology level: {key}"
        slice_key = asked.terms.layers[0].topology if asked.terms.layers else tree.levels[-1]
        slice_level = tree.level_of(slice_key)
        if slice_level is None:
            return f"no requested topology level for slices: {slice_key}"
        self._slice_level = slice_level
        if level > slice_level:
            return f"podset slice topology {slice_key} is above the podset topology {key}"
        if fault := self._read_layers():
            return fault
        self._fill()
        found = self._find_level(level)
        if isinstance(found, str):
            return found
        return self._descend(*found)

    def _read_layers(self) -> str:
        size, level = self._slice, self._slice_level
        for layer in self._asked.terms.layers[1:]:
            inner = self._tree.level_of(layer.topology)
            if inner is None:
                return f"no requested topology level for additional slice layer: {layer.topology}"
            if inner <= level:
                above = self._tree.levels[level]
                return f"additional slice layer topology {layer.topology} must be at a lower level than {above}"
            if size % layer.size:
                return f"additional slice layer size {layer.size} must evenly divide parent layer size {size}"
            self._inner.update(dict.fromkeys(range(level + 1, inner + 1), layer.size))
            size, level = layer.size, inner
        return ""

    # -- how much fits

    def _fill(self) -> None:
        tree, asked = self._tree, self._asked
        tree.reset()
        wanted, led = _with_pod(asked), None if self._leader is None else _with_pod(self._leader)
        selector = None if (required := required_nodes(asked.spec)) is None else compile_node_selector(required)
        self._nodes = len(tree.leaves)
        for leaf_id, leaf in tree.leaves.items():
            if tree.of_hosts and (why := tree.refusal(leaf, asked.spec, selector)) is not None:
                self._exclude(why)
                continue
            domain = leaf.domain
            if domain.values[: len(self._within)] != self._within:
                self._exclude("topologyDomain")
                continue
            left = tree.left(leaf, self._assumed.get(leaf_id, {}), empty=self._empty)
            domain.pods, limit = _count_in(wanted, left)
            if not domain.pods and limit:
                self._exclude(f'resource "{limit}"')
            if led is not None and _count_in(led, left)[0] > 0:
                domain.leaders = 1
                add_amounts(left, led, -1)
            domain.pods_led = _count_in(wanted, left)[0]
        for root in tree.level(0):
            self._sum_up(root, 0)

    def _exclude(self, why: str) -> None:
        self._excluded[why] = self._excluded.get(why, 0) + 1

    def _sum_up(self, domain: Domain, level: int) -> None:
        if domain.children:
            size = self._inner.get(level + 1, 1)
            pods = slices = leaders = 0
            less_pods = less_slices = _MOST
            contributes = False
            for child in domain.children:
                self._sum_up(child, level + 1)
                fits, fits_led = child.pods // size * size, child.pods_led // size * size
                pods, slices = pods + fits, slices + child.slices
                if not self._leaders or child.leaders:
                    contributes = True
                    less_pods = min(fits - fits_led, less_pods)
                    less_slices = min(child.slices - child.slices_led, less_slices)
                leaders = max(leaders, child.leaders)
            domain.pods, domain.slices, domain.leaders = pods, slices, leaders
            domain.pods_led = pods - less_pods if contributes else 0
            domain.slices_led = slices - less_slices if contributes else 0
        if level == self._slice_level:
            domain.slices, domain.slices_led = domain.pods // self._slice, domain.pods_led // self._slice

    # -- the level at which it fits

    def _sorted(self, domains: Iterable[Domain], *, led: bool = False) -> list[Domain]:
        sign = 1 if self._least_free else -1
        if led:
            return sorted(domains, key=lambda one: (-one.leaders, sign * one.slices_led, one.pods_led, one.values))
        return sorted(domains, key=lambda one: (sign * one.slices, one.pods, one.values))

    def _best(self, domains: Sequence[Domain], needed: int, leaders: int) -> Domain:
        """Return the first domain with the least room that is enough; the first of all if none is."""
        room = _room_led if leaders > 0 else _room
        fitting = [one for one in domains if one.leaders >= leaders and room(one) >= needed]
        return min(fitting, key=room, default=domains[0])

    def _find_level(self, level: int) -> tuple[int, list[Domain]] | str:
        domains = self._tree.level(level)
        if not domains:
            return f"no topology domains at level: {self._tree.levels[level]}"
        ordered = self._sorted(domains, led=True)
        top, leaders, needed = ordered[0], self._leaders, self._asked.count // self._slice
        if self._least_free:
            for one in ordered:
                if one.leaders >= leaders and one.slices_led >= needed:
                    return level, [one]
            if self._asked.terms.required is not None:
                return self._no_fit(level, ordered[-1].pods, needed)
        if top.slices_led >= needed and top.leaders >= leaders:
            return level, [top if self._least_free else self._best(ordered, needed, leaders)]
        if self._asked.terms.required is not None:
            return self._no_fit(level, top.slices, needed)
        if level > 0 and not self._asked.unconstrained:
            return self._find_level(level - 1)
        return self._spread(level, ordered, needed)

    def _spread(self, level: int, ordered: list[Domain], needed: int) -> tuple[int, list[Domain]] | str:
        """Use several domains: that of the leader first, then those of workers."""
        ordered = self._leader_first(ordered, needed, self._leaders)
        left, found = needed, list[Domain]()
        if self._leaders:
            if not ordered[0].leaders:
                return self._no_fit(level, 0, needed)
            whole = not self._least_free and ordered[0].slices_led >= left
            found.append(self._best(ordered, left, 1) if whole else ordered[0])
            left -= found[0].slices_led
        rest = self._sorted(ordered[self._leaders :])
        for at, next_one in enumerate(rest):
            if left <= 0:
                break
            last = not self._least_free and next_one.slices >= left
            one = self._best(rest[at:], left, 0) if last else next_one
            found.append(one)
            left -= one.slices
        return self._no_fit(level, needed - left, needed) if left > 0 else (level, found)

    # -- down to the leaves

    def _descend(self, level: int, domains: list[Domain]) -> dict[str, TopologyPlacement]:
        tree, count = self._tree, self._asked.count
        domains = self._divide(domains, count, self._leaders, self._slice)
        last = len(tree.levels) - 1
        while level < min(last, self._slice_level):
            below = self._sorted(child for one in domains for child in one.children)
            domains = self._divide(below, count, self._leaders, self._slice)
            level += 1
        while level < last:
            size = self._inner.get(level + 1, 1) if level >= self._slice_level else self._slice
            chosen: list[Domain] = []
            for one in domains:
                below = self._sorted(one.children)
                for child in below:
                    child.slices, child.slices_led = child.pods // size, child.pods_led // size
                chosen += self._divide(below, one.pods, one.leaders, size)
            domains = chosen
            level += 1
        placed = {} if self._leader is None else {self._leader.name: self._placed([(one, one.leaders) for one in domains])}
        return {**placed, self._asked.name: self._placed([(one, one.pods) for one in domains])}

    def _placed(self, counts: list[tuple[Domain, int]]) -> TopologyPlacement:
        first = len(self._tree.levels) - 1 if self._tree.of_hosts else 0
        ordered = sorted(((one.values, count) for one, count in counts if count), key=lambda pair: pair[0])
        return TopologyPlacement(self._tree.levels[first:], tuple((values[first:], count) for values, count in ordered))

    def _leader_first(self, domains: list[Domain], needed: int, leaders: int) -> list[Domain]:
        """Put a domain in front that takes the leader and leaves enough room for the workers."""
        if not leaders or len(domains) < 2:
            return domains
        room = sum(one.slices for one in domains)
        for at, one in enumerate(domains):
            if one.leaders >= leaders and room - (one.slices - one.slices_led) >= needed:
                return [one, *domains[:at], *domains[at + 1 :]]
        return domains

    def _divide(self, domains: list[Domain], count: int, leaders: int, size: int) -> list[Domain]:
        """Give each domain its part of the pods, in slices of a size, and return those that are used."""
        left, used = count // size, list[Domain]()
        domains = self._leader_first(domains, left, leaders)
        for at, next_one in enumerate(domains):
            one, room_of = next_one, _room_led if leaders > 0 else _room
            if not self._least_free and room_of(one) >= left and one.leaders >= leaders:
                one = self._best(domains[at:], left, leaders)
            used.append(one)
            done = room_of(one) >= left and one.leaders >= leaders
            one.slices = min(room_of(one), left)
            if not done and leaders > 0:
                one.slices_led = one.slices
            one.pods, one.leaders = one.slices * size, min(one.leaders, leaders)
            if done:
                return used
            leaders, left = leaders - one.leaders, left - one.slices
        return []

    # -- texts

    def _no_fit(self, level: int, fits: int, needed: int) -> str:
        if len(self._inner):
            text = f'topology "{self._tree.name}" doesn\'t allow to fit'
            is_host = self._tree.of_hosts and level + 1 == len(self._tree.levels)
            best = min(
                self._tree.level(level), key=lambda one: (-one.slices, one.values[-1] if is_host else ",".join(one.values))
            )
            for layer in self._asked.terms.layers:
                target = self._tree.level_of(layer.topology)
                if target is not None:
                    there = _slices_below(best, level, target, layer.size)
                    text += f"; {there}/{self._asked.count // layer.size} slice(s) fit on level {layer.topology}"
        else:
            unit = "pod" if self._slice == 1 else "slice"
            allows = f"allows to fit only {fits} out of {needed}" if fits else f"doesn't allow to fit any of {needed}"
            text = f'topology "{self._tree.name}" {allows} {unit}(s)'
        if self._excluded:
            whys = ", ".join(sorted(f"{why}: {number}" for why, number in self._excluded.items()))
            text += f". Total nodes: {self._nodes}; excluded: {whys}"
        return text


def _slices_below(domain: Domain, level: int, target: int, size: int) -> int:
    if level == target:
        return domain.pods // size
    return sum(_slices_below(child, level + 1, target, size) for child in domain.children)
