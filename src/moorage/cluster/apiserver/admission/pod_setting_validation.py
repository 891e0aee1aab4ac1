"""Validation of the settings of a pod that scheduling does not read: security, names, DNS, host aliases, operating system.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidatePodSpec and what it calls
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moorage.api.names import check_dns1123_subdomain, check_qualified_name
from moorage.api.validation.faults import duplicate, forbidden, in_range, invalid, named, one_of, required, too_long
from moorage.cluster.apiserver.admission.container_validation import app_armor_faults, seccomp_faults
from moorage.cluster.apiserver.admission.string_formats import address_faults, id_faults
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.errors import Fault

Faults = Iterator[Fault]
_SYSCTL: Final = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_TEXT: Final = (
    "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)
#: Prefixes of kernel parameters that belong to a pod's own namespaces, unless it shares those of the host.
_SHARED_BY: Final = {"hostNetwork": ("net.",), "hostIPC": ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")}
_MOST_NAMESERVERS: Final = 3
_MOST_SEARCHES: Final = 32
_MOST_SEARCH_LIST: Final = 2048
_MOST_HOSTNAME: Final = 64


def pod_setting_faults(path: str, spec: Document, *, is_pod: bool) -> Faults:
    """Yield the faults of a pod's settings. ``is_pod`` is False for templates."""
    yield from _security(f"{path}.securityContext", spec)
    yield from _dns(f"{path}.dnsConfig", spec)
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        yield from named(f"{path}.readinessGates[{i}].conditionType", gate.get("conditionType") or "", check_qualified_name)
    yield from _host_users(path, spec)
    yield from _hostname(path, spec)
    if account := spec.get("serviceAccountName"):
        yield from named(f"{path}.serviceAccountName", account, check_dns1123_subdomain)
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        yield from address_faults(f"{path}.hostAliases[{i}].ip", alias.get("ip") or "")
        for k, name in enumerate(alias.get("hostnames") or ()):
            yield from named(f"{path}.hostAliases[{i}].hostnames[{k}]", name, check_dns1123_subdomain)
    yield from _system(f"{path}.os", spec.get("os"))
    if spec.get("hostNetwork"):
        yield from _host_ports(path, spec, is_pod=is_pod)
    yield from _host_processes(path, spec)
    for i, container in enumerate(spec.get("containers") or () if is_pod else ()):
        image = container.get("image") or ""
        if image != image.strip():
            yield invalid(f"{path}.containers[{i}].image", image, "must not have leading or trailing whitespace")


def _security(path: str, spec: Document) -> Faults:
    context = spec.get("securityContext") or {}
    yield from id_faults(path, context, "fsGroup", "runAsUser", "runAsGroup")
    for i, group in enumerate(context.get("supplementalGroups") or ()):
        yield from in_range(f"{path}.supplementalGroups[{i}]", group, 0, 2**31 - 1)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.shareProcessNamespace", spec["shareProcessNamespace"], why)
    yield from _sysctls(f"{path}.sysctls", spec, context.get("sysctls") or ())
    yield from one_of(f"{path}.fsGroupChangePolicy", context.get("fsGroupChangePolicy"), ("Always", "OnRootMismatch"))
    yield from seccomp_faults(f"{path}.seccompProfile", context.get("seccompProfile"))
    yield from app_armor_faults(f"{path}.appArmorProfile", context.get("appArmorProfile"))
    yield from one_of(f"{path}.supplementalGroupsPolicy", context.get("supplementalGroupsPolicy"), ("Merge", "Strict"))
    yield from one_of(f"{path}.seLinuxChangePolicy", context.get("seLinuxChangePolicy"), ("Recursive",))


def _sysctls(path: str, spec: Document, sysctls: Any) -> Faults:
    names: set[str] = set()
    for i, sysctl in enumerate(sysctls):
        at, name = f"{path}[{i}].name", sysctl.get("name") or ""
        if not name:
            yield required(at)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            yield invalid(at, name, _SYSCTL_TEXT)
        elif name in names:
            yield duplicate(at, name)
        for shared, starts in _SHARED_BY.items():
            if spec.get(shared) and name.replace("/", ".").startswith(starts):
                yield invalid(at, name, f"may not be specified when '{shared}' is true")
        names.add(name)


def _dns(path: str, spec: Document) -> Faults:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            yield required(f"{path}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
            return
    if config is None:
        return
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > _MOST_NAMESERVERS:
        yield invalid(f"{path}.nameservers", servers, f"must not have more than {_MOST_NAMESERVERS} nameservers")
    for i, server in enumerate(servers):
        yield from address_faults(f"{path}.nameservers[{i}]", server)
    if len(searches) > _MOST_SEARCHES:
        yield invalid(f"{path}.searches", searches, f"must not have more than {_MOST_SEARCHES} search paths")
    if len(" ".join(searches)) > _MOST_SEARCH_LIST:
        why = f"must not have more than {_MOST_SEARCH_LIST} characters (including spaces) in the search list"
        yield invalid(f"{path}.searches", searches, why)
    for i, search in enumerate(searches):
        yield from _search(f"{path}.searches[{i}]", search)
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.options[{i}]", "must not be empty")


_SEARCH: Final = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")
_SEARCH_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
)


def _search(path: str, search: str) -> Faults:
    if search != "." and not _SEARCH.fullmatch(search.removesuffix(".")):
        yield invalid(path, search.removesuffix("."), _SEARCH_TEXT)


def _host_users(path: str, spec: Document) -> Faults:
    if spec.get("hostUsers") is False:
        for name, shown in (("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(name):
                yield forbidden(f"{path}.{shown}", "when `hostUsers` is false")


def _hostname(path: str, spec: Document) -> Faults:
    name, at = spec.get("hostnameOverride"), f"{path}.hostnameOverride"
    if name is None:
        return
    if spec.get("setHostnameAsFQDN"):
        yield forbidden(at, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        yield forbidden(at, "may not be specified when hostNetwork is true")
    if len(name) > _MOST_HOSTNAME:
        yield too_long(at, _MOST_HOSTNAME)
    yield from named(at, name, check_dns1123_subdomain)


def _system(path: str, system: Any) -> Faults:
    if system is None:
        return
    if not system.get("name"):
        yield required(f"{path}.name")
    else:
        yield from one_of(path, system["name"], ("linux", "windows"))


def _host_ports(path: str, spec: Document, *, is_pod: bool) -> Faults:
    for i, container in enumerate(spec.get("containers") or ()):
        for k, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            if (is_pod or host) and host != port.get("containerPort"):
                at = f"{path}.containers[{i}].ports[{k}].hostPort"
                yield invalid(at, host, "must match `containerPort` when `hostNetwork` is true")


def _host_processes(path: str, spec: Document) -> Faults:
    """Yield the faults of Windows hostProcess settings: if one container sets it, all must, and the pod needs hostNetwork."""
    default = _runs_on_host(spec)
    containers = [one for part in _PARTS for one in spec.get(part) or ()]
    chosen = [_runs_on_host(one) for one in containers]
    on_host = sum(bool(default if one is None else one) for one in chosen)
    if on_host and on_host != len(containers):
        why = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid(path, "", why)
    if on_host and not spec.get("hostNetwork"):
        yield invalid(f"{path}.hostNetwork", False, "hostNetwork must be true if pod contains any hostProcess containers")


def _runs_on_host(holder: Document) -> Any:
    return ((holder.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")


_PARTS: Final = ("initContainers", "containers", "ephemeralContainers")
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_OF_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_PROFILES: Final = ("runtime/default", "docker/default", "unconfined")
_MIRROR: Final = "kubernetes.io/config.mirror"


def pod_annotation_faults(pod: Document) -> Faults:
    """Yield the faults of the annotations that kube-apiserver reads in pods."""
    spec, annotations = pod.get("spec") or {}, pod["metadata"].get("annotations") or {}
    if _MIRROR in annotations and not spec.get("nodeName"):
        why = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(f"metadata.annotations[{_MIRROR}]", annotations[_MIRROR], why)
    names = {one.get("name") for part in _PARTS for one in spec.get(part) or ()}
    for key, profile in annotations.items():
        is_seccomp = key == _SECCOMP or key.startswith(_SECCOMP_OF_CONTAINER)
        if is_seccomp and profile not in _SECCOMP_PROFILES and not profile.startswith("localhost/"):
            yield invalid(f"metadata.annotations.{key}", profile, "must be a valid seccomp profile")
        name = key.removeprefix(_APP_ARMOR)
        if name == key:
            continue
        if name not in names:
            yield invalid(f"metadata.annotations[{key}]", name, "container not found")
        if profile not in {"", "runtime/default", "unconfined"} and not profile.startswith("localhost/"):
            yield invalid(f"metadata.annotations[{key}]", profile, f'invalid AppArmor profile name: "{profile}"')
