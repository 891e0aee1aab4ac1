"""The stateful set controller: pods with ordinals, created and deleted in order, each with persistent claims.

Source  kubernetes, pkg/controller/statefulset: stateful_set_control.go and stateful_set_utils.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.kind_names import PODS, STATEFUL_SETS
from moorage.controllers.machinery.object_fields import (
    is_ending,
    labels_of,
    name_of,
    phase_of,
    ready_since,
    selector_of,
    spec_of,
    status_of,
)
from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.ownership import claim, keys_by_owner
from moorage.controllers.machinery.proportions import scaled
from moorage.controllers.machinery.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step
from moorage.controllers.workloads.controller_revisions import RevisionHistory, history_of, template_of
from moorage.controllers.workloads.missing_pods import REVISION_HASH, ordinal_of
from moorage.controllers.workloads.stateful_pods import claims_of, has_stale_claims, kept_claims, stateful_pod

__all__ = ["StatefulSets"]

#: Maximum number of pods that one reconcile creates, as the number of replicas has no limit.
_BURST: Final = 100


class StatefulSets:
    name = "statefulset-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        return keys_by_owner(event, world, PODS, STATEFUL_SETS)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        held = world.find(STATEFUL_SETS, key)
        if held is None:
            return
        selector = selector_of(spec_of(held).get("selector"))
        claimed = claim(
            PODS, STATEFUL_SETS, held, selector, world, lambda pod: ordinal_of(name_of(held), name_of(pod)) is not None
        )
        yield from claimed.steps
        if is_ending(held):
            return
        history = history_of(STATEFUL_SETS, held, world)
        yield from history.steps
        sync = _Sync(held, claimed.held, history, world, now)
        steps = list(sync.steps())
        yield from steps
        if not any(isinstance(step, Create) and step.kind is PODS for step in steps):
            yield from sync.status_steps()
        in_use = {labels_of(pod).get(REVISION_HASH, "") for pod in claimed.held}
        limit = int(spec_of(held).get("revisionHistoryLimit", 10))
        yield from history.truncated(limit, {*in_use, sync.current})


class _Sync:
    """One reconcile of a stateful set: its pods by ordinal, with missing and excess ones."""

    def __init__(self, held: Document, pods: list[Document], history: RevisionHistory, world: ObjectIndex, now: float) -> None:
        self.held, self.history, self.world, self.now = held, history, world, now
        self.spec = spec_of(held)
        self.update = name_of(history.update)
        self.current = status_of(held).get("currentRevision") or self.update
        if history.named(self.current) is None:
            self.current = self.update
        start = int((self.spec.get("ordinals") or {}).get("start") or 0)
        self.numbers = range(start, start + int(self.spec.get("replicas", 1)))
        self.pods = {number: pod for pod in pods if (number := ordinal_of(name_of(held), name_of(pod))) is not None}
        self.in_order = self.spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        strategy = self.spec.get("updateStrategy") or {}
        self.rolls = strategy.get("type", "RollingUpdate") == "RollingUpdate"
        rolling = strategy.get("rollingUpdate") or {}
        self.partition = int(rolling.get("partition") or 0) if self.rolls else 0
        self.most = rolling.get("maxUnavailable")

    def steps(self) -> Iterator[Step]:
        made = 0
        for number in self.numbers:
            steps, settled = self._ordinal_steps(number)
            yield from steps
            made += any(isinstance(step, Create) and step.kind is PODS for step in steps)
            if (not settled and self.in_order) or made == _BURST:
                return  # events of the new pods trigger the next reconcile
        yield from self._scale_down()
        if self.rolls and not self._too_many():
            yield from self._rolled()

    def _ordinal_steps(self, number: int) -> tuple[list[Step], bool]:
        """Return the steps for one ordinal, and whether the next ordinal may proceed."""
        pod = self.pods.get(number)
        if pod is None and has_stale_claims(self.held, number, self.world):
            return [Later(1.0)], False
        if pod is None:
            return [*self._new_claims(number), self._made(number)], False
        if is_ending(pod):
            return [], False
        if phase_of(pod) in ENDED_PHASES:
            text = f"StatefulSet {name_of(self.held)} is recreating {phase_of(pod).lower()} Pod {name_of(pod)}"
            return [EventStep(STATEFUL_SETS, self.held, "Warning", "RecreatingFailedPod", text), DeleteStep(PODS, pod)], False
        steps = [*self._new_claims(number), *kept_claims(self.held, pod, self.world, leaves=False)]
        since = ready_since(pod)
        if since is None:
            return steps, False
        left_s = since + int(self.spec.get("minReadySeconds") or 0) - self.now
        return ([*steps, Later(left_s)], False) if left_s > 0 else (steps, True)

    def _new_claims(self, number: int) -> Iterator[Step]:
        for kind, made in claims_of(self.held, number):
            if self.world.get(kind, made["metadata"]["namespace"], name_of(made)) is None:
                claim, name = f"Claim {name_of(made)}", name_of(self.held)
                good = f"Create {claim} Pod {name}-{number} in StatefulSet {name} success"
                bad = f"Create {claim} for Pod {name}-{number} in StatefulSet {name} failed error: "
                yield Create(kind, made, owner=(STATEFUL_SETS, self.held), event_texts=(good, bad))

    def _made(self, number: int) -> Step:
        revision = self._revision_for(number)
        template = template_of(revision)
        pod = stateful_pod(self.held, template, name_of(revision), number)
        text = f"Create Pod {name_of(pod)} in StatefulSet {name_of(self.held)}"
        return Create(PODS, pod, owner=(STATEFUL_SETS, self.held), event_texts=(f"{text} successful", f"{text} failed error: "))

    def _revision_for(self, number: int) -> Document:
        """Return the revision of a new pod: the current one below the partition, else the update revision."""
        if self.rolls and number < self.numbers.start + self.partition:
            return self.history.named(self.current) or self.history.update
        return self.history.update

    def _too_many(self) -> list[int]:
        return sorted((number for number in self.pods if number not in self.numbers), reverse=True)

    def _scale_down(self) -> Iterator[Step]:
        """Delete excess pods, the highest ordinal first; with ordered management, each only when all others are healthy."""
        for number in self._too_many():
            pod = self.pods[number]
            if is_ending(pod):
                if self.in_order:
                    return
                continue
            if self.in_order and not self._is_healthy(pod) and self._first_unhealthy() != number:
                return
            yield from kept_claims(self.held, pod, self.world, leaves=True)
            yield from self._deleted(pod)
            if self.in_order:
                return

    def _first_unhealthy(self) -> int | None:
        wanted = sorted(number for number in self.pods if number in self.numbers)
        return next((number for number in (*wanted, *self._too_many()) if not self._is_healthy(self.pods[number])), None)

    def _rolled(self) -> Iterator[Step]:
        """Delete pods of earlier revisions from the highest ordinal down to the partition; a later reconcile recreates them."""
        first = self.numbers.start + self.partition
        spent = 0
        most = 1 if self.most is None else max(1, scaled(self.most, len(self.numbers), up=False))
        for number in reversed(range(first, self.numbers.stop)):
            pod = self.pods.get(number)
            if pod is None or is_ending(pod):
                spent += 1
            elif labels_of(pod).get(REVISION_HASH) != self.update:
                yield from self._deleted(pod)
                spent += 1
            elif not self._is_available(pod):
                spent += 1
            if spent >= most:
                return

    def _deleted(self, pod: Document) -> Iterator[Step]:
        yield DeleteStep(PODS, pod)
        text = f"Delete Pod {name_of(pod)} in StatefulSet {name_of(self.held)} successful"
        yield EventStep(STATEFUL_SETS, self.held, "Normal", "SuccessfulDelete", text)

    def _is_healthy(self, pod: Document) -> bool:
        return ready_since(pod) is not None and not is_ending(pod)

    def _is_available(self, pod: Document) -> bool:
        since = ready_since(pod)
        return since is not None and self.now - since >= int(self.spec.get("minReadySeconds") or 0)

    # -- status ---------------------------------------------------------------------------------------------------------

    def status_steps(self) -> Iterator[Step]:
        pods = list(self.pods.values())
        there = [pod for pod in pods if not is_ending(pod)]
        counts = {
            "replicas": len(pods),
            "readyReplicas": sum(ready_since(pod) is not None for pod in pods),
            "availableReplicas": sum(map(self._is_available, pods)),
            "currentReplicas": sum(labels_of(pod).get(REVISION_HASH) == self.current for pod in there),
            "updatedReplicas": sum(labels_of(pod).get(REVISION_HASH) == self.update for pod in there),
        }
        current = self.current
        done = counts["updatedReplicas"] == counts["replicas"] == counts["readyReplicas"] == len(self.numbers)
        if self.rolls and done:
            current, counts["currentReplicas"] = self.update, counts["updatedReplicas"]
        status: dict[str, Any] = {
            "observedGeneration": self.held["metadata"].get("generation", 0),
            **{name: value for name, value in counts.items() if value or name in {"replicas", "availableReplicas"}},
            "currentRevision": current,
            "updateRevision": self.update,
            "collisionCount": int(status_of(self.held).get("collisionCount") or 0),
        }
        if status != status_of(self.held):
            yield SetStatus(STATEFUL_SETS, self.held, status)
