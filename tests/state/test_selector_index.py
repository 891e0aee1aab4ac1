"""An index of selectors must never miss one that selects the pod, and should leave most others out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.selectors import NOTHING, Requirement, Selector, selector_from_map
from moorage.state.selector_index import SelectorIndex

KEYS, VALUES = ["a", "b", "c"], ["1", "2", "3"]
requirements = st.one_of(
    st.builds(
        lambda key, op, values: Requirement(key, op, tuple(values)),
        st.sampled_from(KEYS), st.sampled_from(["In", "NotIn"]), st.sets(st.sampled_from(VALUES), min_size=1),
    ),
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from(["Exists", "DoesNotExist"])),
)  # fmt: skip
selectors = st.one_of(st.just(NOTHING), st.builds(lambda asked: Selector(tuple(asked)), st.lists(requirements, max_size=3)))
namespaces = st.one_of(st.none(), st.frozensets(st.sampled_from(["red", "blue"])))
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@given(
    st.lists(st.tuples(st.integers(), namespaces, selectors), unique_by=lambda filed: filed[0], max_size=8),
    st.integers(0, 8), st.sampled_from(["red", "blue", "grey"]), labels,
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_candidates_hold_every_matching_selector_once(filed, gone, namespace, asked):
    index = SelectorIndex[int]()
    for item in filed:
        index.add(*item)
    for item in filed[:gone]:
        index.remove(*item)
    found = list(index.candidates(namespace, asked))
    assert len(found) == len(set(found))
    wanted = {
        item for item, where, selector in filed[gone:] if (where is None or namespace in where) and selector.matches(asked)
    }
    assert wanted <= set(found) <= {item for item, _, _ in filed[gone:]}


def test_a_pod_meets_only_selectors_that_require_its_labels():
    index = SelectorIndex[int]()
    for number in range(1000):
        index.add(number, frozenset(["default"]), selector_from_map({"tier": "web", "app": f"app-{number}"}))
    assert list(index.candidates("default", {"app": "app-7", "tier": "db"})) == [7]
    assert list(index.candidates("other", {"app": "app-7", "tier": "db"})) == []


def test_a_selector_is_indexed_by_its_rarest_requirement():
    index = SelectorIndex[str]()
    wide = Requirement("a", "In", ("1", "2", "3"))
    index.add("x", None, Selector((wide, Requirement("b", "In", ("1",)))))
    assert list(index.candidates("red", {"a": "1"})) == []
    assert list(index.candidates("red", {"b": "1"})) == ["x"]


def test_the_index_is_empty_after_all_removals():
    index = SelectorIndex[str]()
    index.add("x", frozenset(["red", "blue"]), selector_from_map({"a": "1"}))
    index.add("y", None, Selector())
    index.remove("x", frozenset(["red", "blue"]), selector_from_map({"a": "1"}))
    index.remove("y", None, Selector())
    assert not index._filed
