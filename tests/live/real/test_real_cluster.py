"""The live commands on a real control plane: ``run``, ``record``, ``dump`` and ``kubectl moorage``, as a user runs them.

The cluster is that of MOORAGE_TEST_REAL_CLUSTER, the folder of an instance of ``tools.real_cluster`` without a scheduler;
``make live-real`` starts one and runs these tests, and those of other folders that take any cluster.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.live.server.whole_cluster import SOURCES, Cluster

FOLDER = "MOORAGE_TEST_REAL_CLUSTER"
PROGRAM = [sys.executable, "-m", "moorage"]
BIN = Path(sys.executable).parent
#: The exit status of an answer about a pod that stays pending.
PENDING = 2
#: The scheduler that commands take pods to be of.
DEFAULT = "default-scheduler"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(FOLDER not in os.environ, reason=f"{FOLDER} names no cluster")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    kubeconfig = Path(os.environ[FOLDER]) / "kubeconfig"
    return Cluster(kubeconfig, tmp_path_factory.mktemp("cluster"), is_real=True)


@pytest.fixture
def place(cluster):
    with cluster.place() as made:
        yield made


def environment(home):
    path = os.pathsep.join([str(Path(os.environ[FOLDER]) / "bin"), str(BIN), os.environ["PATH"]])
    kubeconfig = Path(os.environ[FOLDER]) / "kubeconfig"
    return {**os.environ, "PYTHONPATH": str(SOURCES), "HOME": str(home), "PATH": path, "KUBECONFIG": str(kubeconfig)}


def run(home, *words, status=0):
    done = subprocess.run(
        list(map(str, words)), env=environment(home), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == status, done.stderr
    return done.stdout


def nodes_of(place):
    return {
        one["metadata"]["name"]: one["spec"].get("nodeName", "").removeprefix(f"{place.name}-")
        for one in place.ask("GET", place.pods)["items"]
    }


def test_a_controller_s_pods_are_placed_and_run(place):
    """The controllers make the pods, ``run`` places them, and the nodes that are played report them as running."""
    place.scheduler()
    place.make(
        f"/apis/apps/v1/namespaces/{place.name}/deployments", "Deployment", "web", "apps/v1",
        spec={"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"schedulerName": place.name, "containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }]},
        }},
    )  # fmt: skip
    path = f"/apis/apps/v1/namespaces/{place.name}/deployments/web"
    place.until(lambda: place.ask("GET", path)["status"].get("readyReplicas") == 6, 60)
    zones = {
        one["metadata"]["name"]: one["metadata"]["labels"].get("topology.kubernetes.io/zone")
        for one in place.ask("GET", "/api/v1/nodes")["items"]
    }
    assert sorted(Counter(zones[node] for node in nodes_of(place).values()).values()) == [2, 2, 2]
    place.ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"})
    place.until(lambda: not place.ask("GET", place.pods)["items"], 60)
    assert place.complaints() == []


def test_a_job_of_pods_ends(place):
    place.scheduler()
    place.make(
        f"/apis/batch/v1/namespaces/{place.name}/jobs", "Job", "sum", "batch/v1",
        spec={"completions": 4, "parallelism": 2, "template": {"spec": {
            "schedulerName": place.name, "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}},
    )  # fmt: skip
    path = f"/apis/batch/v1/namespaces/{place.name}/jobs/sum"
    place.until(lambda: place.ask("GET", path)["status"].get("succeeded") == 4, 90)
    assert place.complaints() == []


def test_schedulers_that_do_not_know_of_each_other_bind_each_pod_once(place):
    """Three leaders of the same pods: who comes second is refused, and no node holds more than it has."""
    for number in range(4):
        place.node(f"n{number}", cpu="8")
    for _ in range(3):
        place.scheduler(leads=False)
    place.until(lambda: all("Handlers synced" in one.log.read_text() for one in place.processes))
    names = [f"p{number}" for number in range(28)]
    for name in names:
        place.pod(name)
    place.bound(*names, seconds=60)
    assert max(Counter(nodes_of(place).values()).values()) <= 8
    where = nodes_of(place)
    told = {(one["regarding"]["name"], one["note"].rpartition(f"{place.name}-")[2]) for one in place.events("Scheduled")}
    assert told == set(where.items())  # a scheduler whose bind came second to the same node takes it for its own
    assert not [line for line in place.complaints() if "409" not in line and "conflict" not in line.lower()]


def test_a_restart_goes_on_with_what_was_left(place):
    place.node("n1", cpu="3")
    first = place.scheduler()
    place.pod("one")
    place.bound("one")
    place.pod("large", cpu="5")
    place.until(lambda: place.condition("large"))
    first.kill()
    first.wait()
    for name in ("two", "three", "four"):
        place.pod(name)
    place.scheduler()
    place.until(lambda: sum(map(bool, nodes_of(place).values())) == 3, 60)
    left = [name for name, node in nodes_of(place).items() if not node]
    assert "large" in left
    place.until(lambda: all(place.condition(name).get("reason") == "Unschedulable" for name in left))


def test_what_happens_is_recorded_and_explained_later(place, tmp_path):
    place.node("n1")
    place.node("n2", cpu="4")
    log = tmp_path / "log"
    recording = subprocess.Popen(
        [*PROGRAM, "record", "--to", log, "--keep", "1GiB", "--keep", "1d"], env=environment(tmp_path), stderr=subprocess.PIPE
    )
    try:
        assert any(b'"Recording"' in line for line in recording.stderr), "the recorder did not start"
        place.scheduler(profile=DEFAULT)
        place.pod("web", cpu="3", schedulerName=DEFAULT)
        assert place.bound("web") == ["n2"]
        place.pod("big", cpu="64", schedulerName=DEFAULT)
        place.until(lambda: place.condition("big"))
        deadline = time.monotonic() + 30
        while "is on" not in (said := _explained(tmp_path, place, log)):
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
    finally:
        recording.send_signal(signal.SIGINT)
        assert recording.wait(30) == 0
        recording.stderr.close()
    assert said.startswith(f"{place.name}/web is on {place.named('n2')}")
    status = json.loads(run(tmp_path, *PROGRAM, "record", "status", log, "-o", "json", "--verify"))
    assert (status["agreement"]["share"], status["faults"]) == (1.0, [])
    assert "64" in run(tmp_path, *PROGRAM, "explain", f"{place.name}/big", "-f", log, status=PENDING)


def _explained(home, place, log):
    words = [*PROGRAM, "explain", f"{place.name}/web", "-f", log]
    return subprocess.run(words, env=environment(home), capture_output=True, text=True, check=False, timeout=60).stdout


def test_a_dump_holds_the_cluster(place, tmp_path):
    place.node("n1")
    place.scheduler(profile=DEFAULT)
    place.pod("web", schedulerName=DEFAULT)
    place.bound("web")
    place.pod("big", cpu="64", schedulerName=DEFAULT)
    place.until(lambda: place.condition("big"))
    place.processes[0].terminate()
    dump = tmp_path / "dump.json.gz"
    run(tmp_path, *PROGRAM, "dump", "-o", dump)
    answer = json.loads(run(tmp_path, *PROGRAM, "report", "-f", dump, "-o", "json"))["answer"]
    assert answer["nodes"]["all"] == len(place.ask("GET", "/api/v1/nodes")["items"])
    said = run(tmp_path, *PROGRAM, "explain", f"{place.name}/big", "-f", dump, status=PENDING)
    assert "64" in said


def test_kubectl_finds_the_plugin_and_asks_the_cluster(place, tmp_path):
    if not (BIN / "kubectl-moorage").exists():
        pytest.skip("Moorage is installed without its scripts")
    place.node("n1")
    place.scheduler(profile=DEFAULT)
    place.pod("big", cpu="64", schedulerName=DEFAULT)
    place.until(lambda: place.condition("big"))
    kubectl = shutil.which("kubectl", path=environment(tmp_path)["PATH"])
    assert "n1" in run(tmp_path, kubectl, "get", "nodes", "-o", "name")
    said = run(tmp_path, kubectl, "moorage", "explain", "big", "-n", place.name, status=PENDING)
    assert said.startswith(f"{place.name}/big")
    assert "64" in said


def test_a_scheduler_without_rights_says_which_it_lacks(place, tmp_path):
    """An account that may do nothing: the log says what is forbidden, and nothing is bound."""
    place.node("n1")
    token = place.token("powerless")
    config = json.loads((Path(os.environ[FOLDER]) / "kubeconfig").read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch(0o600)
    kubeconfig.write_text(json.dumps(config))
    place.pod("web", schedulerName=DEFAULT)
    log = tmp_path / "log"
    with log.open("w") as into:
        process = subprocess.Popen(
            [*PROGRAM, "run", "--kubeconfig", kubeconfig, "--secure-port=0", "--leader-elect=false"],
            env=environment(tmp_path), stdout=into, stderr=into,
        )  # fmt: skip
    try:
        place.until(lambda: "forbidden" in log.read_text().lower())
        assert "powerless" in log.read_text()
        with pytest.raises(AssertionError):
            place.bound("web", seconds=2)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
