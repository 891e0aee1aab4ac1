"""Cached scores of rooms are those of a dictionary, or unknown."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorage.cycle.room_scores import RoomScores

scores = st.dictionaries(st.integers(1, 40), st.integers(-1, 900), max_size=12)


@given(scores, scores)
def test_known_scores_are_those_that_were_kept(singly, together):
    known, cached = {**singly, **together}, RoomScores()
    for room, score in singly.items():
        cached.keep(room, score)
    if together:
        cached.keep_all(np.array(list(together)), np.array(list(together.values())))
    rooms = np.arange(1, 41)
    found, unknown = cached.find(rooms)
    found[unknown] = -9
    singles = [cached.get(room) for room in rooms.tolist()]
    assert found.tolist() == [-9 if score is None else score for score in singles]
    assert all(cached.get(room) in {None, known.get(room, "never kept")} for room in range(1, 41))


def test_the_most_recent_rooms_are_known():
    cached = RoomScores()
    for room in range(1, 1000):
        cached.keep(room, room % 7)
    assert [cached.get(room) for room in range(900, 1000)] == [room % 7 for room in range(900, 1000)]


def test_scores_that_were_kept_together_are_all_known():
    cached = RoomScores()
    cached.keep(7, 3)
    cached.keep_all(np.arange(1000, 3000), np.arange(2000))
    assert [cached.get(room) for room in (7, 1000, 2500, 2999)] == [3, 0, 1500, 1999]


def test_a_score_beyond_the_bits_of_an_entry_is_not_cached():
    cached = RoomScores()
    cached.keep(3, 1 << 24)
    cached.keep_all(np.array([4, 5]), np.array([1 << 30, 2]))
    assert [cached.get(room) for room in (3, 4, 5)] == [None, None, None]
