"""Test RE2 regular expressions: equal to Python's where both accept a pattern, and without exponential backtracking."""

from __future__ import annotations

import re
import time

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.cel.bounds import TooLargeError
from moorage.api.cel.regex import RegexError, compile_regex

ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\d", r"\w", r"\b", "(?:ab)", "^", "$", "1"])


def joined(parts):
    return st.lists(parts, min_size=1, max_size=3).map("".join)


def grown(inner):
    quantified = st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?", "+?", "??", "{2}"]))
    return st.one_of(quantified, joined(inner), st.builds("{}|{}".format, inner, inner), st.builds("({})".format, inner))


PATTERNS = st.recursive(joined(ATOMS), grown, max_leaves=6)
# Python keeps an empty iteration of a loop where RE2 drops it; the choice between two nearly empty branches may differ then.
TEXTS = st.text("abc1 \n", max_size=8)


@settings(max_examples=150)
@given(PATTERNS, TEXTS)
def test_finds_what_python_finds(pattern, text):
    theirs = re.search(f"(?a:{pattern})".replace("$", r"\Z"), text)
    mine = compile_regex(pattern).find(text)
    assert (mine is None) is (theirs is None)
    if theirs is not None:
        assert text.startswith(mine, theirs.start())


KNOWN = {  # pattern, text → all matches
    ("a*?b", "aab b"): ["aab", "b"],
    ("a|ab", "ab"): ["a"],
    ("(?i)AbC", "xaBc"): ["aBc"],
    ("[[:alpha:]]+", "ab1c"): ["ab", "c"],
    (r"\pL+", "aé1"): ["aé"],
    (r"[^\d\s]+", "a1 b"): ["a", "b"],
    (r"\Qa.b\E", "a.b axb"): ["a.b"],
    ("(?s).", "\n"): ["\n"],
    ("(?m)^b$", "a\nb\nc"): ["b"],
    ("x*", "axa"): ["", "x", ""],
    (r"\x41\x{42}\103", "ABC"): ["ABC"],
    ("a{2,}", "aaa"): ["aaa"],
    ("a{,2}", "a{,2}"): ["a{,2}"],
    ("[]a]+", "]a"): ["]a"],
    ("[a-]+", "a-"): ["a-"],
    ("(?U)a+", "aaa"): ["a", "a", "a"],
    ("(?P<n>a)(?<m>b)", "ab"): ["ab"],
    ("", "ab"): ["", "", ""],
}


@pytest.mark.parametrize(("given", "found"), KNOWN.items())
def test_finds_all(given, found):
    pattern, text = given
    assert compile_regex(pattern).find_all(text, -1) == found
    assert compile_regex(pattern).find_all(text, 1) == found[:1]


REFUSED = {
    "(": "missing closing ): `(`",
    ")": "unexpected ): `)`",
    "[a": "missing closing ]: `[a`",
    "*": "missing argument to repetition operator: `*`",
    "a**": "invalid nested repetition operator: `**`",
    r"a\C": "invalid escape sequence: `\\C`",
    "((x{99}){99}){99}": "invalid repeat count: `{99}`",
    "a{1001}": "invalid repeat count: `{1001}`",
    "a{2,1}": "invalid repeat count: `{2,1}`",
    "(?=a)": "invalid or unsupported Perl syntax: `(?=`",
    r"\1": "invalid escape sequence: `\\1`",
    r"\k": "invalid escape sequence: `\\k`",
    "\\": "trailing backslash at end of expression: ``",
    "[b-a]": "invalid character class range: `b-a`",
    r"\p{Nope}": "invalid character class range: `\\p{Nope}`",
}


@pytest.mark.parametrize(("pattern", "text"), REFUSED.items(), ids=REFUSED)
def test_rejects_what_re2_rejects(pattern, text):
    with pytest.raises(RegexError) as caught:
        compile_regex(pattern)
    assert str(caught.value) == f"error parsing regexp: {text}"


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$b", "(?:a?){30}a{30}b", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_backtracking_patterns_take_bounded_time(pattern):
    begun = time.thread_time()
    assert compile_regex(pattern).find("a" * 64) is None
    assert time.thread_time() - begun < 1


def test_a_pattern_that_is_refused_is_compiled_once(monkeypatch):
    parsed = []
    parse = re2.compile
    monkeypatch.setattr(re2, "compile", lambda pattern, options: parsed.append(pattern) or parse(pattern, options))
    for _ in range(3):
        with pytest.raises(RegexError, match="too large"):
            compile_regex(r"\pL{998}")
    assert len(parsed) <= 1


def test_searches_charge_for_what_they_may_take():
    def charged(text):
        taken = []
        assert compile_regex("(a|b)*c").find_all(text, -1, taken.append) == []
        return sum(taken)

    assert 0 < charged("ab" * 50) < charged("ab" * 500)
    with pytest.raises(TooLargeError, match="takes more than 20000000 steps"):
        compile_regex("(?:a?){1000}a{1000}").find("a" * 30_000)


def test_a_search_of_nothing_is_work_too():
    units = []
    compile_regex("").find("", units.append)
    assert sum(units) >= 20  # each call takes a microsecond, however short its text
    units.clear()
    assert compile_regex("a").find_all("aaa", -1, units.append) == ["a", "a", "a"]
    assert sum(units) >= 4 * 20
