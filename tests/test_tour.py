"""The tour of the code: each step names a function that exists, and a bind calls them in the order of the steps.

The design's table of changes names what exists, too.
"""

import asyncio
import importlib
import inspect
import random
import re
import time
from pathlib import Path

import pytest

from moorage.api.core import Pod
from moorage.rules.store.store import Store
from tests.live.server.test_on_embedded_server import get, live_on, make_node, make_pod, until

PAGE = Path(__file__).parent.parent / "docs" / "contribute" / "tour.md"
STEP = re.compile(r"^## (\d+)\. .+\n\n`src/(\S+)\.py` · `(\w+)\.(\w+)`$", re.MULTILINE)
STEPS = STEP.findall(PAGE.read_text("utf-8"))
DESIGN = PAGE.with_name("design.md").read_text("utf-8")
PLACES = re.findall(r"`(\S+)\.py` · `(\w+)`", DESIGN[DESIGN.index("## Where to change what") :])


def owner_of(path, name):
    return getattr(importlib.import_module(path.replace("/", ".")), name)


def test_the_tour_has_ten_steps():
    assert [int(number) for number, *_ in STEPS] == list(range(1, 11))


@pytest.mark.slow
def test_a_bind_calls_the_functions_of_the_tour_in_their_order(monkeypatch):
    called = []

    def traced(step, function):
        def call(*args, **kwargs):
            begins = step == 0 and isinstance(args[1].obj, Pod) and args[1].obj.key == "default/tourist"
            if (called or begins) and step not in called:
                called.append(step)
            return function(*args, **kwargs)

        return call

    for step, (_, path, name, method) in enumerate(STEPS):
        owner = owner_of(path, name)
        monkeypatch.setattr(owner, method, traced(step, inspect.getattr_static(owner, method)))

    async def main():
        async with live_on(Store(time.time, random.Random(5), b"k"), leads=False) as rest:
            await make_node(rest, "n1")
            await asyncio.sleep(0.5)
            await make_pod(rest, "tourist")

            async def placed():
                return (await get(rest, "tourist"))["spec"].get("nodeName")

            assert await until(placed, rest.reports) == "n1"

    asyncio.run(main())
    assert called == list(range(10))


def test_the_tour_can_be_read_in_five_minutes():
    assert len(PAGE.read_text("utf-8").split()) < 1000


@pytest.mark.parametrize(("path", "name"), PLACES, ids=[f"{path}: {name}" for path, name in PLACES])
def test_the_design_names_where_changes_begin(path, name):
    assert hasattr(importlib.import_module(f"moorage.{path.replace('/', '.')}"), name)


def test_the_design_has_changes_of_every_room_and_every_floor():
    table = DESIGN[DESIGN.index("## Where to change what") :].partition("\n## ")[0]
    assert len([row for row in table.splitlines() if row.startswith("| ")]) >= 20
    floors = {
        path.name.removesuffix(".py") for path in (PAGE.parents[2] / "src/moorage").iterdir() if path.suffix in {"", ".py"}
    }
    picture = re.findall(r"\w+", DESIGN[DESIGN.index("## Floors") : DESIGN.index("Packages side by side")])
    assert {floor for floor in floors if not floor.startswith("__")} <= {*picture}
