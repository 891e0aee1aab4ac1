"""The engine is composed of parts: no base classes, no abstract methods, and few returns to the scheduler's own file."""

from __future__ import annotations

import sys
from pathlib import Path

import moorage.core.engine
from moorage.core.engine.facts import Phase
from moorage.core.engine.scheduler import Scheduler
from tests.core.engine.driving import Driven, bound, node, pod

SOURCES = sorted(Path(moorage.core.engine.__file__).parent.glob("*.py"))


def test_no_part_has_abstract_methods_or_inherits_from_another():
    assert not [path.name for path in SOURCES if "abstractmethod" in path.read_text()]
    assert Scheduler.__bases__ == (object,)


def test_drivers_take_outputs_in_one_place():
    takers = {name for name in vars(Scheduler) if name.startswith("take")}
    assert takers == {"take"}


def entries_into(file, follow):
    """Count the calls from another file into ``file`` while ``follow`` runs."""
    count = 0

    def profile(frame, event, _):
        nonlocal count
        if event == "call" and frame.f_code.co_filename == file and frame.f_back.f_code.co_filename != file:
            count += 1

    sys.setprofile(profile)
    try:
        follow()
    finally:
        sys.setprofile(None)
    return count


def test_a_pod_enters_the_scheduler_module_a_few_times():
    driven = Driven()
    driven.see(node(), pod("first"))
    driven.step()
    driven.done(driven.only_work(Phase.BIND))
    waiting = pod("second", cpu="500m")

    def from_event_to_bind():
        driven.see(waiting)
        assert driven.step() == ("second", "n")
        work = driven.only_work(Phase.BIND)
        driven.see(bound(waiting, "n"))
        driven.done(work)

    assert entries_into(sys.modules[Scheduler.__module__].__file__, from_event_to_bind) < 20
    assert driven.on("n") == ["first", "second"]
