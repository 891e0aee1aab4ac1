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
    made = {name: inputs.sub(lambda found: given[found[1]], value) for name, value in variables.items()}
    return {name: value.replace("${{ github.action_path }}", str(PIPELINES / "github")) for name, value in made.items()}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_output_of_kustomize_is_a_change(tmp_path):
    (tmp_path / "deployment.yaml").write_text(DEPLOYMENT % 3)
    (tmp_path / "kustomization.yaml").write_text("{resources: [deployment.yaml], replicas: [{name: shop, count: 12}]}")
    run = bash(f"kubectl kustomize . | {CHECK} -f - -o github", tmp_path)
    assert (run.returncode, run.stderr) == (2, "")
    assert "4 new pending pods; default/Deployment/shop: 4 pods: " in run.stdout.splitlines()[0]  # one finding a workload
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


INSTALLS = [*PIPELINES.rglob("*.yml"), ROOT / "scripts" / "pre-commit-hook"]


@pytest.mark.parametrize("path", INSTALLS, ids=lambda path: path.name)
def test_what_is_installed_is_named_by_hashes_and_commits(path):
    text = path.read_text()
    lines = [line for line in text.splitlines() if re.search(r'pip"? install', line)]
    assert lines
    for line in lines:
        assert ("--require-hashes -r" in line) != ("--no-deps --no-build-isolation" in line), line
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\w.]+", one) for one in re.findall(r"uses: (.*)", text))
    assert all(one == "$MOORAGE_IMAGE" for one in re.findall(r"image: (.*)", text))


def test_a_commit_is_named_in_whole(tmp_path):
    job = yaml.safe_load((PIPELINES / "gitlab.yml").read_text())["moorage-check"]
    line = next(one for one in job["script"] if "checkout" in one).replace("git -C .moorage-source", "echo")
    assert bash(line, tmp_path, MOORAGE_COMMIT="a" * 40).stdout.strip().endswith("a" * 40)
    assert not re.search("main|aaa", bash(line, tmp_path, MOORAGE_COMMIT="main").stdout)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """Return the environment of a runner: an interpreter without Moorage."""
    if not os.environ.get("MOORAGE_LONG_TESTS"):
        pytest.skip("MOORAGE_LONG_TESTS is not set")
    home = tmp_path_factory.mktemp("runner")
    subprocess.run([sys.executable, "-m", "venv", home / "v"], check=True, capture_output=True)
    return {"PATH": f"{home / 'v' / 'bin'}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.timeout(900)
def test_the_steps_of_the_action_and_of_the_job_run_as_they_stand(fresh, tmp_path):
    env = dict(fresh)
    action = yaml.safe_load((PIPELINES / "github" / "action.yml").read_text())
    given = {name: one.get("default", "") for name, one in action["inputs"].items()}
    given |= {"cluster": str(ROOT / "examples/demo"), "policy": str(POLICY)}
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
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    env |= {"MOORAGE_REPOSITORY": str(ROOT), "MOORAGE_COMMIT": commit}
    env |= {f"MOORAGE_{name.upper()}": given[name] for name in ("cluster", "change", "policy")}
    *before, last = [bash(line, tmp_path, **env) for line in job["script"]]
    assert [run.returncode for run in (*before, last)] == [0, 0, 0, 0, 2]
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).read_text().startswith("<?xml")
