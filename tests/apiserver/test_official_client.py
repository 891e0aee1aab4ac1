"""Kubernetes' own Python client against the server: what people write programs with, with certificates and with tokens."""

import pytest

from moorage.apiserver.authority import make_authority
from moorage.apiserver.guarding import guard_for
from moorage.apiserver.opening import open_store
from moorage.apiserver.users import User

kubernetes = pytest.importorskip("kubernetes", reason="the official Python client is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, server_in_a_thread):
    home = tmp_path_factory.mktemp("official")
    authority, store = make_authority(home / "pki"), open_store(seed=1)
    with server_in_a_thread(store, authority.tls(), guard_for(store, authority)) as port:

        def client(user=None, token=""):
            authority.write_kubeconfig(home / "config", port, *([user] if user else []))
            settings = kubernetes.client.Configuration()
            kubernetes.config.load_kube_config(str(home / "config"), client_configuration=settings)
            if token:
                settings.cert_file = settings.key_file = None
                settings.api_key = {"authorization": f"Bearer {token}"}
            return kubernetes.client.ApiClient(settings)

        yield client


def pod(name, **spec):
    containers = [{"name": "c", "image": "i"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_a_pod_is_made_watched_bound_and_deleted(cluster):
    core = kubernetes.client.CoreV1Api(cluster())
    made = core.create_namespaced_pod("default", pod("web"))
    version = made.metadata.resource_version
    target = kubernetes.client.V1ObjectReference(kind="Node", name="n1")
    binding = kubernetes.client.V1Binding(metadata={"name": "web"}, target=target)
    core.create_namespaced_pod_binding("web", "default", binding, _preload_content=False)
    core.patch_namespaced_pod("web", "default", {"metadata": {"labels": {"a": "b"}}})
    core.delete_namespaced_pod("web", "default", grace_period_seconds=0)
    seen = []
    for event in kubernetes.watch.Watch().stream(
        core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=5
    ):
        seen.append((event["type"], event["object"].spec.node_name))
        if event["type"] == "DELETED":
            break
    assert seen == [("MODIFIED", "n1"), ("MODIFIED", "n1"), ("DELETED", "n1")]
    with pytest.raises(kubernetes.client.ApiException) as caught:
        core.read_namespaced_pod("web", "default")
    assert caught.value.status == 404


def test_an_account_s_token_may_do_what_its_role_says(cluster):
    admin = cluster()
    core, rbac = kubernetes.client.CoreV1Api(admin), kubernetes.client.RbacAuthorizationV1Api(admin)
    core.create_namespaced_service_account("default", {"metadata": {"name": "robot"}})
    rbac.create_namespaced_role(
        "default", {"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    )  # fmt: skip
    rbac.create_namespaced_role_binding(
        "default",
        {
            "metadata": {"name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        },
    )
    request = {"spec": {"audiences": [], "expirationSeconds": 600}}
    token = core.create_namespaced_service_account_token("robot", "default", request).status.token
    robot = kubernetes.client.CoreV1Api(cluster(token=token))
    assert robot.list_namespaced_pod("default").items == []
    with pytest.raises(kubernetes.client.ApiException) as caught:
        robot.create_namespaced_pod("default", pod("mine"))
    assert caught.value.status == 403
    review = kubernetes.client.AuthenticationV1Api(admin).create_token_review({"spec": {"token": token}})
    assert review.status.user.username == "system:serviceaccount:default:robot"


def test_who_may_what_is_told(cluster):
    reviews = kubernetes.client.AuthorizationV1Api(cluster(User("jane")))
    asked = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"}}}
    assert reviews.create_self_subject_access_review(asked).status.allowed is False
    rules = reviews.create_self_subject_rules_review({"spec": {"namespace": "default"}}).status
    assert {"selfsubjectreviews"} in [set(rule.resources) for rule in rules.resource_rules]
    admin = kubernetes.client.AuthorizationV1Api(cluster())
    answer = admin.create_subject_access_review({"spec": {**asked["spec"], "groups": ["system:masters"]}})
    assert answer.status.allowed is True
    with pytest.raises(kubernetes.client.ApiException) as caught:
        admin.create_subject_access_review({"spec": {"user": "jane"}})
    assert caught.value.status == 422
