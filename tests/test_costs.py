"""The costs of the tests: what is added up, and which tests are named."""

from types import SimpleNamespace

import pytest

from tests.costs import Costs


def report(name, when, cpu_s, *marks):
    return SimpleNamespace(nodeid=name, when=when, cpu_s=cpu_s, keywords=dict.fromkeys(marks, 1))


def test_expensive_tests_are_listed_and_named_if_they_lack_the_mark():
    costs = Costs()
    for one in [
        report("a", "setup", 5.0), report("a", "call", 0.5), report("b", "call", 3.0, "slow"), report("c", "call", 1.5),
    ]:  # fmt: skip
        costs.pytest_runtest_logreport(one)
    assert list(costs.lines(2)) == [
        "CPU: 10 s in 3 tests", "    5.50 s  a", "    3.00 s  b",
        "not marked slow, but over 1 s of CPU:", "    1.50 s  c",
    ]  # fmt: skip


def test_a_loop_costs_what_it_takes(request):
    costs = next(one for one in request.config.pluginmanager.get_plugins() if isinstance(one, Costs))
    costs.pytest_runtest_logstart()
    sum(range(200_000))
    step = costs.pytest_runtest_makereport()
    next(step)
    with pytest.raises(StopIteration) as end:
        step.send(SimpleNamespace())
    assert end.value.value.cpu_s > 0.0005


def test_a_sum_beyond_ten_minutes_is_said():
    costs = Costs()
    costs.pytest_runtest_logreport(report("a", "call", 1101.0, "slow"))
    assert list(costs.lines(0)) == ["CPU: 1101 s in 1 tests, more than the 1100 s of ten minutes on two cores"]
