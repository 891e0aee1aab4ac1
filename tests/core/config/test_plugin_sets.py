"""How a profile's plugin sets come to what runs at each point."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.config.configuration import PluginRef, Plugins, PluginSet
from moorage.core.config.plugin_sets import ReadProfile, expand, merge

CATALOGUE = {
    "Sort": ("queueSort",),
    "Bind": ("bind",),
    "A": ("filter", "score"),
    "B": ("filter", "score"),
    "C": ("filter",),
    "D": ("score",),
}
DEFAULTS = (PluginRef(name="Sort"), PluginRef(name="Bind"), PluginRef(name="A", weight=2), PluginRef(name="C"))


def refs(text):
    """``A:3 B`` is plugin A with a weight of 3, then B."""
    parts = [part.partition(":") for part in text.split()]
    return tuple(PluginRef(name=name, weight=int(weight) if weight else None) for name, _, weight in parts)


def a_set(enabled="", disabled=""):
    return PluginSet(enabled=refs(enabled), disabled=refs(disabled))


def text(plugins):
    return " ".join(plugin.name if plugin.weight is None else f"{plugin.name}:{plugin.weight}" for plugin in plugins)


# defaults, enabled, disabled → what is enabled then
MERGES = {
    "nothing said": ("A:2 B", "", "", "A:2 B"),
    "added behind": ("A B", "C", "", "A B C"),
    "enabled again, in place, with its new weight": ("A:2 B", "A:5", "", "A:5 B"),
    "enabled again without a weight loses the old one": ("A:2 B", "A", "", "A B"),
    "taken away": ("A B", "", "A", "B"),
    "all taken away": ("A B", "C", "*", "C"),
    "taken away and put behind": ("A B C", "A:7", "A", "B C A:7"),
    "taken away though it was not there": ("A", "", "B", "A"),
    "twice: the last one replaces, the first stays behind": ("A B", "A:1 A:2", "", "A:2 B A:1"),
    "twice, not a default": ("A", "B B", "", "A B B"),
}


@pytest.mark.parametrize(("defaults", "enabled", "disabled", "expected"), MERGES.values(), ids=MERGES)
def test_merges(defaults, enabled, disabled, expected):
    assert text(merge(a_set(defaults), a_set(enabled, disabled)).enabled) == expected


def test_plugins_disabled_by_the_defaults_stay_disabled():
    merged = merge(a_set("A B", "A"), a_set("C", "B"))
    assert (text(merged.enabled), text(merged.disabled)) == ("C", "B A")


# the sets of a profile → filter, score with weights
EXPANSIONS = {
    "defaults": ({}, "A C", "A:2"),
    "another one everywhere": ({"multi_point": a_set("B:4")}, "A C B", "A:2 B:4"),
    "none by default": ({"multi_point": a_set("Sort Bind C", "*")}, "C", ""),
    "off at one point": ({"score": a_set(disabled="A")}, "A C", ""),
    "all off at one point": ({"filter": a_set(disabled="*")}, "", "A:2"),
    "all off but one": ({"filter": a_set("C", "*")}, "C", "A:2"),
    "again at a point comes first": ({"filter": a_set("C")}, "C A", "A:2"),
    "again at a point, with its own weight": ({"score": a_set("A:9")}, "A C", "A:9"),
    "new at a point comes last": ({"filter": a_set("B")}, "A C B", "A:2"),
    "new and again at a point": ({"filter": a_set("B C")}, "C A B", "A:2"),
    "off and on again comes last": ({"filter": a_set("A", "A")}, "C A", "A:2"),
    "at a point and everywhere": ({"multi_point": a_set("B:4"), "score": a_set("B:6")}, "A C B", "B:6 A:2"),
    "without a weight it counts once": ({"score": a_set("D")}, "A C", "A:2 D:1"),
    "a weight of zero counts once": ({"score": a_set("D:0")}, "A C", "A:2 D:1"),
}


@pytest.mark.parametrize(("sets", "filters", "scores"), EXPANSIONS.values(), ids=EXPANSIONS)
def test_expands(sets, filters, scores):
    found = expand(Plugins(**sets), DEFAULTS, ReadProfile(CATALOGUE, "plugins", "a"))
    assert found.faults == []
    assert " ".join(found.points["filter"]) == filters
    assert " ".join(f"{name}:{found.weights[name]}" for name in found.points["score"]) == scores


def test_a_last_negative_weight_is_accepted():
    """kube-scheduler's check for overflow catches a negative weight only where a later weight is added to it."""
    last = expand(Plugins(multi_point=a_set("Sort Bind A D:-1", "*")), (), ReadProfile(CATALOGUE, "plugins", "a"))
    first = expand(Plugins(multi_point=a_set("Sort Bind D:-1 A", "*")), (), ReadProfile(CATALOGUE, "plugins", "a"))
    assert (last.faults, last.weights) == ([], {"A": 1, "D": -1})
    assert [fault.field for fault in first.faults] == ["plugins.score"]


names = st.sampled_from(["A", "B", "C", "D"])
unique = st.lists(names, unique=True, max_size=4)
gone = st.lists(st.sampled_from(["A", "B", "C", "D", "*"]), unique=True, max_size=2)


@settings(max_examples=50, deadline=None)
@given(everywhere=unique, here=unique, off=gone)
def test_the_order_at_a_point_is_the_documented_one(everywhere, here, off):
    """First what the point enables of ``multiPoint``, in the point's order; then the rest of that; then of the point."""
    here = [name for name in here if "filter" in CATALOGUE[name]]
    sets = Plugins(multi_point=a_set(" ".join(["Sort", "Bind", *everywhere]), "*"), filter=a_set(" ".join(here), " ".join(off)))
    spread = [] if "*" in off else [name for name in everywhere if "filter" in CATALOGUE[name] and name not in off]
    first = [name for name in here if name in spread]
    expected = first + [name for name in spread if name not in here] + [name for name in here if name not in first]
    assert list(expand(sets, (), ReadProfile(CATALOGUE, "plugins", "a")).points["filter"]) == expected
