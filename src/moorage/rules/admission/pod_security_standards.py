"""The pod security standards: what the levels ``baseline`` and ``restricted`` demand of a pod, in each of their versions.

A level's version is that of the Kubernetes release whose demands hold. A check begins with a version, and is replaced by the
next one of its name. ``restricted`` has the checks of ``baseline``, except those that its own ones replace.

Source  pod-security-admission, policy: registry.go and check_*.go; the texts are those of kube-apiserver
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from moorage.api.documents.served_kinds import Document
from moorage.api.documents.statuses import quoted

__all__ = ["PodViolation", "violations"]


class PodViolation(NamedTuple):
    """What a pod must not do, in short, and where it does it."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


#: Returns the violation of a check by a pod with this metadata and spec, None if there is none.
_Check = Callable[[Document, Document], PodViolation | None]


def violations(level: str, version: int, metadata: Document, spec: Document) -> list[PodViolation]:
    """Return what a pod violates of a level; ``version`` is the minor version, such as 37 for v1.37."""
    return [found for check in _checks_of(level, version) if (found := check(metadata, spec)) is not None]


# -- reading pods ------------------------------------------------------------------------------------------------------


def _containers(spec: Document) -> Iterator[Document]:
    for part in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(part) or ()


def _at(holder: Document, *path: str) -> Any:
    """Return the value of a field below ``securityContext``, None if it is absent."""
    value: Any = holder.get("securityContext")
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _named(spec: Document, is_bad: Callable[[Document], bool]) -> list[str]:
    return [str(one.get("name")) for one in _containers(spec) if is_bad(one)]


def _list(values: Iterable[str]) -> str:
    return ", ".join(f'"{one}"' for one in values)


def _sorted(values: Iterable[str]) -> list[str]:
    return sorted({*values})


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _uses(count: int) -> str:
    return "uses" if count == 1 else "use"


def _those(containers: Sequence[str]) -> str:
    return f"{_plural('container', len(containers))} {_list(containers)}"


def _setters(spec: Document, is_bad: Callable[[Document], bool]) -> str:
    """Return who sets something that is bad: ``pod and containers "a", "b"``; "" for none."""
    named = _named(spec, is_bad)
    return " and ".join([*(["pod"] if is_bad(spec) else []), *([_those(named)] if named else [])])


def _is_for_windows(spec: Document) -> bool:
    return bool((spec.get("os") or {}).get("name") == "windows")


def _has_own_users(spec: Document) -> bool:
    """Return whether a pod is in a user namespace."""
    return spec.get("hostUsers") is False


def _unless(exempts: Callable[[Document], bool], check: _Check) -> _Check:
    """Return a check that pods are exempted from."""
    return lambda metadata, spec: None if exempts(spec) else check(metadata, spec)


# -- baseline ----------------------------------------------------------------------------------------------------------

_PROFILES: Final = frozenset(["RuntimeDefault", "Localhost"])
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"


def _app_armor(metadata: Document, spec: Document) -> PodViolation | None:
    def is_bad(one: Document) -> bool:
        return _at(one, "appArmorProfile") is not None and _at(one, "appArmorProfile", "type") not in _PROFILES

    setters = _setters(spec, is_bad)
    values = _sorted(str(_at(one, "appArmorProfile", "type") or "") for one in (spec, *_containers(spec)) if is_bad(one))
    annotations = sorted(
        f"{key}={quoted(value)}" for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(_APP_ARMOR) and not (value in {"", "runtime/default"} or value.startswith("localhost/"))
    )  # fmt: skip
    values += annotations
    if annotations:
        setters = " and ".join(filter(None, [setters, _plural("annotation", len(annotations))]))
    if not setters:
        return None
    reason = _plural("forbidden AppArmor profile", len(values))
    return PodViolation(reason, f"{setters} must not set AppArmor profile type to {_list(values)}")


_ADDED: Final = frozenset(
    ["AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
     "SETPCAP", "SETUID", "SYS_CHROOT"]
)  # fmt: skip


def _added(spec: Document, allowed: frozenset[str]) -> str:
    """Return the detail about added capabilities beyond some; "" for none."""

    def beyond(one: Document) -> list[str]:
        return [name for name in _at(one, "capabilities", "add") or () if name not in allowed]

    if not (named := _named(spec, lambda one: bool(beyond(one)))):
        return ""
    names = _sorted(name for one in _containers(spec) for name in beyond(one))
    return f"{_those(named)} must not include {_list(names)} in securityContext.capabilities.add"


def _capabilities(_: Document, spec: Document) -> PodViolation | None:
    detail = _added(spec, _ADDED)
    return PodViolation("non-default capabilities", detail) if detail else None


def _host_namespaces(_: Document, spec: Document) -> PodViolation | None:
    shared = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return PodViolation("host namespaces", ", ".join(shared)) if shared else None


def _host_paths(_: Document, spec: Document) -> PodViolation | None:
    named = [str(one.get("name")) for one in spec.get("volumes") or () if one.get("hostPath") is not None]
    return PodViolation("hostPath volumes", f"{_plural('volume', len(named))} {_list(named)}") if named else None


def _host_ports(_: Document, spec: Document) -> PodViolation | None:
    def ports(one: Document) -> list[str]:
        return [str(port["hostPort"]) for port in one.get("ports") or () if port.get("hostPort")]

    named = _named(spec, lambda one: bool(ports(one)))
    found = _sorted(port for one in _containers(spec) for port in ports(one))
    if not named:
        return None
    detail = f"{_those(named)} {_uses(len(named))} {_plural('hostPort', len(found))} {', '.join(found)}"
    return PodViolation("hostPort", detail)


def _hosts(container: Document) -> Iterator[str]:
    """Yield the hosts that the probes and lifecycle handlers of a container name."""
    handlers = [container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
    handlers += [(container.get("lifecycle") or {}).get(name) for name in ("postStart", "preStop")]
    for handler in handlers:
        for form in ("httpGet", "tcpSocket"):
            if host := ((handler or {}).get(form) or {}).get("host"):
                yield str(host)


def _probe_hosts(_: Document, spec: Document) -> PodViolation | None:
    named = _sorted(_named(spec, lambda one: any(_hosts(one))))
    hosts = _sorted(host for one in _containers(spec) for host in _hosts(one))
    if not named:
        return None
    words = _plural("probe or lifecycle host", len(hosts))
    return PodViolation("probe or lifecycle host", f"{_those(named)} {_uses(len(named))} {words} {_list(hosts)}")


def _privileged(_: Document, spec: Document) -> PodViolation | None:
    named = _named(spec, lambda one: _at(one, "privileged") is True)
    return PodViolation("privileged", f"{_those(named)} must not set securityContext.privileged=true") if named else None


def _proc_mount(_: Document, spec: Document) -> PodViolation | None:
    def is_bad(one: Document) -> bool:
        return _at(one, "procMount") not in {None, "Default"}

    if not (named := _named(spec, is_bad)):
        return None
    values = _sorted(str(_at(one, "procMount")) for one in _containers(spec) if is_bad(one))
    return PodViolation("procMount", f"{_those(named)} must not set securityContext.procMount to {_list(values)}")


_SELINUX: Final = frozenset(["", "container_t", "container_init_t", "container_kvm_t"])


def _selinux(allowed: frozenset[str]) -> _Check:
    def kind(one: Document) -> str:
        return str(_at(one, "seLinuxOptions", "type") or "")

    def has(one: Document, field: str) -> bool:
        return bool(_at(one, "seLinuxOptions", field))

    def check(_: Document, spec: Document) -> PodViolation | None:
        setters = _setters(spec, lambda one: kind(one) not in allowed or has(one, "user") or has(one, "role"))
        if not setters:
            return None
        everyone = (spec, *_containers(spec))
        kinds = _sorted(kind(one) for one in everyone if kind(one) not in allowed)
        data = [f"{_plural('type', len(kinds))} {_list(kinds)}"] if kinds else []
        data += [f"{field} may not be set" for field in ("user", "role") if any(has(one, field) for one in everyone)]
        return PodViolation("seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}")

    return check


_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"


def _seccomp_annotations(metadata: Document, spec: Document) -> PodViolation | None:
    annotations = metadata.get("annotations") or {}
    keys = [_SECCOMP_POD, *(f"{_SECCOMP}{one.get('name')}" for one in _containers(spec))]
    found = _sorted(
        f"{key}={quoted(annotations[key])}" for key in keys if key in annotations
        and not (annotations[key] in {"runtime/default", "docker/default"} or annotations[key].startswith("localhost/"))
    )  # fmt: skip
    if not found:
        return None
    return PodViolation("seccompProfile", f"forbidden {_plural('annotation', len(found))} {', '.join(found)}")


def _has_bad_seccomp(one: Document) -> bool:
    return _at(one, "seccompProfile") is not None and _at(one, "seccompProfile", "type") not in _PROFILES


def _seccomp(_: Document, spec: Document) -> PodViolation | None:
    if not (setters := _setters(spec, _has_bad_seccomp)):
        return None
    everyone = (spec, *_containers(spec))
    values = _sorted(str(_at(one, "seccompProfile", "type") or "") for one in everyone if _has_bad_seccomp(one))
    return PodViolation("seccompProfile", f"{setters} must not set securityContext.seccompProfile.type to {_list(values)}")


#: The sysctls that a version adds to those that are allowed.
_SYSCTLS: Final[Mapping[int, tuple[str, ...]]] = {
    0: ("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start"),
    27: ("net.ipv4.ip_local_reserved_ports",),
    29: ("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
         "net.ipv4.tcp_keepalive_probes"),
    32: ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
    37: ("net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"),
}  # fmt: skip


def _sysctls(version: int) -> _Check:
    allowed = frozenset(name for since, names in _SYSCTLS.items() if since <= version for name in names)

    def check(_: Document, spec: Document) -> PodViolation | None:
        found = [str(one.get("name")) for one in _at(spec, "sysctls") or () if one.get("name") not in allowed]
        return PodViolation("forbidden sysctls", ", ".join(found)) if found else None

    return check


def _host_process(_: Document, spec: Document) -> PodViolation | None:
    setters = _setters(spec, lambda one: _at(one, "windowsOptions", "hostProcess") is True)
    if not setters:
        return None
    return PodViolation("hostProcess", f"{setters} must not set securityContext.windowsOptions.hostProcess=true")


# -- restricted --------------------------------------------------------------------------------------------------------


def _escalation(_: Document, spec: Document) -> PodViolation | None:
    if not (named := _named(spec, lambda one: _at(one, "allowPrivilegeEscalation") is not False)):
        return None
    detail = f"{_those(named)} must set securityContext.allowPrivilegeEscalation=false"
    return PodViolation("allowPrivilegeEscalation != false", detail)


def _all_dropped(_: Document, spec: Document) -> PodViolation | None:
    named = _named(spec, lambda one: "ALL" not in (_at(one, "capabilities", "drop") or ()))
    details = [f'{_those(named)} must set securityContext.capabilities.drop=["ALL"]'] if named else []
    details += filter(None, [_added(spec, frozenset(["NET_BIND_SERVICE"]))])
    return PodViolation("unrestricted capabilities", "; ".join(details)) if details else None


_VOLUMES: Final = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip
_OTHER_VOLUMES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd", "flexVolume",
    "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk",
    "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def _volumes(_: Document, spec: Document) -> PodViolation | None:
    bad = [one for one in spec.get("volumes") or () if all(one.get(kind) is None for kind in _VOLUMES)]
    if not bad:
        return None
    kinds = _sorted(next((kind for kind in _OTHER_VOLUMES if one.get(kind) is not None), "unknown") for one in bad)
    names = _list(str(one.get("name")) for one in bad)
    shown = f"{_plural('restricted volume type', len(kinds))} {_list(kinds)}"
    return PodViolation("restricted volume types", f"{_plural('volume', len(bad))} {names} {_uses(len(bad))} {shown}")


def _non_root(_: Document, spec: Document) -> PodViolation | None:
    reason = "runAsNonRoot != true"
    if setters := _setters(spec, lambda one: _at(one, "runAsNonRoot") is False):
        return PodViolation(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    if _at(spec, "runAsNonRoot") is True:
        return None
    if not (named := _named(spec, lambda one: _at(one, "runAsNonRoot") is None)):
        return None
    return PodViolation(reason, f"pod or {_those(named)} must set securityContext.runAsNonRoot=true")


def _non_zero_user(_: Document, spec: Document) -> PodViolation | None:
    setters = _setters(spec, lambda one: _at(one, "runAsUser") == 0)
    return PodViolation("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def _set_seccomp(metadata: Document, spec: Document) -> PodViolation | None:
    if (found := _seccomp(metadata, spec)) is not None or _at(spec, "seccompProfile") is not None:
        return found
    if not (named := _named(spec, lambda one: _at(one, "seccompProfile") is None)):
        return None
    detail = f'pod or {_those(named)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return PodViolation("seccompProfile", detail)


# -- versions ----------------------------------------------------------------------------------------------------------

_BASELINE: Final[Mapping[str, Mapping[int, _Check]]] = {
    "appArmorProfile": {0: _app_armor},
    "capabilities_baseline": {0: _capabilities},
    "hostNamespaces": {0: _host_namespaces},
    "hostPathVolumes": {0: _host_paths},
    "hostPorts": {0: _host_ports},
    "hostProbesAndHostLifecycle": {34: _probe_hosts},
    "privileged": {0: _privileged},
    "procMount": {0: _proc_mount, 35: _unless(_has_own_users, _proc_mount)},
    "seLinuxOptions": {0: _selinux(_SELINUX), 31: _selinux(_SELINUX | {"container_engine_t"})},
    "seccompProfile_baseline": {0: _seccomp_annotations, 19: _seccomp},
    "sysctls": {version: _sysctls(version) for version in _SYSCTLS},
    "windowsHostProcess": {0: _host_process},
}
_RESTRICTED: Final[Mapping[str, Mapping[int, _Check]]] = {
    "allowPrivilegeEscalation": {8: _escalation, 25: _unless(_is_for_windows, _escalation)},
    "capabilities_restricted": {22: _all_dropped, 25: _unless(_is_for_windows, _all_dropped)},
    "procMount_restricted": {35: _proc_mount},
    "restrictedVolumes": {0: _volumes},
    "runAsNonRoot": {0: _non_root, 35: _unless(_has_own_users, _non_root)},
    "runAsUser": {23: _non_zero_user, 35: _unless(_has_own_users, _non_zero_user)},
    "seccompProfile_restricted": {19: _set_seccomp, 25: _unless(_is_for_windows, _set_seccomp)},
}
#: Checks of ``restricted`` → those of ``baseline`` that they replace.
_REPLACED: Final = {
    "capabilities_restricted": "capabilities_baseline", "procMount_restricted": "procMount",
    "restrictedVolumes": "hostPathVolumes", "seccompProfile_restricted": "seccompProfile_baseline",
}  # fmt: skip


@cache
def _checks_of(level: str, version: int) -> tuple[_Check, ...]:
    """Return the checks of a level in a version, in the order of their names, those of ``baseline`` first."""
    if level == "privileged":
        return ()
    baseline, restricted = (
        {name: checks[max(at for at in checks if at <= version)] for name, checks in sorted(table.items())
         if min(checks) <= version}
        for table in (_BASELINE, _RESTRICTED if level == "restricted" else {})
    )  # fmt: skip
    replaced = {_REPLACED.get(name) for name in restricted}
    return (*(check for name, check in baseline.items() if name not in replaced), *restricted.values())
