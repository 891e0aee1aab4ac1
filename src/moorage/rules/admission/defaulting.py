"""Defaulting: set the fields that a client left out, on raw documents, so that unknown fields are preserved.

Types that ``moorage.api`` has defaulting functions for are decoded and defaulted there, and the differences are merged into
the document. Defaults of fields that scheduling does not read, but that clients expect, are set here directly.

Source  kubernetes, pkg/apis/*/v1/defaults.go
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from moorage.api.core import LimitRange, Namespace, Node, Object, Pod, ReplicationController
from moorage.api.defaults import (
    default_limit_range,
    default_namespace,
    default_node,
    default_pod,
    default_replication_controller,
    default_resource_claim,
    default_resource_claim_template,
)
from moorage.api.devices import ResourceClaim, ResourceClaimTemplate
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.feature_gates import FeatureGates
from moorage.api.schema.custom_kinds import apply_defaults
from moorage.api.schema.field_types import UNTYPED, ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.normalization import complete_types
from moorage.api.schema.schemas import kind_schema
from moorage.rules.admission.validation import pod_specs

_RULES: Final[Mapping[type[Object], Callable[[Any], Object]]] = {
    LimitRange: default_limit_range,
    Namespace: default_namespace,
    Node: default_node,
    Pod: default_pod,
    ReplicationController: default_replication_controller,
    ResourceClaim: default_resource_claim,
    ResourceClaimTemplate: default_resource_claim_template,
}

#: The kinds that a claim's ``dataSource`` may name.
_DATA_SOURCES: Final = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def set_defaults(kind: ServedKind, document: Document, *, sent: bool = False) -> None:
    """Set an object's defaults in place, but those that depend on several fields which scheduling reads. ``sent``: keep the
    empty lists that the client sent."""
    if kind.custom is not None:
        apply_defaults(kind.custom.schema, document)
        return
    if kind.kind == "Secret" and isinstance(texts := document.pop("stringData", None), dict):
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        document["data"] = {**(document.get("data") or {}), **encoded}
    for fill in _BY_KIND.get((kind.group, kind.kind), ()):
        fill(document)
    complete_types(kind, document, sent=sent)


# -- defaults of decoded objects ---------------------------------------------------------------------------------------


def needs_decoding(struct: type[Object] | None) -> bool:
    """Return whether some defaults of a type are computed from decoded objects."""
    return struct in _RULES


def complete_decoded(document: Document, decoded: Object) -> Object:
    """Return a decoded object with all defaults, and set those that it lacks in the document that it was decoded from."""
    rule = _RULES.get(type(decoded))
    complete = decoded if rule is None else rule(decoded)
    apply_changes(document, decoded, complete)
    return complete


def apply_changes(document: Document, before: Object, after: Object) -> None:
    """Write the differences between two values of a struct into the document that the first was decoded from."""
    if before is not after:
        # Compare the JSON forms, which have lists where structs have tuples.
        was, becomes = (msgspec.json.decode(msgspec.json.encode(value)) for value in (before, after))
        _apply(document, was, becomes)


def _apply(document: Document, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for name, value in after.items():
        old = before.get(name)
        if value == old and name in document:
            continue
        current = document.get(name)
        if isinstance(value, dict) and isinstance(current, dict):
            _apply(current, old or {}, value)
        elif isinstance(value, list) and isinstance(current, list) and _is_longer(current, old or [], value):
            for inner, was, becomes in zip(current, old or [], value, strict=False):
                _apply(inner, was, becomes)
            current += value[len(current) :]
        elif value != old:
            document[name] = value


def _is_longer(current: list[Any], old: list[Any], new: list[Any]) -> bool:
    """Return True if defaulting only appended items to the list, so that items can be merged by position."""
    return len(current) == len(old) <= len(new) and all(isinstance(one, dict) for one in (*current, *old, *new))


# -- fields that scheduling does not read ------------------------------------------------------------------------------


def _own_pod_spec(pod: Document) -> None:
    if isinstance(status := pod.get("status"), dict):
        _sync_list_form(status, "podIP", "podIPs", lambda address: {"ip": address}, lambda one: one.get("ip") or "")
    _spec(pod).setdefault("enableServiceLinks", True)


def _spec_default(**defaults: Any) -> Callable[[Document], None]:
    def fill(document: Document) -> None:
        for name, value in defaults.items():
            _spec(document).setdefault(name, value)

    return fill


def _mode_default(document: Document) -> None:
    """Set the default: the groups of a group are disrupted one by one."""
    if _spec(document).get("disruptionMode") is None:
        _spec(document)["disruptionMode"] = {"single": {}}


def _rolling(name: str, **defaults: Any) -> Callable[[Document], None]:
    """Return a function that defaults the update strategy of a workload to a rolling update, and its parameters."""

    def fill(workload: Document) -> None:
        strategy = _spec(workload).setdefault(name, {})
        if isinstance(strategy, dict) and strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            for field, value in defaults.items() if isinstance(rolling, dict) else ():
                rolling.setdefault(field, value)

    return fill


def _policy_types(policy: Document) -> None:
    """Let a policy without types be about incoming traffic, and about outgoing traffic if it has rules for it."""
    if policy.get("spec") is None:
        policy["spec"] = {}
    spec = policy["spec"]
    if isinstance(spec, dict) and not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


_PERIOD_S: Final = 15
_SCALE_UP: Final[Document] = {
    "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": _PERIOD_S}, {"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S},
    ],
}  # fmt: skip
_SCALE_DOWN: Final[Document] = {
    "selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S}],
}  # fmt: skip


def _autoscaler(autoscaler: Document) -> None:
    """Complete the scaling rules of an autoscaler that has a behavior."""
    behavior = _spec(autoscaler).get("behavior")
    if isinstance(behavior, dict):
        for name, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            behavior[name] = {**copy.deepcopy(rules), **(behavior.get(name) or {})}


def _stateful_set(stateful_set: Document) -> None:
    spec = _spec(stateful_set)
    strategy = spec.setdefault("updateStrategy", {})
    if isinstance(strategy, dict):
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
            strategy.setdefault("rollingUpdate", {})
        if strategy["type"] == "RollingUpdate" and isinstance(rolling := strategy.get("rollingUpdate"), dict):
            rolling.setdefault("partition", 0)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    for claim in spec.get("volumeClaimTemplates") or ():
        if isinstance(claim, dict):
            claim.update(kind="PersistentVolumeClaim", apiVersion="v1")
            status = claim.setdefault("status", {})
            if isinstance(status, dict):
                status.setdefault("phase", "Pending")


def _copy_template_labels(document: Document) -> None:
    """Copy the labels of the pod template to an object without labels."""
    template = _spec(document).get("template")
    labels = (template.get("metadata") or {}).get("labels") if isinstance(template, dict) else None
    if labels and not document["metadata"].get("labels"):
        document["metadata"]["labels"] = labels  # one map, as in kube-apiserver: what a job adds to its template it gets, too


def _job(job: Document) -> None:
    """Default a job's parallelism, and its completions where neither is set, to 1."""
    spec = _spec(job)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed")
    spec.setdefault("manualSelector", False)


_EXPOSED: Final = frozenset(["LoadBalancer", "NodePort"])


def _service(service: Document) -> None:
    spec = _spec(service)
    for port in spec.get("ports") or ():
        if isinstance(port, dict):
            port.setdefault("protocol", "TCP")
            if "port" in port and not port.get("targetPort"):
                port["targetPort"] = port["port"]
    if spec.get("sessionAffinity") == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec.get("sessionAffinity") == "ClientIP" and not ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    if spec.get("type") in _EXPOSED or (spec.get("type") == "ClusterIP" and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec.get("type") != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("type") == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


#: Annotation that holds a daemon set's template generation, formerly a field of its spec.
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def _template_generation(daemon_set: Document) -> None:
    metadata = daemon_set["metadata"]
    if not isinstance(held := metadata.get("annotations"), dict) or TEMPLATE_GENERATION not in held:
        metadata["annotations"] = {**(held if isinstance(held, dict) else {}), TEMPLATE_GENERATION: "0"}


def drop_topology(old: Document | None, new: Document) -> None:
    """Drop the topology of endpoints, which v1 does not set, unless the endpoints are as before."""
    if old is not None and old.get("endpoints") == new.get("endpoints"):
        return
    for endpoint in new.get("endpoints") or ():
        if isinstance(endpoint, dict):
            endpoint.pop("deprecatedTopology", None)


def complete_sources(old: Document | None, claim: Document) -> None:
    """Copy a claim's data source between ``dataSource`` and ``dataSourceRef`` when only one of them is set.

    Source  kubernetes, pkg/api/persistentvolumeclaim/util.go
    """
    spec, held = _spec(claim), _spec(old)
    reference = spec.get("dataSourceRef")
    if isinstance(reference, dict) and reference.get("namespace") and held.get("dataSourceRef") is None:
        del spec["dataSourceRef"]  # behind the gate CrossNamespaceVolumeDataSource, which is closed
        reference = None
    source, has_old = spec.get("dataSource"), held.get("dataSource") is not None or held.get("dataSourceRef") is not None
    origin = (source.get("apiGroup") or "", source.get("kind")) if source is not None else None
    if origin is not None and origin not in _DATA_SOURCES and reference is None and not has_old:
        del spec["dataSource"]  # another kind can only be named in dataSourceRef
        source = None
    if source is not None and reference is None:
        spec["dataSourceRef"] = {"apiGroup": None, **source}
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {name: reference.get(name) for name in ("apiGroup", "kind", "name")}


def _account(account: Document) -> None:
    """Reduce the references to an account's secrets to their names."""
    for secret in account.get("secrets") or ():
        if isinstance(secret, dict):
            for name in secret.keys() - {"name"}:
                del secret[name]


def _pending(found: Document) -> None:
    """Default the phase of a volume or a claim."""
    if isinstance(status := found.setdefault("status", {}), dict):
        status["phase"] = status.get("phase") or "Pending"


def _sync_list_form(holder: Document, one: str, many: str, item: Callable[[str], Any], text: Callable[[Any], str]) -> None:
    """Keep a single-value field and the first item of its list form equal; the single value wins where they differ."""
    first, held = holder.get(one), holder.get(many)
    if first and not (isinstance(held, list) and held and text(held[0]) == first):
        holder[many] = [item(first)]
    elif not first and isinstance(held, list) and held and text(held[0]):
        holder[one] = text(held[0])


def _binding(document: Document) -> None:
    """Default the API group of a binding's role and subjects."""
    subjects, role = document.get("subjects"), document.get("roleRef")
    if isinstance(role, dict):
        role["apiGroup"] = role.get("apiGroup") or "rbac.authorization.k8s.io"
    for named in subjects if isinstance(subjects, list) else ():
        if isinstance(named, dict) and named.get("kind") in {"ClusterRole", "Group", "Role", "User"}:
            named["apiGroup"] = named.get("apiGroup") or "rbac.authorization.k8s.io"


def _definition(definition: Document) -> None:
    """Default the names of a CustomResourceDefinition and its conversion strategy."""
    spec = _spec(definition)
    spec.setdefault("conversion", {"strategy": "None"})
    names = spec.get("names")
    if isinstance(names, dict) and isinstance(kind := names.get("kind"), str) and kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"


_NEEDED_DRIVER: Final = "preventPodSchedulingIfMissing"


def set_release_defaults(kind: ServedKind, document: Document, gates: FeatureGates) -> None:
    """Set the defaults that came with a release, in place."""
    if kind.native == "StatefulSet" and gates.emulated.groups_as_one:  # 1.37 and later
        strategy = _spec(document).setdefault("updateStrategy", {})
        if isinstance(strategy, dict) and strategy.get("type", "RollingUpdate") in {"", "RollingUpdate"}:
            rolling = strategy.setdefault("rollingUpdate", {}) if not strategy.get("type") else strategy.get("rollingUpdate")
            if isinstance(rolling, dict):
                rolling.setdefault("maxUnavailable", 1)
    if kind.native == "CSIDriver" and gates["VolumeLimitScaling"]:
        if document.get("spec") is None:
            document["spec"] = {}
        if isinstance(driver := document["spec"], dict) and driver.get(_NEEDED_DRIVER) is None:
            driver[_NEEDED_DRIVER] = False


#: Defaulting functions that run before the defaults of each nested type.
_BY_KIND: Final[Mapping[tuple[str, str], tuple[Callable[[Document], None], ...]]] = {
    ("", "Node"): (lambda node: _sync_list_form(_spec(node), "podCIDR", "podCIDRs", str, str),),
    ("", "PersistentVolume"): (_pending,),
    ("", "PersistentVolumeClaim"): (_pending,),
    ("", "Pod"): (_own_pod_spec,),
    ("", "ReplicationController"): (_copy_template_labels,),
    ("", "ServiceAccount"): (_account,),
    ("", "Service"): (_spec_default(type="ClusterIP", sessionAffinity="None"), _service),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (_definition,),
    ("apps", "Deployment"): (_rolling("strategy", maxSurge="25%", maxUnavailable="25%"),),
    ("apps", "DaemonSet"): (_rolling("updateStrategy", maxSurge=0, maxUnavailable=1), _template_generation),
    ("apps", "StatefulSet"): (_stateful_set,),
    ("autoscaling", "HorizontalPodAutoscaler"): (_autoscaler,),
    ("batch", "Job"): (_spec_default(completionMode="NonIndexed", suspend=False), _job, _copy_template_labels),
    ("networking.k8s.io", "NetworkPolicy"): (_policy_types,),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): (_binding,),
    ("rbac.authorization.k8s.io", "RoleBinding"): (_binding,),
    ("scheduling.k8s.io", "CompositePodGroup"): (_mode_default,),
    ("scheduling.k8s.io", "PodGroup"): (_spec_default(disruptionMode="Pod"),),
}  # fmt: skip

# -- gated fields ------------------------------------------------------------------------------------------------------
# Drop fields whose feature gate is disabled, unless the stored object already has them.
#
# Source  kubernetes, pkg/api/pod/util.go, dropDisabledSchedulingGroup; pkg/registry/scheduling/podgroup/strategy.go and
#         workload/strategy.go

_CLAIMS: Final = "DRAWorkloadResourceClaims"
_PREEMPTION: Final = "WorkloadAwarePreemption"
#: Gated fields of pod groups and of their templates, with their gates.
_GROUP_FIELDS: Final = (
    ("schedulingConstraints", "TopologyAwareWorkloadScheduling"), ("resourceClaims", _CLAIMS), ("disruptionMode", _PREEMPTION),
    ("priorityClassName", _PREEMPTION), ("priority", _PREEMPTION),
)  # fmt: skip
#: Fields of leases that need the gate CoordinatedLeaderElection, which is always disabled here.
_LEASE_FIELDS: Final = ("preferredHolder", "strategy")
_JOB_FIELDS: Final = (("scheduling", "WorkloadWithJob"),)
_POD_FIELDS: Final = (("schedulingGroup", "GenericWorkload"),)


def drop_disabled_fields(kind: ServedKind, old: Document | None, new: Document, gates: FeatureGates) -> None:
    """Drop gated fields from the new version of an object, in place. ``old`` is None on create."""
    if kind.custom is not None:
        return
    _drop_closed(kind_schema(kind), new, gates, _used(kind_schema(kind), old) if old is not None else frozenset())
    if kind.native == "Lease":
        for name in _LEASE_FIELDS:
            if not _spec(old).get(name):
                _spec(new).pop(name, None)
    elif kind.native == "PodGroup":
        _drop(_spec(old), _spec(new), _GROUP_FIELDS, gates)
    elif kind.native == "Workload":
        held = _templates(old)
        for i, template in enumerate(_templates(new)):
            _drop(held[i] if i < len(held) else {}, template, _GROUP_FIELDS, gates)
    if kind.native == "Job":
        _drop(_spec(old), _spec(new), _JOB_FIELDS, gates)
    if not gates["GenericWorkload"]:
        before = dict(pod_specs(kind, old)) if old is not None else {}
        for path, spec in pod_specs(kind, new):
            _drop(before.get(path, {}), spec, _POD_FIELDS, gates)


def drop_disabled_status_fields(kind: ServedKind, old: Document, new: Document, gates: FeatureGates) -> None:
    """Drop gated fields from a new status, in place."""
    status = new.get("status")
    if kind.native == "PodGroup" and isinstance(status, dict) and not gates[_CLAIMS] and not _spec(old).get("resourceClaims"):
        status.pop("resourceClaimStatuses", None)


#: Whether a struct has fields with gates at any depth, by its name.
_HAS_GATES: Final[dict[str, bool]] = {}


def _has_gates(shape: Type) -> bool:
    """Return whether a type has fields with gates, at any depth. Schemas, which contain themselves, have none."""
    if isinstance(shape, ListOf | MapOf):
        return shape is not UNTYPED and _has_gates(shape.item)
    if isinstance(shape, Scalar) or shape.name.startswith("apiextensions."):
        return False
    if shape.name not in _HAS_GATES:
        _HAS_GATES[shape.name] = False  # for what it says of itself
        _HAS_GATES[shape.name] = any(field.gate or _has_gates(field.type) for field in shape.fields.values())
    return _HAS_GATES[shape.name]


def _gated(shape: Type, value: Any) -> Iterator[tuple[Struct, Document]]:
    """Yield the objects in a value whose type has fields with gates."""
    if isinstance(shape, Scalar) or not _has_gates(shape):
        return
    if isinstance(shape, ListOf):
        for one in value if isinstance(value, list) else ():
            yield from _gated(shape.item, one)
    elif isinstance(value, dict):
        if isinstance(shape, Struct) and any(field.gate for field in shape.fields.values()):
            yield shape, value
        for name, inner in value.items():
            if isinstance(shape, MapOf):
                yield from _gated(shape.item, inner)
            elif (field := shape.fields.get(name)) is not None:
                yield from _gated(field.type, inner)


def _used(shape: Struct, document: Document) -> frozenset[tuple[str, str]]:
    """Return the fields with gates that an object has, by the name of the struct."""
    return frozenset(
        (struct.name, name) for struct, held in _gated(shape, document)
        for name, field in struct.fields.items() if field.gate and name in held
    )  # fmt: skip


def _drop_closed(shape: Struct, document: Document, gates: FeatureGates, used: frozenset[tuple[str, str]]) -> None:
    """Drop the fields whose gates are closed, in place, except those that the stored object uses."""
    for struct, held in [*_gated(shape, document)]:
        for name, field in struct.fields.items():
            if field.gate and name in held and not gates.serves(field.gate) and (struct.name, name) not in used:
                del held[name]


def _drop(old: Document, new: Document, gated: tuple[tuple[str, str], ...], gates: FeatureGates) -> None:
    for name, gate in gated:
        if name in new and not gates[gate] and old.get(name) in (None, "", []):
            del new[name]


def _spec(document: Document | None) -> Document:
    spec: Any = (document or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _templates(document: Document | None) -> list[Document]:
    """Return the templates of pod groups in a workload, those in templates of groups of groups last."""

    def items(holder: Document, name: str) -> list[Document]:
        found: Any = holder.get(name)
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    found, waiting = [], [_spec(document)]
    while waiting:
        holder = waiting.pop(0)
        found += items(holder, "podGroupTemplates")
        waiting += items(holder, "compositePodGroupTemplates")
    return found
