"""An object of a dump that cannot be read is named in a warning, and the status is that of the answer."""

import json

import pytest

NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}  # fmt: skip
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip
BAD = {**POD, "metadata": {"name": "bad"}, "spec": {**POD["spec"], "priority": "many"}}
FAULT = 'Pod bad: spec.priority: expected int, found str "many"'
WARNING = f"warning: left out, as it cannot be read: dump.json:1: {FAULT}"
POLICY = "apiVersion: moorage.dev/v1\nkind: CheckPolicy\nrules:\n- noPending: {newOnly: true}\n"

#: Command → its status.
COMMANDS = {
    "simulate -f dump.json": 0,
    "simulate -f dump.json -o json": 0,
    "simulate -f full.json": 2,
    "explain web -f dump.json": 0,
    "explain --pending -f full.json": 2,
    "compare -f dump.json --b-release 1.35": 0,
    "report -f dump.json": 0,
    "drain n1 -f dump.json": 2,
    "survive -f dump.json": 0,
    "check --policy policy.yaml -f dump.json": 0,
    "redact -f dump.json --key key -o hidden.json": 0,
}


def a_list(*items):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump.json").write_text(a_list(NODE, BAD, POD))
    waiting = {**POD, "spec": {**POD["spec"], "nodeSelector": {"disk": "fast"}}}
    (tmp_path / "full.json").write_text(a_list(NODE, BAD, waiting))
    (tmp_path / "sound.json").write_text(a_list(NODE, POD))
    (tmp_path / "change.json").write_text(a_list(BAD))
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "key").write_text("0123456789abcdef")
    return tmp_path


@pytest.mark.parametrize(("command", "status"), COMMANDS.items(), ids=COMMANDS)
def test_the_rest_goes_on(moorage, folder, command, status):
    ran = moorage(*command.split())
    assert ran.status == status, ran.err
    warning = WARNING.replace("dump.json", "full.json") if "full.json" in command else WARNING
    assert warning in ran.err
    if command.endswith("json -o json"):
        assert warning.removeprefix("warning: ") in {one["text"] for one in json.loads(ran.out)["notes"]}


@pytest.mark.parametrize(
    "command",
    [
        "check --policy policy.yaml -f sound.json -f change.json",
        "simulate -f sound.json --replace change.json",
    ],
)
def test_a_change_is_not_left_out(moorage, folder, command):
    ran = moorage(*command.split())
    assert ran.status == 1
    assert ran.err.startswith(f"error: change.json:1: {FAULT}")
