"""kubectl against the server: what people type, and what they are used to seeing."""

import json
import random
import shutil
import ssl
import subprocess
import time

import pytest

from moorage.apiserver.serving import write_kubeconfig
from moorage.apiserver.store import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="kubectl sends tokens over TLS only, and openssl is not installed"
    ),
]

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: c, image: "nginx:1", resources: {requests: {cpu: 100m}}}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: "4", pods: "10"}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: c, image: "nginx:1"}]
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    home = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", home / "key.pem", "-out", home / "cert.pem", "-subj", "/CN=moorage",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return home


@pytest.fixture
def kubectl(certificate, server_in_a_thread, token, tmp_path):
    """Return a function that runs kubectl against a new server, where DEPLOYMENT is applied; it returns what is printed."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")}

    def run(*arguments, fails=False, stdin=None):
        done = subprocess.run(
            ["kubectl", *arguments], check=False, capture_output=True, text=True, env=environment, input=stdin, timeout=60
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    with server_in_a_thread(Store(time.time, random.Random(2), b"k"), tls) as port:
        write_kubeconfig(tmp_path / "config", port, token, (certificate / "cert.pem").read_bytes())
        assert (tmp_path / "config").stat().st_mode & 0o077 == 0
        run("apply", "-f", "-", stdin=DEPLOYMENT)
        yield run


def read(kubectl, *what):
    return json.loads(kubectl("get", *what, "-o", "json"))


def test_get_prints_the_usual_columns(kubectl):
    assert kubectl("get", "pods").split("\n")[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert kubectl("get", "pods", "-o", "wide").split("\n")[1].split()[:4] == ["web", "0/1", "Pending", "0"]
    assert kubectl("get", "no", "--no-headers").split()[:3] == ["n1", "Ready", "<none>"]
    assert kubectl("get", "deploy,po", "-o", "name").split() == ["deployment.apps/shop", "pod/web"]
    assert "kind: Pod" in kubectl("get", "pod", "web", "-o", "yaml")
    assert 'pods "db" not found' in kubectl("get", "pod", "db", fails=True)


def test_apply_changes_what_changed(kubectl):
    changed = DEPLOYMENT.replace("replicas: 2", "replicas: 3").replace("app: web}", "tier: front}")
    printed = kubectl("apply", "-f", "-", stdin=changed).splitlines()
    assert printed == ["deployment.apps/shop configured", "node/n1 unchanged", "pod/web configured"]
    assert read(kubectl, "pod", "web")["metadata"]["labels"] == {"tier": "front"}
    assert read(kubectl, "deploy", "shop")["spec"]["replicas"] == 3
    preview = kubectl("apply", "--dry-run=server", "-f", "-", stdin=DEPLOYMENT)
    assert "deployment.apps/shop configured (server dry run)" in preview
    assert read(kubectl, "deploy", "shop")["spec"]["replicas"] == 3


def test_a_node_is_labelled_tainted_and_cordoned(kubectl):
    kubectl("label", "node", "n1", "zone=a")
    kubectl("taint", "node", "n1", "k=v:NoSchedule")
    kubectl("cordon", "n1")
    node = read(kubectl, "node", "n1")
    assert node["metadata"]["labels"] == {"zone": "a"}
    assert node["spec"]["taints"][0] == {"effect": "NoSchedule", "key": "k", "value": "v"}
    assert "Ready,SchedulingDisabled" in kubectl("get", "nodes", "-l", "zone=a")
    kubectl("taint", "node", "n1", "k-")
    kubectl("uncordon", "n1")
    assert "taints" not in read(kubectl, "node", "n1")["spec"]
    assert "Taints:" in kubectl("describe", "node", "n1")


def test_scale_patch_wait_describe_and_delete(kubectl):
    kubectl("scale", "deploy", "shop", "--replicas=5")
    assert read(kubectl, "deploy", "shop")["spec"]["replicas"] == 5
    kubectl("patch", "deploy", "shop", "-p", '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"nginx:2"}]}}}}')
    container = read(kubectl, "deploy", "shop")["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["resources"]) == ("nginx:2", {"requests": {"cpu": "100m"}})
    kubectl("patch", "pod", "web", "--type=json", "-p", '[{"op":"add","path":"/metadata/labels/x","value":"y"}]')
    kubectl("wait", "pod/web", "--for=jsonpath={.status.phase}=Pending", "--timeout=10s")
    assert "QoS Class:        BestEffort" in kubectl("describe", "pod", "web")
    kubectl("delete", "pod", "web")
    kubectl("wait", "pod/web", "--for=delete", "--timeout=10s")
    assert kubectl("get", "pods") == ""


def test_what_is_wrong_is_told(kubectl):
    bad = "apiVersion: v1\nkind: Pod\nmetadata: {name: Bad_Name}\nspec: {containers: [{name: c, image: i}]}\n"
    printed = kubectl("create", "-f", "-", stdin=bad, fails=True)
    assert 'The Pod "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain' in printed
    assert "AlreadyExists" in kubectl("create", "-f", "-", stdin=DEPLOYMENT, fails=True)


def test_api_resources_are_listed(kubectl):
    listed = {line.split()[0] for line in kubectl("api-resources", "--no-headers").splitlines()}
    assert {"pods", "nodes", "deployments", "poddisruptionbudgets", "leases", "resourceclaims"} <= listed


def test_typed_clients_speak_protobuf(kubectl):
    kubectl("create", "namespace", "team")
    kubectl("create", "deployment", "app", "--image=x", "--replicas=0", "-n", "team")
    assert read(kubectl, "deploy", "app", "-n", "team")["spec"]["replicas"] == 0
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    kubectl("create", "pdb", "calm", "--selector=app=web", "--min-available=50%")
    assert read(kubectl, "pdb", "calm")["spec"]["minAvailable"] == "50%"
    kubectl("delete", "namespace", "team", "--timeout=20s")
    assert "not found" in kubectl("get", "deploy", "app", "-n", "team", fails=True)


def test_drain_evicts_what_it_may(kubectl):
    kubectl("run", "placed", "--image=i", '--overrides={"spec":{"nodeName":"n1","terminationGracePeriodSeconds":0}}')
    assert "pod/placed evicted" in kubectl("drain", "n1", "--force", "--timeout=20s")
    assert read(kubectl, "node", "n1")["spec"]["unschedulable"] is True
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/web"]
