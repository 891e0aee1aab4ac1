"""The example operator in kopf runs on the embedded cluster: handlers, timers, status patches, finalizers and owners."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("kopf", reason="kopf is not installed: make setup")
kubernetes = pytest.importorskip("kubernetes", reason="the official client is not installed")

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/operator"
FLEETS = ("shop.example.com", "v1", "default", "fleets")


@pytest.fixture
def cluster(tmp_path):
    """A running cluster with the operator's definition, which kopf would miss while it starts; yields its kubeconfig."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MOORAGE_HOME": str(tmp_path)}
    started = subprocess.Popen(
        [sys.executable, "-m", "moorage", "up", "--nodes", "2", "--no-ui"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True,
    )  # fmt: skip
    assert any(line.startswith("Ctrl-C") for line in started.stdout)
    client = kubernetes.config.new_client_from_config(str(tmp_path / "kubeconfig"))
    definition = yaml.safe_load((EXAMPLE / "definition.yaml").read_text())
    kubernetes.client.ApiextensionsV1Api(client).create_custom_resource_definition(definition)
    yield tmp_path / "kubeconfig"
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)


@pytest.fixture
def operator(cluster, tmp_path):
    """The operator, running; yields the file of its log."""
    log = tmp_path / "operator.log"
    with log.open("w") as out:
        started = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", "--all-namespaces", "--standalone", str(EXAMPLE / "operator.py")],
            stdout=out, stderr=out, env={**os.environ, "KUBECONFIG": str(cluster)},
        )  # fmt: skip
        yield log
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=60)


def until(ask, log, seconds=60):
    end = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)
    return found


@pytest.mark.slow
def test_the_operator_creates_scales_counts_and_lets_go(cluster, operator):
    client = kubernetes.config.new_client_from_config(str(cluster))
    api, core = kubernetes.client.CustomObjectsApi(client), kubernetes.client.CoreV1Api(client)
    api.create_namespaced_custom_object(*FLEETS, yaml.safe_load((EXAMPLE / "fleet.yaml").read_text()))

    def fleet():
        return api.get_namespaced_custom_object(*FLEETS, "home")

    def names():
        return sorted(one.metadata.name for one in core.list_namespaced_pod("default").items)

    until(lambda: fleet().get("status", {}).get("placed") == 2, operator)
    assert names() == ["home-0", "home-1"]
    assert fleet()["status"]["resize"] == {"ships": 2}
    assert fleet()["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    (owner,) = core.read_namespaced_pod("home-1", "default").metadata.owner_references
    assert (owner.kind, owner.name) == ("Fleet", "home")
    api.patch_namespaced_custom_object(*FLEETS, "home", {"spec": {"ships": 1}})
    until(lambda: names() == ["home-0"] and fleet()["status"].get("placed") == 1, operator)
    api.delete_namespaced_custom_object(*FLEETS, "home")
    until(lambda: names() == [] and api.list_namespaced_custom_object(*FLEETS)["items"] == [], operator)
    assert "fleet home leaves 1 ships to the garbage collector" in operator.read_text()
