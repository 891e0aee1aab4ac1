"""The deployment controller: create, scale and delete replica sets until the newest one has all replicas.

One reconcile does the work of upstream's sync: it creates or updates the new replica set, moves replicas between the sets
within the limits of the strategy, deletes old sets beyond the history limit, and updates the status. Changes of the replica
sets trigger the next reconcile.

Source  kubernetes, pkg/controller/deployment: deployment_controller.go, sync.go, rolling.go, recreate.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.kind_names import DEPLOYMENTS, PODS, REPLICA_SETS
from moorage.controllers.machinery.object_fields import (
    age_order,
    annotations_of,
    controller_of,
    is_active,
    is_ending,
    name_of,
    namespace_of,
    revised,
    selector_of,
    spec_of,
    status_of,
    uid_of,
)
from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.ownership import claim, keys_by_owner
from moorage.controllers.machinery.proportions import Bounds, bounds
from moorage.controllers.machinery.steps import Create, DeleteStep, EventStep, SetStatus, Step, Update
from moorage.controllers.workloads.deployment_status import status_steps, sum_of
from moorage.controllers.workloads.missing_pods import REVISION
from moorage.controllers.workloads.replica_scaling import grow_new, shrink_old, spread
from moorage.controllers.workloads.replica_set_revisions import (
    DESIRED,
    find_new,
    new_replica_set,
    revision_of,
    size_of,
    template_hash,
    updated_annotations,
    with_sizes,
)

__all__ = ["Deployments", "Rollout"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A deployment and its replica sets; the old ones sorted by age, oldest first."""

    deployment: Document
    new: Document | None
    old: list[Document]
    bounds: Bounds

    @property
    def sets(self) -> list[Document]:
        return [*self.old, self.new] if self.new is not None else self.old

    @property
    def wanted(self) -> int:
        return int(spec_of(self.deployment).get("replicas", 1))

    @property
    def rolls(self) -> bool:
        return bool((spec_of(self.deployment).get("strategy") or {}).get("type") != "Recreate")

    @property
    def most(self) -> int:
        """The maximum number of replicas at the same time."""
        return self.wanted + (self.bounds.surge if self.rolls else 0)


class Deployments:
    name = "deployment-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is PODS:
            return self._keys_of_ended(event, world)
        return keys_by_owner(event, world, REPLICA_SETS, DEPLOYMENTS)

    @staticmethod
    def _keys_of_ended(event: ObjectChange, world: ObjectIndex) -> Iterator[str]:
        """Yield the deployment that may wait for this pod to end before it creates new ones (strategy Recreate)."""
        if event.new is not None and is_active(event.new):
            return
        owner = controller_of(event.latest)
        held = None if owner is None else world.by_uid(owner["uid"])
        above = controller_of(held[1]) if held is not None else None
        if above is not None and above["kind"] == "Deployment":
            yield f"{namespace_of(event.latest)}/{above['name']}"

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        deployment = world.find(DEPLOYMENTS, key)
        if deployment is None:
            return
        claimed = claim(REPLICA_SETS, DEPLOYMENTS, deployment, selector_of(spec_of(deployment).get("selector")), world)
        yield from claimed.steps
        new = find_new(deployment, claimed.held)
        old = sorted((one for one in claimed.held if new is None or uid_of(one) != uid_of(new)), key=age_order)
        wanted = int(spec_of(deployment).get("replicas", 1))
        rolling = (spec_of(deployment).get("strategy") or {}).get("rollingUpdate") or {}
        rollout = Rollout(deployment, new, old, bounds(rolling, wanted))
        steps = [] if is_ending(deployment) else list(self._advance(rollout, world))
        yield from steps
        made = next((name_of(step.document) for step in steps if isinstance(step, Create)), "")
        yield from status_steps(deployment, new, rollout.sets, now, made)

    def _advance(self, rollout: Rollout, world: ObjectIndex) -> Iterator[Step]:
        deployment = rollout.deployment
        if spec_of(deployment).get("paused"):
            yield from _resized(rollout, spread(rollout.new, rollout.old, rollout.wanted, rollout.most, rollout.rolls))
            yield from _cleaned_up(rollout)
            return
        if rollout.new is None:
            yield from self._make_new(rollout, world)
            return
        marked = _marked(deployment, rollout.new, max(map(revision_of, rollout.old), default=0) + 1)
        if marked is not rollout.new:
            yield Update(REPLICA_SETS, marked)
        yield from _with_revision(deployment, revision_of(marked))
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
            yield from _resized(rollout, {uid_of(one): 0 for one in rollout.old})
            return
        collisions = int(status_of(deployment).get("collisionCount") or 0)
        mark = template_hash(spec_of(deployment).get("template") or {}, collisions)
        if world.get(REPLICA_SETS, namespace_of(deployment), f"{name_of(deployment)}-{mark}") is not None:
            yield SetStatus(DEPLOYMENTS, deployment, {**status_of(deployment), "collisionCount": collisions + 1})
            return
        room = min(rollout.wanted, max(0, rollout.most - sum(map(size_of, rollout.old))))
        replicas = room if rollout.rolls else rollout.wanted
        revision = max(map(revision_of, rollout.old), default=0) + 1
        made = new_replica_set(deployment, mark, revision, replicas, rollout.most)
        yield Create(REPLICA_SETS, made)
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
            yield from _resized(rollout, {uid_of(new): grown})
            return
        yield from _resized(rollout, shrink_old(new, rollout.old, rollout.wanted - rollout.bounds.unavailable))

    @staticmethod
    def _recreate(rollout: Rollout, world: ObjectIndex) -> Iterator[Step]:
        if any(map(size_of, rollout.old)):
            yield from _resized(rollout, {uid_of(one): 0 for one in rollout.old})
        elif rollout.new is not None and not _runs_old_pods(rollout.old, world):
            yield from _resized(rollout, {uid_of(rollout.new): rollout.wanted})


def _marked(deployment: Document, new: Document, revision: int) -> Document:
    """Return the new replica set with the annotations and minReadySeconds of its deployment."""
    annotations = updated_annotations(deployment, new, revision)
    least_s = spec_of(deployment).get("minReadySeconds") or 0
    if annotations == annotations_of(new) and (spec_of(new).get("minReadySeconds") or 0) == least_s:
        return new
    spec = {name: value for name, value in spec_of(new).items() if name != "minReadySeconds"}
    return {**revised(new, annotations=annotations), "spec": {**spec, "minReadySeconds": least_s} if least_s else spec}


def _runs_old_pods(old: Iterable[Document], world: ObjectIndex) -> bool:
    """Return True while old replica sets have pods that have not ended."""
    pods = (pod for one in old for pod in world.controlled(PODS, one))
    return any((status_of(pod).get("phase") not in {"Failed", "Succeeded"}) for pod in pods)


def _with_revision(deployment: Document, revision: int) -> Iterator[Step]:
    text = str(revision)
    if annotations_of(deployment).get(REVISION) != text:
        annotated = revised(deployment, annotations={**annotations_of(deployment), REVISION: text})
        # An update of the main resource would increase the generation.
        yield Update(DEPLOYMENTS, annotated, "status")


def _is_scaled(rollout: Rollout) -> bool:
    """Return True if the deployment's replicas changed since its replica sets were last resized."""
    wanted = str(rollout.wanted)
    active = [one for one in rollout.sets if size_of(one)]
    if len(active) > 1 and not rollout.rolls:
        return False
    return any(annotations_of(one).get(DESIRED, wanted) != wanted for one in active)


def _is_complete(rollout: Rollout) -> bool:
    totals = sum_of(rollout.sets)
    new = sum_of([rollout.new] if rollout.new is not None else [])
    return rollout.wanted == totals["replicas"] == new["replicas"] == totals["availableReplicas"]


def _resized(rollout: Rollout, sizes: dict[str, int]) -> Iterator[Step]:
    """Yield the updates that resize replica sets, by UID, and the sizes in their annotations."""
    for one in rollout.sets:
        size = sizes.get(uid_of(one), size_of(one))
        annotations = with_sizes(annotations_of(one), rollout.wanted, rollout.most)
        if size == size_of(one) and (not size or annotations == annotations_of(one) or uid_of(one) not in sizes):
            continue
        yield Update(REPLICA_SETS, {**revised(one, annotations=annotations), "spec": {**spec_of(one), "replicas": size}})
        if size != size_of(one):
            yield _scaling_event(rollout.deployment, one, size_of(one), size)


def _scaling_event(deployment: Document, one: Document, before: int, after: int) -> Step:
    way = "up" if after > before else "down"
    text = f"Scaled {way} replica set {name_of(one)} from {before} to {after}"
    return EventStep(DEPLOYMENTS, deployment, "Normal", "ScalingReplicaSet", text)


def _cleaned_up(rollout: Rollout) -> Iterator[Step]:
    """Yield the deletion of the oldest empty replica sets beyond the history limit."""
    limit = spec_of(rollout.deployment).get("revisionHistoryLimit")
    if limit is None:
        return
    alive = [one for one in rollout.old if not is_ending(one)]
    oldest = sorted(alive, key=lambda one: (revision_of(one), age_order(one)))
    for one in oldest[: max(0, len(alive) - int(limit))]:
        status = status_of(one)
        idle = not status.get("replicas") and not size_of(one)
        if idle and int(status.get("observedGeneration") or 0) >= int(one["metadata"].get("generation") or 0):
            yield DeleteStep(REPLICA_SETS, one)
