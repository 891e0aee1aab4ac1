"""How faults read."""

from __future__ import annotations

import msgspec
import pytest

from moorage.errors import AttemptError, ClusterError, ConfigError, Fault, InputError, PluginError


class Point(msgspec.Struct):
    x: int


FAULTS = {
    "a number": (Fault("Invalid value", "a.b", "too big", 7), "a.b: Invalid value: 7: too big"),
    "a text": (Fault("Invalid value", "a", "no", 'x"\n'), 'a: Invalid value: "x\\"\\n": no'),
    "a long text": (Fault("Invalid value", "a", "no", "x" * 20_000), f'a: Invalid value: "{"x" * 10_000}…": no'),
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


EVIL = "a\x1b[31m\u202eb\nerror: forged\udcff"
QUOTED = r"a\x1b[31m\u202eb\nerror: forged\udcff"


def test_what_an_error_quotes_stays_on_its_line():
    assert str(InputError(f"{EVIL}: no such file")) == f"{QUOTED}: no such file"
    assert str(InputError(EVIL, EVIL)) == f"{QUOTED}\n{QUOTED}"
    assert str(InputError(str(InputError(EVIL)))) == QUOTED
    assert str(ConfigError(EVIL, [Fault("Forbidden", EVIL), Fault("Not found", "b")])).splitlines()[1:] == [
        f"  {QUOTED}: Forbidden",
        "  b: Not found: null",
    ]


def test_what_servers_and_plugins_say_is_cut_at_a_kibibyte():
    refused = ClusterError(EVIL + "x" * 1_000_000, said="y" * 1_000_000)
    assert str(refused).startswith(QUOTED)
    assert len(str(refused).encode()) <= 1024
    assert len(refused.said) == 1_000_000
    assert len(str(PluginError("Mine", "failed: " + "\x9b" * 1_000_000)).encode()) <= 1024


def test_what_goes_to_the_api_is_the_text_of_kube_scheduler():
    assert str(AttemptError("Mine", "one\ntwo")) == "one\ntwo"
