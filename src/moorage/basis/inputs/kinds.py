"""The kinds of objects that a simulation reads, and the kinds it ignores, with the reason.

A kind is read, known but ignored, or unknown. The report counts the objects of ignored and unknown kinds, so that users see
which objects had no influence.
"""

from __future__ import annotations

from typing import Final

from moorage.api import kinds
from moorage.api.kinds import Kind, Reader

__all__ = ["KINDS", "UNKNOWN_KIND", "find_kind", "why_unused"]


KINDS: Final = tuple(kind for kind in kinds.KINDS if Reader.SIMULATION in kind.readers)

_BY_GROUP = {(kind.group, kind.name): kind for kind in KINDS}
_BY_VERSION = {(version, kind.name): kind for kind in KINDS for version in kind.api_versions}

#: The reason for ignoring objects of kinds that no table contains.
UNKNOWN_KIND: Final = "unknown kind"
_NOT_READ = "scheduling does not read it"
#: Kinds of a stock cluster that are ignored, by group.
_LEFT_ASIDE: Final = {
    "": ("Binding", "ComponentStatus", "ConfigMap", "Endpoints", "Event", "PodTemplate", "Secret", "ServiceAccount"),
    "admissionregistration.k8s.io": (
        "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
    ),
    "apiextensions.k8s.io": ("CustomResourceDefinition",),
    "apiregistration.k8s.io": ("APIService",),
    "apps": ("ControllerRevision",),
    "certificates.k8s.io": ("CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"),
    "coordination.k8s.io": ("Lease", "LeaseCandidate"),
    "discovery.k8s.io": ("EndpointSlice",),
    "events.k8s.io": ("Event",),
    "flowcontrol.apiserver.k8s.io": ("FlowSchema", "PriorityLevelConfiguration"),
    "gateway.networking.k8s.io": ("Gateway", "GatewayClass", "HTTPRoute"),
    "metrics.k8s.io": ("NodeMetrics", "PodMetrics"),
    "networking.k8s.io": ("IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"),
    "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "storage.k8s.io": ("VolumeAttributesClass",),
}  # fmt: skip
_KNOWN = {(group, name) for group, names in _LEFT_ASIDE.items() for name in names}
_REASONS: Final = {
    ("autoscaling", "HorizontalPodAutoscaler"): "replicas stay as they are given",
    ("resource.k8s.io", "DeviceTaintRule"): "device taints are read from resource slices alone",
    ("scheduling.k8s.io", "Workload"): "scheduling reads the pod groups that are made from it",
    ("kubescheduler.config.k8s.io", "KubeSchedulerConfiguration"): "give it with --config",
}


def find_kind(api_version: str, name: str) -> Kind | None:
    """Return the kind for this ``apiVersion`` and ``kind`` if it is read."""
    return _BY_VERSION.get((api_version, name))


def why_unused(api_version: str, name: str) -> str:
    """Return why objects of this ``apiVersion`` and ``kind`` are ignored."""
    group, slash, _ = api_version.rpartition("/")
    known = _BY_GROUP.get((group if slash else "", name))
    if known is not None:
        return f"this version of the API is not read; convert it to {known.api_version}"
    if reason := _REASONS.get((group, name)):
        return reason
    if (group, name) in _KNOWN:
        return _NOT_READ
    moved = [kind.api_version for kind in KINDS if kind.name == name]
    return f"{UNKNOWN_KIND}; {name} is read as {moved[0]}" if moved else UNKNOWN_KIND
