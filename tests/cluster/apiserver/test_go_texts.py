"""Messages of Go 1.26's standard library."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.documents.statuses import go_quoted, go_value, syntax_fault

FAULTS = {
    b"": "unexpected end of JSON input",
    b"{": "unexpected end of JSON input",
    b"nul": "unexpected end of JSON input",
    b'"': "unexpected end of JSON input",
    b"1e+": "unexpected end of JSON input",
    b"a: b": "invalid character 'a' looking for beginning of value",
    b"'": r"invalid character '\'' looking for beginning of value",
    b"[}": "invalid character '}' looking for beginning of value",
    b"[1,]": "invalid character ']' looking for beginning of value",
    b"{}{}": "invalid character '{' after top-level value",
    b"01": "invalid character '1' after top-level value",
    b"{a}": "invalid character 'a' looking for beginning of object key string",
    b'{"a":1,}': "invalid character '}' looking for beginning of object key string",
    b'{"a" 1}': "invalid character '1' after object key",
    b'{"a":1 "b"}': "invalid character '\"' after object key:value pair",
    b"[1 2]": "invalid character '2' after array element",
    b'["a\x01"]': r"invalid character '\x01' in string literal",
    b'["\\x"]': "invalid character 'x' in string escape code",
    b'["\\u12g"]': r"invalid character 'g' in \u hexadecimal character escape",
    b"trxe": "invalid character 'x' in literal true (expecting 'u')",
    b"-x": "invalid character 'x' in numeric literal",
    b"1.x": "invalid character 'x' after decimal point in numeric literal",
    b"1ex": "invalid character 'x' in exponent of numeric literal",
}


@pytest.mark.parametrize(("text", "fault"), FAULTS.items())
def test_json_syntax_errors(text, fault):
    assert syntax_fault(text) == fault


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.slow
@given(VALUES)
def test_valid_json_has_no_error(value):
    assert syntax_fault(json.dumps(value).encode()) == ""
    assert syntax_fault(json.dumps(value, ensure_ascii=False, indent=1).encode()) == ""


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \\u', max_size=12))
def test_errors_are_found_where_python_finds_one(text):
    try:
        json.loads(text)
        fits = True
    except ValueError:
        fits = False
    assert (syntax_fault(text.encode()) == "") is fits


def test_formatted_values():
    assert go_value({"b": [1, "x", None], "a": {"c": True}, "d": 1.5}) == "map[a:map[c:true] b:[1 x <nil>] d:1.5]"
    assert go_quoted('a\x00\x07\n"\\\x7fé') == r'"a\x00\a\n\"\\\x7fé"'
