"""The file of ``--audit-policy-file``: which requests the audit log records, and how much of them.

The first rule that fits a request gives the level of its events; a request that no rule fits is not recorded.

Source  apiserver, pkg/apis/audit/v1 and validation, pkg/audit/policy; pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.documents.http_messages import User, is_true
from moorage.api.names import check_dns1123_subdomain
from moorage.api.reading.manifests import read_first_yaml
from moorage.errors import ConfigError, Fault, InputError

__all__ = ["METADATA", "AuditPolicy", "AuditedRequest", "Recording", "audited_request", "read_audit_policy"]

_FLAG: Final = "--audit-policy-file"
_VERSION: Final = "audit.k8s.io/v1"
LEVELS: Final = ("None", "Metadata", "Request", "RequestResponse")
STAGES: Final = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")


# -- requests ----------------------------------------------------------------------------------------------------------


class AuditedRequest(NamedTuple):
    """What a policy sees of a request, from its method, path and parameters alone: its resource need not exist."""

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def is_long_running(self) -> bool:
        """True for watches and streams, whose responses do not end by themselves."""
        return self.verb in {"watch", "proxy"} or (self.is_resource and self.subresource in _STREAMS)


_STREAMS: Final = frozenset(["attach", "exec", "log", "portforward", "proxy"])
_VERBS: Final = {"DELETE": "delete", "GET": "get", "HEAD": "get", "PATCH": "patch", "POST": "create", "PUT": "update"}
_PREFIXES: Final = frozenset(["api", "apis"])
_NAME: Final = re.compile(r"metadata\.name==?([^=!,\\]*)")


def audited_request(method: str, path: str, query: Mapping[str, str]) -> AuditedRequest:
    """Return the attributes of a request. ``path`` is decoded."""
    parts = path.strip("/").split("/")
    other = AuditedRequest(method.lower(), path)
    if len(parts) < 3 or parts[0] not in _PREFIXES or (parts[0] == "apis" and len(parts) < 4):
        return other
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    verb = _VERBS.get(method, "")
    if rest[0] in {"proxy", "watch"}:
        if len(rest) < 2:
            return other
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        rest = rest[2:] if len(rest) > 2 and rest[2] not in {"finalize", "status"} else rest
    resource, name, subresource = [*rest[:3], "", ""][:3]
    if verb == "proxy":
        subresource = ""
    if not name and verb == "get":
        verb = "watch" if "watch" in query and is_true(query["watch"]) else "list"
        found = [_NAME.fullmatch(term) for term in query.get("fieldSelector", "").split(",")]
        name = next((one[1] for one in found if one is not None), "")
        name = "" if name in {".", ".."} or "/" in name or "%" in name else name
    elif not name and verb == "delete":
        verb = "deletecollection"
    return AuditedRequest(verb, path, True, group, version, namespace, resource, name, subresource)


# -- policies ----------------------------------------------------------------------------------------------------------


class _Fields(msgspec.Struct, rename="camel", frozen=True):
    pass


class _GroupResources(_Fields, frozen=True):
    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class _Rule(_Fields, frozen=True):
    level: str = ""
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[_GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool | None = None


class Recording(NamedTuple):
    """How much of a request is recorded: the level and stages of its events."""

    level: str = "None"
    omitted: frozenset[str] = frozenset()
    omits_managed_fields: bool = False


class AuditPolicy(_Fields, frozen=True):
    """An audit policy."""

    rules: tuple[_Rule, ...] = ()
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool = False

    def recording(self, user: User | None, request: AuditedRequest) -> Recording:
        """Return how much of a request is recorded; ``user`` is None for one that was not authenticated."""
        for rule in self.rules:
            if _fits(rule, user, request):
                own = rule.omit_managed_fields
                omits = self.omit_managed_fields if own is None else own
                return Recording(rule.level, frozenset({*self.omit_stages, *rule.omit_stages}), omits)
        return Recording()


#: The policy of a log without a policy file.
METADATA: Final = AuditPolicy((_Rule("Metadata"),), ("RequestReceived",))


def _fits(rule: _Rule, user: User | None, request: AuditedRequest) -> bool:
    if rule.users and (user is None or user.name not in rule.users):
        return False
    if rule.user_groups and (user is None or not set(rule.user_groups).intersection(user.groups)):
        return False
    if rule.verbs and request.verb not in rule.verbs:
        return False
    if rule.namespaces or rule.resources:
        return (
            request.is_resource
            and (not rule.namespaces or request.namespace in rule.namespaces)
            and (not rule.resources or any(_fits_resource(one, request) for one in rule.resources))
        )
    if rule.non_resource_urls:
        return not request.is_resource and any(_fits_path(one, request.path) for one in rule.non_resource_urls)
    return True


def _fits_resource(wanted: _GroupResources, request: AuditedRequest) -> bool:
    if wanted.group not in {"*", request.group}:
        return False
    if not wanted.resources:
        return True
    resource, part = request.resource, request.subresource
    fitting = {"*", f"{resource}/{part}" if part else resource, f"{resource}/*", *([f"*/{part}"] if part else ())}
    is_named = not wanted.resource_names or request.name in wanted.resource_names
    return is_named and not fitting.isdisjoint(wanted.resources)


def _fits_path(pattern: str, path: str) -> bool:
    return pattern in {"*", path} or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


# -- reading -----------------------------------------------------------------------------------------------------------


def read_audit_policy(path: Path, warn: Callable[[str], None]) -> AuditPolicy:
    """Read a policy file; ``warn`` gets the fields that are unknown and ignored, as in kube-apiserver.

    Raises  InputError if the file cannot be read; ConfigError with all faults
    """
    try:
        document = read_first_yaml(path.read_bytes(), str(path), strict=True)
    except OSError as error:
        raise InputError(f"{_FLAG}: {path}: {error.strerror}") from None
    if not isinstance(document, dict):
        raise InputError(f"{_FLAG}: {path}: expected an object")
    faults = [*_head_faults(document)]
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


def _head_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    for name, wanted in (("apiVersion", _VERSION), ("kind", "Policy")):
        if document.get(name) != wanted:
            yield Fault("Unsupported value", name, f'supported values: "{wanted}"', document.get(name))


def _faults(policy: AuditPolicy) -> Iterator[Fault]:
    yield from _stage_faults(policy.omit_stages, "omitStages")
    if not policy.rules:
        yield Fault("Required value", "rules", "a policy without rules records nothing")
    for at, rule in enumerate(policy.rules):
        place = f"rules[{at}]"
        if not rule.level:
            yield Fault("Required value", f"{place}.level")
        elif rule.level not in LEVELS:
            yield _unsupported(f"{place}.level", LEVELS, rule.level)
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


def _unsupported(place: str, supported: Collection[str], value: str) -> Fault:
    shown = ", ".join(f'"{one}"' for one in supported)
    return Fault("Unsupported value", place, f"supported values: {shown}", value)


def _unknown(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the places of the fields that a policy does not have."""
    yield from _strange(document, AuditPolicy, "", {"apiVersion", "kind", "metadata"})
    for at, rule in enumerate(document.get("rules") or ()):
        yield from _strange(rule or {}, _Rule, f"rules[{at}].")
        for i, one in enumerate((rule or {}).get("resources") or ()):
            yield from _strange(one or {}, _GroupResources, f"rules[{at}].resources[{i}].")


def _strange(document: Mapping[str, Any], form: type[_Fields], place: str, more: Collection[str] = ()) -> Iterator[str]:
    known = {field.encode_name for field in msgspec.structs.fields(form)} | {*more}
    return (f"{place}{name}" for name in document if name not in known)
