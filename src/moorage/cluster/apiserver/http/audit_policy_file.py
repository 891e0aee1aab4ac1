"""The file of ``--audit-policy-file``.

Source  apiserver, pkg/apis/audit/v1 and validation, pkg/audit/policy
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from moorage.api.names import check_dns1123_subdomain
from moorage.api.validation.faults import unsupported
from moorage.cluster.apiserver.configuration_files import head_faults, read_object
from moorage.cluster.apiserver.http.audit_policy import AuditPolicy, AuditRule, GroupResources, PolicyFields
from moorage.errors import ConfigError, Fault

__all__ = ["read_audit_policy"]

_FLAG: Final = "--audit-policy-file"
_VERSION: Final = "audit.k8s.io/v1"
LEVELS: Final = ("None", "Metadata", "Request", "RequestResponse")
STAGES: Final = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")


def read_audit_policy(path: Path, warn: Callable[[str], None]) -> AuditPolicy:
    """Read a policy file; ``warn`` gets the fields that are unknown and ignored, as in kube-apiserver.

    Raises  InputError if the file cannot be read; ConfigError with all faults
    """
    document = read_object(_FLAG, path)
    faults = [*head_faults(document, [_VERSION], "Policy")]
    policy = AuditPolicy()
    try:
        policy = msgspec.convert(_without_nulls(document), AuditPolicy)
    except msgspec.ValidationError as error:
        faults.append(Fault("Invalid value", "", str(error)))
    else:
        faults += _faults(policy)
    if faults:
        raise ConfigError(f"{_FLAG}: {path} cannot be used:", faults)
    for place in _unknown(document):
        warn(f"{_FLAG}: {path}: unknown field {place} is ignored")
    return policy


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _faults(policy: AuditPolicy) -> Iterator[Fault]:
    yield from _stage_faults(policy.omit_stages, "omitStages")
    if not policy.rules:
        yield Fault("Required value", "rules", "a policy without rules records nothing")
    for at, rule in enumerate(policy.rules):
        place = f"rules[{at}]"
        if not rule.level:
            yield Fault("Required value", f"{place}.level")
        elif rule.level not in LEVELS:
            yield unsupported(f"{place}.level", rule.level, LEVELS)
        for i, url in enumerate(rule.non_resource_urls):
            field = f"{place}.nonResourceURLs[{i}]"
            if url != "*" and not url.startswith("/"):
                yield Fault("Invalid value", field, "non-resource URL rules must begin with a '/' character", url)
            if "*" in url[:-1]:
                why = "non-resource URL wildcards '*' must be the final character of the rule"
                yield Fault("Invalid value", field, why, url)
        for i, one in enumerate(rule.resources):
            field = f"{place}.resources[{i}]"
            if one.group not in {"", "*"}:
                yield from (
                    Fault("Invalid value", f"{field}.group", why, one.group) for why in check_dns1123_subdomain(one.group)
                )
            if one.resource_names and not one.resources:
                why = "using resourceNames requires at least one resource"
                yield Fault("Invalid value", f"{field}.resourceNames", why, list(one.resource_names))
        yield from _stage_faults(rule.omit_stages, f"{place}.omitStages")
        if rule.non_resource_urls and (rule.resources or rule.namespaces):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            yield Fault("Invalid value", f"{place}.nonResourceURLs", why, list(rule.non_resource_urls))


def _stage_faults(stages: Collection[str], place: str) -> Iterator[Fault]:
    for at, stage in enumerate(stages):
        if stage not in STAGES:
            yield Fault("Invalid value", f"{place}[{at}]", f"allowed stages are {','.join(STAGES)}", stage)


def _unknown(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the places of the fields that a policy does not have."""
    yield from _strange(document, AuditPolicy, "", {"apiVersion", "kind", "metadata"})
    for at, rule in enumerate(document.get("rules") or ()):
        yield from _strange(rule or {}, AuditRule, f"rules[{at}].")
        for i, one in enumerate((rule or {}).get("resources") or ()):
            yield from _strange(one or {}, GroupResources, f"rules[{at}].resources[{i}].")


def _strange(document: Mapping[str, Any], form: type[PolicyFields], place: str, more: Collection[str] = ()) -> Iterator[str]:
    known = {field.encode_name for field in msgspec.structs.fields(form)} | {*more}
    return (f"{place}{name}" for name in document if name not in known)
