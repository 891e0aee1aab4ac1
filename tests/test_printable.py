"""Text from outside is printed so that it can do nothing but be read."""

from __future__ import annotations

import json
import unicodedata

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage.basis.printable import MOST_BYTES, clip, escape_json, is_printable, one_line, some_lines
from moorage.report.yaml_writing import yaml_text

ESCAPED = {  # what it is: text, as one line
    "plain text": ("web-0 é ü 名前 ✓", "web-0 é ü 名前 ✓"),
    "a colour": ("a\x1b[31mb", r"a\x1b[31mb"),
    "a bell": ("a\a", r"a\x07"),
    "a window title in C1": ("\x9d0;x\x9c", r"\x9d0;x\x9c"),
    "an order of reading": ("\u202egnp.exe", r"\u202egnp.exe"),
    "an isolate": ("\u2066a\u2069", r"\u2066a\u2069"),
    "no width": ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
    "a filler that is a letter": ("a\u3164", r"a\u3164"),
    "a variation selector": ("a\ufe0f\U000e0100", r"a\ufe0f\U000e0100"),
    "a tag": ("a\U000e0041", r"a\U000e0041"),
    "lines": ("a\nb\r\nc\u2028d\u2029e\x85", r"a\nb\r\nc\u2028d\u2029e\x85"),
    "a tab": ("a\tb", r"a\tb"),
    "a surrogate": ("a\udcff", r"a\udcff"),
    "a blank that does not break": ("a\xa0b", r"a\xa0b"),
    "something escaped before": (r"a\x1b", r"a\x1b"),
}


@pytest.mark.parametrize(("text", "shown"), ESCAPED.values(), ids=ESCAPED)
def test_one_line(text, shown):
    assert one_line(text) == shown
    assert one_line(shown) == shown


def test_several_lines_keep_line_feeds_and_tabs_alone():
    assert some_lines("a\n\tb\r\x1b[2J\u2028c") == "a\n\tb\\r\\x1b[2J\\u2028c"


def misleads(character):
    """Say whether a character may do more than be read, by Unicode's own tables."""
    return unicodedata.category(character)[0] in "CZ" and character != " "


@given(st.text(st.characters(codec=None, categories=None)))
def test_nothing_that_misleads_is_left(text):
    line = one_line(text)
    assert is_printable(line)
    assert not any(map(misleads, line))
    assert not any(map(misleads, some_lines(text).replace("\n", "").replace("\t", "")))
    line.encode()  # no surrogate is left


@given(
    st.lists(
        st.sampled_from(
            [*"aé名✓\n\t", "\x1b", "\x85", "\u202e", "\u3164", "\udcff", "\ud83d\ude00", "\U0001f600", "\U000e0100"]
        )
    )
)
def test_a_text_is_left_alone_exactly_if_all_its_lines_are_printable(characters):
    text = "".join(characters)
    shown = all(is_printable(one) for one in characters if one not in "\n\t")
    assert (some_lines(text) == text) == shown
    assert (escape_json(text) == text) == shown


@pytest.mark.slow
@given(st.recursive(st.text() | st.integers(), lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside)))
def test_documents_say_the_same_and_mislead_no_terminal(value):
    as_json = escape_json(json.dumps(value, ensure_ascii=False, indent=1))
    as_yaml = yaml_text(value, sort_keys=False)
    assert json.loads(as_json) == value
    assert yaml.safe_load(as_yaml) == value
    assert is_printable((as_json + as_yaml).replace("\n", ""))


def test_a_long_text_is_cut_and_says_how_long_it_was():
    assert clip("a" * MOST_BYTES) == "a" * MOST_BYTES
    shown = clip("é\x1b" * 500_000)
    assert shown.startswith(r"é\x1bé")
    assert shown.endswith(" … (1000000 characters)")
    assert MOST_BYTES - 4 < len(shown.encode()) <= MOST_BYTES


@given(st.text(), st.integers(60, 200))
def test_what_is_cut_is_one_line_within_bounds(text, most):
    shown = clip(text * 20, most)
    assert is_printable(shown)
    assert len(shown.encode()) <= most
