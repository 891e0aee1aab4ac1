from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.quantity import INT64_MAX, INT64_MIN, is_decimal_integer, parse_int64

READ = {
    "0": 0, "-0": 0, "+5": 5, "007": 7, "-12": -12, "0" * 5000 + "1": 1,
    "9223372036854775807": INT64_MAX, "-9223372036854775808": INT64_MIN,
}  # fmt: skip
REFUSED = [
    "",
    "+",
    "-",
    " 1",
    "1 ",
    "1\n",
    "1_000",
    "0x10",
    "1.0",
    "1e3",
    "\u0661",
    "\uff11",
    "--1",
    "9223372036854775808",
    "9" * 5000,
]


@pytest.mark.parametrize(("text", "number"), READ.items(), ids=[text[:24] for text in READ])
def test_parses(text, number):
    assert parse_int64(text) == number


@pytest.mark.parametrize("text", REFUSED, ids=[repr(text[:24]) for text in REFUSED])
def test_rejects(text):
    assert parse_int64(text) is None


@given(st.integers(INT64_MIN, INT64_MAX))
def test_parses_what_python_formats(number):
    assert parse_int64(str(number)) == number
    assert is_decimal_integer(str(number))


@pytest.mark.parametrize("text", ["0", "-1", "10", "9" * 30])
def test_recognizes_canonical_integers(text):
    assert is_decimal_integer(text)


@pytest.mark.parametrize("text", ["", "-", "-0", "01", "-01", "+1", "1.0", "1\n", "\u0661"])
def test_recognizes_what_is_not_canonical(text):
    assert not is_decimal_integer(text)
