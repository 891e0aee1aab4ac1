"""Equal runs print equal bytes, whatever PYTHONHASHSEED is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.interfaces.cli.conftest import ROOT, environment
from tests.interfaces.cli.test_simulate_claims import DEVICES, STORAGE

DEMO = ROOT / "examples/demo"
COMMANDS = {
    "the demo as a table": [DEMO, "-o", "table"],
    "the demo as JSON": [DEMO, "-o", "json"],
    "volumes": [STORAGE, "-o", "json"],
    "devices": [DEVICES, "-o", "json"],
}
#: Runs the commands in one process, and prints [status, output] of each as JSON.
RUN = """
import contextlib, io, json, sys
from moorage.interfaces.cli.main import main
found = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main(["simulate", "--events", "-f", *command])
        except SystemExit as ended:
            found.append([ended.code, out.getvalue()])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_equal_runs_print_equal_bytes_under_any_hash_seed():
    commands = json.dumps([list(map(str, command)) for command in COMMANDS.values()])
    first, *others = (
        json.loads(subprocess.check_output([sys.executable, "-c", RUN, commands], env=environment(PYTHONHASHSEED=seed)))
        for seed in ("0", "1", "77")
    )
    assert [status for status, _ in first] == [2, 2, 0, 2]
    assert all(len(out) > 500 for _, out in first)
    assert others == [first, first]
