"""Validation of device classes, claims for devices and slices, beyond what scheduling reads.

Source  kubernetes, pkg/apis/resource/validation/validation.go; pkg/registry/resource/utils.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.cel import COST_LIMIT, estimated_selector_cost
from moorage.api.cel.bounds import CompileError
from moorage.api.names import check_dns1123_subdomain, is_extended_resource_name
from moorage.api.validation.faults import duplicate, forbidden, invalid, named, one_of, required, too_long, too_many
from moorage.cluster.apiserver.admission.string_formats import driver_name_faults
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.errors import Fault

Faults = Iterator[Fault]
_MOST_SELECTORS: Final = 32
_MOST_TEXT: Final = 64
_MOST_EXPRESSION: Final = 10 * 1024
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
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
    path, devices = _devices(found)
    for i, request in enumerate(devices.get("requests") or ()):
        at = f"{path}.devices.requests[{i}]"
        for name, asked in (("exactly", request.get("exactly")), *_choices(request)):
            if asked is not None:
                yield from _asked_faults(f"{at}.{name}", asked)
    for i, config in enumerate(devices.get("config") or ()):
        yield from _config_faults(f"{path}.devices.config[{i}]", config)
    if path != "spec":
        given = (found.get("spec") or {}).get("metadata") or {}
        yield from (forbidden(f"spec.metadata.{name}", "cannot be set") for name in sorted(given) if _is_extra(name, given))


def _is_extra(name: str, metadata: Document) -> bool:
    """Return whether the metadata of a template has a field beyond labels and annotations."""
    return name not in {"annotations", "labels", "creationTimestamp"} and bool(metadata[name])


def selector_faults(found: Document, *, has_lists: bool) -> Faults:
    """Yield the faults of the CEL selectors of a class, a claim or its template. ``has_lists``: attributes may be lists."""
    yield from _expression_faults("spec", found.get("spec") or {}, has_lists)
    path, devices = _devices(found)
    for i, request in enumerate(devices.get("requests") or ()):
        for name, asked in (("exactly", request.get("exactly")), *_choices(request)):
            yield from _expression_faults(f"{path}.devices.requests[{i}].{name}", asked or {}, has_lists)


def _expression_faults(path: str, holder: Document, has_lists: bool) -> Faults:
    for i, selector in enumerate((holder.get("selectors") or ())[:_MOST_SELECTORS]):
        at, expression = f"{path}.selectors[{i}].cel.expression", (selector.get("cel") or {}).get("expression")
        if not expression:
            continue
        if len(expression.encode()) > _MOST_EXPRESSION:
            yield too_long(at, _MOST_EXPRESSION)
            continue
        try:
            estimate = estimated_selector_cost(expression, has_lists)
        except CompileError as error:
            yield invalid(at, expression, str(error))
            continue
        if estimate > COST_LIMIT:
            yield forbidden(at, "too complex, exceeds cost limit")


def admin_access_faults(old: Document | None, new: Document, labels: Mapping[str, str]) -> Faults:
    """Yield the fault of newly requested admin access to devices, unless the namespace's labels allow it.

    The status of a claim is checked if ``old`` is given, the requests of a claim or its template otherwise.
    """
    if labels.get(_ADMIN_LABEL) == "true":
        return
    if old is None:
        path, asked = "spec.devices.requests", [one.get("exactly") or {} for one in _devices(new)[1].get("requests") or ()]
    else:
        path, asked = "status.allocation.devices.results", _results(new)
        if any(one.get("adminAccess") for one in _results(old)):
            return
    for i, one in enumerate(asked):
        if one.get("adminAccess"):
            why = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
            yield forbidden(f"{path}[{i}].adminAccess", why)
            return


def _devices(found: Document) -> tuple[str, Document]:
    """Return the path of the spec of a claim, or of the claim in a template, and the devices that it asks for."""
    spec, path = found.get("spec") or {}, "spec"
    if found.get("kind") == "ResourceClaimTemplate":
        spec, path = spec.get("spec") or {}, "spec.spec"
    return path, spec.get("devices") or {}


def _results(claim: Document) -> list[Document]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _choices(request: Document) -> Iterator[tuple[str, Any]]:
    for i, choice in enumerate(request.get("firstAvailable") or ()):
        yield f"firstAvailable[{i}]", choice


def _asked_faults(path: str, asked: Document) -> Faults:
    yield from _selector_count(f"{path}.selectors", asked.get("selectors") or ())
    for i, toleration in enumerate(asked.get("tolerations") or ()):
        yield from one_of(f"{path}.tolerations[{i}].operator", toleration.get("operator"), _OPERATORS)


def _selector_count(path: str, selectors: Any) -> Faults:
    if len(selectors) > _MOST_SELECTORS:
        yield too_many(path, len(selectors), _MOST_SELECTORS)


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
    if spec.get("driver"):  # moorage.api.validation reports an empty one
        yield from driver_name_faults("spec.driver", spec["driver"])
    if spec.get("nodeName") is not None:
        yield from named("spec.nodeName", spec["nodeName"], check_dns1123_subdomain)
    if spec.get("sharedCounters") and spec.get("devices"):
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    for i, device in enumerate(spec.get("devices") or ()):
        yield from _binding_faults(f"spec.devices[{i}]", device)
        for name, attribute in (device.get("attributes") or {}).items():
            yield from _attribute_faults(f"spec.devices[{i}].attributes[{name}]", attribute)


def _binding_faults(path: str, device: Document) -> Faults:
    needed = {name: device.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions")}
    for i, condition in enumerate(needed["bindingFailureConditions"]):
        if condition in needed["bindingConditions"]:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{path}.bindingFailureConditions[{i}]", condition, why)
    for one, other in (tuple(needed), tuple(needed)[::-1]):
        for i, condition in enumerate(needed[one]):
            if condition in needed[one][:i]:
                yield duplicate(f"{path}.{one}[{i}]", condition)
        if needed[one] and not needed[other]:
            yield invalid(f"{path}.{other}", None, f"{other} are required to use {one}")


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
