"""The guide from nothing to a plugin on a cluster: its files are those in the tree, and its sessions go as it says."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.ports import reserve_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/extend/from-nothing-to-your-own-plugin.md").read_text(encoding="utf-8")
OVERLAY = ROOT / "deploy/kustomize/overlays/own-plugin"


def indented():
    """Return the blocks that are set in by four blanks."""
    found = re.findall(r"\n\n((?:    .*\n|\n(?=    ))+)", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def test_the_files_that_it_shows_are_the_example_s():
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert shown == (OVERLAY / "team_nodes.py").read_text()
    (shown,) = [block for block in indented() if block.startswith("apiVersion: kubescheduler")]
    assert yaml.safe_load(shown) == yaml.safe_load((OVERLAY / "scheduler.yaml").read_text())


def test_its_values_are_some_that_the_chart_has():
    (shown,) = [block for block in indented() if block.startswith("image:")]
    known = yaml.safe_load((ROOT / "deploy/helm/moorage/values.yaml").read_text())
    for name, value in yaml.safe_load(shown).items():
        assert name in known
        assert name == "configuration" or set(value) <= set(known[name])


def sessions():
    """Yield (command, what it prints) of all terminals, in the order of the page."""
    for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output.strip()


def tells(promised, printed):
    """Say whether what is promised was printed; "…" stands for anything, alone on a line for any lines."""
    lines = [".*" if line == "…" else re.escape(line).replace("…", "[^\\n]*") for line in promised.splitlines()]
    return re.search("\n".join(lines), printed, re.DOTALL) is not None


class Terminals:
    """Runs commands in one folder; those of moorage go on beside the others."""

    def __init__(self, folder):
        (folder / "deploy").symlink_to(ROOT / "deploy")
        self.folder, self.running = folder, []
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT / "src"),
            "KUBECONFIG": "demo-cluster/kubeconfig",
        }  # fmt: skip

    def start(self, words, promised):
        log = self.folder / f"log-{len(self.running)}"
        with log.open("w") as out:
            command = [sys.executable, "-u", "-P", "-m", *words]
            self.running.append(subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=out, stderr=out))
        end = time.monotonic() + 60
        while not tells(promised, log.read_text()):
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)

    def run(self, words):
        done = subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=60
        )  # fmt: skip
        return (done.stdout + done.stderr).strip()

    def end(self):
        for one in reversed(self.running):
            one.send_signal(signal.SIGINT)
            one.wait(60)


@pytest.fixture
def terminals(tmp_path):
    made = Terminals(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_its_sessions_go_as_it_says(terminals):
    port = str(reserve_port())
    commands = list(sessions())
    assert len(commands) == 11
    for command, promised in commands:
        words = shlex.split(command)
        if words[0] == "export":
            assert words[1] == "KUBECONFIG=demo-cluster/kubeconfig"
        elif words[:2] == ["moorage", "run"]:  # the port that the page tells of may be taken
            terminals.start([*words, f"--secure-port={port}"], promised.replace("10259", port))
        elif words[0] == "moorage":
            terminals.start(words, promised)
        else:
            printed = terminals.run(words)
            assert printed == promised, command
