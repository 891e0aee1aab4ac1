"""The waits that end are found without looking at the others, in the order in which a look at all would find them."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.binding.binding import Binding
from moorage.core.engine.bindings import Bindings


def binding(uid, bindings, waits):
    made = Binding.begin(None, None, SimpleNamespace(pod=SimpleNamespace(uid=uid), found=None), "n", bindings.note)
    made.waits.update(waits)
    return made


def plain_turn(bindings, now, act):
    """What a pass over all held bindings does."""
    for one in list(bindings.held.values()):
        if one.verdict is not None or not one.waits or one.deadline <= now:
            act(one)
            bindings.drop(one)


def plain_deadline(bindings, now):
    return min((now if one.proceeds else one.deadline for one in bindings.held.values()), default=None)


#: A step: which binding, and what happens to it; during a turn of ``due``, or before.
ANSWERS = ("allow a", "allow b", "reject", "preempt", "drop")
steps = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(ANSWERS)), max_size=12)
waits = st.dictionaries(st.sampled_from("ab"), st.integers(0, 9).map(float), min_size=1)


class Held:
    """Bindings of which some answer others when their turn comes."""

    def __init__(self, given, during):
        self.bindings, self.during, self.met = Bindings(), during, []
        self.all = [binding(f"p{at}", self.bindings, deadlines) for at, deadlines in enumerate(given)]
        for one in self.all:
            self.bindings.hold(one)

    def answer(self, at, what):
        one = self.all[at % len(self.all)]
        if what.startswith("allow"):
            one.allow(what[-1])
        elif what == "reject":
            one.reject("a", "no")
        elif what == "preempt":
            one.preempt("a", "no")
            self.bindings.note(one)
        else:
            self.bindings.drop(one)

    def act(self, one):
        self.met.append((one.pod.uid, one.verdict is not None, bool(one.waits)))
        at = self.all.index(one)
        for other, what in self.during.get(at, ()):
            if what != "drop":
                self.answer(other, what)


@settings(max_examples=40)
@given(st.lists(waits, min_size=1, max_size=8), steps, st.dictionaries(st.integers(0, 7), steps, max_size=4), st.integers(0, 9))
def test_due_meets_what_a_pass_over_all_meets(given_waits, before, during, now):
    one, other = Held(given_waits, during), Held(given_waits, during)
    for at, what in before:
        one.answer(at, what)
        other.answer(at, what)
    for turn in range(3):  # the second turn meets those that were answered after their turn
        time_s = float(now + turn)
        assert one.bindings.next_deadline(time_s) == plain_deadline(other.bindings, time_s)
        for due in one.bindings.due(time_s):
            one.act(due)
            one.bindings.drop(due)
        plain_turn(other.bindings, time_s, other.act)
        assert one.met == other.met
        assert [each.pod.uid for each in one.bindings.waiting()] == [
            uid for uid, each in other.bindings.held.items() if not each.proceeds
        ]
        assert one.bindings.has_waiting == bool(one.bindings.waiting())


def fail(due):
    for _ in due:
        raise ZeroDivisionError


def test_what_a_fault_interrupts_is_due_again():
    bindings = Bindings()
    first, second = (binding(uid, bindings, {"a": 5.0}) for uid in ("p0", "p1"))
    for one in (first, second):
        bindings.hold(one)
    with pytest.raises(ZeroDivisionError):
        fail(bindings.due(6.0))
    assert list(bindings.due(6.0)) == [first, second]
    first.allow("a")
    assert bindings.next_deadline(1.0) == 1.0
    assert [one.pod.uid for one in bindings.waiting()] == ["p1"]
