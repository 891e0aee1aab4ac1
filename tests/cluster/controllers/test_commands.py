"""What a container's command tells of how it ends, and pods that live so on nodes that pretend."""

import pytest

from moorage.cluster.controllers.nodes.pod_lifecycle import outcome_of

SHELL = ("sh", "-c")
TOLD = {  # command, how long it runs, what it ends with
    "sleeps": (("sleep", "30"), 30, 0),
    "sleeps long": (("/bin/sleep", "1.5m"), 90, 0),
    "sleeps in parts": (("sleep", "1m", "5"), 65, 0),
    "sleeps infinitely": (("sleep", "infinity"), None, 0),
    "succeeds": (("/usr/bin/true",), 0, 0),
    "fails": (("false",), 0, 1),
    "prints": (("echo", "hello", "$NAME"), 0, 0),
    "ends": ((*SHELL, "exit 3"), 0, 3),
    "ends with nothing": (("/bin/bash", "-c", "exit"), 0, 0),
    "one after the other": ((*SHELL, "echo 'a; b'; sleep 5\n\nsleep 5;\nexit 42\nsleep 60\n"), 10, 42),
    "the last one counts": ((*SHELL, "false; true"), 0, 0),
    "not after a failure": ((*SHELL, "false && sleep 60"), 0, 1),
    "on after it": ((*SHELL, "false && sleep 60; sleep 5"), 5, 0),
    "after a success": ((*SHELL, "true && sleep 60 && false"), 60, 1),
    "over more lines": ((*SHELL, "sleep \\\n 5"), 5, 0),
}
UNTOLD = {
    "a program": ("python", "-V"),
    "a program of that name": ("/opt/sleep", "5"),
    "a variable": (*SHELL, "exit $CODE"),
    "a branch": (*SHELL, "if true; then exit 1; fi"),
    "a loop": (*SHELL, "while true; do sleep 1; done"),
    "something beside": (*SHELL, "sleep 30 & exit 0"),
    "something else": (*SHELL, "false || sleep 3"),
    "a pipe": (*SHELL, "echo y | sleep 3"),
    "a file": (*SHELL, "echo y > /data/x"),
    "a part to run first": (*SHELL, 'echo "$(sleep 3)"'),
    "backticks": (*SHELL, "echo `sleep 3`"),
    "options": (*SHELL, "set -e; false; sleep 3"),
    "an invalid exit status": (*SHELL, "exit 300"),
    "no number": ("sleep", "long"),
    "no time": ("sleep",),
    "a quote that does not end": (*SHELL, "echo 'a"),
    "nothing": (*SHELL, " \n"),
    "a shell with a file": ("sh", "/run.sh"),
}


@pytest.mark.parametrize(("command", "run_s", "code"), TOLD.values(), ids=TOLD)
def test_commands_that_are_understood(command, run_s, code):
    assert outcome_of({"command": list(command)}) == (run_s, code)
    assert outcome_of({"command": list(command[:1]), "args": list(command[1:])}) == (run_s, code)


@pytest.mark.parametrize("command", UNTOLD.values(), ids=UNTOLD)
def test_commands_that_are_not_understood(command):
    assert outcome_of({"command": list(command)}) is None


IMAGES = {"registry.k8s.io/pause:3.10.1": True, "pause": True, "r:5000/a/pause@sha256:00": True, "pauses": False, "": False}


@pytest.mark.parametrize(("image", "pauses"), IMAGES.items())
def test_a_pause_image_runs_until_deleted(image, pauses):
    assert outcome_of({"image": image}) == ((None, 0) if pauses else None)
    assert outcome_of({"image": image, "args": ["sleep", "3"]}) is None  # arguments of whatever the image begins with


SHELLED = ["busybox", "docker.io/library/busybox:1.36", "r:5000/alpine@sha256:00", "ubuntu:24.04"]


@pytest.mark.parametrize("image", SHELLED)
def test_an_image_whose_arguments_are_its_command(image):
    assert outcome_of({"image": image, "args": ["sleep", "3"]}) == (3, 0)  # kubectl run … --image=busybox -- sleep 3
    assert outcome_of({"image": image, "args": ["top"]}) is None
    assert outcome_of({"image": image}) is None


@pytest.fixture
def cluster(lab):
    made = lab(nodes=1)
    yield made
    assert made.reports == []


def started(cluster, *containers, **said):
    notes = {f"moorage.dev/{name.replace('_', '-')}": str(value) for name, value in said.items()}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": f"c{i}", "image": "i", **one} for i, one in enumerate(containers)],
    }
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "annotations": notes}, "spec": spec})
    cluster.settle()


def phase(cluster):
    return cluster.get("pods", "web")["status"]["phase"]


def ends(cluster):
    (status,) = cluster.get("pods", "web")["status"]["containerStatuses"]
    return status["state"]["terminated"]["exitCode"]


SLEEPS = {"command": [*SHELL, "sleep 30; exit 7"]}


def test_a_pod_ends_as_its_command_does(cluster):
    started(cluster, SLEEPS)
    cluster.advance(29)
    assert phase(cluster) == "Running"
    cluster.advance(2)
    assert (phase(cluster), ends(cluster)) == ("Failed", 7)


def test_annotations_override_the_command(cluster):
    started(cluster, SLEEPS, run_seconds=60)
    cluster.advance(59)
    assert phase(cluster) == "Running"
    cluster.advance(2)
    assert (phase(cluster), ends(cluster)) == ("Succeeded", 0)


def test_one_container_of_several_does_not_end_the_pod(cluster):
    started(cluster, SLEEPS, {})
    cluster.advance(1000)
    assert phase(cluster) == "Running"


@pytest.mark.parametrize(("said", "after"), [({}, 20), ({"ready_seconds": 5}, 5)], ids=["its probe", "its annotation"])
def test_when_it_is_ready(cluster, said, after):
    probe = {"httpGet": {"path": "/", "port": 80}, "initialDelaySeconds": 20}
    started(cluster, {"readinessProbe": probe}, **said)
    for wait_s, ready in ((after - 1, "False"), (2, "True")):
        cluster.advance(wait_s)
        held = {one["type"]: one["status"] for one in cluster.get("pods", "web")["status"]["conditions"]}
        assert held["Ready"] == ready


HOOKS = {  # annotation, restart policy, whether it ends
    "a test": ("test", "Never", True),
    "a hook before an upgrade": ("pre-install,pre-upgrade", "OnFailure", True),
    "a hook that is always restarted": ("test", "Always", False),
    "no hook": ("", "Never", False),
}


@pytest.mark.parametrize(("hook", "policy", "has_ended"), HOOKS.values(), ids=HOOKS)
def test_a_pod_of_helm_test_ends(cluster, hook, policy, has_ended):
    metadata = {"name": "web", "annotations": {"helm.sh/hook": hook} if hook else {}}
    spec = {"restartPolicy": policy, "containers": [{"name": "c", "image": "busybox", "command": ["wget"], "args": ["web:80"]}]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.settle()
    cluster.advance(6)
    assert phase(cluster) == ("Succeeded" if has_ended else "Running")
