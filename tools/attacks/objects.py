"""Valid bodies for every route: the documents that attacks start from."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping
from typing import Any, Final

from moorage.api.documents.served_kinds import Document, Review, ServedKind
from moorage.api.schema.custom_kinds import custom_kinds
from moorage.api.schema.versions import convert

__all__ = ["ATTACKED", "ATTACKED_DEFINITION", "BUNDLE", "object_name", "valid_object", "valid_part", "valid_review"]

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
_MATCHED: Final[Document] = {
    "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["controllerrevisions"], "operations": ["CREATE"],
}  # fmt: skip

_TEXT: Final[Document] = {"type": "string", "maxLength": 40, "pattern": "^[a-z]*(-[a-z]+)*$"}
_PART: Final[Document] = {
    "type": "object", "required": ["name"],
    "properties": {"name": _TEXT, "size": {"x-kubernetes-int-or-string": True}, "weight": {"type": "integer", "default": 1}},
}  # fmt: skip
_CUSTOM_SPEC: Final[Document] = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "minimum": 0, "maximum": 100, "default": 1},
        "mode": {"type": "string", "enum": ["Fast", "Safe"], "nullable": True},
        "parts": {
            "type": "array", "maxItems": 50, "items": _PART,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        },
        "tags": {
            "type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 40}, "x-kubernetes-list-type": "set",
        },
        "limits": {"type": "object", "additionalProperties": {"type": "number", "multipleOf": 0.5}},
        "at": {"type": "string", "format": "date-time"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.parts) || self.parts.all(p, p.weight <= self.replicas + 10)", "message": "too heavy"},
        {"rule": "!has(self.tags) || self.tags.all(t, t.matches('^[a-z]*$'))"},
    ],
}  # fmt: skip
_CUSTOM_STATUS: Final[Document] = {
    "type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
}  # fmt: skip
_SUBRESOURCES: Final[Document] = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector",
    },
}  # fmt: skip
_VERSION: Final[Document] = {
    "name": "v1", "served": True, "storage": True, "subresources": _SUBRESOURCES,
    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _CUSTOM_SPEC, "status": _CUSTOM_STATUS}}},
    "additionalPrinterColumns": [
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
        {"name": "First", "type": "string", "jsonPath": ".spec.parts[0].name", "priority": 1},
    ],
}  # fmt: skip
_CUSTOM_GROUP: Final = "attacked.example.com"


def _definition_spec(plural: str) -> Document:
    names = {"plural": plural, "singular": plural, "kind": plural.title(), "listKind": f"{plural.title()}List"}
    return {"group": _CUSTOM_GROUP, "scope": "Namespaced", "names": names, "versions": [copy.deepcopy(_VERSION)]}


#: A definition that no attack names, and the kind that it defines.
ATTACKED_DEFINITION: Final[Document] = {"metadata": {"name": f"things.{_CUSTOM_GROUP}"}, "spec": _definition_spec("things")}
ATTACKED: Final = custom_kinds({
    "metadata": {}, "spec": ATTACKED_DEFINITION["spec"],
    "status": {
        "acceptedNames": ATTACKED_DEFINITION["spec"]["names"], "conditions": [{"type": "Established", "status": "True"}],
    },
})[0]  # fmt: skip

_REQUEST: Final = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISE1IQUNBUUF3RGpFTU1Bb0dBMVVFQXd3RGQyVmlNRmt3RXdZSEtvWkl6aj"
    "BDQVFZSUtvWkl6ajBEQVFjRApRZ0FFMjRhRzZSNGtjKzlwbWJVc1hGKzVYRXkxQjBvTWZ2emwvR2tVOFBaNjZocTFtNUdDemdJZTFYK1FOaWZC"
    "CjhrRjZhaTJZTXFuSHlFc0FCakpuWnR1b2phQUFNQW9HQ0NxR1NNNDlCQU1DQTBjQU1FUUNJQXdxd0d3QkFjalkKU3dxTG5pbjdJNmVGTEpha0"
    "1WUUd4QTdlQWhBbjZwMEpBaUJKSmFVbXNYN1FaZGFlbTJORXAyQWlqdTZpR2NSKwoyWUJ4TzBsYlRsT3p1dz09Ci0tLS0tRU5EIENFUlRJRklD"
    "QVRFIFJFUVVFU1QtLS0tLQo="
)
BUNDLE: Final = (
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBHTCBxKADAgECAgEHMAoGCCqGSM49BAMCMA4xDDAKBgNVBAMMA3dlYjAeFw0y\n"
    "NjAxMDEwMDAwMDBaFw00NjAxMDEwMDAwMDBaMA4xDDAKBgNVBAMMA3dlYjBZMBMG\n"
    "ByqGSM49AgEGCCqGSM49AwEHA0IABNuGhukeJHPvaZm1LFxfuVxMtQdKDH785fxp\n"
    "FPD2euoatZuRgs4CHtV/kDYnwfJBemotmDKpx8hLAAYyZ2bbqI2jEzARMA8GA1Ud\n"
    "EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhANTBDZiEmG3R5B8+svK22hEk\n"
    "H8vuQJkAZ9jkD+ok3D8VAiAeOUgeNpGNP6dKAXwe5M4D0F9jtUN2dWsRpC7WKT9v\n"
    "pA==\n"
    "-----END CERTIFICATE-----\n"
)

#: The fields that objects of a kind need in addition to metadata.
_OBJECTS: Final[Mapping[str, Document]] = {
    "configmaps": {"data": {"a": "b"}},
    "endpoints": {"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]},
    "evictions.lifecycle.k8s.io": {"spec": {"target": {"pod": {"name": "x", "uid": "3d0f8b1c-3b5e-4a54-9a4a-0f6d1a5fbb6c"}}}},
    "evictionrequests.lifecycle.k8s.io": {
        "spec": {
            "requester": "example.com/drainer", "intent": "Eviction",
            "target": {"pod": {"name": "x", "uid": "3d0f8b1c-3b5e-4a54-9a4a-0f6d1a5fbb6c"}},
        }
    },
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
    "mutatingadmissionpolicies.admissionregistration.k8s.io": {
        "spec": {
            "matchConstraints": {"resourceRules": [_MATCHED]}, "reinvocationPolicy": "Never",
            "mutations": [{
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'},
            }],
        }
    },
    "validatingadmissionpolicies.admissionregistration.k8s.io": {
        "spec": {"matchConstraints": {"resourceRules": [_MATCHED]}, "validations": [{"expression": "object.revision >= 0"}]}
    },
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": {
        "spec": {"policyName": "seeded", "validationActions": ["Audit"]}
    },
    "horizontalpodautoscalers.autoscaling": {
        "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "seeded"}}
    },
    "leasecandidates.coordination.k8s.io": {
        "spec": {"leaseName": "l", "binaryVersion": "1.2.3", "emulationVersion": "1.2.3", "strategy": "OldestEmulationVersion"}
    },
    "endpointslices.discovery.k8s.io": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}]},
    "flowschemas.flowcontrol.apiserver.k8s.io": {"spec": {"priorityLevelConfiguration": {"name": "exempt"}}},
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    "ingressclasses.networking.k8s.io": {"spec": {"controller": "a.b/c"}},
    "servicecidrs.networking.k8s.io": {"spec": {"cidrs": ["10.96.0.0/16"]}},
    "apiservices.apiregistration.k8s.io": {
        "spec": {"version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100}
    },
    "certificatesigningrequests.certificates.k8s.io": {
        "spec": {"request": _REQUEST, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
    },
    "clustertrustbundles.certificates.k8s.io": {"spec": {"trustBundle": BUNDLE}},
    "ipaddresses.networking.k8s.io": {
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}
    },
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": {"spec": {"policyName": "seeded"}},
    "storageversionmigrations.storagemigration.k8s.io": {"spec": {"resource": {"group": "", "resource": "configmaps"}}},
    "devicetaintrules.resource.k8s.io": {"spec": {"taint": {"key": "a", "effect": "NoSchedule"}}},
    "csidrivers.storage.k8s.io": {"spec": {"attachRequired": True}},
    "csinodes.storage.k8s.io": {"spec": {"drivers": [{"name": "a.b", "nodeID": "n"}]}},
    "csistoragecapacities.storage.k8s.io": {"storageClassName": "s", "capacity": "1Gi"},
    "storageclasses.storage.k8s.io": {"provisioner": "a.b/c"},
    "volumeattachments.storage.k8s.io": {
        "spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    },
    "volumeattributesclasses.storage.k8s.io": {"driverName": "a.b", "parameters": {"a": "b"}},
    ATTACKED.qualified: {
        "spec": {
            "replicas": 2, "mode": "Fast", "parts": [{"name": "a", "size": "10%"}, {"name": "b", "size": 3}],
            "tags": ["a", "b"], "limits": {"x": 1.5}, "at": "2026-01-01T00:00:00Z", "free": {"x": [1, {"y": None}]},
        },
    },
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


def object_name(kind: ServedKind, name: str) -> str:
    """Return the name of an object. Definitions of kinds (the plural and the group), API services and addresses need another
    form.
    """
    if "." in name:
        return name
    if kind.kind == "IPAddress":
        return f"198.51.{zlib.crc32(name.encode()) % 256}.{len(name)}"
    if kind.kind == "APIService":
        return f"v1.{name}.example.com"
    return f"{name}.{_CUSTOM_GROUP}" if kind.kind == "CustomResourceDefinition" else name


def valid_object(kind: ServedKind, namespace: str, name: str, mark: str = "") -> Document:
    """Return an object that the server accepts. ``mark`` is stored in an annotation."""
    metadata: Document = {"name": object_name(kind, name), "labels": {"app": "x"}, "annotations": {"c": mark or "d"}}
    if namespace:
        metadata["namespace"] = namespace
    needs = copy.deepcopy(_OBJECTS.get(kind.qualified, {}))
    stored = kind.storage
    made = {"apiVersion": stored.api_version, "kind": kind.kind, "metadata": metadata, **needs, **_about(kind, namespace, name)}
    if kind.custom is None and stored is not kind:
        convert(kind, stored, made)
    return made


def _about(kind: ServedKind, namespace: str, name: str) -> Document:
    """Return the fields that depend on the names: those of events, about a pod in their namespace, and of definitions."""
    if kind.kind == "CustomResourceDefinition":
        return {"spec": _definition_spec(name.partition(".")[0])}
    if kind.kind == "APIService":
        needs = copy.deepcopy(_OBJECTS[kind.qualified]["spec"])
        return {"spec": {**needs, "group": object_name(kind, name).partition(".")[2]}}
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
