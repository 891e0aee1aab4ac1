"""Valid bodies for every route: the documents that attacks start from."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import Review, ServedKind

__all__ = ["valid_object", "valid_part", "valid_review"]

_SELECTOR: Final[Document] = {"matchLabels": {"app": "x"}}
_POD: Final[Document] = {
    "containers": [{
        "name": "c", "image": "i", "ports": [{"containerPort": 80, "name": "web"}], "env": [{"name": "A", "value": "b"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}, "volumeMounts": [{"name": "v", "mountPath": "/x"}],
    }],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _SELECTOR}
    ],
}  # fmt: skip
_TEMPLATE: Final[Document] = {"metadata": {"labels": {"app": "x"}}, "spec": _POD}
_TASK: Final[Document] = {"template": {**_TEMPLATE, "spec": {**_POD, "restartPolicy": "Never"}}}
_EXACTLY: Final[Document] = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
_CLAIM: Final[Document] = {"devices": {"requests": [{"name": "r", "exactly": _EXACTLY}]}}
_RULE: Final[Document] = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
_SUBJECT: Final[Document] = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "a-user-without-a-token"}
_REF: Final[Document] = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a-role"}
_STORED: Final[Document] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_POLICY: Final[Document] = {"basic": {}}

#: The fields that objects of a kind need in addition to metadata.
_OBJECTS: Final[Mapping[str, Document]] = {
    "configmaps": {"data": {"a": "b"}},
    "endpoints": {"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]},
    "limitranges": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "64"}}]}},
    "nodes": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    "persistentvolumes": {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    },
    "persistentvolumeclaims": {"spec": _STORED},
    "pods": {"spec": _POD},
    "podtemplates": {"template": _TEMPLATE},
    "replicationcontrollers": {"spec": {"selector": {"app": "x"}, "template": _TEMPLATE, "replicas": 1}},
    "resourcequotas": {"spec": {"hard": {"services.nodeports": "1000"}}},
    "secrets": {"data": {"a": "YWFh"}},
    "services": {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}},
    "controllerrevisions.apps": {"revision": 1, "data": {"a": "b"}},
    "daemonsets.apps": {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    "deployments.apps": {"spec": {"selector": _SELECTOR, "template": _TEMPLATE, "replicas": 1}},
    "replicasets.apps": {"spec": {"selector": _SELECTOR, "template": _TEMPLATE, "replicas": 1}},
    "statefulsets.apps": {"spec": {"selector": _SELECTOR, "template": _TEMPLATE, "serviceName": "x"}},
    "cronjobs.batch": {"spec": {"schedule": "1 2 3 * *", "jobTemplate": {"spec": _TASK}}},
    "jobs.batch": {"spec": {**_TASK, "completions": 2}},
    "leases.coordination.k8s.io": {"spec": {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.000000Z"}},
    "ingresses.networking.k8s.io": {"spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}},
    "runtimeclasses.node.k8s.io": {"handler": "runc", "overhead": {"podFixed": {"cpu": "1"}}},
    "poddisruptionbudgets.policy": {"spec": {"selector": _SELECTOR, "minAvailable": "50%"}},
    "clusterroles.rbac.authorization.k8s.io": {"rules": [_RULE]},
    "clusterrolebindings.rbac.authorization.k8s.io": {"subjects": [_SUBJECT], "roleRef": _REF},
    "roles.rbac.authorization.k8s.io": {"rules": [_RULE]},
    "rolebindings.rbac.authorization.k8s.io": {"subjects": [_SUBJECT], "roleRef": _REF},
    "deviceclasses.resource.k8s.io": {"spec": {"selectors": [{"cel": {"expression": 'device.driver == "a.b"'}}]}},
    "resourceclaims.resource.k8s.io": {"spec": _CLAIM},
    "resourceclaimtemplates.resource.k8s.io": {"spec": {"spec": _CLAIM}},
    "resourceslices.resource.k8s.io": {
        "spec": {
            "driver": "a.b", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d", "attributes": {"x": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}],
        }
    },
    "priorityclasses.scheduling.k8s.io": {"value": 7, "preemptionPolicy": "Never"},
    "podgroups.scheduling.k8s.io": {"spec": {"schedulingPolicy": _POLICY}},
    "workloads.scheduling.k8s.io": {"spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": _POLICY}]}},
    "csidrivers.storage.k8s.io": {"spec": {"attachRequired": True}},
    "csinodes.storage.k8s.io": {"spec": {"drivers": [{"name": "a.b", "nodeID": "n"}]}},
    "csistoragecapacities.storage.k8s.io": {"storageClassName": "s", "capacity": "1Gi"},
    "storageclasses.storage.k8s.io": {"provisioner": "a.b/c"},
    "volumeattachments.storage.k8s.io": {
        "spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    },
    "volumeattributesclasses.storage.k8s.io": {"driverName": "a.b", "parameters": {"a": "b"}},
}  # fmt: skip

#: Bodies of subresources, by name.
_PARTS: Final[Mapping[str, Document]] = {
    "binding": {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "seeded"}},
    "eviction": {"apiVersion": "policy/v1", "kind": "Eviction"},
    "scale": {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}},
    "token": {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
}
_ASKED: Final[Document] = {
    "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "closed", "name": "seeded"}
}
_SPECS: Final[Mapping[str, Document]] = {
    "LocalSubjectAccessReview": {"spec": {"user": "user", **_ASKED}},
    "SelfSubjectAccessReview": {"spec": _ASKED},
    "SelfSubjectRulesReview": {"spec": {"namespace": "closed"}},
    "SubjectAccessReview": {"spec": {"user": "user", "groups": ["g"], **_ASKED}},
    "TokenReview": {"spec": {"token": "a-token", "audiences": ["a"]}},
}


def valid_object(kind: ServedKind, namespace: str, name: str, mark: str = "") -> Document:
    """Return an object that the server accepts. ``mark`` is stored in an annotation."""
    metadata: Document = {"name": name, "labels": {"app": "x"}, "annotations": {"c": mark or "d"}}
    if namespace:
        metadata["namespace"] = namespace
    needs = copy.deepcopy(_OBJECTS.get(kind.qualified, {}))
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **needs, **_about(kind, namespace)}


def _about(kind: ServedKind, namespace: str) -> Document:
    """Return the fields of an event about a pod in its namespace; empty for other kinds."""
    if kind.kind != "Event":
        return {}
    about = {"apiVersion": "v1", "kind": "Pod", "name": "seeded", "namespace": namespace}
    if not kind.group:
        return {"involvedObject": about, "reason": "R", "message": "m", "type": "Normal"}
    return {
        "regarding": about, "reason": "R", "note": "m", "type": "Normal", "action": "A", "reportingController": "a.b/c",
        "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z",
    }  # fmt: skip


def valid_part(kind: ServedKind, namespace: str, name: str, subresource: str) -> Document:
    """Return a valid body for a subresource: a document of its own kind, or the whole object."""
    part: Any = _PARTS.get(subresource)
    if part is None:
        return valid_object(kind, namespace, name)
    return {**copy.deepcopy(part), "metadata": {"name": name, "namespace": namespace}}


def valid_review(review: Review, namespace: str) -> Document:
    """Return a valid access review."""
    if review.kind == "Binding":
        return {**copy.deepcopy(_PARTS["binding"]), "metadata": {"name": "seeded", "namespace": namespace}}
    metadata = {"namespace": namespace} if namespace else {}
    spec = copy.deepcopy(_SPECS.get(review.kind, {}))
    if review.namespaced and namespace:
        spec["spec"]["resourceAttributes"]["namespace"] = namespace
    return {"apiVersion": review.api_version, "kind": review.kind, "metadata": metadata, **spec}
