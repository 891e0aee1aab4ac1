"""Compare which waiting pods a change wakes.

A pod that only kube-scheduler wakes is a disagreement. Moorage wakes pods in more cases, on purpose:
docs/project/fidelity.md says in which, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tools.differential.oracle import record
from tools.differential.random_changes import IN_FLIGHT

Document = dict[str, Any]
AGAIN: Final = 2
#: The index of a change, the pod, its plugin, and whether kube-scheduler and Moorage wake it.
Answer = tuple[int, str, str, bool, bool]


def answers(document: Document, theirs: Document, ours: Sequence[Document]) -> Iterator[Answer]:
    """Yield an answer for each change and each pod that waits in both."""
    for at, (change, there, here) in enumerate(zip(document["changes"], theirs["changes"], ours, strict=True)):
        for pod in sorted({*there["parked"]} & {*here["parked"]}):
            yield at, pod, _rejecter(change, pod), pod in there["woken"], pod in here["woken"]


def _rejecter(change: Document, pod: str) -> str:
    """Return the plugin that rejects a pod, and whether the pod is in flight during the change."""
    flying = change.get("inFlight", {})
    return f"{''.join(flying[pod]) or 'error'} {IN_FLIGHT}" if pod in flying else str(change["rejectedBy"][pod][0])


def settled(program: Path, document: Document, theirs: Document, ours: Sequence[Document]) -> list[Answer]:
    """Return the answers. Those with a pod that only kube-scheduler wakes are asked for again."""
    found = list(answers(document, theirs, ours))
    for _ in range(AGAIN):
        if all(here or not there for *_, there, here in found):
            break
        again = answers(document, record(program, [document])[0], ours)
        found = [old if old[4] or not old[3] else new for old, new in zip(found, again, strict=True)]
    return found
