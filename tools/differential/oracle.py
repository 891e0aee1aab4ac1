"""Ask ``oracles/verdicts``: scenarios in, what kube-scheduler decides in each out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def record(program: Path, scenarios: Sequence[Document], at_once: int = 1) -> list[Document]:
    """Return what kube-scheduler decides in each scenario. A process that crashes is started again for each scenario alone.

    ``at_once``: processes that share the scenarios; with changes they mostly wait for kube-scheduler's handlers
    """
    if at_once > 1 and len(scenarios) > 1:
        parts = [scenarios[at::at_once] for at in range(at_once)]
        found: list[Document] = [{}] * len(scenarios)
        with ThreadPool(at_once) as pool:
            for at, answers in enumerate(pool.imap(partial(record, program), parts)):
                found[at::at_once] = answers
        return found
    text = "".join(json.dumps(one) + "\n" for one in scenarios)
    run = subprocess.run(  # noqa: S603  the program is ours
        [str(program)], input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    if run.returncode == 0:
        return [json.loads(line)["expected"] for line in run.stdout.splitlines()]
    if len(scenarios) == 1:
        return [{"crashed": f"exit status {run.returncode}"}]
    return [record(program, [one])[0] for one in scenarios]
