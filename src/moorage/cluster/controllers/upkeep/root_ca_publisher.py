"""Publish the cluster's root CA in every namespace: pods use the ConfigMap to verify the API server.

Without a known CA nothing is published. If another client changes the content, it is restored.

Source  kubernetes, pkg/controller/certificates/rootcacertpublisher/publisher.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from moorage.api.documents import object_fields as k8s
from moorage.cluster.apiserver.access.bootstrap import AUTHORITY
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import Create, Step, Update

_NAME: Final = "kube-root-ca.crt"
_FILE: Final = "ca.crt"
#: The annotation that Kubernetes adds, word for word.
_ANNOTATIONS: Final = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions "
    "of Kubernetes clusters."
}


class RootAuthority:
    """Keys are names of namespaces."""

    name = "root-ca-certificate-publisher-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.NAMESPACES:
            yield k8s.name_of(event.latest)
        elif event.kind is k8s.CONFIG_MAPS:
            if k8s.name_of(event.latest) == _NAME:
                yield k8s.namespace_of(event.latest)
            elif (k8s.namespace_of(event.latest), k8s.name_of(event.latest)) == AUTHORITY:
                yield from map(k8s.name_of, world.all(k8s.NAMESPACES))

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        namespace, authority = world.get(k8s.NAMESPACES, "", key), world.get(k8s.CONFIG_MAPS, *AUTHORITY)
        if namespace is None or authority is None or k8s.is_ending(namespace):
            return
        data = {_FILE: authority["data"]["client-ca-file"]}
        held = world.get(k8s.CONFIG_MAPS, key, _NAME)
        if held is None:
            metadata = {"name": _NAME, "namespace": key, "annotations": dict(_ANNOTATIONS)}
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            yield Create(k8s.CONFIG_MAPS, made, or_keep=True)
        elif held.get("data") != data:
            metadata = {**held["metadata"], "annotations": {**(held["metadata"].get("annotations") or {}), **_ANNOTATIONS}}
            yield Update(k8s.CONFIG_MAPS, {**held, "metadata": metadata, "data": data})
