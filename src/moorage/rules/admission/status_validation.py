"""Validation of the status of pods, nodes, pod groups, resource claims and resource quotas.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidatePodStatusUpdate;
        pkg/apis/resource/validation/validation.go, validateResourceClaimStatusUpdate;
        pkg/apis/scheduling/validation/validation.go, ValidatePodGroupStatusUpdate; apimachinery,
        pkg/apis/meta/v1/validation/validation.go, ValidateConditions
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from moorage.api.core import Node, Object, ResourceQuota
from moorage.api.devices import ResourceClaim
from moorage.api.documents.records import is_condition_true
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.validation.faults import Faults, duplicate, forbidden, invalid
from moorage.api.validation.rule_checks import address_faults, parse_address
from moorage.api.validation.rule_tables import VALUES, Holders, Seen, check, field_of
from moorage.errors import Bare, Fault
from moorage.rules.admission.definition_validation import definition_status_faults
from moorage.rules.admission.device_checks import reference_faults, request_names
from moorage.rules.admission.pod_checks import RULES

# Validation of counts and conditions in the status of workloads, jobs, disruption budgets and claims.
#
# Source  kubernetes, pkg/apis/{apps,batch,core,policy}/validation, the functions that validate a status


def status_of(document: Document) -> Document:
    """Return the status of an object; an empty one if it is no object."""
    status: Any = document.get("status")
    return status if isinstance(status, dict) else {}


# -- jobs --------------------------------------------------------------------------------------------------------------


def _condition_fault(why: str) -> Fault:
    # kube-apiserver does not show the conditions here.
    return Fault("Invalid value", "status.conditions", why, Bare(""))


def _job(old: Document, new: Document) -> Faults:
    before, status = status_of(old), status_of(new)
    complete, failed = is_condition_true(status, "Complete"), is_condition_true(status, "Failed")
    yield from _finish_faults(before, status, complete, failed)
    if status.get("ready") is not None and status["ready"] > (status.get("active") or 0):
        yield Fault("Invalid value", "status.ready", "cannot set more ready pods than active", status["ready"])
    for kind in ("Failed", "Complete", "FailureTarget"):
        if is_condition_true(before, kind) and not is_condition_true(status, kind):
            yield _condition_fault(f"cannot disable the terminal {kind}=True condition")
    if (before.get("startTime") and before["startTime"] != status.get("startTime")
            and not (new.get("spec") or {}).get("suspend")):  # fmt: skip
        why = "field is immutable for unsuspended job once set"
        yield Fault("Invalid value", "status.startTime", why, status.get("startTime"))


def _finish_faults(before: Document, status: Document, complete: bool, failed: bool) -> Faults:
    """Yield the faults of the status of a job that finishes."""
    ended = status.get("completionTime")
    was_complete, was_failed = is_condition_true(before, "Complete"), is_condition_true(before, "Failed")
    if complete and failed and not (was_complete and was_failed):
        yield _condition_fault("cannot set Complete=True and Failed=true conditions")
    if ended and not complete:
        why = "cannot set completionTime when there is no Complete=True condition"
        yield Fault("Invalid value", "status.completionTime", why, ended)
    if complete and not ended and not was_complete:
        yield Fault("Required value", "status.completionTime", "completionTime is required for Complete jobs")
    if ended and status.get("startTime") and ended < status["startTime"]:
        yield Fault("Invalid value", "status.completionTime", "must be equal to or after `startTime`", ended)
    if failed and not was_failed and not is_condition_true(status, "FailureTarget"):
        yield _condition_fault("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not was_complete and not is_condition_true(status, "SuccessCriteriaMet"):
        yield _condition_fault("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if (complete or failed) and not (was_complete or was_failed):
        if (active := status.get("active") or 0) > 0:
            yield Fault("Invalid value", "status.active", "active>0 is invalid for finished job", active)
        if not status.get("startTime"):
            yield Fault("Required value", "status.startTime", "startTime is required for finished job")


def status_faults(kind: ServedKind, old: Document, new: Document, decoded: Object) -> Faults:
    """Yield the faults of a new status. ``decoded`` is the decoded new object."""
    if RULES.has(type_name := f"{kind.native}Status"):
        yield from RULES.faults(type_name, status_of(new), "status", new, old)
    if kind.native == "Job":
        yield from _job(old, new)
    if kind.native == "CustomResourceDefinition":
        yield from definition_status_faults(new)
    if kind.native == "Namespace":
        yield from _phase(new)
    if isinstance(decoded, Node):
        yield from VALUES.faults("NodeStatus", decoded.status, "status")
        yield from RULES.faults("NodeAddresses", status_of(new), "status")
    if isinstance(decoded, ResourceClaim) and (made := decoded.status.allocation) and status_of(old).get("allocation") is None:
        if made.node_selector is not None:
            yield from VALUES.faults("NodeSelector", made.node_selector, "status.allocation.nodeSelector")
    elif isinstance(decoded, ResourceQuota):
        yield from VALUES.faults("ResourceQuotaStatus", decoded.status, "status")


def _phase(namespace: Document) -> Faults:
    phase, is_deleted = status_of(namespace).get("phase") or "", "deletionTimestamp" in namespace["metadata"]
    wanted, not_ = ("Terminating", "not ") if is_deleted else ("Active", "")
    if phase != wanted:
        yield invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {not_}empty")


@check("distinct group claim", of_holder=True)
def _distinct_claim(path: str, status: Document, _: Document, up: Holders, seen: Seen) -> Iterable[Fault]:
    names, name = seen.setdefault(_distinct_claim, set()), status.get("name") or ""
    if name in names:
        return (duplicate(path, {part: status[part] for part in ("name", "resourceClaimName") if part in status}),)
    names.add(name)
    return ()


# -- addresses of pods --------------------------------------------------------------------------------------------------


@check("pod addresses", of_holder=True)
def _pod_addresses(path: str, items: list[Document] | None, status: Document, up: Holders, __: Seen, one: str) -> Faults:
    """Yield the faults of the addresses of a pod or its host, of which ``one`` is the first. Those that were there stay."""
    old: Document = up[1][0] if up is not None and up[1] is not None else {}
    name = f"{one}s"
    held = {each.get("ip") or "" for each in status_of(old).get(name) or ()}
    texts = [each.get("ip") or "" for each in items or ()]
    if one == "hostIP" and texts and (status.get(one) or "") != texts[0]:
        yield invalid(f"{path}[0].ip", texts[0], "must be equal to `hostIP`")
    for i, text in enumerate(texts):
        if text not in held:
            yield from address_faults(f"{path}[{i}]", text)
    versions = [address.version for text in texts if (address := parse_address(text)[0]) is not None]
    if len(texts) > 1 and (len(texts) > 2 or len({*versions}) < 2):
        yield invalid(path, [{"IP": text} for text in texts], "may specify no more than one IP for each IP family")


# -- resource claims ---------------------------------------------------------------------------------------------------


def _claim_of(up: Holders) -> Document:
    """Return the claim whose status holds something."""
    while up is not None and "metadata" not in up[0]:
        up = up[1]
    return up[0] if up is not None else {}


@check("new consumers", of_holder=True)
def _new_consumers(path: str, users: list[Document] | None, _: Document, up: Holders, __: Seen) -> Iterable[Fault]:
    """Yield the fault of consumers that are added to a claim that is being deleted."""
    old: Document = up[1][0] if up is not None else {}
    held = {one.get("uid") for one in status_of(old).get("reservedFor") or ()}
    if not old["metadata"].get("deletionTimestamp") or all((one.get("uid") or "") in held for one in users or ()):
        return ()
    return (forbidden(path, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"),)


@check("allocated device", of_holder=True)
def _allocated_device(path: str, one: Document, _: Document, up: Holders, seen: Seen) -> Faults:
    """Yield the faults of the status of a device that is not allocated, or has another status."""
    if _allocated_device not in seen:
        results = field_of(up[0] if up is not None else {}, "allocation.devices.results") or ()
        seen[_allocated_device] = {_device(result) for result in results}, set()
    (allocated, others), device = seen[_allocated_device], _device(one)
    shown = dict(zip(("Driver", "Pool", "Device", "ShareID"), device, strict=True))
    if device not in allocated:
        yield invalid(path, shown, "must be an allocated device in the claim")
    if device in others:
        yield duplicate(path, shown)
    others.add(device)


def _device(one: Document) -> tuple[str, ...]:
    return tuple(str(one.get(name) or "") for name in ("driver", "pool", "device", "shareID"))


@check("request of claim", of_holder=True)
def _request(path: str, name: str | None, _: Document, up: Holders, __: Seen) -> Faults:
    spec = _claim_of(up).get("spec") or {}
    return reference_faults(path, name or "", request_names(spec.get("spec") or spec))


@check("normalized uid")
def _uid(path: str, text: str) -> Iterable[Fault]:
    try:
        is_normalized = str(UUID(text)) == text
    except ValueError:
        is_normalized = False
    form = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`"
    return () if is_normalized else (invalid(path, text, f"{form} with lowercase hexadecimal characters"),)
