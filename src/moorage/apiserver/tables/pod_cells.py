"""Table cells of a pod: its status, ready containers and restarts.

The status is one of kubectl's words (``Init:1/2``, ``CrashLoopBackOff``, ``Completed``). It is derived from the init
containers first; once the pod is initialized, from the other containers, last to first.

Source  kubernetes, pkg/printers/internalversion/printers.go, printPod
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.apiserver.tables.cells import NONE, Cell, age, age_of, epoch_of, items, name_of, word
from moorage.apiserver.vocabulary.records import Document

__all__ = ["pod", "pod_conditions"]

_ENDED: Final = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


@dataclass(slots=True)
class _PodSummary:
    """Values collected while going through the containers."""

    state: str
    ready: int = 0
    restarts: int = 0
    #: Finish time of the latest container run that was restarted.
    ended: str = ""

    def add(self, status: Mapping[str, Any]) -> None:
        """Add the restarts of a container."""
        self.restarts += int(status.get("restartCount") or 0)
        ended = word(status, "lastState.terminated.finishedAt")
        if (epoch_of(ended) or 0) > (epoch_of(self.ended) or 0):
            self.ended = ended


def pod(found: Document, now: float) -> list[Cell]:
    """Return the cells of a pod."""
    total, count = _summarize(found)
    restarts = str(count.restarts)
    if count.restarts and count.ended:
        restarts += f" ({age(count.ended, now)} ago)"
    return [
        name_of(found),
        f"{count.ready}/{total}",
        _final_status(found, count.state),
        restarts,
        age_of(found, now),
        *_wide(found),
    ]


def pod_conditions(found: Document) -> list[Document]:
    """Return the row conditions of a pod that has ended."""
    phase = word(found, "status.phase")
    if phase not in _ENDED:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDED[phase]}]


def _summarize(found: Document) -> tuple[int, _PodSummary]:
    """Return the number of containers that count, and the values collected from them."""
    inits = items(found, "spec.initContainers")
    sidecars = {one.get("name") for one in inits if one.get("restartPolicy") == "Always"}
    total = len(items(found, "spec.containers")) + sum(1 for one in inits if one.get("restartPolicy") == "Always")
    initial, of_sidecars = _PodSummary(_initial_status(found)), _PodSummary("")
    initializing = _add_init_containers(found, len(inits), sidecars, initial, of_sidecars)
    if initializing and not _is_true(found, "Initialized"):
        return total, initial
    count = _PodSummary(initial.state, initial.ready, of_sidecars.restarts, of_sidecars.ended)
    _add_containers(found, count)
    return total, count


def _initial_status(found: Document) -> str:
    state = word(found, "status.reason") or word(found, "status.phase")
    gated = any(one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in _conditions(found))
    return "SchedulingGated" if gated else state


def _final_status(found: Document, state: str) -> str:
    if not found["metadata"].get("deletionTimestamp"):
        return state
    if word(found, "status.reason") == "NodeLost":
        return "Unknown"
    return state if word(found, "status.phase") in ENDED_PHASES else "Terminating"


def _add_init_containers(found: Document, inits: int, sidecars: set[Any], count: _PodSummary, of_sidecars: _PodSummary) -> bool:
    """Collect values from init containers, and return True while the pod is being initialized."""
    for at, status in enumerate(items(found, "status.initContainerStatuses")):
        count.add(status)
        is_sidecar = status.get("name") in sidecars
        if is_sidecar:
            of_sidecars.add(status)
        state = status.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if is_sidecar and status.get("started"):
            count.ready += bool(status.get("ready"))
            continue
        waits = word(state, "waiting.reason")
        if ended is not None:
            count.state = f"Init:{_exit_reason(ended)}"
        elif waits and waits != "PodInitializing":
            count.state = f"Init:{waits}"
        else:
            count.state = f"Init:{at}/{inits}"
        return True
    return False


def _add_containers(found: Document, count: _PodSummary) -> None:
    """Collect values from the regular containers."""
    runs, failure = False, ""
    for status in reversed(items(found, "status.containerStatuses")):
        count.add(status)
        state = status.get("state") or {}
        ended = state.get("terminated")
        if word(state, "waiting.reason"):
            count.state = word(state, "waiting.reason")
        elif ended is not None:
            count.state = _exit_reason(ended)
            failure = count.state if ended.get("exitCode") else failure
        elif status.get("ready") and state.get("running") is not None:
            runs = True
            count.ready += 1
    if count.state == "Completed":
        if runs and _is_true(found, "Ready"):
            count.state = "Running"
        else:
            count.state = failure or ("NotReady" if runs else count.state)


def _exit_reason(ended: Mapping[str, Any]) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode') or 0}"


def _conditions(found: Document) -> Iterator[Mapping[str, Any]]:
    return iter(items(found, "status.conditions"))


def _is_true(found: Document, condition: str) -> bool:
    return any(one.get("type") == condition and one.get("status") == "True" for one in _conditions(found))


def _wide(found: Document) -> list[Cell]:
    addresses = items(found, "status.podIPs")
    address = str(addresses[0].get("ip") or "") if addresses else ""
    gates = [str(one.get("conditionType")) for one in items(found, "spec.readinessGates")]
    passed = sum(1 for gate in gates if _first_is_true(found, gate))
    return [
        address or NONE, word(found, "spec.nodeName", NONE), word(found, "status.nominatedNodeName", NONE),
        f"{passed}/{len(gates)}" if gates else NONE,
    ]  # fmt: skip


def _first_is_true(found: Document, condition: str) -> bool:
    return next((one.get("status") == "True" for one in _conditions(found) if one.get("type") == condition), False)
