"""Test device selectors: the values they see, and the results for absent attributes."""

from __future__ import annotations

import pytest

from moorage.api.cel.bounds import EvalError
from moorage.api.cel.devices import DeviceFacts, Version, compile_selector, device_variables
from moorage.api.cel.list_attributes import Lists

DRIVER = "dra.example.com"
DEVICE = DeviceFacts(
    DRIVER,
    {"bool": True, "int": 1, "string": "fish", "version": Version("1.2.0"), "other.example.com/name": "bird"},
    {"memory": "80Gi", "other.example.com/slots": 4},
)


def matches(source, device=DEVICE, lists=Lists.UNKNOWN):
    return compile_selector(source, lists).matches(device_variables(device, lists))


ANSWERS = {
    "true": True,
    "false": False,
    f'device.driver == "{DRIVER}"': True,
    f'device.attributes["{DRIVER}"].bool': True,
    f'device.attributes["{DRIVER}"]["bool"]': True,
    f'device.attributes["{DRIVER}"].int > 0': True,
    f'device.attributes["{DRIVER}"].string in ["fish", "cat"]': True,
    f'device.attributes["{DRIVER}"].string == 1': False,
    f'device.attributes["{DRIVER}"].version.isGreaterThan(semver("v1.1", true))': True,
    'device.attributes["other.example.com"].name == "bird"': True,
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0': True,
    'device.capacity["other.example.com"].slots.asInteger() == 4': True,
    f'cel.bind(dra, device.attributes["{DRIVER}"], dra.bool && dra.int == 1)': True,
    f'"{DRIVER}" in device.attributes': True,
    '"no.such.domain" in device.attributes': False,
    'device.attributes["no.such.domain"].size() == 0': True,
    '"int" in device.attributes["no.such.domain"]': False,
    'has(device.attributes["no.such.domain"].int)': False,
    f'has(device.attributes["{DRIVER}"].int)': True,
    'device.attributes["no.such.domain"].?int.orValue(5) == 5': True,
    f'device.attributes["{DRIVER}"].exists_one(x, x == "string")': True,
    'device.attributes.all(d, d.endsWith("example.com"))': True,
    f'device.capacity["{DRIVER}"].exists(name, name == "memory")': True,
    "device.allowMultipleAllocations == false": True,
    f'device.attributes["{DRIVER}"].nothing == 1 || true': True,
    f'device.attributes["{DRIVER}"].string.split("i").size() == 2': True,
}


@pytest.mark.parametrize(("source", "answer"), ANSWERS.items(), ids=ANSWERS)
def test_evaluates(source, answer):
    assert matches(source) is answer


FAILURES = {
    'device.attributes["no.such.domain"].int > 0': "no such key: int",
    f'device.attributes["{DRIVER}"].nothing': "no such key: nothing",
    f'device.attributes["{DRIVER}"].string > 1': "no such overload",
    f'device.attributes["{DRIVER}"].int': "CEL result of type int could not be converted to bool: "
    "unsupported type conversion from 'int' to bool",
    f'device.attributes["{DRIVER}"].string': "CEL result of type string could not be converted to bool: "
    "unsupported native conversion from string to 'bool'",
    f'device.attributes["{DRIVER}"].version': "CEL result of type kubernetes.Semver could not be converted to bool: "
    "type conversion error from 'Semver' to 'bool'",
}


@pytest.mark.parametrize(("source", "text"), FAILURES.items(), ids=FAILURES)
def test_fails(source, text):
    with pytest.raises(EvalError) as caught:
        matches(source)
    assert str(caught.value) == text


def test_devices_may_allow_multiple_allocations():
    assert matches("device.allowMultipleAllocations", DEVICE._replace(multiple_allocations=True))


def test_list_attributes_need_their_gate():
    device = DeviceFacts(DRIVER, {"names": ("fish", "bird"), "versions": (Version("1.0.0"),)}, {})
    assert matches(f'device.attributes["{DRIVER}"].names.exists(x, x == "bird")', device, lists=Lists.SUPPORTED)
    assert matches(f'device.attributes["{DRIVER}"].versions.includes(semver("1.0.0"))', device, lists=Lists.SUPPORTED)
    with pytest.raises(EvalError, match="attribute names: unsupported attribute value"):
        matches("true", device)


BROKEN = {
    "no value": (None, "attribute a: unsupported attribute value"),
    "no version": (Version("1"), "attribute a: parse semantic version: No Major.Minor.Patch elements found"),
}


@pytest.mark.parametrize(("value", "text"), BROKEN.values(), ids=BROKEN)
def test_invalid_attributes_are_reported(value, text):
    with pytest.raises(EvalError) as caught:
        device_variables(DeviceFacts(DRIVER, {"a": value}, {}))
    assert str(caught.value) == text
