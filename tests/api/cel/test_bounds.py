"""One operation of an expression is bounded in time and memory, whatever its cost."""

from __future__ import annotations

import re
from time import process_time

import pytest

from moorage.api.cel import bounds
from moorage.api.cel.bounds import TooLargeError
from moorage.api.cel.functions.quantities import Quantity
from moorage.api.cel.program import compile_expression
from moorage.api.cel.values import INT_MAX

ANSWERS = {  # an expression of few characters → its value, or a part of its error
    "a huge quantity is greater": ("quantity('1e999999999').isGreaterThan(quantity('1'))", True),
    "a huge quantity is less, if it is negative": ("quantity('-1e999999999').isLessThan(quantity('1'))", True),
    "huge quantities are compared by their digits": ("quantity('99e999999998').compareTo(quantity('1e999999999'))", 1),
    "nothing is nothing at every scale": ("quantity('0e999999999').compareTo(quantity('0'))", 0),
    "a huge quantity equals itself": ("quantity('1e999999999') == quantity('1e999999999')", True),
    "a huge quantity differs": ("quantity('1e999999999') == quantity('2')", False),
    "a huge quantity is infinite as a double": ("quantity('1e999999999').asApproximateFloat() > 1e308", True),
    "a mantissa beyond doubles is infinite": (f"quantity('{'9' * 400}').asApproximateFloat() > 1e308", True),
    "a huge quantity is no integer": ("quantity('1e999999999').isInteger()", False),
    "a huge sum": ("sign(quantity('1e999999999').add(1)) > 0", "a sum or difference has 1000000000 digits; at most 4000"),
    "a huge difference": ("sign(quantity('1').sub(quantity('1e999999999')))", "a sum or difference has 1000000000 digits"),
    "a large sum": ("quantity('1e3000').add(1).isGreaterThan(quantity('1e3000'))", True),
    "a text that grows beyond the bound": (
        f"cel.bind(a, '{'a' * 999}'.replace('', '{'a' * 99}'), a.replace('', a).size())", "a text of 9999999999 characters is",
    ),
    "a long list": ("lists.range(60000).size()", "a list or map of 60000 elements is too long"),
    "flattened lists": ("[[[[]]]].flatten(9223372036854775807).size()", 0),
    "precision": ("'%.9999f'.format([1e308]).size()", 10309),
    "a pattern that Python takes years for": ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('^(a*)*b$')", False),
    "a long version": (f"semver('1.0.0-{'1.' * 3000}1').major()", "is too long to parse; at most 5000"),
    "a long number": (f"double('9' + '{'9' * 5000}')", "is too long to parse"),
    "a long URL": (f"isURL('http://a/{'%41' * 2000}')", "is too long to parse"),
}  # fmt: skip


@pytest.mark.parametrize(("expression", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_an_operation_answers_at_once(expression, answer):
    begun = process_time()
    program = compile_expression(expression, {})
    if isinstance(answer, str):
        with pytest.raises(TooLargeError, match=re.escape(answer)):
            program.evaluate({})
    else:
        assert program.evaluate({}) == answer
    assert process_time() - begun < 0.5


def test_a_refused_operation_is_an_error_that_other_operands_may_absorb():
    program = compile_expression("sign(quantity('1e999999999').add(1)) == 1 || true", {})
    assert program.evaluate({}) is True


@pytest.mark.parametrize(("value", "scale"), [(INT_MAX, 999_999_999), (10**3999, 1), (1, 4_000)])
def test_sums_never_exceed_their_digits(value, scale):
    with pytest.raises(TooLargeError):
        Quantity(value, scale).add(Quantity(1, 0))


def test_sums_of_the_largest_amounts_stay_within_the_digits():
    largest = Quantity(10**bounds.MAX_DIGITS - 1)
    assert largest.add(Quantity(0)).compare(largest) == 0
    with pytest.raises(TooLargeError):
        largest.add(Quantity(1))
