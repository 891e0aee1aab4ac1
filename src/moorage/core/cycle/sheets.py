"""The cached path of the scheduling cycle: find the sheet of a pod's keys, or make it, and decide with it.

A pod whose keys are new costs one look at all rows by a handful of array operations, and leaves nothing behind but the columns
that read only nodes. If the keys come again before many rows have changed, their sheet is kept.

Nothing is approximated. ``Cycle`` decides the same with and without this module; a property test checks it.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import MappingProxyType
from typing import Final

from moorage.core.cycle.column import Columns, KeyColumn, has_many_rows
from moorage.core.cycle.decision import Feasible, Quick
from moorage.core.cycle.domain_verdicts import ByDomain
from moorage.core.cycle.judges import Steps
from moorage.core.cycle.one_look import OneLook
from moorage.core.cycle.pinned_pods import PinnedPods
from moorage.core.cycle.pod_signatures import GROUPS, KnownShape, Recent, Signed, Signer
from moorage.core.cycle.sheet import ShapeRoute, Sheet, Split
from moorage.core.preemption.what_if import Nominated
from moorage.errors import PluginError
from moorage.framework.profile import Profile
from moorage.framework.reuse import Scope
from moorage.state.view import PodInfo, Snapshot

#: Rows kept in all sheets together, at about 50 bytes each.
_ROWS_KEPT: Final = 4_000_000
#: The most shapes that are found by their parts; all are forgotten when there are more.
_PARTS_KEPT: Final = 4096
_NONE: Nominated = MappingProxyType({})
#: The most keys that are remembered of pods without a sheet.
_LOOKED_REMEMBERED: Final = 1024
#: A sheet pays if at most so many rows, or at most one in so many, change from one pod to the next. It is dropped after twice
#: as many changes.
_FEW_ROWS: Final = 256
_SOON: Final = 16
#: Keys that come again after so few changes get a sheet, others when they came again so often in a row. If plugins run for each
#: of these pods, there is no look, and a sheet that is used once more pays.
_JUST_NOW, _OFTEN = 16, 3
_JUST_NOW_IF_ASKED, _OFTEN_IF_ASKED = 96, 2
_POINTS: Final = ("preFilter", "filter", "preScore", "score")


class Sheets:
    """The cached path of one profile: its sheets, of which the least recently used one is dropped first.

    It decides on pods with what is kept of earlier ones. None stands for a decision that takes the full path.
    """

    def __init__(self, profile: Profile, capacity: int = 1024) -> None:
        self._profile, self._capacity = profile, capacity
        self._sheets: dict[Hashable, Sheet] = {}
        #: Sheets for the rows after an open transaction added or removed nodes.
        self._derived: dict[Hashable, Sheet] = {}
        self._derived_for = -1
        #: Keys that came without having a sheet → the position in the change log then, and how often in a row they came soon.
        self._looked: Recent[Hashable, tuple[int, int]] = Recent(_LOOKED_REMEMBERED)
        steps = {step.name: step for point in _POINTS for step in profile.at(point)}
        # What a plugin's kept answers depend on: anything, if it does not sign pods, or normalizes over other nodes.
        unsigned = {name for name, step in steps.items() if step.reuse.signature is None or step.over_nodes}
        scopes = {name: Scope.CLUSTER if name in unsigned else step.reuse.scope for name, step in steps.items()}
        always_asked = self._always_asked = frozenset(name for name, scope in scopes.items() if scope > Scope.NODE_PODS)
        on_nodes = frozenset(name for name, scope in scopes.items() if scope is Scope.NODE)
        self._on_rows = frozenset(name for name, scope in scopes.items() if Scope.NODE < scope <= Scope.NODE_PODS)
        self._signer = Signer(steps.values(), always_asked, on_nodes)
        self._groups = [Steps(profile, frozenset(names)) for names in self._signer.groups]
        self._columns = Columns()
        self._splits: dict[tuple[frozenset[str], frozenset[str]], Split] = {}
        self._by_domain = ByDomain(profile)
        forms = [step.reuse.narrows_to for step in profile.at("preFilter")]
        #: What names the nodes that PreFilter plugins narrow the search to.
        self._narrowing = [form for form in forms if form is not None]
        #: Known shapes that had a sheet, by ``id()`` of the spec and labels of their first pod, which they keep in memory.
        self._by_parts: dict[tuple[int, int], KnownShape] = {}
        #: The sheet of the last decision by a known shape, if it is still the last entry of ``_sheets``; otherwise None.
        self._used_last: Sheet | None = None
        self._pinned = PinnedPods(profile, self._known_without_node, self._kept)

    # -- by the shape of a pod ----------------------------------------------------------------------------------------

    def decide_known(self, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated = _NONE) -> Quick | None:
        """Decide like ``decide_by_keys``, but do not sign a pod of a known shape again. It must not be nominated itself."""
        if pod.spec.affinity is not None and self._names_nodes(pod):
            pinned = None if nominated else self._pinned.row_of_node(pod, snapshot)
            return None if pinned is None else Quick(pinned[0], 1, pinned[1], 1)
        sheet = self._sheet_by_parts(pod, snapshot)
        if sheet is None:
            return Sheets.decide_by_keys(self, pod, snapshot, seed, nominated)
        return sheet.pick(pod, snapshot, nominated, seed)

    def _sheet_by_parts(self, pod: PodInfo, snapshot: Snapshot) -> Sheet | None:
        """Return the sheet, up to date, of a pod that shares its parts with one that had a sheet; None if it must be signed."""
        parts = _parts_of(pod)
        known = self._by_parts.get(parts)
        if known is None or not known.suits(pod) or not known.holds(snapshot):
            known = self._signer.like_spec(pod, snapshot, self._sheets)
            if known is None:
                return None
            self._note(parts, known)
        known.share(pod)
        sheet = self._kept(known)
        return sheet if sheet is not None and sheet.refresh(pod, snapshot) else None

    def _note(self, parts: tuple[int, int], known: KnownShape) -> None:
        if len(self._by_parts) >= _PARTS_KEPT:
            self._by_parts.clear()
        self._by_parts[parts] = known

    def _kept(self, known: KnownShape) -> Sheet | None:
        """Return the sheet of a shape that ``holds``, and mark it as the last one used; None if there is none."""
        key = known.signed.key
        sheet = self._sheets.get(key)
        if sheet is not None and self._used_last is not sheet:
            self._used_last = self._sheets[key] = self._sheets.pop(key)
        return sheet

    def route_of(self, pod: PodInfo, snapshot: Snapshot) -> ShapeRoute | None:
        """Return the route by which ``decide_known`` decides on copies of a pod; None if it must sign them."""
        known = self._by_parts.get(_parts_of(pod))
        if known is None or not known.suits(pod) or not known.holds(snapshot):
            return None
        sheet = self._kept(known)
        return None if sheet is None else ShapeRoute(known, sheet, known.first.has_affinity)

    def decide_copy(self, route: ShapeRoute, pod: PodInfo, snapshot: Snapshot, seed: int) -> Quick | None:
        """Decide on a pod that the route suits. Call it only if all pods placed since have its shape."""
        known, sheet, has_terms = route
        if has_terms and not known.holds(snapshot):
            return None
        if sheet.is_for_all:
            return sheet.decide_copy(pod.uid, known.first, snapshot, seed)
        known.share(pod)
        return sheet.pick(pod, snapshot, _NONE, seed) if sheet.refresh(pod, snapshot) else None

    def feasible(self, pod: PodInfo, snapshot: Snapshot) -> Feasible | None:
        """Return the rows that no Filter plugin refuses, nominated pods ignored; None if the pod has no sheet."""
        if not len(snapshot.table) or (pod.spec.affinity is not None and self._names_nodes(pod)):
            return None
        try:
            sheet = self._sheet_by_parts(pod, snapshot)
            if sheet is None and (found := self._find(pod, snapshot)) is not None:
                sheet = found[1]
            return None if sheet is None else sheet.feasible(pod, snapshot)
        except PluginError:
            return None

    def lacks_room(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Return whether no row is feasible, and only the fit of resources can change that while nodes stay as they are.

        Nominated pods are ignored. False as well where that is not known.
        """
        if pod.spec.affinity is not None and self._names_nodes(pod):
            return False
        try:
            sheet = self._sheet_by_parts(pod, snapshot)
            if sheet is None and (found := self._find(pod, snapshot)) is not None:
                sheet = found[1]
            return sheet is not None and sheet.lacks_room(pod, snapshot)
        except PluginError:
            return False

    def _known_without_node(self, pod: PodInfo, snapshot: Snapshot) -> KnownShape | None:
        """Return the shape of a pod whose sheet is kept, and made if need be; None if each pod of the shape must be signed."""
        found = self._find(pod, snapshot, keep=True)
        return None if found is None or self._signer.each else found[0]

    # -- by its keys --------------------------------------------------------------------------------------------------

    def decide_by_keys(self, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated = _NONE) -> Quick | None:
        """Return the decision; None if it takes the full path: nothing fits, or the cached path cannot decide."""
        if self._names_nodes(pod):
            return None
        known = self._sign(pod, snapshot)
        if known is None:
            return None
        signed = known.signed
        sheet = self._sheet_of(known, pod, snapshot)
        if sheet is None:
            quick = None if nominated or signed.asked else self._look_once(signed, pod, snapshot, seed)
            if quick is not None:
                return quick
            sheet = self._make(signed, pod, snapshot, keep=False)
        return sheet.pick(pod, snapshot, nominated, seed)

    def _look_once(self, signed: Signed, pod: PodInfo, snapshot: Snapshot, seed: int) -> Quick | None:
        """Decide without a sheet; None if one is needed, or no row is feasible."""
        look, changes = signed.look, snapshot.table.changes
        if look is None or look.nodes_seen != changes.nodes:
            if has_many_rows(snapshot.table):
                return None
            _, on_rows, idle = self._split(signed)
            rule = on_rows.rule_for(pod)
            if rule is None:
                return None
            look = OneLook(rule, idle, snapshot)
            if signed.was_used:
                signed.look = look
            signed.was_used = True  # most shapes come once, and leave nothing behind
        quick: Quick | None = look.pick(pod.uid, self._on_nodes(signed, pod, snapshot), snapshot, seed)
        return quick

    def _names_nodes(self, pod: PodInfo) -> bool:
        """Return whether a plugin narrows the search to some nodes: then the full path looks at these alone."""
        for names in self._narrowing:  # noqa: SIM110 (a generator costs more than comparing)
            if names(pod) is not None:
                return True
        return False

    def _sign(self, pod: PodInfo, snapshot: Snapshot) -> KnownShape | None:
        """Return a pod's shape with its keys; None if a signature cannot be hashed."""
        try:
            return self._signer.sign(pod, snapshot)
        except TypeError:
            return None

    def _find(self, pod: PodInfo, snapshot: Snapshot, *, keep: bool = False) -> tuple[KnownShape, Sheet] | None:
        """Return the pod's shape and its sheet, up to date; None if it has none. ``keep``: keep the sheet even of new keys."""
        known = self._sign(pod, snapshot)
        if known is None:
            return None
        return known, self._sheet_of(known, pod, snapshot, keep=keep) or self._make(known.signed, pod, snapshot, keep=False)

    def _sheet_of(self, known: KnownShape, pod: PodInfo, snapshot: Snapshot, *, keep: bool = False) -> Sheet | None:
        """Return the sheet of the pod's keys, up to date; None if it is not worth keeping."""
        signed, changes = known.signed, snapshot.table.changes
        key = signed.key
        sheet = self._sheets.pop(key, None)
        self._used_last = None
        if sheet is not None and sheet.arrangement != changes.arrangement and changes.is_rearranged:
            self._sheets[key] = sheet  # for when the transaction is rolled back
            return self._derive(signed, pod, snapshot)
        if sheet is not None and not self._pays_since(sheet.position, snapshot, 2):
            sheet = None
        if sheet is None or not sheet.refresh(pod, snapshot):
            if not (keep or sheet is not None or self._comes_again(signed, snapshot)):
                return None
            sheet = self._make(signed, pod, snapshot, keep=True)
            self._make_place(snapshot)
        self._sheets[key] = sheet
        if not self._signer.each:
            self._note(_parts_of(known.first), known)
        return sheet

    def _make_place(self, snapshot: Snapshot) -> None:
        """Drop sheets until there is place for one more, and those that were not used for long."""
        most = max(1, min(self._capacity, _ROWS_KEPT // len(snapshot.table)))
        while self._sheets:
            oldest = next(iter(self._sheets))
            if len(self._sheets) < most and self._pays_since(self._sheets[oldest].position, snapshot, 2):
                return
            del self._sheets[oldest]

    @staticmethod
    def _pays_since(position: int, snapshot: Snapshot, times: int = 1) -> bool:
        """Return whether few rows changed since a position, so that following them is faster than judging all rows."""
        table = snapshot.table
        behind = table.changes.behind(position)
        return behind <= times * _FEW_ROWS or behind * _SOON <= times * len(table)

    def _comes_again(self, signed: Signed, snapshot: Snapshot) -> bool:
        """Return whether these keys came just now, or often not long ago."""
        looked, changes = self._looked.pop(signed.key), snapshot.table.changes
        again = 0
        if looked is not None and self._pays_since(looked[0], snapshot):
            again = looked[1] + 1
            just_now, often = (_JUST_NOW_IF_ASKED, _OFTEN_IF_ASKED) if signed.asked else (_JUST_NOW, _OFTEN)
            if again >= often or changes.behind(looked[0]) <= just_now:
                return True
        self._looked.put(signed.key, (changes.position, again))
        return len(snapshot.table) <= _FEW_ROWS

    def _make(self, signed: Signed, pod: PodInfo, snapshot: Snapshot, *, keep: bool) -> Sheet:
        """Return a new sheet."""
        split = self._split(signed)
        columns = self._on_nodes(signed, pod, snapshot)
        columns.append(self._columns.of(signed.rows, split.on_rows, pod, snapshot, keep=keep))
        return Sheet(self._by_domain, split, columns, snapshot, is_brief=not keep)

    def _derive(self, signed: Signed, pod: PodInfo, snapshot: Snapshot) -> Sheet:
        """Return the sheet for the rows after an open transaction added or removed nodes."""
        arrangement = snapshot.table.changes.arrangement
        if self._derived_for != arrangement:
            self._derived.clear()
            self._derived_for = arrangement
        sheet = self._derived.get(signed.key)
        if sheet is None or not sheet.refresh(pod, snapshot):
            sheet = self._derived[signed.key] = self._make(signed, pod, snapshot, keep=False)
        return sheet

    def columns_of(self, pod: PodInfo, snapshot: Snapshot) -> tuple[list[KeyColumn], frozenset[str]]:
        """Return the columns by which a pod was just decided, and the plugins that were idle; for looking into them."""
        signed = self._signer.sign(pod, snapshot).signed
        idle = self._split(signed).idle
        columns = self._on_nodes(signed, pod, snapshot)
        kept = self._sheets.get(signed.key)
        columns += [] if kept is None else [kept.on_rows]
        return columns, idle

    def _on_nodes(self, signed: Signed, pod: PodInfo, snapshot: Snapshot) -> list[KeyColumn]:
        """Return the columns of plugins that read only nodes."""
        columns, groups, nodes = self._columns, self._groups, snapshot.table.changes.nodes
        found = []
        for key in signed.nodes:
            column = columns.kept.get(key)
            if column is None or column.nodes_seen != nodes:
                column = columns.of(key, groups[key % GROUPS], pod, snapshot)
            found.append(column)
        return found

    def _split(self, signed: Signed) -> Split:
        """Return which plugins run for each pod, which fill the last column, and which have nothing to do."""
        found = self._splits.get((signed.asked, signed.idle))
        if found is None:
            idle = signed.idle.intersection([step.name for step in self._profile.at("preFilter")])
            on_rows = self._on_rows - signed.asked - signed.idle
            found = Split(Steps(self._profile, signed.asked), Steps(self._profile, on_rows, reads_pods=True), idle)
            self._splits[signed.asked, signed.idle] = found
        return found


def _parts_of(pod: PodInfo) -> tuple[int, int]:
    labels = pod.labels
    return id(pod.spec), id(labels) if labels else 0
