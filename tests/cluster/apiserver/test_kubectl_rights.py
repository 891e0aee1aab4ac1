"""kubectl with client certificates of the cluster's authority: rights, tokens and impersonation."""

import json
import shutil
import subprocess

import pytest

from moorage.api.documents.http_messages import User
from moorage.basis.serving.certificate_authority import make_authority
from moorage.cluster.apiserver.access.authentication import make_authenticator
from moorage.cluster.apiserver.http.serve import open_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory, server_in_a_thread):
    home = tmp_path_factory.mktemp("rights")
    authority, store = make_authority(home / "pki"), open_store(seed=1)
    with server_in_a_thread(store, authority.tls(), make_authenticator(store, authority)) as port:
        configs = {"admin": home / "admin", "jane": home / "jane"}
        authority.write_kubeconfig(configs["admin"], port)
        authority.write_kubeconfig(configs["jane"], port, User("jane", ("devs",)))

        def run(who, *arguments, text=""):
            command = ["kubectl", "--kubeconfig", str(configs[who]), "--cache-dir", str(home / "cache"), *arguments]
            return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

        def as_token(name, token):
            config = json.loads(configs["admin"].read_text())
            config["users"][0]["user"] = {"token": token}
            configs[name] = home / name
            configs[name].write_text(json.dumps(config))

        run.as_token = as_token
        yield run


def test_a_certificate_identifies_its_user(kubectl):
    shown = json.loads(kubectl("jane", "auth", "whoami", "-o", "json").stdout)
    assert shown["status"]["userInfo"] == {"username": "jane", "groups": ["devs", "system:authenticated"]}


def test_a_binding_grants_rights(kubectl):
    assert kubectl("jane", "auth", "can-i", "list", "pods").stdout.strip() == "no"
    refused = kubectl("jane", "get", "pods")
    why = 'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default"'
    assert refused.stderr.strip() == f"Error from server (Forbidden): {why}"
    assert kubectl("admin", "create", "rolebinding", "devs", "--clusterrole=view", "--group=devs").returncode == 0
    assert kubectl("jane", "auth", "can-i", "list", "pods").stdout.strip() == "yes"
    assert kubectl("jane", "auth", "can-i", "list", "pods", "-n", "kube-system").stdout.strip() == "no"
    assert kubectl("jane", "get", "pods").returncode == 0
    assert "pods/log" in kubectl("jane", "auth", "can-i", "--list").stdout
    assert kubectl("admin", "auth", "can-i", "list", "pods", "--as=joe", "--as-group=devs").stdout.strip() == "yes"
    assert kubectl("admin", "auth", "can-i", "*", "*").stdout.strip() == "yes"
    refused = kubectl("jane", "get", "pods", "--as=admin")
    why = 'User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "default"'
    assert refused.stderr.strip() == f"Error from server (Forbidden): pods is forbidden: {why}"
    assert "ClusterRole/view" in kubectl("admin", "get", "rolebindings", "-o", "wide").stdout


def test_users_cannot_grant_what_they_do_not_have(kubectl):
    role = ["create", "clusterrole", "maker", "--verb=create,bind", "--resource=clusterroles"]
    assert kubectl("admin", *role).returncode == 0
    assert kubectl("admin", "create", "clusterrolebinding", "maker", "--clusterrole=maker", "--user=jane").returncode == 0
    more = kubectl("jane", "create", "clusterrole", "more", "--verb=get,list", "--resource=secrets")
    assert 'user "jane" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions not currently' in (
        more.stderr
    )
    assert '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}' in more.stderr
    assert kubectl("jane", "create", "clusterrole", "same", "--verb=create", "--resource=clusterroles").returncode == 0


def test_a_service_account_gets_a_token(kubectl):
    assert kubectl("admin", "create", "serviceaccount", "robot").returncode == 0
    assert "default" in kubectl("admin", "get", "serviceaccounts").stdout
    token = kubectl("admin", "create", "token", "robot", "--duration=10m").stdout.strip()
    review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}})
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    made = json.loads(kubectl("admin", "create", "--raw", path, "-f", "-", text=review).stdout)
    assert made["status"]["user"]["username"] == "system:serviceaccount:default:robot"
    assert "system:serviceaccounts:default" in made["status"]["user"]["groups"]
    short = kubectl("admin", "create", "token", "robot", "--duration=1m")
    assert 'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 60: ' in short.stderr
    assert "may not specify a duration less than 10 minutes" in short.stderr


def test_a_token_has_its_accounts_rights(kubectl):
    assert kubectl("admin", "create", "serviceaccount", "watcher").returncode == 0
    given = kubectl("admin", "create", "rolebinding", "watcher", "--clusterrole=view", "--serviceaccount=default:watcher")
    assert given.returncode == 0
    kubectl.as_token("watcher", kubectl("admin", "create", "token", "watcher").stdout.strip())
    assert kubectl("watcher", "get", "pods").returncode == 0
    assert "system:serviceaccount:default:watcher" in kubectl("watcher", "auth", "whoami").stdout
    refused = kubectl("watcher", "create", "configmap", "x")
    who = 'User "system:serviceaccount:default:watcher"'
    assert f'{who} cannot create resource "configmaps" in API group "" in the namespace "default"' in refused.stderr
    assert kubectl("admin", "delete", "serviceaccount", "watcher").returncode == 0
    assert "Unauthorized" in kubectl("watcher", "get", "pods").stderr
