"""The manifests by which projects are installed apply to `moorage up` in full, and their Deployments become ready.

They are not ours, so they are not in this repository. MOORAGE_INSTALLS names a folder with one for each project: NAME.yaml, or
a folder NAME. Without it, MOORAGE_LONG_TESTS=1 takes them from the projects' Go modules, and renders charts with helm, which
Go builds if it is not installed; a test whose manifests cannot be had is skipped with the reason.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from moorage.api.releases import CURRENT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
    pytest.mark.skipif(
        not os.environ.get("MOORAGE_INSTALLS") and os.environ.get("MOORAGE_LONG_TESTS") != "1",
        reason="set MOORAGE_INSTALLS to a folder with the manifests, or MOORAGE_LONG_TESTS=1 to take them from Go modules",
    ),
]
#: Helm's own module, built where helm is not installed.
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
#: How long a project's Deployments may take until they are ready.
READY_S = 120
#: How long the cluster may take until it is up.
START_S = 180


class Install(NamedTuple):
    """Where the manifests of a project stand in its Go module: files, a kustomization, or charts with their values.

    ``namespace``: where they go, if it is not that of the project's name. A chart may have a template of its description, which
    the project completes at a release.
    """

    module: str
    files: tuple[str, ...] = ()
    kustomization: str = ""
    charts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    namespace: str = ""


EXAMPLES = "deploy/examples/"
CALICO = "manifests/"
INSTALLS = {
    "argo-cd": Install("github.com/argoproj/argo-cd/v3@v3.2.1", files=("manifests/install.yaml",)),
    "calico": Install(
        "github.com/projectcalico/calico@v1.11.0-cni-plugin.0.20250813170300-a0db560f0520",
        files=tuple(f"{CALICO}{one}.yaml" for one in ("operator-crds", "tigera-operator", "custom-resources", "calico")),
    ),
    "cert-manager": Install(
        "github.com/cert-manager/cert-manager@v1.19.1", charts=("deploy/charts/cert-manager",), values=("crds.enabled=true",)
    ),
    "istio": Install(
        "istio.io/istio@v0.0.0-20260827124520-eed52ebb66ad", namespace="istio-system",
        charts=("manifests/charts/base", "manifests/charts/istio-control/istio-discovery", "manifests/charts/gateway"),
    ),
    "jobset": Install("sigs.k8s.io/jobset@v0.10.1", kustomization="config/default"),
    "kuberay": Install("github.com/ray-project/kuberay/ray-operator@v1.5.1", kustomization="config/default"),
    "kueue": Install("sigs.k8s.io/kueue@v0.15.0", kustomization="config/default"),
    "leaderworkerset": Install("sigs.k8s.io/lws@v0.7.0", kustomization="config/default"),
    "longhorn": Install(""),
    "rook": Install(
        "github.com/rook/rook@v1.18.8",
        files=tuple(f"{EXAMPLES}{one}.yaml" for one in ("crds", "common", "csi-operator", "operator", "cluster", "pool")),
    ),
    "volcano": Install("volcano.sh/volcano@v1.12.2", files=("installer/volcano-development.yaml",)),
}  # fmt: skip


def run(*command, **options):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=900, **options)


def manifests(name, scratch):
    """Return the files to apply, in order; skip the test if they cannot be had."""
    if given := os.environ.get("MOORAGE_INSTALLS"):
        held = [Path(given) / f"{name}.yaml", Path(given) / name]
        found = next((one for one in held if one.exists()), None)
        if found is None:
            pytest.skip(f"MOORAGE_INSTALLS has neither {held[0].name} nor {held[1].name}/")
        return sorted(found.glob("*.yaml")) if found.is_dir() else [found]
    install = INSTALLS[name]
    if not install.module:
        pytest.skip("no Go module has its manifests; give them with MOORAGE_INSTALLS")
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    told = run("go", "mod", "download", "-json", install.module, cwd=scratch)
    module = json.loads(told.stdout or "{}")
    if "Dir" not in module:
        pytest.skip(f"{install.module} cannot be had: {module.get('Error', told.stderr)[:200]}")
    folder = Path(module["Dir"])
    if install.files:
        return [folder / one for one in install.files if (folder / one).exists()]
    made = scratch / f"{name}.yaml"
    if install.kustomization:
        told = run("kubectl", "kustomize", folder / install.kustomization)
        assert told.returncode == 0, told.stderr[-2000:]
        made.write_text(told.stdout)
        return [made]
    return [rendered(folder / one, name, install, scratch) for one in install.charts]


def rendered(chart, name, install, scratch):
    """Return the file that a chart becomes."""
    copy = scratch / "charts" / chart.name
    shutil.copytree(chart, copy, copy_function=shutil.copyfile)
    for folder in (copy, *copy.rglob("*/")):
        folder.chmod(0o755)  # modules are kept read-only
    if (template := copy / "Chart.template.yaml").exists():
        (copy / "Chart.yaml").write_text(template.read_text())
    values = [part for one in install.values for part in ("--set", one)]
    helm = ["helm"] if shutil.which("helm") else ["go", "run", HELM]
    told = run(
        *helm,
        "template",
        name,
        copy,
        "--kube-version",
        CURRENT.version.removeprefix("v"),
        "--namespace",
        install.namespace or name,
        "--include-crds",
        *values,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    made = scratch / f"{chart.name}.yaml"
    made.write_text(told.stdout)
    return made


@pytest.fixture
def kubectl(tmp_path):
    """Start `moorage up`, and return a function that runs kubectl on it."""
    home = tmp_path / "home"
    command = [sys.executable, "-m", "moorage", "up", "--nodes", "6", "--node-cpu", "16", "--home", str(home)]
    with open(tmp_path / "log", "w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            ends = time.monotonic() + START_S
            while "is up on" not in (tmp_path / "log").read_text():
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < ends, (tmp_path / "log").read_text()
                time.sleep(0.1)
            yield lambda *words: run("kubectl", "--kubeconfig", home / "kubeconfig", *words)
        finally:
            process.terminate()


@pytest.mark.parametrize("name", INSTALLS)
def test_a_project_is_installed(name, kubectl, tmp_path):
    files = manifests(name, tmp_path)
    home = INSTALLS[name].namespace or name
    assert kubectl("create", "namespace", home).returncode == 0
    for file in files:
        told = kubectl("apply", "--server-side", "--force-conflicts", "--namespace", home, "-f", file)
        if "namespace from the provided object" in told.stderr:  # the objects name their own
            told = kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
        assert told.returncode == 0, f"{file.name}: {told.stderr[-3000:]}"
        assert kubectl("apply", "--server-side", "--force-conflicts", "-f", file, "--dry-run=server").returncode == 0
    deployments = json.loads(kubectl("get", "deployments", "-A", "-o", "json").stdout)["items"]
    assert deployments
    told = kubectl("wait", "--for=condition=Available", "deployments", "--all", "-A", f"--timeout={READY_S}s")
    assert told.returncode == 0, told.stdout + told.stderr + kubectl("get", "pods", "-A", "-o", "wide").stdout
