"""Constraints between the devices of one claim: equal values of an attribute, or distinct ones.

From 1.37 on, with the gate DRAListTypeAttributes, an attribute has a set of values: equal means that one value is common to all
devices, and distinct that no two devices have one in common.

A detail matches kube-scheduler up to 1.36: a constraint for distinct values stores one value per request, so of two devices of
the same request only the later one is compared with further devices. And removing a device removes the stored value of its
request. From 1.37 on it stores one for each device.

Source  kube-scheduler 1.36 and 1.37: structured/internal/incubating/allocator_incubating.go, constraint.go; experimental
"""

from __future__ import annotations

from moorage.api.devices import DeviceAttribute, DeviceConstraint
from moorage.plugins.devices.pools import SliceDevice

_Value = tuple[str, object]
_KINDS = ("string", "int", "bool", "version")


class AllocationConstraint:
    """A constraint without devices. The search adds devices one by one and removes them when it backtracks.

    ``lists``: attributes are sets of values; ``each_device``: distinct values are stored for each device, not each request;
    ``any_device``: any two devices have distinct values.
    """

    def __init__(
        self, constraint: DeviceConstraint, *, lists: bool = False, each_device: bool = False, any_device: bool = False
    ) -> None:
        self._is_equal = constraint.match_attribute is not None
        self._attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._lists, self._each_device, self._any_device = lists, each_device, any_device
        #: The requests whose devices the constraint applies to; empty: all.
        self._requests = frozenset(constraint.requests)
        self._devices = 0
        #: Request, or number of the device → its value. Of equal values there is one, that of the first device.
        self._values: dict[str | int, DeviceAttribute] = {}
        #: With lists: the values that the devices so far have in common, after each of them.
        self._common: list[frozenset[_Value]] = []

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
        if attribute is None or not (self._allows_set(attribute) if self._lists else self._allows(attribute)):
            return False
        if not self._is_equal:
            self._values[self._devices if self._each_device else request] = attribute
        elif self._devices == 0:
            self._values = {request: attribute}
        self._devices += 1
        return True

    def _allows(self, attribute: DeviceAttribute) -> bool:
        if self._devices == 0:
            return True
        found = _scalar(attribute) if self._values else None
        if found is None:
            return not self._values
        if self._any_device and not self._is_equal:
            return all(other is not attribute for other in self._values.values())
        return all((_of_kind(other, found[0]) == found) is self._is_equal for other in self._values.values())

    def _allows_set(self, attribute: DeviceAttribute) -> bool:
        values = _values_of(attribute)
        if not self._is_equal:
            return bool(values) and all(values.isdisjoint(_values_of(other)) for other in self._values.values())
        common = values & self._common[-1] if self._common else values
        if common:
            self._common.append(common)
        return bool(common)

    def remove(self, request: str, alternative: str) -> None:
        """Undo the last ``add``."""
        if self._applies_to(request, alternative):
            self._devices -= 1
            if not self._is_equal:
                self._values.pop(self._devices if self._each_device else request, None)
            elif self._lists:
                self._common.pop()


def _values_of(attribute: DeviceAttribute) -> frozenset[_Value]:
    """Return the values of an attribute, of which a list has several, each with its kind; none if it has no value."""
    for kind in _KINDS:
        listed = getattr(attribute, f"{kind}_values")
        if listed is not None:
            return frozenset((kind, value) for value in listed)
    found = _scalar(attribute)
    return frozenset() if found is None else frozenset([found])


def _scalar(attribute: DeviceAttribute) -> _Value | None:
    """Return the attribute's kind and value; None if it has no value."""
    for kind in _KINDS:
        found = _of_kind(attribute, kind)
        if found is not None:
            return found
    return None


def _of_kind(attribute: DeviceAttribute, kind: str) -> _Value | None:
    value = getattr(attribute, f"{kind}_value")
    return None if value is None else (kind, value)
