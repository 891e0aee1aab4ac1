"""Test that the cost limit also bounds the time of operations for which CEL charges little."""

from __future__ import annotations

from time import process_time

import pytest

from moorage.api.cel import CostLimitError, DeviceFacts, compile_selector, device_variables
from moorage.api.cel.bounds import CompileError
from moorage.api.cel.frame import Frame
from moorage.api.cel.program import MOST_FAULTS, compile_expression

LIMIT = 20_000
#: Fifty times what the slowest of the expressions takes within the limit on an idle machine.
MOST_S = 3.0
DEVICE = device_variables(DeviceFacts("gpu.example.com", {"model": "x" * 64}, {"memory": "40Gi"}))
NUMBERS = "[" + ",".join(map(str, range(100))) + "]"


def again(body, thing="lists.range(5000)"):
    """Return an expression that applies ``x`` ten thousand times."""
    return f"cel.bind(x, {thing}, {NUMBERS}.all(i, {NUMBERS}.all(j, {body})))"


def doubled(times, first, last):
    """Return an expression that repeatedly joins a value with itself."""
    joined = "".join(f"cel.bind(x{at}, {first.format(f'x{at - 1}')}, " for at in range(1, times + 1))
    return f"cel.bind(x0, [1, 2], {joined}{last.format(f'x{times}')}{')' * times})"


HOSTILE = {
    "three nested loops": f"{NUMBERS}.all(a, {NUMBERS}.all(b, {NUMBERS}.all(c, a + b + c >= 0)))",
    "distinct elements of a long list": "lists.range(20000).distinct().size() > 0",
    "a long list sorted": "lists.range(20000).sort().size() > 0",
    "long sets": "sets.contains(lists.range(20000), lists.range(20000))",
    "sets that are equivalent": "sets.equivalent(lists.range(20000), lists.range(20000))",
    "nested lists compared": again("[x] == [x]"),
    "nested lists that differ": again("[x] != [x]"),
    "a list searched in a list": again("x in [x, x, x]"),
    "the index of a list in a list": again("[x, x].indexOf(x) == 0"),
    "the last index of a list in a list": again("[x, x].lastIndexOf(x) == 1"),
    "maps compared": again("x == x", "lists.range(2000).transformMap(i, v, v)"),
    "a long list copied": again("(x + x).size() > 0"),
    "a list that doubles": doubled(40, "{0} + {0}", "{0}.size() > 0"),
    "a nested list that doubles": doubled(40, "[{0}, {0}]", "[{0}] == [{0}]"),
    "a nested list that doubles and is iterated": doubled(40, "[{0}, {0}]", "{0}.flatten(50).size() > 0"),
    "a nested list that doubles and is printed": doubled(40, "[{0}, {0}]", '[dyn({0})].join("") == ""'),
    "large patterns": f"{NUMBERS}.all(i, {NUMBERS}.all(j, !'x'.matches('(a{{1,900}})' + string(i * 100 + j))))",
    "patterns that are too large": f"{NUMBERS}.all(i, {NUMBERS}.all(j, 'x'.matches('(a{{1,999}}){{99}}' + string(j)) || true))",
    "a pattern with many alternatives": f"'{'x' * 9000}'.matches('(x|x|x|x|x|x|x|x)*y')",
    "all matches": again("x.findAll('x').size() > 0", f"'{'x' * 9000}'"),
    "strings of doubles": again("string(double(i) * 1.1) != '' && string(double(j) * 1.7e-200) != ''"),
    "versions": again(f"semver('1.2.3-{'a.1.' * 20}b') != semver('1.2.3')"),
    "invalid integers": again("int(x) == 1 || true", f"'{'1' * 9000}'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("expression", HOSTILE.values(), ids=HOSTILE)
def test_an_expression_ends_within_its_limit(expression):
    selector = compile_selector(expression)
    begun = process_time()
    try:
        _, cost = selector.judge(DEVICE, LIMIT)
    except CostLimitError:
        cost = LIMIT
    assert process_time() - begun < MOST_S
    assert cost <= LIMIT


@pytest.mark.parametrize(
    ("expression", "cost"),
    {
        "a comparison": ("device.driver == 'gpu.example.com'", 4),
        "flat lists": ("[1, 2, 3].map(i, i) == [1, 2, 3].map(i, i)", None),
        "a flat list searched": ("2 in [1, 2, 3].map(i, i)", None),
        "a pattern": ("device.driver.matches('^gpu.*$')", None),
    }.values(),
)
def test_ordinary_work_is_charged_its_cel_cost(expression, cost):
    program = compile_selector(expression)._program
    frame = Frame(DEVICE, 1000)
    program._run(frame)
    assert frame.limit == 1000
    assert cost in {None, frame.cost}


def test_a_hundred_faults_are_reported_as_in_cel_go():
    with pytest.raises(CompileError) as caught:
        compile_expression(" && ".join(["foo"] * 250), {})
    text = str(caught.value)
    assert text.count("undeclared reference to 'foo'") == MOST_FAULTS
    assert text.endswith("\n150 more errors were truncated")


def test_cached_failures_do_not_grow():
    expression = "[1, 2, 3, 4, 5, 6, 7, 8].all(i, device.attributes['gpu.example.com'].nothing == i)"
    failed, _ = compile_selector(expression).judge(DEVICE, LIMIT)
    length, trace = 0, failed.__traceback__
    while trace is not None:
        length, trace = length + 1, trace.tb_next
    assert length < 30
