"""What ``moorage simulate`` prints: documents that keep to their schema, tables, decisions; the same bytes every time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from moorage.interfaces.cli.terminal import print_styled

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs/reference/simulation-report.schema.json").read_text())
DEMO = ["simulate", "-f", str(ROOT / "examples/demo")]
TRACE = [
    "simulate", "--trace", "openb", "--nodes", str(ROOT / "examples/trace-openb/nodes.csv"),
    "--pods", str(ROOT / "examples/trace-openb/pods.csv"),
]  # fmt: skip

# -- the part of JSON Schema that ours is written in ---------------------------------------------------------------------

TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
}  # fmt: skip
KNOWN = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "minimum", "$ref"}
SAID = {"description", "title", "$schema", "$defs"}


def violations(value, schema, path="$", root=SCHEMA):
    """Yield every place where a value breaks the schema."""
    assert set(schema) <= KNOWN | SAID, f"{path}: the checker does not know {set(schema) - KNOWN - SAID}"
    if "$ref" in schema:
        yield from violations(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], path, root)
    if isinstance(schema.get("type"), list):
        kinds = [{**schema, "type": kind} for kind in schema["type"]]
        if not any(list(violations(value, kind, path, root)) == [] for kind in kinds):
            yield f"{path}: {value!r} is none of {schema['type']}"
        return
    wanted = TYPES.get(schema.get("type", ""), object)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted not in (object, bool)):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value!r} is below {schema['minimum']}"
    if isinstance(value, dict):
        yield from (f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        other = schema.get("additionalProperties", True)
        for name, part in value.items():
            inside = schema.get("properties", {}).get(name, other)
            if inside is False:
                yield f"{path}: {name} is unknown"
            elif inside is not True:
                yield from violations(part, inside, f"{path}.{name}", root)
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from violations(part, schema.get("items", {}), f"{path}[{index}]", root)


BROKEN = {
    "a wrong type": (["seed"], "7"), "a truth for a number": (["seed"], True), "a negative count": (["summary", "nodes"], -1),
    "another state": (["pods", 0, "state"], "Lost"), "an unknown field": (["pods", 0, "colour"], "red"),
    "another version": (["apiVersion"], "v2"), "an amount that is text": (["pods", 0, "requests", "cpu"], "1"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "value"), BROKEN.values(), ids=BROKEN)
def test_the_checker_sees(moorage, path, value):
    report = json.loads(moorage(*DEMO, "-o", "json").out)
    *way, last = path
    inside = report
    for step in way:
        inside = inside[step]
    inside[last] = value
    assert len(list(violations(report, SCHEMA))) == 1


def test_the_checker_misses_what_is_missing(moorage):
    report = json.loads(moorage(*DEMO, "-o", "json").out)
    del report["pods"][0]["name"]
    assert list(violations(report, SCHEMA)) == ["$.pods[0]: name is missing"]


# -- documents ------------------------------------------------------------------------------------------------------------

CLAIMS = ROOT / "tests/data/claims"
RUNS = {
    "a cluster": DEMO, "with decisions": [*DEMO, "--events"], "a trace": TRACE, "a trace that fills": [*TRACE, "--stay"],
    "volumes": ["simulate", "-f", str(CLAIMS / "volumes.yaml")],
    "devices": ["simulate", "-f", str(CLAIMS / "devices.yaml")],
    "pods that a quota refuses": ["simulate", "-f", str(ROOT / "tests/data/quota.yaml")],
}  # fmt: skip


@pytest.mark.parametrize("args", RUNS.values(), ids=RUNS)
def test_documents_keep_to_the_schema_and_say_the_same(moorage, args):
    report = json.loads(moorage(*args, "-o", "json").out)
    assert list(violations(report, SCHEMA)) == []
    assert yaml.safe_load(moorage(*args, "-o", "yaml").out) == report
    assert ("events" in report) is ("--events" in args)
    for state, count in report["summary"]["pods"].items():
        assert count == sum(pod["state"].lower() == state for pod in report["pods"])


def test_pods_that_a_quota_refuses(moorage):
    args = ["simulate", "-f", str(ROOT / "tests/data/quota.yaml")]
    said = moorage(*args)
    assert said.status == 2
    assert said.out.startswith("3 placed, 2 not created on 1 node (")
    assert 'Not created:\n  default Deployment/web: 2 of 5 pods\n    pods "web-' in said.out
    assert moorage(*args, "--no-quota").status == 0
    report = json.loads(moorage(*args, "-o", "json").out)
    assert report["summary"]["notCreated"] == 2
    (entry,) = report["notCreated"]
    assert (entry["workload"], entry["wanted"], entry["quota"]) == ("Deployment/web", 5, "compute")
    assert entry["resources"] == [{"resource": "cpu", "requested": "3", "used": "9", "hard": "10"}]


def test_the_page_on_the_document_names_every_field():
    page = (ROOT / "docs/reference/simulation-report.md").read_text()

    def names(schema):
        for name, part in schema.get("properties", {}).items():
            yield name
            yield from names(part)
        for part in (*schema.get("$defs", {}).values(), *filter(None, [schema.get("items")])):
            yield from names(part)
        if isinstance(schema.get("additionalProperties"), dict):
            yield from names(schema["additionalProperties"])

    assert {name for name in names(SCHEMA) if f"`{name}`" not in page} == set()


def test_what_a_trace_held_at_most(moorage):
    resources = json.loads(moorage(*TRACE, "-o", "json").out)["summary"]["resources"]
    assert resources["pods"] == {"allocatable": 440, "requested": 0, "peak": 5}
    # Each training task takes all GPUs of its node, and begins in the second in which the last of the small ones ends.
    assert resources["alibabacloud.com/gpu-milli"] == {"allocatable": 12000, "requested": 0, "peak": 8000}


# -- text -------------------------------------------------------------------------------------------------------------------


def test_the_table_shows_nodes_reasons_and_utilization(moorage):
    ran = moorage(*DEMO)
    assert (ran.status, ran.err) == (2, "")
    assert ran.out.startswith("19 placed, 2 pending, 1 preempted on 8 nodes (kube-scheduler 1.37 semantics, seed 0)\n")
    lines = ran.out.splitlines()
    assert "1 pod waited for its place: 30s of simulated time" in lines
    pending = lines[lines.index("  default/warehouse") + 1]
    assert pending == "    0/8 nodes are available: 5 Insufficient cpu, 5 Insufficient memory,"
    assert "default     training-interruptible   gpu-a1   default/inference   -" in lines
    assert "nvidia.com/gpu             4           4   100.0%" in lines
    assert "  2 namespaces not in the input, assumed without labels: kube-system, monitoring" in lines
    assert all(line == line.rstrip() for line in lines)


def test_wide_lists_every_pod_and_every_node(moorage):
    lines = moorage(*DEMO, "-o", "wide").out.splitlines()
    header = lines[lines.index("Placed:") + 1]
    assert header.split() == ["NAMESPACE", "NAME", "NODE", "REQUESTS", "PRIORITY", "SCHEDULER", "ATTEMPTS", "ARRIVED", "PLACED"]
    nodes = lines.index(next(line for line in lines if line.startswith("NODE ")))
    assert [line.split()[0] for line in lines[nodes + 1 : nodes + 9]] == [
        "general-a1", "general-a2", "general-b1", "general-b2", "general-c1", "general-c2", "gpu-a1", "gpu-b1",
    ]  # fmt: skip


def test_colours_are_for_terminals_and_for_those_who_force_them(moorage, monkeypatch):
    plain = moorage(*DEMO).out
    assert "\x1b" not in plain
    for name, value, coloured in (("FORCE_COLOR", "1", True), ("NO_COLOR", "1", False)):
        monkeypatch.setenv(name, value)
        told = moorage(*DEMO).out
        assert ("\x1b[1mPending:\x1b[0m" in told) is coloured
        assert re.sub(r"\x1b\[\d+m", "", told) == plain


def test_errors_start_in_red(moorage, monkeypatch):
    assert moorage("simulate", "-f", "a\x1b[2J").err == "error: a\\x1b[2J: No such file or directory\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert moorage("simulate", "-f", "a\x1b[2J").err == "\x1b[31merror:\x1b[0m a\\x1b[2J: No such file or directory\n"
    assert moorage("simulat").err.startswith("\x1b[31merror:\x1b[0m No such command 'simulat'.")


def test_colours_let_no_other_sequence_pass(capsys):
    print_styled("\x1b[1mbold\x1b[0m \x1b[2J \x1b]0;title\x07 \x1b[8mhidden\n")
    assert capsys.readouterr().out == "\x1b[1mbold\x1b[0m \\x1b[2J \\x1b]0;title\\x07 \\x1b[8mhidden\n"


def test_a_part_of_the_pods_is_listed(moorage):
    told = moorage(*DEMO, "-n", "default", "-l", "app=search", "--events")
    assert told.status == 2
    assert "3 of 22 pods are listed: namespace default; selector app=search" in told.out
    assert {line.split()[2].rpartition("-")[0] for line in told.out.partition("\n\n")[0].splitlines()} == {"default/search"}
    report = json.loads(moorage(*DEMO, "--pod", "search-*", "--pod", "monitoring/*4z", "-o", "json").out)
    assert [pod["name"] for pod in report["pods"]] == ["node-exporter-9pk4z", "search-0", "search-1", "search-2"]
    assert report["summary"] == json.loads(moorage(*DEMO, "-o", "json").out)["summary"]


WRONG_PARTS = {
    "a name that no pod has": (["--pod", "searhc-2"], "--pod searhc-2: the run has no such pod"),
    "no selector": (["-l", "a b"], "--selector: "),
    "an output that has every pod": (["-n", "default", "-o", "junit"], "-n, -l and --pod need -o table, wide, json or yaml"),
}


@pytest.mark.parametrize(("args", "message"), WRONG_PARTS.values(), ids=WRONG_PARTS)
def test_a_part_that_cannot_be_listed(moorage, args, message):
    told = moorage(*DEMO, *args)
    assert (told.status, told.out) == (1, "")
    assert told.err.startswith(f"error: {message}")


def test_decisions_are_one_line_each(moorage):
    decisions, _, rest = moorage(*DEMO, "--events").out.partition("\n\n")
    assert rest.startswith("19 placed")
    lines = decisions.splitlines()
    assert len(lines) == len(json.loads(moorage(*DEMO, "--events", "-o", "json").out)["events"])
    assert lines[0].startswith("    0.000s  FailedScheduling  default/inference  0/8 nodes are available: ")
    assert lines[0].endswith(" Preempts default/training-interruptible on gpu-a1.")
    assert "   30.000s  Scheduled         default/inference  to gpu-a1" in lines


def test_plugin_durations_are_printed_to_standard_error(moorage):
    plain, timed = moorage(*DEMO), moorage(*DEMO, "--timing")
    assert timed.out == plain.out
    header, *rows = timed.err.splitlines()
    assert header.split() == ["POINT", "PLUGIN", "CALLS", "TOTAL", "EACH"]
    assert ["filter", "NodeResourcesFit"] in [row.split()[:2] for row in rows]
