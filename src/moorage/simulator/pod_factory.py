"""Pod templates: create pods with names, labels and owners.

Name suffixes are computed from content, where a cluster uses random numbers. So they differ from those of a real cluster, but
not from run to run.

Source  kubernetes, pkg/controller/controller_utils.go, GetPodFromTemplate
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod, PodStatus, PodTemplateSpec
from moorage.api.defaults import default_pod
from moorage.api.documents.object_fields import generated_name, stable_uid
from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.errors import InputError

#: Several times the size that Kubernetes supports; a typing error in ``replicas`` exceeds it easily.
MAX_PODS: Final = 500_000


class PodFactory:
    """Creates the pods of one controller. Pods that differ only in name share one spec."""

    def __init__(self, template: PodTemplateSpec, namespace: str, owner: OwnerReference, taken: set[tuple[str, str]]) -> None:
        self.owner = owner
        self._namespace = namespace
        self._taken = taken
        self._pod = default_pod(
            Pod(
                metadata=ObjectMeta(
                    namespace=namespace,
                    labels=template.metadata.labels,
                    annotations=template.metadata.annotations,
                    owner_references=(owner,),
                ),
                spec=template.spec,
                status=PodStatus(phase="Pending"),
            )
        )

    def named(self, name: str, labels: dict[str, str] | None = None) -> Pod:
        """Return a pod with this name, and with labels added to the template's.

        Raises  InputError if there would be more than ``MAX_PODS`` pods
        """
        self._taken.add((self._namespace, name))
        self._check_limit(0)
        metadata = self._pod.metadata
        uid = stable_uid("Pod", self._namespace, name)
        held = replace(metadata, name=name, uid=uid, labels={**metadata.labels, **labels} if labels else metadata.labels)
        return replace(self._pod, metadata=held)

    def generated(self, base: str, *discriminators: str, labels: dict[str, str] | None = None) -> Pod:
        """Return a pod with a name generated from ``base``, different from all other pods' names."""
        name = generated_name(base, self._namespace, *discriminators)
        for attempt in count(1):
            if (self._namespace, name) not in self._taken:
                break
            name = generated_name(base, self._namespace, *discriminators, str(attempt))
        return self.named(name, labels)

    def several(self, number: int, base: str) -> Iterator[Pod]:
        """Return this many pods with generated names, created lazily.

        Raises  InputError at once if there would be more than ``MAX_PODS`` pods
        """
        self._check_limit(number)
        return (self.generated(base, str(index)) for index in range(number))

    def numbered(self, number: int, base: str) -> Iterator[Pod]:
        """Return this many pods whose names end in their numbers, created lazily.

        Raises  InputError at once if there would be more than ``MAX_PODS`` pods
        """
        self._check_limit(number)
        return (self.named(f"{base}-{index}") for index in range(number))

    def _check_limit(self, added: int) -> None:
        if len(self._taken) + added > MAX_PODS:
            asks = f"{self.owner.kind} {self._namespace}/{self.owner.name}"
            raise InputError(f"{asks}: with its pods there would be more than {MAX_PODS}, the most that can be simulated")


def names_of(pods: Iterable[Pod]) -> set[tuple[str, str]]:
    """Return the namespaces and names of pods."""
    return {(its.namespace, its.name) for its in [pod.metadata for pod in pods]}
