"""Floors can be loaded alone: a fresh process that imports all of one loads nothing that drives or shows it."""

from pathlib import Path

import pytest

from tools.house import FOREIGN, loaded

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("floor", sorted(FOREIGN))
def test_a_floor_loads_nothing_foreign(floor):
    names = loaded(ROOT, floor)
    assert len([name for name in names if name.startswith(f"moorage.{floor}")]) > 5
    assert [name for name in names if name.split(".")[1] in FOREIGN[floor]] == []
