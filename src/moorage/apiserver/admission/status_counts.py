"""Validation of counts and conditions in the status of workloads, jobs, disruption budgets and claims.

Source  kubernetes, pkg/apis/{apps,batch,core,policy}/validation, the functions that validate a status
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from moorage.api.quantity import parse
from moorage.api.validation.faults import NOT_NEGATIVE
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Bare, Fault

__all__ = ["status_count_faults"]

Faults = Iterator[Fault]
Rule = Callable[[Document, Document], Faults]

_NOT_MORE: Final = "cannot be greater than status.replicas"


def status_count_faults(kind: str, old: Document, new: Document) -> Faults:
    """Yield the faults of an object's new status; nothing for kinds without rules here."""
    rule = _RULES.get(kind)
    if rule is not None:
        yield from rule(old, new)


def _status(document: Document) -> Document:
    status: Any = document.get("status")
    return status if isinstance(status, dict) else {}


def _not_negative(status: Document, names: tuple[str, ...]) -> Faults:
    for name in names:
        if (value := status.get(name) or 0) < 0:
            yield Fault("Invalid value", f"status.{name}", NOT_NEGATIVE, value)


def _replicas(names: tuple[str, ...], parts: tuple[str, ...], ready: str, _: Document, new: Document) -> Faults:
    """Yield counts of a workload that contradict each other. ``ready`` is the name of the ready count in the message."""
    status = _status(new)
    yield from _not_negative(status, names)
    for name in parts:
        if (value := status.get(name) or 0) > (status.get("replicas") or 0):
            yield Fault("Invalid value", f"status.{name}", _NOT_MORE, value)
    if "availableReplicas" in parts and (value := status.get("availableReplicas") or 0) > (status.get("readyReplicas") or 0):
        yield Fault("Invalid value", "status.availableReplicas", f"cannot be greater than {ready}", value)


def _numbers(names: tuple[str, ...], _: Document, new: Document) -> Faults:
    yield from _not_negative(_status(new), names)


# -- jobs --------------------------------------------------------------------------------------------------------------


def _is_true(status: Document, kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in status.get("conditions") or ())


def _conditions(why: str) -> Fault:
    # kube-apiserver does not show the conditions here.
    return Fault("Invalid value", "status.conditions", why, Bare(""))


def _job(old: Document, new: Document) -> Faults:
    before, status = _status(old), _status(new)
    yield from _not_negative(status, ("active", "succeeded", "failed", "ready", "terminating"))
    complete, failed = _is_true(status, "Complete"), _is_true(status, "Failed")
    yield from _finish_faults(before, status, complete, failed)
    if status.get("ready") is not None and status["ready"] > (status.get("active") or 0):
        yield Fault("Invalid value", "status.ready", "cannot set more ready pods than active", status["ready"])
    for kind in ("Failed", "Complete", "FailureTarget"):
        if _is_true(before, kind) and not _is_true(status, kind):
            yield _conditions(f"cannot disable the terminal {kind}=True condition")
    if (before.get("startTime") and before["startTime"] != status.get("startTime")
            and not (new.get("spec") or {}).get("suspend")):  # fmt: skip
        why = "field is immutable for unsuspended job once set"
        yield Fault("Invalid value", "status.startTime", why, status.get("startTime"))


def _finish_faults(before: Document, status: Document, complete: bool, failed: bool) -> Faults:
    """Yield the faults of the status of a job that finishes."""
    ended = status.get("completionTime")
    was_complete, was_failed = _is_true(before, "Complete"), _is_true(before, "Failed")
    if complete and failed and not (was_complete and was_failed):
        yield _conditions("cannot set Complete=True and Failed=true conditions")
    if ended and not complete:
        why = "cannot set completionTime when there is no Complete=True condition"
        yield Fault("Invalid value", "status.completionTime", why, ended)
    if complete and not ended and not was_complete:
        yield Fault("Required value", "status.completionTime", "completionTime is required for Complete jobs")
    if ended and status.get("startTime") and ended < status["startTime"]:
        yield Fault("Invalid value", "status.completionTime", "must be equal to or after `startTime`", ended)
    if failed and not was_failed and not _is_true(status, "FailureTarget"):
        yield _conditions("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not was_complete and not _is_true(status, "SuccessCriteriaMet"):
        yield _conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if (complete or failed) and not (was_complete or was_failed):
        if (active := status.get("active") or 0) > 0:
            yield Fault("Invalid value", "status.active", "active>0 is invalid for finished job", active)
        if not status.get("startTime"):
            yield Fault("Required value", "status.startTime", "startTime is required for finished job")


# -- other kinds -------------------------------------------------------------------------------------------------------


def _budget(_: Document, new: Document) -> Faults:
    status = _status(new)
    for i, one in enumerate(status.get("conditions") or ()):
        path = f"status.conditions[{i}]"
        if one.get("status") not in {"False", "True", "Unknown"}:
            supported = 'supported values: "False", "True", "Unknown"'
            yield Fault("Unsupported value", f"{path}.status", supported, one.get("status", ""))
        for name in ("lastTransitionTime", "reason"):
            if not one.get(name):
                yield Fault("Required value", f"{path}.{name}")
    yield from _not_negative(status, ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"))


def _claim(_: Document, new: Document) -> Faults:
    for name, amount in (_status(new).get("capacity") or {}).items():
        if parse(amount) < 0:
            yield Fault("Invalid value", f"status.capacity[{name}]", "must be a valid resource quantity", Bare(amount))


_RULES: Final[Mapping[str, Rule]] = {
    "DaemonSet": partial(_numbers, (
        "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
        "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
    )),
    "Deployment": partial(
        _replicas,
        ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas",
         "terminatingReplicas", "collisionCount"),
        ("updatedReplicas", "readyReplicas", "availableReplicas"), "readyReplicas",
    ),
    "Job": _job,
    "PersistentVolumeClaim": _claim,
    "PodDisruptionBudget": _budget,
    "ReplicaSet": partial(
        _replicas,
        ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration", "terminatingReplicas"),
        ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), "readyReplicas",
    ),
    "ReplicationController": partial(
        _replicas,
        ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"),
        ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), "readyReplicas",
    ),
    "StatefulSet": partial(
        _replicas,
        ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas", "observedGeneration",
         "collisionCount"),
        ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"), "status.readyReplicas",
    ),
}  # fmt: skip
