"""Publish the cluster's root CA in every namespace: pods use the ConfigMap to verify the API server.

Without a known CA nothing is published. If another client changes the content, it is restored.

Source  kubernetes, pkg/controller/certificates/rootcacertpublisher/publisher.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from moorage.apiserver.access.bootstrap import AUTHORITY
from moorage.controllers.machinery.kind_names import CONFIG_MAPS, NAMESPACES
from moorage.controllers.machinery.object_fields import is_ending, name_of, namespace_of
from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.steps import Create, Step, Update

__all__ = ["RootAuthority"]

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
        if event.kind is NAMESPACES:
            yield name_of(event.latest)
        elif event.kind is CONFIG_MAPS:
            if name_of(event.latest) == _NAME:
                yield namespace_of(event.latest)
            elif (namespace_of(event.latest), name_of(event.latest)) == AUTHORITY:
                yield from map(name_of, world.all(NAMESPACES))

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        namespace, authority = world.get(NAMESPACES, "", key), world.get(CONFIG_MAPS, *AUTHORITY)
        if namespace is None or authority is None or is_ending(namespace):
            return
        data = {_FILE: authority["data"]["client-ca-file"]}
        held = world.get(CONFIG_MAPS, key, _NAME)
        if held is None:
            metadata = {"name": _NAME, "namespace": key, "annotations": dict(_ANNOTATIONS)}
            yield Create(
                CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, or_keep=True
            )
        elif held.get("data") != data:
            metadata = {**held["metadata"], "annotations": {**(held["metadata"].get("annotations") or {}), **_ANNOTATIONS}}
            yield Update(CONFIG_MAPS, {**held, "metadata": metadata, "data": data})
