"""What `moorage up` is given: its flags and their page, and what files become in its store."""

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from moorage.api.documents.object_fields import REPLICA_SETS
from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError
from moorage.api.releases import find_release
from moorage.basis.serving.listen_addresses import Address
from moorage.cluster.apiserver.http.serve import open_store
from moorage.cluster.controllers.manager import ControllerManager
from moorage.cluster.controllers.upkeep.status_controllers import ResourceQuotas
from moorage.errors import InputError
from moorage.interfaces.cli.live.embedded_cluster import Ready
from moorage.interfaces.cli.live.store_loader import fill, lost_pods
from moorage.interfaces.cli.live.up import _print_ready, own_kubeconfig, up
from tests.interfaces.cli.conftest import ROOT

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "up.md"
DUMP = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1, uid: un1}, status: {capacity: {cpu: "4", pods: "10"}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: shop, uid: u-1, creationTimestamp: "2020-01-01T00:00:00Z", resourceVersion: "9"}
  spec: {nodeName: n1, containers: [{name: c, image: i}]}
  status: {phase: Running, startTime: "2020-01-01T00:00:01Z"}
- {apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop}, involvedObject: {name: web}}
- {apiVersion: acme.io/v1, kind: Rocket, metadata: {name: r}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}
"""


def test_the_page_lists_every_flag():
    text = PAGE.read_text("utf-8")
    flags = {name for option in up.params for name in (*option.opts, *option.secondary_opts)}
    missing = [flag for flag in flags if f"`{flag}" not in text]
    assert not missing
    told = {
        word.strip("`,")
        for line in text.splitlines()
        if line.startswith("| `-")
        for word in line.split("|")[1].split()
        if "--" in word
    }
    assert told <= flags


@pytest.fixture
def store():
    made = open_store(seed=1)
    yield made
    made.close()


def put(store, tmp_path, text):
    path = tmp_path / "in.yaml"
    path.write_text(text)
    return fill(store, [str(path)])


def test_a_dump_is_taken_over_as_it_stands(store, tmp_path):
    remarks = put(store, tmp_path, DUMP)
    assert remarks == ["1 Event v1 left out", "1 Rocket acme.io/v1 left out"]
    pod = store.get(find_kind("pods"), "shop", "web").document()
    assert (pod["metadata"]["uid"], pod["status"]["phase"]) == ("u-1", "Running")
    assert pod["metadata"]["creationTimestamp"] == "2020-01-01T00:00:00Z"
    assert store.find(find_kind("namespaces"), "", "shop")
    assert store.get(find_kind("configmaps"), "default", "settings").document()["data"] == {"a": "b"}


def test_manifests_are_admitted_like_any_new_object(store, tmp_path):
    put(store, tmp_path, "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}")
    pod = store.get(find_kind("pods"), "default", "web").document()
    assert pod["metadata"]["uid"]
    assert [one["key"] for one in pod["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


def test_references_to_owners_missing_in_the_dump_are_removed(store, tmp_path):
    owner = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: %s, controller: true}]"
    dump = DUMP.replace("uid: u-1,", f"uid: u-1, {owner % 'gone'},")
    remarks = put(store, tmp_path, dump)
    assert "1 object with owners that are not in the input: kept without owner references" in remarks
    assert not store.get(find_kind("pods"), "shop", "web").document()["metadata"].get("ownerReferences")


def test_what_others_are_admitted_by_comes_first(store, tmp_path):
    put(
        store,
        tmp_path,
        """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {priorityClassName: high, containers: [{name: c, image: i}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 7
---
apiVersion: v1
kind: LimitRange
metadata: {name: usual, namespace: shop}
spec: {limits: [{type: Container, defaultRequest: {cpu: 250m}}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {tier: front}}
""",
    )
    spec = store.get(find_kind("pods"), "shop", "web").document()["spec"]
    assert spec["priority"] == 7
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "250m"}
    assert store.get(find_kind("namespaces"), "", "shop").labels["tier"] == "front"


def test_the_example_cluster_can_be_loaded_at_the_start(store):
    demo = PAGE.parents[2] / "examples" / "demo"
    fill(store, [str(demo)])
    assert len([*store.all(find_kind("nodes"))]) == 8


def test_existing_objects_are_kept(store, tmp_path):
    put(store, tmp_path, DUMP)
    assert "1 Pod left out: already exists" in put(store, tmp_path, DUMP.replace("phase: Running", "phase: Failed"))
    assert store.get(find_kind("pods"), "shop", "web").document()["status"]["phase"] == "Running"


def test_faults_are_reported_together_with_their_position(store, tmp_path):
    pod = yaml.safe_load("{apiVersion: v1, kind: Pod, metadata: {name: Bad_Name}, spec: {containers: []}}")
    with pytest.raises(InputError) as caught:
        put(store, tmp_path, yaml.safe_dump_all([pod, {**pod, "metadata": {"name": "fine"}}]))
    first, second = str(caught.value).splitlines()
    assert "in.yaml:" in first
    assert 'Invalid value: "Bad_Name"' in first
    assert "spec.containers: Required value" in second


#: An object of a list → the remark about it.
LEFT_OUT = {
    "a text for a number": (
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": {"priority": "many", "containers": []}},
        "items[1]: Pod bad: json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32",
    ),
    "a definition that is a number inside": (
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}, "spec": 7},
        "items[1]: CustomResourceDefinition a.b: json: cannot unmarshal number into Go struct field",
    ),
    "metadata that is a list": (
        {"apiVersion": "v1", "kind": "Pod", "metadata": []},
        "items[1]: Pod: metadata: expected an object",
    ),
    "no object": (None, "items[1]: expected a Kubernetes object with apiVersion and kind, found null"),
    "refused": (
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}},
        'items[1]: Pod p: Pod "p" is invalid: spec.containers: Required value',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("item", "said"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_an_object_of_a_dump_is_left_out_by_name(store, tmp_path, item, said):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    (remark,) = put(
        store,
        tmp_path,
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [config, item, {**config, "metadata": {"name": "more"}}]}),
    )
    assert remark.startswith("left out, as it cannot be read: ")
    assert said in remark
    assert store.get(find_kind("configmaps"), "default", "more")
    if item is not None:
        with pytest.raises(InputError):
            put(store, tmp_path, yaml.safe_dump(item))


REFUSED = {
    "no quantity": (["--node-cpu", "lots"], "--node-cpu: lots is not a quantity"),
    "a file that is not there": (["-f", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
    "a plugin that is not there": (["--plugins", "nowhere:It"], "nowhere"),
    "no configuration": (
        ["--admission-control-config-file", "nowhere.yaml"], "--admission-control-config-file: nowhere.yaml: No such file",
    ),
    "no audit policy": (
        ["--audit-log-path", "-", "--audit-policy-file", "nowhere.yaml"], "--audit-policy-file: nowhere.yaml: No such file",
    ),
    "an audit policy without a log": (["--audit-policy-file", "nowhere.yaml"], "give --audit-log-path FILE"),
    "an audit log that is a folder": (["--audit-log-path", "/"], "--audit-log-path: / cannot be written: Is a directory"),
    "no duration": (["--for", "soon"], "Invalid value for '--for'"),
}  # fmt: skip


def test_a_port_in_use_is_reported(moorage, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = moorage("up", "--home", str(tmp_path), "--port", str(port))
    assert ran.status == 1
    assert ran.err == f"error: --port: 127.0.0.1:{port} cannot be listened on: Address already in use; 0 selects a free port\n"


@pytest.mark.parametrize(("arguments", "said"), REFUSED.values(), ids=REFUSED)
def test_invalid_options_are_reported_in_one_line(moorage, tmp_path, arguments, said):
    ran = moorage("up", "--home", str(tmp_path), *arguments)
    assert ran.status == 1
    assert ran.err.startswith("error: ")
    assert said in ran.err


def test_the_printed_export_works_in_any_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ready = Ready(port=6443, kubeconfig=Path("my cluster/kubeconfig"), nodes=1)
    _print_ready(ready, {"no_scheduler": False, "data": None}, Address("127.0.0.1"), 0.25, None)
    first, _, export, *_ = capsys.readouterr().out.splitlines()
    assert first == "A cluster of 1 node with a scheduler is up on https://127.0.0.1:6443 after 0.2s."
    assert export == f"  export KUBECONFIG='{tmp_path}/my cluster/kubeconfig'"


def test_a_short_start_is_reported(moorage, tmp_path):
    ran = moorage("up", "--nodes", "1", "--home", tmp_path, "--for", "1ms")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("A cluster of 1 node with a scheduler is up on https://127.0.0.1:")


@pytest.mark.slow
def test_the_start_counts_from_that_of_the_command(tmp_path):
    """Loading the command takes most of a start, and the user waits for it."""
    command = [sys.executable, "-m", "moorage", "up", "--nodes", "1", "--home", str(tmp_path), "--for", "1ms"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        waited_s = time.monotonic() - began
        process.stdout.read()
    found = re.search(r"after ([0-9.]+)s\.$", line.strip())
    assert found is not None, line
    assert 0.5 * waited_s - 0.1 < float(found[1]) < waited_s + 0.1


def test_a_cluster_starts_with_configured_admission(moorage, tmp_path):
    head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
    (tmp_path / "right.yaml").write_text(f"{head}plugins: [{{name: PodSecurity}}]\n")
    (tmp_path / "wrong.yaml").write_text(f"{head}plugins: [{{name: ImagePolicyWebhook}}]\n")
    flag = "--admission-control-config-file"
    ran = moorage("up", "--nodes", "1", "--home", tmp_path, "--for", "1ms", flag, tmp_path / "right.yaml")
    assert (ran.status, ran.err) == (0, "")
    ran = moorage("up", "--home", tmp_path, flag, tmp_path / "wrong.yaml")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {flag}: {tmp_path}/wrong.yaml cannot be used:")
    assert "ImagePolicyWebhook cannot be configured here" in ran.err


def test_an_audit_log_has_the_requests_of_the_scheduler(moorage, tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, users: ['system:kube-scheduler'], more: 1}]\n"
    )
    flags = "--audit-log-path", tmp_path / "audit.log", "--audit-policy-file", tmp_path / "policy.yaml"
    ran = moorage("up", "--nodes", "1", "--home", tmp_path, "--for", "1ms", *flags)
    assert ran.status == 0
    assert ran.err == f"--audit-policy-file: {tmp_path}/policy.yaml: unknown field rules[0].more is ignored\n"
    events = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert {event["user"]["username"] for event in events} == {"system:kube-scheduler"}
    assert {"RequestReceived", "ResponseStarted", "ResponseComplete"} == {event["stage"] for event in events}


def test_a_file_without_a_cluster_is_reported_with_its_flag(moorage, tmp_path):
    (tmp_path / "pods.yaml").write_text(DUMP)
    ran = moorage("up", "--home", tmp_path, "--data", tmp_path / "pods.yaml")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        f"error: --data: {tmp_path}/pods.yaml: it is damaged, or not a file of moorage up "
        "(file is not a database); start from a copy of it, or with another file\n"
    )


QUOTAS = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: full, namespace: shop}
spec: {hard: {pods: "1", configmaps: "1"}}
status: {hard: {pods: "1", configmaps: "1"}, used: {pods: "1", configmaps: "0"}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop, uid: u-2}
spec: {containers: [{name: c, image: i}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: shop}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
"""


def test_quotas_do_not_reject_objects_of_files(store, tmp_path):
    assert put(store, tmp_path, QUOTAS) == []
    assert put(store, tmp_path, QUOTAS.replace("name: b", "name: d")) != []
    assert [record.name for record in store.all(find_kind("pods"))] == ["a", "b", "d"]
    manager = ControllerManager(store, [ResourceQuotas()])
    manager.step()
    used = store.get(find_kind("resourcequotas"), "shop", "full").document()["status"]["used"]
    assert used == {"pods": "3", "configmaps": "1"}
    with pytest.raises(ApiError, match="exceeded quota: full, requested: pods=1, used: pods=3, limited: pods=1"):
        store.create(
            find_kind("pods"), "shop", {"metadata": {"name": "e"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        )


def test_pods_on_nodes_that_are_not_there_are_named(store, tmp_path):
    put(store, tmp_path, DUMP.replace("metadata: {name: n1, uid: un1}", "metadata: {name: n2}"))
    assert list(lost_pods(store)) == ["1 pod on 1 node that does not exist (n1): pod garbage collection deletes it in 40s"]
    put(store, tmp_path, "{apiVersion: v1, kind: Node, metadata: {name: n1}}")
    assert not list(lost_pods(store))


def test_finished_pods_are_not_reported_as_lost(store, tmp_path):
    put(store, tmp_path, DUMP.replace("{name: n1, uid: un1}", "{name: n2}").replace("Running", "Succeeded"))
    assert not list(lost_pods(store))


# -- owners that a dump leaves out -----------------------------------------------------------------------------------------

DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "uid": "d-1"},
    "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:2"}]}},
    },
}  # fmt: skip


def replica(name, mark, image="i:2", **metadata):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{mark}", "uid": f"r-{mark}", "controller": True}
    labels = {"app": "web", "pod-template-hash": mark}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "uid": f"p-{name}", "labels": labels, "ownerReferences": [owner], **metadata},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": image}]}, "status": {"phase": "Running"},
    }  # fmt: skip


def put_all(store, tmp_path, *documents, dump=json.dumps):
    return put(store, tmp_path, dump({"apiVersion": "v1", "kind": "List", "items": list(documents)}))


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_a_replica_set_missing_in_the_dump_is_created_from_its_pods(store, tmp_path, dump):
    pods = [replica("a", "5d4f"), replica("b", "5d4f"), *(replica(f"old-{n}", "77aa", "i:1") for n in range(3))]
    remarks = put_all(store, tmp_path, DEPLOYMENT, *pods, dump=dump)
    assert "1 replica set not in the input: recreated from deployments and pods" in remarks
    assert "3 objects with owners that are not in the input: kept without owner references" in remarks
    (made,) = [record.document() for record in store.all(REPLICA_SETS)]
    assert (made["metadata"]["name"], made["metadata"]["uid"], made["spec"]["replicas"]) == ("web-5d4f", "r-5d4f", 2)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "d-1"
    assert made["spec"]["selector"] == {"matchLabels": {"app": "web", "pod-template-hash": "5d4f"}}
    owners = store.get(find_kind("pods"), "default", "a").document()["metadata"]["ownerReferences"]
    assert owners[0]["uid"] == "r-5d4f"


def test_no_replica_set_is_created_without_a_reference(store, tmp_path):
    ending = replica("a", "5d4f", deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30)
    stranger = replica("b", "5d4f")
    stranger["metadata"]["labels"]["pod-template-hash"] = "another"
    put_all(store, tmp_path, DEPLOYMENT, ending, stranger)
    assert not list(store.all(REPLICA_SETS))


HOSTILE = {
    "owners that are no list": ("metadata", "ownerReferences", {"a": 1}),
    "owners that are no objects": ("metadata", "ownerReferences", ["x", None, 7]),
    "labels that are none": ("metadata", "labels", ["x"]),
    "an invalid status": ("status", None, "x"),
    "an invalid spec": ("spec", None, 7),
}
HOSTILE_DEPLOYMENTS = {
    "replicas that are no number": {"replicas": "many"},
    "replicas that are nothing": {"replicas": None},
    "an invalid strategy": {"strategy": ["x"]},
    "an invalid template": {"template": "x"},
    "labels that are none": {"template": {"metadata": {"labels": 7}}},
    "an invalid selector": {"selector": 7},
}


def came_to(begin, named):
    """Return whether a start went well, or was refused with the name of what is wrong."""
    try:
        begin()
    except InputError as refused:
        return named in str(refused)
    return True


@pytest.mark.parametrize(("part", "field", "value"), HOSTILE.values(), ids=HOSTILE)
def test_invalid_pods_cause_no_traceback_at_the_start(store, tmp_path, part, field, value):
    pod = replica("a", "5d4f")
    if field is None:
        pod[part] = value
    else:
        pod[part][field] = value
    assert came_to(lambda: put_all(store, tmp_path, DEPLOYMENT, pod), "Pod a")


@pytest.mark.parametrize("spec", HOSTILE_DEPLOYMENTS.values(), ids=HOSTILE_DEPLOYMENTS)
def test_invalid_deployments_cause_no_traceback_at_the_start(store, tmp_path, spec):
    deployment = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], **spec}}
    assert came_to(lambda: put_all(store, tmp_path, deployment, replica("a", "5d4f")), "Deployment web")


class _StoreOpenedError(Exception):
    pass


@pytest.mark.parametrize("release", ["1.36", "1.37"])
@pytest.mark.parametrize("words", [[], ["--no-scheduler"]], ids=["with a scheduler", "without"])
def test_the_cluster_has_the_gates_of_the_emulated_release(release, words, tmp_path, monkeypatch):
    def opened(*_, gates, **__):
        raise _StoreOpenedError(gates.release, gates["DRADeviceTaintRules"])

    monkeypatch.setattr("moorage.interfaces.cli.live.up.open_store", opened)
    with pytest.raises(_StoreOpenedError) as found:
        up.main([*words, "--emulate", release, "--home", str(tmp_path)], standalone_mode=False)
    assert found.value.args == (find_release(release).name, release == "1.37")


def test_a_pod_needs_its_service_account_and_those_of_an_input_are_made(store, tmp_path):
    """A dump may lack the accounts that its pods name; a pod that comes later is refused without one, in upstream's words."""
    held = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old", "namespace": "shop"},
            "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
    (tmp_path / "dump.json").write_text(json.dumps(held))
    assert fill(store, [str(tmp_path)]) == ["1 service account not in the input: made, as pods name them"]
    pods = find_kind("pods")
    late = {**held, "metadata": {"name": "late"}}
    store.create(pods, "shop", json.loads(json.dumps(late)))
    late["spec"] = {**held["spec"], "serviceAccountName": "ghost"}
    with pytest.raises(ApiError) as refused:
        store.create(pods, "shop", {**late, "metadata": {"name": "lost"}})
    why = 'error looking up service account shop/ghost: serviceaccount "ghost" not found'
    assert (refused.value.code, str(refused.value)) == (403, f'pods "lost" is forbidden: {why}')


@pytest.mark.parametrize(("option", "command"), [("--port", ["report", "--serve"]), ("--http", ["mcp"])], ids=["report", "mcp"])
def test_every_server_reports_a_port_in_use(moorage, option, command):
    if command == ["mcp"]:
        pytest.importorskip("mcp")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = moorage(*command, "-f", str(ROOT / "examples/demo"), option, str(port))
    why = f"127.0.0.1:{port} cannot be listened on: Address already in use; 0 selects a free port"
    assert (ran.status, ran.out, ran.err) == (1, "", f"error: {option}: {why}\n")


def test_a_second_cluster_leaves_the_kubeconfig_of_one_that_runs(moorage, tmp_path):
    words = ("up", "--home", str(tmp_path), "--for", "0s", "--nodes", "0", "--no-scheduler")
    first = tmp_path / "kubeconfig"
    with own_kubeconfig(tmp_path) as path:
        assert path == first
        first.write_text("of the first")
        ran = moorage(*words)
    assert (ran.status, first.read_text()) == (0, "of the first")
    assert f"export KUBECONFIG={first}-2\n" in ran.out
    assert f"note: {first} is that of a cluster that runs; this one writes {first}-2" in ran.err
    assert f"export KUBECONFIG={first}\n" in moorage(*words).out
    assert first.read_text() != "of the first"
