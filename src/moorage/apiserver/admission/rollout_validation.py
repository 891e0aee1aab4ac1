"""How workloads bring out a new template: what kube-apiserver refuses of it, as such a rollout would never end or mean nothing.

Source  kubernetes, pkg/apis/apps/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["rollout_faults"]

_SHARE: Final = re.compile("[0-9]+%")
_NO_SHARE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_NEGATIVE: Final = "must be greater than or equal to 0"


def rollout_faults(workload: Document) -> Iterator[Fault]:
    """Find what is wrong with the strategy, the waits and the history of a workload that has its defaults."""
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
            missing, extra = (strategy["rollingUpdate"].get(name) for name in ("maxUnavailable", "maxSurge"))
            yield from _amount(f"{path}.rollingUpdate.maxUnavailable", missing)
            yield from _amount(f"{path}.rollingUpdate.maxSurge", extra)
            if _number(missing) == _number(extra) == 0:
                why = "may not be 0 when `maxSurge` is 0"
                yield Fault("Invalid value", f"{path}.rollingUpdate.maxUnavailable", why, missing)
            yield from _within(f"{path}.rollingUpdate.maxUnavailable", missing)
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
    missing, extra = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    yield from _amount(f"{path}.maxUnavailable", missing)
    yield from _amount(f"{path}.maxSurge", extra)
    yield from _within(f"{path}.maxUnavailable", missing)
    yield from _within(f"{path}.maxSurge", extra)
    if _number(missing) and _number(extra):
        yield Fault("Invalid value", f"{path}.maxSurge", "may not be set when maxUnavailable is non-zero", extra)
    elif not _number(missing) and not _number(extra):
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
    partition, missing = rolling.get("partition") or 0, rolling.get("maxUnavailable")
    if partition < 0:
        yield Fault("Invalid value", f"{path}.partition", _NEGATIVE, partition)
    if missing is not None:
        yield from _amount(f"{path}.maxUnavailable", missing)
        if _number(missing) == 0:
            yield Fault("Invalid value", f"{path}.maxUnavailable", "cannot be 0", missing)
        yield from _within(f"{path}.maxUnavailable", missing)


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
    """Find what keeps a value from being a number of pods, or a share of them."""
    if isinstance(value, str):
        if not _SHARE.fullmatch(value):
            yield Fault("Invalid value", path, _NO_SHARE, value)
    elif (value or 0) < 0:
        yield Fault("Invalid value", path, _NEGATIVE, value)


def _within(path: str, value: Any) -> Iterator[Fault]:
    if isinstance(value, str) and _SHARE.fullmatch(value) and _number(value) > 100:
        yield Fault("Invalid value", path, "must not be greater than 100%", value)


def _number(value: Any) -> int:
    """Return how many a value says; 0 of a text that is no share."""
    if isinstance(value, str):
        return int(value[:-1]) if _SHARE.fullmatch(value) else 0
    return int(value or 0)
