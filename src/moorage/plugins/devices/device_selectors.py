"""CEL selectors, evaluated for one device."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.cel import CelError, CompiledSelector, CostLimitError, DeviceFacts, Version, compile_selector, device_variables
from moorage.api.cel.bounds import CompileError
from moorage.api.cel.list_attributes import Lists
from moorage.api.cel.values import Value
from moorage.api.devices import Device, DeviceAttribute
from moorage.plugins.devices.meter import RUNTIME_ERROR, CostlyError, Meter

#: The variables of an expression, or the error in computing them.
Variables = Mapping[str, Value] | CelError


def takes(expression: str, lists: Lists, variables: Variables, meter: Meter) -> bool | str:
    """Return whether a selector selects the device with these variables; kube-scheduler's error text if it fails.

    Raises  CostlyError if the evaluation costs more than the attempt has left
    """
    selector = _compiled(expression, lists, meter)
    if isinstance(selector, str):
        return selector
    if isinstance(variables, CelError):
        return f"{RUNTIME_ERROR}: {variables}"
    try:
        taken, cost = selector.judge(variables, meter.limit)
    except CostLimitError:
        raise CostlyError(always=meter.is_full) from None
    meter.pay_evaluation(cost)
    return f"{RUNTIME_ERROR}: {taken}" if isinstance(taken, CelError) else taken


def _compiled(expression: str, lists: Lists, meter: Meter) -> CompiledSelector | str:
    """Return the compiled selector, or the error text of the compilation.

    Raises  CostlyError
    """
    selector = meter.selectors.get(expression, lists)
    if selector is None:
        meter.pay_compilation(len(expression))
        try:
            selector = compile_selector(expression, lists)
        except CompileError as error:
            selector = f"CEL compile error: {error}"
        meter.selectors.keep(expression, lists, selector)
    return selector


def variables_of(device: Device, driver: str, lists: Lists, shares: bool) -> Variables:
    """Return the variables of a device for selectors; if the device is invalid, an error for every selector to return."""
    attributes = {name: _value(attribute, lists) for name, attribute in device.attributes.items()}
    capacity = {name: held.value for name, held in device.capacity.items()}
    facts = DeviceFacts(driver, attributes, capacity, shares and bool(device.allow_multiple_allocations))
    try:
        return device_variables(facts, lists)
    except CelError as error:
        return error


def _value(attribute: DeviceAttribute, lists: Lists) -> Value:
    """Return the value of an attribute, which has a field for each type; None if no field is set."""
    a = attribute
    if lists is Lists.SUPPORTED:
        for values in (a.int_values, a.bool_values, a.string_values):
            if values is not None:
                return tuple(values)
        if a.version_values is not None:
            return tuple(map(Version, a.version_values))
    for value in (a.int_value, a.bool_value, a.string_value):
        if value is not None:
            return value
    return None if a.version_value is None else Version(a.version_value)
