"""kubectl against the server: usual commands and their output."""

import glob
import json
import random
import shlex
import shutil
import ssl
import subprocess
import time

import pytest

from moorage.rules.store.store import Store
from tests.kubeconfigs import write_kubeconfig

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
    """Return a function that runs kubectl against a new server with DEPLOYMENT applied, and returns its output."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config"),
        "GOGC": "off",  # kubectl's garbage collector takes a quarter of its time
    }  # fmt: skip

    def run(*arguments, fails=False, stdin=None, program="kubectl", both=False, editor="false"):
        done = subprocess.run(
            [shutil.which(program), *arguments],  # that of who runs the tests, wherever it lies
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            timeout=60,
            env={**environment, "KUBE_EDITOR": editor},
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr if both else done.stderr if fails else done.stdout

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


def test_apply_changes_what_differs(kubectl):
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


def test_errors_are_printed(kubectl):
    bad = "apiVersion: v1\nkind: Pod\nmetadata: {name: Bad_Name}\nspec: {containers: [{name: c, image: i}]}\n"
    printed = kubectl("create", "-f", "-", stdin=bad, fails=True)
    assert 'The Pod "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain' in printed
    assert "AlreadyExists" in kubectl("create", "-f", "-", stdin=DEPLOYMENT, fails=True)


def test_api_resources_are_listed(kubectl):
    listed = {line.split()[0] for line in kubectl("api-resources", "--no-headers").splitlines()}
    assert {"pods", "nodes", "deployments", "poddisruptionbudgets", "leases", "resourceclaims"} <= listed


def test_typed_clients_use_protobuf(kubectl):
    kubectl("create", "namespace", "team")
    kubectl("create", "deployment", "app", "--image=x", "--replicas=0", "-n", "team")
    assert read(kubectl, "deploy", "app", "-n", "team")["spec"]["replicas"] == 0
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    kubectl("create", "pdb", "calm", "--selector=app=web", "--min-available=50%")
    assert read(kubectl, "pdb", "calm")["spec"]["minAvailable"] == "50%"
    kubectl("delete", "namespace", "team", "--timeout=20s")
    assert "not found" in kubectl("get", "deploy", "app", "-n", "team", fails=True)


def test_drain_evicts_within_budgets(kubectl):
    kubectl("run", "placed", "--image=i", '--overrides={"spec":{"nodeName":"n1","terminationGracePeriodSeconds":0}}')
    assert "pod/placed evicted" in kubectl("drain", "n1", "--force", "--timeout=20s")
    assert read(kubectl, "node", "n1")["spec"]["unschedulable"] is True
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/web"]


#: What people type, in order, and what they expect to read; a "!" before a command says that it fails.
COMMANDS = (
    ("apply --server-side -f {file}", "deployment.apps/shop serverside-applied"),
    ("apply --server-side -f {file} --dry-run=server", "node/n1 serverside-applied (server dry run)"),
    ("!apply --server-side --field-manager=other -f {more}", 'failed with 1 conflict: conflict with "kubectl": .spec.replicas'),
    ("!diff -f {more}", "+  replicas: 4"),
    ("!diff --server-side --force-conflicts -f {more}", "+  replicas: 4"),
    ("apply --server-side --field-manager=other --force-conflicts -f {more}", "deployment.apps/shop serverside-applied"),
    ("get deploy shop -o jsonpath={{.spec.replicas}}", "4"),
    ("get deploy shop -o yaml --show-managed-fields", "manager: other"),
    ("apply -f {file}", "deployment.apps/shop configured"),
    ("get deploy shop -o jsonpath={{.spec.replicas}}", "2"),
    ("get all", "deployment.apps/shop"),
    ("get pods -o wide -l app=web", "web"),
    ("get pods -l app=none", "No resources found"),
    ("get pods --field-selector=spec.nodeName=,status.phase=Pending -o name", "pod/web"),
    ("!get pods --field-selector=spec.image=x", "field label not supported: spec.image"),
    ("get nodes,deploy --sort-by=.metadata.name -o name", "node/n1"),
    ("get pods -A --chunk-size=1 --no-headers", "web"),
    ("get pod web -o custom-columns=N:.metadata.name,S:.status.phase", "web   Pending"),
    ("describe pod web", "Status:           Pending"),
    ("describe node n1", "Capacity:"),
    ("describe deploy shop", "Replicas:               2 desired"),
    ("describe pvc data", "Access Modes:"),
    ("explain pod.spec.containers", "ports\t<[]ContainerPort>"),
    ("explain deploy.spec.replicas", "FIELD: replicas <integer>"),
    ("explain pod --recursive", "topologySpreadConstraints"),
    ("annotate pod web team=a", "pod/web annotated"),
    ("annotate pod web team-", "pod/web annotated"),
    ("label pod web app=db --overwrite", "pod/web labeled"),
    ("!label pod web app=x", "already has a value (db)"),
    ("set image deploy/shop c=nginx:9", "deployment.apps/shop image updated"),
    ("rollout restart deploy/shop", "deployment.apps/shop restarted"),
    ("rollout pause deploy/shop", "deployment.apps/shop paused"),
    ("rollout resume deploy/shop", "deployment.apps/shop resumed"),
    ("rollout history deploy/shop", "deployment.apps/shop"),
    ("!rollout status deploy/shop --timeout=1s", "timed out waiting for the condition"),
    ("patch deploy shop -p {{\"spec\":{{\"replicas\":5}}}}", "deployment.apps/shop patched"),
    ("patch deploy shop --type=merge -p {{\"spec\":{{\"paused\":true}}}}", "deployment.apps/shop patched"),
    ("patch deploy shop --type=json -p [{{\"op\":\"remove\",\"path\":\"/spec/paused\"}}]", "deployment.apps/shop patched"),
    ("patch deploy shop --subresource=scale --type=merge -p {{\"spec\":{{\"replicas\":3}}}}", "scale.autoscaling/shop patched"),
    ("get deploy shop --subresource=scale", "DESIRED"),
    ("!scale deploy shop --replicas=2 --current-replicas=9", "Expected replicas to be 9, was 3"),
    ("scale deploy shop --replicas=1", "deployment.apps/shop scaled"),
    ("wait deploy/shop --for=jsonpath={{.spec.replicas}}=1 --timeout=5s", "deployment.apps/shop condition met"),
    ("!wait pod/web --for=condition=Ready --timeout=1s", "timed out waiting for the condition"),
    ("create configmap cm --from-literal=a=b", "configmap/cm created"),
    ("create ingress shop --rule=shop.b/c=svc:80", "ingress.networking.k8s.io/shop created"),
    ("!create -f {strange}", 'no matches for kind "Widget" in version "example.com/v1"'),
    ("apply -l kept=some -f {both}", "configmap/other created"),
    ("apply --prune -l kept=some -f {one}", "configmap/other pruned"),
    ("create job once --image=x", "job.batch/once created"),
    ("create priorityclass high --value=100", "priorityclass.scheduling.k8s.io/high created"),
    ("create deployment tmp --image=x --dry-run=server -o name", "deployment.apps/tmp"),
    ("!create -f {unknown}", 'strict decoding error: unknown field "spec.containers[0].imag"'),
    ("create -f {unknown} --validate=warn", "pod/odd created"),
    ("delete cm cm --dry-run=server", "(server dry run)"),
    ("delete deploy shop --cascade=orphan --wait=false", 'deployment.apps "shop" deleted'),
    ("delete pod odd --now --wait=false", 'pod "odd" deleted'),
    ("delete pod web --force --grace-period=0", "force deleted"),
    ("delete job,cm --all --wait=false", 'configmap "cm" deleted'),
    ("events", "No events found"),
    ("auth can-i create pods", "yes"),
    ("auth whoami", "admin"),
    ("cluster-info", "control plane"),
    ("version", "Server Version: v1.37"),
    ("api-versions", "resource.k8s.io/v1"),
    ("get --raw /readyz", "ok"),
    ("top nodes", "n1"),
    ("top pods -A", "No resources found"),
    ("!get widgets", "the server doesn't have a resource type"),
)  # fmt: skip
UNKNOWN = "apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec: {containers: [{name: c, imag: x, image: i}]}\n"
CLAIM = """---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""


STRANGE = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n"
ONE_KEPT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, labels: {kept: some}}\n"
BOTH_KEPT = f"{ONE_KEPT}---\n{ONE_KEPT.replace('one', 'other')}"


@pytest.fixture
def files(tmp_path):
    texts = {
        "file": DEPLOYMENT + CLAIM, "more": DEPLOYMENT.replace("replicas: 2", "replicas: 4"), "unknown": UNKNOWN,
        "strange": STRANGE, "one": ONE_KEPT, "both": BOTH_KEPT,
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in texts}


def test_usual_commands_work(kubectl, files):
    kubectl("delete", "-f", files["file"], "--ignore-not-found", "--wait=false")
    for command, expected in COMMANDS:
        words = [word.format(**files) for word in _words(command.removeprefix("!"))]
        fails = command.startswith("!")
        printed = kubectl(*words, fails=fails, both=True)
        assert expected in printed, f"{command}\n{printed}"


def _words(command):
    """Return the words of a command; the content of braces is one word with its quotes."""
    return command.split(" ") if '"' in command else shlex.split(command)


def test_an_editor_changes_an_object(kubectl):
    kubectl("edit", "pod", "web", editor="sed -i s/app:.web/app:\\ edited/")
    assert read(kubectl, "pod", "web")["metadata"]["labels"] == {"app": "edited"}


#: Other releases of kubectl, where Google's packages put them.
RELEASES = sorted(glob.glob("/usr/lib/google-cloud-sdk/bin/kubectl.1.*"))


@pytest.mark.skipif(not RELEASES, reason="no other releases of kubectl are installed")
def test_other_releases_of_kubectl_work(kubectl, files):
    for program in (RELEASES[0], RELEASES[-1]):
        for command, expected in (
            ("apply -f {file}", "shop"), ("apply --server-side --force-conflicts -f {file}", "serverside-applied"),
            ("get pods,nodes -o wide", "web"), ("describe node n1", "Capacity"), ("explain pod.spec", "nodeName"),
            ("scale deploy shop --replicas=3", "scaled"), ("auth can-i list nodes", "yes"),
            ("taint node n1 a=b:NoSchedule", "tainted"),
            ("taint node n1 a-", "untainted"), ("drain n1 --force", "drained"), ("uncordon n1", "uncordoned"),
        ):  # fmt: skip
            assert expected in kubectl(*command.format(**files).split(), program=program, both=True), command
