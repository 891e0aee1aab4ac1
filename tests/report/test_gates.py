"""Gates: what texts mean, when they fail, and the formats that pipelines read."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import pytest

from moorage.errors import InputError
from moorage.laboratory.compare.paired_metrics import compare_pairs
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
from moorage.report.gates import GateResult, MetricComparison, PipelineGate, evaluate, evaluate_all, parse_gate
from moorage.report.run_values import UnplacedPod

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


def compared(a, b):
    """Return a comparison of one run, or of five if ``b`` lists their values."""
    of_b = b if isinstance(b, list) else [b]
    return compare_pairs("m", [a] * len(of_b), of_b)


UNSURE = compared(10.0, [11.0, 12.0, 12.0, 12.0, 13.0])  # the interval is 1.12 to 2.88
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
    "both never": ("m > +10%", compared(math.inf, math.inf), True, True),
    "never now": ("m > +10%", compared(5.0, math.inf), False, False),
    "not never any more": ("m > +10%", compared(math.inf, 5.0), True, True),
}


@pytest.mark.parametrize(("gate", "metric", "passes", "strictly"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts(gate, metric, passes, strictly):
    assert evaluate(parse_gate(gate), {"m": metric}).passed is passes
    assert evaluate(parse_gate(gate), {"m": metric}, strict=True).passed is strictly


SEEDS = {  # A and B with each seed, and whether ``m > +0`` passes
    "one run": ([1], [2], False),
    "two runs that do not depend on the seed": ([1, 1], [2, 2], False),
    "two runs that do": ([1, 2], [2, 3], True),
    "four equal differences": ([1, 2, 3, 4], [2, 3, 4, 5], True),
    "five equal differences": ([1, 2, 3, 4, 5], [2, 3, 4, 5, 6], False),
    "three differences of one sign": ([0, 0, 0], [1, 2, 3], True),
    "three that are far from 0": ([0, 0, 0], [10, 11, 12], False),
    "never in all of five": ([1, 2, 3, 4, 5], [math.inf] * 5, False),
    "never in four of five": ([1, 2, 3, 4, 5], [math.inf] * 4 + [5], True),
}


@pytest.mark.parametrize(("a", "b", "passes"), SEEDS.values(), ids=SEEDS)
def test_few_runs(a, b, passes):
    assert evaluate(parse_gate("m > +0"), {"m": compare_pairs("m", a, b)}).passed is passes


def test_many_gates_fail_as_rarely_as_one():
    """Holm: the same figures fail one gate, and of three gates only if they are certain enough for three."""
    weak = compare_pairs("weak", [0.0] * 5, [-0.1, 1.0, 2.0, 2.5, 3.0])
    strong = compare_pairs("strong", [0.0] * 5, [1.0, 1.1, 1.2, 1.1, 1.0])
    metrics = {"weak": weak, "strong": strong, "none": compare_pairs("none", [0.0] * 5, [-1.0, 1.0, 0.5, -0.5, 0.1])}
    gates = [parse_gate(f"{name} > +0") for name in metrics]
    assert not evaluate(gates[0], metrics)
    together = evaluate_all(gates, metrics)
    assert [one.passed for one in together] == [True, False, True]
    assert together[0].text.endswith("the gate is weak > +0, and with 3 gates that may be chance")


def test_a_share_of_a_is_taken_pair_by_pair():
    """B is 10 % above A in every run, within a little, while A varies widely."""
    a = [10.0, 100.0, 1000.0, 50.0, 500.0]
    b = [12.1, 121.0, 1211.0, 60.0, 601.0]
    metrics = {"m": compare_pairs("m", a, b)}
    assert not evaluate(parse_gate("m > +10%"), {"m": compare_pairs("m", [10, 11, 10, 11, 10], [12, 13, 12.1, 13.1, 12.2])})
    assert evaluate(parse_gate("m > +25%"), metrics)


def test_figures_say_how_many_runs_there_are():
    gate = parse_gate("m > +9")
    assert "difference +1 (one run);" in evaluate(gate, {"m": compared(1.0, 2.0)}).text
    assert "difference +1 (exact, n=5);" in evaluate(gate, {"m": compared(1.0, [2.0] * 5)}).text
    assert "(95% interval +1.122 … +2.878, n=5, p=0.062);" in evaluate(gate, {"m": UNSURE}).text


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
