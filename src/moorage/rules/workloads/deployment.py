"""The deployment controller: create, scale and delete replica sets until the newest one has all replicas.

One reconcile does the work of upstream's sync: it creates or updates the new replica set, moves replicas between the sets
within the limits of the strategy, deletes old sets beyond the history limit, and updates the status. Changes of the replica
sets trigger the next reconcile.

Source  kubernetes, pkg/controller/deployment: deployment_controller.go, sync.go, rolling.go, recreate.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.object_fields import bounds
from moorage.api.documents.served_kinds import Document
from moorage.rules.workloads import replica_set
from moorage.rules.workloads.missing_pods import REVISION
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import claim, keys_by_owner
from moorage.rules.workloads.replica_scaling import grow_new, shrink_old, spread
from moorage.rules.workloads.replica_set import DESIRED, size_of
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step, Update

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


@dataclass(frozen=True, slots=True)
class Rollout:
    """A deployment and its replica sets; the old ones sorted by age, oldest first."""

    deployment: Document
    new: Document | None
    old: list[Document]
    bounds: k8s.Bounds

    @property
    def sets(self) -> list[Document]:
        return [*self.old, self.new] if self.new is not None else self.old

    @property
    def wanted(self) -> int:
        return int(k8s.spec_of(self.deployment).get("replicas", 1))

    @property
    def rolls(self) -> bool:
        return bool((k8s.spec_of(self.deployment).get("strategy") or {}).get("type") != "Recreate")

    @property
    def most(self) -> int:
        """The maximum number of replicas at the same time."""
        return self.wanted + (self.bounds.surge if self.rolls else 0)


class Deployments:
    name = "deployment-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.PODS:
            return self._keys_of_ended(event, world)
        return keys_by_owner(event, world, k8s.REPLICA_SETS, k8s.DEPLOYMENTS)

    @staticmethod
    def _keys_of_ended(event: ObjectChange, world: ObjectIndex) -> Iterator[str]:
        """Yield the deployment that may wait for this pod to end before it creates new ones (strategy Recreate)."""
        if event.new is not None and k8s.is_active(event.new):
            return
        owner = k8s.controller_of(event.latest)
        held = None if owner is None else world.by_uid(owner["uid"])
        above = k8s.controller_of(held[1]) if held is not None else None
        if above is not None and above["kind"] == "Deployment":
            yield f"{k8s.namespace_of(event.latest)}/{above['name']}"

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        deployment = world.find(k8s.DEPLOYMENTS, key)
        if deployment is None:
            return
        selector = k8s.selector_of(k8s.spec_of(deployment).get("selector"))
        claimed = claim(k8s.REPLICA_SETS, k8s.DEPLOYMENTS, deployment, selector, world)
        yield from claimed.steps
        new = replica_set.find_new(deployment, claimed.held)
        old = sorted((one for one in claimed.held if new is None or k8s.uid_of(one) != k8s.uid_of(new)), key=k8s.age_order)
        wanted = int(k8s.spec_of(deployment).get("replicas", 1))
        rolling = (k8s.spec_of(deployment).get("strategy") or {}).get("rollingUpdate") or {}
        rollout = Rollout(deployment, new, old, bounds(rolling, wanted))
        steps = [] if k8s.is_ending(deployment) else list(self._advance(rollout, world))
        yield from steps
        made = next((k8s.name_of(step.document) for step in steps if isinstance(step, Create)), "")
        yield from status_steps(deployment, new, rollout.sets, now, made)

    def _advance(self, rollout: Rollout, world: ObjectIndex) -> Iterator[Step]:
        deployment = rollout.deployment
        if k8s.spec_of(deployment).get("paused"):
            yield from _resized(rollout, spread(rollout.new, rollout.old, rollout.wanted, rollout.most, rollout.rolls))
            yield from _cleaned_up(rollout)
            return
        if rollout.new is None:
            yield from self._make_new(rollout, world)
            return
        marked = _marked(deployment, rollout.new, max(map(replica_set.revision_of, rollout.old), default=0) + 1)
        if marked is not rollout.new:
            yield Update(k8s.REPLICA_SETS, marked)
        yield from _with_revision(deployment, replica_set.revision_of(marked))
        rollout = replace(rollout, new=marked)
        if _is_scaled(rollout):
            yield from _resized(rollout, spread(rollout.new, rollout.old, rollout.wanted, rollout.most, rollout.rolls))
        elif rollout.rolls:
            yield from self._roll(rollout)
        else:
            yield from self._recreate(rollout, world)
        if _is_complete(rollout):
            yield from _cleaned_up(rollout)

    def _make_new(self, rollout: Rollout, world: ObjectIndex) -> Iterator[Step]:
        """Create the replica set of the current template, with as many replicas as the strategy allows."""
        deployment = rollout.deployment
        if not rollout.rolls and _runs_old_pods(rollout.old, world):
            yield from _resized(rollout, {k8s.uid_of(one): 0 for one in rollout.old})
            return
        collisions = int(k8s.status_of(deployment).get("collisionCount") or 0)
        mark = replica_set.template_hash(k8s.spec_of(deployment).get("template") or {}, collisions)
        if world.get(k8s.REPLICA_SETS, k8s.namespace_of(deployment), f"{k8s.name_of(deployment)}-{mark}") is not None:
            yield SetStatus(k8s.DEPLOYMENTS, deployment, {**k8s.status_of(deployment), "collisionCount": collisions + 1})
            return
        room = min(rollout.wanted, max(0, rollout.most - sum(map(size_of, rollout.old))))
        replicas = room if rollout.rolls else rollout.wanted
        revision = max(map(replica_set.revision_of, rollout.old), default=0) + 1
        made = replica_set.new_replica_set(deployment, mark, revision, replicas, rollout.most)
        yield Create(k8s.REPLICA_SETS, made)
        yield from _with_revision(deployment, revision)
        if replicas:
            yield _scaling_event(deployment, made, 0, replicas)

    @staticmethod
    def _roll(rollout: Rollout) -> Iterator[Step]:
        new = rollout.new
        if new is None:
            return
        grown = grow_new(new, rollout.old, rollout.wanted, rollout.most)
        if grown != size_of(new):
            yield from _resized(rollout, {k8s.uid_of(new): grown})
            return
        yield from _resized(rollout, shrink_old(new, rollout.old, rollout.wanted - rollout.bounds.unavailable))

    @staticmethod
    def _recreate(rollout: Rollout, world: ObjectIndex) -> Iterator[Step]:
        if any(map(size_of, rollout.old)):
            yield from _resized(rollout, {k8s.uid_of(one): 0 for one in rollout.old})
        elif rollout.new is not None and not _runs_old_pods(rollout.old, world):
            yield from _resized(rollout, {k8s.uid_of(rollout.new): rollout.wanted})


def _marked(deployment: Document, new: Document, revision: int) -> Document:
    """Return the new replica set with the annotations and minReadySeconds of its deployment."""
    annotations = replica_set.updated_annotations(deployment, new, revision)
    least_s = k8s.spec_of(deployment).get("minReadySeconds") or 0
    if annotations == k8s.annotations_of(new) and (k8s.spec_of(new).get("minReadySeconds") or 0) == least_s:
        return new
    spec = {name: value for name, value in k8s.spec_of(new).items() if name != "minReadySeconds"}
    return {**k8s.revised(new, annotations=annotations), "spec": {**spec, "minReadySeconds": least_s} if least_s else spec}


def _runs_old_pods(old: Iterable[Document], world: ObjectIndex) -> bool:
    """Return True while old replica sets have pods that have not ended."""
    pods = (pod for one in old for pod in world.controlled(k8s.PODS, one))
    return any((k8s.status_of(pod).get("phase") not in {"Failed", "Succeeded"}) for pod in pods)


def _with_revision(deployment: Document, revision: int) -> Iterator[Step]:
    text = str(revision)
    if k8s.annotations_of(deployment).get(REVISION) != text:
        annotated = k8s.revised(deployment, annotations={**k8s.annotations_of(deployment), REVISION: text})
        # An update of the main resource would increase the generation.
        yield Update(k8s.DEPLOYMENTS, annotated, "status")


def _is_scaled(rollout: Rollout) -> bool:
    """Return True if the deployment's replicas changed since its replica sets were last resized."""
    wanted = str(rollout.wanted)
    active = [one for one in rollout.sets if size_of(one)]
    if len(active) > 1 and not rollout.rolls:
        return False
    return any(k8s.annotations_of(one).get(DESIRED, wanted) != wanted for one in active)


def _is_complete(rollout: Rollout) -> bool:
    totals = sum_of(rollout.sets)
    new = sum_of([rollout.new] if rollout.new is not None else [])
    return rollout.wanted == totals["replicas"] == new["replicas"] == totals["availableReplicas"]


def _resized(rollout: Rollout, sizes: dict[str, int]) -> Iterator[Step]:
    """Yield the updates that resize replica sets, by UID, and the sizes in their annotations."""
    for one in rollout.sets:
        size = sizes.get(k8s.uid_of(one), size_of(one))
        annotations = replica_set.with_sizes(k8s.annotations_of(one), rollout.wanted, rollout.most)
        if size == size_of(one) and (not size or annotations == k8s.annotations_of(one) or k8s.uid_of(one) not in sizes):
            continue
        spec = {**k8s.spec_of(one), "replicas": size}
        yield Update(k8s.REPLICA_SETS, {**k8s.revised(one, annotations=annotations), "spec": spec})
        if size != size_of(one):
            yield _scaling_event(rollout.deployment, one, size_of(one), size)


def _scaling_event(deployment: Document, one: Document, before: int, after: int) -> Step:
    way = "up" if after > before else "down"
    text = f"Scaled {way} replica set {k8s.name_of(one)} from {before} to {after}"
    return EventStep(k8s.DEPLOYMENTS, deployment, "Normal", "ScalingReplicaSet", text)


def _cleaned_up(rollout: Rollout) -> Iterator[Step]:
    """Yield the deletion of the oldest empty replica sets beyond the history limit."""
    limit = k8s.spec_of(rollout.deployment).get("revisionHistoryLimit")
    if limit is None:
        return
    alive = [one for one in rollout.old if not k8s.is_ending(one)]
    oldest = sorted(alive, key=lambda one: (replica_set.revision_of(one), k8s.age_order(one)))
    for one in oldest[: max(0, len(alive) - int(limit))]:
        status = k8s.status_of(one)
        idle = not status.get("replicas") and not size_of(one)
        if idle and int(status.get("observedGeneration") or 0) >= int(one["metadata"].get("generation") or 0):
            yield DeleteStep(k8s.REPLICA_SETS, one)
