"""Pod classes: the cached path of the scheduling cycle.

Pods with equal signatures get the same answers from every plugin that reads only the pod and a node. ``ClassCache`` caches the
verdict and scores of every row for such a class. When a pod is placed, one row changes: the next pod of the class runs the
plugins on that row only, then takes the best row. Plugins that read more (other pods' topology, volumes) run for every pod, on
columns, and their answers are combined with the cached ones.

Nothing is approximated. ``Cycle`` decides the same with and without this module; a property test checks it.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import MappingProxyType

from moorage.cycle.class_answers import Feasible, Quick, SplitSteps
from moorage.cycle.domain_verdicts import ByDomain
from moorage.cycle.first_look import Look, first_look
from moorage.cycle.narrowed_nodes import NarrowLook
from moorage.cycle.node_verdicts import NodeParts, Steps
from moorage.cycle.pinned_pods import PinnedPods
from moorage.cycle.pod_class import CachedClass, looks_left
from moorage.cycle.pod_signatures import Signed, Signer
from moorage.cycle.row_judge import RowPlans
from moorage.cycle.shape_routes import ShapeRoute
from moorage.cycle.ties import ring_position
from moorage.cycle.what_if import Nominated
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["ClassCache"]

#: Rows cached in all classes together, at about 70 bytes each.
_ROWS_KEPT = 4_000_000
#: The most classes that are kept while nodes are added or removed in a transaction.
_DERIVED_KEPT = 64
#: The most routes that are cached; all are dropped when there are more.
_ROUTES_KEPT = 4096
_NONE: Nominated = MappingProxyType({})
#: The most keys that are kept of classes that were seen but not cached.
_PASSED_BY_REMEMBERED = 4096
#: The most keys that are kept of classes that had one look.
_LOOKED_REMEMBERED = 4096
_POINTS = ("preFilter", "filter", "preScore", "score")


class ClassCache:
    """The cached classes of one profile. The least recently used one is dropped first."""

    def __init__(self, profile: Profile, capacity: int = 1024) -> None:
        self._profile = profile
        self._capacity = capacity
        self._classes: dict[Hashable, CachedClass] = {}
        #: The key of the class of the last decision, if it is cached.
        self._decided: Hashable | None = None
        #: Classes for the rows after an open transaction added or removed nodes, with those that they are derived from.
        self._derived: dict[Hashable, tuple[CachedClass, CachedClass]] = {}
        self._derived_for = -1
        #: Keys of classes that were seen but not cached.
        self._passed_by: set[Hashable] = set()
        #: Keys of classes that had one look and are not cached, with the position in the change log then.
        self._looked: dict[Hashable, int] = {}
        steps = {step.name: step for point in _POINTS for step in profile.at(point)}
        scopes = {name: _scope_of(step) for name, step in steps.items()}
        always_asked = self._always_asked = frozenset(name for name, scope in scopes.items() if scope > Scope.NODE_PODS)
        # A plugin that runs node by node and for every pod makes the cached path no faster than the full path.
        self._pays = not any(step.one_by_one and name in always_asked for name, step in steps.items())
        self._parts = NodeParts(profile, scopes)
        self._on_rows = frozenset(name for name, scope in scopes.items() if Scope.NODE < scope <= Scope.NODE_PODS)
        self._splits: dict[frozenset[str], SplitSteps] = {}
        self._signer = Signer(steps.values(), always_asked, self._parts.names)
        self._by_domain = ByDomain(profile)
        self._narrow = NarrowLook(profile)
        self._routes: dict[bytes, ShapeRoute[CachedClass]] = {}
        #: The routes by ``id()`` of the spec and labels of the first pod of a shape, which the route keeps in memory.
        self._by_parts: dict[tuple[int, int], ShapeRoute[CachedClass]] = {}
        #: The class of the last decision by a route, if it is still the last entry of ``_classes``; otherwise None.
        self._used_last: CachedClass | None = None
        self._pinned = PinnedPods(profile, self._route_without_node, self._follow)

    def decide_known(self, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated = _NONE) -> Quick | None:
        """Decide like ``decide``. A pod of a shape that was decided before is not signed again."""
        if nominated and pod.spec.affinity is not None and self._narrow.concerns(pod):
            return None
        if pod.spec.affinity is not None and self._pays:
            pinned = self._pinned.decide(pod, snapshot)
            if pinned is not None:
                return Quick(pinned[0], 1, pinned[1], 1)
        if pod.spec.affinity is not None and self._narrow.concerns(pod):
            return self._decide_narrow(pod, snapshot) if self._pays else None
        route = self._by_parts.get(_parts_of(pod))
        if route is None or not route.suits(pod):
            shape = pod.shape()
            route = self._routes.get(shape)
            if route is None:
                return self._decide_first(pod, shape, snapshot, seed, nominated)
        known = route.pod_class
        if self._classes.get(route.key) is not known or not route.holds(snapshot):
            return self._decide_first(pod, pod.shape(), snapshot, seed, nominated)
        route.share(pod)
        if not known.refresh(pod, snapshot):
            return self._decide_first(pod, pod.shape(), snapshot, seed, nominated)
        if self._used_last is not known:
            self._used_last = self._classes[route.key] = self._classes.pop(route.key)
        return known.decide(pod, snapshot, nominated, seed)

    def route_of(self, pod: PodInfo, snapshot: Snapshot) -> ShapeRoute[CachedClass] | None:
        """Return the route by which ``decide_known`` just decided on a pod; None if it used none."""
        route = self._by_parts.get(_parts_of(pod))
        return route if route is not None and route.suits(pod) and self._leads(route, snapshot) else None

    def feasible(self, pod: PodInfo, snapshot: Snapshot) -> Feasible | None:
        """Return the rows that no Filter plugin refuses, nominated pods ignored; None if the pod has no class."""
        if pod.spec.affinity is not None and self._narrow.concerns(pod):
            return None
        shape = pod.shape()
        route = self._routes.get(shape)
        if route is not None and self._leads(route, snapshot):
            route.share(pod)
            if route.pod_class.refresh(pod, snapshot):
                return route.pod_class.feasible(pod, snapshot)
        if not self._pays:
            return None
        known = self._find(pod, snapshot, shape)
        self._keep_route(shape, snapshot)
        return None if known is None else known.feasible(pod, snapshot)

    def _leads(self, route: ShapeRoute[CachedClass], snapshot: Snapshot) -> bool:
        """Return whether a route still leads to a class in use."""
        return self._classes.get(route.key) is route.pod_class and route.holds(snapshot)

    def _follow(self, route: ShapeRoute[CachedClass], snapshot: Snapshot) -> bool:
        """Return the same as ``_leads``, and mark the class as the last one used."""
        leads = self._leads(route, snapshot)
        if leads and self._used_last is not route.pod_class:
            self._used_last = self._classes[route.key] = self._classes.pop(route.key)
        return leads

    def _route_without_node(self, pod: PodInfo, snapshot: Snapshot) -> ShapeRoute[CachedClass] | None:
        """Return the route to a pod's class, which is computed if it is not cached; None if there can be no route."""
        shape = pod.shape()
        route = self._routes.get(shape)
        if route is not None and self._leads(route, snapshot) and route.pod_class.follows(pod, snapshot):
            return route
        self._find(pod, snapshot, shape)
        route = self._keep_route(shape, snapshot)
        return route if route is not None and route.pod_class.follows(pod, snapshot) else None

    def _decide_first(
        self, pod: PodInfo, shape: bytes, snapshot: Snapshot, seed: int, nominated: Nominated = _NONE
    ) -> Quick | None:
        """Decide, and cache the route from the pod's shape to its class."""
        quick = self.decide(pod, snapshot, nominated, seed, shape)
        self._keep_route(shape, snapshot)
        return quick

    def _keep_route(self, shape: bytes, snapshot: Snapshot) -> ShapeRoute[CachedClass] | None:
        """Cache and return the route from a shape to the class that was just found; None if there can be no route."""
        known = self._signer.known(shape)
        if self._decided is None or known is None or self._signer.signs_each:
            return None
        if len(self._routes) >= _ROUTES_KEPT:
            self._routes.clear()
            self._by_parts.clear()
        route = self._routes[shape] = ShapeRoute(known, self._decided, self._classes[self._decided], snapshot)
        self._by_parts[_parts_of(known.first)] = route
        return route

    def decide(
        self, pod: PodInfo, snapshot: Snapshot, nominated: Nominated, seed: int, shape: bytes | None = None
    ) -> Quick | None:
        """Return the decision; None if it takes the full path: nothing fits, or the cached path cannot decide."""
        self._decided = None
        if not self._pays:
            return None
        if self._narrow.concerns(pod):
            return None if nominated else self._decide_narrow(pod, snapshot)
        try:
            signed = self._signer.sign(pod, snapshot, shape)
        except TypeError:  # a signature that cannot be hashed
            return None
        if signed.key not in self._classes and signed.key not in self._looked and not nominated:
            looked = self._look(signed, pod, snapshot)
            if looked is not None:
                look, found = looked
                return Quick(look.best(snapshot, ring_position(pod.uid, seed)), look.feasible, found) if look.feasible else None
        return self._class_of(signed, pod, snapshot).decide(pod, snapshot, nominated, seed)

    def _look(self, signed: Signed, pod: PodInfo, snapshot: Snapshot) -> tuple[Look, PreFiltered] | None:
        """Judge the rows for a pod that may be the only one of its class; None if it should have a class."""
        split = self._split(signed.asked)
        if not split.asks_none:
            return None
        part = self._parts.of(signed.on_nodes, signed.asked, pod, snapshot)
        looked = first_look(split.on_rows, split.idle, part, pod, snapshot)
        if looked is not None:
            if len(self._looked) >= _LOOKED_REMEMBERED:
                self._looked.clear()
            self._looked[signed.key] = snapshot.table.changes.position
        return looked

    def _find(self, pod: PodInfo, snapshot: Snapshot, shape: bytes | None = None) -> CachedClass | None:
        """Return the pod's class, up to date; None if it has none. Sets ``_decided`` to its key if the class is cached."""
        self._decided = None
        try:
            signed = self._signer.sign(pod, snapshot, shape)
        except TypeError:  # a signature that cannot be hashed
            return None
        return self._class_of(signed, pod, snapshot)

    def _class_of(self, signed: Signed, pod: PodInfo, snapshot: Snapshot) -> CachedClass:
        """Do the same as ``_find`` for a pod that is signed."""
        key, asked, on_nodes = signed
        known = self._classes.pop(key, None)
        self._used_last = None
        if known is not None and known.arrangement != snapshot.table.changes.arrangement:
            derived = self._derive(key, known, pod, snapshot)
            if derived is not None and snapshot.table.changes.is_rearranged:
                self._classes[key] = known
                return derived
            known = derived or known
        if known is None or not known.refresh(pod, snapshot):
            part = self._parts.of(on_nodes, asked, pod, snapshot)
            looked = self._looked.pop(key, None)
            looks = looks_left(None if looked is None else snapshot.table.changes.behind(looked))
            known = CachedClass(self._profile, self._split(asked), part, self._by_domain, pod, snapshot, known, looks)
            if not self._make_room(key, max(1, min(self._capacity, _ROWS_KEPT // len(snapshot.table)))):
                return known
        self._classes[key] = known
        self._decided = key
        return known

    def _derive(self, key: Hashable, known: CachedClass, pod: PodInfo, snapshot: Snapshot) -> CachedClass | None:
        """Return a class for the rows after an open transaction added or removed nodes; None if it must be computed again."""
        arrangement = snapshot.table.changes.arrangement
        if self._derived_for != arrangement:
            self._derived.clear()
            self._derived_for = arrangement
        made = self._derived.pop(key, None)
        if made is None or made[0] is not known or not made[1].refresh(pod, snapshot):
            derived = known.derived(pod, snapshot)
            if derived is None:
                return None
            made = known, derived
        while len(self._derived) >= _DERIVED_KEPT:
            del self._derived[next(iter(self._derived))]
        self._derived[key] = made
        return made[1]

    def _decide_narrow(self, pod: PodInfo, snapshot: Snapshot) -> Quick | None:
        few = self._narrow.decide(pod, snapshot)
        return None if few is None else Quick(few.row, 1, few.found, few.among)

    def _split(self, asked: frozenset[str]) -> SplitSteps:
        found = self._splits.get(asked)
        if found is None:
            idle = frozenset(step.name for step in self._profile.at("preFilter") if step.name in self._always_asked - asked)
            on_rows = RowPlans(Steps(self._profile, self._on_rows - asked), self._profile.weights)
            steps = Steps(self._profile, asked)
            found = self._splits[asked] = SplitSteps(steps, on_rows, idle, not steps and not steps.pre_filter)
        return found

    def _make_room(self, key: Hashable, capacity: int) -> bool:
        """Drop old classes until one more fits. Return False if the new one should not be cached.

        If all pods differ, caching classes that no later pod uses only costs memory. So while the class to drop was never
        used again, a new class is cached only when it is seen for the second time.
        """
        while len(self._classes) >= capacity:
            oldest = next(iter(self._classes))
            if not self._classes[oldest].asked_again and key not in self._passed_by:
                if len(self._passed_by) >= _PASSED_BY_REMEMBERED:
                    self._passed_by.clear()
                self._passed_by.add(key)
                return False
            del self._classes[oldest]
        self._passed_by.discard(key)
        return True


def _parts_of(pod: PodInfo) -> tuple[int, int]:
    labels = pod.labels
    return id(pod.spec), id(labels) if labels else 0


def _scope_of(step: Step) -> Scope:
    """Return what a plugin's cached answers depend on; CLUSTER if it does not sign pods, or normalizes over other nodes."""
    return Scope.CLUSTER if step.reuse.signature is None or step.over_nodes else step.reuse.scope
