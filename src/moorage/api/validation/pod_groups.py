"""Pod groups and the workloads whose templates they are created from.

Feature gates decide whether a field may be set; fields of disabled gates are dropped before validation.

Source  kubernetes, pkg/apis/scheduling/v1alpha2/zz_generated.validations.go (rules that stand beside the types)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_qualified_name
from moorage.api.pod_groups import (
    DisruptionMode,
    PodGroup,
    PodGroupResourceClaim,
    PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
    PodGroupTemplateReference,
    TypedLocalObjectReference,
    Workload,
)
from moorage.api.validation.faults import Faults, duplicate, int32, invalid, named, object_meta, required, too_many, unsupported

_MOST_CLAIMS: Final = 4
_MOST_TEMPLATES: Final = 8
_MOST_CONSTRAINTS: Final = 1
_HIGHEST_PRIORITY: Final = 1_000_000_000
_MODES: Final = ("Pod", "PodGroup")
_PREEMPTS: Final = ("Never", "PreemptLowerPriority")


def pod_group_faults(group: PodGroup) -> Faults:
    """Yield the faults of a pod group."""
    yield from object_meta(group.metadata, True)
    if group.spec.pod_group_template_ref is not None:
        yield from _template_reference("spec.podGroupTemplateRef", group.spec.pod_group_template_ref)
    if (origin := group.spec.workload_ref) is not None:
        for name, value in (("workloadName", origin.workload_name), ("templateName", origin.template_name)):
            if not value:
                yield required(f"spec.workloadRef.{name}")
    yield from _common_faults("spec", group.spec)


def workload_faults(workload: Workload) -> Faults:
    """Yield the faults of a workload."""
    yield from object_meta(workload.metadata, True)
    if workload.spec.controller_ref is not None:
        yield from _controller("spec.controllerRef", workload.spec.controller_ref)
    path, templates = "spec.podGroupTemplates", workload.spec.pod_group_templates
    if not templates and not workload.spec.composite_pod_group_templates:
        yield required(path)
    if len(templates) > _MOST_TEMPLATES:
        yield too_many(path, len(templates), _MOST_TEMPLATES)
        return
    yield from _unique_names(path, templates)
    for i, template in enumerate(templates):
        yield from _name(f"{path}[{i}].name", template.name)
        yield from _common_faults(f"{path}[{i}]", template)


def _unique_names(path: str, things: Iterable[PodGroupTemplate | PodGroupResourceClaim]) -> Faults:
    """Yield the faults of items whose name occurs twice."""
    seen: set[str] = set()
    for i, one in enumerate(things):
        if one.name in seen:
            yield duplicate(f"{path}[{i}]", msgspec.to_builtins(one))
        seen.add(one.name)


def _one_of(path: str, given: dict[str, object]) -> Faults:
    """Yield the fault of a union with no member set, or with several."""
    supported = ", ".join(f"`{name}`" for name in given)
    chosen = [name for name, value in given.items() if value is not None]
    if not chosen:
        yield invalid(path, "", f"must specify one of: {supported}")
    elif len(chosen) > 1:
        yield invalid(path, f"{{{', '.join(chosen)}}}", f"must specify exactly one of: {supported}")


def _name(path: str, name: str) -> Faults:
    if not name:
        yield required(path)
    else:
        yield from named(path, name, check_dns1123_label)


def _template_reference(path: str, origin: PodGroupTemplateReference) -> Faults:
    yield from _one_of(path, {"workload": origin.workload})
    if (workload := origin.workload) is None:
        return
    if not workload.workload_name:
        yield required(f"{path}.workload.workloadName")
    else:
        yield from named(f"{path}.workload.workloadName", workload.workload_name, check_dns1123_subdomain)
    yield from _name(f"{path}.workload.podGroupTemplateName", workload.pod_group_template_name)


def _controller(path: str, controller: TypedLocalObjectReference) -> Faults:
    if controller.api_group:
        yield from named(f"{path}.apiGroup", controller.api_group, check_dns1123_subdomain)
    for name, value in (("kind", controller.kind), ("name", controller.name)):
        if not value:
            yield required(f"{path}.{name}")
        else:
            yield from named(f"{path}.{name}", value, _check_segment)


def _check_segment(text: str) -> list[str]:
    """Return why a text is not a valid path segment."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in text]


# -- what groups and templates share ------------------------------------------------------------------------------------


def _common_faults(path: str, spec: PodGroupSpec | PodGroupTemplate) -> Faults:
    yield from _policy(f"{path}.schedulingPolicy", spec.scheduling_policy)
    if spec.scheduling_constraints is not None:
        yield from _constraints(f"{path}.schedulingConstraints.topology", spec.scheduling_constraints)
    yield from _claims(f"{path}.resourceClaims", spec.resource_claims)
    if isinstance(spec.disruption_mode, DisruptionMode):
        yield from _one_of(f"{path}.disruptionMode", {"single": spec.disruption_mode.single, "all": spec.disruption_mode.all})
    elif spec.disruption_mode is not None and spec.disruption_mode not in _MODES:
        yield unsupported(f"{path}.disruptionMode", spec.disruption_mode, _MODES)
    if spec.preemption_policy is not None and spec.preemption_policy not in _PREEMPTS:
        yield unsupported(f"{path}.preemptionPolicy", spec.preemption_policy, _PREEMPTS)
    if spec.priority_class_name:
        yield from named(f"{path}.priorityClassName", spec.priority_class_name, check_dns1123_subdomain)
    if spec.priority is not None and spec.priority > _HIGHEST_PRIORITY:
        yield invalid(f"{path}.priority", spec.priority, f"must be less than or equal to {_HIGHEST_PRIORITY}")
    else:
        yield from int32(f"{path}.priority", spec.priority)


def _policy(path: str, policy: PodGroupSchedulingPolicy) -> Faults:
    yield from _one_of(path, {"basic": policy.basic, "gang": policy.gang})
    if policy.gang is None:
        return
    if not policy.gang.min_count:
        yield required(f"{path}.gang.minCount")
    elif policy.gang.min_count < 0:
        yield invalid(f"{path}.gang.minCount", policy.gang.min_count, "must be greater than or equal to 1")
    else:
        yield from int32(f"{path}.gang.minCount", policy.gang.min_count)


def _constraints(path: str, constraints: PodGroupSchedulingConstraints) -> Faults:
    if len(constraints.topology) > _MOST_CONSTRAINTS:
        yield too_many(path, len(constraints.topology), _MOST_CONSTRAINTS)
        return
    for i, one in enumerate(constraints.topology):
        if not one.key:
            yield required(f"{path}[{i}].key")
        else:
            yield from named(f"{path}[{i}].key", one.key, check_qualified_name)


def _claims(path: str, claims: tuple[PodGroupResourceClaim, ...]) -> Faults:
    if len(claims) > _MOST_CLAIMS:
        yield too_many(path, len(claims), _MOST_CLAIMS)
        return
    yield from _unique_names(path, claims)
    for i, claim in enumerate(claims):
        at = f"{path}[{i}]"
        sources = {
            "resourceClaimName": claim.resource_claim_name,
            "resourceClaimTemplateName": claim.resource_claim_template_name,
        }
        yield from _one_of(at, {**sources})
        yield from _name(f"{at}.name", claim.name)
        for field, value in sources.items():
            if value is not None:
                yield from named(f"{at}.{field}", value, check_dns1123_subdomain)
