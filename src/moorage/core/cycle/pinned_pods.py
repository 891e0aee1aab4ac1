"""Pods that each name one node and are otherwise equal, such as the pods of a DaemonSet: they share one sheet.

Their shapes differ in the name of the node alone. The sheet is that of the first such pod without the name. Each pod looks up
the verdict of the sheet on its node. It can be placed there or nowhere, so it needs no scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from moorage.core.cycle.pod_signatures import KnownShape
from moorage.core.cycle.sheet import Sheet
from moorage.framework.answer_forms import Pins
from moorage.framework.plugin_runner import ask
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.state.pod_info import PodInfo
from moorage.state.view import Snapshot

_encode: Final = msgspec.msgpack.Encoder().encode
#: Shapes whose sheet is kept; all are dropped when there are more.
_KEPT: Final = 1024
#: A sheet is computed over all nodes, which pays only for many pods. It is computed after this many pods, plus one for each
#: ``_NODES_FOR_ONE`` nodes.
_FIRST_FEW: Final = 4
_NODES_FOR_ONE: Final = 256
#: After a search that found no sheet, this many pods are decided before the next search.
_IN_VAIN: Final = 1000
#: The package of the built-in plugins. Only the one that has ``pins`` reads the node that a pod names.
_OWN: Final = "moorage."


class _Kept:
    """The sheet of pods that differ only in the node they name.

    ``first`` is one of them, without the name. ``without`` counts the pods that were decided while there was no sheet; None if
    they cannot share a sheet.
    """

    __slots__ = ("facts", "facts_known", "first", "known", "without")

    def __init__(self, first: PodInfo) -> None:
        self.first = first
        self.known: KnownShape | None = None
        self.without: int | None = 0
        self.facts: dict[str, Any] = {}
        self.facts_known = 0

    def share(self, pod: PodInfo) -> None:
        """Copy the derived data of the first pod to this one, except the values that plugins derived from its affinity."""
        if len(self.first.__dict__) != self.facts_known:
            self.facts_known = len(self.first.__dict__)
            self.facts = {name: fact for name, fact in self.first.facts_of_shape().items() if name != "_kept"}
        pod.__dict__.update(self.facts)


class PinnedPods:
    """``find`` makes a pod's sheet and returns its shape, or None; ``sheet_of`` returns the sheet of a shape, if it is kept."""

    def __init__(
        self,
        profile: Profile,
        find: Callable[[PodInfo, Snapshot], KnownShape | None],
        sheet_of: Callable[[KnownShape], Sheet | None],
    ) -> None:
        self._profile, self._find, self._sheet_in_use = profile, find, sheet_of
        self._known: dict[tuple[bytes, bytes], _Kept] = {}
        steps = {step.name: step for point in ("preFilter", "filter") for step in profile.at(point)}
        narrowing = [step for step in profile.at("preFilter") if step.reuse.narrows_to is not None]
        foreign = [step for step in steps.values() if not type(step.plugin).__module__.startswith(_OWN)]
        idle = any(step.reuse.idle is not None for step in foreign)
        self._step = narrowing[0] if len(narrowing) == 1 and not idle else None
        #: The plugins whose answers a sheet keeps. Plugins of a wider scope are idle for a sheet that ``is_for_all``.
        kept = [step for step in steps.values() if step.reuse.scope <= Scope.NODE_PODS]
        self._others = [step for step in kept if self._step is None or step.name != self._step.name]
        #: The out-of-tree plugins among them, which may read the name, so their signatures are compared for every pod.
        self._each = [step for step in self._others if step in foreign]
        self._pins: Pins | None = None if self._step is None else self._step.reuse.pins

    def row_of_node(self, pod: PodInfo, snapshot: Snapshot) -> tuple[int, PreFiltered] | None:
        """Return the row of the node that the pod names and PreFilter's results; None: decide in another way."""
        node = None if self._pins is None else self._pins.node(pod)
        row = None if node is None else snapshot.table.row_of.get(node)
        if node is None or row is None:
            return None
        name = _encode(node)
        before, _, after = pod.shape().partition(name)
        if name in after:
            return None  # the name occurs twice: one of them may be something else than the node
        kept = self._known.get((before, after))
        if kept is None:
            kept = self._known[before, after] = self._first(pod)
        if self._each and not self._agree(self._each, pod, kept):
            return None
        judging = self._sheet_of(kept, snapshot)
        found = None if judging is None else judging.admits(row, kept.first, snapshot)
        if found is None:
            return None
        kept.share(pod)
        return row, self._narrowed(found, pod, node)

    def _first(self, pod: PodInfo) -> _Kept:
        assert self._pins is not None
        if len(self._known) >= _KEPT:
            self._known.clear()
        kept: _Kept = _Kept(PodInfo(self._pins.without(pod)))
        if not self._agree(self._others, pod, kept):
            kept.without = None
        return kept

    def _agree(self, steps: Iterable[Step], pod: PodInfo, kept: _Kept) -> bool:
        """Return whether these plugins sign the pod like ``kept.first``."""
        return all(_sign(step, pod) == _sign(step, kept.first) for step in steps)

    def _sheet_of(self, kept: _Kept, snapshot: Snapshot) -> Sheet | None:
        """Return the sheet of the pods of one shape, up to date; None if there is none yet."""
        if kept.known is not None and kept.known.holds(snapshot):
            sheet = self._sheet_in_use(kept.known)
            if sheet is not None and sheet.follows(kept.first, snapshot):
                return sheet
        kept.known = None
        if kept.without is None:
            return None
        kept.without += 1
        if kept.without < _FIRST_FEW + len(snapshot.table) // _NODES_FOR_ONE:
            return None
        known = self._find(kept.first, snapshot)
        sheet = None if known is None else self._sheet_in_use(known)
        if sheet is None or not sheet.is_for_all or not sheet.follows(kept.first, snapshot):
            kept.without = -_IN_VAIN
            return None
        kept.without, kept.known = 0, known
        return sheet

    def _narrowed(self, found: PreFiltered, pod: PodInfo, node: str) -> PreFiltered:
        """Return the PreFilter results of a sheet, narrowed to the node that the pod names."""
        assert self._step is not None
        name = self._step.name
        states, skipped = {**found.states, name: pod}, found.skipped - {name}
        return PreFiltered(states, skipped, frozenset((node,)), (name,), None, self._profile.release.narrowing_rejects)


def _sign(step: Step, pod: PodInfo) -> Any:
    signature = step.reuse.signature
    return None if signature is None else ask(Step(step.name, step.plugin, signature), "signature", pod)
