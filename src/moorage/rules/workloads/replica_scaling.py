"""The next sizes of a deployment's replica sets.

Source  kubernetes, pkg/controller/deployment/rolling.go and sync.go (scale); util/deployment_util.go, NewRSNewReplicas
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.object_fields import bounds
from moorage.api.documents.served_kinds import Document
from moorage.api.quantity import parse_int64
from moorage.rules.workloads import replica_set
from moorage.rules.workloads.deployment import status_steps, sum_of
from moorage.rules.workloads.missing_pods import REVISION
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import claim, keys_by_owner
from moorage.rules.workloads.replica_set import DESIRED, size_of
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, SetStatus, Step, Update


def grow_new(new: Document, old: list[Document], wanted: int, most: int) -> int:
    """Return the size of the new replica set: up to ``wanted``, while all sets together have at most ``most`` replicas."""
    size = size_of(new)
    if size >= wanted:
        return wanted
    room = most - size - sum(map(size_of, old))
    return size + max(0, min(room, wanted - size))


def shrink_old(new: Document, old: list[Document], least: int) -> dict[str, int]:
    """Return the new sizes, by UID, of the old sets to scale down, so that ``least`` replicas in total stay available."""
    total = size_of(new) + sum(map(size_of, old))
    idle_new = size_of(new) - int(k8s.status_of(new).get("availableReplicas") or 0)
    spare = total - least - idle_new
    if spare <= 0:
        return {}
    sizes = _without_unavailable(old, spare)
    available = sum(int(k8s.status_of(one).get("availableReplicas") or 0) for one in (*old, new))
    budget = available - least
    for one in sorted(old, key=k8s.age_order):
        size = sizes.get(k8s.uid_of(one), size_of(one))
        taken = min(size, max(0, budget))
        if taken:
            sizes[k8s.uid_of(one)] = size - taken
            budget -= taken
    return sizes


def _without_unavailable(old: list[Document], spare: int) -> dict[str, int]:
    """Return the new sizes, by UID, of the old sets after removing up to ``spare`` unavailable replicas."""
    sizes: dict[str, int] = {}
    for one in sorted(old, key=k8s.age_order):
        unavailable = size_of(one) - int(k8s.status_of(one).get("availableReplicas") or 0)
        taken = min(spare, max(0, unavailable))
        if taken:
            sizes[k8s.uid_of(one)] = size_of(one) - taken
            spare -= taken
    return sizes


def spread(new: Document | None, old: list[Document], wanted: int, most: int, rolls: bool) -> dict[str, int]:
    """Return the new sizes, by UID, after a deployment was scaled: in proportion if several sets have replicas."""
    sets = [*old, new] if new is not None else old
    active = [one for one in sets if size_of(one)]
    if len(active) <= 1:
        target = active[0] if active else new if new is not None else max(old, key=k8s.age_order, default=None)
        return {} if target is None else {k8s.uid_of(target): wanted}
    if new is not None and _is_saturated(new, wanted):
        return {k8s.uid_of(one): 0 for one in active if one is not new}
    if not rolls:
        return {}
    change = (most if wanted else 0) - sum(map(size_of, active))
    # The largest first; with equal size, the newest first when scaling up and the oldest first when scaling down.
    by_age = sorted(active, key=k8s.age_order, reverse=change > 0)
    return _shared(sorted(by_age, key=size_of, reverse=True), change, wanted, most)


def _shared(sets: list[Document], change: int, wanted: int, most: int) -> dict[str, int]:
    sizes: dict[str, int] = {}
    given = 0
    for one in sets:
        share = _share(one, wanted, most)
        left = change - given
        part = min(share, left) if change > 0 else max(share, left)
        part = 0 if not change or not left else part
        sizes[k8s.uid_of(one)] = size_of(one) + part
        given += part
    first = k8s.uid_of(sets[0])
    sizes[first] = max(0, sizes[first] + change - given)
    return sizes


def _share(one: Document, wanted: int, most: int) -> int:
    if not wanted:
        return -size_of(one)
    before = parse_int64(k8s.annotations_of(one).get(replica_set.MAX, "")) or 0
    if before <= 0:
        return 0
    return k8s.rounded(size_of(one) * most / before) - size_of(one)


def _is_saturated(new: Document, wanted: int) -> bool:
    """Return True if the new set's size, available replicas and annotation of desired replicas all equal ``wanted``."""
    asked = k8s.annotations_of(new).get(DESIRED)
    return size_of(new) == wanted and asked == str(wanted) and int(k8s.status_of(new).get("availableReplicas") or 0) == wanted


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
