"""Validate the fields of API objects that scheduling reads, with the API server's rules.

``validate`` takes an object with defaults and returns all faults with their paths. It does not check parts that scheduling does
not read (images, probes, mounts, security), nor rules for updates.
"""

from __future__ import annotations

from moorage.api.core import Pod, Value
from moorage.api.validation import quota_resources, values  # noqa: F401  they register checks
from moorage.api.validation.faults import Faults
from moorage.api.validation.pods import PodValidator, pod_faults
from moorage.api.validation.rule_tables import VALUES
from moorage.errors import Fault

__all__ = ["PodValidator", "faults_of", "validate"]


def validate(found: Value) -> list[Fault]:
    """Return all faults of an object; none for kinds without rules.

    For many pods in a row, one ``PodValidator`` is faster.
    """
    return list(faults_of(found))


def faults_of(found: Value) -> Faults:
    """Yield the faults of an object, so that a caller can stop after some."""
    if isinstance(found, Pod):
        return pod_faults(found)
    type_name = type(found).__name__
    return VALUES.faults(type_name, found) if VALUES.has(type_name) else iter(())
