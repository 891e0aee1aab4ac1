"""Quota usage by kind, and whether an object is in a quota's scopes.

Admission charges creations and growth with these functions, and the resource quota controller recounts existing objects
with the same functions, so the two agree. Usage is keyed by quota resource name: ``requests.cpu`` and ``cpu`` are the same
amount under two names. ``QuotaEvaluator`` says which names a kind supports; a kind without its own evaluator is counted, as
``count/widgets.example.com``.

Source  kubernetes, pkg/quota/v1/evaluator/core: services.go, persistent_volume_claims.go, registry.go; apiserver,
        pkg/quota/v1/generic/evaluator.go; pkg/quota/v1/resources.go, CalculateUsage
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from moorage.api.quantity import exact
from moorage.api.quotas import ResourceQuota, ResourceQuotaSpec, ScopedResourceSelectorRequirement
from moorage.apiserver.admission import quota_claims, quota_pods
from moorage.apiserver.admission.quota_types import ONE, ZERO, Facts, Usage, add, matches_requirement
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served

__all__ = ["QuotaEvaluator", "counted_usage", "evaluator_for", "is_in_scope"]

#: Kinds that are never counted.
_UNCOUNTED: Final = frozenset(["Event"])
#: Resources that have a plain name in addition to ``count/NAME``.
_PLAIN: Final = frozenset(["configmaps", "replicationcontrollers", "resourcequotas", "secrets"])


@dataclass(frozen=True)
class QuotaEvaluator:
    """How objects of one kind are counted.

    ``names`` are the resources that the kind always uses; ``is_named`` returns True for further ones. ``is_scoped`` returns
    whether an object is in a scope; quotas with scopes ignore kinds without scopes. ``missing`` returns an error text for
    an object that does not specify an amount for a limited resource. ``grows`` returns, given the subresource and the
    object before and after, whether an update can increase usage.
    """

    names: frozenset[str]
    usage: Callable[[Document, Facts], Usage]
    is_named: Callable[[str, Facts], bool] = lambda _, __: False
    is_scoped: Callable[[ScopedResourceSelectorRequirement, Document], bool] = lambda _, __: False
    missing: Callable[[Iterable[str], Document], str] = lambda _, __: ""
    grows: Callable[[str, Document, Document], bool] = lambda _, __, ___: False

    def matching(self, names: Iterable[str], facts: Facts) -> list[str]:
        """Return the sorted quota resources that this kind uses."""
        return sorted(name for name in names if name in self.names or self.is_named(name, facts))


def is_in_scope(evaluator: QuotaEvaluator, spec: ResourceQuotaSpec, document: Document) -> bool:
    """Return True if an object is in all scopes of a quota."""
    return all(evaluator.is_scoped(requirement, document) for requirement in spec.requirements)


@lru_cache(maxsize=1024)
def evaluator_for(kind: ServedKind) -> QuotaEvaluator | None:
    """Return the evaluator of a kind, or None if the kind is not counted."""
    if not kind.namespaced or kind.native in _UNCOUNTED:
        return None
    found = _EVALUATORS.get(kind)
    if found is not None:
        return found
    names = frozenset([f"count/{kind.qualified}", *([kind.resource] if not kind.group and kind.resource in _PLAIN else [])])
    counted = dict.fromkeys(sorted(names), ONE)
    return QuotaEvaluator(names, lambda _, __: counted)


def counted_usage(quota: ResourceQuota, hard: Usage, facts: Facts) -> tuple[Usage, int]:
    """Return the usage of a quota's limited resources for which there is an evaluator, and the number of objects read."""
    seen = 0
    total: Usage = {}
    used: Usage = {}
    for kind in facts.kinds:
        meter = evaluator_for(kind)
        names = meter.matching(hard, facts) if meter is not None else []
        if meter is None or not names:
            continue
        total |= dict.fromkeys(names, ZERO)
        for document in facts.all(kind, quota.metadata.namespace):
            seen += 1
            if is_in_scope(meter, quota.spec, document):
                add(used, meter.usage(document, facts))
    return total | {name: amount for name, amount in used.items() if name in total}, seen


# -- services ----------------------------------------------------------------------------------------------------------

_SERVICES: Final = frozenset(["count/services", "services", "services.loadbalancers", "services.nodeports"])


def _service(service: Document, _: Facts) -> Usage:
    spec = service.get("spec") or {}
    ports, kind = spec.get("ports") or [], spec.get("type")
    has_balancer = kind == "LoadBalancer"
    if has_balancer and spec.get("allocateLoadBalancerNodePorts") is False:
        # Node ports are not allocated yet here, so only those that the service requests count.
        count = sum(1 for port in ports if port.get("nodePort"))
    else:
        count = len(ports) if has_balancer or kind == "NodePort" else 0
    return {
        "count/services": ONE, "services": ONE, "services.loadbalancers": ONE if has_balancer else ZERO,
        "services.nodeports": exact(count),
    }  # fmt: skip


# -- persistent volume claims ------------------------------------------------------------------------------------------

_CLAIMS: Final = frozenset(["count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"])
_BY_CLASS: Final = ".storageclass.storage.k8s.io/"
_LEGACY_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def _claim(claim: Document, _: Facts) -> Usage:
    spec, annotations = claim.get("spec") or {}, claim["metadata"].get("annotations") or {}
    storage_class = annotations.get(_LEGACY_CLASS_ANNOTATION) or spec.get("storageClassName") or ""
    used = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" in requests:
        # A larger size that was already allocated during a resize still counts after the request shrinks.
        held = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage", "0")
        used["requests.storage"] = max(exact(requests["storage"]), exact(held), key=lambda one: one.nano).in_whole_units()
    if storage_class:
        used |= {f"{storage_class}{_BY_CLASS}{name}": used[name] for name in _CLAIMS & used.keys() if "/" not in name}
    return used


def _is_of_claims(name: str, _: Facts) -> bool:
    return name.endswith((f"{_BY_CLASS}requests.storage", f"{_BY_CLASS}persistentvolumeclaims"))


def _is_claim_scoped(requirement: ScopedResourceSelectorRequirement, claim: Document) -> bool:
    if requirement.scope_name != "VolumeAttributesClass":
        return False
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    named = [spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target]
    return any(matches_requirement(requirement, name) for name in [name for name in named if name] or [""])


# -- evaluators by kind ------------------------------------------------------------------------------------------------

_EVALUATORS: Final = {
    served("pods"): QuotaEvaluator(
        quota_pods.NAMES, quota_pods.pod_usage, quota_pods.is_of_pods, quota_pods.is_pod_scoped, quota_pods.missing_requests,
        lambda part, old, new: part == "resize"
        or (not part and quota_pods.has_deadline(old) is not quota_pods.has_deadline(new)),
    ),
    served("services"): QuotaEvaluator(_SERVICES, _service, grows=lambda part, _, __: not part),
    served("persistentvolumeclaims"): QuotaEvaluator(
        _CLAIMS, _claim, _is_of_claims, _is_claim_scoped, grows=lambda part, _, __: part in {"", "status"}
    ),
    served("resourceclaims", "resource.k8s.io"): QuotaEvaluator(
        quota_claims.NAMES, quota_claims.claim_usage, quota_claims.is_of_claims, grows=lambda part, _, __: not part
    ),
}  # fmt: skip
