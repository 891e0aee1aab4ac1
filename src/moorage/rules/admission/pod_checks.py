"""Checks of pods that tables of rules name: what compares fields, or reads texts with a syntax of their own.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidatePodSpec and what it calls
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.documents.served_kinds import Document
from moorage.api.names import check_qualified_name
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.faults import Faults, duplicate, forbidden, invalid, named, required, unsupported
from moorage.api.validation.rule_tables import Holders, RuleBook, Seen, check
from moorage.errors import Fault

#: The tables of fields that scheduling does not read.
RULES: Final = RuleBook("moorage.rules.admission")
_PARTS: Final = ("initContainers", "containers", "ephemeralContainers")


def pod_spec_faults(path: str, spec: Document, *, is_pod: bool) -> Faults:
    """Yield the faults of the spec of a pod, or of a template, in fields that scheduling does not read."""
    volumes: dict[str, Document] = {}
    context = {"is_pod": is_pod, "volumes": volumes}
    for i, volume in enumerate(spec.get("volumes") or ()):
        found = list(RULES.faults("Volume", volume, f"{path}.volumes[{i}]", spec, context))
        yield from found
        if not found:
            volumes[volume.get("name", "")] = volume
    yield from RULES.faults("PodSpec", spec, path, context)


# -- references -----------------------------------------------------------------------------------------------------------

#: Fields that variables and volumes may have, and those that a label can be converted from.
_VARIABLE_FIELDS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_VOLUME_FIELDS: Final = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_CONVERTED: Final = frozenset([
    *_VARIABLE_FIELDS, *_VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "spec.host", "status.phase",
])  # fmt: skip
_SUBSCRIPT: Final = re.compile(r"(metadata\.annotations|metadata\.labels)\['(.*)'\]", re.DOTALL)
_RESOURCES: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
_HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_SIZES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
#: The divisors of each resource, with the words for them.
_DIVISORS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "cpu": (("1m", "1"), "1m and 1 are supported with the cpu resource"),
    "memory": (_SIZES, f"{', '.join(_SIZES)} are supported with the memory resource"),
    "ephemeral-storage": (_SIZES, f"{', '.join(_SIZES)} are supported with the local ephemeral storage resource"),
    "hugepages": (_SIZES, f"{', '.join(_SIZES)} are supported with the hugepages resource"),
}


@check("field reference")
def _field(path: str, reference: Document, is_volume: bool = False) -> Faults:
    at, field, version = f"{path}.fieldPath", reference.get("fieldPath") or "", reference.get("apiVersion") or ""
    if not version:
        yield required(f"{path}.apiVersion")
    elif not field:
        yield required(at)
    elif version != "v1":
        yield invalid(at, field, f"error converting fieldPath: unsupported pod version: {version}")
    elif found := _SUBSCRIPT.fullmatch(field):
        key = found[2].lower() if found[1] == "metadata.annotations" else found[2]
        yield from named(path, key, check_qualified_name)
    elif field not in _CONVERTED:
        yield invalid(at, field, f"error converting fieldPath: field label not supported: {field}")
    elif field not in (supported := _VOLUME_FIELDS if is_volume else _VARIABLE_FIELDS):
        yield unsupported(at, field, supported)


@check("resource reference")
def _resource(path: str, reference: Document, is_volume: bool = False) -> Faults:
    resource = reference.get("resource") or ""
    if is_volume and not reference.get("containerName"):
        yield required(f"{path}.containerName")
    elif not resource:
        yield required(f"{path}.resource")
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        yield unsupported(f"{path}.resource", resource, _RESOURCES)
    kind = resource.partition(".")[2]
    divisors, words = _DIVISORS.get("hugepages" if kind.startswith("hugepages-") else kind, ((), ""))
    divisor = reference.get("divisor")
    if divisors and divisor is not None and not _is_one_of(divisor, divisors):
        yield invalid(f"{path}.divisor", resource, f"only divisor's values {words}")


def _is_one_of(divisor: object, supported: tuple[str, ...]) -> bool:
    try:
        amount = parse(str(divisor))
    except QuantityError:
        return False
    return not amount or any(parse(one) == amount for one in supported)


_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


@check("variable source", of_holder=True)
def _variable_source(path: str, source: Document | None, variable: Document, *_: Any) -> Iterable[Fault]:
    if source is None:
        return
    count = sum(source.get(name) is not None for name in _SOURCES)
    if not count:
        names = ", ".join(f"`{name}`" for name in _SOURCES[:-1])
        yield invalid(path, "", f"must specify one of: {names} or `{_SOURCES[-1]}`")
    elif variable.get("value"):
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


@check("config key")
def config_key_faults(path: str, key: str) -> Faults:
    """Yield the faults of a key of a ConfigMap or a Secret."""
    if len(key) > 253:
        yield invalid(path, key, "must be no more than 253 characters")
    if not _CONFIG_KEY.fullmatch(key):
        yield invalid(path, key, _CONFIG_KEY_TEXT)
    if key == ".":
        yield invalid(path, key, "must not be '.'")
    elif key.startswith(".."):
        yield invalid(path, key, "must not be '..'" if key == ".." else "must not start with '..'")


# -- volumes ------------------------------------------------------------------------------------------------------------


@check("projected sources")
def _projected(path: str, source: Document) -> Faults:
    seen: set[str] = set()
    for i, one in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{i}]"
        given = [name for name in _PROJECTED if one.get(name) is not None]
        for name in given:
            yield from RULES.faults(_PROJECTED[name], one[name], f"{at}.{name}")
        for taken, shown in _paths_of(one):
            if taken in seen:
                yield invalid(path, shown, "conflicting duplicate paths")
            seen.add(taken)
        if len(given) > 1:
            yield forbidden(at, "may not specify more than 1 volume type per source")


def _paths_of(source: Document) -> Iterator[tuple[str, str]]:
    """Yield the path of each file of a projected source, and the value for a fault's message. Tokens are left out."""
    for name in ("secret", "configMap", "downwardAPI"):
        projected = source.get(name) or {}
        for item in projected.get("items") or ():
            if item.get("path"):
                yield item["path"], item["path"] if name == "downwardAPI" else projected.get("name") or ""


_PROJECTED: Final[Mapping[str, str]] = {
    "secret": "ProjectedKeys", "configMap": "ProjectedKeys", "downwardAPI": "ProjectedFields",
    "serviceAccountToken": "ServiceAccountTokenProjection",
}  # fmt: skip


def _volumes(up: Holders) -> Mapping[str, Document]:
    """Return the valid volumes of the pod whose container holds something."""
    found: Mapping[str, Document] = up[1][1][0]["volumes"] if up is not None else {}
    return found


@check("mounted volume", of_holder=True)
def _mounted(path: str, name: str | None, _: Document, up: Holders, *__: Any) -> Iterable[Fault]:
    return () if (name or "") in _volumes(up) else (Fault("Not found", path, "", name or ""),)


@check("block volume", of_holder=True)
def _block(path: str, name: str | None, _: Document, up: Holders, *__: Any) -> Iterable[Fault]:
    volume = _volumes(up).get(name or "")
    if volume is None:
        return (Fault("Not found", path, "", name or ""),)
    if {"persistentVolumeClaim", "ephemeral"} & {*volume}:
        return ()
    why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
    return (invalid(path, name or "", why),)


# -- containers and settings --------------------------------------------------------------------------------------------

#: Fields that an ephemeral container may have.
_EPHEMERAL: Final = frozenset(
    ["args", "command", "env", "envFrom", "image", "imagePullPolicy", "name", "securityContext", "stdin",
     "stdinOnce", "targetContainerName", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices",
     "volumeMounts", "workingDir"]
)  # fmt: skip


@check("ephemeral container", of_holder=True)
def _ephemeral(path: str, container: Document, _: Document, up: Holders, seen: Seen) -> Faults:
    spec = up[0] if up is not None else {}
    if _ephemeral not in seen:
        others = {one.get("name") for part in ("containers", "initContainers") for one in spec.get(part) or ()}
        seen[_ephemeral] = others, set(others)
    (others, names), name = seen[_ephemeral], container.get("name") or ""
    if name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)
    target = container.get("targetContainerName")
    if target and target not in others:
        yield Fault("Not found", f"{path}.targetContainerName", "", target)
    for field, value in container.items():
        if value and field not in _EPHEMERAL:
            yield forbidden(f"{path}.{field}", "cannot be set for an Ephemeral Container")


@check("search list")
def _search_list(path: str, searches: list[str]) -> Iterable[Fault]:
    why = "must not have more than 2048 characters (including spaces) in the search list"
    return (invalid(path, searches, why),) if len(" ".join(searches)) > 2048 else ()


_SEARCH: Final = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")
_SEARCH_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
)


@check("search domain")
def _search(path: str, search: str) -> Iterable[Fault]:
    name = search.removesuffix(".")
    return () if search == "." or _SEARCH.fullmatch(name) else (invalid(path, name, _SEARCH_TEXT),)


@check("host port", of_holder=True)
def _host_port(path: str, host: int | None, port: Document, up: Holders, _: Seen) -> Iterable[Fault]:
    is_pod = up is not None and up[1][1][0]["is_pod"]
    if (is_pod or host) and (host or 0) != port.get("containerPort"):
        return (invalid(path, host or 0, "must match `containerPort` when `hostNetwork` is true"),)
    return ()


@check("host processes")
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


#: What a pod for Windows may not set, in the order in which faults name it; a list or a flag counts where it is not empty.
_POD_SECURITY: Final[tuple[str, ...]] = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
_POD_OF_LINUX: Final = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_CONTAINER_SECURITY: Final[tuple[str, ...]] = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip
_IF_NOT_EMPTY: Final = frozenset(["sysctls", "hostPID", "hostIPC"])


@check("settings of its system")
def _of_its_system(path: str, spec: Document) -> Faults:
    """Yield what a pod for one operating system sets that only the other has."""
    system = (spec.get("os") or {}).get("name")
    if system not in {"linux", "windows"}:
        return
    own, inner = _POD_SECURITY, _CONTAINER_SECURITY
    why = "cannot be set for a windows pod"
    if system == "linux":
        own = inner = ("windowsOptions",)
        why = "windows options cannot be set for a linux pod"
    security = spec.get("securityContext") or {}
    yield from (forbidden(f"{path}.securityContext.{name}", why) for name in own if _is_set(security, name))
    if system == "windows":
        yield from (forbidden(f"{path}.{name}", why) for name in _POD_OF_LINUX if _is_set(spec, name))
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for at, one in enumerate(spec.get(part) or ()):
            held = one.get("securityContext") or {}
            place = f"{path}.{part}[{at}].securityContext"
            yield from (forbidden(f"{place}.{name}", why) for name in inner if _is_set(held, name))


def _is_set(holder: Document, name: str) -> bool:
    return bool(holder.get(name)) if name in _IF_NOT_EMPTY else holder.get(name) is not None


def _runs_on_host(holder: Document) -> Any:
    return ((holder.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")


_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_OF_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_PROFILES: Final = ("runtime/default", "docker/default", "unconfined")
_MIRROR: Final = "kubernetes.io/config.mirror"


@check("pod annotations")
def _annotations(_: str, pod: Document) -> Faults:
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


# -- status -------------------------------------------------------------------------------------------------------------


@check("claim of pod", of_holder=True)
def _claim(path: str, name: str | None, _: Document, up: Holders, seen: Seen) -> Iterable[Fault]:
    if _claim not in seen:
        spec = up[1][0].get("spec") or {} if up is not None else {}
        seen[_claim] = {one.get("name") for one in spec.get("resourceClaims") or ()}
    if (name or "") in seen[_claim]:
        return ()
    return (invalid(path, name or "", "must match the name of an entry in `spec.resourceClaims`"),)


@check("extended resource of container", of_holder=True)
def _extended(path: str, one: Document, _: Document, up: Holders, __: Seen) -> Iterable[Fault]:
    spec = up[1][1][0].get("spec") or {} if up is not None else {}
    containers = {
        one.get("name"): (one.get("resources") or {}).get("requests") or {}
        for part in ("initContainers", "containers")
        for one in spec.get(part) or ()
    }
    container, resource = one.get("containerName", ""), one.get("resourceName", "")
    if container not in containers:
        why = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
        return (invalid(f"{path}.containerName", container, why),)
    if resource not in containers[container]:
        why = "must match the extended resource name of an entry in"
        both = "spec.initContainers.resources.requests or spec.containers.resources.requests"
        return (invalid(f"{path}.resourceName", resource, f"{why} {both}"),)
    return ()
