"""``moorage up`` as a program, and kubectl against it: what people type, and what comes of it."""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from moorage.interfaces.cli.main import cli

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")]


class Up:
    """A running cluster and kubectl for it."""

    def __init__(self, home, *arguments):
        self.home = home
        self.config = home / "kubeconfig"
        environment = {**os.environ, "PYTHONPATH": str(SOURCES), "MOORAGE_HOME": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moorage", "up", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        self.said = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("Ctrl-C"):
                return
        raise AssertionError(self.process.stderr.read())

    def __call__(self, *arguments, fails=False, stdin=None):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.config), "GOGC": "off"}
        done = subprocess.run(
            ["kubectl", *arguments], check=False, capture_output=True, text=True, env=environment, input=stdin, timeout=90
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def read(self, *what):
        return json.loads(self("get", *what, "-o", "json"))

    def until(self, ask, seconds=60):
        end = time.monotonic() + seconds
        while not (found := ask()):
            assert time.monotonic() < end, self("get", "pods,events")
            time.sleep(0.1)
        return found

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        # On a busy machine it may say what it waits for.
        return self.process.returncode, out, "".join(line for line in err.splitlines(True) if not line.startswith("Still "))


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    cluster = Up(tmp_path_factory.mktemp("up"), "--nodes", "10", "--job-seconds", "1")
    yield cluster
    status, _, err = cluster.end()
    assert (status, err) == (0, "")


def test_up_prints_how_to_reach_the_cluster(up):
    assert up.said[0].startswith("A cluster of 10 nodes with a scheduler is up on https://127.0.0.1:")
    assert f"  export KUBECONFIG={up.config}\n" in up.said
    assert up.config.stat().st_mode & 0o077 == 0
    lines = up("get", "nodes", "--no-headers").splitlines()
    assert [line.split()[:2] for line in lines] == [[f"node-{i:02}", "Ready"] for i in range(1, 11)]


def test_links_open_the_web_interface(up):
    first = next(line for line in up.said if "/ui/#token=" in line).split()[-1]
    second = CliRunner().invoke(cli, ["ui", "--kubeconfig", str(up.config)]).stdout.strip()
    assert first.partition("#")[0] == second.partition("#")[0]
    assert first != second
    for link in (first, second):
        base, _, token = link.partition("/ui/#token=")
        body = json.dumps({"token": token}).encode()
        asked = Request(f"{base}/lab/v1/session", body, {"Content-Type": "application/json"})
        with urlopen(asked, context=ssl._create_unverified_context()) as answer:
            assert answer.status == 204
            assert {"Secure", "HttpOnly", "SameSite=Strict"} <= set(answer.headers["Set-Cookie"].split("; "))


def test_a_deployment_comes_up_is_scaled_and_rolled_back(up):
    up("create", "deployment", "web", "--image=web:1", "--replicas=4")
    assert "successfully rolled out" in up("rollout", "status", "deploy/web", "--timeout=60s")
    up("scale", "deploy/web", "--replicas=7")
    up("wait", "deploy/web", "--for=jsonpath={.status.availableReplicas}=7", "--timeout=60s")
    up("set", "image", "deploy/web", "web=web:2")
    assert "successfully rolled out" in up("rollout", "status", "deploy/web", "--timeout=60s")
    assert up("rollout", "history", "deploy/web").split()[-4:] == ["1", "<none>", "2", "<none>"]
    up("rollout", "undo", "deploy/web")
    assert "successfully rolled out" in up("rollout", "status", "deploy/web", "--timeout=60s")
    assert up.read("deploy", "web")["spec"]["template"]["spec"]["containers"][0]["image"] == "web:1"
    up.until(lambda: "ScalingReplicaSet" in up("describe", "deploy", "web"))


LIMITED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "web:1", resources: {limits: {cpu: 1}}}]}
"""


def test_a_quota_keeps_a_deployment_short_of_pods(tmp_path):
    up = Up(tmp_path, "--nodes", "2")
    up("create", "quota", "few", "--hard=pods=2,limits.cpu=8,count/deployments.apps=1")
    up("create", "quota", "batch", "--hard=pods=2", "--scopes=Terminating")
    up.until(lambda: len(up.read("quota", "few")["status"].get("used", {})) == 3)
    assert "failed quota: few: must specify limits.cpu for: p" in up("run", "p", "--image=i", fails=True)
    up("apply", "-f", "-", stdin=LIMITED)
    up.until(lambda: up.read("deploy", "web")["status"].get("availableReplicas") == 2)
    shown = [line.split() for line in up("describe", "quota").splitlines()]
    assert ["pods", "2", "2"] in shown
    assert ["count/deployments.apps", "1", "1"] in shown
    assert ["*", "Matches", "all", "pods", "that", "have"] in [line[:6] for line in shown]
    columns = up("get", "quota", "few", "--no-headers")
    assert "count/deployments.apps: 1/1, pods: 2/2   limits.cpu: 2/8" in columns
    why = "is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"
    up.until(lambda: why in up("get", "events", "--field-selector=reason=FailedCreate"))
    two = up("create", "deployment", "two", "--image=i", fails=True)
    assert 'deployments.apps "two" is forbidden: exceeded quota: few, requested: count/deployments.apps=1' in two
    status, _, err = up.end()
    assert status == 0
    assert {line.partition(" is forbidden: ")[2] for line in err.splitlines()} == {
        "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2; will be tried again"
    }


def test_a_pod_lives_on_its_node_until_it_is_deleted(up):
    up("run", "once", "--image=i", "--restart=Never", "--annotations=moorage.dev/run-seconds=1")
    up("wait", "pod/once", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    up("run", "stays", "--image=i", "--annotations=moorage.dev/stop-seconds=2")
    up("wait", "pod/stays", "--for=condition=Ready", "--timeout=60s")
    shown = up("get", "pod", "stays", "-o", "wide", "--no-headers").split()
    assert shown[1:4] == ["1/1", "Running", "0"]
    assert shown[5].startswith("10.")
    up.until(lambda: "Successfully assigned default/stays to node-" in up("describe", "pod", "stays"))
    began = time.monotonic()
    up("delete", "pod", "stays", "once", "--timeout=60s")
    assert time.monotonic() - began > 0.5


def test_a_job_runs_to_its_end(up):
    up("create", "job", "sum", "--image=sum:1")
    up("wait", "job/sum", "--for=condition=Complete", "--timeout=60s")
    assert up("get", "job", "sum", "--no-headers").split()[:3] == ["sum", "Complete", "1/1"]
    up("delete", "job", "sum", "--timeout=60s")


DATABASE = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: "db:1"}]}}
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: "agent:1"}]}}
"""


def test_a_namespace_goes_with_all_that_is_in_it(up):
    up("create", "namespace", "data")
    up("apply", "-n", "data", "-f", "-", stdin=DATABASE)
    assert "complete" in up("rollout", "status", "sts/db", "-n", "data", "--timeout=60s")
    assert "successfully rolled out" in up("rollout", "status", "ds/agent", "-n", "data", "--timeout=60s")
    claims = up("get", "pvc", "-n", "data", "--no-headers").splitlines()
    assert [line.split()[:2] for line in claims] == [["data-db-0", "Bound"], ["data-db-1", "Bound"]]
    nodes = up("get", "pods", "-n", "data", "-l", "app=agent", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert sorted(nodes) == [f"node-{i:02}" for i in range(1, 11)]
    up("delete", "namespace", "data", "--timeout=60s")
    up.until(lambda: up("get", "pv") == "")


def test_a_drained_nodes_pods_move_to_other_nodes(up):
    up("create", "deployment", "many", "--image=i", "--replicas=20")
    up("rollout", "status", "deploy/many", "--timeout=60s")
    busy = up("get", "pods", "-l", "app=many", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    up("create", "pdb", "many", "--selector=app=many", "--min-available=18")
    up("drain", busy[0], "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    up("rollout", "status", "deploy/many", "--timeout=60s")
    assert busy[0] not in up("get", "pods", "-l", "app=many", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    up("uncordon", busy[0])
    up("delete", "deploy", "many", "--timeout=60s")
    up.until(lambda: up("get", "pods", "-l", "app=many") == "")


def test_a_cluster_is_kept_in_a_file(tmp_path):
    kept = ["--data", str(tmp_path / "cluster.db")]
    cluster = Up(tmp_path, "--nodes", "2", *kept)
    cluster("create", "deployment", "web", "--image=web:1", "--replicas=3")
    cluster("rollout", "status", "deploy/web", "--timeout=60s")
    pods = cluster("get", "pods", "-o", "name")
    assert cluster.end()[0] == 0
    again = Up(tmp_path, *kept, "--no-scheduler")
    assert "with no scheduler" in again.said[0]
    assert again("get", "pods", "-o", "name") == pods
    assert len(again("get", "nodes", "-o", "name").split()) == 2
    assert again.end(signal.SIGTERM)[0] == 0, "an end on request is no error"


def test_a_down_node_does_not_delay_the_start_and_the_cluster_ends_in_time(tmp_path):
    nodes = tmp_path / "nodes.yaml"
    well, down = ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("well", "down"))
    down["metadata"]["annotations"] = {"moorage.dev/down": "true"}
    nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [well, down]}))
    cluster = Up(tmp_path, "-f", str(nodes), "--for", "1s")
    assert cluster.said[0].startswith("A cluster of 2 nodes ")
    cluster.process.communicate(timeout=60)
    assert cluster.process.returncode == 0


def test_a_cluster_starts_from_a_dump(up, tmp_path):
    up("create", "namespace", "team")
    up("create", "deployment", "api", "--image=api:1", "--replicas=2", "-n", "team")
    up("rollout", "status", "deploy/api", "-n", "team", "--timeout=60s")
    dump = tmp_path / "dump.yaml"
    dump.write_text(up("get", "nodes,namespaces,deploy,rs,pods,events", "-A", "-o", "yaml"))
    before = up("get", "pods", "-n", "team", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.spec.nodeName} {end}")
    other = Up(tmp_path, "-f", str(dump))
    try:
        assert len(other("get", "nodes", "-o", "name").split()) == 10
        after = other("get", "pods", "-n", "team", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.spec.nodeName} {end}")
        assert after == before
        other("scale", "deploy/api", "-n", "team", "--replicas=3")
        other("rollout", "status", "deploy/api", "-n", "team", "--timeout=60s")
    finally:
        status, _, err = other.end()
    assert status == 0
    assert "Event v1 left out" in err


def test_top_shows_declared_usage(up):
    metadata = {"name": "hot", "annotations": {"moorage.dev/usage-memory": "3Gi"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}]}
    up("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    up("wait", "pod/hot", "--for=condition=Ready", "--timeout=60s")
    assert up("top", "pod", "hot", "--containers", "--no-headers").split() == ["hot", "c", "1500m", "3072Mi"]
    assert len(up("top", "nodes", "--no-headers", "--sort-by=cpu").splitlines()) == 10
    up("delete", "pod", "hot", "--now")


def test_a_namespace_ends_with_all_that_is_in_it(up):
    up("create", "namespace", "going")
    up("create", "deployment", "web", "--image=web:1", "--replicas=3", "-n", "going")
    metadata = {"name": "slow", "annotations": {"moorage.dev/stop-seconds": "60"}}
    slow = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    up("apply", "-n", "going", "-f", "-", stdin=json.dumps(slow))
    up("wait", "pod/slow", "-n", "going", "--for=condition=Ready", "--timeout=60s")
    up("delete", "namespace", "going", "--wait=false")
    text = "Some resources are remaining: pods. has 1 resource instances"
    up.until(lambda: text in up("get", "namespace", "going", "-o", "yaml"))
    assert "is being terminated" in up("create", "configmap", "x", "-n", "going", fails=True)
    up("delete", "pod", "slow", "-n", "going", "--force", "--grace-period=0")
    up("wait", "namespace/going", "--for=delete", "--timeout=60s")
    assert up("get", "all,configmaps,events", "-n", "going") == ""


def test_requests_that_need_containers_are_rejected(up):
    up("run", "quiet", "--image=i")
    up("wait", "pod/quiet", "--for=condition=Ready", "--timeout=60s")
    pretended = 'container "quiet" of pod "quiet" is only pretended to run in this cluster'
    assert f"{pretended}: it has no log" in up("logs", "quiet", fails=True)
    assert f"{pretended}: no program can be run in it" in up("exec", "quiet", "--", "ls", fails=True)
    assert "it listens on no port" in up("port-forward", "pod/quiet", "8080:80", fails=True)
    up("debug", "quiet", "--image=busybox", "--container=look")
    running = "-o=jsonpath={.status.ephemeralContainerStatuses[?(@.name=='look')].state.running}"
    up.until(lambda: up("get", "pod", "quiet", running), 10)
    up("delete", "pod", "quiet", "--now")


def test_fields_are_explained(up):
    assert "The node of the pod" in up("explain", "pod.spec.nodeName")
    assert "DESCRIPTION:" in up("explain", "poddisruptionbudgets.spec", "--recursive")


def ask(port, name, host, authority, token=""):
    """Return the status of a request to a server that is dial_address by one name and called by another."""
    context = ssl.create_default_context(cadata=authority)
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    with (
        socket.create_connection(("127.0.0.1", port), 5) as line,
        context.wrap_socket(line, server_hostname=name) as channel,
    ):
        channel.sendall(f"GET /api HTTP/1.1\r\nHost: {host}:{port}\r\n{shown}Connection: close\r\n\r\n".encode())
        return int(channel.makefile("rb").readline().split()[1])


def test_remote_clients_connect_by_name_and_authenticate(tmp_path):
    up = Up(tmp_path, "--nodes=1", "--bind-address=0.0.0.0", "--tls-san=sim.example.org", "--tls-san=192.0.2.7")
    server = json.loads(up.config.read_text())["clusters"][0]["cluster"]["server"]
    assert server.startswith("https://127.0.0.1:")
    port, authority = int(server.rpartition(":")[2]), (tmp_path / "pki" / "ca.crt").read_text()
    token = (tmp_path / "pki" / "admin.token").read_text().strip()
    assert "sim.example.org, 192.0.2.7; the kubeconfig grants administrator access." in "".join(up.said)
    assert ask(port, "sim.example.org", "sim.example.org", authority, token) == 200
    assert ask(port, "192.0.2.7", "192.0.2.7", authority, token) == 200
    assert ask(port, "192.0.2.7", "192.0.2.7", authority) == 401
    assert ask(port, "sim.example.org", "evil.example.org", authority, token) == 403
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(port, "other.example.org", "other.example.org", authority, token)
    assert up("get", "nodes", "-o", "name") == "node/node-1\n"
    assert up.end()[0] == 0


WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How large it is.}
              color: {type: string, default: red}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
WIDGET = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: %s%s}\n"


def test_kubectl_uses_a_custom_kind(up):
    up("apply", "-f", "-", stdin=WIDGETS)
    up("wait", "crd/widgets.example.com", "--for=condition=Established", "--timeout=30s")
    assert "created" in up("apply", "-f", "-", stdin=WIDGET % (2, ""))
    assert up("get", "wd", "a").split() == ["NAME", "SIZE", "a", "2"]
    assert "widget.example.com/a" in up("get", "all", "-o", "name")
    assert "How large it is." in up("explain", "widgets.spec.size")
    assert "spec.size in body should be greater than or equal to 1" in up(
        "apply", "-f", "-", stdin=WIDGET % (0, ""), fails=True
    )
    assert 'unknown field "spec.sise"' in up("apply", "-f", "-", stdin=WIDGET % (2, ", sise: 3"), fails=True)
    up("scale", "widget/a", "--replicas=5")
    up("patch", "wd", "a", "--subresource=status", "--type=merge", "-p", '{"status": {"size": 5}}')
    found = up.read("widget", "a")
    assert (found["spec"], found["status"]) == ({"size": 5, "color": "red"}, {"size": 5})
    up("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=WIDGET % (7, ""))
    assert up.read("widget", "a")["spec"]["size"] == 7
    up("delete", "crd", "widgets.example.com")
    assert "could not find the requested resource" in up("get", "widgets", fails=True)
