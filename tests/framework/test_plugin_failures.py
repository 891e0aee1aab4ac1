"""What a plugin's author sees when the plugin raises: the place, and the nearest name."""

from __future__ import annotations

import json

import pytest

from moorage.framework.plugin_runner import failure_text
from moorage.testing.builders import a_cluster, a_node, a_pod

MISSPELT = {
    "pod": (lambda pod, nodes: pod.lables, "AttributeError: 'PodInfo' object has no attribute 'lables'", "labels"),
    "node": (lambda pod, nodes: next(iter(nodes)).annotation, "'NodeInfo' object has no attribute 'annotation'", "annotations"),
    "view": (lambda pod, nodes: nodes.lable("zone"), "'NodeView' object has no attribute 'lable'", "label"),
    "snapshot": (lambda pod, nodes: nodes.snapshot.costum("x"), "'Snapshot' object has no attribute 'costum'", "custom"),
    "global": (lambda pod, nodes: MISPELT, "NameError: name 'MISPELT' is not defined", "MISSPELT"),  # noqa: F821
    "local": (lambda pod, nodes: pood, "NameError: name 'pood' is not defined", "pod"),  # noqa: F821
}


@pytest.mark.parametrize(("rule", "says", "nearest"), MISSPELT.values(), ids=MISSPELT)
def test_a_misspelt_name_is_shown_with_its_line_and_the_nearest_one(rule, says, nearest):
    nodes = a_cluster([a_node("n")]).snapshot.nodes
    with pytest.raises((AttributeError, NameError)) as raised:
        rule(a_pod(), nodes)
    raised.value.__traceback__ = raised.value.__traceback__.tb_next
    text = failure_text(raised.value)
    assert says in text
    assert text.endswith(f" (test_plugin_failures.py, line {rule.__code__.co_firstlineno}); did you mean {nearest}?")


def text_of(action):
    try:
        action()
    except Exception as error:
        return failure_text(error)
    raise AssertionError("nothing was raised")


def test_the_place_is_the_plugins_line_not_that_of_the_library_it_calls():
    assert "(test_plugin_failures.py, line " in text_of(lambda: json.loads("{"))


def test_a_long_text_keeps_its_place():
    def fail():
        raise ValueError("x" * 5000)

    assert len(text_of(fail)) < 1000
    assert f"(test_plugin_failures.py, line {fail.__code__.co_firstlineno + 1})" in text_of(fail)


def test_an_object_that_cannot_list_its_attributes_has_no_suggestion():
    class Closed:
        def __dir__(self):
            raise RuntimeError

    assert text_of(lambda: Closed().open).endswith(")")
