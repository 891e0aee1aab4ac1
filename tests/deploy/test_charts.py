"""Ten popular charts, written after their public templates: each applies on ``moorage up``, and all that helm waits for
becomes ready.

helm installs them if it is on the PATH. Otherwise kubectl applies them, and the conditions are those of ``helm --wait``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from moorage.api.documents.served_kinds import UNGATED_KINDS
from moorage.api.schema.normalization import conform
from moorage.api.schema.schemas import kind_schema

CHARTS = {path.stem: path for path in sorted((Path(__file__).parent / "charts").glob("*.yaml"))}
PATIENCE_S = 120


def documents(name):
    return [one for one in yaml.safe_load_all(CHARTS[name].read_text("utf-8")) if one]


def namespace_of(name):
    return next(one["metadata"]["namespace"] for one in documents(name) if "namespace" in one["metadata"])


def is_ready(found):
    """Return whether helm stops waiting for an object."""
    spec, status = found.get("spec") or {}, found.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    match found["kind"]:
        case "Deployment":
            return status.get("observedGeneration") == found["metadata"]["generation"] and conditions.get("Available") == "True"
        case "StatefulSet":
            return status.get("readyReplicas", 0) == status.get("updatedReplicas", 0) == spec["replicas"]
        case "DaemonSet":
            return status.get("numberReady") == status.get("desiredNumberScheduled") == status.get("updatedNumberScheduled")
        case "Job":
            return conditions.get("Complete") == "True"
        case "PersistentVolumeClaim":
            return status["phase"] == "Bound"
        case "CustomResourceDefinition":
            return conditions.get("Established") == "True"
        case "Service":
            return bool(spec["clusterIP"])
        case _:
            return True


@pytest.mark.parametrize("name", CHARTS)
def test_every_object_of_a_chart_is_of_a_served_kind_and_has_known_fields(name):
    for one in documents(name):
        kind = UNGATED_KINDS.find_type(one["apiVersion"], one["kind"])
        assert kind is not None, one["kind"]
        assert conform(kind_schema(kind), one)[1] == []


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_charts_become_ready(tmp_path):
    assert len(CHARTS) == 10
    install = installed_by_helm if shutil.which("helm") else installed_by_kubectl
    command = [sys.executable, "-m", "moorage", "up", "--nodes", "4", "--home", str(tmp_path / "home")]
    env = {**os.environ, "KUBECONFIG": str(tmp_path / "home" / "kubeconfig"), "HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        try:
            assert "is up on" in up.stdout.readline()
            for name in {namespace_of(name) for name in CHARTS} - {"kube-system"}:
                subprocess.run(["kubectl", "create", "namespace", name], env=env, check=True, capture_output=True)
            with ThreadPoolExecutor(3) as pool:
                said = list(pool.map(lambda name: install(name, tmp_path / name, env), CHARTS))
        finally:
            up.terminate()
            up.stdout.read()
    assert said == [""] * len(CHARTS)


def installed_by_helm(name, chart, env):
    """Install a chart; return "", or what helm says."""
    given = documents(name)
    definitions = [one for one in given if one["kind"] == "CustomResourceDefinition"]
    for place, some in (("crds", definitions), ("templates", [one for one in given if one not in definitions])):
        (chart / place).mkdir(parents=True)
        if some:
            (chart / place / "all.yaml").write_text(yaml.safe_dump_all(some))
    (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: {name}\nversion: 0.1.0\n")
    words = ["helm", "install", name, chart, "-n", namespace_of(name), "--wait", "--timeout", f"{PATIENCE_S}s"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    return "" if "STATUS: deployed" in done.stdout else done.stdout + done.stderr


def installed_by_kubectl(name, folder, env):
    """Apply a chart and wait; return "", or what is not ready."""
    del folder

    def run(verb, *words):
        words = ["kubectl", verb, "-f", CHARTS[name], *words]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    applied = run("apply", "--server-side", "--validate=strict")
    if applied.returncode:
        return applied.stderr
    until = time.monotonic() + PATIENCE_S
    while True:
        found = json.loads(run("get", "-o", "json").stdout)["items"]
        waiting = [f"{one['kind']}/{one['metadata']['name']}" for one in found if not is_ready(one)]
        if not waiting:
            return ""
        if time.monotonic() > until:
            return f"{name}: not ready: {waiting}"
        time.sleep(1)
