"""Test YAML scalars: each line of these tables was checked with kubectl."""

from __future__ import annotations

import json
import math
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.reading.yaml_scalars import ScalarError, key_text, resolve_plain, resolve_tagged, to_json

TRUE = ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"]
FALSE = ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"]
NULL = ["~", "null", "Null", "NULL"]
TEXT = [
    "yEs", "oN", "tRUE", "nULL", "none", "nil", "t", "f", "Yes.", "1:30", "12:30:45", "2020-01-01", "2020-01-01T00:00:00Z",
    "=", "a",
    "0xG", "0o8", "0b2", "0x", "0b", "1e", "e1", ".", "+", "+-1", "1.2.3", "1-2", "1,000", "1e400", "-1e400", "._5", "_1",
    "5e-",
    "0x1p4", "inf", "nan", "NaN", "Infinity", "1_0e", "10.0.0.1", "0a1b2c3d-4e5f", "1Gi", "100m", "\u0661",
]  # fmt: skip
NUMBERS = {
    "0": 0, "-0": 0, "00": 0, "1": 1, "+1": 1, "-1": -1, "0777": 511, "-0777": -511, "08": 8, "0o17": 15, "0O17": 15,
    "0x1F": 31, "-0x1f": -31, "0X1f": 31,
    "0b11": 3, "0B11": 3, "-0b11": -3, "0b-11": -3, "0b+11": 3, "1_000": 1000, "1__0": 10, "1_": 1,
    "0x_1F": 31, "9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63), "123456789012345678": 123456789012345678,
    "1e3": 1000, "1E3": 1000, "25105916e1": 251059160, "1.0": 1, "5.": 5, "1_0.0": 10, "1e20": 10**20,
    "18446744073709551616": 18446744073709552000, "-9223372036854775809": -9223372036854776000,
    ".5": 0.5, "+.5": 0.5, "-.5": -0.5, ".5_0": 0.5, "1.50": 1.5, "0.1": 0.1, "1_0.5": 10.5, "1e21": 1e21, "1e-7": 1e-7,
    "5e-324": 5e-324, "1.7976931348623157e308": 1.7976931348623157e308, "1e-400": 0,
}  # fmt: skip
PLAIN = {
    **dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False), **dict.fromkeys(NULL), **{text: text for text in TEXT},
    **NUMBERS,
}  # fmt: skip


def as_json(value):
    return to_json(value) if isinstance(value, float) else value


@pytest.mark.parametrize(("text", "expected"), PLAIN.items(), ids=[ascii(text) for text in PLAIN])
def test_resolves_plain_scalars(text, expected):
    found = as_json(resolve_plain(text))
    assert found == expected
    assert type(found) is type(expected)


def test_resolves_nothing_to_null():
    assert resolve_plain("") is None


def test_keeps_64_bit_integers_exact():
    assert resolve_plain("18446744073709551615") == 2**64 - 1  # kubectl converts it to a float


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "+.Inf", "-.INF"])
def test_rejects_values_that_json_lacks(text):
    value = resolve_plain(text)
    assert isinstance(value, float)
    with pytest.raises(ScalarError, match=r"^unsupported value: (NaN|\+Inf|-Inf)$"):
        to_json(value)


KEYS = {
    "y": "true", "n": "false", "On": "true", "1": "1", "0x10": "16", "0777": "511", "1.5": "1.5", "1e3": "1000",
    "1e5": "100000",
    "1e6": "1e+06", "1234567.5": "1.2345675e+06", "0.1": "0.1", "1e-4": "0.0001", "1e-5": "1e-05",
    "16777217.5": "1.6777218e+07",
    "3.4e38": "3.4e+38", "1e39": ".inf", "-1e39": "-.inf", ".inf": ".inf", "-.inf": "-.inf", ".nan": ".nan", "1e-60": "0",
    "2020-01-01": "2020-01-01", "-5": "-5", "abc": "abc", "0.30000000000000004": "0.3", "100000.5": "100000.5",
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), KEYS.items(), ids=KEYS)
def test_converts_keys_to_strings(text, expected):
    assert key_text(resolve_plain(text)) == expected


@pytest.mark.parametrize("text", ["~", "null", "18446744073709551615"])
def test_rejects_keys_without_a_string_form(text):
    with pytest.raises(ScalarError, match=r"^unsupported map key: "):
        key_text(resolve_plain(text))


TAG = "tag:yaml.org,2002:"
TAGGED = {
    "text": ("str", "5", "5"), "integer": ("int", "5", 5), "octal": ("int", "010", 8), "float": ("float", "5", 5),
    "fraction": ("float", ".5", 0.5), "boolean": ("bool", "yes", True), "null": ("null", "~", None),
    "binary": ("binary", "aGk=", "hi"),
    "binary over several lines": ("binary", "aG\nk=\n", "hi"), "a date": ("timestamp", "2020-01-01", "2020-01-01"),
    "a moment": ("timestamp", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"), "unknown": ("set", "5", "5"),
}  # fmt: skip


@pytest.mark.parametrize(("tag", "text", "expected"), TAGGED.values(), ids=TAGGED)
def test_resolves_tagged_scalars(tag, text, expected):
    assert as_json(resolve_tagged(TAG + tag, text)) == expected


@pytest.mark.parametrize("tag", ["!", "!foo", "tag:example.com,2000:int"])
def test_unknown_tags_leave_the_string(tag):
    assert resolve_tagged(tag, "5") == "5"


CONTRADICTIONS = {
    "int": ("x", "cannot decode !!str `x` as a !!int"),
    "float": ("x", "cannot decode !!str `x` as a !!float"),
    "bool": ("1", "cannot decode !!int `1` as a !!bool"),
    "null": ("x", "cannot decode !!str `x` as a !!null"),
    "timestamp": ("1", "cannot decode !!int `1` as a !!timestamp"),
    "binary": ("a", "!!binary value contains invalid base64 data"),
}


@pytest.mark.parametrize(("tag", "case"), CONTRADICTIONS.items(), ids=CONTRADICTIONS)
def test_rejects_values_that_contradict_their_tag(tag, case):
    text, message = case
    with pytest.raises(ScalarError) as caught:
        resolve_tagged(TAG + tag, text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["9" * 1_000_000, "0x" + "f" * 1_000_000, "0" * 1_000_000, "0." + "1" * 1_000_000, "1_" * 500_000]
)
def test_long_numbers_take_bounded_time(text):
    assert isinstance(resolve_plain(text), (str, int, float))


@given(st.integers(-(2**63), 2**64 - 1))
def test_parses_formatted_integers(number):
    assert resolve_plain(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_parses_formatted_floats(number):
    assert math.isclose(to_json(float(resolve_plain(repr(number)))), number, rel_tol=1e-15)


@given(st.text(st.sampled_from("0123456789abefxoEyn_+-.~"), max_size=8))
def test_any_scalar_resolves_and_converts_to_a_key(text):
    value = resolve_plain(text)
    if value is not None and not (isinstance(value, int) and value >= 2**63):
        assert isinstance(key_text(value), str)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl as an oracle")
def test_parses_what_kubectl_parses(tmp_path):
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: x}", "values:", *(f"- {text}" for text in PLAIN)]
    lines += ["keys:", *(f"- {text}: 1" for text in KEYS)]
    file = tmp_path / "x.yaml"
    file.write_text("\n".join(lines))
    run = subprocess.run(
        ["kubectl", "label", "--local", "-f", file, "x=1", "-o", "json"], capture_output=True, text=True, check=True, timeout=60
    )
    read = json.loads(run.stdout)
    assert dict(zip(PLAIN, read["values"], strict=True)) == PLAIN
    assert dict(zip(KEYS, (next(iter(one)) for one in read["keys"]), strict=True)) == KEYS
