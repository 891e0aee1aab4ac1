from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.requirements import Requirement
from moorage.api.selectors import EVERYTHING, MAX_TEXT, Selector, SelectorError, parse_selector


def selector(*requirements):
    return Selector(tuple(Requirement(key, operator, tuple(values)) for key, operator, *values in requirements))


READ = {
    "": EVERYTHING,
    " \t\r\n": EVERYTHING,
    "a": selector(("a", "Exists")),
    "!a": selector(("a", "DoesNotExist")),
    " ! a ": selector(("a", "DoesNotExist")),
    "a=b": selector(("a", "In", "b")),
    "a==b": selector(("a", "In", "b")),
    "a = b": selector(("a", "In", "b")),
    "a!=b": selector(("a", "NotIn", "b")),
    "a=": selector(("a", "In", "")),
    "a=,b": selector(("a", "In", ""), ("b", "Exists")),
    "a in (b,c)": selector(("a", "In", "b", "c")),
    "a in (c, b ,c)": selector(("a", "In", "b", "c")),
    "a in(b)": selector(("a", "In", "b")),
    "a notin (b)": selector(("a", "NotIn", "b")),
    "a in ()": selector(("a", "In", "")),
    "a in (,)": selector(("a", "In", "")),
    "a in (b,)": selector(("a", "In", "", "b")),
    "a in (,b)": selector(("a", "In", "", "b")),
    "a in (b,,c)": selector(("a", "In", "", "b", "c")),
    "a in (in,notin)": selector(("a", "In", "in", "notin")),
    "in": selector(("in", "Exists")),
    "in in (in)": selector(("in", "In", "in")),
    "notin=in": selector(("notin", "In", "in")),
    "a>1": selector(("a", "Gt", "1")),
    "a<1": selector(("a", "Lt", "1")),
    "a in (b,c),!d,e!=f": selector(("a", "In", "b", "c"), ("d", "DoesNotExist"), ("e", "NotIn", "f")),
    "example.com/role=db.1_x-y": selector(("example.com/role", "In", "db.1_x-y")),
    "a,a": selector(("a", "Exists")),
    "!a,a": selector(("a", "Exists"), ("a", "DoesNotExist")),
    "a=b\0c": selector(("a", "In", "b")),
}


@pytest.mark.parametrize(("text", "expected"), READ.items(), ids=[ascii(text) for text in READ])
def test_parses(text, expected):
    assert parse_selector(text) == expected


# Checked against `kubectl apply --prune --selector`.
NO_INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"
REFUSED = {
    ",": "found ',', expected: !, identifier, or 'end of string'",
    "=": "found '=', expected: !, identifier, or 'end of string'",
    "(": "found '(', expected: !, identifier, or 'end of string'",
    "a,": "found '', expected: identifier after ','",
    "a,,b": "found ',', expected: identifier after ','",
    "a,=": "found '=', expected: identifier after ','",
    "!": "unable to parse requirement: found '', expected: identifier",
    "!!a": "unable to parse requirement: found '!', expected: identifier",
    "!a=b": "found '=', expected: ',' or 'end of string'",
    "!a in (b)": "found 'in', expected: ',' or 'end of string'",
    "a b": "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
    "a!b": "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt",
    "a(b)": "unable to parse requirement: found '(', expected: in, notin, =, ==, !=, gt, lt",
    "a in": "unable to parse requirement: found '' expected: '('",
    "a in b": "unable to parse requirement: found 'b' expected: '('",
    "a in (": "unable to parse requirement: found '', expected: ',', ')' or identifier",
    "a in (=": "unable to parse requirement: found '=', expected: ',', ')' or identifier",
    "a in (b": "unable to parse requirement: found '', expected: ',' or ')'",
    "a in (b c)": "unable to parse requirement: found 'c', expected: ',' or ')'",
    "a in (b,": "unable to parse requirement: found '', expected: ',', or identifier",
    "a in (b,=)": "unable to parse requirement: found '=', expected: ',', or identifier",
    "a=b=c": "found '=', expected: ',' or 'end of string'",
    "a==!": "unable to parse requirement: found '!', expected: identifier",
    "a===b": "unable to parse requirement: found '=', expected: identifier",
    "a>": f'unable to parse requirement: values[0]: Invalid value: "": {NO_INTEGER}',
    "a>b": f'unable to parse requirement: values[0]: Invalid value: "b": {NO_INTEGER}',
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=REFUSED)
def test_rejects(text, message):
    with pytest.raises(SelectorError) as caught:
        parse_selector(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("key", ["a/b/c", "-a", "a" * 64, "/a", "a/", "Ä", "A.B/c", "xü"])
def test_rejects_invalid_label_keys(key):
    with pytest.raises(SelectorError, match=r"^unable to parse requirement: <nil>: Invalid value: "):
        parse_selector(key)


def test_rejects_invalid_label_values():
    with pytest.raises(
        SelectorError, match=r'^unable to parse requirement: values\[0\]\[a\]: Invalid value: "-b": a valid label'
    ):
        parse_selector("a=-b")


@pytest.mark.parametrize("text", ["a=" * 500_000, "a in (" + "b," * 500_000, "!" * 1_000_000, "(" * (MAX_TEXT + 1)])
def test_rejects_long_texts_in_bounded_time(text):
    started = time.thread_time()
    with pytest.raises(SelectorError, match="longer than 65536 characters"):
        parse_selector(text)
    assert time.thread_time() - started < 0.2


def test_parses_a_thousand_requirements():
    assert len(parse_selector(",".join(f"k{i}!=v{i}" for i in range(1000))).requirements) == 1000


@given(st.text(st.sampled_from("ab1-./ ,!=()<>\t"), max_size=24) | st.text(max_size=12))
def test_parses_or_raises_value_error(text):
    try:
        selector = parse_selector(text)
    except SelectorError:
        return
    assert parse_selector(str(selector)) == selector
