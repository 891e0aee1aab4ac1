"""What the verdict on a node may depend on apart from the node and its pods: counts of pods by topology domain."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from moorage.core.cycle.decision import Feasible
from moorage.plugins.affinity.affinity_counts import AffinityCounts
from moorage.plugins.spread.spread_counts import Spread

__all__ = ["CountsBeside", "counts_beside"]

_Counts = npt.NDArray[Any]
_EMPTY: Final[_Counts] = np.zeros(0, dtype=np.int64)


class CountsBeside(Struct, frozen=True, eq=False):
    """The rules of a pod that count other pods, with copies of the counts.

    ``terms``    the affinity terms by plugin, and ``affinity`` their counts by plugin, kind and topology key
    ``spreads``  the spread constraints and their counts by plugin
    """

    terms: Mapping[str, Hashable]
    affinity: Mapping[Hashable, _Counts]
    spreads: Mapping[str, Sequence[Spread]]

    def refuses_no_less_than(self, before: CountsBeside) -> bool:
        """Return True if every node that is as before, and was refused, is certain to be refused still.

        This also holds once pods of the node are removed, of those that it had before.
        """
        if self.terms != before.terms or self.spreads.keys() != before.spreads.keys():
            return False
        keys = {**self.affinity, **before.affinity}
        if not all(_are_equal(self.affinity.get(key, _EMPTY), before.affinity.get(key, _EMPTY)) for key in keys):
            return False
        return all(
            len(now) == len(old := before.spreads[name]) and all(map(_is_no_looser, now, old))
            for name, now in self.spreads.items()
        )


def counts_beside(known: Feasible) -> CountsBeside | None:
    """Return what the verdicts on a pod depend on apart from each node and its pods; None if that is not known."""
    if known.beside is None:
        return None
    terms: dict[str, Hashable] = {}
    affinity: dict[Hashable, _Counts] = {}
    spreads: dict[str, Sequence[Spread]] = {}
    for name in known.beside:
        state = known.found.states.get(name)
        if isinstance(state, AffinityCounts):
            terms[name] = state.affinity, state.anti_affinity, state.matches_itself
            for kind in ("wanted", "refused", "refusing"):
                affinity |= {(name, kind, key): counts.copy() for key, counts in getattr(state, kind).items()}
        elif _are_spreads(state):
            spreads[name] = [replace(one, counts=one.counts.copy(), domains=one.domains.copy()) for one in state]
        else:
            return None
    return CountsBeside(terms, affinity, spreads)


def _are_spreads(state: Any) -> TypeGuard[Sequence[Spread]]:
    return isinstance(state, Sequence) and bool(state) and all(isinstance(one, Spread) for one in state)


def _are_equal(one: _Counts, other: _Counts) -> bool:
    """Return whether counts are equal. A label value that one side lacks has no count on the other."""
    shared = min(len(one), len(other))
    return bool(np.array_equal(one[:shared], other[:shared]) and not one[shared:].any() and not other[shared:].any())


def _is_no_looser(now: Spread, before: Spread) -> bool:
    """Return True if no domain has fewer pods than before, or more room because the least count rose.

    The domains from before count as many pods. Domains that are new can only lower the least count, unless ``minDomains`` asks
    for several.
    """
    if (now.constraint, now.own) != (before.constraint, before.own):
        return False
    if _are_equal(now.domains, before.domains):
        return _are_equal(now.counts, before.counts)
    shared = min(len(now.domains), len(before.domains))
    held = before.domains[:shared]
    if before.constraint.min_domains > 1 or not held.any() or before.domains[shared:].any() or before.counts[shared:].any():
        return False
    counts, earlier = now.counts[:shared], before.counts[:shared]
    same = np.array_equal(counts[held], earlier[held]) and bool(now.domains[:shared][held].all())
    return same and bool((counts >= earlier).all())
