"""Packed texts of traces: equal to lists of strings, and small."""

import tracemalloc
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.simulator.trace_builder import PackedTexts, RowNames, TraceBuilder, repeats

TEXTS = st.lists(st.sampled_from(["", "a", "b", "é", "\ud800", "a.1", "longer-name"]) | st.text(max_size=5), max_size=30)


@settings(max_examples=40)
@given(TEXTS, st.integers(1, 4))
def test_packed_texts_are_a_list_and_repeats_are_numbered(given_, hashes):
    """Also where different texts have equal hashes."""
    texts, plain, counts = PackedTexts(), [], {}
    for text in given_:
        texts.append(text)
        number = counts[text] = counts.get(text, -1) + 1
        plain.append(f"{text}.{number}" if number else text)
    assert list(texts) == given_
    assert texts[1:-1] == given_[1:-1]
    names = RowNames(texts, repeats(texts, array("q", [hash(text) % hashes for text in given_])))
    assert list(names) == plain
    assert names[:3] == plain[:3]
    with pytest.raises(IndexError):
        texts[len(given_)]


def test_a_row_takes_little_memory_while_it_is_read_and_afterwards():
    tracemalloc.start()
    try:
        builder = TraceBuilder()
        for at in range(20_000):
            builder.add(f"pod-{at:012}", 0, float(at), None, [f"job-{at:08}"])
        trace = builder.finish([])
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace) == 20_000
    assert now < 150 * 20_000
    assert peak < 200 * 20_000
