"""Gates: what texts mean, when they fail, and the formats that pipelines read."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import pytest

from moorage.errors import InputError
from moorage.report.gate_outputs import (
    MOST_SUMMARY_BYTES,
    GateReport,
    PendingFinding,
    SourceLine,
    as_github,
    as_junit,
    as_sarif,
    github_summary,
)
from moorage.report.gates import GateResult, MetricComparison, PipelineGate, UnplacedPod, evaluate, parse_gate

TEXTS = {
    "pending > +0": PipelineGate("pending > +0", "pending", ">", 0.0, True),
    "wait.p99>+10%": PipelineGate("wait.p99>+10%", "wait.p99", ">", 0.1, True, True),
    "  wait.p99  >  1.5s": PipelineGate("wait.p99 > 1.5s", "wait.p99", ">", 1.5),
    "wait.p50 > 20ms": PipelineGate("wait.p50 > 20ms", "wait.p50", ">", 0.02),
    "nodesUsed > 40": PipelineGate("nodesUsed > 40", "nodesUsed", ">", 40.0),
    "moved > 5%": PipelineGate("moved > 5%", "moved", ">", 0.05, False, True),
    "utilisation.cpu < -5%": PipelineGate("utilisation.cpu < -5%", "utilisation.cpu", "<", -0.05, True, True),
    "utilisation.nvidia.com/gpu <= 50%": PipelineGate(
        "utilisation.nvidia.com/gpu <= 50%", "utilisation.nvidia.com/gpu", "<=", 0.5, False, True
    ),
    "new-pending": PipelineGate("new-pending", "newPending"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text):
    assert parse_gate(text) == TEXTS[text]


WRONG = {
    "pending": "is no gate", "pending > many": "is no gate", "> 5": "is no gate", "pending > 5s": "is no time",
    "nodesUsed > 40%": "is no share", "pending = 3": "is no gate", "": "is no gate",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_an_invalid_gate_is_rejected(text):
    with pytest.raises(InputError, match=WRONG[text]):
        parse_gate(text)


def compared(a, b, *, name="m", difference=None, interval=None, of_b=None, exact=True):
    found = b - a if difference is None else difference
    ends = (found, found)
    return MetricComparison(name, b, a, found, interval, exact, None, interval or ends, of_b, of_b or (b, b))


UNSURE = compared(10, 12, interval=(1.0, 3.0), of_b=(11.0, 13.0), exact=False)
VERDICTS = {  # gate, metric, passes, passes with --strict
    "no more": ("m > +0", compared(2, 2), True, True),
    "one more": ("m > +0", compared(2, 3), False, False),
    "one less": ("m > +0", compared(3, 2), True, True),
    "at least as many": ("m >= +0", compared(2, 2), False, False),
    "the whole interval is beyond": ("m > +0", UNSURE, False, False),
    "a part of the interval is beyond": ("m > +2", UNSURE, True, False),
    "nothing of the interval is beyond": ("m > +3", UNSURE, True, True),
    "percent of A": ("m > +5%", UNSURE, False, False),
    "a part is beyond a percentage": ("m > +15%", UNSURE, True, False),
    "absolute": ("m > 10", UNSURE, False, False),
    "absolute, a part": ("m > 12", UNSURE, True, False),
    "less than A": ("m < -0", compared(3, 2), False, False),
    "not 10 % less": ("m < -10%", compared(100, 95), True, True),
    "nothing of zero": ("m > +10%", compared(0, 0), True, True),
    "something of zero": ("m > +10%", compared(0, 0.1), False, False),
    "both never": ("m > +10%", compared(math.inf, math.inf, difference=0.0), True, True),
    "never now": ("m > +10%", compared(5.0, math.inf), False, False),
    "not never any more": ("m > +10%", compared(math.inf, 5.0, difference=-math.inf), True, True),
}


@pytest.mark.parametrize(("gate", "metric", "passes", "strictly"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts(gate, metric, passes, strictly):
    assert evaluate(parse_gate(gate), {"m": metric}).passed is passes
    assert evaluate(parse_gate(gate), {"m": metric}, strict=True).passed is strictly


def test_gates_name_missing_figures():
    with pytest.raises(InputError, match="no metric nodesUsd; there are m"):
        evaluate(parse_gate("nodesUsd > 4"), {"m": compared(1, 1), "m%": compared(1, 1)})
    with pytest.raises(InputError, match="give --baseline"):
        evaluate(parse_gate("m > +4"), {"m": MetricComparison("m", 4.0)})


# -- formats --------------------------------------------------------------------------------------------------------------

HOSTILE = "a%b\r\n::error::x,y:z <b>&\x1b[31m|`\x00\ud800"
FAILED = GateResult("pending > +0", False, f"pending: A 0, B 1 {HOSTILE}", "pending")
REPORT = GateReport(
    "compare",
    f"B leaves 1 more pod pending. {HOSTILE}",
    (GateResult("nodesUsed > 40", True, "nodesUsed: 7", "nodesUsed"), FAILED),
    (
        PendingFinding(UnplacedPod("default/old", "", "0/1 nodes", ("NodeResourcesFit",))),
        PendingFinding(UnplacedPod("default/web-1", "Deployment/web", HOSTILE), SourceLine("dir/a,b:c.yaml", 7), True),
    ),
    SourceLine("new.yaml", 3),
    f"everything\n```\n{HOSTILE}",
)


def test_junit_has_a_case_for_each_gate():
    suite = ET.fromstring(as_junit(REPORT)).find("testsuite")
    assert suite is not None
    assert dict(suite.attrib) == {
        "name": "moorage compare", "tests": "2", "failures": "1", "errors": "0", "skipped": "0",
    }  # fmt: skip
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert list(cases) == ["nodesUsed > 40", "pending > +0"]
    (failure,) = cases["pending > +0"]
    assert failure.get("message").startswith("pending: A 0, B 1 a%b")
    assert "default/web-1 is pending and was not before" in failure.text
    assert "(dir/a,b:c.yaml:7)" in failure.text


def test_junit_without_gates_requires_no_pending_pods():
    quiet = GateReport("simulate", "all placed")
    assert ET.fromstring(as_junit(quiet)).get("failures") == "0"
    assert ET.fromstring(as_junit(GateReport("simulate", "one", pending=REPORT.pending))).get("failures") == "1"


def test_sarif_keeps_to_the_rules_of_the_format():
    document = json.loads(as_sarif(REPORT))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        assert result["message"]["text"]
        for location in result["locations"]:
            physical = location.get("physicalLocation")
            assert physical is None or physical["region"]["startLine"] >= 1
            assert physical is None or re.fullmatch(r"[\w./%~-]+", physical["artifactLocation"]["uri"])
    levels = {one["message"]["text"].split()[0]: one["level"] for one in run["results"]}
    assert levels == {"pending:": "error", "default/old": "note", "default/web-1": "error"}
    assert run["results"][2]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "dir/a%2Cb%3Ac.yaml"


def test_github_escapes_and_puts_the_worst_first():
    first, second, last, *rest = as_github(REPORT).splitlines()
    assert rest == []
    assert first.startswith("::error file=new.yaml,line=3,title=gate failed%3A pending > +0::pending: A 0, B 1 a%25b")
    assert "%0A::error::x,y:z" in first
    assert second.startswith("::error file=dir/a%2Cb%3Ac.yaml,line=7,title=pod pending%3A default/web-1::default/web-1")
    assert last.startswith("::warning title=moorage compare::B leaves 1 more pod pending.")
    assert "\x1b" not in as_github(REPORT)


def test_github_shows_ten_errors_and_sums_up_the_rest():
    many = tuple(PendingFinding(UnplacedPod(f"default/p{at}"), is_new=True) for at in range(30))
    lines = as_github(GateReport("simulate", "30 pending", (FAILED,), many)).splitlines()
    assert [line.split()[0] for line in lines] == ["::error"] * 10 + ["::warning"]
    assert lines[-1].endswith("30 pending 21 more are in the step summary.")


def test_the_step_summary_is_markdown_below_its_limit():
    text = github_summary(REPORT)
    assert "| ✗ | pending &gt; +0 |" in text
    assert text.index("pending &gt; +0") < text.index("nodesUsed &gt; 40")
    assert "| new | default/web-1 | dir/a,b:c.yaml:7 |" in text
    assert "<b>" not in text.partition("<details>")[0]
    assert "````\neverything" in text
    large = GateReport("compare", "x", details="y" * 2 * MOST_SUMMARY_BYTES)
    assert len(github_summary(large).encode()) < MOST_SUMMARY_BYTES
