"""The stateful set controller: pods with ordinals, created and deleted in order, each with persistent claims.

Source  kubernetes, pkg/controller/statefulset: stateful_set_control.go and stateful_set_utils.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.workloads.controller_revisions import RevisionHistory, history_of
from moorage.rules.workloads.missing_pods import REVISION_HASH, ordinal_of, stateful_claim_name, stateful_labels
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import claim, keys_by_owner, pod_of_template
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step, Update

# The pods of a stateful set and their claims: names, ordinals, and the retention of claims.
#
# Source  kubernetes, pkg/controller/statefulset/stateful_set_utils.go

# kube-controller-manager's own text, "manging" and all: people search their events for it.
_CONFLICT: Final = (
    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, "
    "the retention policy is ignored for this claim"
)


def claims_of(held: Document, number: int) -> Iterator[tuple[ServedKind, Document]]:
    """Yield the claims of one of the set's pods, as they are created."""
    selector = k8s.spec_of(held).get("selector") or {}
    for template in k8s.spec_of(held).get("volumeClaimTemplates") or ():
        made = k8s.copied(template)
        metadata = made.get("metadata") or {}
        made["metadata"] = {
            "annotations": metadata.get("annotations") or {},
            "name": stateful_claim_name(_name_in(template), k8s.name_of(held), number),
            "namespace": k8s.namespace_of(held),
            "labels": {**(metadata.get("labels") or {}), **(selector.get("matchLabels") or {})},
        }
        made |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        made.pop("status", None)
        yield k8s.CLAIMS, made


def _name_in(template: Document) -> str:
    """Return the name of a claim template; "" if it has none, which the API allows."""
    return str((template.get("metadata") or {}).get("name") or "")


def kept_claims(held: Document, pod: Document, world: ObjectIndex, *, leaves: bool) -> Iterator[Step]:
    """Yield updates of the claims' owner references for the set's retention policy.

    ``leaves`` is True for a pod that a scale-down removes.
    """
    policy = k8s.spec_of(held).get("persistentVolumeClaimRetentionPolicy") or {}
    number = ordinal_of(k8s.name_of(held), k8s.name_of(pod))
    if not policy or number is None:
        return
    with_set = policy.get("whenDeleted") == "Delete" and not (leaves and policy.get("whenScaled") == "Delete")
    with_pod = leaves and policy.get("whenScaled") == "Delete"
    for _, made in claims_of(held, number):
        there = world.get(k8s.CLAIMS, k8s.namespace_of(held), k8s.name_of(made))
        if there is not None:
            yield from _tied(there, held, pod, with_set=with_set, with_pod=with_pod)


def _tied(there: Document, held: Document, pod: Document, *, with_set: bool, with_pod: bool) -> Iterator[Step]:
    """Yield the update of a claim's owner references; skip claims with another controller or with owners of the same name."""
    before = there["metadata"].get("ownerReferences") or []
    others = [ref for ref in before if not (_names(ref, k8s.STATEFUL_SETS, held) or _names(ref, k8s.PODS, pod))]
    stale = any(ref not in others and ref.get("uid") not in {k8s.uid_of(held), k8s.uid_of(pod)} for ref in before)
    policy = set((k8s.spec_of(held).get("persistentVolumeClaimRetentionPolicy") or {}).values())
    conflict = "Delete" in policy and (stale or any(ref.get("controller") for ref in others))
    refs: list[dict[str, Any]] = list(others)
    if not conflict:
        refs += [k8s.reference_to(k8s.STATEFUL_SETS, held)] if with_set else []
        refs += [k8s.reference_to(k8s.PODS, pod)] if with_pod else []
    changes = refs != before and not stale
    if conflict and (changes or k8s.phase_of(pod) == "Pending"):
        yield EventStep(k8s.STATEFUL_SETS, held, "Warning", "ConflictingController", _CONFLICT.format(k8s.name_of(there)))
    if changes:
        yield Update(k8s.CLAIMS, k8s.revised(there, ownerReferences=refs))


def _names(ref: Mapping[str, Any], kind: ServedKind, owner: Document) -> bool:
    return (ref.get("apiVersion"), ref.get("kind"), ref.get("name")) == (kind.api_version, kind.kind, k8s.name_of(owner))


def has_stale_claims(held: Document, number: int, world: ObjectIndex) -> bool:
    """Return whether a claim for a new pod is still owned by the deleted pod of the same name."""
    policy = k8s.spec_of(held).get("persistentVolumeClaimRetentionPolicy") or {}
    if policy.get("whenScaled") != "Delete":
        return False
    pod = {"metadata": {"name": f"{k8s.name_of(held)}-{number}"}}
    there = [world.get(k8s.CLAIMS, k8s.namespace_of(held), k8s.name_of(made)) for _, made in claims_of(held, number)]
    return any(_names(ref, k8s.PODS, pod) for one in there if one for ref in one["metadata"].get("ownerReferences") or ())


def stateful_pod(held: Document, template: Document, revision: str, number: int) -> Document:
    """Return a new pod of a set, with its name, network identity and volumes."""
    name = f"{k8s.name_of(held)}-{number}"
    pod = pod_of_template(k8s.STATEFUL_SETS, held, template, name=name, generateName=f"{k8s.name_of(held)}-")
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **stateful_labels(name, number, revision)}
    pod["spec"]["hostname"] = name
    if service := k8s.spec_of(held).get("serviceName"):
        pod["spec"]["subdomain"] = service
    templates = [_name_in(one) for one in k8s.spec_of(held).get("volumeClaimTemplates") or ()]
    if templates:
        claims = {volume: {"claimName": stateful_claim_name(volume, k8s.name_of(held), number)} for volume in templates}
        own = [{"name": volume, "persistentVolumeClaim": source} for volume, source in claims.items()]
        kept = [one for one in pod["spec"].get("volumes") or () if one.get("name") not in templates]
        pod["spec"]["volumes"] = [*own, *kept]
    return pod


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
