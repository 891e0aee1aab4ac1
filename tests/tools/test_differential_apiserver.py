"""Tests of ``python -m tools.differential apiserver`` without a reference: what counts as a difference."""

import pytest

from tools.differential.api_answers import Answer, Difference, Request, differences
from tools.differential.api_known import known


def answer(body, code=200, warnings=()):
    return Answer(code, body, tuple(warnings))


def places(ours, theirs):
    return [(one.aspect, one.at) for one in differences(answer(ours), answer(theirs))]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, [("body", ".a[].b")]),
        ({"a": [1]}, {"a": [1, 2]}, [("body", ".a[]#")]),
        ({"a": 0}, {"a": False}, [("body", ".a")]),
        ({"a": None}, {}, [("body", ".a")]),
        ({"metadata": {"uid": "x", "resourceVersion": "1"}}, {"metadata": {"uid": "y", "resourceVersion": "2"}}, []),
        ({"nodePort": 30_001}, {"nodePort": 31_000}, []),
        ({"nodePort": 30_001}, {"nodePort": 80}, [("body", ".nodePort")]),
        ({"cells": ["2s"]}, {"cells": ["3m"]}, []),
    ],
)
def test_only_what_each_server_chooses_is_alike(ours, theirs, expected):
    assert places(ours, theirs) == expected


def test_codes_and_warnings_are_compared():
    assert next(differences(answer({}, 200), answer({}, 422))).aspect == "code"
    assert [one.aspect for one in differences(answer({}, warnings=["a"]), answer({}))] == ["warnings"]


REQUEST = Request("POST", "/api/v1/pods", {}, kind="pods", label="create")


@pytest.mark.parametrize(
    ("here", "there", "is_known"),
    [
        (
            'Secret "a" is invalid: [data[b]: Invalid value: "b", data[c]: Invalid value: "c"]',
            'Secret "a" is invalid: [data[c]: Invalid value: "c", data[b]: Invalid value: "b"]',
            True,
        ),
        (
            'Pod "a" is invalid: [b: Required value, c: Required value]',
            'Pod "a" is invalid: [c: Required value, b: Required value]',
            False,
        ),
        ('Pod "a" is invalid: [b: Required value, c: Required value]', 'Pod "a" is invalid: c: Required value', False),
        ("here", "there", False),
    ],
)
def test_faults_of_the_keys_of_a_map_may_have_another_order(here, there, is_known):
    assert bool(known(REQUEST, Difference("body", ".message", here, there))) == is_known
