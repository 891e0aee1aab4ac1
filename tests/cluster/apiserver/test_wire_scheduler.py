"""kube-scheduler 1.37 from its start to its end, as the requests that its source sends, under its own user and no other rights.

Each test is one stretch of its life; ``docs/reference/wire.md`` lists the requests. Answers are judged as by client-go.
"""

import json
import re

import pytest

from moorage.cluster.apiserver.access.authentication import Authenticator, User

EVENTS, LEASES = "/apis/events.k8s.io/v1", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
PODS, CLAIMS = "/api/v1/namespaces/default/pods", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
AUTHENTICATION = "extension-apiserver-authentication"
STRATEGIC = "application/strategic-merge-patch+json"
MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z").fullmatch
UID = "0f4a7b36-3c1e-4d52-9c3a-1f1f5c1d7a10"


@pytest.fixture(scope="module")
def peers(server_in_a_thread, new_store, go_client):
    """Yield a factory of a server's clients: the scheduler's, and those of other users."""
    users = {"admin": User("admin", ("system:masters",)), "mine": User("system:kube-scheduler"), "driver": User("driver")}
    made = []

    def client(token, accept=go_client.SCHEDULER):
        made.append(go_client.GoClient(port, token, accept))
        return made[-1]

    with server_in_a_thread(new_store(), guard=Authenticator(users)) as port:
        yield client
        for one in made:
            one.close()


@pytest.fixture
def mine(peers):
    return peers("mine")


@pytest.fixture
def admin(peers):
    return peers("admin")


def made(answer):
    assert answer.status == 201, answer.body
    return answer.document


def done(answer):
    assert answer.status == 200, answer.body
    return answer.document


def pod(admin, name, **spec):
    containers = [{"name": "c", "image": "i"}]
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}
    return made(admin.ask("POST", PODS, document))


# -- start --------------------------------------------------------------------------------------------------------------


def test_it_reads_the_authentication_config_map(mine, admin):
    made(
        admin.ask(
            "POST", "/api/v1/namespaces/kube-system/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": AUTHENTICATION}, "data": {"client-ca-file": "PEM"}},
        )
    )  # fmt: skip
    held = done(mine.ask("GET", f"/api/v1/namespaces/kube-system/configmaps/{AUTHENTICATION}"))
    assert held["data"] == {"client-ca-file": "PEM"}
    path = "/api/v1/namespaces/kube-system/configmaps"
    only = {"fieldSelector": f"metadata.name={AUTHENTICATION}"}
    assert [event for event, _ in mine.events(path, **only, **watch_list(1))] == ["ADDED", "BOOKMARK", "BOOKMARK"]
    assert mine.ask("GET", path, limit=500, resourceVersion=0).reason == "Forbidden"
    assert len(done(mine.ask("GET", path, **only, limit=500, resourceVersion=0))["items"]) == 1


def watch_list(seconds):
    """Return the parameters with which a reflector starts; ``timeout`` is also that of the HTTP client."""
    return {
        "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan", "sendInitialEvents": "true",
        "timeout": f"{seconds}s", "timeoutSeconds": seconds,
    }  # fmt: skip


def test_delegated_reviews_work_without_a_content_type(peers, go_client):
    typed = peers("mine", go_client.TYPED)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": "admin"}}
    status = made(typed.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review))["status"]
    assert (status["authenticated"], status["user"]["username"]) == (True, "admin")
    spec = {"token": "wrong", "audiences": []}
    status = made(typed.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {**review, "spec": spec}))["status"]
    assert not status.get("authenticated")
    spec = {"user": "admin", "groups": ["system:masters"], "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}
    answer = typed.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert made(answer)["status"]["allowed"] is True


def test_it_checks_for_the_events_api(mine):
    found = done(mine.ask("GET", EVENTS))
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "events.k8s.io/v1")
    assert [one["kind"] for one in found["resources"]] == ["Event"]


def test_it_becomes_leader_renews_and_releases(mine):
    at = "2026-11-21T08:00:0{}.123456Z"

    def lease(holder, seconds, renewed, **metadata):
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "acquireTime": at.format(0), "renewTime": renewed}
        return {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "kube-scheduler", "namespace": "kube-system", **metadata},
            "spec": {**spec, "leaseTransitions": 0},
        }  # fmt: skip

    assert mine.ask("GET", f"{LEASES}/kube-scheduler", timeout="5s").reason == "NotFound"
    held = made(mine.ask("POST", LEASES, lease("host_1", 15, at.format(0)), timeout="5s"))
    assert MICRO(held["spec"]["renewTime"])
    again = mine.ask("POST", LEASES, lease("host_2", 15, at.format(0)), timeout="5s")
    assert (again.status, again.reason) == (409, "AlreadyExists")
    held["spec"]["renewTime"] = at.format(2)
    renewed = done(mine.ask("PUT", f"{LEASES}/kube-scheduler", held, timeout="5s"))
    late = mine.ask("PUT", f"{LEASES}/kube-scheduler", held, timeout="5s")
    assert (late.status, late.reason) == (409, "Conflict")
    released = {**renewed, "spec": {**renewed["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
    assert done(mine.ask("PUT", f"{LEASES}/kube-scheduler", released, timeout="5s"))["spec"]["holderIdentity"] == ""
    told = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "kube-scheduler.18a", "namespace": "kube-system"},
        "involvedObject": {
            "kind": "Lease", "namespace": "kube-system", "name": "kube-scheduler", "uid": held["metadata"]["uid"],
            "apiVersion": "coordination.k8s.io/v1", "resourceVersion": "7",
        },
        "reason": "LeaderElection", "message": "host_1 became leader", "type": "Normal", "count": 1,
        "source": {"component": "default-scheduler"}, "reportingComponent": "default-scheduler",
        "firstTimestamp": "2026-11-21T08:00:00Z", "lastTimestamp": "2026-11-21T08:00:00Z",
    }  # fmt: skip
    events = "/api/v1/namespaces/kube-system/events"
    made(mine.ask("POST", events, told))
    again = json.dumps({"count": 2, "lastTimestamp": "2026-11-21T08:05:00Z"}).encode()
    assert done(mine.ask("PATCH", f"{events}/kube-scheduler.18a", again, form=STRATEGIC))["count"] == 2


# -- following ----------------------------------------------------------------------------------------------------------

FOLLOWED = (
    "/api/v1/nodes", "/api/v1/pods", "/api/v1/services", "/api/v1/replicationcontrollers", "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims", "/api/v1/namespaces", "/apis/apps/v1/replicasets", "/apis/apps/v1/statefulsets",
    "/apis/policy/v1/poddisruptionbudgets", "/apis/storage.k8s.io/v1/storageclasses", "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csidrivers", "/apis/storage.k8s.io/v1/csistoragecapacities",
    "/apis/storage.k8s.io/v1/volumeattachments", "/apis/resource.k8s.io/v1/resourceclaims",
    "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/resource.k8s.io/v1/devicetaintrules",
)  # fmt: skip
ACTIVE = {"fieldSelector": "status.phase!=Failed,status.phase!=Succeeded"}


@pytest.mark.parametrize("path", FOLLOWED)
@pytest.mark.parametrize("accept", ["SCHEDULER", "TYPED", "PROTOBUF"])
def test_watched_kinds_are_listed_and_watched(peers, go_client, path, accept):
    """A list of release 1.34 and before, a watch-list of 1.35 and later, and a watch from its end."""
    client = peers("mine", getattr(go_client, accept))
    only = ACTIVE if path.endswith("/pods") else {}
    listed = done(client.ask("GET", path, **only, limit=500, resourceVersion=0))
    kind, version = listed["kind"].removesuffix("List"), listed["metadata"]["resourceVersion"]
    with client.open("GET", path, **only, watch="true", **watch_list(432)) as stream:
        assert stream.status == 200
        wanted = "application/json" if accept != "PROTOBUF" else f"{go_client.PROTOBUF};stream=watch"
        assert stream.headers["Content-Type"] == wanted
        assert stream.headers["Transfer-Encoding"] == "chunked"
    client.close()
    events = client.events(path, **only, **watch_list(300))
    for event, obj in events:
        if event == "BOOKMARK":
            assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            assert int(obj["metadata"]["resourceVersion"]) >= int(version)
            break
        assert event == "ADDED"
        assert obj["kind"] == kind
    events.close()
    since = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeout": "5m0s", "timeoutSeconds": 300}
    with client.open("GET", path, **only, watch="true", **since) as stream:  # headers come though nothing happens
        assert stream.status == 200
    client.close()


NOT_SERVED = (
    "/apis/scheduling.k8s.io/v1alpha2/podgroups", "/apis/resource.k8s.io/v1beta2/devicetaintrules",
    "/apis/coordination.k8s.io/v1alpha2/leasecandidates", "/apis/policy/v1beta1/poddisruptionbudgets",
    "/apis/storage.k8s.io/v1beta1/csistoragecapacities",
)  # fmt: skip


@pytest.mark.parametrize("path", NOT_SERVED)
def test_kinds_of_disabled_gates_and_old_releases_are_not_found(peers, path):
    answer = peers("admin").ask("GET", path, limit=500, resourceVersion=0)
    assert (answer.status, answer.reason) == (404, "NotFound")


def test_watches_end_with_a_bookmark_at_their_timeout(mine):
    version = done(mine.ask("GET", "/api/v1/nodes"))["metadata"]["resourceVersion"]
    asked = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeout": "1s", "timeoutSeconds": 1}
    ((event, obj),) = mine.events("/api/v1/nodes", **asked)
    assert (event, obj["metadata"]["resourceVersion"]) == ("BOOKMARK", version)


def test_expired_and_future_versions_have_the_errors_that_reflectors_expect(mine, admin):
    made(admin.ask("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}}))
    version = done(mine.ask("GET", "/api/v1/nodes"))["metadata"]["resourceVersion"]
    more = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    ahead = {"resourceVersion": int(version) + 10**6, "allowWatchBookmarks": "true", "timeoutSeconds": 1, **more}
    answer = mine.ask("GET", "/api/v1/nodes", watch="true", **ahead)
    causes = answer.document["details"]["causes"]
    assert (answer.status, causes[0]["reason"]) == (504, "ResourceVersionTooLarge")


# -- binding ------------------------------------------------------------------------------------------------------------


def binding(bound, node, **metadata):
    name, uid = bound["metadata"]["name"], bound["metadata"]["uid"]
    return {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": "default", "uid": uid, **metadata},
        "target": {"kind": "Node", "name": node},
    }  # fmt: skip


@pytest.mark.parametrize("accept", ["SCHEDULER", "PROTOBUF"])
def test_it_binds(peers, admin, go_client, accept):
    mine, name = peers("mine", getattr(go_client, accept)), f"bound-{accept.lower()}"
    new = pod(admin, name)
    answer = mine.ask("POST", f"{PODS}/{name}/binding", binding(new, "n1"))
    assert answer.status == 201
    assert {key: answer.document[key] for key in ("apiVersion", "kind", "status")} == {
        "apiVersion": "v1", "kind": "Status", "status": "Success",
    }  # fmt: skip
    held = done(mine.ask("GET", f"{PODS}/{name}"))
    assert (held["spec"]["nodeName"], held["status"]["conditions"][0]["type"]) == ("n1", "PodScheduled")
    again = mine.ask("POST", f"{PODS}/{name}/binding", binding(new, "n2"))
    assert (again.status, again.reason) == (409, "Conflict")
    other = mine.ask("POST", f"{PODS}/{name}/binding", binding(new, "n2", uid=UID))
    assert (other.status, other.reason) == (409, "Conflict")
    gone = mine.ask("POST", f"{PODS}/missing/binding", binding({"metadata": {"name": "missing", "uid": UID}}, "n1"))
    assert (gone.status, gone.reason) == (404, "NotFound")


# -- what does not fit --------------------------------------------------------------------------------------------------


def condition(kind, **more):
    return {"type": kind, "lastProbeTime": None, "lastTransitionTime": "2026-11-21T08:00:00Z", **more}


def test_it_reports_unschedulable_pods_nominates_and_preempts(mine, admin):
    pod(admin, "waits")
    status = f"{PODS}/waits/status"

    def patch(**fields):
        return done(mine.ask("PATCH", status, json.dumps({"status": fields}).encode(), form=STRATEGIC))["status"]

    why = {"status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available", "observedGeneration": 1}
    order = {"$setElementOrder/conditions": [{"type": "PodScheduled"}]}
    held = patch(**order, conditions=[condition("PodScheduled", **why)], nominatedNodeName="n1")
    shown = {name: value for name, value in held["conditions"][0].items() if name != "lastProbeTime"}
    assert shown == {"type": "PodScheduled", "lastTransitionTime": "2026-11-21T08:00:00Z", **why}
    assert held["nominatedNodeName"] == "n1"
    held = patch(**order, conditions=[{"type": "PodScheduled", "message": "0/2 nodes are available"}])
    assert [one["message"] for one in held["conditions"]] == ["0/2 nodes are available"]
    assert held["conditions"][0]["reason"] == "Unschedulable"
    assert "nominatedNodeName" not in patch(nominatedNodeName=None)

    target = condition("DisruptionTarget", status="True", reason="PreemptionByScheduler", message="m", observedGeneration=1)
    order["$setElementOrder/conditions"].append({"type": "DisruptionTarget"})
    assert [one["type"] for one in patch(**order, conditions=[target])["conditions"]] == ["PodScheduled", "DisruptionTarget"]
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    gone = done(mine.ask("DELETE", f"{PODS}/waits", options))
    assert (gone["kind"], gone["metadata"]["name"]) == ("Pod", "waits")
    answer = mine.ask("DELETE", f"{PODS}/waits", options)
    assert (answer.status, answer.reason) == (404, "NotFound")


def event(name, count=0):
    reference = {"kind": "Pod", "namespace": "default", "name": "web", "uid": UID, "apiVersion": "v1", "resourceVersion": "9"}
    told = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2026-11-21T08:00:00.123456Z", "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-host", "action": "Scheduling", "reason": "FailedScheduling",
        "regarding": reference, "note": "0/1 nodes are available", "type": "Warning",
    }  # fmt: skip
    return {**told, "series": {"count": count, "lastObservedTime": "2026-11-21T08:00:09.000001Z"}} if count else told


def test_it_writes_events(mine):
    path = f"{EVENTS}/namespaces/default/events"
    held = made(mine.ask("POST", path, event("web.1")))
    assert (held["note"], held["eventTime"]) == ("0/1 nodes are available", "2026-11-21T08:00:00.123456Z")
    again = mine.ask("POST", path, event("web.1"))
    assert (again.status, again.reason) == (409, "AlreadyExists")
    series = json.dumps({"series": event("", 2)["series"]}).encode()
    held = done(mine.ask("PATCH", f"{path}/web.1", series, form=STRATEGIC))
    assert held["series"] == {"count": 2, "lastObservedTime": "2026-11-21T08:00:09.000001Z"}
    gone = mine.ask("PATCH", f"{path}/web.2", series, form=STRATEGIC)
    assert (gone.status, gone.reason) == (404, "NotFound")
    made(mine.ask("POST", path, event("web.2", 5)))


# -- volumes and devices ------------------------------------------------------------------------------------------------


def test_it_binds_volumes_and_sets_the_selected_node(mine, admin):
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v1"},
        "spec": {
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "local",
        },
    }  # fmt: skip
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}},
        },
    }  # fmt: skip
    made(admin.ask("POST", "/api/v1/persistentvolumes", volume))
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    wanted = made(admin.ask("POST", claims, claim))
    held = done(mine.ask("GET", "/api/v1/persistentvolumes/v1"))
    held["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": "c1",
        "uid": wanted["metadata"]["uid"], "resourceVersion": wanted["metadata"]["resourceVersion"],
    }  # fmt: skip
    held["metadata"]["annotations"] = {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert done(mine.ask("PUT", "/api/v1/persistentvolumes/v1", held))["spec"]["claimRef"]["name"] == "c1"
    late = mine.ask("PUT", "/api/v1/persistentvolumes/v1", held)
    assert (late.status, late.reason) == (409, "Conflict")
    wanted["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "n1"}
    found = done(mine.ask("PUT", f"{claims}/c1", wanted))
    assert found["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n1"}
    assert found["metadata"]["managedFields"]


def test_it_allocates_and_deallocates_devices(mine, admin):
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    claim = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "g"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }  # fmt: skip
    held = made(admin.ask("POST", CLAIMS, claim))
    held["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    held = done(mine.ask("PUT", f"{CLAIMS}/g", held))
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    where = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
    users = [{"resource": "pods", "name": "p", "uid": UID}, {"resource": "pods", "name": "q", "uid": UID.replace("0", "1")}]
    held["status"] = {
        "allocation": {
            "devices": {"results": [result]}, "nodeSelector": where, "allocationTimestamp": "2026-11-21T08:00:00Z",
        },
        "reservedFor": users,
    }  # fmt: skip
    held = done(mine.ask("PUT", f"{CLAIMS}/g/status", held))
    assert held["status"]["allocation"]["devices"]["results"] == [result]
    patch = '{"metadata": {"uid": "%s"}, "status": { "reservedFor": [ {"$patch": "delete", "uid": "%s"} ] }}'
    freed = (patch % (held["metadata"]["uid"], UID)).encode()
    assert done(mine.ask("PATCH", f"{CLAIMS}/g/status", freed, form=STRATEGIC))["status"]["reservedFor"] == users[1:]
    answer = mine.ask("PATCH", f"{CLAIMS}/g/status", (patch % (UID, UID)).encode(), form=STRATEGIC)
    assert (answer.status, answer.reason) == (422, "Invalid")


def test_it_creates_and_deletes_claims_for_extended_resources(mine, admin):
    asks = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    owner = pod(admin, "extended", containers=[{"name": "c", "image": "i", "resources": asks}])["metadata"]
    claim = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "generateName": "extended-extended-resources-", "namespace": "default",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "extended", "uid": owner["uid"], "controller": True},
            ],
        },
        "spec": {
            "devices": {
                "requests": [
                    {"name": "container-0-request-0",
                     "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
                ],
            },
        },
    }  # fmt: skip
    name = made(mine.ask("POST", CLAIMS, claim))["metadata"]["name"]
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    status = {"resourceClaimName": name, "requestMappings": [mapping]}
    patch = json.dumps({"status": {"extendedResourceClaimStatus": status}}).encode()
    held = done(mine.ask("PATCH", f"{PODS}/extended/status", patch, form=STRATEGIC))
    assert held["status"]["extendedResourceClaimStatus"] == status
    assert done(mine.ask("DELETE", f"{CLAIMS}/{name}", {"apiVersion": "resource.k8s.io/v1", "kind": "DeleteOptions"}))


def test_devices_are_allocated_only_with_the_separate_right(peers, admin):
    """Since release 1.36 the right to a claim's status includes neither its allocation nor its device statuses."""
    rbac, group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default", "rbac.authorization.k8s.io"
    on = {"apiGroups": ["resource.k8s.io"]}
    rules = [{**on, "resources": ["resourceclaims/status"], "verbs": ["update", "patch"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "driver"}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "driver"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "driver"}],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "driver"},
    }  # fmt: skip
    made(admin.ask("POST", f"{rbac}/roles", role))
    made(admin.ask("POST", f"{rbac}/rolebindings", binding))
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    claim = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "h"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }  # fmt: skip
    held, driver = made(admin.ask("POST", CLAIMS, claim)), peers("driver")
    where = {"driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    given = {**held, "status": {"allocation": {"devices": {"results": [{"request": "r", **where}]}}}}
    refused = driver.ask("PUT", f"{CLAIMS}/h/status", given)
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.document["message"] == (
        'ResourceClaim.resource.k8s.io "h" is invalid: status.allocation: Forbidden: changing status.allocation or '
        'status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: '
        'resourceclaims.resource.k8s.io is forbidden: User "driver" cannot update resource "resourceclaims/binding" in '
        'API group "resource.k8s.io" at the cluster scope'
    )
    done(peers("mine").ask("PUT", f"{CLAIMS}/h/status", given))
    ready, form = json.dumps({"status": {"devices": [{**where, "data": {"ready": True}}]}}), "application/merge-patch+json"
    refused = driver.ask("PATCH", f"{CLAIMS}/h/status", ready.encode(), form=form)
    assert (
        'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver"'
        in (refused.document["message"])
    )
    assert (
        'verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io "gpu.example.com" is forbidden'
        in (refused.document["message"])
    )
    rules.append({**on, "resources": ["resourceclaims/driver"], "verbs": ["arbitrary-node:patch"],
                  "resourceNames": ["gpu.example.com"]})  # fmt: skip
    done(admin.ask("PUT", f"{rbac}/roles/driver", role))
    assert done(driver.ask("PATCH", f"{CLAIMS}/h/status", ready.encode(), form=form))["status"]["devices"]
    taken = json.dumps({"status": {"allocation": None, "devices": None}}).encode()
    assert (
        'requires resource="resourceclaims/binding", verb="patch"'
        in (driver.ask("PATCH", f"{CLAIMS}/h/status", taken, form=form).document["message"])
    )


# -- what its user may not ----------------------------------------------------------------------------------------------


def test_errors_are_statuses_in_any_accepted_encoding(peers, go_client):
    for accept in (go_client.SCHEDULER, go_client.TYPED, go_client.PROTOBUF, "application/json"):
        answer = peers("mine", accept).ask("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}})
        assert (answer.status, answer.reason) == (403, "Forbidden")
        answer = peers("anonymous", accept).ask("GET", PODS)
        assert (answer.status, answer.reason) == (401, "Unauthorized")
    answer = peers("mine", "text/plain").ask("GET", PODS)
    assert (answer.status, answer.reason) == (406, "NotAcceptable")
    assert "application/vnd.kubernetes.protobuf" in answer.document["message"]


def test_clients_that_prefer_cbor_get_json(peers):
    """They go by the code, and do not retry; the other types they accept determine the response until then."""
    client = peers("admin", "application/json;q=0.9, application/cbor;q=1")
    assert done(client.ask("GET", PODS))["kind"] == "PodList"
    for method, path, form in (("POST", PODS, "application/cbor"), ("PATCH", f"{PODS}/x", "application/apply-patch+cbor")):
        answer = client.ask(method, path, b"\xd9\xd9\xf7\xa0", form=form)
        assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
