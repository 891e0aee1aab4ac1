"""Ask ``oracles/verdicts``: scenarios in, what kube-scheduler decides in each out."""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

Document = dict[str, Any]
Batch = tuple[list[Document], list[Document]]


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


def recorded_ahead(
    program: Path, batches: Iterable[Sequence[int]], processes: int, made: Callable[[int], Document]
) -> Iterator[Batch]:
    """Yield the scenarios ``made`` of each batch of seeds, and what kube-scheduler answers.

    The program mostly waits for its own caches, so ``processes`` of them work on the next batches meanwhile.
    """

    def recorded(seeds: Sequence[int]) -> Batch:
        scenarios = [made(seed) for seed in seeds]
        return scenarios, record(program, scenarios)

    with ThreadPoolExecutor(processes) as pool:
        waiting: deque[Future[Batch]] = deque()
        for seeds in batches:
            waiting.append(pool.submit(recorded, seeds))
            if len(waiting) > processes:
                yield waiting.popleft().result()
        yield from (one.result() for one in waiting)
