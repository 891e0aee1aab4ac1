"""Validation of device classes, claims for devices and slices, beyond what scheduling reads.

Source  kubernetes, pkg/apis/resource/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moorage.api.names import check_dns1123_subdomain, is_extended_resource_name
from moorage.api.validation.faults import invalid, named, one_of, required
from moorage.apiserver.admission.field_checks import driver_name_faults, too_long
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["device_claim_faults", "device_class_faults", "device_slice_faults"]

Faults = Iterator[Fault]
_MOST_SELECTORS: Final = 32
_MOST_TEXT: Final = 64
_OPERATORS: Final = ("Equal", "Exists")
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-((0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(\+([0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*))?"
)


def device_class_faults(found: Document) -> Faults:
    """Yield the faults of a DeviceClass."""
    spec = found.get("spec") or {}
    yield from _selector_count("spec.selectors", spec.get("selectors") or ())
    for i, config in enumerate(spec.get("config") or ()):
        yield from _config_faults(f"spec.config[{i}]", config)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended_resource_name(name):
        yield invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


def device_claim_faults(found: Document) -> Faults:
    """Yield the faults of a ResourceClaim or of its template."""
    is_template = found.get("kind") == "ResourceClaimTemplate"
    spec = found.get("spec") or {}
    claim, path = ((spec.get("spec") or {}), "spec.spec") if is_template else (spec, "spec")
    devices = claim.get("devices") or {}
    for i, request in enumerate(devices.get("requests") or ()):
        at = f"{path}.devices.requests[{i}]"
        for name, asked in (("exactly", request.get("exactly")), *_choices(request)):
            if asked is not None:
                yield from _asked_faults(f"{at}.{name}", asked)
    for i, config in enumerate(devices.get("config") or ()):
        yield from _config_faults(f"{path}.devices.config[{i}]", config)


def _choices(request: Document) -> Iterator[tuple[str, Any]]:
    for i, choice in enumerate(request.get("firstAvailable") or ()):
        yield f"firstAvailable[{i}]", choice


def _asked_faults(path: str, asked: Document) -> Faults:
    yield from _selector_count(f"{path}.selectors", asked.get("selectors") or ())
    for i, toleration in enumerate(asked.get("tolerations") or ()):
        yield from one_of(f"{path}.tolerations[{i}].operator", toleration.get("operator"), _OPERATORS)


def _selector_count(path: str, selectors: Any) -> Faults:
    if len(selectors) > _MOST_SELECTORS:
        yield Fault("Too many", path, f"must have at most {_MOST_SELECTORS} items", len(selectors))


def _config_faults(path: str, config: Document) -> Faults:
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from driver_name_faults(f"{path}.opaque.driver", opaque.get("driver"))
    parameters = opaque.get("parameters")
    if parameters is None:
        yield required(f"{path}.opaque.parameters")
    elif not isinstance(parameters, dict):
        yield invalid(f"{path}.opaque.parameters", "<value omitted>", "must be a valid JSON object")


def device_slice_faults(found: Document) -> Faults:
    """Yield the faults of a ResourceSlice."""
    spec = found.get("spec") or {}
    if spec.get("driver"):  # an empty one is checked with what scheduling reads
        yield from driver_name_faults("spec.driver", spec["driver"])
    if spec.get("nodeName") is not None:
        yield from named("spec.nodeName", spec["nodeName"], check_dns1123_subdomain)
    if spec.get("sharedCounters") and spec.get("devices"):
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    for i, device in enumerate(spec.get("devices") or ()):
        for name, attribute in (device.get("attributes") or {}).items():
            yield from _attribute_faults(f"spec.devices[{i}].attributes[{name}]", attribute)


def _attribute_faults(path: str, attribute: Document) -> Faults:
    given = [name for name, value in attribute.items() if value is not None]
    if len(given) != 1:
        yield invalid(path, attribute if given else "", "exactly one value must be specified")
    for name in ("string", "version"):
        if len((attribute.get(name) or "").encode()) > _MOST_TEXT:
            yield too_long(f"{path}.{name}", _MOST_TEXT)
    version = attribute.get("version")
    if version is not None and not _SEMVER.fullmatch(version):
        yield invalid(f"{path}.version", version, "must be a string compatible with semver.org spec 2.0.0")
