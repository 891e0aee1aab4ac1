"""Writes over HTTP: apply, bodies that do not match their kind, and parameters."""

import pytest

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def deployment(**spec):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def pod(**spec):
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def test_an_object_is_created_changed_and_released_by_apply(against_a_server):
    async def test(client, store):
        path = f"{DEPLOYMENTS}/web?fieldManager=me"
        code, made = await client.ask("PATCH", path, deployment(replicas=2, paused=True), form=APPLY)
        assert (code, made["spec"]["replicas"], made["spec"]["revisionHistoryLimit"]) == (201, 2, 10)
        [entry] = made["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"], "f:revisionHistoryLimit" in entry["fieldsV1"]["f:spec"]) == (
            "me",
            "Apply",
            False,
        )
        version = store.version
        assert (await client.ask("PATCH", path, deployment(replicas=2, paused=True), form=APPLY))[0] == 200
        assert store.version == version
        changed = await client.ask("PATCH", path, deployment(replicas=2), form=APPLY)
        assert "paused" not in changed[1]["spec"]
        code, refused = await client.ask("PATCH", f"{DEPLOYMENTS}/web?fieldManager=you", deployment(replicas=3), form=APPLY)
        assert (code, refused["details"]["causes"]) == (
            409, [{"reason": "FieldManagerConflict", "message": 'conflict with "me"', "field": ".spec.replicas"}],
        )  # fmt: skip
        code, forced = await client.ask(
            "PATCH", f"{DEPLOYMENTS}/web?fieldManager=you&force=true&dryRun=All", deployment(replicas=3), form=APPLY
        )
        assert (code, forced["spec"]["replicas"]) == (200, 3)
        assert (await client.ask("GET", f"{DEPLOYMENTS}/web"))[1]["spec"]["replicas"] == 2

    against_a_server(test)


def test_a_controllers_replica_count_stays(against_a_server):
    async def test(client, _):
        await client.ask("PATCH", f"{DEPLOYMENTS}/web?fieldManager=me", deployment(replicas=2), form=APPLY)
        scale = (await client.ask("GET", f"{DEPLOYMENTS}/web/scale"))[1]
        scale["spec"]["replicas"] = 7
        assert (await client.ask("PUT", f"{DEPLOYMENTS}/web/scale", scale, User_Agent="hpa/1.0"))[0] == 200
        code, refused = await client.ask("PATCH", f"{DEPLOYMENTS}/web?fieldManager=me", deployment(replicas=2), form=APPLY)
        why = 'conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas'
        assert (code, refused["message"]) == (409, f"Apply failed with 1 conflict: {why}")
        assert (await client.ask("PATCH", f"{DEPLOYMENTS}/web?fieldManager=me", deployment(), form=APPLY))[1]["spec"][
            "replicas"
        ] == 7

    against_a_server(test)


def test_a_status_is_applied_through_its_subresource(against_a_server):
    async def test(client, _):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
        condition = {"type": "Ready", "status": "True"}
        await client.ask("POST", "/api/v1/nodes", node)
        given = {**node, "status": {"conditions": [condition]}, "spec": {"unschedulable": True}}
        code, found = await client.ask("PATCH", "/api/v1/nodes/n/status?fieldManager=kubelet", given, form=APPLY)
        times = {"lastHeartbeatTime": None, "lastTransitionTime": None}
        assert (code, found["status"]["conditions"], found["spec"]) == (200, [{**condition, **times}], {})
        mine = next(one for one in found["metadata"]["managedFields"] if one["operation"] == "Apply")
        assert (mine["subresource"], sorted(mine["fieldsV1"])) == ("status", ["f:status"])
        assert (await client.ask("PATCH", "/api/v1/nodes/x/status?fieldManager=k", given, form=APPLY))[0] == 404

    against_a_server(test)


UNFULFILLED = "Operation cannot be fulfilled on deployments.apps"
TWICE = b"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\nspec: {}\n"
TWICE_TEXT = 'error converting YAML to JSON: yaml: unmarshal errors:\n  line 5: key "spec" already set in map'
REFUSED_APPLIES = {
    "no manager": (
        "", deployment(), 422,
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
    ),
    "another kind": ("fieldManager=a", {**deployment(), "kind": "Pod"}, 400, "invalid object type: apps/v1, Kind=Pod"),
    "managers of its own": (
        "fieldManager=a", {**deployment(), "metadata": {"name": "web", "managedFields": []}}, 400,
        "metadata.managedFields must be nil",
    ),
    "an unknown field": (
        "fieldManager=a", deployment(foo=1), 500,
        "failed to create typed patch object (/web; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema",
    ),
    "a uid of something that is not": (
        "fieldManager=a", {**deployment(), "metadata": {"name": "web", "uid": "u"}}, 409,
        f'{UNFULFILLED} "web": uid mismatch: the provided object specified uid u, and no existing object was found',
    ),
    "no name": (
        "fieldManager=a", {**deployment(), "metadata": {}}, 400,
        "the name of the object (web based on URL) was undeterminable: name must be provided",
    ),
    "a field twice": (
        "fieldManager=a&fieldValidation=Strict", TWICE, 400, f"error strict decoding YAML: {TWICE_TEXT}",
    ),
}  # fmt: skip


@pytest.mark.slow
def test_rejected_configurations(against_a_server):
    async def test(client, store):
        version = store.version
        for case, (query, config, code, message) in REFUSED_APPLIES.items():
            found, answer = await client.ask("PATCH", f"{DEPLOYMENTS}/web?{query}", config, form=APPLY)
            assert (case, found, answer["message"]) == (case, code, message)
        assert store.version == version

    against_a_server(test)


CANNOT = 'Pod in version "v1" cannot be handled as a Pod: '
UNMARSHAL = f"{CANNOT}json: cannot unmarshal"
WRONG_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
MISFITS = {
    "a text for a number": (pod(priority="1"), f"{UNMARSHAL} string into Go struct field PodSpec.spec.priority of type int32"),
    "a fraction": (pod(priority=1.5), f"{UNMARSHAL} number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
    "too large": (
        pod(priority=2**31), f"{UNMARSHAL} number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
    ),
    "a number for a text": (pod(nodeName=5), f"{UNMARSHAL} number into Go struct field PodSpec.spec.nodeName of type string"),
    "a text for a list": (
        pod(tolerations="x"), f"{UNMARSHAL} string into Go struct field PodSpec.spec.tolerations of type []v1.Toleration",
    ),
    "deep within": (
        pod(containers=[{"name": "c", "ports": [{"hostPort": "80"}]}]),
        f"{UNMARSHAL} string into Go struct field ContainerPort.spec.containers.ports.hostPort of type int32",
    ),
    "no object": (
        b"[1]",
        ("the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot "
        'unmarshal array into Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
        'Kind string "json:\\"kind,omitempty\\"" } (5b315d)'),
    ),
    "a number for a label": (
        {"metadata": {"name": "p", "labels": {"a": 1}}},
        f"{UNMARSHAL} number into Go struct field ObjectMeta.metadata.labels of type string",
    ),
    "no quantity": (pod(overhead={"cpu": "1.1.M"}), CANNOT + WRONG_QUANTITY),
    "no time": (
        {"metadata": {"name": "p", "creationTimestamp": "now"}},
        f'{CANNOT}parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"',
    ),
    "another kind": (
        {**pod(), "kind": "Node", "apiVersion": "v1"},
        'Node in version "v1" cannot be handled as a Pod: converting (v1.Node) to (core.Pod): unknown conversion',
    ),
    "another version": (
        {**pod(), "kind": "Pod", "apiVersion": "v2"},
        ('Pod in version "v2" cannot be handled as a Pod: no kind "Pod" is registered for version "v2" in scheme '
        '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'),
    ),
    "unknown fields": (
        pod(nodeSelektor={}, containers=[{"name": "c", "imag": "x"}]),
        f'{CANNOT}strict decoding error: unknown field "spec.containers[0].imag", unknown field "spec.nodeSelektor"',
    ),
    "fields twice": (
        b'{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","name":"d","image":"i"}]}}',
        f'{CANNOT}strict decoding error: duplicate field "spec.containers[0].name"',
    ),
}  # fmt: skip


@pytest.mark.slow
def test_rejected_bodies(against_a_server):
    async def test(client, _):
        for case, (body, message) in MISFITS.items():
            code, answer = await client.ask("POST", f"{PODS}?fieldValidation=Strict", body)
            assert (case, code, answer["message"]) == (case, 400, message)

    against_a_server(test)


def test_unknown_fields_are_dropped_with_a_warning_or_silently(against_a_server):
    async def test(client, _):
        url, headers = client.base + PODS, {"Authorization": "Bearer a-token-for-tests"}
        for query, wanted in (("", ['299 - "unknown field \\"spec.foo\\""']), ("&fieldValidation=Ignore", [])):
            async with client.session.post(f"{url}?dryRun=All{query}", json=pod(foo=1), headers=headers) as response:
                assert response.status == 201
                assert response.headers.getall("Warning", []) == wanted
                assert "foo" not in (await response.json())["spec"]
        await client.ask("POST", PODS, pod())
        patch = {"spec": {"foo": 1}, "metadata": {"labels": {"a": "b"}}}
        for form in (MERGE, STRATEGIC):
            code, answer = await client.ask("PATCH", f"{PODS}/p?fieldValidation=Strict", patch, form=form)
            assert code == 422
            assert answer["message"].startswith(' "" is invalid: patch: Invalid value: ')
            assert answer["message"].endswith('strict decoding error: unknown field "spec.foo"')
            assert (await client.ask("PATCH", f"{PODS}/p?dryRun=All", patch, form=form))[0] == 200
        # A patch has no field order, so they are reported by name.
        several = {"spec": {"nope": 1, "containers": [{"name": "c", "imag": "x"}], "also": 2}}
        for form in (MERGE, STRATEGIC):
            _, answer = await client.ask("PATCH", f"{PODS}/p?fieldValidation=Strict", several, form=form)
            wrong = ("spec.also", "spec.containers[0].imag", "spec.nope")
            assert answer["message"].endswith(
                ": strict decoding error: " + ", ".join(f'unknown field "{one}"' for one in wrong)
            )

    against_a_server(test)


def test_claim_templates_state_their_kind(against_a_server):
    async def test(client, _):
        url = "/apis/apps/v1/namespaces/default/statefulsets"
        claim = {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}},
        }
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {
            "serviceName": "s",
            "selector": {"matchLabels": {"a": "b"}},
            "template": template,
            "volumeClaimTemplates": [claim],
        }
        code, made = await client.ask("POST", f"{url}?fieldValidation=Strict", {"metadata": {"name": "s"}, "spec": spec})
        assert code == 201
        (held,) = made["spec"]["volumeClaimTemplates"]
        assert (held["kind"], held["apiVersion"]) == ("PersistentVolumeClaim", "v1")
        patch = {"spec": {"replicas": 2}}
        for form in (MERGE, STRATEGIC):
            assert (await client.ask("PATCH", f"{url}/s?fieldValidation=Strict", patch, form=form))[0] == 200
        assert (await client.ask("PUT", f"{url}/s?fieldValidation=Strict", made | {"metadata": {"name": "s"}}))[0] == 200

    against_a_server(test)


def test_values_are_returned_in_canonical_form(against_a_server):
    async def test(client, _):
        limits = {"cpu": "0.5", "memory": "1024Mi"}
        spec = pod(containers=[{"name": "c", "image": "i", "resources": {"limits": limits, "claims": None}}], hostNetwork=False)
        made = (await client.ask("POST", PODS, spec))[1]
        assert made["spec"]["containers"][0]["resources"] == {
            "limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"},
        }  # fmt: skip
        assert "hostNetwork" not in made["spec"]

    against_a_server(test)


CREATE = 'CreateOptions.meta.k8s.io "" is invalid:'
OPTIONS = {
    "dryRun=Some": f'{CREATE} dryRun: Unsupported value: ["Some"]: supported values: "All"',
    "fieldValidation=Lax": (
        f'{CREATE} fieldValidation: Unsupported value: "Lax": supported values: "", "Ignore", "Strict", "Warn"'
    ),
    f"fieldManager={'x' * 129}": f"{CREATE} fieldManager: Too long: may not be more than 128 bytes",
    "fieldManager=a%07": f'{CREATE} fieldManager: Invalid value: "a\\u0007": invalid character U+0007 (at position 1)',
}


@pytest.mark.slow
def test_parameters_of_writes_are_validated(against_a_server):
    async def test(client, _):
        for query, message in OPTIONS.items():
            code, answer = await client.ask("POST", f"{PODS}?{query}", pod())
            assert (query, code, answer["message"]) == (query, 422, message)
        await client.ask("POST", PODS, pod())
        code, answer = await client.ask("PATCH", f"{PODS}/p?force=true", {}, form=MERGE)
        assert (code, answer["message"]) == (
            422, 'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch',
        )  # fmt: skip

    against_a_server(test)


def test_a_put_creates_a_missing_lease(against_a_server):
    async def test(client, _):
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
        lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
        assert (await client.ask("PUT", path, lease))[0] == 201
        assert (await client.ask("PUT", path, lease))[0] == 422  # there is one now, and it has to be said which
        assert (await client.ask("PUT", f"{PODS}/p", pod()))[0] == 404

    against_a_server(test)


_RBAC = "/apis/rbac.authorization.k8s.io/v1"
MADE_BY_PUT = {
    f"{_RBAC}/namespaces/default/roles/x": {"rules": []},
    f"{_RBAC}/clusterroles/x": {"rules": []},
    f"{_RBAC}/clusterrolebindings/x": {"roleRef": {"apiGroup": _RBAC[6:-3], "kind": "ClusterRole", "name": "view"}},
    "/apis/node.k8s.io/v1/runtimeclasses/x": {"handler": "x"},
    "/api/v1/namespaces/default/services/x": {"spec": {"ports": [{"port": 80}]}},
    "/api/v1/namespaces/default/limitranges/x": {"spec": {"limits": []}},
}


def test_a_put_creates_objects_of_some_kinds(against_a_server):
    async def test(client, _):
        for path, fields in MADE_BY_PUT.items():
            assert (path, (await client.ask("PUT", path, {"metadata": {"name": "x"}, **fields}))[0]) == (path, 201)

    against_a_server(test)


REVIEWS = {
    "selfsubjectaccessreviews": ("", {"resourceAttributes": {}}, "must be empty"),
    "subjectaccessreviews": ("", {"user": "u", "resourceAttributes": {}}, "must be empty"),
    "namespaces/default/localsubjectaccessreviews": (
        "default", {"user": "u", "resourceAttributes": {"namespace": "default"}}, "must be empty except for namespace",
    ),
}  # fmt: skip


@pytest.mark.parametrize("resource", REVIEWS)
def test_access_reviews_have_no_metadata(against_a_server, resource):
    namespace, spec, why = REVIEWS[resource]

    async def test(client, _):
        path = f"/apis/authorization.k8s.io/v1/{resource}"
        metadata = {"namespace": namespace} if namespace else {}
        assert (await client.ask("POST", path, {"metadata": metadata, "spec": spec}))[0] == 201
        code, answer = await client.ask("POST", path, {"metadata": {**metadata, "labels": {"a": "b"}}, "spec": spec})
        assert (code, answer["details"]["causes"][0]["field"]) == (422, "metadata")
        assert answer["details"]["causes"][0]["message"].endswith(why)

    against_a_server(test)


def test_objects_are_returned_as_metadata_on_request(against_a_server):
    async def test(client, _):
        await client.ask("POST", PODS, pod())
        wanted = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
        one = (await client.ask("GET", f"{PODS}/p", Accept=wanted.format("PartialObjectMetadata")))[1]
        assert (one["kind"], one["metadata"]["name"], "spec" in one) == ("PartialObjectMetadata", "p", False)
        every = (await client.ask("GET", PODS, Accept=wanted.format("PartialObjectMetadataList")))[1]
        assert (every["kind"], every["apiVersion"], every["items"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1", [one])

    against_a_server(test)


DELETED = {  # what is deleted, what is said of it, and what is there after
    "a claim": ("persistentvolumeclaims", "PersistentVolumeClaim"),
    "a config map": ("configmaps", "Status"),
}


@pytest.mark.parametrize(("resource", "kind"), DELETED.values(), ids=DELETED)
def test_responses_to_deletions(against_a_server, resource, kind):
    async def test(client, _):
        path = f"/api/v1/namespaces/default/{resource}"
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        sent = {"metadata": {"name": "x"}, **({"spec": spec} if resource != "configmaps" else {})}
        await client.ask("POST", path, sent)
        code, answer = await client.ask("DELETE", f"{path}/x", {"dryRun": ["All"]})
        assert (code, answer["kind"]) == (200, kind)
        assert (await client.ask("DELETE", f"{path}/x", {"dryRun": ["Some"]}))[0] == 422
        assert (await client.ask("DELETE", f"{path}/x", {"preconditions": {"uid": "other"}}))[0] == 409
        assert (await client.ask("DELETE", f"{path}/x"))[1]["kind"] == kind
        assert (await client.ask("GET", f"{path}/x"))[0] == 404

    against_a_server(test)
