"""SIGTERM ends commands that answer, serve or search in time: what was found is printed, and nothing is left."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.fresh_process]
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip


class Command:
    """A command that runs, with a temporary folder of its own."""

    def __init__(self, folder, *words):
        self.folder = folder / "tmp"
        self.folder.mkdir()
        self.said = folder / "said"
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moorage", *map(str, words)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=said, env={**os.environ, "TMPDIR": str(self.folder)}, text=True,
            )  # fmt: skip

    def until(self, text, within_s=60):
        ends = time.monotonic() + within_s
        while text not in self.said.read_text():
            assert self.process.poll() is None, self.said.read_text()
            assert time.monotonic() < ends, self.said.read_text()
            time.sleep(0.05)

    @property
    def children(self):
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid and fields[0] != "Z":
                found.append(int(path.parent.name))
        return found

    def end(self):
        """Send SIGTERM; return the exit status and what was printed. Nothing is left: no process, no temporary file."""
        children = self.children
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=30)
        ends = time.monotonic() + 10
        while (alive := [one for one in children if Path(f"/proc/{one}").exists()]) and time.monotonic() < ends:
            time.sleep(0.05)
        assert alive == []
        assert list(self.folder.iterdir()) == []
        return self.process.returncode, out


def ask(command, message):
    command.process.stdin.write(json.dumps(message) + "\n")
    command.process.stdin.flush()
    return json.loads(command.process.stdout.readline())


def test_an_idle_server_of_tools(tmp_path):
    command = Command(tmp_path, "mcp", "-f", "examples/demo")
    assert ask(command, HELLO)["id"] == 1
    assert command.end()[0] == 143


def test_a_server_of_tools_that_works_on_a_question(tmp_path):
    command = Command(tmp_path, "mcp", "-f", "examples/demo")
    assert ask(command, HELLO)["id"] == 1
    call = {"name": "survive", "arguments": {}}
    tools = ask(command, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})["result"]["tools"]
    assert "survive" in {one["name"] for one in tools}
    command.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}) + "\n")
    command.process.stdin.flush()
    assert command.end()[0] == 143


def test_a_served_report(tmp_path):
    command = Command(tmp_path, "report", "-f", "examples/demo", "--serve", "--port", "0")
    line = ""
    while "http" not in line:
        line = command.process.stdout.readline()
        assert line, command.said.read_text()
    assert re.search(r"https?://127\.0\.0\.1:\d+", line)
    assert command.end()[0] == 143  # as ``mcp``, and as all that answers questions


def a_cluster(path, nodes=200, pods=4000):
    made = [
        {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": f"n{i}", "labels": {"topology.kubernetes.io/zone": f"z{i % 3}"}},
            "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
        }
        for i in range(nodes)
    ]  # fmt: skip
    made += [
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"p{i}", "namespace": "default", "labels": {"app": f"a{i % 40}"}, "uid": f"u{i}",
                         "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"a{i % 40}",
                                              "uid": f"r{i % 40}", "controller": True}]},
            "spec": {"nodeName": f"n{i % nodes}",
                     "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": f"{500 + i % 7 * 20}m"}}}]},
            "status": {"phase": "Running"},
        }
        for i in range(pods)
    ]  # fmt: skip
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_search_prints_what_it_found(tmp_path, processes):
    a_cluster(tmp_path / "cluster.json")
    command = Command(
        tmp_path, "survive", "-f", tmp_path / "cluster.json", "--depth", 2, "--probes", 0, "--time-limit", 600, "--progress",
        "--processes", processes,
    )  # fmt: skip
    command.until("loss")
    time.sleep(1.0)
    status, out = command.end()
    assert status == 143
    assert "loss" in out, command.said.read_text()
