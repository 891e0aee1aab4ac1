"""Constraints between the devices of one claim: equal values of an attribute, or distinct ones.

Two details match kube-scheduler. A constraint for distinct values stores one value per request, so of two devices of the same
request only the later one is compared with further devices. And removing a device removes the stored value of its request.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, constraint.go
"""

from __future__ import annotations

from moorage.api.devices import DeviceAttribute, DeviceConstraint
from moorage.plugins.devices.pools import SliceDevice

_Value = tuple[str, object]


class AllocationConstraint:
    """A constraint without devices. The search adds devices one by one and removes them when it backtracks."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._is_equal = constraint.match_attribute is not None
        self._attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        #: The requests whose devices the constraint applies to; empty: all.
        self._requests = frozenset(constraint.requests)
        self._devices = 0
        #: Request → its value. Of equal values there is one, that of the first device.
        self._values: dict[str, DeviceAttribute] = {}

    def _applies_to(self, request: str, alternative: str) -> bool:
        return (
            not self._requests
            or request in self._requests
            or (bool(alternative) and f"{request}/{alternative}" in self._requests)
        )

    def add(self, request: str, alternative: str, offer: SliceDevice) -> bool:
        """Add a device if the constraint allows it; otherwise return False and change nothing."""
        if not self._applies_to(request, alternative):
            return True
        attribute = offer.attribute(self._attribute)
        if attribute is None or (self._devices > 0 and not self._allows(attribute)):
            return False
        if not self._is_equal:
            self._values[request] = attribute
        elif self._devices == 0:
            self._values = {request: attribute}
        self._devices += 1
        return True

    def _allows(self, attribute: DeviceAttribute) -> bool:
        found = _scalar(attribute) if self._values else None
        if found is None:
            return not self._values
        return all((_of_kind(other, found[0]) == found) is self._is_equal for other in self._values.values())

    def remove(self, request: str, alternative: str) -> None:
        """Undo the last ``add``."""
        if self._applies_to(request, alternative):
            self._devices -= 1
            if not self._is_equal:
                self._values.pop(request, None)


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
