"""Topology as Karpenter knows it: spread, affinity and anti-affinity between pods as requirements on labels of nodes.

A group counts pods by the value of a label. Pods own the groups of their constraints; groups of anti-affinity also hold the
other way round, for the pods that they select. Where upstream takes one of equal domains at random, this takes them in turn, by
name: the first in the first round, the next in the next one.

Source  karpenter, pkg/controllers/provisioning/scheduling/topology.go, topologygroup.go, topologynodefilter.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from moorage.api.core import Pod, Taint, Toleration, TopologySpreadConstraint
from moorage.api.node_selectors import find_untolerated, required_nodes
from moorage.api.selectors import Selector
from moorage.simulator.autoscalers import key_requirements as keys
from moorage.simulator.autoscalers.instance_types import Remembered
from moorage.simulator.autoscalers.karpenter.scene import Bools, ExistingNode, Ints
from moorage.simulator.owners import is_active
from moorage.state.affinity_terms import AffinityTerm
from moorage.state.pod_info import PodInfo

_SPREAD: Final = "topology spread"
_AFFINITY: Final = "pod affinity"
_ANTI: Final = "pod anti-affinity"
_UNLIMITED: Final = (1 << 31) - 1
#: How many domains an error lists.
_LISTED: Final = 25
#: Label → value → the sets of taints with which pools offer it.
Domains = Mapping[str, Mapping[str, Sequence[tuple[Taint, ...]]]]


class NoPlaceError(Exception):
    """A pod does not fit. ``told`` returns Karpenter's text; most are never shown."""

    def __init__(self, told: Callable[[], str]) -> None:
        super().__init__()
        self.told = told


@dataclass(frozen=True)
class _NodeFilter:
    """Which nodes count for a spread constraint. Without requirements and policies: all."""

    terms: tuple[frozenset[keys.KeyRequirement], ...] = ()
    taints: str = ""
    affinity: str = ""
    tolerations: tuple[Toleration, ...] = ()

    def matches(self, taints: tuple[Taint, ...], held: keys.Requirements) -> bool:
        terms = self.terms if self.affinity == "Honor" else ()
        if terms and not any(keys.is_compatible(held, {asked.key: asked for asked in term}) for term in terms):
            return False
        return self.taints != "Honor" or find_untolerated(taints, self.tolerations) is None


def _filter_of(pod: Pod, constraint: TopologySpreadConstraint) -> _NodeFilter:
    terms, required = [keys.of_labels(pod.spec.node_selector)], required_nodes(pod.spec)
    if required is not None:
        terms = [keys.merged(terms[0], keys.of_expressions(term.match_expressions)) for term in required.node_selector_terms]
    return _NodeFilter(
        tuple(frozenset(term.values()) for term in terms), constraint.node_taints_policy or "Ignore",
        constraint.node_affinity_policy or "Honor", pod.spec.tolerations,
    )  # fmt: skip


class _Group:
    """The pods that a selector counts, by the value of a label."""

    def __init__(
        self, kind: str, key: str, namespaces: frozenset[str], selector: Selector, nodes: _NodeFilter,
        max_skew: int = _UNLIMITED, min_domains: int | None = None,
    ) -> None:  # fmt: skip
        self.kind, self.key, self.namespaces, self.selector = kind, key, namespaces, selector
        self.nodes, self.max_skew, self.min_domains = nodes, max_skew, min_domains
        self.counts: dict[str, int] = {}
        self.filled = 0
        #: Which of equal domains is taken, by name; and how many there were at most.
        self.turn, self.equal = 0, 1

    @cached_property
    def identity(self) -> Hashable:
        return self.kind, self.max_skew, self.counted

    @cached_property
    def counted(self) -> Hashable:
        """What decides which pods on which nodes count."""
        return self.key, self.namespaces, self.selector, self.nodes

    def selects(self, pod: Pod) -> bool:
        return pod.namespace in self.namespaces and self.selector.matches(pod.metadata.labels)

    def register(self, domain: str) -> None:
        self.counts.setdefault(domain, 0)

    def record(self, domains: Iterable[str]) -> None:
        for domain in domains:
            self.add(domain, 1)

    def add(self, domain: str, pods: int) -> None:
        held = self.counts.get(domain, 0)
        self.filled += not held
        self.counts[domain] = held + pods

    def allowed(self, pod: Pod, of_pod: keys.KeyRequirement, of_node: keys.KeyRequirement) -> frozenset[str]:
        """Return the domains where the pod may go."""
        if self.kind == _SPREAD:
            own, host = self.selects(pod), self._lone_host(of_node)
            if host is not None:  # a new host is always possible, so the fewest pods on a host are none
                return frozenset((host,) if self.counts.get(host, 0) + own <= self.max_skew else ())
            most = self.max_skew + self._fewest(of_pod)
            found = [(self.counts[domain] + own, domain) for domain in self._among(of_node)]
            least = min((count for count, _ in found if count <= most), default=None)
            equal = sorted(domain for count, domain in found if count == least)
            self.equal = max(self.equal, len(equal))
            return frozenset((equal[self.turn % len(equal)],) if equal else ())
        return self._affine(pod, of_pod, of_node) if self.kind == _AFFINITY else self._distant(of_pod, of_node)

    def _lone_host(self, of_node: keys.KeyRequirement) -> str | None:
        if self.key == keys.HOSTNAME and len(of_node.values) == 1:
            return next(iter(of_node.values))
        return None

    def _among(self, of_node: keys.KeyRequirement) -> Iterator[str]:
        if not of_node.complement:
            return (domain for domain in of_node.values if domain in self.counts)
        return (domain for domain in self.counts if of_node.has(domain))

    def _fewest(self, of_pod: keys.KeyRequirement) -> int:
        if self.key == keys.HOSTNAME:
            return 0
        held = [count for domain, count in self.counts.items() if of_pod.has(domain)]
        if self.min_domains is not None and len(held) < self.min_domains:
            return 0
        return min(held, default=_UNLIMITED)

    def _affine(self, pod: Pod, of_pod: keys.KeyRequirement, of_node: keys.KeyRequirement) -> frozenset[str]:
        host = self._lone_host(of_node)
        if host is not None:
            near = of_pod.has(host) and (self.counts.get(host, 0) > 0 or self._begins(pod, of_pod))
            return frozenset((host,) if near else ())
        held = frozenset(domain for domain in self._among(of_node) if self.counts[domain] and of_pod.has(domain))
        if held or not self._begins(pod, of_pod):
            return held
        both = of_pod.intersection(of_node)
        open_ = sorted(domain for domain in self.counts if both.has(domain))
        own = sorted(domain for domain in self.counts if of_pod.has(domain))
        if len(open_) > 1:
            self.equal = max(self.equal, len(open_) * len(own))
        # Upstream adds a domain of the pod's beside that of the node, each by chance: the node's requirements sort it out.
        if not open_:
            return frozenset(own[:1])
        return frozenset((open_[self.turn % len(open_)], own[self.turn // len(open_) % len(own)]))

    def _begins(self, pod: Pod, of_pod: keys.KeyRequirement) -> bool:
        """Return True if the pod is the first that the group selects, where it may go."""
        if not self.selects(pod):
            return False
        return not self.filled or not any(count and of_pod.has(domain) for domain, count in self.counts.items())

    def _distant(self, of_pod: keys.KeyRequirement, of_node: keys.KeyRequirement) -> frozenset[str]:
        host = self._lone_host(of_node)
        if host is not None:
            return frozenset(() if self.counts.get(host, 0) else (host,))
        return frozenset(domain for domain in self._among(of_node) if not self.counts[domain] and of_pod.has(domain))


class _Tally:
    """What a group counts on the nodes of a census: the domain of each node and pod, and how many each domain has."""

    def __init__(self, group: _Group, nodes: Iterable[ExistingNode]) -> None:
        self.node_domain: dict[str, str] = {}
        self.pod_domain: dict[str, str] = {}
        for held in nodes:
            domain, uids = held.remembered(group.counted, None, partial(self._of, group, held))
            if domain and group.key in held.labels:
                self.node_domain[held.name] = domain
            self.pod_domain |= dict.fromkeys(uids, domain)
        self.nodes, self.pods = Counter(self.node_domain.values()), Counter(self.pod_domain.values())

    @staticmethod
    def _of(group: _Group, held: ExistingNode) -> tuple[str, tuple[str, ...]]:
        """Return the domain of a node, and the pods on it that count; they do not change while the node is the same."""
        domain = held.labels.get(group.key) or (held.name if group.key == keys.HOSTNAME else None)
        known = keys.of_labels(held.labels) if group.nodes.terms else {}
        if domain is None or not group.nodes.matches(held.node.spec.taints, known):
            return "", ()
        return domain, tuple(pod.metadata.uid for pod in held.pods if group.selects(pod) and is_active(pod))


class Census:
    """The pods and nodes of a cluster, counted once for all simulations.

    ``domains``  what pools and types offer; ``distant``: the pods with anti-affinity, with their nodes
    """

    def __init__(self, domains: Domains, nodes: Sequence[ExistingNode], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.domains, self.nodes, self.namespaces = domains, nodes, namespaces
        self.distant = [(pod, one) for one in nodes for pod in one.remembered("distant", None, partial(_distant, one))]
        self._remembered = Remembered()

    def tally(self, group: _Group) -> _Tally:
        return self._remembered.of(group.counted, partial(_Tally, group, self.nodes))

    def column(self, key: str) -> tuple[list[str], Ints]:
        """Return the values of a label, and which of them each node has; -1 for none."""

        def find() -> tuple[list[str], Ints]:
            held = [one.host if key == keys.HOSTNAME else one.labels.get(key, "") for one in self.nodes]
            code = {value: at for at, value in enumerate(dict.fromkeys(filter(None, held)))}
            return list(code), np.array([code.get(value, -1) for value in held], dtype=np.int64)

        return self._remembered.of(key, find)


def _distant(held: ExistingNode) -> list[Pod]:
    return [pod for pod in held.pods if is_active(pod) and pod.spec.affinity and PodInfo(pod).required_anti_affinity]


class Topology:
    """All groups of one simulation.

    ``excluded``  UIDs of the pods that are to be placed: they do not count where they are
    ``without``   names of the nodes that do not exist in it
    ``turn``      which of several equal domains is taken, by name
    """

    def __init__(self, census: Census, excluded: Collection[str], without: Collection[str], turn: int = 0) -> None:
        self._census, self._excluded, self._without, self._turn = census, excluded, without, turn
        self._made: list[str] = []
        self._groups: dict[Hashable, _Group] = {}
        self._inverse: dict[Hashable, _Group] = {}
        #: By UID: the groups of a pod's constraints, those of its anti-affinity, and those of others' that select it.
        self._owned: dict[str, list[_Group]] = {}
        self._repels: dict[str, list[_Group]] = {}
        self._repelled: dict[str, list[_Group]] = {}
        for pod, node in census.distant:
            if pod.metadata.uid not in excluded:
                self._invert(pod, node.labels)

    def own(self, pod: Pod) -> None:
        """Make a pod the owner of the groups of its constraints, and of no others: call this again when it is relaxed."""
        owned = self._owned[pod.metadata.uid] = []
        if not pod.spec.topology_spread_constraints and pod.spec.affinity is None:
            return
        self._invert(pod, {})
        for group in self._of(pod):
            known = self._groups.get(group.identity)
            if known is None:
                group.turn = self._turn
                self._open(group, pod)
                tally = self._census.tally(group)
                gone = Counter(tally.node_domain[name] for name in self._without if name in tally.node_domain)
                for domain, nodes in tally.nodes.items():
                    if nodes > gone[domain]:
                        group.register(domain)
                leaving = Counter(tally.pod_domain[uid] for uid in self._excluded if uid in tally.pod_domain)
                for domain, pods in tally.pods.items():
                    if pods > leaving[domain]:
                        group.add(domain, pods - leaving[domain])
                known = self._groups[group.identity] = group
            if known not in owned:
                owned.append(known)

    @property
    def turns(self) -> int:
        """Among how many equal domains chance decided at most."""
        return max((group.equal for group in self._groups.values()), default=1)

    def host(self, name: str) -> None:
        """Add a host name that a claim got."""
        self._made.append(name)
        for group in (*self._groups.values(), *self._inverse.values()):
            if group.key == keys.HOSTNAME:
                group.register(name)

    def _matching(self, pod: Pod) -> list[_Group]:
        uid = pod.metadata.uid
        if uid not in self._repelled:
            self._repelled[uid] = [group for group in self._inverse.values() if group.selects(pod)]
        return [*self._owned.get(uid, ()), *self._repelled[uid]]

    def rows(self, pod: Pod, strict: keys.Requirements) -> Bools | None:
        """Return the nodes that no group forbids by their domain alone; None: all."""
        found: Bools | None = None
        for group in self._matching(pod):
            values, column = self._census.column(group.key)
            of_pod = strict.get(group.key) or keys.exists(group.key)
            admits = [bool(group.allowed(pod, of_pod, keys.KeyRequirement(group.key, frozenset((value,))))) for value in values]
            mask = np.array([*admits, True], dtype=np.bool_)[column]
            found = mask if found is None else found & mask
        return found

    def narrow(self, pod: Pod, strict: keys.Requirements, held: keys.Requirements) -> keys.Requirements:
        """Return a node's requirements narrowed to where the pod may go: ``held`` itself if no group says anything.

        Raises  NoPlaceError
        """
        matching = self._matching(pod)
        if not matching:
            return held
        found = dict(held)
        for group in matching:
            of_pod, of_node = strict.get(group.key) or keys.exists(group.key), held.get(group.key) or keys.exists(group.key)
            allowed = group.allowed(pod, of_pod, of_node)
            if not allowed:
                raise NoPlaceError(partial(_told, group, of_pod, of_node))
            keys.add_to(found, (keys.KeyRequirement(group.key, allowed),))
        return found

    def record(self, pod: Pod, taints: tuple[Taint, ...], held: keys.Requirements) -> None:
        """Count a pod that was placed on a node with these requirements."""
        for group in self._groups.values():
            asked = held.get(group.key)
            if asked is None or (group.kind != _ANTI and asked.only is None):
                continue  # for spread and affinity, only a domain that is certain counts
            if group.selects(pod) and group.nodes.matches(taints, held):
                group.record(asked.values)
        for group in self._repels.get(pod.metadata.uid, ()):
            if group.key in held:
                group.record(held[group.key].values)

    def _open(self, group: _Group, pod: Pod) -> None:
        """Register the domains that pools offer, and host names."""
        for domain, taints in self._census.domains.get(group.key, {}).items():
            if group.nodes.taints == "Ignore" or any(find_untolerated(one, pod.spec.tolerations) is None for one in taints):
                group.register(domain)
        if group.key == keys.HOSTNAME:
            for one in self._census.nodes:
                if one.name not in self._without:
                    group.register(one.host)
            for name in self._made:
                group.register(name)

    def _invert(self, pod: Pod, labels: Mapping[str, str]) -> None:
        for term in PodInfo(pod).required_anti_affinity:
            group = self._affinity(_ANTI, term)
            known = self._inverse.get(group.identity)
            if known is None:
                self._open(group, pod)
                known = self._inverse[group.identity] = group
                self._repelled.clear()
            if group.key in labels:
                known.record((labels[group.key],))
            owned = self._repels.setdefault(pod.metadata.uid, [])
            if known not in owned:
                owned.append(known)

    def _of(self, pod: Pod) -> Iterator[_Group]:
        info = PodInfo(pod)
        for asked, spread in zip(pod.spec.topology_spread_constraints, info.spread_constraints, strict=True):
            own = frozenset((pod.namespace,))
            nodes = _filter_of(pod, asked)
            yield _Group(_SPREAD, asked.topology_key, own, spread.selector, nodes, asked.max_skew, asked.min_domains)
        for term in (*info.required_affinity, *(held.term for held in info.preferred_affinity)):
            yield self._affinity(_AFFINITY, term)
        for term in (*info.required_anti_affinity, *(held.term for held in info.preferred_anti_affinity)):
            yield self._affinity(_ANTI, term)

    def _affinity(self, kind: str, term: AffinityTerm) -> _Group:
        named = term.namespaces
        if term.namespace_selector is not None:
            matches = term.namespace_selector.matches
            named |= {name for name, labels in self._census.namespaces.items() if matches(labels)}
        return _Group(kind, term.topology_key, named, term.selector, _NodeFilter())


def _told(group: _Group, of_pod: keys.KeyRequirement, of_node: keys.KeyRequirement) -> str:
    shown = sorted(group.counts.items())
    counts = ", ".join(f"{domain}: {count}" for domain, count in shown[:_LISTED])
    if len(shown) > _LISTED:
        counts += f" and {len(shown) - _LISTED} other(s)"
    return (
        f"unsatisfiable topology constraint for {group.kind}, key={group.key} (counts = {counts}, podDomains = {of_pod}, "
        f"nodeDomains = {of_node}"
    )
