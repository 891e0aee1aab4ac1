"""Validation of the status of pods, nodes, pod groups, resource claims and resource quotas.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidatePodStatusUpdate;
        pkg/apis/resource/validation/validation.go, validateResourceClaimStatusUpdate;
        pkg/apis/scheduling/validation/validation.go, ValidatePodGroupStatusUpdate; apimachinery,
        pkg/apis/meta/v1/validation/validation.go, ValidateConditions
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from moorage.api.core import Node, Object, ResourceQuota
from moorage.api.devices import ClaimConsumer, DeviceAllocation, DeviceAllocationConfig, DeviceClaim, ResourceClaim
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain
from moorage.api.pod_groups import PodGroup
from moorage.api.validation.affinity import node_selector
from moorage.api.validation.faults import too_long, too_many
from moorage.api.validation.resources import quota_status_faults
from moorage.api.validation.values import node_status_faults
from moorage.cluster.apiserver.admission.definition_validation import definition_status_faults
from moorage.cluster.apiserver.admission.pod_checks import RULES
from moorage.cluster.apiserver.vocabulary.served_kinds import Document, ServedKind
from moorage.errors import Bare, Fault

# -- status counts -----------------------------------------------------------------------------------------------------
# Validation of counts and conditions in the status of workloads, jobs, disruption budgets and claims.
#
# Source  kubernetes, pkg/apis/{apps,batch,core,policy}/validation, the functions that validate a status

Faults = Iterator[Fault]


def _status(document: Document) -> Document:
    status: Any = document.get("status")
    return status if isinstance(status, dict) else {}


# -- jobs --------------------------------------------------------------------------------------------------------------


def _is_true(status: Document, kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in status.get("conditions") or ())


def _condition_fault(why: str) -> Fault:
    # kube-apiserver does not show the conditions here.
    return Fault("Invalid value", "status.conditions", why, Bare(""))


def _job(old: Document, new: Document) -> Faults:
    before, status = _status(old), _status(new)
    complete, failed = _is_true(status, "Complete"), _is_true(status, "Failed")
    yield from _finish_faults(before, status, complete, failed)
    if status.get("ready") is not None and status["ready"] > (status.get("active") or 0):
        yield Fault("Invalid value", "status.ready", "cannot set more ready pods than active", status["ready"])
    for kind in ("Failed", "Complete", "FailureTarget"):
        if _is_true(before, kind) and not _is_true(status, kind):
            yield _condition_fault(f"cannot disable the terminal {kind}=True condition")
    if (before.get("startTime") and before["startTime"] != status.get("startTime")
            and not (new.get("spec") or {}).get("suspend")):  # fmt: skip
        why = "field is immutable for unsuspended job once set"
        yield Fault("Invalid value", "status.startTime", why, status.get("startTime"))


def _finish_faults(before: Document, status: Document, complete: bool, failed: bool) -> Faults:
    """Yield the faults of the status of a job that finishes."""
    ended = status.get("completionTime")
    was_complete, was_failed = _is_true(before, "Complete"), _is_true(before, "Failed")
    if complete and failed and not (was_complete and was_failed):
        yield _condition_fault("cannot set Complete=True and Failed=true conditions")
    if ended and not complete:
        why = "cannot set completionTime when there is no Complete=True condition"
        yield Fault("Invalid value", "status.completionTime", why, ended)
    if complete and not ended and not was_complete:
        yield Fault("Required value", "status.completionTime", "completionTime is required for Complete jobs")
    if ended and status.get("startTime") and ended < status["startTime"]:
        yield Fault("Invalid value", "status.completionTime", "must be equal to or after `startTime`", ended)
    if failed and not was_failed and not _is_true(status, "FailureTarget"):
        yield _condition_fault("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not was_complete and not _is_true(status, "SuccessCriteriaMet"):
        yield _condition_fault("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if (complete or failed) and not (was_complete or was_failed):
        if (active := status.get("active") or 0) > 0:
            yield Fault("Invalid value", "status.active", "active>0 is invalid for finished job", active)
        if not status.get("startTime"):
            yield Fault("Required value", "status.startTime", "startTime is required for finished job")


# -- status validation -------------------------------------------------------------------------------------------------

_FIXED: Final = "field is immutable"
_MAX_USERS: Final = 256
_MAX_RESULTS: Final = 32
_MAX_CONFIGS: Final = 64
_MAX_DRIVER: Final = 63
_UID: Final = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
)
_REQUEST: Final = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def status_faults(kind: ServedKind, old: Document, new: Document, decoded: Object) -> Faults:
    """Yield the faults of a new status. ``decoded`` is the decoded new object."""
    if RULES.has(type_name := f"{kind.native}Status"):
        yield from RULES.faults(type_name, _status(new), "status", new, old)
    if kind.native == "Job":
        yield from _job(old, new)
    if kind.native == "CustomResourceDefinition":
        yield from definition_status_faults(new)
    if isinstance(decoded, Node):
        yield from node_status_faults(decoded)
        yield from RULES.faults("NodeAddresses", _status(new), "status")
    if isinstance(decoded, ResourceClaim):
        yield from _claim(old, new, decoded)
    elif isinstance(decoded, PodGroup):
        yield from _group(decoded, _status(new))
    elif isinstance(decoded, ResourceQuota):
        yield from quota_status_faults(decoded.status)


def _mapping(value: Any) -> Document:
    return value if isinstance(value, dict) else {}


def _name_faults(path: str, text: str, check: Callable[[str], list[str]]) -> Faults:
    for why in check(text):
        yield Fault("Invalid value", path, why, text)


# -- pod groups --------------------------------------------------------------------------------------------------------

_MAX_GROUP_CLAIMS: Final = 4


def _group(group: PodGroup, document: Document) -> Faults:
    yield from RULES.faults("Conditions", document, "status")
    statuses, path = group.status.resource_claim_statuses, "status.resourceClaimStatuses"
    spec = {claim.name for claim in group.spec.resource_claims}
    for i, status in enumerate(statuses):
        if status.name not in spec:
            yield Fault(
                "Invalid value", f"{path}[{i}].name", "must match the name of an entry in `spec.resourceClaims`", status.name
            )
    if len(statuses) > _MAX_GROUP_CLAIMS:
        yield too_many(path, len(statuses), _MAX_GROUP_CLAIMS)
        return
    names = [status.name for status in statuses]
    for i, status in enumerate(statuses):
        if status.name in names[:i]:
            yield Fault("Duplicate value", f"{path}[{i}]", "", status)
        if status.resource_claim_name is not None:
            yield from _name_faults(f"{path}[{i}].resourceClaimName", status.resource_claim_name, check_dns1123_subdomain)


# -- resource claims ---------------------------------------------------------------------------------------------------


def _claim(old: Document, new: Document, claim: ResourceClaim) -> Faults:
    before, status, path = _mapping(old.get("status")), claim.status, "status.reservedFor"
    yield from _users(path, status.reserved_for)
    yield from _devices(_mapping(new.get("status")))
    held = {one.get("uid") for one in before.get("reservedFor") or ()}
    if status.reserved_for and status.allocation is None:
        yield Fault("Forbidden", path, "may not be specified when `allocated` is not set")
    elif old["metadata"].get("deletionTimestamp") and any(one.uid not in held for one in status.reserved_for):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield Fault("Forbidden", path, why)
    if status.allocation is None:
        return
    given = _mapping(new.get("status")).get("allocation")
    if before.get("allocation") is not None:
        if before["allocation"] != given:
            yield Fault("Invalid value", "status.allocation", _FIXED, given)
        return
    yield from _allocation(status.allocation.devices.results, status.allocation.devices.config, claim.spec.devices)
    if status.allocation.node_selector is not None:
        yield from node_selector("status.allocation.nodeSelector", status.allocation.node_selector)


def _devices(status: Document) -> Faults:
    """Yield the faults of device statuses, which must be for allocated devices."""
    results = _mapping(_mapping(status.get("allocation")).get("devices")).get("results") or ()
    allocated = {_device(one) for one in results}
    seen: set[tuple[str, ...]] = set()
    for i, one in enumerate(status.get("devices") or ()):
        path, device = f"status.devices[{i}]", _device(one)
        yield from _driver(f"{path}.driver", device[0])
        yield from _pool(f"{path}.pool", device[1])
        if device[2]:
            yield from _name_faults(f"{path}.device", device[2], check_dns1123_label)
        else:
            yield Fault("Required value", f"{path}.device")
        shown = dict(zip(("Driver", "Pool", "Device", "ShareID"), device, strict=True))
        if device not in allocated:
            yield Fault("Invalid value", path, "must be an allocated device in the claim", shown)
        if device in seen:
            yield Fault("Duplicate value", path, "", shown)
        seen.add(device)


def _device(one: Document) -> tuple[str, ...]:
    return tuple(str(one.get(name) or "") for name in ("driver", "pool", "device", "shareID"))


def _pool(path: str, pool: str) -> Faults:
    if not pool:
        yield Fault("Required value", path)
        return
    for part in pool.split("/"):
        yield from _name_faults(path, part, check_dns1123_subdomain)


def _users(path: str, users: Sequence[ClaimConsumer]) -> Faults:
    if len(users) > _MAX_USERS:
        yield too_many(path, len(users), _MAX_USERS)
        return
    seen: set[str] = set()
    for i, user in enumerate(users):
        for name, value in (("resource", user.resource), ("name", user.name), ("uid", user.uid)):
            if not value:
                yield Fault("Required value", f"{path}[{i}].{name}")
        if user.uid in seen:
            yield Fault("Duplicate value", f"{path}[{i}]", "", user.uid)
        seen.add(user.uid)


def _allocation(
    results: Sequence[DeviceAllocation], configs: Sequence[DeviceAllocationConfig], spec: DeviceClaim
) -> Faults:  # fmt: skip
    names = _request_names(spec)
    path = "status.allocation.devices"
    for field, held, most in (("results", results, _MAX_RESULTS), ("config", configs, _MAX_CONFIGS)):
        if len(held) > most:
            yield too_many(f"{path}.{field}", len(held), most)
            return
    for i, result in enumerate(results):
        yield from _result(f"{path}.results[{i}]", result, names)
    for i, config in enumerate(configs):
        yield from _config(f"{path}.config[{i}]", config, names)


def _request_names(spec: DeviceClaim) -> Mapping[str, frozenset[str]]:
    """Return the names of a claim's requests, each with the names of its subrequests."""
    return {one.name: frozenset(choice.name for choice in one.first_available) for one in spec.requests}


def _request(path: str, name: str, names: Mapping[str, frozenset[str]]) -> Faults:
    request, slash, choice = name.partition("/")
    if request not in names or (slash and choice not in names[request]):
        yield Fault("Invalid value", path, _REQUEST, name)


def _result(path: str, result: DeviceAllocation, names: Mapping[str, frozenset[str]]) -> Faults:
    yield from _request(f"{path}.request", result.request, names)
    yield from _driver(f"{path}.driver", result.driver)
    yield from _pool(f"{path}.pool", result.pool)
    yield from _name_faults(f"{path}.device", result.device, check_dns1123_label)
    if result.share_id is not None and not _is_uid(result.share_id):
        yield Fault("Invalid value", f"{path}.shareID", _UID, result.share_id)


def _driver(path: str, name: str) -> Faults:
    if not name:
        yield Fault("Required value", path)
        return
    if len(name) > _MAX_DRIVER:
        yield too_long(path, _MAX_DRIVER)
    for why in check_dns1123_subdomain(name.lower()):
        yield Fault("Invalid value", path, why, name)


def _is_uid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _config(path: str, config: DeviceAllocationConfig, names: Mapping[str, frozenset[str]]) -> Faults:
    if not config.source:
        yield Fault("Required value", f"{path}.source")
    elif config.source not in {"FromClaim", "FromClass"}:
        yield Fault("Unsupported value", f"{path}.source", 'supported values: "FromClaim", "FromClass"', config.source)
    for i, name in enumerate(config.requests):
        yield from _request(f"{path}.requests[{i}]", name, names)
    if config.opaque is None:
        yield Fault("Required value", f"{path}.opaque")
        return
    yield from _driver(f"{path}.opaque.driver", str(config.opaque.get("driver") or ""))
    if not isinstance(config.opaque.get("parameters"), dict):
        yield Fault("Required value", f"{path}.opaque.parameters")
