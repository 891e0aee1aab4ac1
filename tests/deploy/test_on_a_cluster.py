"""The scheduler as ``deploy/`` has it run, on the embedded cluster: with the rights that are granted there and no others.

No container runtime is available, so the test starts the process as a kubelet would: its account's token and the cluster's
authority in a folder, the API server's address in the environment, and the flags and files of the rendered Deployment.
"""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.fork_server import forkable
from tests.ports import reserve_port

ROOT = Path(__file__).resolve().parents[2]
SOURCES = str(ROOT / "src")
NAME, NAMESPACE = "moorage-scheduler", "moorage-system"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")]

MAIN = "from moorage.interfaces.cli.main import main; main()"
# The folder that a pod's account is mounted at cannot be made on a machine that is no pod.
IN_POD = forkable(f"""
import pathlib, sys
from moorage.basis.client import kubeconfig
kubeconfig.in_cluster.__defaults__ = (pathlib.Path(sys.argv.pop(1)),)
{MAIN}
""")


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    """Return a way to ask a cluster of three nodes that has no scheduler."""
    home = tmp_path_factory.mktemp("cluster")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": SOURCES, "KUBECONFIG": str(home / "kubeconfig")}
    cluster = subprocess.Popen(
        [sys.executable, "-m", "moorage", "up", "--no-scheduler", "--nodes=3", f"--home={home}"],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert any(line.startswith("Ctrl-C") for line in cluster.stdout), "the cluster did not come up"

    def ask(*arguments, stdin=None, program="kubectl"):
        done = subprocess.run(
            [program, *arguments], env=environment, input=stdin, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    ask.home = home
    yield ask
    cluster.send_signal(signal.SIGINT)
    cluster.communicate(timeout=60)


@pytest.fixture(scope="module")
def base(kubectl, render):
    kubectl("apply", "-k", str(ROOT / "deploy/kustomize/base"))
    return render("base")


class Scheduler:
    """A process that believes it is a pod of the Deployment."""

    def __init__(self, folder, kubectl, objects, pick):
        self.port = reserve_port()
        account, files = folder / "account", folder / "files"
        account.mkdir()
        files.mkdir()
        (account / "token").write_text(kubectl("create", "token", NAME, "-n", NAMESPACE))
        shutil.copy(kubectl.home / "pki" / "ca.crt", account / "ca.crt")
        for one in objects:
            for name, text in one.get("data", {}).items() if one["kind"] == "ConfigMap" else ():
                (files / name).write_text(text)
        container = pick(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        args = [one.replace("/etc/moorage", str(files)).replace("10259", str(self.port)) for one in container["args"]]
        server = urlsplit(yaml.safe_load((kubectl.home / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"])
        env = {"KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port)}
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", IN_POD, str(account), *args, "--bind-address=127.0.0.1"], stderr=log, cwd=folder,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{SOURCES}:{files}", "TMPDIR": str(folder), **env},
            )  # fmt: skip

    def probe(self, path):
        tls = ssl._create_unverified_context()
        with urllib.request.urlopen(f"https://127.0.0.1:{self.port}{path}", context=tls, timeout=5) as answer:
            return answer.read().decode()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture
def start(tmp_path, kubectl, pick):
    started = []

    def run(objects):
        started.append(Scheduler(tmp_path, kubectl, objects, pick))
        return started[-1]

    yield run
    for one in started:
        one.end()


def until(ask, scheduler, seconds=60):
    end = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < end, scheduler.log.read_text()
        assert scheduler.process.poll() is None, scheduler.log.read_text()
        time.sleep(0.1)
    return found


def pod(name, **labels):
    spec = {"schedulerName": "moorage-scheduler", "containers": [{"name": "c", "image": "i"}]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})


def node_of(kubectl, name):
    return kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}")


def test_the_rights_that_are_granted_are_enough(kubectl, base, start):
    scheduler = start(base)
    kubectl("create", "-f", "-", stdin=pod("granted"))
    until(lambda: node_of(kubectl, "granted"), scheduler)
    assert [scheduler.probe(path) for path in ("/livez", "/readyz")] == ["ok", "ok"]
    until(lambda: "Scheduled" in kubectl("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}"), scheduler)
    lease = json.loads(kubectl("get", "lease", NAME, "-n", NAMESPACE, "-o", "json"))
    assert lease["spec"]["holderIdentity"]
    assert scheduler.end() == 0
    said = scheduler.log.read_text().lower()
    assert "forbidden" not in said
    assert "cannot " not in said
    assert "traceback" not in said


def test_the_example_s_plugin_decides(kubectl, base, render, start):
    kubectl("label", "node", "--all", "example.org/team=red", "--overwrite")
    scheduler = start(render("overlays/own-plugin"))
    kubectl("create", "-f", "-", stdin=pod("blue", team="blue"))
    message = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
    told = until(lambda: kubectl("get", "pod", "blue", "-o", message), scheduler)
    assert told.startswith("0/3 nodes are available: 3 node(s) are another team's.")
    kubectl("label", "node", "node-2", "example.org/team=blue", "--overwrite")
    assert until(lambda: node_of(kubectl, "blue"), scheduler) == "node-2"
    assert scheduler.end() == 0


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
def test_helm_installs_changes_goes_back_and_takes_away(kubectl):
    chart, place = str(ROOT / "deploy/helm/moorage"), ("-n", "by-helm")

    def helm(*arguments):
        return kubectl(*arguments, *place, program="helm")

    def verbosity():
        args = kubectl("get", "deployment", NAME, *place, "-o", "jsonpath={.spec.template.spec.containers[0].args[*]}")
        return args.rpartition("--v=")[2]

    assert "STATUS: deployed" in helm("install", NAME, chart, "--create-namespace", "--set", "image.repository=an-image")
    assert verbosity() == "2"
    helm("upgrade", NAME, chart, "--set", "image.repository=an-image,verbosity=4")
    assert verbosity() == "4"
    helm("rollback", NAME, "1")
    assert verbosity() == "2"
    helm("uninstall", NAME)
    kinds = "deployments,configmaps,poddisruptionbudgets,serviceaccounts,roles,rolebindings,secrets"
    left = kubectl("get", kinds, *place, "-o", "name").split() + kubectl("get", "clusterrolebindings", "-o", "name").split()
    assert [one for one in left if "by-helm" in one or one.endswith(f"/{NAME}")] == []
