"""Ask ``oracles/verdicts``: scenarios in, what kube-scheduler decides in each out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def record(program: Path, scenarios: Sequence[Document]) -> list[Document]:
    """Return what kube-scheduler decides in each scenario. A process that crashes is started again for each scenario alone."""
    text = "".join(json.dumps(one) + "\n" for one in scenarios)
    run = subprocess.run(  # noqa: S603  the program is ours
        [str(program)], input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    if run.returncode == 0:
        return [json.loads(line)["expected"] for line in run.stdout.splitlines()]
    if len(scenarios) == 1:
        return [{"crashed": f"exit status {run.returncode}"}]
    return [record(program, [one])[0] for one in scenarios]
