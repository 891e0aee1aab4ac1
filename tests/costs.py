"""What the tests cost, in seconds of CPU of the test and of the processes that it started: the time that a busy machine does
not change much. After the run a line says the sum, and which tests are too expensive not to be marked `slow`.

MOORAGE_EXPENSIVE=20 lists the twenty most expensive tests with their fixtures; `scripts/slow-tests` sets it.
"""

import os
import resource
import time
from collections.abc import Generator, Iterator

import pytest

#: A test that uses more in its own code must be marked `slow`.
MOST_S = 1.0
#: What all tests together may use: two cores then need less than ten minutes, with the time in which tests wait.
MOST_IN_ALL_S = 1100.0


def used_s() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Costs:
    """Measures each phase of a test, in the process that runs it; the process that prints the result adds up."""

    def __init__(self) -> None:
        self._before = 0.0
        self.total = 0.0
        self.by_test: dict[str, float] = {}
        self.unmarked: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._before = used_s()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = used_s()
        report.cpu_s = now - self._before
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = getattr(report, "cpu_s", 0.0)
        self.total += spent
        self.by_test[report.nodeid] = self.by_test.get(report.nodeid, 0.0) + spent
        if report.when == "call" and spent > MOST_S and "slow" not in report.keywords:
            self.unmarked[report.nodeid] = spent

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.lines(int(os.environ.get("MOORAGE_EXPENSIVE", "0"))):
            terminalreporter.write_line(line)

    def lines(self, most: int) -> Iterator[str]:
        """Yield the sum, the `most` expensive tests, and those that lack the mark."""
        limit = f", more than the {MOST_IN_ALL_S:g} s of ten minutes on two cores" if self.total > MOST_IN_ALL_S else ""
        yield f"CPU: {self.total:.0f} s in {len(self.by_test)} tests{limit}"
        yield from listed(dict(sorted(self.by_test.items(), key=lambda one: -one[1])[:most]))
        if self.unmarked:
            yield f"not marked slow, but over {MOST_S:g} s of CPU:"
            yield from listed(self.unmarked)


def listed(tests: dict[str, float]) -> Iterator[str]:
    return (f"{spent:8.2f} s  {name}" for name, spent in tests.items())
