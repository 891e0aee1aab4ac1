"""Validation of the settings of a container that scheduling does not read: security, environment, mounts, lifecycle.

Source  kubernetes, pkg/apis/core/validation/validation.go, validateContainerCommon, validateLifecycle and what they call
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.names import check_dns1123_subdomain, check_qualified_name
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.faults import duplicate, forbidden, invalid, named, one_of, required, unsupported
from moorage.api.validation.pods import port_name_faults
from moorage.cluster.apiserver.admission.string_formats import descending_path_faults, id_faults
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.errors import Fault

# -- probe validation --------------------------------------------------------------------------------------------------
# Validation of container probes and of the value sources of environment variables.
#
# Source  kubernetes, pkg/apis/core/validation/validation.go: validateProbe, validateHandler, validateEnvVarValueFrom

_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_HEADER_NAME: Final = re.compile(r"[-A-Za-z0-9]+")
_HEADER_TEXT: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is "
    "'[-A-Za-z0-9]+')"
)
_NUMBERS: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NO_SOURCE: Final = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"


def probe_faults(path: str, container: Document, *, is_init: bool = False) -> Iterator[Fault]:
    """Yield the faults of the probes of a defaulted container.

    ``is_init`` marks init containers, which may have probes only as sidecars (restartPolicy Always).
    """
    no_probes = is_init and container.get("restartPolicy") != "Always"
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is None:
            continue
        if no_probes:
            yield Fault("Forbidden", f"{path}.{name}", "may not be set for init containers without restartPolicy=Always")
        else:
            yield from _probe(f"{path}.{name}", probe, succeeds_once=name != "readinessProbe")


def _probe(path: str, probe: Document, *, succeeds_once: bool) -> Iterator[Fault]:
    given = [handler_type for handler_type in _HANDLERS if probe.get(handler_type) is not None]
    if not given:
        yield Fault("Required value", path, "must specify a handler type")
    for i, handler_type in enumerate(given):
        if i:
            yield Fault("Forbidden", f"{path}.{handler_type}", "may not specify more than 1 handler type")
        else:
            yield from handler_faults(f"{path}.{handler_type}", handler_type, probe[handler_type])
    for name in _NUMBERS:
        if (probe.get(name) or 0) < 0:
            yield Fault("Invalid value", f"{path}.{name}", "must be greater than or equal to 0", probe[name])
    grace_s, successes = probe.get("terminationGracePeriodSeconds"), probe.get("successThreshold", 1)
    if grace_s is not None and grace_s <= 0:
        yield Fault("Invalid value", f"{path}.terminationGracePeriodSeconds", "must be greater than 0", grace_s)
    if succeeds_once and successes != 1:
        yield Fault("Invalid value", f"{path}.successThreshold", "must be 1", successes)
    if not succeeds_once and grace_s is not None:
        why = "must not be set for readinessProbes"
        yield Fault("Invalid value", f"{path}.terminationGracePeriodSeconds", why, grace_s)


def handler_faults(path: str, handler_type: str, handler: Document) -> Iterator[Fault]:
    """Yield the faults of a probe's or a hook's handler."""
    if handler_type == "exec":
        if not handler.get("command"):
            yield Fault("Required value", f"{path}.command")
        return
    yield from _port(f"{path}.port", handler.get("port") or 0)
    scheme = handler.get("scheme", "HTTP")
    if handler_type == "httpGet" and scheme not in {"HTTP", "HTTPS"}:
        yield Fault("Unsupported value", f"{path}.scheme", 'supported values: "HTTP", "HTTPS"', scheme)
    for header in handler.get("httpHeaders") or () if handler_type == "httpGet" else ():
        if not _HEADER_NAME.fullmatch(header.get("name") or ""):
            yield Fault("Invalid value", f"{path}.httpHeaders", _HEADER_TEXT, header.get("name") or "")


def _port(path: str, port: Any) -> Iterator[Fault]:
    if isinstance(port, str):
        yield from (Fault("Invalid value", path, why, port) for why in port_name_faults(port))
    elif not 1 <= port <= 65535:
        yield Fault("Invalid value", path, "must be between 1 and 65535, inclusive", port)


def source_faults(path: str, variable: Document) -> Iterator[Fault]:
    """Yield the faults of a variable's ``valueFrom``."""
    if (source := variable.get("valueFrom")) is None:
        return
    count = sum(source.get(name) is not None for name in _SOURCES)
    if not count:
        yield Fault("Invalid value", path, _NO_SOURCE, "")
    elif variable.get("value"):
        yield Fault("Invalid value", path, "may not be specified when `value` is not empty", "")
    elif count > 1:
        yield Fault("Invalid value", path, "may not have more than one field specified at a time", "")


# -- downward validation -----------------------------------------------------------------------------------------------
# Validation of references to a pod's own fields and resources, in environment variables and volumes.
#
# Source  kubernetes, pkg/apis/core/validation/validation.go, validateObjectFieldSelector,
#         validateContainerResourceFieldSelector

Faults = Iterator[Fault]
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


def field_faults(path: str, reference: Document, *, is_volume: bool = False) -> Faults:
    """Yield the faults of a reference to a field of the pod."""
    at, field = f"{path}.fieldPath", reference.get("fieldPath") or ""
    if not field:
        yield required(at)
    elif found := _SUBSCRIPT.fullmatch(field):
        if found[1] == "metadata.annotations":
            yield from named(path, found[2].lower(), check_qualified_name)
        else:
            yield from named(path, found[2], check_qualified_name)
    elif field not in _CONVERTED:
        yield invalid(at, field, f"error converting fieldPath: field label not supported: {field}")
    elif field not in (supported := _VOLUME_FIELDS if is_volume else _VARIABLE_FIELDS):
        yield unsupported(at, field, supported)


def resource_faults(path: str, reference: Document, *, is_volume: bool = False) -> Faults:
    """Yield the faults of a reference to a resource of a container."""
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


# -- container validation ----------------------------------------------------------------------------------------------

_ENV_NAME: Final = re.compile(r"[ -<>-~]+")
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_PREFIX_TEXT: Final = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_ENV_NAME_TEXT: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '=' (e.g. 'my.env-name',  or "
    "'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '^[ -<>-~]+$')"
)
_PROC_MOUNTS: Final = ("Default", "Unmasked")
_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_RECURSIONS: Final = ("Disabled", "Enabled", "IfPossible")
_RESIZED: Final = ("cpu", "memory")
_RESIZE_POLICIES: Final = ("NotRequired", "RestartContainer")
_HOOK_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
_PADDED: Final = re.compile(r"\s.*|.*\s", re.DOTALL)
_SECCOMP_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_ONE_SOURCE: Final = "may not have more than one field specified at a time"


def container_faults(path: str, container: Document, volumes: Mapping[str, Document], pod: Document) -> Faults:
    """Yield the faults of a container's settings. ``volumes`` are the pod's valid volumes by name, ``pod`` is its spec."""
    yield from _environment(path, container)
    yield from _mounts(path, container)
    yield from _devices(f"{path}.volumeDevices", container, volumes)
    yield from _resize_policies(f"{path}.resizePolicy", container, pod)
    yield from _security(f"{path}.securityContext", container.get("securityContext") or {}, pod)
    if container.get("restartPolicyRules") and container.get("restartPolicy") is None:
        yield required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    if container.get("lifecycle") is not None:
        yield from _lifecycle(f"{path}.lifecycle", container, pod, is_init=".initContainers[" in path)


# -- environment --------------------------------------------------------------------------------------------------------


def _environment(path: str, container: Document) -> Faults:
    for i, variable in enumerate(container.get("env") or ()):
        source = variable.get("valueFrom") or {}
        yield from _variable_source(f"{path}.env[{i}].valueFrom", source)
    at = f"{path}.envFrom"
    for i, source in enumerate(container.get("envFrom") or ()):
        prefix = source.get("prefix") or ""
        if prefix and not _ENV_NAME.fullmatch(prefix):
            yield invalid(f"{at}[{i}].prefix", prefix, _PREFIX_TEXT)
        given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for name in given:
            yield from _object_name(f"{at}[{i}].{name}.name", source[name].get("name") or "")
        if not given:
            yield invalid(at, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(at, "", _ONE_SOURCE)


def _object_name(path: str, name: str) -> Faults:
    if not name:
        yield required(path)
    else:
        yield from named(path, name, check_dns1123_subdomain)


def _variable_source(path: str, source: Document) -> Faults:
    if (field := source.get("fieldRef")) is not None:
        yield from field_faults(f"{path}.fieldRef", field)
    if (resource := source.get("resourceFieldRef")) is not None:
        yield from resource_faults(f"{path}.resourceFieldRef", resource)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if (selected := source.get(name)) is not None:
            yield from named(f"{path}.{name}.name", selected.get("name") or "", check_dns1123_subdomain)
            key = selected.get("key") or ""
            if not key:
                yield required(f"{path}.{name}.key")
            else:
                yield from (invalid(f"{path}.{name}.key", key, why) for why in config_key_faults(key))


def config_key_faults(key: str) -> Iterator[str]:
    """Yield what is wrong with a key of a ConfigMap or a Secret."""
    if len(key) > 253:
        yield "must be no more than 253 characters"
    if not _CONFIG_KEY.fullmatch(key):
        yield _CONFIG_KEY_TEXT
    if key == ".":
        yield "must not be '.'"
    elif key.startswith(".."):
        yield "must not be '..'" if key == ".." else "must not start with '..'"


def variable_name_faults(path: str, name: str) -> Faults:
    """Yield the fault of the name of an environment variable."""
    if not name:
        yield required(path)
    elif not _ENV_NAME.fullmatch(name):
        yield invalid(path, name, _ENV_NAME_TEXT)


# -- mounts -------------------------------------------------------------------------------------------------------------


def _mounts(path: str, container: Document) -> Faults:
    devices = container.get("volumeDevices") or ()
    device_names, device_paths = {one.get("name") for one in devices}, {one.get("devicePath") for one in devices}
    is_privileged = (container.get("securityContext") or {}).get("privileged") is True
    at = f"{path}.volumeMounts"
    for i, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") in device_names:
            yield invalid(f"{at}[{i}].name", mount.get("name"), "must not already exist in volumeDevices")
        if mount.get("mountPath") in device_paths:
            yield invalid(f"{at}[{i}].mountPath", mount["mountPath"], "must not already exist as a path in volumeDevices")
        yield from _parts_of_mount(at, i, mount)
        # The paths of the following faults have no index, as in kube-apiserver.
        propagation = mount.get("mountPropagation")
        yield from one_of(f"{at}.mountPropagation", propagation, _PROPAGATIONS)
        if propagation == "Bidirectional" and not is_privileged:
            why = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden(f"{at}.mountPropagation", why)
        yield from _recursion(f"{at}.recursiveReadOnly", mount)


def _parts_of_mount(at: str, i: int, mount: Document) -> Faults:
    part, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    yield from descending_path_faults(f"{at}.subPath", part)
    if part and expression:
        yield invalid(f"{at}[{i}].subPathExpr", expression, "subPathExpr and subPath are mutually exclusive")
    yield from descending_path_faults(f"{at}.subPathExpr", expression)


def _recursion(path: str, mount: Document) -> Faults:
    recursion = mount.get("recursiveReadOnly")
    yield from one_of(path, recursion, _RECURSIONS)
    if recursion in {"Enabled", "IfPossible"}:
        if not mount.get("readOnly"):
            yield forbidden(path, "may only be specified when readOnly is true")
        if mount.get("mountPropagation") not in {None, "None"}:
            yield forbidden(path, "may only be specified when mountPropagation is None or not specified")


def _devices(path: str, container: Document, volumes: Mapping[str, Document]) -> Faults:
    mounts = container.get("volumeMounts") or ()
    mount_names, mount_paths = {one.get("name") for one in mounts}, {one.get("mountPath") for one in mounts}
    names: set[str] = set()
    paths: set[str] = set()
    for i, device in enumerate(container.get("volumeDevices") or ()):
        at, name, place = f"{path}[{i}]", device.get("name") or "", device.get("devicePath") or ""
        if not name:
            yield required(f"{at}.name")
        if name in names:
            yield invalid(f"{at}.name", name, "must be unique")
        if name not in volumes:
            yield Fault("Not found", f"{at}.name", "", name)
        elif not {"persistentVolumeClaim", "ephemeral"} & {*volumes[name]}:
            why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(f"{at}.name", name, why)
        if not place:
            yield required(f"{at}.devicePath")
        if place in paths:
            yield invalid(f"{at}.devicePath", place, "must be unique")
        if ".." in place.split("/"):
            yield invalid(f"{at}.devicePath", place, "can not contain backsteps ('..')")
        if name in mount_names:
            yield invalid(f"{at}.name", name, "must not already exist in volumeMounts")
        if place in mount_paths:
            yield invalid(f"{at}.devicePath", place, "must not already exist as a path in volumeMounts")
        names.add(name)
        paths.add(place)


# -- lifecycle and resizing ---------------------------------------------------------------------------------------------


def _lifecycle(path: str, container: Document, pod: Document, *, is_init: bool) -> Faults:
    if is_init and container.get("restartPolicy") != "Always":
        yield forbidden(path, "may not be set for init containers without restartPolicy=Always")
        return
    lifecycle = container["lifecycle"]
    for name in ("postStart", "preStop"):
        if (hook := lifecycle.get(name)) is not None:
            yield from _hook(f"{path}.{name}", hook, pod)


def _hook(path: str, hook: Document, pod: Document) -> Faults:
    given = [name for name in _HOOK_HANDLERS if hook.get(name) is not None]
    if not given:
        yield required(path, "must specify a handler type")
    yield from (forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in given[1:])
    for name in given[:1]:
        if name == "sleep":
            yield from _sleep(f"{path}.sleep", hook["sleep"].get("seconds") or 0, pod.get("terminationGracePeriodSeconds"))
        else:
            yield from handler_faults(f"{path}.{name}", name, hook[name])


def _sleep(path: str, seconds: int, grace_s: int | None) -> Faults:
    if grace_s is not None and not 0 <= seconds <= grace_s:
        yield invalid(path, seconds, f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})")


def _resize_policies(path: str, container: Document, pod: Document) -> Faults:
    seen: set[str] = set()
    for i, one in enumerate(container.get("resizePolicy") or ()):
        resource, policy = one.get("resourceName") or "", one.get("restartPolicy") or ""
        if resource in seen:
            yield duplicate(f"{path}[{i}]", resource)
        seen.add(resource)
        for value, supported in ((resource, _RESIZED), (policy, _RESIZE_POLICIES)):
            if not value:
                yield required(path)
            elif value not in supported:
                yield unsupported(path, value, supported)
        if pod.get("restartPolicy") == "Never" and policy != "NotRequired":
            yield invalid(path, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


# -- security -----------------------------------------------------------------------------------------------------------


def _security(path: str, context: Document, pod: Document) -> Faults:
    yield from id_faults(path, context, "runAsUser", "runAsGroup")
    proc_mount = context.get("procMount")
    yield from one_of(f"{path}.procMount", proc_mount, _PROC_MOUNTS)
    if proc_mount == "Unmasked" and pod.get("hostUsers") is not False:
        yield invalid(f"{path}.procMount", proc_mount, "`hostUsers` must be false to use `Unmasked`")
    yield from seccomp_faults(f"{path}.seccompProfile", context.get("seccompProfile"))
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            yield invalid(path, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield invalid(path, context, why)
    yield from app_armor_faults(f"{path}.appArmorProfile", context.get("appArmorProfile"))


def seccomp_faults(path: str, profile: Any) -> Faults:
    """Yield the faults of a seccomp profile."""
    if profile is None:
        return
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        yield required(f"{path}.type", "type is required when seccompProfile is set")
    elif kind not in _SECCOMP_TYPES:
        yield unsupported(f"{path}.type", kind, _SECCOMP_TYPES)
    if kind == "Localhost" and local is None:
        yield required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
    elif kind == "Localhost":
        yield from descending_path_faults(f"{path}.localhostProfile", local)
    elif local is not None:
        yield invalid(f"{path}.localhostProfile", profile, "can only be set when seccomp type is Localhost")


def app_armor_faults(path: str, profile: Any) -> Faults:
    """Yield the faults of an AppArmor profile."""
    if profile is None:
        return
    kind, local, at = profile.get("type") or "", profile.get("localhostProfile"), f"{path}.localhostProfile"
    if kind == "Localhost":
        if not local:
            yield required(at, "must be set when AppArmor type is Localhost")
        elif _PADDED.fullmatch(local):
            yield invalid(at, local, "must not be padded with whitespace")
    elif not kind:
        yield required(f"{path}.type", "type is required when appArmorProfile is set")
    elif kind not in _SECCOMP_TYPES:
        yield unsupported(f"{path}.type", kind, _SECCOMP_TYPES)
    elif local is not None:
        yield invalid(at, local, "can only be set when AppArmor type is Localhost")
