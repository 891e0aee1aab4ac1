"""Test the arguments of DynamicResources: defaults and validation by feature gate."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.plugins.dynamic_resources import DynamicResourcesArgs

OPEN = FeatureGates()
NO_FILTER_TIMEOUT = FeatureGates({"DRASchedulerFilterTimeout": False})
NO_CONDITIONS = FeatureGates({"DRADeviceBindingConditions": False})
NO_STATUS = FeatureGates({"DRADeviceBindingConditions": False, "DRAResourceClaimDeviceStatus": False})

DEFAULTS = {
    "open": (OPEN, 10.0, 600.0),
    "no filter timeout": (NO_FILTER_TIMEOUT, None, 600.0),
    "no binding conditions": (NO_CONDITIONS, 10.0, None),
    "no device status": (NO_STATUS, 10.0, None),
}


@pytest.mark.parametrize(("gates", "filter_timeout", "binding_timeout"), DEFAULTS.values(), ids=DEFAULTS)
def test_defaults_are_always_valid(gates, filter_timeout, binding_timeout):
    args = DynamicResourcesArgs().completed(gates)
    assert args == DynamicResourcesArgs(filter_timeout=filter_timeout, binding_timeout=binding_timeout)
    assert args.faults("a", gates) == []


# arguments, gates, faults
CASES = {
    "no limit": ({"filter_timeout": 0.0}, OPEN, []),
    "below zero": ({"filter_timeout": -0.5}, OPEN, ['a.filterTimeout: Invalid value: "-500ms": must be zero or positive']),
    "a second": ({"binding_timeout": 1.0}, OPEN, []),
    "less than a second": (
        {"binding_timeout": 0.999999999},
        OPEN,
        ['a.bindingTimeout: Invalid value: "999.999999ms": must be at least 1 second'],
    ),
    "filter timeout without its gate": (
        {"filter_timeout": 1.0},
        NO_FILTER_TIMEOUT,
        ["a.filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled"],
    ),
    "binding timeout without its gates": (
        {"binding_timeout": 1.0},
        NO_STATUS,
        ["a.bindingTimeout: Forbidden: DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"],
    ),
}


@pytest.mark.parametrize(("given", "gates", "faults"), CASES.values(), ids=CASES)
def test_faults(given, gates, faults):
    assert [str(fault) for fault in DynamicResourcesArgs(**given).faults("a", gates)] == faults
