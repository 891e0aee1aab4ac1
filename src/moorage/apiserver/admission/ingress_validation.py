"""Validation of ingresses.

No ingress controller runs here. Ingresses are served because manifests contain them next to workloads, and because
``kubectl apply --prune`` lists them.

Source  kubernetes, pkg/apis/networking/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moorage.api.names import check_dns1123_label, check_dns1123_subdomain
from moorage.apiserver.admission.field_checks import has_address
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["ingress_faults"]

_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")


def ingress_faults(ingress: Document) -> Iterator[Fault]:
    """Yield the faults of a defaulted ingress."""
    spec = ingress.get("spec") or {}
    rules, default = spec.get("rules") or [], spec.get("defaultBackend")
    if not rules and default is None:
        yield Fault("Invalid value", "spec", "either `defaultBackend` or `rules` must be specified")
    if default is not None:
        yield from _backend("spec.defaultBackend", default)
    for i, rule in enumerate(rules):
        yield from _rule(f"spec.rules[{i}]", rule)
    for i, tls in enumerate(spec.get("tls") or ()):
        for k, host in enumerate(tls.get("hosts") or ()):
            for why in check_dns1123_subdomain(host.removeprefix("*.")):
                yield Fault("Invalid value", f"spec.tls[{i}].hosts[{k}]", why, host)
    name = spec.get("ingressClassName")
    for why in check_dns1123_subdomain(name) if name is not None else ():
        yield Fault("Invalid value", "spec.ingressClassName", why, name)


def _rule(path: str, rule: Document) -> Iterator[Fault]:
    host, http = rule.get("host") or "", rule.get("http")
    if has_address(host):
        yield Fault("Invalid value", f"{path}.host", "must be a DNS name, not an IP address", host)
    # A host may be a wildcard.
    for why in check_dns1123_subdomain(host.removeprefix("*.")) if host else ():
        yield Fault("Invalid value", f"{path}.host", why, host)
    if http is None:
        return
    if not http.get("paths"):
        yield Fault("Required value", f"{path}.http.paths")
    for i, one in enumerate(http.get("paths") or ()):
        yield from _path(f"{path}.http.paths[{i}]", one)


def _path(path: str, one: Document) -> Iterator[Fault]:
    kind, text = one.get("pathType"), one.get("path") or ""
    if kind is None:
        yield Fault("Required value", f"{path}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        supported = ", ".join(f'"{name}"' for name in _PATH_TYPES)
        yield Fault("Unsupported value", f"{path}.pathType", f"supported values: {supported}", kind)
    elif not text.startswith("/") and (text or kind != "ImplementationSpecific"):
        yield Fault("Invalid value", f"{path}.path", "must be an absolute path", text)
    yield from _backend(f"{path}.backend", one.get("backend") or {})


def _backend(path: str, backend: Document) -> Iterator[Fault]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield Fault("Invalid value", path, "cannot set both resource and service backends")
    elif service is None and resource is None:
        yield Fault("Required value", path, "resource or service backend is required")
    if service is None or resource is not None:
        return
    name, port = service.get("name") or "", service.get("port") or {}
    if not name:
        yield Fault("Required value", f"{path}.service.name")
    for why in check_dns1123_label(name) if name else ():
        yield Fault("Invalid value", f"{path}.service.name", why, name)
    number = port.get("number") or 0
    if port.get("name") and number:
        yield Fault("Invalid value", path, "cannot set both port name & port number", "")
    elif not port.get("name") and not number:
        yield Fault("Required value", path, "port name or number is required")
    elif number and not 1 <= number <= 65535:
        yield Fault("Invalid value", f"{path}.service.port.number", "must be between 1 and 65535, inclusive", number)
