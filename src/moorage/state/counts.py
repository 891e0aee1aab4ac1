"""Counts of placed pods by matcher, and of placed pods by the affinity terms they hold.

Plugins that depend on other pods do not iterate over pods. They read how many pods a matcher selects, on each row or in each
topology domain (``PodCounts``), or how many in each domain hold a term that selects a given pod (``HeldTerms``). Adding or
removing a pod changes these counts by one.

Neither compares every pod with every selector: matchers and terms are indexed by a label that they require, and placed pods by
their labels (see ``selector_index``), so a new pod is compared only with the selectors that may match it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.selectors import Selector
from moorage.state.change_log import RowLog
from moorage.state.columns import BoolArray, Column, IntArray, RowSpace
from moorage.state.labels import IdCounts, LabelColumn, LabelColumns
from moorage.state.pod_info import AffinityTerm, PodInfo
from moorage.state.selector_index import Place, SelectorIndex, narrowest, places, places_of_pod

Counts = npt.NDArray[np.int32]
#: Namespace, sorted labels, being deleted: see ``PodInfo.label_class``.
LabelClassKey = tuple[str, tuple[tuple[str, str], ...], bool]


class MatchTerm(NamedTuple):
    """Pods of these namespaces (None: of any) whose labels the selector matches."""

    namespaces: frozenset[str] | None
    selector: Selector

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return (self.namespaces is None or namespace in self.namespaces) and self.selector.matches(labels)


class PodMatcher(NamedTuple):
    """Pods that every term matches; without terms, all pods. ``live_only`` leaves out pods that are being deleted."""

    terms: tuple[MatchTerm, ...]
    live_only: bool = False

    def matches(self, pod: PodInfo) -> bool:
        """Return True if the matcher counts this pod."""
        if self.live_only and pod.terminating:
            return False
        return all(term.matches(pod.namespace, pod.labels) for term in self.terms)


#: The most changes that are logged for one matcher; a reader that is further behind reads every row.
_CHANGES_KEPT = 1024


class _Counted:
    """The number of pods that one matcher selects: on each row, and in each domain of the topologies that were read.

    ``changes`` logs the rows whose number changed; None until a reader asks.
    """

    __slots__ = ("changes", "column", "domains")

    def __init__(self, column: Column) -> None:
        self.column = column
        #: Topology key → the column of the label, and the counts by its ids.
        self.domains: dict[str, tuple[LabelColumn, IdCounts]] = {}
        self.changes: RowLog | None = None

    def shift(self, row: int, by: int) -> None:
        self.column.cells[row] += by
        if self.changes is not None:
            self.changes.note(row)
        for column, tally in self.domains.values():
            tally.add(column.id_at(row), by)


class _LabelClass:
    """Placed pods that every selector treats alike: their number on each row, and the matchers that count them."""

    __slots__ = ("_labels", "counted_by", "namespace", "rows", "terminating")

    def __init__(self, key: LabelClassKey) -> None:
        self.namespace, self._labels, self.terminating = key
        self.rows: dict[int, int] = {}
        self.counted_by: dict[PodMatcher, _Counted] = {}

    @property
    def labels(self) -> dict[str, str]:
        return dict(self._labels)

    def suits(self, matcher: PodMatcher) -> bool:
        if self.terminating and matcher.live_only:
            return False
        labels = self.labels
        for term in matcher.terms:  # noqa: SIM110 (a generator costs more than the comparing)
            if not term.matches(self.namespace, labels):
                return False
        return True


class NotCounted:
    """Stands in for ``PodCounts`` until the first matcher is read."""

    keys: Set[str] = frozenset()

    def add(self, *_: object) -> None:
        """Do nothing, as all methods do that tell ``PodCounts`` of changes."""

    add_all = remove = remove_row = add_row = move = keep_empty = class_of = add


class PodCounts:
    """How many pods a matcher selects, kept current for every matcher that was read.

    Before the labels of a row change, remove its pods, and add them again afterwards.
    """

    def __init__(self, space: RowSpace, labels: LabelColumns, capacity: int = 4096) -> None:
        """Keep at most ``capacity`` matchers; drop the least recently used one first."""
        self._space = space
        self._labels = labels
        self._capacity = capacity
        self._classes: dict[LabelClassKey, _LabelClass] = {}
        # Ordered sets of the classes themselves: a key of thousands of labels would be hashed for each of them.
        self._classes_at: dict[Place, dict[_LabelClass, None]] = {}
        #: Classes that are not in this index yet: it is read only where a matcher is counted first.
        self._unfiled: dict[_LabelClass, None] = {}
        self._matchers: dict[PodMatcher, _Counted] = {}
        self._filed = SelectorIndex[PodMatcher]()
        self._keeping = False
        #: How many matchers were dropped, whose tallies no longer change.
        self.dropped = 0
        self._emptied: list[LabelClassKey] = []
        #: The label keys of all topologies for which pods were ever counted.
        self.keys: set[str] = set()

    def __len__(self) -> int:
        """The number of matchers that are kept current."""
        return len(self._matchers)

    def of(self, matcher: PodMatcher) -> Counts:
        """Return the number of matching pods on each row, shape (rows,), int32. Read-only for callers."""
        return self._counted(matcher).column.view

    def rows_with(self, matcher: PodMatcher) -> BoolArray:
        """Return which rows hold a matching pod, shape (rows,). A fresh array; a new matcher is not kept current."""
        known = self._matchers.get(matcher)
        if known is not None:
            there: BoolArray = known.column.view > 0
            return there
        namespaces, selector = _filed_under(matcher)
        found = np.zeros(self._space.rows, dtype=bool)
        for label_class in self._suiting(matcher, None if namespaces is None else places(namespaces, selector)):
            found[list(label_class.rows)] = True
        return found

    def changes_of(self, matcher: PodMatcher) -> RowLog:
        """Return the log of the rows whose number of matching pods changed. A new log if the matcher was dropped meanwhile."""
        counted = self._counted(matcher)
        if counted.changes is None:
            counted.changes = RowLog(_CHANGES_KEPT)
        return counted.changes

    def by_domain(self, matcher: PodMatcher, key: str) -> IntArray:
        """Return the number of matching pods for each value of label ``key``, shape (values,), 0 for id 0. A fresh array."""
        tally = self.tally(matcher, key)
        if tally is None:
            return np.zeros(1, dtype=np.int64)
        counts = tally.copy(len(self._labels.column(key).values))
        counts[0] = 0
        return counts

    def domains_with(self, matcher: PodMatcher, key: str) -> BoolArray:
        """Return for each value of label ``key`` whether ``by_domain`` is above zero. A fresh array."""
        tally = self.tally(matcher, key)
        if tally is None:
            return np.zeros(1, dtype=bool)
        there = tally.above(len(self._labels.column(key).values))
        there[0] = False
        return there

    def tally(self, matcher: PodMatcher, key: str) -> IdCounts | None:
        """Return the counts for each value of label ``key``, which change with the pods; None if no node has the label.

        Another object once the matcher was dropped meanwhile. Its count for id 0 means nothing.
        """
        if not self._labels.is_anywhere(key):
            return None
        counted = self._counted(matcher)
        known = counted.domains.get(key)
        if known is None:
            self.keys.add(key)
            labels = self._labels.column(key)
            tally = IdCounts(np.bincount(labels.ids, weights=counted.column.view).astype(np.int64))
            known = counted.domains[key] = labels, tally
        return known[1]

    def _counted(self, matcher: PodMatcher) -> _Counted:
        counted = self._matchers.get(matcher)
        if counted is None:
            counted = self._matchers[matcher] = self._count(matcher)
        elif 2 * len(self._matchers) > self._capacity:  # ordered by last use once one may be dropped soon
            self._matchers[matcher] = self._matchers.pop(matcher)
        return counted

    def add(self, row: int, pod: PodInfo) -> None:
        key = pod.label_class
        label_class = self._classes.get(key)
        if label_class is None:
            label_class = self._open(key)
        label_class.rows[row] = label_class.rows.get(row, 0) + 1
        for counted in label_class.counted_by.values():
            counted.shift(row, 1)

    def class_of(self, pod: PodInfo) -> tuple[dict[int, int], Mapping[PodMatcher, _Counted]]:
        """Return the number of pods on each row with the labels of a counted pod, and what counts them; both change."""
        label_class = self._classes[pod.label_class]
        return label_class.rows, label_class.counted_by

    def add_all(self, rows: Iterable[int], key: LabelClassKey) -> None:
        """Do the same as ``add`` for a pod of this class on each of these rows."""
        label_class = self._classes.get(key) or self._open(key)
        held = label_class.rows
        for row in rows:
            held[row] = held.get(row, 0) + 1
            for counted in label_class.counted_by.values():
                counted.shift(row, 1)

    def remove(self, row: int, pod: PodInfo) -> None:
        """Undo one ``add`` of a pod with these labels on this row."""
        label_class = self._classes[pod.label_class]
        for counted in label_class.counted_by.values():
            counted.shift(row, -1)
        label_class.rows[row] -= 1
        if not label_class.rows[row]:
            del label_class.rows[row]
            if not label_class.rows:
                self._emptied.append(pod.label_class)
                if not self._keeping:
                    self._close_emptied()

    def remove_row(self, row: int, pods: Iterable[PodInfo]) -> None:
        """Do the same as ``remove`` for all pods of a row."""
        for key in {pod.label_class: None for pod in pods}:
            label_class = self._classes[key]
            count = label_class.rows.pop(row)
            for counted in label_class.counted_by.values():
                counted.shift(row, -count)
            if not label_class.rows:
                self._emptied.append(key)
        if self._emptied and not self._keeping:
            self._close_emptied()

    def add_row(self, row: int, pods: Collection[PodInfo]) -> None:
        """Do the same as ``add`` for all pods of a row that has none."""
        for key, count in Counter([pod.label_class for pod in pods]).items():
            label_class = self._classes.get(key) or self._open(key)
            label_class.rows[row] = count
            for counted in label_class.counted_by.values():
                counted.shift(row, count)

    def keep_empty(self, keep: bool) -> None:
        """While ``keep`` is set, keep label classes without pods, because the pods will return. Then drop the empty ones."""
        self._keeping = keep
        if not keep:
            self._close_emptied()

    def move(self, old: int, new: int, pods: Iterable[PodInfo]) -> None:
        """Renumber a row; ``pods`` are all pods on it. The ``RowSpace`` moves the columns."""
        for key in {pod.label_class: None for pod in pods}:
            rows = self._classes[key].rows
            rows[new] = rows.pop(old)

    # -- label classes ------------------------------------------------------------------------------------------------

    def _open(self, key: LabelClassKey) -> _LabelClass:
        label_class = self._classes[key] = _LabelClass(key)
        self._unfiled[label_class] = None
        for matcher in self._filed.candidates(label_class.namespace, label_class.labels) if self._filed else ():
            if label_class.suits(matcher):
                label_class.counted_by[matcher] = self._matchers[matcher]
        return label_class

    def _close_emptied(self) -> None:
        while self._emptied:
            key = self._emptied.pop()
            if key in self._classes and not self._classes[key].rows:
                self._close(key)

    def _close(self, key: LabelClassKey) -> None:
        label_class = self._classes.pop(key)
        if label_class in self._unfiled:
            del self._unfiled[label_class]
            return
        for place in places_of_pod(label_class.namespace, label_class.labels):
            at = self._classes_at[place]
            del at[label_class]
            if not at:
                del self._classes_at[place]

    def _suiting(self, matcher: PodMatcher, filed: list[Place] | None) -> list[_LabelClass]:
        """Return the label classes that a matcher counts. ``filed``: its keys in the index; None if it names no namespace."""
        found: list[_LabelClass] = []
        for label_class in self._unfiled if filed is not None else ():
            for place in places_of_pod(label_class.namespace, label_class.labels):
                self._classes_at.setdefault(place, {})[label_class] = None
        if filed is not None:
            self._unfiled.clear()
        filed_at = None if filed is None else [self._classes_at[at] for at in filed if at in self._classes_at]
        for classes in [self._classes.values()] if filed_at is None else filed_at:
            found += [label_class for label_class in classes if label_class.suits(matcher)]
        return found

    # -- matchers -----------------------------------------------------------------------------------------------------

    def _count(self, matcher: PodMatcher) -> _Counted:
        if len(self._matchers) >= self._capacity:
            self._drop(next(iter(self._matchers)))
        namespaces, selector = _filed_under(matcher)
        filed = places(namespaces, selector)
        self._filed.add_at(matcher, filed)
        counted = _Counted(self._space.column(np.int32))
        for label_class in self._suiting(matcher, None if namespaces is None else filed):
            label_class.counted_by[matcher] = counted
            for row, count in label_class.rows.items():
                counted.column.data[row] += count
        return counted

    def _drop(self, matcher: PodMatcher) -> None:
        namespaces, selector = _filed_under(matcher)
        for label_class in self._suiting(matcher, None if namespaces is None else places(namespaces, selector)):
            del label_class.counted_by[matcher]
        self._filed.remove(matcher, namespaces, selector)
        del self._matchers[matcher]
        self.dropped += 1


def _filed_under(matcher: PodMatcher) -> tuple[frozenset[str] | None, Selector]:
    """Return the namespaces and the selector that index a matcher: those of its first term."""
    return (matcher.terms[0].namespaces, matcher.terms[0].selector) if matcher.terms else (None, Selector())


#: The most sets of labels for which the selecting terms are cached.
_SELECTIONS_REMEMBERED = 4096


class HeldTerm(NamedTuple):
    """A term that placed pods carry. ``weight`` is 0 for required terms."""

    term: AffinityTerm
    weight: int = 0


class _Holders:
    __slots__ = ("domains", "total")

    def __init__(self) -> None:
        self.total = 0
        self.domains = IdCounts()


class HeldTerms:
    """How many pods hold a term, in each domain of its topology, for one kind of term (required anti-affinity, …).

    Before the labels of a row change, remove its pods, and add them again afterwards. ``position`` grows whenever a term gets
    its first holder or loses its last one.
    """

    def __init__(self, labels: LabelColumns) -> None:
        self._labels = labels
        self._held: dict[HeldTerm, _Holders] = {}
        self._filed = SelectorIndex[HeldTerm]()
        #: Terms whose namespace selector requires a label, indexed by that label of the namespace in place of its name.
        self._filed_by_label = SelectorIndex[HeldTerm]()
        self._keeping = False
        self._emptied: list[HeldTerm] = []
        #: The topology keys of all terms that were ever held.
        self.keys: set[str] = set()
        #: Labels of a pod → the terms that select such pods, with the ``position`` and namespace labels they are valid for.
        self._selecting: dict[LabelClassKey, tuple[int, Mapping[str, str], tuple[HeldTerm, ...]]] = {}
        self.position = 0

    def __len__(self) -> int:
        """The number of distinct terms that placed pods hold."""
        return len(self._held) if not self._emptied else sum(bool(holders.total) for holders in self._held.values())

    def __iter__(self) -> Iterator[tuple[HeldTerm, IntArray]]:
        """Yield each distinct term that a placed pod holds, with its number of holders in each domain, as ``selecting``."""
        for held, holders in self._held.items():
            if holders.total:
                yield held, self._in_domains(held)

    def selecting(self, pod: PodInfo, namespace_labels: Mapping[str, str]) -> Iterator[tuple[HeldTerm, IntArray]]:
        """Yield the terms that select ``pod``, whose namespace has these labels, with their numbers of holders in each domain.

        The numbers are one for each value of the label ``topology_key``, shape (values,), 0 for id 0; a fresh array.
        """
        for held in self._terms_selecting(pod, namespace_labels):
            if self._held[held].total:
                yield held, self._in_domains(held)

    def tallies(self, pod: PodInfo, namespace_labels: Mapping[str, str]) -> Iterator[tuple[HeldTerm, IdCounts]]:
        """Yield the same terms as ``selecting``, with counts that change with the pods, until the term has no holder."""
        for held in self._terms_selecting(pod, namespace_labels):
            holders = self._held[held]
            if holders.total:
                yield held, holders.domains

    def select(self, pod: PodInfo, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether a held term selects ``pod``, whose namespace has these labels."""
        return bool(self._held) and any(self._held[held].total for held in self._terms_selecting(pod, namespace_labels))

    def _terms_selecting(self, pod: PodInfo, namespace_labels: Mapping[str, str]) -> tuple[HeldTerm, ...]:
        """Return the terms that select ``pod``, held or not; cached for equal labels until terms or the namespace change."""
        if not self._held:
            return ()
        known = self._selecting.get(pod.label_class)
        if known is None or known[0] != self.position or known[1] is not namespace_labels:
            candidates = self._filed.candidates(pod.namespace, pod.labels)
            if self._filed_by_label:
                names = map(_label_name, namespace_labels.items())
                candidates = chain(candidates, self._filed_by_label.under(names, pod.labels))
            terms = tuple([held for held in candidates if held.term.matches(pod, namespace_labels)])
            if len(self._selecting) >= _SELECTIONS_REMEMBERED:
                self._selecting.clear()
            known = self._selecting[pod.label_class] = (self.position, namespace_labels, terms)
        return known[2]

    def _in_domains(self, held: HeldTerm) -> IntArray:
        counts = self._held[held].domains.copy(len(self._labels.column(held.term.topology_key).values))
        counts[0] = 0
        return counts

    def domains_with(self, held: HeldTerm) -> BoolArray:
        """Return in which domains of its topology a held term has holders, as numbered by ``selecting``. A fresh array."""
        there = self._held[held].domains.above(len(self._labels.column(held.term.topology_key).values))
        there[0] = False
        return there

    def add(self, row: int, held: HeldTerm) -> None:
        holders = self._held.get(held)
        if holders is None:
            holders = self._held[held] = _Holders()
            self.keys.add(held.term.topology_key)
            self.position += 1
            by_label = _required_labels(held.term)
            if by_label is None:
                self._filed.add(held, *_namespaces_and_selector(held.term))
            else:
                self._filed_by_label.add(held, by_label, held.term.selector)
        self._shift(holders, row, held, 1)

    def remove(self, row: int, held: HeldTerm) -> None:
        """Undo one ``add``."""
        holders = self._held[held]
        self._shift(holders, row, held, -1)
        if not holders.total:
            self._emptied.append(held)
            if not self._keeping:
                self._drop_emptied()

    def adder(self, held: HeldTerm) -> Callable[[int], None]:
        """Return a function that does ``add`` for a term with a holder, given a row, while no pod or node is changed."""
        holders, column = self._held[held], self._labels.column(held.term.topology_key)
        domains = holders.domains

        def add(row: int) -> None:
            holders.total += 1
            domains.add(column.id_at(row), 1)

        return add

    def keep_empty(self, keep: bool) -> None:
        """While ``keep`` is set, keep terms without holders, because the pods will return. Then drop terms without holders."""
        self._keeping = keep
        if not keep:
            self._drop_emptied()

    def _drop_emptied(self) -> None:
        while self._emptied:
            held = self._emptied.pop()
            holders = self._held.get(held)
            if holders is not None and not holders.total:
                del self._held[held]
                self.position += 1
                by_label = _required_labels(held.term)
                if by_label is None:
                    self._filed.remove(held, *_namespaces_and_selector(held.term))
                else:
                    self._filed_by_label.remove(held, by_label, held.term.selector)

    def _shift(self, holders: _Holders, row: int, held: HeldTerm, by: int) -> None:
        holders.total += by
        holders.domains.add(self._labels.column(held.term.topology_key).id_at(row), by)


def _required_labels(term: AffinityTerm) -> frozenset[str] | None:
    """Return labels, one of which a namespace needs so that the term may select pods there; None if it needs none."""
    if term.namespace_selector is None or term.namespaces:
        return None
    asked = narrowest(term.namespace_selector)
    return None if asked is None else frozenset(_label_name((asked.key, value)) for value in asked.values)


def _label_name(label: tuple[str, str]) -> str:
    return f"{label[0]}={label[1]}"


def _namespaces_and_selector(term: AffinityTerm) -> tuple[frozenset[str] | None, Selector]:
    """Return the namespaces and the selector that index a term. The namespaces are None (any) with a namespace selector."""
    return (term.namespaces if term.namespace_selector is None else None), term.selector
