"""CEL selectors, asked about one device."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.devices import Device, DeviceAttribute
from moorage.cel import CelError, CompiledSelector, CostLimitError, DeviceFacts, Version, compile_selector, device_variables
from moorage.cel.cel_errors import CompileError
from moorage.cel.values import Value
from moorage.plugins.devices.meter import CostlyError, Meter

__all__ = ["Variables", "takes", "variables_of"]

#: What an expression can name, or why there is no such thing.
Variables = Mapping[str, Value] | CelError


def takes(expression: str, lists: bool, variables: Variables, meter: Meter) -> bool | str:
    """Say whether a selector takes the device with these variables; a text, kube-scheduler's, where it has no answer.

    Raises  CostlyError if finding out costs more than the attempt has left
    """
    selector = _compiled(expression, lists, meter)
    if isinstance(selector, str):
        return selector
    if isinstance(variables, CelError):
        return f"CEL runtime error: {variables}"
    try:
        taken, cost = selector.judge(variables, meter.limit)
    except CostLimitError:
        raise CostlyError(always=meter.is_full) from None
    meter.pay_evaluation(cost)
    return f"CEL runtime error: {taken}" if isinstance(taken, CelError) else taken


def _compiled(expression: str, lists: bool, meter: Meter) -> CompiledSelector | str:
    """Return the compiled selector, or why there is none.

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


def variables_of(device: Device, driver: str, lists: bool, shares: bool) -> Variables:
    """Return what selectors see of a device; an error, which is each selector's answer, where that makes no sense."""
    attributes = {name: _value(attribute, lists) for name, attribute in device.attributes.items()}
    capacity = {name: held.value for name, held in device.capacity.items()}
    facts = DeviceFacts(driver, attributes, capacity, shares and bool(device.allow_multiple_allocations))
    try:
        return device_variables(facts, lists)
    except CelError as error:
        return error


def _value(attribute: DeviceAttribute, lists: bool) -> Value:
    """Return the one value that is set; None if none is that counts."""
    a = attribute
    if lists:
        for values in (a.int_values, a.bool_values, a.string_values):
            if values is not None:
                return tuple(values)
        if a.version_values is not None:
            return tuple(map(Version, a.version_values))
    for value in (a.int_value, a.bool_value, a.string_value):
        if value is not None:
            return value
    return None if a.version_value is None else Version(a.version_value)
