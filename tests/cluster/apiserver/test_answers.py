"""Requests with the responses of kube-apiserver v1.36.2: codes, reasons and exact messages."""

import io
import json

import pytest

HEAD = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
UNREADABLE = "the object provided is unrecognized (must be of type ConfigMap): "
NO_HEAD = "couldn't get version/kind; json parse error: "
MAPS = "/api/v1/namespaces/default/configmaps"
HELD = f"{MAPS}/held"
JSON, YAML = "application/json", "application/yaml"
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
REJECTED = "the server rejected our request due to an error in our request"
NEITHER = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
SUBJECT = "authentication.k8s.io"
ACCESS = "/apis/authorization.k8s.io/v1"


ANSWERS = [  # method, path, type, body, code, message
    ("POST", MAPS, JSON, "", 400, f"{UNREADABLE}{NO_HEAD}unexpected end of JSON input (<empty>)"),
    ("POST", MAPS, JSON, "{", 400, f"{UNREADABLE}{NO_HEAD}unexpected end of JSON input ({{)"),
    ("POST", MAPS, JSON, "[]", 400, f"{UNREADABLE}{NO_HEAD}json: cannot unmarshal array into Go value of type {HEAD} (5b5d)"),
    ("POST", MAPS, YAML, "- a", 400,
     f"{UNREADABLE}{NO_HEAD}json: cannot unmarshal array into Go value of type {HEAD} (2d2061)"),
    ("POST", MAPS, YAML, "a: [", 400, f"{UNREADABLE}yaml: line 1: did not find expected node content (613a205b)"),
    ("POST", MAPS, JSON, '{"kind":1}', 400,
     f'{UNREADABLE}{NO_HEAD}json: cannot unmarshal number into Go struct field .kind of type string ({{"kind":1}})'),
    ("POST", MAPS, JSON, '{"metadata":{"name":"x3"}}x', 400,
     f"{UNREADABLE}{NO_HEAD}invalid character 'x' after top-level value ({{\"metadata\":{{\"name\":\"x3\"}}}}x)"),
    ("POST", MAPS, JSON, '{"kind":"ConfigMap","apiVersion":"a/b/c","metadata":{"name":"x8"}}', 400,
     UNREADABLE + 'unexpected GroupVersion string: a/b/c ({"kind":"ConfigMap","apiVersio ...)'),
    ("POST", MAPS, PROTOBUF, '{"a":1}', 400,
     UNREADABLE + "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({\"a\":1})"),
    ("POST", MAPS, JSON, "null", 422,
     'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'),
    ("POST", MAPS, JSON, '{"kind":"Secret","apiVersion":"v1"}', 400,
     'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion'),
    ("POST", f"{MAPS}?fieldValidation=Strict", YAML, "metadata: {name: v, zz: 1}\ndata: {a: b}\ndata: {c: d}\n", 400,
     ('ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n'
     '  line 3: key "data" already set in map, unknown field "metadata.zz"')),
    ("PUT", HELD, JSON, '{"metadata":{"name":"held","resourceVersion":"abc"}}', 500,
     'strconv.ParseUint: parsing "abc": invalid syntax'),
    ("PATCH", HELD, MERGE, "", 400, "error decoding patch: unexpected end of JSON input"),
    ("PATCH", HELD, STRATEGIC, "{", 400, "unexpected end of JSON input"),
    ("PATCH", HELD, MERGE, "null", 400, "Invalid JSON Patch"),
    ("PATCH", HELD, MERGE, "[]", 400,
     "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ("PATCH", HELD, STRATEGIC, '"x"', 400, "json: cannot unmarshal string into Go value of type map[string]interface {}"),
    ("PATCH", HELD, MERGE, '{"metadata":{"uid":"zzz"}}', 422,
     'ConfigMap "held" is invalid: metadata.uid: Invalid value: "zzz": field is immutable'),
    ("PATCH", HELD, STRATEGIC, '{"data":{"k":1}}', 422,
     ' "" is invalid: patch: Invalid value: "map[data:map[k:1]]": cannot convert int64 to string'),
    ("PATCH", HELD, STRATEGIC, '{"data":[]}', 422,
     ' "" is invalid: patch: Invalid value: "map[data:[]]": cannot restore map from slice'),
    ("PATCH", HELD, STRATEGIC, '{"immutable":"yes"}', 422,
     ' "" is invalid: patch: Invalid value: "map[immutable:yes]": unrecognized type: bool'),
    ("PATCH", f"{HELD}?fieldValidation=Strict", STRATEGIC, '{"data":{"k":"v2"},"zz":1}', 422,
     ' "" is invalid: patch: Invalid value: "map[data:map[k:v2] zz:1]": strict decoding error: unknown field "zz"'),
    ("PATCH", f"{MAPS}/nope", MERGE, "{", 404, 'configmaps "nope" not found'),
    ("PATCH", HELD, JSON_PATCH, "{}", 400,
     "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
    ("PATCH", HELD, JSON_PATCH, "[1]", 400,
     "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
    ("PATCH", HELD, JSON_PATCH, '[{"op":5}]', 400,
     "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
    ("PATCH", HELD, JSON_PATCH, '[{"op":"test","path":"/data/k","value":"wrong"}]', 422, REJECTED),
    ("PATCH", HELD, JSON_PATCH, '[{"op":"remove","path":"/data/none"}]', 422, REJECTED),
    ("PATCH", HELD, MERGE.upper(), "{}", 415, "415: Unsupported Media Type"),
    ("PATCH", f"{HELD}?fieldManager=m", APPLY, "", 400, "invalid object type: /, Kind="),
    ("PATCH", f"{HELD}?fieldManager=m", APPLY, "[]", 400,
     ("error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type "
     "map[string]interface {}")),
    ("PATCH", f"{HELD}?fieldManager=m", APPLY, "a: [", 400,
     "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content"),
    ("PATCH", f"{HELD}?fieldManager=m", APPLY, '{"apiVersion":"v1","kind":"ConfigMap","data":"x"}', 500,
     "failed to create typed patch object (/; /v1, Kind=ConfigMap): .data: expected map, got &{x}"),
    ("PATCH", f"{HELD}?fieldManager=m", APPLY, '{"apiVersion":"v1","kind":"ConfigMap","data":{"a":{"z":1}}}', 500,
     ("failed to create typed patch object (/; /v1, Kind=ConfigMap): .data.a: expected string, got "
     '&value.valueUnstructured{Value:map[string]interface {}{"z":1}}')),
    ("DELETE", HELD, JSON, "{", 400, f"{NO_HEAD}unexpected end of JSON input"),
    ("DELETE", HELD, JSON, '{"kind":"Pod","apiVersion":"v1"}', 400,
     ('no kind "Pod" is registered for version "v1" in scheme '
     '"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"')),
    ("DELETE", HELD, JSON, '{"gracePeriodSeconds":1.5}', 400,
     "json: cannot unmarshal number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
    ("DELETE", HELD, JSON, '{"orphanDependents":"x"}', 400,
     "json: cannot unmarshal string into Go struct field DeleteOptions.orphanDependents of type bool"),
    ("DELETE", HELD, JSON, '{"preconditions":[]}', 400,
     "json: cannot unmarshal array into Go struct field DeleteOptions.preconditions of type v1.Preconditions"),
    ("POST", f"/apis/{SUBJECT}/v1/tokenreviews", JSON, '{"spec":1}', 400,
     ('TokenReview in version "v1" cannot be handled as a TokenReview: json: cannot unmarshal number into Go struct field '
     "TokenReview.spec of type v1.TokenReviewSpec")),
    ("POST", f"/apis/{SUBJECT}/v1/tokenreviews", JSON, '{"kind":"Pod","apiVersion":"v1"}', 400,
     ('Pod in version "v1" cannot be handled as a TokenReview: converting (v1.Pod) to (authentication.TokenReview): '
     "unknown conversion")),
    ("POST", f"{ACCESS}/selfsubjectaccessreviews", JSON, "{}", 422,
     f'.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: {NEITHER}'),
    ("POST", f"{ACCESS}/namespaces/default/localsubjectaccessreviews", JSON,
     '{"spec":{"user":"u","nonResourceAttributes":{"verb":"get","path":"/api"}}}', 422,
     ('.authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/api","Verb":"get"}: '
     "disallowed on this kind of request")),
    ("POST", f"{ACCESS}/namespaces/default/localsubjectaccessreviews", JSON, '{"spec":{"user":"u","resourceAttributes":{}}}',
     422, ('.authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "": must match '
     "metadata.namespace")),
]  # fmt: skip


def test_errors_have_the_exact_message(against_a_server):
    async def test(client, _):
        await client.ask("POST", MAPS, {"metadata": {"name": "held"}, "data": {"k": "v"}})
        for method, path, form, body, code, message in ANSWERS:
            found, answer = await client.ask(method, path, body.encode(), form=form)
            assert (found, answer["message"]) == (code, message), (method, path, body)

    against_a_server(test)


TYPES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMED = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
OF_META = ";g=meta.k8s.io;v=v1"
UNREAD = [  # path, what is accepted: what is said
    (HELD, "text/html", f"406: Not Acceptable\n\nAvailable representations: {TYPES}"),
    (MAPS, "text/html", f"406: Not Acceptable\n\nAvailable representations: {TYPES}, {STREAMED}"),
    (HELD, f"application/json;as=Nope{OF_META}", f"only the following media types are accepted: {TYPES}"),
    (HELD, f"application/json;as=PartialObjectMetadataList{OF_META}",
     "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)"),
    (MAPS, f"application/json;as=PartialObjectMetadata{OF_META}",
     "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"),
]  # fmt: skip


def test_unacceptable_media_types_are_rejected(against_a_server):
    async def test(client, _):
        await client.ask("POST", MAPS, {"metadata": {"name": "held"}})
        for path, accept, message in UNREAD:
            code, answer = await client.ask("GET", path, Accept=accept)
            assert (code, answer["reason"], answer["message"]) == (406, "NotAcceptable", message)
        code, answer = await client.ask("GET", f"{MAPS}?includeObject=Bad", Accept=f"application/json;as=Table{OF_META}")
        why = "includeObject: Invalid value: \"Bad\": must be 'Metadata', 'Object', 'None', or empty"
        assert (code, answer["message"]) == (400, f"Unable to convert to Table as requested: {why}")
        change = {"data": {"changed": "yes"}}
        accept = f"application/json;as=Table{OF_META}"
        code, _ = await client.ask("PATCH", f"{HELD}?includeObject=Bad", change, form=MERGE, Accept=accept)
        assert code == 400
        assert "data" not in (await client.ask("GET", HELD))[1]

    against_a_server(test)


def test_unserved_resources_are_forbidden_to_users_without_rights(against_a_server):
    async def test(client, _):
        _, answer = await client.ask("GET", "/api/v1/nope", token="weak")
        where = 'cannot list resource "nope" in API group "" at the cluster scope'
        assert answer["message"] == f'nope is forbidden: User "stranger" {where}'
        _, answer = await client.ask("GET", "/nope", token="weak")
        assert (answer["message"], answer["details"]) == ('forbidden: User "stranger" cannot get path "/nope"', {})
        code, answer = await client.ask("GET", HELD, Impersonate_Uid="5")
        asked = '&user.DefaultInfo{Name:"", UID:"5", Groups:[]string(nil), Extra:map[string][]string(nil)}'
        assert (code, answer["message"]) == (400, f"requested {asked} without impersonating a user name")

    against_a_server(test)


def test_errors_include_the_warnings_of_the_request(against_a_server):
    async def test(client, _):
        await client.ask("POST", MAPS, {"metadata": {"name": "held"}})
        headers = {"Authorization": f"Bearer {client.token}", "Content-Type": JSON}
        body = io.BytesIO(b'{"metadata":{"name":"held"},"nope":1}')
        async with client.session.post(client.base + MAPS, data=body, headers=headers) as answer:
            assert (answer.status, answer.headers["Warning"]) == (409, '299 - "unknown field \\"nope\\""')

    against_a_server(test)


def test_reviews_state_their_kind_and_warn_about_unknown_fields(against_a_server):
    async def test(client, _):
        headers = {"Authorization": f"Bearer {client.token}", "Content-Type": JSON}
        head = b'"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"'
        for body, warning in ((b"{%s}" % head, None), (b'{%s,"spec":1}' % head, '299 - "unknown field \\"spec\\""')):
            path = f"{client.base}/apis/{SUBJECT}/v1/selfsubjectreviews"
            async with client.session.post(path, data=io.BytesIO(body), headers=headers) as answer:
                assert (answer.status, answer.headers.get("Warning")) == (201, warning)
                made = await answer.json()
            assert set(made) == {"kind", "apiVersion", "metadata", "status"}
            assert set(made["metadata"]) == {"creationTimestamp"}

    against_a_server(test)


def test_responses_end_with_a_newline_and_are_indented_on_request(against_a_server):
    async def test(client, _):
        await client.ask("POST", MAPS, {"metadata": {"name": "held"}})
        headers = {"Authorization": f"Bearer {client.token}"}
        async with client.session.get(f"{client.base}{HELD}?pretty=true", headers=headers) as answer:
            assert (await answer.read()).startswith(b'{\n  "kind": "ConfigMap",\n  "apiVersion": "v1",\n')
        async with client.session.get(f"{client.base}{MAPS}/nope", headers=headers) as answer:
            assert (await answer.read()).endswith(b"}\n")

    against_a_server(test)


def test_applying_null_owns_the_field_without_its_content(against_a_server):
    async def test(client, _):
        base = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held"}}
        await client.ask("PATCH", f"{HELD}?fieldManager=one", {**base, "data": {"a": "1"}}, form=APPLY)
        _, made = await client.ask("PATCH", f"{HELD}?fieldManager=two", {**base, "data": None}, form=APPLY)
        assert made["data"] == {"a": "1"}
        assert {one["manager"]: one["fieldsV1"] for one in made["metadata"]["managedFields"]}["two"] == {"f:data": {}}

    against_a_server(test)


def test_a_single_object_is_not_watched(against_a_server):
    async def test(client, _):
        await client.ask("POST", MAPS, {"metadata": {"name": "held"}})
        code, held = await client.ask("GET", f"{HELD}?watch=1")
        assert (code, held["metadata"]["name"]) == (200, "held")

    against_a_server(test)


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TIMEOUTS = {  # what is asked for, and what is said of it
    "3m": None, "0s": None, "-3s": None, "": None,
    "invalid": 'time: invalid duration \\"invalid\\"', "3": 'time: missing unit in duration \\"3\\"',
}  # fmt: skip


def test_the_timeout_parameter_is_validated(against_a_server):
    async def test(client, _):
        for asked, why in TIMEOUTS.items():
            for path in (MAPS, "/version"):
                code, answer = await client.ask("GET", f"{path}?timeout={asked}")
                assert code == (400 if why else 200), (path, asked)
                if why:
                    assert answer["message"] == f"invalid timeout specified in the request URL - {why}".replace("\\", "")
        code, _ = await client.ask("GET", f"{MAPS}?watch=1&timeout=invalid&timeoutSeconds=1&resourceVersion=1")
        assert code in (200, 410)

    against_a_server(test)


def test_a_review_is_not_a_table(against_a_server):
    async def test(client, _):
        review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
        path = f"{ACCESS}/selfsubjectaccessreviews"
        code, answer = await client.ask("POST", path, review, Accept=TABLE)
        types = f"{JSON}, {YAML}, {PROTOBUF}"
        assert (code, answer["message"]) == (406, f"only the following media types are accepted: {types}")
        assert (await client.ask("POST", path, review, Accept=f"{TABLE},{JSON}"))[0] == 201

    against_a_server(test)


def test_metadata_only_responses_use_the_preferred_encoding(against_a_server):
    async def test(client, _):
        await client.ask("POST", MAPS, {"metadata": {"name": "held"}})
        headers = {"Authorization": f"Bearer {client.token}"}
        for path, form in ((HELD, "PartialObjectMetadata"), (MAPS, "PartialObjectMetadataList")):
            one, other = (f"{name};as={form};g=meta.k8s.io;v=v1" for name in (PROTOBUF, JSON))
            for accept, sent in ((f"{one},{other},{JSON}", PROTOBUF), (f"{other},{one}", JSON), (f"{PROTOBUF},{JSON}", JSON)):
                async with client.session.get(client.base + path, headers={**headers, "Accept": accept}) as answer:
                    assert (answer.status, answer.headers["Content-Type"]) == (200, sent)

    against_a_server(test)


def test_a_watch_of_tables_has_versions(against_a_server):
    async def test(client, _):
        _, made = await client.ask("POST", MAPS, {"metadata": {"name": "held"}})
        query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
        headers = {"Authorization": f"Bearer {client.token}", "Accept": TABLE}
        async with client.session.get(f"{client.base}{MAPS}?{query}&labelSelector=!kube", headers=headers) as answer:
            lines = [json.loads(line) async for line in answer.content]
        added = [line["object"] for line in lines if line["type"] == "ADDED"]
        assert made["metadata"]["resourceVersion"] in [one["metadata"]["resourceVersion"] for one in added]
        mark = next(line["object"] for line in lines if line["type"] == "BOOKMARK")
        assert (mark["columnDefinitions"], set(mark["metadata"])) == (None, {"resourceVersion"})
        assert mark["rows"][0]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

    against_a_server(test)


def test_faults_are_reported_in_document_order(against_a_server):
    async def test(client, _):
        body = b'{"metadata":{"name":"x","nope":[],"name":"y"},"zz":1,"data":{"a":"b","a":"c"},"yy":{"zz":0,"zz":0}}'
        code, answer = await client.ask("POST", f"{MAPS}?fieldValidation=Strict", body)
        told = 'unknown field "metadata.nope", duplicate field "metadata.name", unknown field "zz", duplicate field "data.a"'
        assert (code, answer["message"].partition("decoding error: ")[2]) == (400, f'{told}, unknown field "yy"')
        body = b'{"metadata":{"name":"x"},"yy":{"zz":0,"zz":0},"yy":[{"a":1,"a":1}],"data":{"a":"b"}}'
        _, answer = await client.ask("POST", f"{MAPS}?fieldValidation=Strict", body)
        assert answer["message"].partition("decoding error: ")[2] == 'unknown field "yy"'

    against_a_server(test)


def test_at_most_a_hundred_decoding_faults_are_reported(against_a_server):
    async def test(client, _):
        for fields in (b'"a%d":1,"a%d":2', b'"a%d":{"x":%d}'):
            unknown = b",".join(fields % (i, i) for i in range(300))
            body = b'{"metadata":{"name":"x"},%b}' % unknown
            _, answer = await client.ask("POST", f"{MAPS}?fieldValidation=Strict", body)
            assert answer["message"].count("unknown field") == 100
        repeats = b",".join(b'"a%d":"1","a%d":"2","a%d":"3"' % (i, i, i) for i in range(300))
        body = b'{"metadata":{"name":"x"},"data":{%b}}' % repeats
        _, answer = await client.ask("POST", f"{MAPS}?fieldValidation=Strict", body)
        assert answer["message"].count("duplicate field") == 100
        merge = "application/merge-patch+json"
        await client.ask("POST", MAPS, {"metadata": {"name": "held"}})
        _, answer = await client.ask("PATCH", f"{MAPS}/held?fieldValidation=Strict", b'{"data":{%b}}' % repeats, form=merge)
        assert answer["message"].count("duplicate field") == 100

    against_a_server(test)


@pytest.mark.slow
def test_at_most_a_thousand_validation_faults_are_reported(against_a_server):
    async def test(client, _):
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": [{}] * 5000}}
        code, answer = await client.ask("POST", "/api/v1/namespaces/default/pods", pod)
        assert (code, len(answer["details"]["causes"])) == (422, 1000)
        assert answer["message"].endswith(", only the first 1000 errors are listed]")
        owner = {"apiVersion": "v1", "kind": "K", "name": "o", "controller": True}
        owners = [{**owner, "uid": f"u{i}"} for i in range(3000)]
        _, answer = await client.ask("POST", MAPS, {"metadata": {"name": "x", "ownerReferences": owners}})
        assert len(answer["message"]) < 2 << 20
        assert "only the first" in answer["message"]

    against_a_server(test)


def test_the_first_yaml_document_counts(against_a_server):
    async def test(client, _):
        body = b'---\n{"metadata": {"name": "x"}}\n---\nnot: [even yaml'
        assert (await client.ask("POST", MAPS, body, form="application/yaml"))[0] == 201
        code, answer = await client.ask("POST", MAPS, b"---\n" * 500_000 + body, form="application/yaml")
        assert (code, "name or generateName is required" in answer["message"]) == (422, True)

    against_a_server(test)


def test_managed_fields_are_sorted(against_a_server):
    async def test(client, _):
        ports = [{"name": "b", "port": 2}, {"name": "a", "port": 1}]
        spec = {"type": "ClusterIP", "ports": ports, "selector": {"z": "1", "a": "1"}}
        made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"y": "", "b": ""}}, "spec": spec}
        _, held = await client.ask("PATCH", "/api/v1/namespaces/default/services/s?fieldManager=one", made, form=APPLY)
        fields = held["metadata"]["managedFields"][0]["fieldsV1"]
        assert list(fields) == ["f:metadata", "f:spec"]
        assert list(fields["f:metadata"]["f:labels"]) == ["f:b", "f:y"]
        assert list(fields["f:spec"]) == ["f:ports", "f:selector", "f:type"]
        for port in fields["f:spec"]["f:ports"].values():
            assert list(port) == [".", "f:name", "f:port"]

    against_a_server(test)


def test_a_change_of_a_scale_is_recorded_without_a_time(against_a_server):
    async def test(client, _):
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        deployments = "/apis/apps/v1/namespaces/default/deployments"
        made = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
        assert (await client.ask("POST", deployments, made))[0] == 201
        await client.ask("PATCH", f"{deployments}/d/scale", {"spec": {"replicas": 7}}, form=MERGE)
        _, held = await client.ask("GET", f"{deployments}/d")
        (scaled,) = (one for one in held["metadata"]["managedFields"] if one.get("subresource") == "scale")
        assert (scaled["fieldsV1"], scaled.get("time")) == ({"f:spec": {"f:replicas": {}}}, None)

    against_a_server(test)
