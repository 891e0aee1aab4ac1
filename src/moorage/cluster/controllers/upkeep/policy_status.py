"""The status of validating policies: what does not fit in their expressions, for the generation that was checked.

Source  kubernetes, pkg/controller/validatingadmissionpolicystatus/controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, served
from moorage.rules.admission.policy_typing import expression_warnings
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import SetStatus, Step

_POLICIES: Final = served("validatingadmissionpolicies", "admissionregistration.k8s.io")


class PolicyStatus:
    """Keys are names of policies."""

    name = "validatingadmissionpolicy-status-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is _POLICIES:
            yield k8s.name_of(event.latest)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        policy = world.get(_POLICIES, "", key)
        if policy is None or k8s.status_of(policy).get("observedGeneration", 0) >= policy["metadata"].get("generation", 1):
            return
        warnings = expression_warnings(policy.get("spec") or {}, world.kinds)
        checked: Document = {"expressionWarnings": warnings} if warnings else {}
        status = {
            **k8s.status_of(policy),
            "observedGeneration": policy["metadata"].get("generation", 1),
            "typeChecking": checked,
        }
        yield SetStatus(_POLICIES, policy, status)
