"""The rendered kustomize base, its component and its example: what a cluster is asked to run, and with which rights."""

from pathlib import Path

import pytest
import yaml

from moorage import __version__
from moorage.cluster.apiserver.access.bootstrap import bootstrap_objects
from moorage.interfaces.cli.main import _run

ROOT = Path(__file__).resolve().parents[2]
NAME, NAMESPACE = "moorage-scheduler", "moorage-system"
ROLES = [f"{NAMESPACE}:{NAME}:{part}-scheduler" for part in ("kube", "volume")]

CONTAINER = {  # where in the container's spec, what has to stand there
    ("securityContext", "allowPrivilegeEscalation"): False,
    ("securityContext", "readOnlyRootFilesystem"): True,
    ("securityContext", "capabilities"): {"drop": ["ALL"]},
    ("imagePullPolicy",): "IfNotPresent",
    ("ports",): [{"name": "https", "containerPort": 10259, "protocol": "TCP"}],
    ("startupProbe", "httpGet"): {"scheme": "HTTPS", "port": "https", "path": "/livez"},
    ("livenessProbe", "httpGet"): {"scheme": "HTTPS", "port": "https", "path": "/livez"},
    ("readinessProbe", "httpGet"): {"scheme": "HTTPS", "port": "https", "path": "/readyz"},
    ("resources", "requests", "cpu"): "100m",
    ("resources", "requests", "memory"): "256Mi",
    ("resources", "limits", "memory"): "2Gi",
}
POD = {
    ("securityContext", "runAsNonRoot"): True,
    ("securityContext", "runAsUser"): 65532,
    ("securityContext", "runAsGroup"): 65532,
    ("securityContext", "seccompProfile"): {"type": "RuntimeDefault"},
    ("priorityClassName",): "system-cluster-critical",
    ("serviceAccountName",): NAME,
    ("automountServiceAccountToken",): True,
}


def at(tree, path):
    for step in path:
        tree = tree[step]
    return tree


def template(pick, objects):
    return pick(objects, "Deployment")["spec"]["template"]


@pytest.mark.parametrize("folder", ["base", "overlays/own-plugin"])
def test_the_pods_have_no_more_than_they_need(render, pick, folder):
    pod = template(pick, render(folder))["spec"]
    assert {path: at(pod, path) for path in POD} == POD
    assert {path: at(pod["containers"][0], path) for path in CONTAINER} == CONTAINER
    assert len(pod["containers"]) == 1
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    # Nothing of the node is mounted, and nothing but an empty folder can be written.
    assert all(set(volume) - {"name"} <= {"configMap", "emptyDir"} for volume in pod["volumes"])
    writable = [mount["name"] for mount in pod["containers"][0]["volumeMounts"] if not mount.get("readOnly")]
    assert [next(one for one in pod["volumes"] if one["name"] == name) for name in writable] == [
        {"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}}
    ]


def test_two_replicas_keep_apart_and_one_stays(render, pick):
    objects = render("base")
    deployment, budget = pick(objects, "Deployment"), pick(objects, "PodDisruptionBudget")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    (term,) = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"] == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}


# -- rights -------------------------------------------------------------------------------------------------------------


def account():
    return [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]


def granted(objects):
    """Return (namespace, role) of every binding; all are for the scheduler's account alone."""
    bindings = [one for one in objects if one["kind"] in {"ClusterRoleBinding", "RoleBinding"}]
    assert all(one["subjects"] == account() for one in bindings)
    return {(one["metadata"].get("namespace", ""), one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings}


OTHERS = {("kube-system", "Role", "extension-apiserver-authentication-reader"), (NAMESPACE, "Role", f"{NAME}:lease")}


def test_the_account_has_the_cluster_s_scheduler_roles_and_its_own_lease(render, pick):
    objects = render("base")
    assert granted(objects) == {
        ("", "ClusterRole", "system:kube-scheduler"), ("", "ClusterRole", "system:volume-scheduler"), *OTHERS
    }  # fmt: skip
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert pick(objects, "Role")["rules"] == [
        {**leases, "verbs": ["create"]}, {**leases, "resourceNames": [NAME], "verbs": ["get", "update"]}
    ]  # fmt: skip
    assert not [one for one in objects if one["kind"] == "ClusterRole"]
    assert pick(objects, "ServiceAccount")["automountServiceAccountToken"] is False


def flat(rules):
    """Return what rules come to: (group, resource, verb), each once."""
    for rule in rules:
        assert set(rule) == {"apiGroups", "resources", "verbs"}, "nothing by name, and no paths"
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def without_leases(rules):
    return flat(rule for rule in rules if rule["apiGroups"] != ["coordination.k8s.io"])


@pytest.fixture(scope="session")
def with_own_roles(render, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own-roles")
    (folder / "deploy").symlink_to(ROOT / "deploy")
    inside = folder / "own"
    inside.mkdir()
    # kustomize takes relative paths only.
    parts = {name: "../" * len(inside.resolve().parts[1:]) + str(ROOT / "deploy/kustomize" / name)[1:] for name in (
        "base", "components/own-roles")}  # fmt: skip
    text = {"resources": [parts["base"]], "components": [parts["components/own-roles"]]}
    (inside / "kustomization.yaml").write_text(yaml.safe_dump(text))
    return render(inside)


@pytest.mark.parametrize(("role", "whole"), [("kube-scheduler", ROLES[0]), ("volume-scheduler", ROLES[1])])
def test_roles_of_its_own_are_those_of_kubernetes(with_own_roles, pick, role, whole):
    known = {made["metadata"]["name"]: made for _, made in bootstrap_objects() if made["kind"] == "ClusterRole"}
    assert without_leases(pick(with_own_roles, "ClusterRole", whole)["rules"]) == without_leases(
        known[f"system:{role}"]["rules"]
    )


def test_roles_of_its_own_take_the_place_of_the_cluster_s(with_own_roles):
    assert granted(with_own_roles) == {*(("", "ClusterRole", name) for name in ROLES), *OTHERS}


# -- configuration ------------------------------------------------------------------------------------------------------


def mounted(pick, objects, path):
    """Return the files of the configuration map that is mounted at a path."""
    pod = template(pick, objects)["spec"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["mountPath"] == path]
    (volume,) = [one for one in pod["volumes"] if one["name"] == mount["name"]]
    return pick(objects, "ConfigMap", volume["configMap"]["name"])["data"]


@pytest.mark.parametrize("folder", ["base", "overlays/own-plugin"])
def test_the_program_takes_its_flags_and_its_configuration(render, pick, folder, tmp_path, monkeypatch):
    objects = render(folder)
    container = template(pick, objects)["spec"]["containers"][0]
    for path in ("/etc/moorage", "/etc/moorage-plugins"):
        if any(mount["mountPath"] == path for mount in container["volumeMounts"]):
            for name, text in mounted(pick, objects, path).items():
                (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    written = tmp_path / "written.yaml"
    args = [one.replace("/etc/moorage", str(tmp_path)) for one in container["args"]]
    assert _run([*args, "--write-config-to", str(written)]) == 0
    document = yaml.safe_load(written.read_text())
    election = document["leaderElection"]
    assert (election["resourceNamespace"], election["resourceName"]) == (NAMESPACE, NAME)
    (profile,) = document["profiles"]
    assert profile["schedulerName"] == "moorage-scheduler"
    enabled = {one["name"] for point in profile["plugins"].values() for one in point.get("enabled", ())}
    assert ("TeamNodes" in enabled) is (folder != "base")


def test_the_example_s_plugin_is_mounted_where_python_looks(render, pick):
    objects = render("overlays/own-plugin")
    container = template(pick, objects)["spec"]["containers"][0]
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "PYTHONPATH": "/etc/moorage-plugins", "TMPDIR": "/var/tmp", "MOORAGE_REFUSED_NAMES": "default-scheduler",
    }  # fmt: skip
    assert list(mounted(pick, objects, "/etc/moorage-plugins")) == ["team_nodes.py"]
    assert container["image"] == f"name-your-moorage-image:{__version__}"
