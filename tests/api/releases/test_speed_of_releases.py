"""Releases cost nothing per pod: what differs between them is settled when the profiles are built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest import mock

import pytest

from benchmarks.workloads import WORKLOADS, Sizes
from moorage.api.releases import CURRENT, Release
from moorage.plugins import builtin_registry
from moorage.simulator.simulate import Options, prepare


@contextmanager
def reads_of_releases() -> Iterator[list[str]]:
    """Collect the name of each attribute that any code reads from a release."""
    found: list[str] = []
    read = Release.__getattribute__

    def noted(release, name):
        found.append(name)
        return read(release, name)

    with mock.patch.object(Release, "__getattribute__", noted):
        yield found


@pytest.mark.parametrize("name", ["basic", "mixed-base"])
def test_no_release_is_asked_while_pods_are_scheduled(name):
    workload = WORKLOADS[name][0](Sizes(20, 40, 60), Random(0))
    simulation, _ = prepare(Options())
    with reads_of_releases() as found:
        for objects in (workload.objects, workload.init, workload.measured):
            simulation.load(objects)
            for _ in simulation.steps():
                pass
        reads = list(found)
        assert CURRENT.name
        assert found == [*reads, "name"], "reads are counted"
    assert reads == []
    assert sum(map(len, simulation.scheduler.snapshot.table.pods)) == 100


def test_the_newest_release_has_only_the_newest_rules():
    assert set(CURRENT.variants.values()) == {CURRENT.series}
    assert not any(".earlier" in builtin_registry()[name].__module__ for name in builtin_registry())
