"""Conflicts and correction sets, held against brute force over all families."""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from moorage.laboratory.conflicts import conflicts, correction_sets
from moorage.laboratory.verdicts import Constraint

names = st.sampled_from([Constraint("P", str(at)) for at in range(6)])
families = st.lists(st.frozensets(names, max_size=5), min_size=1, max_size=8)


def subsets(items):
    return map(frozenset, chain.from_iterable(combinations(sorted(items), n) for n in range(len(items) + 1)))


def minimal(found):
    return {one for one in found if not any(other < one for other in found)}


@given(families)
def test_conflicts_are_the_minimal_families_that_meet_every_set(sets):
    universe = frozenset().union(*sets)
    hitting = {one for one in subsets(universe) if all(one & each for each in sets)}
    expected = minimal(hitting) if all(sets) else set()
    assert set(conflicts(sets, most=1000)) == expected


@given(families)
def test_correction_sets_are_the_minimal_sets(sets):
    assert set(correction_sets(sets)) == minimal(set(sets))


@given(families)
def test_the_smallest_conflicts_come_first_and_few_are_enough(sets):
    found = conflicts(sets, most=3)
    assert len(found) <= 3
    sizes = [len(one) for one in conflicts(sets, most=1000)]
    assert sizes == sorted(sizes)
    assert [len(one) for one in found] == sizes[:3]
