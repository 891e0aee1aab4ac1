"""Kubernetes' own Python client against the server: what people write programs with, with certificates and with tokens.

Typed calls, watches, the dynamic client, informers, locks and YAML, over TLS and in the clear, and what it makes of refusals.
"""

import asyncio
import contextlib
import datetime
import logging
import threading

import pytest

from moorage.api.documents.http_messages import User
from moorage.basis.serving.certificate_authority import make_authority
from moorage.cluster.apiserver.access.authentication import make_authenticator
from moorage.cluster.apiserver.http.serve import open_store

kubernetes = pytest.importorskip("kubernetes", reason="the official Python client is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}


@pytest.fixture
def cluster(tmp_path, server_in_a_thread):
    """Yield a factory of clients of a new cluster, as the administrator unless a user or a token is given."""
    authority, store = make_authority(tmp_path / "pki"), open_store(seed=1)
    with contextlib.ExitStack() as opened:
        port = opened.enter_context(server_in_a_thread(store, authority.tls(), make_authenticator(store, authority)))

        def settings(user=None, token=""):
            authority.write_kubeconfig(tmp_path / "config", port, *([user] if user else []))
            made = kubernetes.client.Configuration()
            kubernetes.config.load_kube_config(str(tmp_path / "config"), client_configuration=made)
            made.retries = False
            if token:
                made.cert_file = made.key_file = None
                made.api_key = {"authorization": f"Bearer {token}"}
            return made

        def client(user=None, token=""):
            return opened.enter_context(kubernetes.client.ApiClient(settings(user, token)))

        client.settings = settings
        yield client


@pytest.fixture
def in_the_clear(server_in_a_thread, token):
    """Yield a client with a token and without TLS."""
    settings = kubernetes.client.Configuration()
    settings.api_key = {"authorization": f"Bearer {token}"}
    settings.retries = False
    with server_in_a_thread(open_store(seed=2)) as port:
        settings.host = f"http://127.0.0.1:{port}"
        with kubernetes.client.ApiClient(settings) as client:
            yield client


def pod(name="web", **spec):
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [CONTAINER], **spec}}


def refused(call, *arguments, **more):
    with pytest.raises(kubernetes.client.exceptions.ApiException) as found:
        call(*arguments, **more)
    return found.value.status, found.value.reason


def binding(name, node):
    metadata, target = kubernetes.client.V1ObjectMeta(name=name), kubernetes.client.V1ObjectReference(kind="Node", name=node)
    return kubernetes.client.V1Binding(metadata=metadata, target=target)


def watched(core, seconds=1, **more):
    """Return the events of a one-second watch."""
    events = kubernetes.watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=seconds, **more)
    return [(event["type"], event["object"].metadata.name) for event in events]


# -- typed calls --------------------------------------------------------------------------------------------------------


def test_a_pod_is_created_changed_and_deleted(in_the_clear):
    core = kubernetes.client.CoreV1Api(in_the_clear)
    made = core.create_namespaced_pod("default", pod())
    assert (made.status.phase, made.spec.containers[0].resources.requests) == ("Pending", {"cpu": "100m"})
    assert made.metadata.managed_fields[0].manager == "OpenAPI-Generator"
    with contextlib.closing(
        core.create_namespaced_binding("default", binding("web", "n1"), _preload_content=False)
    ) as bound:  # fmt: skip
        assert bound.status == 201
        bound.read()
    assert refused(core.create_namespaced_pod_binding, "web", "default", binding("web", "n1"))[0] == 409
    assert core.read_namespaced_pod("web", "default").spec.node_name == "n1"
    patched = core.patch_namespaced_pod("web", "default", {"metadata": {"labels": {"tier": "x"}}})
    assert patched.metadata.labels == {"app": "web", "tier": "x"}
    core.patch_namespaced_pod_status("web", "default", {"status": {"phase": "Running"}})
    eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name="web"))
    core.create_namespaced_pod_eviction("web", "default", eviction)
    ending = core.read_namespaced_pod("web", "default")
    assert ending.metadata.deletion_grace_period_seconds == 30
    assert [one.type for one in ending.status.conditions] == ["PodScheduled", "DisruptionTarget"]
    core.delete_namespaced_pod("web", "default", grace_period_seconds=0)
    assert refused(core.read_namespaced_pod, "web", "default") == (404, "Not Found")


def test_a_pod_is_created_watched_bound_and_deleted(cluster):
    core = kubernetes.client.CoreV1Api(cluster())
    version = core.create_namespaced_pod("default", pod()).metadata.resource_version
    core.create_namespaced_pod_binding("web", "default", binding("web", "n1"), _preload_content=False)
    core.patch_namespaced_pod("web", "default", {"metadata": {"labels": {"a": "b"}}})
    core.delete_namespaced_pod("web", "default", grace_period_seconds=0)
    seen = []
    for event in kubernetes.watch.Watch().stream(
        core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=5
    ):
        seen.append((event["type"], event["object"].spec.node_name))
        if event["type"] == "DELETED":
            break
    assert seen == [("MODIFIED", "n1")] * 3 + [("DELETED", "n1")]
    assert refused(core.read_namespaced_pod, "web", "default")[0] == 404


def test_lists_are_paged_selected_and_watched(in_the_clear):
    core = kubernetes.client.CoreV1Api(in_the_clear)
    for i in range(5):
        core.create_namespaced_pod("default", pod(f"p{i}"))
    first = core.list_namespaced_pod("default", limit=2)
    assert ([one.metadata.name for one in first.items], first.metadata.remaining_item_count) == (["p0", "p1"], 3)
    rest = core.list_namespaced_pod("default", limit=5, _continue=first.metadata._continue)
    assert [one.metadata.name for one in rest.items] == ["p2", "p3", "p4"]
    assert refused(core.list_namespaced_pod, "default", _continue="forged")[0] == 400
    chosen = core.list_pod_for_all_namespaces(label_selector="app in (p1,p3)").items
    assert [one.metadata.name for one in chosen] == ["p1", "p3"]
    assert len(core.list_pod_for_all_namespaces(field_selector="spec.nodeName=,status.phase=Pending").items) == 5
    core.delete_collection_namespaced_pod("default", label_selector="app=p4", grace_period_seconds=0)
    assert watched(core, resource_version=first.metadata.resource_version) == [("MODIFIED", "p4"), ("DELETED", "p4")]
    assert watched(core) == [("ADDED", f"p{i}") for i in range(4)]


def test_workloads_are_scaled_replaced_and_deleted(in_the_clear):
    apps, batch = kubernetes.client.AppsV1Api(in_the_clear), kubernetes.client.BatchV1Api(in_the_clear)
    selector = {"matchLabels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
    apps.create_namespaced_deployment(
        "default", {"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": selector, "template": template}}
    )
    scale = apps.read_namespaced_deployment_scale("web", "default")
    scale.spec.replicas = 3
    assert apps.replace_namespaced_deployment_scale("web", "default", scale).spec.replicas == 3
    apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 4}})
    held = apps.read_namespaced_deployment("web", "default")
    assert (held.spec.replicas, held.spec.strategy.rolling_update.max_surge, held.metadata.generation) == (4, "25%", 3)
    held.spec.paused = True
    apps.replace_namespaced_deployment("web", "default", held)
    assert refused(apps.replace_namespaced_deployment, "web", "default", held) == (409, "Conflict")
    job = batch.create_namespaced_job(
        "default",
        {
            "metadata": {"generateName": "j-"},
            "spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}},
        },
    )
    assert job.metadata.name.startswith("j-")
    assert batch.list_namespaced_job("default").items[0].metadata.uid == job.metadata.uid
    gone = apps.delete_namespaced_deployment("web", "default", propagation_policy="Background")
    assert (gone["status"], gone["details"]["kind"]) == ("Success", "deployments")


LISTED = (
    ("CoreV1Api", ("node", "namespace", "persistent_volume", "pod_for_all_namespaces", "service_for_all_namespaces",
                   "replication_controller_for_all_namespaces", "persistent_volume_claim_for_all_namespaces",
                   "event_for_all_namespaces", "config_map_for_all_namespaces", "secret_for_all_namespaces")),
    ("AppsV1Api", ("replica_set_for_all_namespaces", "stateful_set_for_all_namespaces", "daemon_set_for_all_namespaces")),
    ("PolicyV1Api", ("pod_disruption_budget_for_all_namespaces",)),
    ("StorageV1Api", ("storage_class", "csi_node", "csi_driver", "volume_attachment",
                      "csi_storage_capacity_for_all_namespaces")),
    ("ResourceV1Api", ("device_class", "resource_slice", "resource_claim_for_all_namespaces")),
    ("EventsV1Api", ("event_for_all_namespaces",)),
    ("CoordinationV1Api", ("lease_for_all_namespaces",)),
    ("SchedulingV1Api", ("priority_class",)),
    ("RbacAuthorizationV1Api", ("cluster_role", "role_for_all_namespaces")),
)  # fmt: skip


def test_all_kinds_for_schedulers_are_listed(in_the_clear):
    for api, kinds in LISTED:
        for kind in kinds:
            listed = getattr(getattr(kubernetes.client, api)(in_the_clear), f"list_{kind}")(limit=500)
            assert listed.metadata.resource_version, kind


def test_events_and_leases_have_microsecond_times(in_the_clear):
    events, leases = kubernetes.client.EventsV1Api(in_the_clear), kubernetes.client.CoordinationV1Api(in_the_clear)
    at = datetime.datetime(2026, 11, 21, 8, 0, 0, 123456, tzinfo=datetime.UTC)
    event = kubernetes.client.EventsV1Event(
        metadata={"name": "web.1"}, event_time=at, reporting_controller="mine", reporting_instance="mine-0", action="Look",
        reason="Seen", note="there it is", type="Normal", regarding={"kind": "Pod", "namespace": "default", "name": "web"},
    )  # fmt: skip
    assert events.create_namespaced_event("default", event).event_time == at
    core = kubernetes.client.CoreV1Api(in_the_clear)
    assert core.read_namespaced_event("web.1", "default").message == "there it is"
    lease = leases.create_namespaced_lease("default", {"metadata": {"name": "l"}, "spec": {"renewTime": at}})
    assert lease.spec.renew_time == at
    whole = at.replace(microsecond=0)  # this client writes none then, which no kube-apiserver reads
    assert refused(leases.patch_namespaced_lease, "l", "default", {"spec": {"renewTime": whole}})[0] in {400, 422}


# -- what comes with it -------------------------------------------------------------------------------------------------


def test_the_dynamic_client_finds_applies_and_watches(in_the_clear, tmp_path):
    dynamic = kubernetes.dynamic.DynamicClient(in_the_clear, cache_file=str(tmp_path / "cache"))
    deployments = dynamic.resources.get(api_version="apps/v1", kind="Deployment")
    body = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}},
        },
    }  # fmt: skip
    made = deployments.server_side_apply(body=body, name="web", namespace="default", field_manager="me")
    assert made.spec.replicas == 2
    with pytest.raises(kubernetes.dynamic.exceptions.ConflictError):
        deployments.server_side_apply(
            body={**body, "spec": {**body["spec"], "replicas": 3}}, name="web", namespace="default", field_manager="you"
        )
    nodes = dynamic.resources.get(api_version="v1", kind="Node")
    nodes.create(body={"metadata": {"name": "n1"}, "kind": "Node", "apiVersion": "v1"})
    assert [event["object"].metadata.name for event in nodes.watch(timeout=1)] == ["n1"]
    assert nodes.patch(
        name="n1", body={"spec": {"unschedulable": True}}, content_type="application/merge-patch+json"
    ).spec.unschedulable
    with pytest.raises(kubernetes.dynamic.exceptions.NotFoundError):
        nodes.get(name="n2")


def test_manifests_are_created_and_applied_again(in_the_clear):
    manifests = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "team"}, "data": {"a": "b"}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "team"},
         "spec": {"maxUnavailable": 1, "selector": {}}},
    ]  # fmt: skip
    kubernetes.utils.create_from_yaml(in_the_clear, yaml_objects=manifests)
    assert kubernetes.client.CoreV1Api(in_the_clear).read_namespaced_config_map("c", "team").data == {"a": "b"}
    with pytest.raises(kubernetes.utils.FailToCreateError):
        kubernetes.utils.create_from_yaml(in_the_clear, yaml_objects=manifests)


def test_an_informer_stays_current(in_the_clear):
    informers = pytest.importorskip("kubernetes.informer", reason="this release of the client has no informers")
    core = kubernetes.client.CoreV1Api(in_the_clear)
    core.create_namespaced_pod("default", pod("early"))
    seen, changed = [], threading.Condition()

    def note(kind):
        def noted(found):
            with changed:
                seen.append((kind, found.metadata.name))
                changed.notify_all()

        return noted

    informer = informers.SharedInformer(core.list_namespaced_pod, namespace="default")
    for kind in ("ADDED", "DELETED"):
        informer.add_event_handler(kind, note(kind))
    informer.start()
    try:
        with changed:
            assert changed.wait_for(lambda: ("ADDED", "early") in seen, 10)
        core.create_namespaced_pod("default", pod("late"))
        core.delete_namespaced_pod("early", "default", grace_period_seconds=0)
        with changed:
            assert changed.wait_for(lambda: {("ADDED", "late"), ("DELETED", "early")} <= {*seen}, 10)
        assert [one.metadata.name for one in informer.cache.list()] == ["late"]
    finally:
        stop = threading.Thread(target=informer.stop)
        stop.start()
        core.create_namespaced_pod("default", pod("last"))  # it notices when something happens
        stop.join(10)


def test_a_lock_is_acquired_kept_and_refused_to_others(in_the_clear, caplog):
    locks = pytest.importorskip("kubernetes.leaderelection.resourcelock.leaselock", reason="this release has no such lock")
    records = pytest.importorskip("kubernetes.leaderelection.leaderelectionrecord")
    caplog.set_level(logging.CRITICAL)
    mine, other = (locks.LeaseLock("lock", "default", name) for name in ("mine", "other"))
    for lock in (mine, other):
        lock.api_instance = kubernetes.client.CoordinationV1Api(in_the_clear)
    now = str(datetime.datetime.now(datetime.UTC).replace(microsecond=123456))
    record = records.LeaderElectionRecord("mine", "15", now, now)
    assert mine.get("lock", "default")[0] is False
    assert mine.create("lock", "default", record)
    assert not other.create("lock", "default", record)
    assert other.get("lock", "default")[1].holder_identity == "mine"
    assert mine.get("lock", "default")[0]
    later = str(datetime.datetime.now(datetime.UTC).replace(microsecond=654321))
    assert mine.update("lock", "default", records.LeaderElectionRecord("mine", "15", now, later))
    assert not other.update("lock", "default", record)


def test_the_asyncio_client_works(cluster):
    aio = pytest.importorskip("kubernetes.aio", reason="this release of the client has no part for asyncio")
    held = cluster.settings()

    async def run():
        settings = aio.client.Configuration()
        settings.host, settings.ssl_ca_cert = held.host, held.ssl_ca_cert
        settings.cert_file, settings.key_file = held.cert_file, held.key_file
        async with aio.client.ApiClient(settings) as client:
            core = aio.client.CoreV1Api(client)
            await core.create_namespaced_pod("default", pod())
            return [one.metadata.name for one in (await core.list_namespaced_pod("default")).items]

    assert asyncio.run(run()) == ["web"]


# -- who may what -------------------------------------------------------------------------------------------------------


def test_an_account_s_token_has_its_role_s_rights(cluster):
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
    assert refused(robot.create_namespaced_pod, "default", pod("mine"))[0] == 403
    review = kubernetes.client.AuthenticationV1Api(admin).create_token_review({"spec": {"token": token}})
    assert review.status.user.username == "system:serviceaccount:default:robot"


def test_access_reviews_are_answered(cluster):
    reviews = kubernetes.client.AuthorizationV1Api(cluster(User("jane")))
    asked = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"}}}
    assert reviews.create_self_subject_access_review(asked).status.allowed is False
    rules = reviews.create_self_subject_rules_review({"spec": {"namespace": "default"}}).status
    assert {"selfsubjectreviews"} in [set(rule.resources) for rule in rules.resource_rules]
    admin = kubernetes.client.AuthorizationV1Api(cluster())
    answer = admin.create_subject_access_review({"spec": {**asked["spec"], "groups": ["system:masters"]}})
    assert answer.status.allowed is True
    assert refused(admin.create_subject_access_review, {"spec": {"user": "jane"}})[0] == 422
