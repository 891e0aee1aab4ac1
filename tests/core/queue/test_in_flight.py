"""Pods that come back hear of everything that happened since they were popped, and of nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.core.queue.in_flight import InFlight
from moorage.framework.events import Action, ClusterEvent, Resource

EVENT = ClusterEvent(Resource.NODE, Action.ADD)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from("abcd")),
        st.tuples(st.just("end"), st.sampled_from("abcd")),
        st.tuples(st.just("event"), st.just("")),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_attempt_receives_the_events_since_its_pop(steps):
    flying, plain = InFlight(), {}
    for number, (what, uid) in enumerate(steps):
        if what == "begin" and uid not in plain:
            flying.begin(uid)
            plain[uid] = []
        elif what == "end":
            flying.end(uid)
            plain.pop(uid, None)
        elif what == "event":
            flying.record(EVENT, None, number)
            for heard in plain.values():
                heard.append(number)
        assert {uid: [happening.new for happening in flying.since(uid)] for uid in plain} == plain
        assert len(flying) == len(plain)
        assert flying.logged == max((len(heard) for heard in plain.values()), default=0)


def test_no_events_are_kept_without_pods_in_flight():
    flying = InFlight()
    flying.record(EVENT, None, 1)
    assert flying.logged == 0


def test_the_log_is_as_long_as_the_oldest_attempt_needs():
    flying = InFlight()
    flying.begin("slow")
    for number in range(1000):
        flying.begin(f"p{number}")
        flying.record(EVENT, None, number)
        flying.end(f"p{number}")
    assert flying.logged == 1000
    flying.begin("late")
    flying.end("slow")
    assert flying.logged == 0
    flying.end("late")
    assert len(flying._order) == 0
