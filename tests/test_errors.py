"""How faults read."""

from __future__ import annotations

import msgspec
import pytest

from moorage.errors import ConfigError, Fault


class Point(msgspec.Struct):
    x: int


FAULTS = {
    "a number": (Fault("Invalid value", "a.b", "too big", 7), "a.b: Invalid value: 7: too big"),
    "a text": (Fault("Invalid value", "a", "no", 'x"\n'), 'a: Invalid value: "x\\"\\n": no'),
    "nothing": (Fault("Invalid value", "a", "no"), "a: Invalid value: null: no"),
    "a truth": (Fault("Invalid value", "a", value=True), "a: Invalid value: true"),
    "a structure": (Fault("Invalid value", "a", value=(Point(1),)), 'a: Invalid value: [{"x":1}]'),
    "anything else": (Fault("Invalid value", "a", value={1j}), 'a: Invalid value: "{1j}"'),
    "required": (Fault("Required value", "a", "say it", 3), "a: Required value: say it"),
    "unknown": (Fault("Strict decoding error", "a", "unknown field"), "a: Strict decoding error: unknown field"),
    "no place": (Fault("Forbidden", "", "never"), "Forbidden: never"),
}


@pytest.mark.parametrize(("fault", "text"), FAULTS.values(), ids=FAULTS)
def test_a_fault_reads_as_the_api_words_it(fault, text):
    assert str(fault) == text
    assert text.endswith(fault.body)


def test_a_refused_configuration_lists_its_faults():
    error = ConfigError("refused:", [Fault("Forbidden", "a"), Fault("Forbidden", "b")])
    assert str(error) == "refused:\n  a: Forbidden\n  b: Forbidden"
    assert [fault.field for fault in error.faults] == ["a", "b"]
