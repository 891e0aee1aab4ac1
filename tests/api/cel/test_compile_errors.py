"""Test that invalid expressions are rejected at compile time, with cel-go's error text and position."""

from __future__ import annotations

import pytest

from moorage.api.cel.bounds import CompileError
from moorage.api.cel.devices import compile_selector
from moorage.api.cel.parser import MAX_DEPTH

ANYTHING = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"

NO_RANGE = "cannot be range of a comprehension (must be list, map, or dynamic)"

REFUSED = {  # expression → column, text
    "nothing": (1, "undeclared reference to 'nothing' (in container '')"),
    "device.size": (7, "undefined field 'size'"),
    "nofunction(1)": (11, "undeclared reference to 'nofunction' (in container '')"),
    "device.driver.nomethod()": (23, "undeclared reference to 'nomethod' (in container '')"),
    "device.driver == 1": (15, "found no matching overload for '_==_' applied to '(string, int)'"),
    "1 + 'a' == 2": (3, "found no matching overload for '_+_' applied to '(int, string)'"),
    "'a'.startsWith(1)": (15, "found no matching overload for 'startsWith' applied to 'string.(int)'"),
    "quantity('1').sign() == 1": (19, "found no matching overload for 'sign' applied to 'kubernetes.Quantity.()'"),
    "device.capacity['a'].b > 1": (24, "found no matching overload for '_>_' applied to '(kubernetes.Quantity, int)'"),
    "device.driver.name": (14, "type 'string' does not support field selection"),
    "true && 1": (9, "expected type 'bool' but found 'int'"),
    "[1, 'a'] == [1]": (5, "expected type 'int' but found 'string'"),
    "{'a': 1, 'b': 'c'}.a == 1": (15, "expected type 'int' but found 'string'"),
    "device.driver.exists(x, true)": (7, f"expression of type 'string' {NO_RANGE}"),
    "device.attributes['a'].b.all(x, true)": (23, f"expression of type 'any' {NO_RANGE}"),
    "has(device)": (5, "invalid argument to has() macro"),
    "[1].all(x.y, true)": (10, "argument must be a simple name"),
    "[1].map(1, true) == []": (9, "argument is not an identifier"),
    "[1].all(i, i, true)": (12, "duplicate variable name: i"),
    "cel.bind(1, 2, true)": (10, "cel.bind() variable names must be simple identifiers"),
    "Message{a: 1} == 1": (8, "undeclared reference to 'Message' (in container '')"),
    "for": (1, "reserved identifier: for"),
    "9223372036854775808 > 0": (1, "invalid int literal"),
    "'a\\q' == ''": (1, "unable to unescape string"),
    "'a'.matches('(')": (13, "invalid matches argument"),
    "true &&": (8, f"Syntax error: mismatched input '<EOF>' expecting {ANYTHING}"),
    "?!": (1, f"Syntax error: extraneous input '?' expecting {ANYTHING}"),
    "true true": (6, "Syntax error: extraneous input 'true' expecting <EOF>"),
    "true # yes": (6, "Syntax error: token recognition error at: '#'"),
    "(true": (6, "Syntax error: missing ')' at '<EOF>'"),
    "[(true": (7, "Syntax error: mismatched input '<EOF>' expecting ')'"),
    "device..driver": (8, "Syntax error: no viable alternative at input '..'"),
    "device.": (8, "Syntax error: no viable alternative at input '.'"),
    "device.true": (8, "Syntax error: mismatched input 'true' expecting IDENTIFIER"),
    "device.'x'": (8, "Syntax error: no viable alternative at input '.'x''"),
    "1..2": (3, "Syntax error: no viable alternative at input '..2'"),
    "[1": (3, "Syntax error: mismatched input '<EOF>' expecting {']', ','}"),
    "[1,": (4, "Syntax error: missing ']' at '<EOF>'"),
    "[1 2]": (4, "Syntax error: extraneous input '2' expecting {']', ','}"),
    "[1,,2]": (4, "Syntax error: mismatched input ',' expecting ']'"),
    "{1: 2": (6, "Syntax error: mismatched input '<EOF>' expecting {'}', ','}"),
    "true ? 1 2": (10, "Syntax error: missing ':' at '2'"),
    "/true": (1, f"Syntax error: extraneous input '/' expecting {ANYTHING}"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), REFUSED.items(), ids=REFUSED)
def test_rejects_at_compile_time(source, expected):
    column, text = expected
    with pytest.raises(CompileError) as caught:
        compile_selector(source)
    first, shown, mark = str(caught.value).split("\n")
    assert first == f"compilation failed: ERROR: <input>:1:{column}: {text}"
    assert (shown, mark) == (f" | {source}", f" | {'.' * (column - 1)}^")


def test_all_faults_are_reported_in_order_of_position():
    with pytest.raises(CompileError) as caught:
        compile_selector("device.a == 1 &&\ndevice.b && 'é' == 1")
    assert str(caught.value) == (
        "compilation failed: ERROR: <input>:1:7: undefined field 'a'\n | device.a == 1 &&\n | ......^\n"
        "ERROR: <input>:2:7: undefined field 'b'\n | device.b && 'é' == 1\n | ......^\n"
        "ERROR: <input>:2:17: found no matching overload for '_==_' applied to '(string, int)'\n"
        " | device.b && 'é' == 1\n | .............\uff0e..^"
    )


RESULTS = {"1": "int", "device.driver": "string", "device.capacity['a'].b": "kubernetes.Quantity", "[true]": "list(bool)"}


@pytest.mark.parametrize(("source", "found"), RESULTS.items())
def test_the_result_must_be_a_bool(source, found):
    with pytest.raises(CompileError, match="must evaluate to bool or the unknown type, not ") as caught:
        compile_selector(source)
    assert str(caught.value) == f"must evaluate to bool or the unknown type, not {found}"


@pytest.mark.parametrize(("source", "text"), {
    "int('x') > 0": "type conversion error from 'string' to 'int'",
    "'a'.find('(') == ''": "error parsing regexp: missing closing ): `(`",
}.items())  # fmt: skip
def test_constants_are_folded(source, text):
    with pytest.raises(CompileError) as caught:
        compile_selector(source)
    assert str(caught.value) == f"program instantiation failed: {text}"


NESTED = {
    "parentheses": "(" * (MAX_DEPTH + 1) + "true" + ")" * (MAX_DEPTH + 1),
    "calls": "size([" * 300 + "]) == 0 ? [1] : [2]" * 300,
    "sums": "1" + " + 1" * 2000 + " > 0",
    "paths": "device" + ".attributes" * 2000,
    "lists": "[" * 5000,
    "minus": "-(" * 500 + "1" + ")" * 500,
}


@pytest.mark.parametrize("source", NESTED.values(), ids=NESTED)
def test_nesting_is_limited(source):
    with pytest.raises(CompileError, match=r"expression recursion limit exceeded|Syntax error"):
        compile_selector(source)


def test_size_is_limited():
    with pytest.raises(CompileError, match="expression code point size exceeds limit: size: 100004, limit 100000"):
        compile_selector("true" + " " * 100_000)


def test_chains_of_conditions_may_be_long():
    source = " || ".join(f"device.driver == 'd{i}'" for i in range(400))
    assert compile_selector(source) is not None
