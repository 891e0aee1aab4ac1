"""Stateful sets: numbered pods, each with its own claims that outlive it.

Source  kubernetes, pkg/controller/statefulset/stateful_set_utils.go
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from moorage.api.core import ClaimSource, Pod, Volume
from moorage.api.decode import decode
from moorage.api.defaults import default_pod
from moorage.api.storage import PersistentVolumeClaim
from moorage.api.workloads import StatefulSet
from moorage.controllers.machinery.object_fields import stable_uid
from moorage.controllers.workloads.missing_pods import content_hash, ordinal_of, stateful_claim_name, stateful_labels
from moorage.simulator.owners import Claimed, compiled, owner_reference
from moorage.simulator.templates import PodFactory

__all__ = ["StatefulPods"]


class StatefulPods:
    """Creates the pods that stateful sets lack; ``claims`` collects the claims of their volumes."""

    def __init__(self, claimed: Claimed[Pod], taken: set[tuple[str, str]]) -> None:
        self.claims: list[PersistentVolumeClaim] = []
        self._claimed = claimed
        self._taken = taken

    def missing(self, stateful_set: StatefulSet) -> Iterator[Pod]:
        """Yield a pod for each number without one, lowest first."""
        metadata, spec = stateful_set.metadata, stateful_set.spec
        if metadata.deletion_timestamp is not None:
            return
        title = f"StatefulSet {metadata.namespace}/{metadata.name}"
        owner = owner_reference("apps/v1", "StatefulSet", metadata)
        first = spec.ordinals.start if spec.ordinals else 0
        numbers = range(first, first + _count(spec.replicas))

        def is_ours(pod: Pod) -> bool:
            return ordinal_of(metadata.name, pod.name) in numbers

        held = self._claimed.of("StatefulSet", metadata)
        selector = compiled(spec.selector, title)
        held = [*held, *self._claimed.adopt(owner, metadata.namespace, selector, is_ours)]
        there = {pod.name for pod in held}
        templates = [
            decode(template, PersistentVolumeClaim, f"{title}: spec.volumeClaimTemplates[{index}]")
            for index, template in enumerate(spec.volume_claim_templates)
        ]
        revision = content_hash(spec.template)
        factory = PodFactory(spec.template, metadata.namespace, owner, self._taken)
        for number in numbers:
            name = f"{metadata.name}-{number}"
            claims = [_numbered(claim, stateful_set, number) for claim in templates]
            self.claims += claims
            if name in there:
                continue
            pod = factory.named(name, stateful_labels(name, number, revision))
            yield default_pod(_with_claims(pod, templates, claims))


def _count(replicas: int | None) -> int:
    return 1 if replicas is None else replicas


def _numbered(template: PersistentVolumeClaim, stateful_set: StatefulSet, number: int) -> PersistentVolumeClaim:
    """Return the claim that a pod of the set gets from a template."""
    namespace = stateful_set.metadata.namespace
    name = stateful_claim_name(template.metadata.name, stateful_set.metadata.name, number)
    selector = stateful_set.spec.selector
    labels = {**template.metadata.labels, **(selector.match_labels if selector else {})}
    uid = stable_uid("PersistentVolumeClaim", namespace, name)
    metadata = replace(template.metadata, name=name, namespace=namespace, uid=uid, labels=labels)
    return replace(template, metadata=metadata)


def _with_claims(pod: Pod, templates: list[PersistentVolumeClaim], claims: list[PersistentVolumeClaim]) -> Pod:
    """Return the pod with its claims as volumes, which replace volumes of the same name."""
    if not claims:
        return pod
    volumes = [
        Volume(name=template.metadata.name, persistent_volume_claim=ClaimSource(claim_name=claim.metadata.name))
        for template, claim in zip(templates, claims, strict=True)
    ]
    names = {volume.name for volume in volumes}
    kept = (volume for volume in pod.spec.volumes if volume.name not in names)
    return replace(pod, spec=replace(pod.spec, volumes=(*volumes, *kept)))
