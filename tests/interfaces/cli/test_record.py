"""``moorage record``, ``record status``, ``record cut``, and logs as the input of other commands."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from moorage.errors import InputError
from moorage.interfaces.cli.live.record import _differences, _options_of_scheduler
from moorage.testing.capsule import read_capsule
from tests.interfaces.cli.conftest import PROGRAM, environment
from tests.live.recording.scripted_log import START_S, write_log

pytestmark = pytest.mark.slow


@pytest.fixture
def log(tmp_path):
    return write_log(tmp_path / "log")


def test_a_placement_is_explained_as_of_its_decision(moorage, log):
    ran = moorage("explain", "web", "-f", log)
    assert ran.out.startswith("default/web is on n1 by 24 points of 422 over n2.")
    assert "note: bound to n1 at 2026-11-24T14:00:20Z; this is the decision right before" in ran.err
    assert moorage("explain", "web", "-f", log, "--at", "14:00:15").err == ""
    gone = moorage("explain", "old", "-f", log)
    assert (gone.status, "old" in gone.err) == (1, True)


def test_a_pending_pod_is_explained_at_a_moment(moorage, log):
    assert "the largest, n1, has 4" in " ".join(moorage("explain", "big", "-f", log, "--at", "14:00:45").out.split())
    assert "the largest, n3, has 8" in " ".join(moorage("explain", "big", "-f", log).out.split())
    assert moorage("explain", "big", "-f", log, "--at", "14:00:05").status == 1


def test_reports_and_other_questions_take_a_moment(moorage, log):
    early, late = (moorage("report", "-f", log, "--at", at, "-o", "json").out for at in ("14:00:05", "now"))
    assert [json.loads(one)["answer"]["nodes"]["all"] for one in (early, late)] == [2, 3]
    assert json.loads(moorage("report", "-f", f"{log}@14:00:05", "-o", "json").out) == json.loads(early)
    assert "--at needs a log" in moorage("report", "-f", "examples/demo", "--at", "14:00").err
    assert "before the log begins; it covers 2026-11-24T14:00:00Z to" in moorage("report", "-f", log, "--at", "13:00").err


def test_a_replay_places_pods_when_they_came(moorage, log):
    ran = moorage("simulate", "-f", log, "--from", "14:00:05", "--to", "14:00:55", "-o", "wide")
    assert (ran.status, ran.err) == (2, "")
    words = " ".join(ran.out.split())
    assert "replayed 2026-11-24T14:00:05Z to 2026-11-24T14:00:55Z: 2 pods came, 0 ended, 1 were deleted" in words
    assert "bound then: 1 pod, of which 1 went to the same node and 0 stayed pending" in words


QUEUES = Path(__file__).parents[3] / "examples/batch-queues/queues.yaml"
QUOTA = """apiVersion: v1
kind: ResourceQuota
metadata: {name: small, namespace: default}
spec: {hard: {requests.cpu: "2"}}
"""


def test_a_replay_keeps_a_quota_beside_the_log(moorage, log, tmp_path):
    """``web`` wants two cores when ``old`` has one of them, and comes when it is deleted; ``big`` never does."""
    (tmp_path / "quota.yaml").write_text(QUOTA)
    asked = ("simulate", "-f", log, "-f", tmp_path / "quota.yaml", "--from", "14:00:05")
    ran = moorage(*asked, "--to", "14:00:55", "-o", "wide")
    words = " ".join(ran.out.split())
    assert "quotas refused 2 pods at first; 1 wait at the end" in words
    assert "default web n1 cpu=2 0 default-scheduler 1 45s 45s" in words
    assert "quotas refused 2 pods at first; 2 wait at the end" in " ".join(moorage(*asked, "--to", "14:00:45").out.split())
    assert "quotas refused" not in moorage(*asked, "--to", "14:00:45", "--no-quota").out


def test_an_autoscaler_takes_part_in_a_replay(moorage, log, tmp_path):
    (tmp_path / "pools.yaml").write_text(
        '- {name: huge, price: 1, max: 3, provisionSeconds: 10, node: {status: {allocatable: {cpu: "200", pods: "20"}}}}'
    )
    ran = moorage("simulate", "-f", log, "--from", "14:00:05", "--to", "14:00:55", "--autoscale", tmp_path / "pools.yaml")
    assert ran.status == 0, ran.err
    assert ran.out.startswith("2 placed on 3 nodes")
    assert "bound then: 1 pod, of which 1 went to the same node" in " ".join(ran.out.split())
    assert "huge" in ran.out.partition("AUTOSCALER")[2]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--from", "14:00:50", "--to", "14:00:10"], "is not after --from"),
        (["--to", "14:00:10"], "--to needs --from"),
        (["--from", "14:00:10", "-o", "json"], "it excludes gates"),
        (["--from", "14:00:10", "--at", "14:00:20"], "--from excludes --at"),
        (["--from", "12:00"], "before the log begins"),
        (["--from", "noon"], "not a moment"),
        (["--from", "14:00:10", "--kueue", "queues.yaml"], "--from excludes --kueue FILE: in a replay, pods come"),
        (["--from", "14:00:10", "-f", QUEUES], "replay without them: --kueue off"),
    ],
)
def test_a_replay_that_cannot_be_is_an_error(moorage, log, args, why):
    ran = moorage("simulate", "-f", log, *args)
    assert (ran.status, why in ran.err) == (1, True), ran.err


def test_a_capsule_repeats_the_decision_with_few_objects(moorage, log, tmp_path):
    path = tmp_path / "case.json.gz"
    ran = moorage("record", "cut", "-f", log, "--pod", "web", "-o", path)
    assert ran.status == 0, ran.err
    assert (
        ran.err.splitlines()[-1]
        == "default/web goes to n1; n2 scores lower by NodeResourcesBalancedAllocation, NodeResourcesFit"
    )
    capsule = read_capsule(path)
    assert [node.name for node in capsule.cluster.nodes] == ["n1", "n2"]
    assert capsule.check().node == "n1"
    assert moorage("explain", "web", "-f", path).status == 0
    failure = tmp_path / "big.json"
    ran = moorage("record", "cut", "-f", log, "--pod", "big", "--at", "14:00:45", "-o", failure)
    assert ran.err.splitlines()[-1] == "default/big no node fits: Insufficient cpu"
    assert f"{failure}: 2 objects of " in ran.err
    assert read_capsule(failure).check().node is None


def test_the_command_that_repeats_a_difference_names_the_scheduler():
    given = {"config": "my config.yaml", "emulate": "1.36.2", "feature_gates": "", "plugins": ("a:B", "c:D")}
    options = _options_of_scheduler(given)
    assert options == " --config 'my config.yaml' --emulate 1.36.2 --plugins a:B --plugins c:D"
    difference = {"at": START_S * 10**6, "pod": "default/web", "node": "n1", "ours": "n2"}
    (*_, last) = "".join(_differences("log", [difference], options)).partition("Repeat one:\n")
    assert " ".join(last.replace("\\\n", "").split()) == (
        "moorage record cut -f log --pod default/web --at 2026-11-24T14:00:00Z --beside n1" + options + " -o case.json.gz"
    )


def test_a_capsule_says_when_the_decision_changes(moorage, log, tmp_path):
    path = tmp_path / "case.json"
    moorage("record", "cut", "-f", log, "--pod", "web", "-o", path, "-q")
    config = b"""apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
"""
    with pytest.raises(AssertionError, match=r"default/web goes to n2; before, it goes to n1"):
        read_capsule(path, config=config).check()


def test_a_redacted_capsule_has_no_names(moorage, log, tmp_path):
    path = tmp_path / "case.json"
    ran = moorage("record", "cut", "-f", log, "--pod", "web", "-o", path, "--redact", tmp_path / "key")
    assert ran.status == 0, ran.err
    text = path.read_text()
    assert not [name for name in ("web", '"n1"', '"n2"') if name in text]
    assert read_capsule(path).check().node


def test_what_cannot_be_cut_is_an_error(moorage, log, tmp_path):
    for args, why in (
        (["--pod", "none"], "pod default/none not found"),
        (["--pod", "web", "--beside", "n1"], "goes to n1 itself"),
        (["--pod", "web", "--beside", "n9"], "n9: no node of this name"),
    ):
        ran = moorage("record", "cut", "-f", log, *args, "-o", tmp_path / "x.json")
        assert (ran.status, why in ran.err) == (1, True), ran.err
    with pytest.raises(InputError, match="no capsule; moorage record cut"):
        read_capsule("examples/demo/nodes.yaml")


def test_the_status_says_what_a_log_covers_and_where_it_is_damaged(moorage, log):
    ran = moorage("record", "status", log, "--verify")
    assert ran.status == 0
    assert "2026-11-24T14:00:00Z to 2026-11-24T14:01:00Z" in " ".join(ran.out.split())
    assert "No decision was compared yet." in ran.out
    assert "No damage." in ran.out
    (changes,) = log.glob("*.changes")
    data = bytearray(changes.read_bytes())
    data[-1] ^= 1
    changes.write_bytes(data)
    ran = moorage("record", "status", log, "--verify")
    assert (ran.status, "1 damaged place.\n  00" in ran.out, "wrong checksum of a frame" in ran.out) == (2, True, True)
    assert moorage("record", "status", log.parent).status == 1


def test_options_that_are_wrong_are_errors(moorage, tmp_path):
    for args, why in (
        ([], "give a directory for the log: moorage record --to DIR"),
        (["--to", tmp_path, "--keep", "7 days"], "--keep 7 days: write an age as 7d"),
        (["--to", tmp_path, "--listen", "localhost"], "--listen localhost: write an IP address and a port"),
        (["--to", tmp_path, "--kubeconfig", "none"], "none: no such file"),
    ):
        ran = moorage("record", *args)
        assert (ran.status, why in ran.err) == (1, True), ran.err


@pytest.mark.fresh_process
def test_a_cluster_is_recorded(tmp_path, process):
    env = environment(HOME=str(tmp_path))
    up = subprocess.Popen([*PROGRAM, "up", "--nodes", "3", "--home", str(tmp_path / "home")], env=env, stdout=subprocess.PIPE)
    try:
        assert b"is up on" in up.stdout.readline()
        kubeconfig = tmp_path / "home/kubeconfig"
        directory = tmp_path / "log"
        command = [
            *PROGRAM,
            "record",
            "--to",
            str(directory),
            "--kubeconfig",
            str(kubeconfig),
            "--keep",
            "1GiB",
            "--keep",
            "1d",
        ]
        recording = subprocess.Popen(command, env=env, stderr=subprocess.PIPE)
        for line in recording.stderr:
            if b'"Recording"' in line:
                break
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        }  # fmt: skip
        (tmp_path / "pod.json").write_text(json.dumps(pod))
        made = subprocess.run(["kubectl", "--kubeconfig", kubeconfig, "apply", "-f", tmp_path / "pod.json"], check=False)
        assert made.returncode == 0
        deadline = time.monotonic() + 30
        while not process("explain", "web", "-f", directory).err.startswith("note: bound to"):
            assert time.monotonic() < deadline
        os.kill(recording.pid, signal.SIGINT)
        assert recording.wait(20) == 0
        recording.stderr.close()
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(20)
        up.stdout.close()
    found = process("record", "status", directory, "-o", "json", "--verify")
    status = json.loads(found.out)
    assert (status["agreement"]["compared"], status["agreement"]["share"], status["faults"]) == (1, 1.0, [])
    assert status["recorder"]["started"]
    assert process("explain", "web", "-f", directory).err.startswith("note: bound to")
