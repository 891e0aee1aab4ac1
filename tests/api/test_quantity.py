"""Test quantities: each expected text and number was checked against kubectl, and so against apimachinery."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moorage.api.quantity import QuantityError, _amount, _nano_of, added, canonical, milli_value, parse, sign, value
from moorage.errors import InputError

MAX = 2**63 - 1

NUMBERS = {  # text: (whole units, thousandths)
    "0": (0, 0), "0m": (0, 0), "-0": (0, 0), "0.0Ki": (0, 0),
    "1": (1, 1000), "+1": (1, 1000), "007": (7, 7000), ".5": (1, 500), "5.": (5, 5000), "0.5": (1, 500),
    "100m": (1, 100), "1500m": (2, 1500), "0.1m": (1, 1), "1n": (1, 1), "1u": (1, 1), "1.0001": (2, 1001),
    "1k": (1000, 10**6), "1M": (10**6, 10**9), "1G": (10**9, 10**12), "1T": (10**12, 10**15), "1P": (10**15, 10**18),
    "1Ki": (1024, 1024000), "1Mi": (1 << 20, 1000 << 20), "1Gi": (1 << 30, 1000 << 30), "1.5Gi": (1536 << 20, 1536000 << 20),
    "0.1Ki": (103, 102400), "1.1Mi": (1153434, 1153433600),
    "1e3": (1000, 10**6), "1E3": (1000, 10**6), "12e-3": (1, 12), "1e+2": (100, 10**5), "1e-30": (1, 1),
    "1E": (10**18, MAX), "1Ei": (1 << 60, MAX), "9223372036854775807": (MAX, MAX), "1e30": (MAX, MAX), "10Ei": (MAX, MAX),
    "1e999999": (MAX, MAX), "1e999999999999": (MAX, MAX), "0e999999": (0, 0),
    "-1": (-1, -1000), "-1.5": (-2, -1500), "-0.1n": (-1, -1), "-1e30": (-MAX, -MAX),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), NUMBERS.items(), ids=NUMBERS)
def test_parses(text, expected):
    assert (value(text), milli_value(text)) == expected


CANONICAL = {
    "0.1": "100m", ".5": "500m", "1.1Mi": "1153433600m", "1500000": "1500k", "1e3": "1e3", "1E3": "1E3", "1.5e3": "1500",
    "1000": "1k", "1024": "1024", "1024Ki": "1Mi", "1025Ki": "1025Ki", "16384Ki": "16Mi", "0.5Ki": "512", "1.5Gi": "1536Mi",
    "100000m": "100", "1500m": "1500m", "0m": "0", "-0": "0", "0.1n": "1n", "1e1000000": "10e999999", "1e30": "1e30",
    "12345678901234567890e30": "12345678901234567890e30", "10Ei": "9223372036854775807", "-1.5": "-1500m", "00.5": "500m",
    # A text that Go deems canonical enough stays as written.
    "+1": "+1", "5.": "5.", "1.500": "1.500", "1e+3": "1e+3",
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CANONICAL.items(), ids=CANONICAL)
def test_formats(text, expected):
    assert canonical(text) == expected


def test_formats_numbers_above_the_largest_suffix_exactly():
    assert canonical("1000E") == "1000E"  # apimachinery prints "1"


NUMERIC = {
    2: (2, "2"),
    0: (0, "0"),
    -5: (-5, "-5"),
    1000: (1000, "1k"),
    0.5: (1, "500m"),
    2**70: (MAX, str(2**70)),
}


@pytest.mark.parametrize(("given_number", "expected"), NUMERIC.items(), ids=map(str, NUMERIC))
def test_converts_json_numbers(given_number, expected):
    assert (value(given_number), canonical(given_number)) == expected


def test_converts_integral_floats():
    assert (value(1e3), canonical(1e3)) == (1000, "1k")


def test_converts_an_integer_of_many_digits():
    assert value(10**5000) == MAX
    assert value(-(10**5000)) == -MAX


INVALID = [
    "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-", " 1", "1 ", "", "1\n", "\u0661",
    "\uff11", "0x10",
    "1_000", "NaN", "Infinity", "inf", ".", "+", "-", "-.", "1e", "1ee3", "1e3.5", "1n5", "1KI", "1ki", "1m5", "--1", "1-", "m",
    "Ki", "1e99999999999999999999", "\x00", "1\x00", "1,5", "9" * 513, "1" + " " * 600,
]  # fmt: skip


@pytest.mark.parametrize("text", INVALID, ids=[ascii(text)[:24] for text in INVALID])
def test_rejects_texts(text):
    for function in (parse, value, milli_value, canonical, sign):
        with pytest.raises(QuantityError, match=r"^cannot parse ") as caught:
            function(text)
        assert len(str(caught.value)) < 200
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("thing", [None, True, False, [], {}, float("nan"), float("inf"), -float("inf"), b"1"], ids=repr)
def test_rejects_values_that_are_no_quantity(thing):
    with pytest.raises(QuantityError):
        parse(thing)
    with pytest.raises(QuantityError):
        canonical(thing)


def test_uses_apimachinerys_error_text():
    with pytest.raises(InputError) as caught:
        parse("0.1mi")
    assert str(caught.value) == "cannot parse '0.1mi': unable to parse quantity's suffix"
    with pytest.raises(InputError) as caught:
        parse("1.1.M")
    assert str(caught.value) == (
        "cannot parse '1.1.M': quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


@pytest.mark.parametrize(
    "text", ["1e999999999", "-1e999999999", "1e-999999999", "9" * 512, "0." + "1" * 500, "9" * 400 + "e-9999"]
)
def test_large_exponents_take_bounded_time(text):
    started = time.thread_time()
    parse(text)
    canonical(text)
    assert time.thread_time() - started < 0.05


# -- properties: compared with fractions ----------------------------------------------------------------------------------

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
exponents = st.integers(-14, 25).map("e{}".format)
suffixes = st.one_of(st.sampled_from([*DECIMAL, *BINARY]), exponents, exponents.map(str.upper))
digits = st.text("0123456789", min_size=1, max_size=22)
numerals = st.one_of(digits, st.tuples(digits, digits).map(".".join), digits.map(".{}".format), digits.map("{}.".format))
quantities = st.tuples(st.sampled_from(["", "+", "-"]), numerals, suffixes).map("".join)


def exact_value(text):
    """Return the exact value of a well-formed quantity."""
    number, suffix = re.fullmatch(r"([-+]?[0-9.]+)(.*)", text).groups()
    if suffix in BINARY:
        scale = Fraction(2) ** BINARY[suffix]
    elif suffix in DECIMAL:
        scale = Fraction(10) ** DECIMAL[suffix]
    else:
        scale = Fraction(10) ** int(suffix[1:])
    return Fraction(number.strip(".") if number.endswith(".") else number) * scale


def away_from_zero(exact, step):
    whole = -(-abs(exact) // step)
    return int(min(whole, MAX * (1 / step))) * (1 if exact >= 0 else -1)


@given(quantities)
@example("1234567890123456789.1234567891")
@example("-0.0000000001")
def test_agrees_with_fractions(text):
    exact = exact_value(text)
    nano = away_from_zero(exact, Fraction(1, 10**9))
    assert parse(text) == nano
    assert value(text) == max(-MAX, min(MAX, away_from_zero(Fraction(nano, 10**9), Fraction(1))))
    milli = -(-abs(nano) // 10**6) * (1 if nano >= 0 else -1)
    assert milli_value(text) == max(-MAX, min(MAX, milli))
    assert sign(text) == (exact > 0) - (exact < 0)


@given(
    st.from_regex(r"[+-]?[0-9]{0,11}(\.[0-9]{0,2})?", fullmatch=True),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "E", "Ki", "Mi", "Gi", "Ti", "Ei", "i", "mi", "e3", "٣"]),
)
def test_texts_that_are_read_at_once_are_read_as_others(digits, suffix):
    text = digits + suffix
    try:
        expected = _nano_of(_amount(text))
    except QuantityError:
        with pytest.raises(QuantityError):
            parse(text)
    else:
        assert parse(text) == expected


@given(quantities)
def test_the_canonical_form_is_equal_and_stable(text):
    form = canonical(text)
    assert parse(form) == parse(text)
    assert canonical(form) == form


SUMS = [("1Gi", "1024Mi", "2Gi"), ("1Gi", "1", "1073741825"), ("0", "512Mi", "512Mi"), ("500m", "500m", "1")]


@pytest.mark.parametrize(("one", "other", "total"), SUMS)
def test_a_sum_has_the_suffixes_of_the_first_amount(one, other, total):
    assert added(one, other) == total


@given(quantities, quantities)
def test_preserves_order(one, other):
    if exact_value(one) <= exact_value(other):
        assert parse(one) <= parse(other)
        assert value(one) <= value(other)


@given(st.text(st.characters(codec="utf-8"), max_size=12) | st.text("0123456789.+-eEinumkKMGTP", max_size=12))
def test_parses_or_raises_value_error(text):
    try:
        number = parse(text)
    except QuantityError:
        with pytest.raises(QuantityError):
            canonical(text)
    else:
        assert parse(canonical(text)) == number


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_converts_every_finite_number(number):
    nano = away_from_zero(Fraction(repr(number)), Fraction(1, 10**9))
    assert parse(number) == nano


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl as an oracle")
def test_formats_as_kubectl_does(tmp_path):
    texts = [text for text in [*CANONICAL, *NUMBERS] if not re.search(r"e[0-9]{4}", text)]  # kubectl takes hours for those
    containers = [{"name": f"c{i}", "image": "i", "resources": {"requests": {"cpu": text}}} for i, text in enumerate(texts)]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": containers}}
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    run = subprocess.run(
        ["kubectl", "set", "image", "--local", "-f", file, "c0=x", "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    printed = [one["resources"]["requests"]["cpu"] for one in json.loads(run.stdout)["spec"]["containers"]]
    assert dict(zip(texts, printed, strict=True)) == {text: canonical(text) for text in texts}


MEANT = {
    "8GB": "8G or 8Gi", "512mb": "512M or 512Mi", "1.5 TB": "1.5T or 1.5Ti", "64kB": "64k or 64Ki", "2GiB": "2Gi",
    "1Gbyte": "1G or 1Gi",
}  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), MEANT.items())
def test_a_size_in_bytes_suggests_a_quantity(text, meant):
    with pytest.raises(QuantityError, match=f"; did you mean {meant}\\?$"):
        parse(text)
    assert all(parse(one) > 0 for one in meant.split(" or "))
