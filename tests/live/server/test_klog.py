"""Lines as Kubernetes' own programs write them."""

import io
import json
import logging
import re
import time

import pytest

from moorage.basis.printable import is_printable
from moorage.errors import InputError
from moorage.live.runtime.attempt_metrics import Ref
from moorage.live.server.klog import Klog, adopt_other_loggers, read_vmodule

#: A moment of 2026-11-21, in whatever zone this machine is in.
NOON = time.mktime((2026, 11, 21, 12, 3, 4, 0, 0, -1)) + 0.0000565


def a_log(**how):
    stream = io.StringIO()
    return Klog(stream=stream, now=lambda: NOON, **how), stream.getvalue


FACTS = {  # a fact, as text, as JSON
    "a pod": (Ref("default", "web-0"), '"default/web-0"', {"name": "web-0", "namespace": "default"}),
    "a node": (Ref("", "n1"), '"n1"', {"name": "n1"}),
    "text": ("a b", '"a b"', "a b"),
    "text with quotes": ('say "no"', '"say \\"no\\""', 'say "no"'),
    "text with control characters": ("a\x01é", '"a\\x01é"', "a\x01é"),
    "text of two lines": ("one\ntwo", "<\n\tone\n\ttwo\n >", "one\ntwo"),
    "a number": (7, "7", 7),
    "a truth": (True, "true", True),
    "names": (["b", "a"], '["b","a"]', ["b", "a"]),
    "a set of names": (frozenset(["b", "a"]), '["a","b"]', ["a", "b"]),
    "an exception": (ValueError("no"), '"no"', "no"),
    "nothing": (None, "null", None),
}


@pytest.mark.parametrize(("value", "text", "plain"), FACTS.values(), ids=FACTS)
def test_facts(value, text, plain):
    log, said = a_log()
    log.info(0, "It is so", fact=value)
    assert said().partition("] ")[2] == f'"It is so" fact={text}\n'
    log, said = a_log(style="json")
    log.info(0, "It is so", fact=value)
    assert json.loads(said())["fact"] == plain


def test_a_line_starts_as_klogs_do():
    log, said = a_log()
    log.info(0, "Started")
    head = said().split()
    assert head[:2] == ["I1121", "12:03:04.000056"]
    assert head[2].isdecimal()
    assert head[3].startswith("test_klog.py:")


def test_a_json_line_has_klogs_fields():
    log, said = a_log(style="json", verbosity=4)
    log.info(4, "About to try and schedule pod", pod=Ref("a", "b"))
    log.error(ValueError("broken"), "Error scheduling pod; retrying", pod=Ref("a", "b"))
    info, error = map(json.loads, said().splitlines())
    assert info.pop("caller").startswith("server/test_klog.py:")
    assert info == {
        "ts": pytest.approx(NOON * 1000, abs=0.001),
        "msg": "About to try and schedule pod", "v": 4, "pod": {"name": "b", "namespace": "a"},
    }  # fmt: skip
    assert (error["err"], "v" in error) == ("broken", False)


def test_only_the_requested_levels_are_shown():
    log, said = a_log(verbosity=2)
    for level in range(5):
        log.info(level, f"level {level}")
    assert [line.rpartition(" ")[2] for line in said().splitlines()] == ['0"', '1"', '2"']
    assert (log.shows(2), log.shows(3)) == (True, False)
    log.verbosity = 3
    assert log.shows(3)


def test_a_file_may_have_its_own_level():
    log, said = a_log(vmodule="test_kl*=5,other=9")
    log.info(5, "here")
    log.info(6, "not here")
    assert said().count("\n") == 1
    log, said = a_log(vmodule="other=9")
    log.info(5, "elsewhere")
    assert said() == ""


@pytest.mark.parametrize("kind", ["warning", "error"])
def test_warnings_and_errors_are_always_shown(kind):
    log, said = a_log()
    log.warning("Careful") if kind == "warning" else log.error(None, "Wrong")
    assert said()[0] == kind[0].upper()


def test_a_one_line_message_without_values_is_not_quoted():
    log, said = a_log(verbosity=1)
    log.line(1, 'FLAG: --v="1"')
    log.line(2, "not shown")
    log.warning("Careful now")
    log.warning("two\nlines: I1121 forged")
    assert [line.partition("] ")[2] for line in said().splitlines()] == [
        'FLAG: --v="1"', "Careful now", '"two\\nlines: I1121 forged"',
    ]  # fmt: skip


BAD = {
    "an unknown format": {"style": "xml"},
    "patterns for JSON": {"style": "json", "vmodule": "a=1"},
    "a pattern without a level": {"vmodule": "a"},
    "a level that is no number": {"vmodule": "a=b"},
    "a level below 0": {"verbosity": -1},
}


@pytest.mark.parametrize("how", BAD.values(), ids=BAD)
def test_invalid_log_settings_are_rejected(how):
    with pytest.raises(InputError):
        Klog(**how)


def test_vmodule_is_a_list():
    assert read_vmodule("a=1,b*=2") == (("a", 1), ("b*", 2))


def test_a_closed_log_stream_does_no_harm():
    stream = io.StringIO()
    stream.close()
    Klog(stream=stream).info(0, "lost")


def test_plugin_log_lines_have_the_same_format():
    log, said = a_log(style="json", verbosity=4)
    relay = adopt_other_loggers(log)
    try:
        mine = logging.getLogger("my_plugin")
        mine.info("read %s zones", 3)
        relay.emit(logging.LogRecord("my_plugin", logging.WARNING, __file__, 1, "%d", ("x",), None))
        try:
            raise ValueError("broken")
        except ValueError:
            mine.exception("no zones")
    finally:
        logging.getLogger().removeHandler(relay)
        logging.getLogger().setLevel(logging.WARNING)
    first, second, third = map(json.loads, said().splitlines())
    assert (first["msg"], first["logger"]) == ("read 3 zones", "my_plugin")
    assert "could not be formatted" in second["msg"]
    assert "ValueError: broken" in third["err"]


EVIL = "a\x1b]0;x\a\x9b31m\u202e\u200b\u2028\udcff"
QUOTED = r"a\x1b]0;x\a\u009b31m\u202e\u200b\u2028\udcff"


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize(
    "value", [EVIL, ValueError(EVIL), Ref(EVIL, EVIL), [EVIL], {EVIL: EVIL}, f"one\n{EVIL}\rtwo"], ids=repr
)
def test_values_cannot_inject_terminal_codes_or_log_lines(value, style):
    log, said = a_log(style=style)
    log.info(0, EVIL, fact=value)
    log.warning(EVIL)
    log.error(value, EVIL)
    assert is_printable(said().replace("\n", "").replace("\t", ""))
    heads = [line for line in said().split("\n") if line and not line.startswith(("\t", " >"))]
    assert len(heads) == 3


def test_a_value_is_quoted_as_go_does():
    log, said = a_log()
    log.info(0, "It is so", fact=EVIL)
    assert said().endswith(f'fact="{QUOTED}"\n')


def test_messages_of_plugins_and_servers_are_truncated_but_tracebacks_are_not():
    log, said = a_log()
    log.error("x" * 1_000_000, "Error scheduling pod; retrying")
    log.info(0, "Unable to schedule pod; no fit; waiting", err="x" * 1_000_000)
    log.warning("x" * 1_000_000)
    log.error(InputError(*["y" * 300] * 20), "command failed")
    relay = adopt_other_loggers(log)
    try:
        logging.getLogger("my_plugin").warning("z" * 1_000_000)
        try:
            raise ValueError("w" * 1_000_000)
        except ValueError:
            logging.getLogger("my_plugin").exception("no zones")
    finally:
        logging.getLogger().removeHandler(relay)
        logging.getLogger().setLevel(logging.WARNING)
    *cut, faults, message, traced = re.split(r"\n(?=[IWE]\d{4})", said().rstrip("\n"))
    assert ["(1000000 characters)" in line for line in cut] == [True] * 3
    assert max(map(len, cut)) < 2200
    assert faults.count("y" * 300) == 20
    assert len(message) < 1200
    assert "\tTraceback" in traced
    assert len(traced) < 3000


def test_a_split_log_has_only_errors_on_standard_error(capsys):
    log = Klog(splits=True)
    log.info(0, "fine")
    log.warning("odd")
    log.error(None, "wrong")
    said = capsys.readouterr()
    assert [line.rpartition("] ")[2] for line in said.out.splitlines()] == ['"fine"', "odd"]
    assert [line.rpartition("] ")[2] for line in said.err.splitlines()] == ['"wrong"']
