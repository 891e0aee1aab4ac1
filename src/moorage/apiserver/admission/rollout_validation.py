"""Validation of the update strategies of workloads.

Source  kubernetes, pkg/apis/apps/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["rollout_faults"]

_PERCENT: Final = re.compile("[0-9]+%")
_NOT_A_PERCENTAGE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_NEGATIVE: Final = "must be greater than or equal to 0"


def rollout_faults(workload: Document) -> Iterator[Fault]:
    """Yield the faults in the strategy, wait times and history limit of a defaulted workload."""
    kind, spec = workload.get("kind"), workload.get("spec") or {}
    if (rule := _STRATEGIES.get(str(kind))) is not None:
        yield from rule(spec)
    names = ("minReadySeconds",) if kind == "StatefulSet" else ("minReadySeconds", "revisionHistoryLimit")
    for name in names:
        if (spec.get(name) or 0) < 0:
            yield Fault("Invalid value", f"spec.{name}", _NEGATIVE, spec[name])
    deadline = spec.get("progressDeadlineSeconds")
    if kind == "Deployment" and deadline is not None:
        if deadline < 0:
            yield Fault("Invalid value", "spec.progressDeadlineSeconds", _NEGATIVE, deadline)
        if deadline <= (spec.get("minReadySeconds") or 0):
            yield Fault("Invalid value", "spec.progressDeadlineSeconds", "must be greater than minReadySeconds", deadline)


def _deployment(spec: Document) -> Iterator[Fault]:
    strategy, path = spec.get("strategy") or {}, "spec.strategy"
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "Recreate":
            if rolling is not None:
                why = "may not be specified when strategy `type` is 'Recreate'"
                yield Fault("Forbidden", f"{path}.rollingUpdate", why)
        case "RollingUpdate":
            unavailable, surge = (strategy["rollingUpdate"].get(name) for name in ("maxUnavailable", "maxSurge"))
            yield from _amount(f"{path}.rollingUpdate.maxUnavailable", unavailable)
            yield from _amount(f"{path}.rollingUpdate.maxSurge", surge)
            if _number(unavailable) == _number(surge) == 0:
                why = "may not be 0 when `maxSurge` is 0"
                yield Fault("Invalid value", f"{path}.rollingUpdate.maxUnavailable", why, unavailable)
            yield from _at_most_all(f"{path}.rollingUpdate.maxUnavailable", unavailable)
        case _:
            yield from _no_type(path, strategy, ("Recreate", "RollingUpdate"))


def _daemon_set(spec: Document) -> Iterator[Fault]:
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    if strategy.get("type") == "OnDelete":
        return
    if strategy.get("type") != "RollingUpdate":
        yield from _no_type(path, strategy, ("RollingUpdate", "OnDelete"))
        return
    rolling, path = strategy["rollingUpdate"], f"{path}.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    yield from _amount(f"{path}.maxUnavailable", unavailable)
    yield from _amount(f"{path}.maxSurge", surge)
    yield from _at_most_all(f"{path}.maxUnavailable", unavailable)
    yield from _at_most_all(f"{path}.maxSurge", surge)
    if _number(unavailable) and _number(surge):
        yield Fault("Invalid value", f"{path}.maxSurge", "may not be set when maxUnavailable is non-zero", surge)
    elif not _number(unavailable) and not _number(surge):
        yield Fault("Required value", f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _stateful_set(spec: Document) -> Iterator[Fault]:
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "OnDelete":
            if rolling is not None:
                shown = {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}
                why = "only allowed for updateStrategy 'RollingUpdate'"
                yield Fault("Invalid value", f"{path}.rollingUpdate", why, shown)
        case "RollingUpdate":
            yield from _by_partition(f"{path}.rollingUpdate", rolling or {})
        case kind:
            shown = {"Type": kind, "RollingUpdate": None}
            yield Fault("Invalid value", path, "must be 'RollingUpdate' or 'OnDelete'", shown)


def _by_partition(path: str, rolling: Document) -> Iterator[Fault]:
    partition, unavailable = rolling.get("partition") or 0, rolling.get("maxUnavailable")
    if partition < 0:
        yield Fault("Invalid value", f"{path}.partition", _NEGATIVE, partition)
    if unavailable is not None:
        yield from _amount(f"{path}.maxUnavailable", unavailable)
        if _number(unavailable) == 0:
            yield Fault("Invalid value", f"{path}.maxUnavailable", "cannot be 0", unavailable)
        yield from _at_most_all(f"{path}.maxUnavailable", unavailable)


_STRATEGIES: Final[dict[str, Callable[[Document], Iterator[Fault]]]] = {
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
}


def _no_type(path: str, strategy: Document, supported: tuple[str, ...]) -> Iterator[Fault]:
    rolling = strategy.get("rollingUpdate")
    held = (
        None
        if rolling is None
        else {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}
    )
    names = ", ".join(f'"{name}"' for name in supported)
    shown = {"Type": strategy.get("type", ""), "RollingUpdate": held}
    yield Fault("Unsupported value", path, f"supported values: {names}", shown)


def _amount(path: str, value: Any) -> Iterator[Fault]:
    """Yield the fault of a value that is neither a number of pods nor a percentage."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield Fault("Invalid value", path, _NOT_A_PERCENTAGE, value)
    elif (value or 0) < 0:
        yield Fault("Invalid value", path, _NEGATIVE, value)


def _at_most_all(path: str, value: Any) -> Iterator[Fault]:
    if isinstance(value, str) and _PERCENT.fullmatch(value) and _number(value) > 100:
        yield Fault("Invalid value", path, "must not be greater than 100%", value)


def _number(value: Any) -> int:
    """Return the number in a value; 0 for a string that is not a percentage."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return int(value or 0)
