"""What all question commands share: changes made first, live input, the envelope, exit statuses."""

from __future__ import annotations

import json

import pytest
import yaml

from moorage.api.core import Node
from moorage.api.meta import ObjectMeta
from moorage.errors import InputError
from moorage.interfaces.cli.main import main
from moorage.interfaces.cli.questions.question import exit_status
from moorage.laboratory.compare.input_digest import input_digest
from moorage.laboratory.edit.what_if import InputChanges, parse_added_nodes
from moorage.report.answer import Answer, AnswerRequest
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read
from tests.interfaces.cli.test_explain import DEMO, SCHEMA
from tests.interfaces.cli.test_simulate_output import violations


@pytest.fixture
def explained(capsys):
    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(["explain", *args, "-f", DEMO, "--probes", "0"])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


UNCORDON = "node/general-c2 unschedulable=false"


def test_an_edit_is_shown_before_and_after(explained):
    status, out, _ = explained("search-2", "--edit", UNCORDON)
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "default/search-2 is on general-a1 because it is the only one of 8 nodes that fits."
    assert lines[1].startswith("  before: default/search-2 is pending: ")
    assert f"  with the changes: {UNCORDON}" in lines


def test_the_document_has_the_changes_and_the_answer_before(explained):
    _, out, _ = explained("search-2", "--edit", UNCORDON, "-o", "json")
    document = json.loads(out)
    assert document["question"] == {"explain": "default/search-2", "changes": [UNCORDON]}
    assert (document["answer"]["outcome"], document["before"]["answer"]["outcome"]) == ("placed", "pending")
    assert document["input"]["digest"] == input_digest(read([DEMO]))
    assert document["input"]["files"] == [DEMO]
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []


OUTCOMES = {  # options, pod, its outcome, what the first line says
    "added nodes are not cordoned": (["--add-nodes", "like=general-c2,count=2"], "search-2", 0, "is on general-"),
    "a cordon by label": (["--cordon", "disk=ssd"], "search-0", 2, "is pending"),
    "a cordon by name": (["--cordon", "general-b1"], "search-0", 0, "is on general-a1"),
    "pods of a removed node come back": (["--remove-nodes", "general-b1"], "search-0", 0, "is on general-a1"),
    "a plugin switched off": (["--edit", "config/default-scheduler/NodeAffinity disable"], "search-2", 0, "is on general-"),
    "a workload with fewer pods": (["--scale", "sts/search=1", "--cordon", "general-b1"], "search-0", 0, "is on general-a1"),
    "edits come last": (["--cordon", "general-c2", "--edit", UNCORDON], "search-2", 0, "is on general-"),
}


def test_all_shows_what_the_changes_place(explained):
    status, out, _ = explained("--all", "--edit", UNCORDON, "-o", "json")
    answers = {one["answer"]["pod"]: one for one in json.loads(out)["items"]}
    assert (status, answers["default/search-2"]["answer"]["outcome"]) == (2, "placed")
    assert answers["default/search-2"]["before"]["answer"]["outcome"] == "pending"
    assert answers["default/warehouse"]["answer"]["outcome"] == "pending"


def test_a_pod_that_only_the_changes_add(explained, tmp_path):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "new"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    (tmp_path / "new.json").write_text(json.dumps(pod))
    status, out, _ = explained("new", "--replace", str(tmp_path / "new.json"), "-o", "json")
    assert (status, "before" in json.loads(out)) == (0, False)


@pytest.mark.parametrize(("options", "pod", "status", "says"), OUTCOMES.values(), ids=OUTCOMES)
def test_changes_are_made_before_the_question_is_asked(explained, options, pod, status, says):
    found, out, _ = explained(pod, *options)
    assert (found, says in out.splitlines()[0]) == (status, True), out


MISTAKES = {  # options, what the error says
    "no such node": (["--cordon", "pool=gone"], "--cordon pool=gone: no node has this name or matches this selector"),
    "no selector": (["--remove-nodes", "a=b=c"], "--remove-nodes a=b=c: no node has this name, and it is no label selector"),
    "no pattern": (["--add-nodes", "count=2"], "write like=NODE,count=N"),
    "an unknown pattern": (["--add-nodes", "like=gone"], "node/gone: no such node"),
    "all nodes removed": (["--remove-nodes", "kubernetes.io/hostname"], "--remove-nodes removes all nodes"),
    "an unknown field": (["--edit", "node/general-c2 size=4"], "unknown field of a node"),
    "an edit of another kind": (
        ["--edit", "service/web replicas=6"],
        "edits change a pod, a node, a workload or config, not a service",
    ),
    "a context without --live": (["--context", "prod"], "add --live to ask the cluster that --kubeconfig or --context names"),
    "no size": (["--scale", "sts/search"], "write KIND/NAME=N or KIND/NAMESPACE/NAME=N"),
    "no such workload": (["--scale", "deployment/gone=3"], "deployment/gone=3: the input has no such workload"),
    "a similar workload": (["--scale", "sts/serach=3"], "serach=3: the input has no such workload; close: search"),
    "a similar node": (
        ["--cordon", "generl-b1"],
        "no node has this name or matches this selector; close: general-b1",
    ),
    "a similar pod": (["--edit", "pod/serach-2 cpu=1"], "there is no pod/default/serach-2; close: pod/default/search-2"),
    "a kind without replicas": (["--scale", "daemonset/x=3"], "a DaemonSet has a pod on each node"),
    "no such file": (["--replace", "gone.yaml"], "gone.yaml: No such file"),
}


@pytest.mark.parametrize(("options", "says"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_explained(explained, options, says):
    status, out, err = explained("search-2", *options)
    assert (status, out, says in err) == (1, "", True), err


def test_added_nodes_take_free_names():
    nodes = tuple(Node(metadata=ObjectMeta(name=name, uid=name)) for name in ("a", "a-new-1"))
    changed = InputChanges(added=(parse_added_nodes("like=a,count=2"),)).changed(ClusterInput(nodes=nodes))
    assert [node.name for node in changed.nodes] == ["a", "a-new-1", "a-new-2", "a-new-3"]


@pytest.mark.parametrize("text", ["", "like=", "like=a,count=0", "like=a,count=x", "like=a,number=2"])
def test_bad_descriptions_of_added_nodes(text):
    with pytest.raises(InputError):
        parse_added_nodes(text)


class Said(Answer, frozen=True, kw_only=True):
    KIND = "Said"

    yes: bool | None

    @property
    def holds(self):
        return self.yes


@pytest.mark.parametrize(("yes", "status"), [((True,), 0), ((True, False), 2), ((None, False), 2), ((True, None), 3), ((), 0)])
def test_exit_statuses(yes, status):
    assert exit_status(*(Said(request=AnswerRequest(release="1.36"), summary="", yes=one) for one in yes)) == status


def test_the_digest_depends_on_objects_alone(tmp_path):
    cluster = read([DEMO])
    again = read([DEMO])
    assert input_digest(cluster) == input_digest(again)
    fewer = ClusterInput(nodes=cluster.nodes[1:], pods=cluster.pods)
    assert input_digest(fewer) != input_digest(ClusterInput(nodes=cluster.nodes, pods=cluster.pods))


def test_the_digest_is_that_of_the_same_objects_in_json(tmp_path):
    waiting = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
    documents = [waiting, {**waiting, "metadata": {"name": "b"}, "status": {}}]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all(documents))
    (tmp_path / "a.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    assert input_digest(read([tmp_path / "a.yaml"])) == input_digest(read([tmp_path / "a.json"]))


def test_a_text_says_when_the_cluster_was_read_and_what_was_not(moorage, tmp_path):
    record = {
        "apiVersion": "moorage.dev/v1", "kind": "DumpRecord", "takenAt": "2026-01-02T03:04:05+00:00",
        "server": "https://here", "notRead": [{"kind": "resourceslices", "why": "forbidden"}],
    }  # fmt: skip
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps(record))
    said = moorage("explain", "search-2", "-f", str(DEMO), "-f", str(dump)).out.splitlines()
    assert said[-2:] == ["Taken from https://here at 2026-01-02T03:04:05+00:00.", "Resourceslices were not read: forbidden."]
    assert "Taken" not in moorage("explain", "search-2", "-f", str(DEMO)).out


ROOM = "status: {allocatable: {cpu: '4', pods: '9'}}"
LONG_NAMES = "\n---\n".join(
    f"{{apiVersion: v1, kind: Node, metadata: {{name: {name}.eu.example.internal}}, {ROOM}}}"
    for name in ("worker-1", "worker-2", "worker-21")
)
NAMED = {  # command, exit status, what is printed
    "cordon": (["cordon", "worker-2"], 0, "worker-2"),
    "drain": (["drain", "worker-2"], 0, "worker-2.eu.example.internal"),
    "fail": (["fail", "worker-2"], 0, "worker-2.eu.example.internal"),
    "an option": (["report", "--cordon", "worker-2"], 0, "2 of 3 nodes take pods"),
    "the whole name": (["drain", "worker-2.eu.example.internal"], 0, "worker-2.eu.example.internal"),
    "a typing error": (
        ["drain", "worker-20"],
        1,
        "no node has the name 'worker-20'; close: worker-2.eu.example.internal, worker-21.",
    ),
}


@pytest.mark.parametrize(("command", "status", "says"), NAMED.values(), ids=NAMED)
def test_a_node_is_named_as_answers_write_it(moorage, tmp_path, command, status, says):
    """Answers leave out the end that the names of all nodes share."""
    (tmp_path / "nodes.yaml").write_text(LONG_NAMES)
    ran = moorage(*command, "-f", str(tmp_path / "nodes.yaml"))
    assert (ran.status, says in ran.out + ran.err) == (status, True), ran
