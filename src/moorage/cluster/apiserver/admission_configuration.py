"""The file of ``--admission-control-config-file``: configurations of the API server's admission plugins.

``PodSecurity`` sets the levels of namespaces without labels, and who and what is exempted; ``ResourceQuota`` names what may not
be used without a quota. What else has a configuration in kube-apiserver is named and refused, since it would have no effect.

Source  apiserver, pkg/admission/config.go, pkg/apis/apiserver/v1 and pkg/admission/plugin/resourcequota/apis;
        pod-security-admission, admission/api
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.core import ScopedResourceSelectorRequirement
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain
from moorage.cluster.apiserver.configuration_files import head_faults, read_object
from moorage.errors import ConfigError, Fault
from moorage.rules.admission.pod_security import (
    LEVELS,
    MODES,
    PodSecurity,
    SecurityLevel,
    SecurityPolicy,
    parse_version,
)
from moorage.rules.admission.quota_admission import LimitedResource

__all__ = ["AdmissionConfiguration", "read_admission_configuration"]

_FLAG: Final = "--admission-control-config-file"
_GROUP: Final = "apiserver.config.k8s.io"
_SECURITY: Final = "pod-security.admission.config.k8s.io"
#: Plugins that have a configuration in kube-apiserver, and none here.
_OTHERS: Final[Mapping[str, str]] = {
    "EventRateLimit": "events are not limited",
    "ImagePolicyWebhook": "no images are pulled, and no webhook is asked about them",
    "MutatingAdmissionPolicy": "policies are objects",
    "MutatingAdmissionWebhook": "webhooks are not called",
    "PodNodeSelector": "it is not there; a policy can say the same",
    "PodTolerationRestriction": "it is not there; a policy can say the same",
    "ValidatingAdmissionPolicy": "policies are objects",
    "ValidatingAdmissionWebhook": "webhooks are not called",
}


class AdmissionConfiguration(NamedTuple):
    """What a file configures. ``security`` has the arguments of PodSecurity but the release."""

    security: Mapping[str, Any]
    limited: tuple[LimitedResource, ...] = ()

    def pod_security(self, minor: int) -> PodSecurity:
        """Return pod security admission for a release's minor version."""
        return PodSecurity(minor, **self.security)


def read_admission_configuration(path: Path) -> AdmissionConfiguration:
    """Read a file; configurations in files of their own are relative to its folder.

    Raises  InputError if a file cannot be read; ConfigError with all faults
    """
    document = read_object(_FLAG, path)
    faults: list[Fault] = []
    faults += head_faults(document, _versions(_GROUP, "v1", "v1alpha1"), "AdmissionConfiguration")
    faults += _unknown(document, ("plugins",), "")
    made, seen = AdmissionConfiguration({}), set[str]()
    for at, plugin in enumerate(_list(document, "plugins", "", faults)):
        place = f"plugins[{at}]"
        name = plugin.get("name")
        faults += _unknown(plugin, ("name", "path", "configuration"), place, head=False)
        if not isinstance(name, str) or not name:
            faults.append(Fault("Required value", f"{place}.name"))
        elif name in seen:
            faults.append(Fault("Duplicate value", f"{place}.name", value=name))
        elif name in _OTHERS:
            why = f"{name} cannot be configured here: {_OTHERS[name]}; PodSecurity and ResourceQuota can"
            faults.append(Fault("Unsupported value", f"{place}.name", why, name))
        elif name not in {"PodSecurity", "ResourceQuota"}:
            why = "no admission plugin of this name has a configuration; PodSecurity and ResourceQuota have"
            faults.append(Fault("Unsupported value", f"{place}.name", why, name))
        else:
            seen.add(name)
            inner, where = _configuration(plugin, path, place, faults)
            if name == "PodSecurity":
                made = made._replace(security=_security(inner, where, faults))
            else:
                made = made._replace(limited=_limits(inner, where, faults))
    if faults:
        raise ConfigError(f"{_FLAG}: {path} cannot be used:", faults)
    return made


def _configuration(plugin: Mapping[str, Any], path: Path, place: str, faults: list[Fault]) -> tuple[dict[str, Any], str]:
    """Return the configuration of a plugin and where it is; {} for none."""
    inner, file = plugin.get("configuration"), plugin.get("path")
    if inner is not None and file:
        faults.append(Fault("Invalid value", f"{place}.path", "`configuration` is set, too", file))
    if inner is None and isinstance(file, str) and file:
        return read_object(_FLAG, path.parent / file), f"{file}: "
    if inner is not None and not isinstance(inner, dict):
        faults.append(Fault("Invalid value", f"{place}.configuration", "must be an object", inner))
        return {}, f"{place}.configuration."
    return inner or {}, f"{place}.configuration."


def _security(document: dict[str, Any], where: str, faults: list[Fault]) -> Mapping[str, Any]:
    if not document:
        return {}
    faults += head_faults(document, _versions(_SECURITY, "v1", "v1beta1", "v1alpha1"), "PodSecurityConfiguration", where)
    faults += _unknown(document, ("defaults", "exemptions"), where.rstrip("."))
    defaults = _object(document, "defaults", where, faults)
    faults += _unknown(defaults, [f"{mode}{end}" for mode in MODES for end in ("", "-version")], f"{where}defaults", head=False)
    levels = {}
    for mode in MODES:
        level, version = defaults.get(mode) or "privileged", defaults.get(f"{mode}-version") or "latest"
        number = parse_version(version) if isinstance(version, str) else None
        if level not in LEVELS:
            faults.append(Fault("Invalid value", f"{where}defaults.{mode}", f"must be one of {', '.join(LEVELS)}", level))
        elif number is None:
            faults.append(Fault("Invalid value", f"{where}defaults.{mode}-version", 'must be "latest" or "v1.x"', version))
        else:
            levels[mode] = SecurityLevel(level, number)
    exempted = _object(document, "exemptions", where, faults)
    faults += _unknown(exempted, [name for name, _, _ in _EXEMPTIONS], f"{where}exemptions", head=False)
    names = {to: _names(exempted, name, f"{where}exemptions.", check, faults) for name, to, check in _EXEMPTIONS}
    return {"defaults": SecurityPolicy(**levels), **names}


def _given(name: str) -> list[str]:
    return [] if name else ["username must not be empty"]


#: What may be exempted, the field of ``PodSecurity`` for it, and how its names are checked.
_EXEMPTIONS: Final[tuple[tuple[str, str, Callable[[str], list[str]]], ...]] = (
    ("usernames", "users", _given), ("namespaces", "namespaces", check_dns1123_label),
    ("runtimeClasses", "runtime_classes", check_dns1123_subdomain),
)  # fmt: skip


def _names(
    exempted: dict[str, Any], name: str, where: str, check: Callable[[str], list[str]], faults: list[Fault]
) -> frozenset[str]:  # fmt: skip
    found = exempted.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        faults.append(Fault("Invalid value", f"{where}{name}", "must be a list of names", found))
        return frozenset()
    for at, one in enumerate(found):
        faults += [Fault("Invalid value", f"{where}{name}[{at}]", why, one) for why in check(one)]
        if one in found[:at]:
            faults.append(Fault("Duplicate value", f"{where}{name}[{at}]", value=one))
    return frozenset(found)


def _limits(document: dict[str, Any], where: str, faults: list[Fault]) -> tuple[LimitedResource, ...]:
    if not document:
        return ()
    faults += head_faults(document, _versions(_GROUP, "v1"), "ResourceQuotaConfiguration", where)
    faults += _unknown(document, ("limitedResources",), where.rstrip("."))
    made = []
    for at, one in enumerate(_list(document, "limitedResources", where, faults)):
        place = f"{where}limitedResources[{at}]"
        faults += _unknown(one, ("apiGroup", "resource", "matchContains", "matchScopes"), place, head=False)
        if not one.get("resource"):
            faults.append(Fault("Required value", f"{place}.resource"))
        try:
            scopes = msgspec.convert(one.get("matchScopes") or [], tuple[ScopedResourceSelectorRequirement, ...])
            contains = msgspec.convert(one.get("matchContains") or [], tuple[str, ...])
        except msgspec.ValidationError as error:
            faults.append(Fault("Invalid value", place, str(error), one))
            continue
        made.append(LimitedResource(str(one.get("apiGroup") or ""), str(one.get("resource") or ""), contains, scopes))
    return tuple(made)


def _versions(group: str, *versions: str) -> list[str]:
    return [f"{group}/{version}" for version in versions]


def _unknown(document: Mapping[str, Any], known: Any, place: str, *, head: bool = True) -> Iterator[Fault]:
    for name in document:
        if name not in known and not (head and name in {"apiVersion", "kind"}):
            yield Fault("Strict decoding error", f"{place}.{name}".lstrip("."), "unknown field")


def _object(document: dict[str, Any], name: str, where: str, faults: list[Fault]) -> dict[str, Any]:
    found = document.get(name) or {}
    if isinstance(found, dict):
        return found
    faults.append(Fault("Invalid value", f"{where}{name}", "must be an object", found))
    return {}


def _list(document: dict[str, Any], name: str, where: str, faults: list[Fault]) -> list[dict[str, Any]]:
    found = document.get(name) or []
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return found
    faults.append(Fault("Invalid value", f"{where}{name}", "must be a list of objects", found))
    return []
