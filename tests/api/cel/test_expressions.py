"""Test the results of expressions: CEL's semantics on plain values."""

from __future__ import annotations

import math

import pytest

from moorage.api.cel.bounds import MAX_EFFORT, CompileError, CostLimitError, EvalError
from moorage.api.cel.program import compile_expression
from moorage.api.cel.types import DYN, INT, STRING, list_of, map_of
from moorage.api.cel.values import Map, UInt

VARIABLES = {"d": DYN, "i": INT, "s": STRING, "l": list_of(INT), "m": map_of(STRING, INT)}


def value(source, **given):
    return compile_expression(source, VARIABLES).evaluate(given)


HOLDS = [
    # numbers
    "7 / 2 == 3 && -7 / 2 == -3 && 7 % -2 == 1 && -7 % 2 == -1",
    "2 + 3 * 4 == 14 && (2 + 3) * 4 == 20 && -(-1) == 1 && --1 == 1 && 10 - 2 - 3 == 5",
    "1.5 + 1.5 == 3.0 && 1.0 / 0.0 > 1e308 && 5u - 3u == 2u",
    "1 < 2u && 2u > 1 && 1.0 <= 1 && 3 >= 2.5 && 9223372036854775807 < 1e19",
    "dyn(1) == 1.0 && dyn(1u) == 1 && dyn(1) != 1.5 && dyn(true) != 1",
    "0x10 == 16 && 0xFFu == 255u && .5 == 0.5 && 1e2 == 100.0",
    # text
    "'a' + \"b\" == 'ab' && r'\\d' == '\\\\d' && '''x\ny'''.size() == 3 && '\\u00e9' == 'é' && '\\x41\\101' == 'AA'",
    "b'\\xff'.size() == 1 && bytes('é').size() == 2 && string(b'ab') == 'ab' && b'a' < b'b'",
    "'é'.size() == 1 && size('abc') == 3 && 'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('c')",
    "'abc' < 'abd' && 'Z' < 'a' && '' <= ''",
    "'tacocat'.indexOf('ac') == 1 && 'tacocat'.indexOf('x') == -1 && 'tacocat'.lastIndexOf('at') == 5 && 'aa'.indexOf('') == 0",
    "'hello'.charAt(4) == 'o' && 'hello'.charAt(5) == '' && 'hello'.substring(1, 3) == 'el' && 'hello'.substring(2) == 'llo'",
    "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'ab'.split('') == ['a', 'b']",
    "'a,b'.split(',', 0) == [] && ['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
    "'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'",
    "' a\\t'.trim() == 'a' && 'TacoCÆt'.lowerAscii() == 'tacocÆt' && 'taé'.upperAscii() == 'TAé'",
    "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
    "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('x') == '' && '1 22 3'.findAll('[0-9]+') == ['1', '22', '3']",
    "'1 22 3'.findAll('[0-9]+', 2) == ['1', '22'] && 'foobar'.matches('o+b') && !'foo'.matches('^o')",
    # lists and maps
    "[1, 2][1] == 2 && [1] + [2] == [1, 2] && 2 in [1, 2] && !('x' in ['y']) && {'a': 1}['a'] == 1 && {'a': 1}.a == 1",
    "{dyn(1): 'x', dyn(true): 'y'}.size() == 2 && 'x' == {1: 'x'}[1] && dyn(1.0) in {1: 'x'} && {dyn(1u): 2}[1] == 2",
    "[1, 2, 3].filter(x, x > 1) == [2, 3] && [1, 2].map(x, x * 2) == [2, 4] && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
    "[1, 2].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2].exists_one(x, x == 2)",
    "[].all(x, false) && ![].exists(x, true)",
    "{'a': 1, 'b': 2}.all(k, k < 'c') && {'a': 1}.map(k, k) == ['a'] && [[1, 2], [3]].map(x, x.map(y, y + 1)) == [[2, 3], [4]]",
    "[1, 2].all(i, v, v == i + 1) && {'a': 1}.exists(k, v, k == 'a' && v == 1) && [5, 5].existsOne(i, v, i == 1 && v == 5)",
    "[1, 2].transformList(i, v, i * v) == [0, 2] && {'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
    "{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'} && [1, 2].transformList(i, v, i > 0, v) == [2]",
    "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sortBy(x, x) == ['a', 'b'] && [1, 2, 2].distinct() == [1, 2]",
    "[[1], [2, 3]].flatten() == [1, 2, 3] && [1, 2, 3].slice(1, 3) == [2, 3] && [1, 2].reverse() == [2, 1]",
    "lists.range(3) == [0, 1, 2] && [1, 3].sum() == 4 && [1.5].sum() == 1.5 && [2, 1].min() == 1 && [2, 1].max() == 2",
    "[1, 2, 2].isSorted() && ![2, 1].isSorted() && [1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2",
    "sets.contains([1, 2], [1]) && sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1, 2], [2, 3])",
    "[1, 2].first().value() == 1 && ![].last().hasValue() && optional.unwrap([optional.of(1), optional.none()]) == [1]",
    # bindings, optionals, types
    "cel.bind(x, 3, x * x) == 9 && cel.bind(x, 1 / 0, true) && cel.bind(x, 1, cel.bind(y, x + 1, x + y)) == 3",
    "{'a': 1}.?a == optional.of(1) && !{'a': 1}.?b.hasValue() && {'a': 1}.?b.orValue(7) == 7 && {'a': 1}[?'a'].value() == 1",
    "[1][?5].orValue(0) == 0 && {'a': {'b': 2}}.?a.b.value() == 2 && !{'a': {'b': 2}}.?x.b.hasValue()",
    "optional.none().or(optional.of(1)).value() == 1 && optional.of(1).optMap(x, x + 1) == optional.of(2)",
    "optional.of(1).optFlatMap(x, optional.of(x + 1)).value() == 2 && !optional.ofNonZeroValue('').hasValue()",
    "[?optional.of(1), ?optional.none(), 2] == [1, 2] && {?'a': optional.none(), 'b': 1} == {'b': 1}",
    "has({'a': 1}.a) && !has({'a': 1}.b) && type(1) == int && type('x') == string && type([]) == list && type(type(1)) == type",
    "int('7') == 7 && int(3.9) == 3 && int(-3.9) == -3 && uint(7) == 7u && double('1.5') == 1.5 && bool('t') && !bool('False')",
    "string(1) == '1' && string(1.5) == '1.5' && string(true) == 'true' && string(7u) == '7' && string(1e6) == '1e+06'",
    # errors that the other operand absorbs
    "true || 1 / 0 == 1",
    "1 / 0 == 1 || true",
    "!(false && 1 / 0 == 1) && !(1 / 0 == 1 && false)",
    "[0, 1].exists(x, 1 / x == 1) && ![0, 2].all(x, 1 / x == 1)",
    "true ? true : 1 / 0 == 1",
    "dyn('a') != 1 && !(dyn('a') == 1) && null == null && dyn(1) != null",
    # quantities and versions
    "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('1000m').compareTo(quantity('1')) == 0",
    "sign(quantity('-1')) == -1 && sign(quantity('0')) == 0",
    "quantity('1').add(quantity('1')) == quantity('2') && quantity('50k').add(20) == quantity('50020')",
    "quantity('3').sub(quantity('1')).isLessThan(quantity('2.5')) && quantity('5').sub(5).asInteger() == 0",
    "quantity('2k').asInteger() == 2000 && quantity('2k').isInteger()",
    "!quantity('1500m').isInteger() && !quantity('1000m').isInteger()",
    "isQuantity('1.3Gi') && !isQuantity('200Q') && quantity('500m').asApproximateFloat() == 0.5",
    "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
    "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
    "semver('1.0.0+a') == semver('1.0.0+b') && isSemver('1.0.0') && !isSemver('v1.0') && isSemver('v1.0', true)",
    "semver('v01.2', true).compareTo(semver('1.2.0')) == 0 && semver('1.0.0-2').isLessThan(semver('1.0.0-10'))",
    "['a', 'b'].includes('a') && 'a'.includes('a') && !dyn(1).includes('a')",
]  # fmt: skip


@pytest.mark.parametrize("source", HOLDS)
def test_evaluates_to_true(source):
    assert value(source) is True


FAILS = {
    "1 + 9223372036854775807": "integer overflow",
    "-9223372036854775808 - 1": "integer overflow",
    "-(-9223372036854775808)": "integer overflow",
    "-9223372036854775808 / -1": "integer overflow",
    "1u - 2u": "unsigned integer overflow",
    "1 / 0": "division by zero",
    "1 % 0": "modulus by zero",
    "dyn('a') + 1": "no such overload",
    "dyn(true) + 1": "no such overload: _+_",
    "dyn({}) < 1": "no such overload: _<_",
    "!dyn('a')": "no such overload",
    "dyn('a') && true": "no such overload",
    "{'a': 1}.b": "no such key: b",
    "{1: 2}[3]": "no such key: 3",
    "[1][1]": "index out of bounds: 1",
    "dyn(1).a": "no such key: a",
    "dyn([1])['a']": "unsupported index type 'string' in list",
    "dyn(1).exists(x, x)": "got 'types.Int', expected iterable type",
    "dyn('a').all(k, v, true)": "unsupported comprehension range type: types.String",
    "[0].all(x, 1 / x == 1)": "division by zero",
    "dyn(1).startsWith('a')": "no such overload: startsWith(int, string)",
    "dyn('1').isGreaterThan(quantity('1'))": "no such overload: isGreaterThan(string, kubernetes.Quantity)",
    "quantity('1') == dyn('1')": "no such overload",
    "quantity('2') == quantity('1').add(1)": "no such overload",
    "quantity(s)": "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    "quantity('1000m').asInteger()": "cannot convert value to integer",
    "semver('1.0')": "No Major.Minor.Patch elements found",
    "semver('01.0.0')": 'Major number must not contain leading zeroes "01"',
    "semver('1.0.0-01')": 'Numeric PreRelease version must not contain leading zeroes "01"',
    "int(s)": "type conversion error from 'string' to 'int'",
    "'abc'.charAt(4)": "index out of range: 4",
    "'abc'.substring(2, 1)": "invalid substring range. start: 2, end: 1",
    "[].min()": "min called on empty list",
    "[1].slice(0, 2)": "cannot slice(0, 2), list is length 1",
    "optional.none().value()": "optional.none() dereference",
    "s.matches(s + '(')": "error parsing regexp: missing closing ): `abc(`",
    "'a'.find(s + '(')": "Illegal regex: error parsing regexp: missing closing ): `abc(`",
    "[1, 1].transformMap(i, v, v).transformMapEntry(k, v, {v: k})": "insert failed: key 1 already exists",
    "double('NaN') < 1.0": "NaN values cannot be ordered",
    "lists.range(49).includes(48)": "'includes' function cannot be applied to lists longer than 48 values",
}


@pytest.mark.parametrize(("source", "text"), FAILS.items(), ids=FAILS)
def test_fails_at_run_time(source, text):
    with pytest.raises(EvalError) as caught:
        value(source, s="abc")
    assert str(caught.value) == text


def test_reads_its_variables():
    given = {"d": UInt(3), "i": 2, "s": "x", "l": (1, 2), "m": Map([("a", 1)])}
    assert value(
        "d == 3 && i + 1 == 3 && s + 'y' == 'xy' && l.size() == 2 && l == [1, 2] && m.a == 1 && l + [3] == [1, 2, 3]", **given
    )
    assert math.isnan(value("double('nan')"))


def test_reports_its_cost():
    program = compile_expression("s == 'x' && [1, 2, 3].all(y, y > 0)", VARIABLES)
    _, cost = program.measure({"s": "x"})
    # the name, a comparison of one character; then for each element: a condition, two names, a comparison; then the result
    assert cost == 1 + 1 + 3 * (2 + 1 + 1 + 1) + 1


TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
TOO_MUCH = [
    f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(e, {TEN}.all(f, {TEN}.all(g, s.size() < 100))))))",
    "lists.range(1000000000).size() > 0",
    "lists.range(2000).map(x, s).join(s).replace('', s).replace('', s).size() > 0",
    "lists.range(90).all(x, !(s + s + s + s + s + s + s + s).matches('(1?){300}x'))",
]


@pytest.mark.parametrize("source", TOO_MUCH)
def test_stops_at_the_cost_limit(source):
    program = compile_expression(source, VARIABLES)
    with pytest.raises(CostLimitError) as caught:
        program.evaluate({"s": "1" * 50}, cost_limit=50_000)
    why = str(caught.value).removeprefix("operation cancelled: ")
    assert why in {"actual cost limit exceeded", f"the evaluation takes more than {MAX_EFFORT} steps"}


def test_an_or_does_not_absorb_the_cost_limit():
    with pytest.raises(CostLimitError):
        compile_expression("[1, 2, 3].all(x, x > 0) || true", {}).evaluate({}, cost_limit=3)


def test_a_pattern_that_is_too_large_is_rejected():
    with pytest.raises(CompileError, match="invalid matches argument"):
        value("s.matches('(a{1000}){1000}')", s="a")
