"""What objects take of resource quotas: each kind's own account, and whether an object is in a quota's scopes.

Admission charges by it what comes and grows, and the controller of quotas recounts by it what is there, so the two agree.
Usage is by the names that quotas have: ``requests.cpu`` and plain ``cpu`` are the same amount under two names. What a name may
be is written on a kind's ``QuotaEvaluator``; a kind without one of its own is counted, as ``count/widgets.example.com``.

Source  kubernetes, pkg/quota/v1/evaluator/core: services.go, persistent_volume_claims.go, registry.go; apiserver,
        pkg/quota/v1/generic/evaluator.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from moorage.api.quantity import exact
from moorage.api.quotas import ResourceQuotaSpec, ScopedResourceSelectorRequirement
from moorage.apiserver.admission import quota_claims, quota_pods
from moorage.apiserver.admission.quota_types import ONE, ZERO, Facts, Usage, label_fits
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served

__all__ = ["QuotaEvaluator", "is_in_scope", "meter_of"]

#: What is never counted.
_FREE: Final = frozenset(["Event"])
#: Kinds that were counted before all were, with the names from then.
_OLD_NAMES: Final = frozenset(["configmaps", "replicationcontrollers", "resourcequotas", "secrets"])


@dataclass(frozen=True)
class QuotaEvaluator:
    """How the objects of one kind count.

    ``names`` are the resources that it always accounts for, ``is_named`` tells of others whether it does as well.
    ``is_scoped`` says whether an object meets what a scope asks; quotas with scopes pass over kinds that know none.
    ``missing`` returns what is wrong with an object that does not say how much it takes, by the names of what is limited.
    ``grows`` says of an update, given its subresource and the object before and after, whether it can need more.
    """

    names: frozenset[str]
    usage: Callable[[Document, Facts], Usage]
    is_named: Callable[[str, Facts], bool] = lambda _, __: False
    is_scoped: Callable[[ScopedResourceSelectorRequirement, Document], bool] = lambda _, __: False
    missing: Callable[[Iterable[str], Document], str] = lambda _, __: ""
    grows: Callable[[str, Document, Document], bool] = lambda _, __, ___: False

    def matching(self, names: Iterable[str], facts: Facts) -> list[str]:
        """Return those of a quota's resources that this kind accounts for, in order."""
        return sorted(name for name in names if name in self.names or self.is_named(name, facts))


def is_in_scope(meter: QuotaEvaluator, spec: ResourceQuotaSpec, document: Document) -> bool:
    """Return True for an object that a quota's scopes include."""
    return all(meter.is_scoped(asked, document) for asked in spec.requirements)


@cache
def meter_of(kind: ServedKind) -> QuotaEvaluator | None:
    """Return how a kind counts, or None where it does not."""
    if not kind.namespaced or kind.kind in _FREE:
        return None
    found = _METERS.get(kind)
    if found is not None:
        return found
    names = frozenset([f"count/{kind.qualified}", *([kind.resource] if not kind.group and kind.resource in _OLD_NAMES else [])])
    counted = dict.fromkeys(sorted(names), ONE)
    return QuotaEvaluator(names, lambda _, __: counted)


# -- services -----------------------------------------------------------------------------------------------------------

_SERVICES: Final = frozenset(["count/services", "services", "services.loadbalancers", "services.nodeports"])


def _service(service: Document, _: Facts) -> Usage:
    spec = service.get("spec") or {}
    ports, kind = spec.get("ports") or [], spec.get("type")
    has_balancer = kind == "LoadBalancer"
    if has_balancer and spec.get("allocateLoadBalancerNodePorts") is False:
        # Those that it will be given are not known yet, so it goes by what is asked for.
        count = sum(1 for port in ports if port.get("nodePort"))
    else:
        count = len(ports) if has_balancer or kind == "NodePort" else 0
    return {
        "count/services": ONE, "services": ONE, "services.loadbalancers": ONE if has_balancer else ZERO,
        "services.nodeports": exact(count),
    }  # fmt: skip


# -- claims for volumes -------------------------------------------------------------------------------------------------

_CLAIMS: Final = frozenset(["count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"])
_BY_CLASS: Final = ".storageclass.storage.k8s.io/"
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def _claim(claim: Document, _: Facts) -> Usage:
    spec, annotations = claim.get("spec") or {}, claim["metadata"].get("annotations") or {}
    storage_class = annotations.get(_OLD_CLASS) or spec.get("storageClassName") or ""
    used = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" in requests:
        # What a claim that was to grow has been given counts, though it asks for less by now.
        held = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage", "0")
        used["requests.storage"] = max(exact(requests["storage"]), exact(held), key=lambda one: one.nano).in_whole_units()
    if storage_class:
        used |= {f"{storage_class}{_BY_CLASS}{name}": used[name] for name in _CLAIMS & used.keys() if "/" not in name}
    return used


def _is_of_claims(name: str, _: Facts) -> bool:
    return name.endswith((f"{_BY_CLASS}requests.storage", f"{_BY_CLASS}persistentvolumeclaims"))


def _is_claim_scoped(asked: ScopedResourceSelectorRequirement, claim: Document) -> bool:
    if asked.scope_name != "VolumeAttributesClass":
        return False
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    named = [spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target]
    return any(label_fits(asked, name) for name in [name for name in named if name] or [""])


# -- all of them --------------------------------------------------------------------------------------------------------

_METERS: Final = {
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
