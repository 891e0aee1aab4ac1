"""A heap with removal agrees with a sorted list, and keeps no removed members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.core.queue.heap import LazyHeap

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from("abcdefg"), st.integers(0, 5)),
        st.tuples(st.just("discard"), st.sampled_from("abcdefg"), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_heap_pops_in_sorted_order(steps):
    heap, plain, serial = LazyHeap(), {}, 0
    for what, name, key in steps:
        if what == "push":
            serial += 1
            heap.push(name, key, key % 2, f"{name}{serial}")
            plain[name] = (key, serial, f"{name}{serial}")
        elif what == "discard":
            assert heap.discard(name) is (plain.pop(name, None) is not None)
        else:
            first = min(plain.items(), key=lambda item: item[1], default=None)
            assert heap.peek() == heap.pop() if first is None else heap.pop() == plain.pop(first[0])[2]
        assert list(heap) == [item for _, _, item in sorted(plain.values())]
        assert len(heap) == len(plain)
        assert all((name in heap) is (name in plain) for name in "abcdefg")


def test_removed_members_leave_no_state():
    heap = LazyHeap()
    heap.push("first", 0, 0, "first")
    for number in range(5000):
        heap.push("again", number, 0, "again")
        heap.push(f"p{number}", number, 0, "p")
        heap.discard(f"p{number}")
    assert len(heap._heap) < 200
    assert [heap.pop(), heap.pop(), heap.pop()] == ["first", "again", None]
