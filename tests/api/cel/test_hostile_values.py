"""One evaluation takes less than 100 ms of CPU time and 50 MiB, for every function and operator, with hostile operands.

``make hostile`` tries many more; MOORAGE_HOSTILE=200 sets how many calls of each overload, MOORAGE_HOSTILE_SEED which.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from moorage.api.cel.program import standard_functions
from tests.api.cel.hostile_values import MOST_BYTES, MOST_S, call_of, measured, scale

ROUNDS = int(os.environ.get("MOORAGE_HOSTILE", "1"))
SEED = os.environ.get("MOORAGE_HOSTILE_SEED", "0")


@pytest.mark.parametrize("name", standard_functions())
def test_no_call_takes_long_or_much_memory(name):
    for overload in standard_functions()[name].overloads:
        rng = Random(f"{SEED} {overload.name}")
        for _ in range(ROUNDS):
            call = call_of(name, overload, rng)
            found = measured(call.evaluate)
            if found.cpu_s > MOST_S:  # perhaps another process disturbed it
                found = min(found, measured(call.evaluate))
            assert found.cpu_s <= MOST_S * scale() or found.cpu_s <= MOST_S, f"{call}: {found.cpu_s:.3f} s"
            assert found.peak <= MOST_BYTES, f"{call}: {found.peak / 2**20:.0f} MiB"
