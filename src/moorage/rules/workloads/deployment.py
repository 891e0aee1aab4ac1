"""The deployment controller: create, scale and delete replica sets until the newest one has all replicas.

One reconcile does the work of upstream's sync: it creates or updates the new replica set, moves replicas between the sets
within the limits of the strategy, deletes old sets beyond the history limit, and updates the status. Changes of the replica
sets trigger the next reconcile.

Source  kubernetes, pkg/controller/deployment: deployment_controller.go, sync.go, rolling.go, recreate.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.object_fields import bounds
from moorage.api.documents.served_kinds import Document
from moorage.rules.workloads.steps import Later, SetStatus, Step

# The status of a deployment: counts, and the conditions that ``kubectl rollout status`` and ``kubectl wait`` read.
#
# Source  kubernetes, pkg/controller/deployment/progress.go and sync.go (calculateStatus); util/deployment_util.go

_COUNTS: Final = ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")
_FAILURE: Final = "ReplicaFailure"
_NO_DEADLINE: Final = 2**31 - 1
_AVAILABLE: Final = "NewReplicaSetAvailable"
_TIMED_OUT: Final = "ProgressDeadlineExceeded"


def sum_of(sets: Iterable[Document]) -> dict[str, int]:
    """Return the total counts of replica sets."""
    statuses = [k8s.status_of(one) for one in sets]
    return {name: sum(int(status.get(name) or 0) for status in statuses) for name in _COUNTS}


def status_steps(
    deployment: Document, new: Document | None, sets: list[Document], now: float, made: str = ""
) -> Iterator[Step]:
    """Yield the status update, and a later reconcile to detect a stalled rollout.

    ``made`` is the name of a replica set that is being created.
    """
    status = _counted(deployment, new, sets)
    conditions = [dict(one) for one in k8s.status_of(deployment).get("conditions") or ()]
    conditions = _set(conditions, _availability(deployment, status), now)
    failure = _failure(sets)
    conditions = [one for one in conditions if failure is not None or one["type"] != _FAILURE]
    if failure is not None:
        conditions = _set(conditions, failure, now)
    progress = _made(deployment, made) if made else _progress(deployment, new, status, now)
    if progress is not None:
        # Progress updates the time of the condition even if the reason stays the same.
        conditions = _set(conditions, progress, now, refresh=progress["reason"] == "ReplicaSetUpdated")
    status["conditions"] = conditions
    if status != k8s.status_of(deployment):
        yield SetStatus(k8s.DEPLOYMENTS, deployment, status)
    left_s = _until_stalled(deployment, conditions, now)
    if left_s is not None:
        yield Later(left_s)


def _counted(deployment: Document, new: Document | None, sets: list[Document]) -> Document:
    counts = sum_of(sets)
    wanted = int(k8s.spec_of(deployment).get("replicas", 1))
    named: dict[str, int] = {
        "observedGeneration": int(deployment["metadata"].get("generation") or 0),
        "replicas": counts["replicas"],
        "updatedReplicas": sum_of([new] if new is not None else [])["replicas"],
        "readyReplicas": counts["readyReplicas"],
        "availableReplicas": counts["availableReplicas"],
        "unavailableReplicas": max(0, counts["replicas"] - counts["availableReplicas"], wanted - counts["availableReplicas"]),
        "collisionCount": int(k8s.status_of(deployment).get("collisionCount") or 0),
    }
    return {**{name: value for name, value in named.items() if value}, "terminatingReplicas": counts["terminatingReplicas"]}


def _availability(deployment: Document, status: Document) -> dict[str, str]:
    spec = k8s.spec_of(deployment)
    wanted = int(spec.get("replicas", 1))
    strategy = spec.get("strategy") or {}
    least = 0
    if strategy.get("type") != "Recreate":
        least = wanted - min(wanted, bounds(strategy.get("rollingUpdate") or {}, wanted).unavailable) if wanted else 0
    if int(status.get("availableReplicas") or 0) >= least:
        return _condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    return _condition("Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")


def _failure(sets: Iterable[Document]) -> dict[str, str] | None:
    """Return the condition of a replica set that cannot create pods; None without one."""
    for one in sets:
        held = k8s.condition_of(one, _FAILURE)
        if held is not None and held.get("status") == "True":
            return _condition(_FAILURE, "True", held.get("reason", ""), held.get("message", ""))
    return None


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _made(deployment: Document, name: str) -> dict[str, str] | None:
    if _deadline(k8s.spec_of(deployment)) is None:
        return None
    return _condition("Progressing", "True", "NewReplicaSetCreated", f'Created new replica set "{name}"')


def _progress(deployment: Document, new: Document | None, status: Document, now: float) -> dict[str, str] | None:
    """Return the new Progressing condition; None to leave it as it is."""
    spec = k8s.spec_of(deployment)
    deadline_s = _deadline(spec)
    held = k8s.condition_of(deployment, "Progressing")
    reason = held.get("reason") if held is not None else None
    title = f'Deployment "{k8s.name_of(deployment)}"' if new is None else f'ReplicaSet "{k8s.name_of(new)}"'
    if deadline_s is None or (spec.get("paused") and reason == _TIMED_OUT):
        return None
    if spec.get("paused") or reason == "DeploymentPaused":
        change = "paused" if spec.get("paused") else "resumed"
        return _condition("Progressing", "Unknown", f"Deployment{change.capitalize()}", f"Deployment is {change}")
    if held is None and new is not None:
        return _condition("Progressing", "True", "FoundNewReplicaSet", f'Found new replica set "{k8s.name_of(new)}"')
    if reason == _AVAILABLE and status.get("replicas") == status.get("updatedReplicas"):
        return None  # a complete rollout that was only scaled
    wanted, counts = int(spec.get("replicas", 1)), ("updatedReplicas", "replicas", "availableReplicas")
    if new is not None and all(int(status.get(name) or 0) == wanted for name in counts):
        return _condition("Progressing", "True", _AVAILABLE, f"{title} has successfully progressed.")
    if _has_progressed(k8s.status_of(deployment), status):
        return _condition("Progressing", "True", "ReplicaSetUpdated", f"{title} is progressing.")
    if held is None or reason in {_AVAILABLE, _TIMED_OUT} or k8s.seconds(held.get("lastUpdateTime")) + deadline_s >= now:
        return None
    return _condition("Progressing", "False", _TIMED_OUT, f"{title} has timed out progressing.")


def _deadline(spec: dict[str, Any]) -> int | None:
    deadline_s = spec.get("progressDeadlineSeconds")
    return None if deadline_s is None or deadline_s == _NO_DEADLINE else int(deadline_s)


def _has_progressed(before: dict[str, Any], after: Document) -> bool:
    def count(status: dict[str, Any], name: str) -> int:
        return int(status.get(name) or 0)

    old = [count(status, "replicas") - count(status, "updatedReplicas") for status in (before, after)]
    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old[1] < old[0] or any(count(after, name) > count(before, name) for name in grown)


def _set(held: list[dict[str, Any]], made: dict[str, str], now: float, *, refresh: bool = False) -> list[dict[str, Any]]:
    """Set one condition and return all. If status and reason stay the same, nothing changes unless ``refresh`` is True."""
    before = next((one for one in held if one["type"] == made["type"]), None)
    same = before is not None and (before["status"], before.get("reason")) == (made["status"], made["reason"])
    if same and not refresh:
        return held
    name, status, reason, message = made.values()
    return k8s.with_condition(held, name, status, now, reason, message, lastUpdateTime=k8s.stamp(now))


def _until_stalled(deployment: Document, conditions: list[dict[str, Any]], now: float) -> float | None:
    spec = k8s.spec_of(deployment)
    deadline_s = _deadline(spec)
    held = next((one for one in conditions if one["type"] == "Progressing"), None)
    if deadline_s is None or held is None or spec.get("paused") or held.get("reason") in {_AVAILABLE, _TIMED_OUT}:
        return None
    return max(0.0, k8s.seconds(held.get("lastUpdateTime")) + deadline_s - now) + 1
