"""Validate the fields of API objects that scheduling reads, with the API server's rules.

``validate`` takes an object with defaults and returns all faults with their paths. It does not check parts that scheduling does
not read (images, probes, mounts, security), nor rules for updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.api.core import Node, Pod, ResourceQuota, Value
from moorage.api.validation.faults import Faults
from moorage.api.validation.pods import PodValidator, pod_faults
from moorage.api.validation.resources import quota_faults
from moorage.api.validation.rule_tables import VALUES
from moorage.api.validation.values import node_faults
from moorage.errors import Fault

__all__ = ["PodValidator", "faults_of", "validate"]

_CHECKS: Final[Mapping[type[Value], Callable[[Any], Faults]]] = {
    Node: node_faults, Pod: pod_faults, ResourceQuota: quota_faults,
}  # fmt: skip


def validate(found: Value) -> list[Fault]:
    """Return all faults of an object; none for kinds without rules.

    For many pods in a row, one ``PodValidator`` is faster.
    """
    return list(faults_of(found))


def faults_of(found: Value) -> Faults:
    """Yield the faults of an object, so that a caller can stop after some."""
    if (check := _CHECKS.get(type(found))) is not None:
        return check(found)
    type_name = type(found).__name__
    return VALUES.faults(type_name, found) if VALUES.has(type_name) else iter(())
