from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.durations import DurationError, duration_seconds, format_duration, parse_duration

MICRO, MILLI, SECOND = 10**3, 10**6, 10**9
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND

READ = {
    "0": 0, "+0": 0, "-0": 0, "0s": 0, "5s": 5 * SECOND, "1m30s": 90 * SECOND, "1478s": 1478 * SECOND, "-5s": -5 * SECOND,
    "+5s": 5 * SECOND, "5.0s": 5 * SECOND, "5.6s": 5600 * MILLI, "5.s": 5 * SECOND, ".5s": 500 * MILLI, "1.004s": 1004 * MILLI,
    "10ns": 10, "11us": 11 * MICRO, "12µs": 12 * MICRO, "12μs": 12 * MICRO,
    "13ms": 13 * MILLI, "15m": 15 * MINUTE, "16h": 16 * HOUR,
    "-1.5h": -90 * MINUTE, "3h30m": 210 * MINUTE, "10.5s4m": 4 * MINUTE + 10500 * MILLI, "1h1h": 2 * HOUR,
    "0.3333333333333333333h": 20 * MINUTE, "0.100000000000000000000h": 6 * MINUTE, "0.9ns": 0, "0." + "0" * 100 + "1h": 0,
    "9007199254.740993ms": 9007199254740993, "9223372036854775807ns": 2**63 - 1, "-9223372036854775808ns": -(2**63),
    "2562047h47m16.854775807s": 2**63 - 1,
}  # fmt: skip


@pytest.mark.parametrize(("text", "nanoseconds"), READ.items(), ids=[text[:30] for text in READ])
def test_parses(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


REFUSED = {
    "": 'time: invalid duration ""',
    "3": 'time: missing unit in duration "3"',
    "1s2": 'time: missing unit in duration "1s2"',
    "-": 'time: invalid duration "-"',
    "s": 'time: invalid duration "s"',
    ".": 'time: invalid duration "."',
    ".s": 'time: invalid duration ".s"',
    "--1s": 'time: invalid duration "--1s"',
    "1d": 'time: unknown unit "d" in duration "1d"',
    "1 s": 'time: unknown unit " s" in duration "1 s"',
    "1s\n": r'time: unknown unit "s\x0a" in duration "1s\x0a"',
    "1S": 'time: unknown unit "S" in duration "1S"',
    "\uff11s": r'time: invalid duration "\xef\xbc\x91s"',
    "1.2.3s": 'time: missing unit in duration "1.2.3s"',
    "9223372036854775808ns": 'time: invalid duration "9223372036854775808ns"',
    "9223372036854775.808us": 'time: invalid duration "9223372036854775.808us"',
    "2562048h": 'time: invalid duration "2562048h"',
    "-9223372036854775809ns": 'time: invalid duration "-9223372036854775809ns"',
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=[ascii(text) for text in REFUSED])
def test_rejects(text, message):
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


def test_errors_for_long_strings_are_short():
    with pytest.raises(DurationError) as caught:
        parse_duration("9" * 1_000_000 + "h")
    assert len(str(caught.value)) < 300


PRINTED = {
    0: "0s", 1: "1ns", 1100: "1.1µs", 2200 * MICRO: "2.2ms", 3300 * MILLI: "3.3s", 100 * MILLI: "100ms", 90 * SECOND: "1m30s",
    5 * MINUTE + 5001 * MILLI: "5m5.001s", 5 * HOUR + 6 * MINUTE + 7001 * MILLI: "5h6m7.001s", 8 * MINUTE + 1: "8m0.000000001s",
    HOUR: "1h0m0s", 100 * SECOND: "1m40s", -90 * SECOND: "-1m30s", 2**63 - 1: "2562047h47m16.854775807s",
    -(2**63): "-2562047h47m16.854775808s", 10 * SECOND: "10s", 30 * MINUTE: "30m0s",
}  # fmt: skip


@pytest.mark.parametrize(("nanoseconds", "text"), PRINTED.items(), ids=PRINTED.values())
def test_formats(nanoseconds, text):
    assert format_duration(nanoseconds) == text


def test_parses_seconds():
    assert duration_seconds("1m30.5s") == 90.5


@given(st.integers(-(2**63), 2**63 - 1))
def test_parses_what_it_formats(nanoseconds):
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@given(st.text(st.sampled_from("0123456789.+-nuµmsh "), max_size=12) | st.text(max_size=8))
def test_parses_or_raises_value_error(text):
    try:
        nanoseconds = parse_duration(text)
    except DurationError:
        return
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds
