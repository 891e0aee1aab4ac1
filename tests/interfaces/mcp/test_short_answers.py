"""What agents get: few words, whole reasons, changes that can be given back, and bounded sizes."""

import asyncio
import importlib.util
import json
import re
from pathlib import Path

import pytest

from moorage.errors import InputError
from moorage.interfaces.mcp.answers import ClusterView, part_of, tool_names, without_options
from moorage.interfaces.web.question_processes import _errors_in
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.edit.what_if import read_changes
from moorage.report.style import _for_agents, write_for_agents
from tests.interfaces.mcp.test_mcp import inside, said_by, talk

pytest.importorskip("mcp")

ROOT = Path(__file__).parents[3]
REPORTS = ROOT / "tests" / "reports" / "gate"
#: A word of the command line, in a line that is no command of kubectl.
OF_OTHERS = "kubectl|use --force|--ignore-daemonsets|flag +unknown|--delete-emptydir-data"
OPTION = re.compile(rf"^(?!.*(?:{OF_OTHERS})).*?(?<![\w-])(?:--[a-z]|-o wide).*$", re.MULTILINE)


def grader():
    spec = importlib.util.spec_from_file_location("agent_tasks_grade_again", ROOT / "examples/agent-tasks/grade.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_tools_together_take_few_tokens():
    from moorage.interfaces.mcp.server import INSTRUCTIONS, make_server

    tools = asyncio.run(make_server(None, None).list_tools())
    texts = [json.dumps([one.name, one.description, one.input_schema], separators=(",", ":")) for one in tools]
    assert {one.name for one in tools} == tool_names()
    assert (sum(map(len, texts)) + len(INSTRUCTIONS)) / 4 <= 2500  # four characters of such texts are about a token
    assert "deployment/web cpu=500m" in INSTRUCTIONS
    assert sum("deployment/web cpu=500m" in text for text in texts) == 0


@pytest.mark.parametrize("name", ["grader-simulate-unsafe", "grader-add-nodes"])
def test_what_tools_offer_can_be_graded(name):
    found = grader().grade(json.loads((REPORTS / f"{name}.json").read_text()))
    assert found.parts["safety"] == 1.0, found
    assert not [why for why in found.why if "cannot be made" in why or "may change" in why], found


def test_every_tool_is_known_to_change_nothing():
    assert {*tool_names(), "read_resource"} == grader().READ_ONLY


CHANGES = {
    "nodes to add": "add 2 nodes like general-c2",
    "a node to cordon": "cordon general-a1",
    "nodes to remove": "remove nodes general-c2",
    "a scale": "scale deployment/web=2",
    "an edit": "node/general-c2 unschedulable=false",
    "a document": {
        "owner": "node",
        "verb": "uncordon",
        "target": "node/general-c2",
        "path": "unschedulable",
        "old": True,
        "new": False,
    },
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_form_of_a_change_is_read(change):
    made = read_changes([change])
    assert bool(made)
    cluster = Cluster.read(ROOT / "examples/demo")
    assert made.changed(cluster.input()).nodes
    cluster.apply(*made.object_edits)


@pytest.mark.slow
def test_the_changes_of_an_answer_can_be_given_back():
    async def conversation(client):
        found = (await said_by(client, "explain", pods=["search-2"]))[1]
        entries = [json.loads(line.partition("changes: ")[2]) for line in found.splitlines() if "changes: " in line]
        tried = [await said_by(client, "explain", pods=["search-2"], changes=one) for one in entries]
        return found, entries, tried

    found, entries, tried = talk(conversation, "-f", "examples/demo")
    assert ["node/general-c2 unschedulable=false"] in entries
    assert "kubectl uncordon general-c2" in found
    assert [text for is_error, text in tried if is_error or "search-2 is on " not in text] == []


@pytest.mark.slow
def test_answers_have_no_words_of_the_command_line_and_whole_reasons():
    async def conversation(client):
        found = [
            await said_by(client, name, **arguments)
            for name, arguments in (
                ("overview", {}), ("explain", {}), ("explain", {"pods": ["warehouse"]}), ("simulate", {}), ("survive", {}),
                ("drain", {"nodes": ["general-a1"]}), ("capacity", {"workload": "deployment/web"}),
                ("fail", {"zone": "zone-a"}),
                ("cordon", {"nodes": ["general-a1"]}), ("compare", {"b_release": "1.35"}), ("plan", {"consolidate": True}),
            )
        ]  # fmt: skip
        bad = await said_by(client, "compare", b_configuration=(REPORTS / "badconf.yaml").read_text())
        late = await said_by(client, "overview", at="-10m")
        return found, bad, late

    found, bad, late = talk(conversation, "-f", "examples/demo")
    assert [text for is_error, text in found if is_error] == []
    assert [line[0] for _, text in found for line in OPTION.finditer(text)] == []
    assert bad[0]
    assert 'unknown field "percentageOfNodesToScor"; did you mean "percentageOfNodesToScore"?' in bad[1]
    assert late[0]
    assert "this cluster is one moment" in late[1]


def test_the_lines_that_follow_an_error_belong_to_it():
    lines = ["note: x", "error: B: bad.yaml: cannot be used:", "  a: unknown field", "  b: wrong", "See 'moorage --help'"]
    assert _errors_in(lines) == ["B: bad.yaml: cannot be used:", "a: unknown field", "b: wrong"]
    assert _errors_in(["  indented", "note: x"]) == []


HINTS = {
    "(-o wide lists every pod)": "",
    "and 3 more (use -o wide for all)": "and 3 more",
    "4 more changes: -o wide": "4 more changes",
    "Verified by the engine. More: -o wide": "Verified by the engine.",
    "helps with nodes like those. Other nodes:\n  --types FILE\n\nVerified": "helps with nodes like those.\n\nVerified",
    "helps with nodes like those.\n  Other nodes: --types FILE": "helps with nodes like those.",
    "like those. Other nodes: --types FILE (a Node\n  manifest; moorage help plan)\n\nVerified": "like those.\n\nVerified",
    "than the default one\n  (give --config and --plugins).": "than the default one.",
    "that is all (-o wide for\n    the rest)": "that is all",
    "kubectl scale deployment web --replicas=3": "kubectl scale deployment web --replicas=3",
}


@pytest.mark.parametrize(("text", "shown"), HINTS.items())
def test_hints_about_options_are_left_out(text, shown):
    assert without_options(text) == shown


def test_a_long_text_comes_in_parts():
    text = "".join(f"line {number}\n" for number in range(50))
    parts, number = [], 1
    while True:
        found = part_of(text, number, 100, "moorage://answers/1/json")
        parts.append(inside(found))
        assert len(parts[-1]) <= 100
        if "the next: " not in found:
            break
        number += 1
        assert f"moorage://answers/1/json/{number}" in found
    assert "\n".join(parts).split() == text.split()
    assert part_of("short", 1, 100, "x") == "<cluster-data>\nshort\n</cluster-data>"
    for wrong in (0, number + 1):
        with pytest.raises(InputError, match="no part"):
            part_of(text, wrong, 100, "x")


def test_pods_of_a_node_and_sums():
    cluster = Cluster.read(ROOT / "examples/demo")
    cluster.run()
    view = ClusterView(lambda: cluster, live=False)

    def find(**given):
        return asyncio.run(view.find("pods", "", "", "", **given))

    every = find()
    of_nodes = [find(node=name) for name in cluster.nodes["name"].tolist()]
    assert sum(map(len, of_nodes)) == sum(" node=- " not in line for line in every)
    for name, lines in zip(cluster.nodes["name"].tolist(), of_nodes, strict=True):
        assert all(f" node={name} " in line for line in lines)
    for by in ("namespace", "owner", "node"):
        lines = find(by=by)
        assert sum(int(re.search(r"pods=(\d+)", line)[1]) for line in lines) == len(every)
        assert sum(int(re.search(r"pending=(\d+)", line)[1]) for line in lines) == len(find(only_pending=True))
    assert any(line.startswith("default/Deployment/web pods=6 ") for line in find(by="owner"))


def test_texts_for_agents_are_asked_for():
    token = _for_agents.set(False)
    try:
        write_for_agents()
        assert _for_agents.get()
    finally:
        _for_agents.reset(token)


@pytest.mark.slow
def test_an_agent_names_what_to_leave_alone_gets_usage_of_the_server_and_hears_progress(tmp_path):
    usage = tmp_path / "top.txt"
    usage.write_text("NAMESPACE NAME CPU(cores) MEMORY(bytes)\ndefault b 100m 100Mi\n")
    heard = []

    async def hear(progress, total, message):
        heard.append((progress, message))

    async def conversation(client):
        alone = await said_by(client, "explain", pods=["new"], doNotTouch=["pods:default/b"])
        wrong = await said_by(client, "explain", pods=["new"], doNotTouch=["b"])
        fitting = await said_by(client, "rightsize")
        answer = await client.call_tool("survive", {}, progress_callback=hear)
        return alone, wrong, fitting, answer.is_error

    alone, wrong, fitting, failed = talk(
        conversation, "-f", str(REPORTS / "the-budget-forbids-to-make-room.yaml"), "--usage", str(usage)
    )
    assert not alone[0], alone
    assert "shrink" in alone[1]
    assert "priority-1" not in alone[1]
    assert wrong[0]
    assert "write pods:, namespaces: or nodes:" in wrong[1]
    assert not fitting[0], fitting
    assert not failed
    assert [number for number, _ in heard] == sorted(number for number, _ in heard)


@pytest.mark.slow
def test_without_usage_of_the_server_the_agent_is_asked_for_it():
    async def conversation(client):
        return await said_by(client, "rightsize")

    failed, text = talk(conversation, "-f", "examples/demo")
    assert failed
    assert "give usage" in text
