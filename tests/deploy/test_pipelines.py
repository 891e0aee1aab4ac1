"""``moorage check`` behind kustomize and helm, and as the steps of the pipelines in ``deploy``, as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PIPELINES = ROOT / "deploy" / "pipelines"
POLICY = ROOT / "examples" / "check" / "moorage-policy.yaml"
CHECK = f"{sys.executable} -m moorage check --policy {POLICY} -f {ROOT / 'examples' / 'demo'}"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {tier: critical}}
spec:
  replicas: %s
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop, tier: critical}}
    spec: {containers: [{name: c, image: nginx, resources: {requests: {cpu: "1"}}}]}
"""

pytestmark = pytest.mark.slow


def bash(text, folder, **env):
    """Run a step as GitHub's runners do."""
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **env})


def filled(variables, given):
    """Return the variables of a step with the inputs of the action."""
    inputs = re.compile(r"\$\{\{ inputs\.(\w+) \}\}")
    return {name: inputs.sub(lambda found: given[found[1]], value) for name, value in variables.items()}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_output_of_kustomize_is_a_change(tmp_path):
    (tmp_path / "deployment.yaml").write_text(DEPLOYMENT % 3)
    (tmp_path / "kustomization.yaml").write_text("{resources: [deployment.yaml], replicas: [{name: shop, count: 90}]}")
    run = bash(f"kubectl kustomize . | {CHECK} -f - -o github", tmp_path)
    assert (run.returncode, run.stderr) == (2, "")
    assert "new pending pods; default/shop-" in run.stdout
    assert "and 77 more" in run.stdout.splitlines()[0]  # a line names the first of them
    assert len(run.stdout.splitlines()[0]) < 1500


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
def test_the_output_of_helm_is_a_change(tmp_path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: shop, version: 0.1.0}")
    (tmp_path / "values.yaml").write_text("replicas: 2")
    (tmp_path / "templates" / "shop.yaml").write_text(DEPLOYMENT % "{{ .Values.replicas }}")
    run = bash(f"helm template shop . | {CHECK} -f - -o junit", tmp_path)
    assert (run.returncode, run.stderr) == (2, "")
    assert "default/Deployment/shop: " in run.stdout


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """Return the environment of a runner: an interpreter without Moorage, and the built wheel for pip to find."""
    if not os.environ.get("MOORAGE_LONG_TESTS"):
        pytest.skip("MOORAGE_LONG_TESTS is not set")
    home = tmp_path_factory.mktemp("runner")
    for words in (["-m", "build", "--no-isolation", "--wheel", "--outdir", home / "dist", ROOT], ["-m", "venv", home / "v"]):
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
    version = next((home / "dist").iterdir()).name.split("-")[1]
    path = f"{home / 'v' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "PIP_FIND_LINKS": str(home / "dist"), "version": version}


@pytest.mark.timeout(900)
def test_the_steps_of_the_action_and_of_the_job_run_as_they_stand(fresh, tmp_path):
    env = {name: value for name, value in fresh.items() if name != "version"}
    action = yaml.safe_load((PIPELINES / "github" / "action.yml").read_text())
    given = {name: one.get("default", "") for name, one in action["inputs"].items()}
    given |= {"cluster": str(ROOT / "examples/demo"), "policy": str(POLICY), "version": f"=={fresh['version']}"}
    given["change"] = str(ROOT / "examples/check/change.yaml")
    runs = [
        bash(step["run"], tmp_path, **env, **filled(step["env"], given), GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
        for step in action["runs"]["steps"]
        if "run" in step
    ]
    install, check = runs
    assert install.returncode == 0, install.stderr
    assert check.returncode == 2
    assert check.stdout.startswith("::error file=")
    assert "1 of 6 rules broken" in (tmp_path / "summary.md").read_text()
    job = yaml.safe_load((PIPELINES / "gitlab.yml").read_text())["moorage-check"]
    env |= job["variables"]
    env |= {f"MOORAGE_{name.upper()}": given[name] for name in ("cluster", "change", "policy")}
    *before, last = [bash(line, tmp_path, **env) for line in job["script"]]
    assert [run.returncode for run in (*before, last)] == [0, 2]
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).read_text().startswith("<?xml")
