"""A reader of a change log learns of every row that differs from what it read before, and skips what was undone."""

from __future__ import annotations

import random

import pytest

from moorage.state.change_log import RowLog


class Model:
    """Values of rows with a log, changes that are undone, and readers that keep what they read."""

    def __init__(self, seed, rows=12):
        self.pick = random.Random(seed)
        self.values = [0] * rows
        self.log = RowLog(200)
        self.readers = [(0, list(self.values)) for _ in range(4)]
        self.serial = 0

    def change(self, undo):
        row = self.pick.randrange(len(self.values))
        undo.append((row, self.values[row]))
        self.serial += 1
        self.values[row] = self.serial
        self.log.note(row)

    def read(self):
        at = self.pick.randrange(len(self.readers))
        position, known = self.readers[at]
        rows, many = self.log.since(position), self.log.many_since(position, len(self.values))
        if rows is None:
            assert many is None
        else:
            assert set(many.tolist()) == set(rows)
            differ = {row for row, value in enumerate(self.values) if value != known[row]}
            assert differ <= set(rows)
            assert len(rows) == self.log.behind(position)
        self.readers[at] = (self.log.position, list(self.values))

    def play(self, depth=0):
        """Change, read and open transactions; return how to undo the changes that were kept."""
        undo = []
        for _ in range(self.pick.randrange(6)):
            act = self.pick.choice(["change", "change", "read", "transaction"])
            if act == "change":
                self.change(undo)
            elif act == "read":
                self.read()
            elif depth < 3:
                begin = self.log.position
                inner = self.play(depth + 1)
                if self.pick.random() < 0.3:
                    undo += inner
                    continue
                for row, value in reversed(inner):
                    self.values[row] = value
                    self.log.note(row)
                self.log.note_undone(begin)
        return undo


@pytest.mark.parametrize("seed", range(40))
def test_readers_learn_of_all_differences(seed):
    model = Model(seed)
    for _ in range(60):
        model.play()
        model.read()


def test_a_reader_skips_what_was_undone_before_and_after_other_changes():
    log = RowLog()
    log.note(1)
    for row in (2, 3, 4):
        begin = log.position
        log.note(row)
        middle = log.position
        log.note(row)
        log.note_undone(begin)
    assert log.since(0) == [1]
    assert log.since(1) == []
    assert log.since(middle) == [4]
    assert log.since(2) == [2], "a reader in the middle of a span skips the next ones"
    log.note(5)
    begin = log.position
    log.note(6)
    log.note_undone(begin)
    assert log.since(0) == [1, 5]
    assert log.behind(0) == 2
    assert log.many_since(0, 10).tolist() == [1, 5]
    assert log.many_since(begin, 10).tolist() == []


def test_many_undone_spans_keep_the_log_short():
    log = RowLog()
    for row in range(1000):
        log.note(row)
        begin = log.position
        log.note(row)
        log.note_undone(begin)
    assert len(log._begins) == len(log._ends) <= 512
    assert log.since(log.position - 20) == list(range(990, 1000))


def test_a_reader_between_undone_spans_needs_to_follow_none_of_them_however_many_there_are():
    log = RowLog()
    at = None
    for row in range(5000):
        begin = log.position
        log.note(row)
        log.note_undone(begin)
        if row == 1000:
            at = log.position
        if at is not None:
            assert log.behind(at) == 0, row
    assert len(log._begins) == len(log._ends) <= 512
