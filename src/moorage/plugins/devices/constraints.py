"""Constraints between the devices of one claim: equal values of an attribute, or distinct ones.

Two details match kube-scheduler. A constraint for distinct values stores one value per request, so of two devices of the same
request only the later one is compared with further devices. And removing a device removes the stored value of its request.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, constraint.go
"""

from __future__ import annotations

from typing import Protocol

from moorage.api.devices import DeviceAttribute, DeviceConstraint
from moorage.plugins.devices.pools import SliceDevice

_Value = tuple[str, object]


class AllocationConstraint(Protocol):
    """The search adds devices one by one and removes them when it backtracks."""

    def add(self, request: str, alternative: str, offer: SliceDevice) -> bool:
        """Add a device if the constraint allows it; otherwise return False and change nothing."""

    def remove(self, request: str, alternative: str) -> None:
        """Undo the last ``add``."""


def make_constraint(constraint: DeviceConstraint) -> AllocationConstraint:
    """Return a constraint without devices."""
    if constraint.match_attribute is not None:
        return _MatchAttribute(constraint.match_attribute, constraint.requests)
    return _DistinctAttribute(constraint.distinct_attribute or "", constraint.requests)


class _AttributeConstraint:
    """The attribute, and the requests whose devices the constraint applies to (empty: all)."""

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        self._attribute = attribute
        self._requests = frozenset(requests)
        self._devices = 0

    def _applies_to(self, request: str, alternative: str) -> bool:
        return (
            not self._requests
            or request in self._requests
            or (bool(alternative) and f"{request}/{alternative}" in self._requests)
        )


class _MatchAttribute(_AttributeConstraint):
    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._value: DeviceAttribute | None = None

    def add(self, request: str, alternative: str, offer: SliceDevice) -> bool:
        if not self._applies_to(request, alternative):
            return True
        attribute = offer.attribute(self._attribute)
        if attribute is None:
            return False
        if self._devices == 0:
            self._value = attribute
        else:
            found = _scalar(attribute)
            if found is None or self._value is None or _of_kind(self._value, found[0]) != found:
                return False
        self._devices += 1
        return True

    def remove(self, request: str, alternative: str) -> None:
        if self._applies_to(request, alternative):
            self._devices -= 1


class _DistinctAttribute(_AttributeConstraint):
    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._values: dict[str, DeviceAttribute] = {}

    def add(self, request: str, alternative: str, offer: SliceDevice) -> bool:
        if not self._applies_to(request, alternative):
            return True
        attribute = offer.attribute(self._attribute)
        if attribute is None or (self._devices > 0 and not self._is_new(attribute)):
            return False
        self._values[request] = attribute
        self._devices += 1
        return True

    def _is_new(self, attribute: DeviceAttribute) -> bool:
        if not self._values:
            return True
        found = _scalar(attribute)
        return found is not None and all(_of_kind(other, found[0]) != found for other in self._values.values())

    def remove(self, request: str, alternative: str) -> None:
        if self._applies_to(request, alternative):
            self._values.pop(request, None)
            self._devices -= 1


def _scalar(attribute: DeviceAttribute) -> _Value | None:
    """Return the attribute's kind and value; None if it has no value."""
    for kind in ("string", "int", "bool", "version"):
        found = _of_kind(attribute, kind)
        if found is not None:
            return found
    return None


def _of_kind(attribute: DeviceAttribute, kind: str) -> _Value | None:
    value = getattr(attribute, f"{kind}_value")
    return None if value is None else (kind, value)
