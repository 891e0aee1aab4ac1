"""Controller revisions: earlier templates of stateful and daemon sets, kept for rollbacks.

Source  kubernetes, pkg/controller/history/controller_history.go
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.workloads.made_from import unknown_revision
from moorage.rules.workloads.missing_pods import REVISION_HASH, content_hash, ordinal_of
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import claim, keys_by_owner
from moorage.rules.workloads.stateful_set import claims_of, has_stale_claims, kept_claims, stateful_pod
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step, Update

#: The hash label on a stateful set's revisions; its pods have the revision's name in the other label.
_OWN_HASH = "controller.kubernetes.io/hash"
_encode = msgspec.json.Encoder(order="deterministic").encode


class RevisionHistory(NamedTuple):
    """Revisions, the oldest first; ``update`` is that of the current template. ``steps`` create or renumber it."""

    revisions: list[Document]
    update: Document
    steps: list[Step]

    def named(self, name: str) -> Document | None:
        return next((one for one in self.revisions if k8s.name_of(one) == name), None)

    def truncated(self, limit: int, in_use: Collection[str]) -> list[Step]:
        """Return the deletion of the oldest revisions beyond ``limit``, except those ``in_use`` (their names) by pods."""
        kept = {k8s.name_of(self.update), *in_use}
        idle = [one for one in self.revisions if k8s.name_of(one) not in kept]
        return [DeleteStep(k8s.CONTROLLER_REVISIONS, one) for one in idle[: max(0, len(idle) - limit)]]


def history_of(kind: ServedKind, owner: Document, world: ObjectIndex) -> RevisionHistory:
    """Return an owner's revisions, including one for its current template.

    Pods of that template may name a missing revision, for example in a dump: then it is created under that name.
    """
    held = sorted(
        world.controlled(k8s.CONTROLLER_REVISIONS, owner), key=lambda one: (int(one.get("revision") or 0), k8s.age_order(one))
    )
    data = _data(owner)
    newest = int(held[-1].get("revision") or 0) if held else 0
    same = [one for one in held if one.get("data") == data]
    if not same:
        known = {k8s.name_of(one) for one in held}
        made = _revision(kind, owner, data, newest + 1, unknown_revision(kind, owner, world.controlled(k8s.PODS, owner), known))
        return RevisionHistory([*held, made], made, [Create(k8s.CONTROLLER_REVISIONS, k8s.copied(made), or_keep=True)])
    found = same[-1]
    if int(found.get("revision") or 0) == newest:
        return RevisionHistory(held, found, [])
    # A rollback: this revision becomes the newest.
    moved = {**found, "revision": newest + 1}
    others = [one for one in held if k8s.uid_of(one) != k8s.uid_of(found)]
    return RevisionHistory([*others, moved], moved, [Update(k8s.CONTROLLER_REVISIONS, k8s.copied(moved))])


def _data(owner: Document) -> dict[str, Any]:
    """Return the data of a revision in canonical field order: it is compared byte for byte."""
    template = {**(k8s.spec_of(owner).get("template") or {}), "$patch": "replace"}
    data: dict[str, Any] = msgspec.json.decode(_encode({"spec": {"template": template}}))
    return data


def _revision(kind: ServedKind, owner: Document, data: dict[str, Any], number: int, name: str) -> Document:
    """Return a new revision; with ``name``, the name that pods of the template already refer to."""
    template = k8s.spec_of(owner).get("template") or {}
    mark = name.removeprefix(f"{k8s.name_of(owner)}-") or content_hash(template)
    label = REVISION_HASH if kind is k8s.DAEMON_SETS else _OWN_HASH
    labels = {**((template.get("metadata") or {}).get("labels") or {}), label: mark}
    return {
        "apiVersion": k8s.CONTROLLER_REVISIONS.api_version,
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{k8s.name_of(owner)}-{mark}",
            "namespace": k8s.namespace_of(owner),
            "labels": labels,
            **({"annotations": dict(held)} if (held := k8s.annotations_of(owner)) else {}),
            "ownerReferences": [k8s.reference_to(kind, owner)],
        },
        "data": data,
        "revision": number,
    }


#: Maximum number of pods that one reconcile creates, as the number of replicas has no limit.
_BURST: Final = 100


class StatefulSets:
    name = "statefulset-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        return keys_by_owner(event, world, k8s.PODS, k8s.STATEFUL_SETS)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        held = world.find(k8s.STATEFUL_SETS, key)
        if held is None:
            return
        selector = k8s.selector_of(k8s.spec_of(held).get("selector"))
        is_own = lambda pod: ordinal_of(k8s.name_of(held), k8s.name_of(pod)) is not None  # noqa: E731
        claimed = claim(k8s.PODS, k8s.STATEFUL_SETS, held, selector, world, is_own)
        yield from claimed.steps
        if k8s.is_ending(held):
            return
        history = history_of(k8s.STATEFUL_SETS, held, world)
        yield from history.steps
        sync = _Sync(held, claimed.held, history, world, now)
        steps = list(sync.steps())
        yield from steps
        if not any(isinstance(step, Create) and step.kind is k8s.PODS for step in steps):
            yield from sync.status_steps()
        in_use = {k8s.labels_of(pod).get(REVISION_HASH, "") for pod in claimed.held}
        limit = int(k8s.spec_of(held).get("revisionHistoryLimit", 10))
        yield from history.truncated(limit, {*in_use, sync.current})


class _Sync:
    """One reconcile of a stateful set: its pods by ordinal, with missing and excess ones."""

    def __init__(self, held: Document, pods: list[Document], history: RevisionHistory, world: ObjectIndex, now: float) -> None:
        self.held, self.history, self.world, self.now = held, history, world, now
        self.spec = k8s.spec_of(held)
        self.update = k8s.name_of(history.update)
        self.current = k8s.status_of(held).get("currentRevision") or self.update
        if history.named(self.current) is None:
            self.current = self.update
        start = int((self.spec.get("ordinals") or {}).get("start") or 0)
        self.numbers = range(start, start + int(self.spec.get("replicas", 1)))
        self.pods = {number: pod for pod in pods if (number := ordinal_of(k8s.name_of(held), k8s.name_of(pod))) is not None}
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
            made += any(isinstance(step, Create) and step.kind is k8s.PODS for step in steps)
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
        if k8s.is_ending(pod):
            return [], False
        if k8s.phase_of(pod) in ENDED_PHASES:
            text = f"StatefulSet {k8s.name_of(self.held)} is recreating {k8s.phase_of(pod).lower()} Pod {k8s.name_of(pod)}"
            told = EventStep(k8s.STATEFUL_SETS, self.held, "Warning", "RecreatingFailedPod", text)
            return [told, DeleteStep(k8s.PODS, pod)], False
        steps = [*self._new_claims(number), *kept_claims(self.held, pod, self.world, leaves=False)]
        since = k8s.ready_since(pod)
        if since is None:
            return steps, False
        left_s = since + int(self.spec.get("minReadySeconds") or 0) - self.now
        return ([*steps, Later(left_s)], False) if left_s > 0 else (steps, True)

    def _new_claims(self, number: int) -> Iterator[Step]:
        for kind, made in claims_of(self.held, number):
            if self.world.get(kind, made["metadata"]["namespace"], k8s.name_of(made)) is None:
                claim, name = f"Claim {k8s.name_of(made)}", k8s.name_of(self.held)
                good = f"Create {claim} Pod {name}-{number} in StatefulSet {name} success"
                bad = f"Create {claim} for Pod {name}-{number} in StatefulSet {name} failed error: "
                yield Create(kind, made, owner=(k8s.STATEFUL_SETS, self.held), event_texts=(good, bad))

    def _made(self, number: int) -> Step:
        revision = self.history.update
        if self.rolls and number < self.numbers.start + self.partition:
            revision = self.history.named(self.current) or revision
        template = {name: value for name, value in revision["data"]["spec"]["template"].items() if name != "$patch"}
        pod = stateful_pod(self.held, template, k8s.name_of(revision), number)
        text = f"Create Pod {k8s.name_of(pod)} in StatefulSet {k8s.name_of(self.held)}"
        texts = f"{text} successful", f"{text} failed error: "
        return Create(k8s.PODS, pod, owner=(k8s.STATEFUL_SETS, self.held), event_texts=texts)

    def _too_many(self) -> list[int]:
        return sorted((number for number in self.pods if number not in self.numbers), reverse=True)

    def _scale_down(self) -> Iterator[Step]:
        """Delete excess pods, the highest ordinal first; with ordered management, each only when all others are healthy."""
        for number in self._too_many():
            pod = self.pods[number]
            if k8s.is_ending(pod):
                if self.in_order:
                    return
                continue
            others = (*sorted(number for number in self.pods if number in self.numbers), *self._too_many())
            unhealthy = (one for one in others if not self._is_healthy(self.pods[one]))
            if self.in_order and not self._is_healthy(pod) and next(unhealthy, None) != number:
                return
            yield from kept_claims(self.held, pod, self.world, leaves=True)
            yield from self._deleted(pod)
            if self.in_order:
                return

    def _rolled(self) -> Iterator[Step]:
        """Delete pods of earlier revisions from the highest ordinal down to the partition; a later reconcile recreates them."""
        first = self.numbers.start + self.partition
        spent = 0
        most = 1 if self.most is None else max(1, k8s.scaled(self.most, len(self.numbers), up=False))
        for number in reversed(range(first, self.numbers.stop)):
            pod = self.pods.get(number)
            if pod is None or k8s.is_ending(pod):
                spent += 1
            elif k8s.labels_of(pod).get(REVISION_HASH) != self.update:
                yield from self._deleted(pod)
                spent += 1
            elif not self._is_available(pod):
                spent += 1
            if spent >= most:
                return

    def _deleted(self, pod: Document) -> Iterator[Step]:
        yield DeleteStep(k8s.PODS, pod)
        text = f"Delete Pod {k8s.name_of(pod)} in StatefulSet {k8s.name_of(self.held)} successful"
        yield EventStep(k8s.STATEFUL_SETS, self.held, "Normal", "SuccessfulDelete", text)

    def _is_healthy(self, pod: Document) -> bool:
        return k8s.ready_since(pod) is not None and not k8s.is_ending(pod)

    def _is_available(self, pod: Document) -> bool:
        since = k8s.ready_since(pod)
        return since is not None and self.now - since >= int(self.spec.get("minReadySeconds") or 0)

    def status_steps(self) -> Iterator[Step]:
        pods = list(self.pods.values())
        there = [pod for pod in pods if not k8s.is_ending(pod)]
        counts = {
            "replicas": len(pods),
            "readyReplicas": sum(k8s.ready_since(pod) is not None for pod in pods),
            "availableReplicas": sum(map(self._is_available, pods)),
            "currentReplicas": sum(k8s.labels_of(pod).get(REVISION_HASH) == self.current for pod in there),
            "updatedReplicas": sum(k8s.labels_of(pod).get(REVISION_HASH) == self.update for pod in there),
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
            "collisionCount": int(k8s.status_of(self.held).get("collisionCount") or 0),
        }
        if status != k8s.status_of(self.held):
            yield SetStatus(k8s.STATEFUL_SETS, self.held, status)
