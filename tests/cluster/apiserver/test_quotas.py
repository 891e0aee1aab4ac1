"""Quotas and pod templates in tables; their validation is compared with recordings of kube-apiserver."""

import msgspec

from moorage.api.documents.served_kinds import served
from moorage.api.schema.protobuf import read_protobuf, write_protobuf
from moorage.cluster.apiserver.tables.tables import table

QUOTAS, TEMPLATES = served("resourcequotas"), served("podtemplates")
PATH = "/api/v1/namespaces/default/resourcequotas"


def quota(name="q", hard=None, **spec):
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard or {}, **spec}}


def cells(kind, document):
    document["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return table(kind, [document], 1_767_225_610.0, "None")["rows"][0]["cells"]


def test_a_quota_is_shown_with_its_usage_and_separate_limits():
    held = quota()
    held["status"] = {
        "hard": {"requests.cpu": "4", "limits.cpu": "8", "count/limits.example.com": "3", "limits.memory": "1Gi"},
        "used": {"requests.cpu": "500m", "limits.memory": "12Mi"},
    }
    requests = "count/limits.example.com: 0/3, requests.cpu: 500m/4"
    assert cells(QUOTAS, held) == ["q", requests, "limits.cpu: 0/8, limits.memory: 12Mi/1Gi", "10s"]
    assert cells(QUOTAS, quota(hard={"pods": "1"})) == ["q", "", "", "10s"]


def test_a_pod_template_is_shown_with_containers_and_labels():
    spec = {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}]}
    held = {"metadata": {"name": "t"}, "template": {"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": spec}}
    assert cells(TEMPLATES, held) == ["t", "c,d", "i:1,j", "a=1,b=2"]
    assert cells(TEMPLATES, {"metadata": {"name": "t"}}) == ["t", "", "", "<none>"]


def test_a_questionable_quota_gives_a_warning(against_a_server):
    doubtful = quota(hard={"requests.cpu": "2", "limits.cpu": "1", "memory": "2Gi", "limits.memory": "1Gi", "pods": "1"})

    async def test(client, _):
        headers = {"Authorization": f"Bearer {client.token}"}
        async with client.session.post(client.base + PATH, json=doubtful, headers=headers) as response:
            assert response.status == 201
            assert response.headers.getall("Warning") == [
                '299 - "ResourceQuota requests.cpu (2) should be less than limits.cpu (1)"',
                '299 - "ResourceQuota memory (2Gi) should be less than limits.memory (1Gi)"',
            ]

    against_a_server(test)


def test_both_kinds_in_protobuf():
    asked = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    held = quota(hard={"pods": "3", "cpu": "1500m"}, scopes=["Terminating"], scopeSelector=asked)
    held["status"] = {"hard": {"pods": "3"}, "used": {"pods": "1"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    for one in (held, {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}, "template": template}):
        read = read_protobuf(write_protobuf(msgspec.json.decode(msgspec.json.encode(one))))
        read["metadata"].pop("creationTimestamp", None)
        assert read["metadata"] == one["metadata"]
        assert read.get("spec") == one.get("spec")
        assert read.get("status") == one.get("status")
        if "template" in one:
            assert read["template"]["spec"]["containers"] == template["spec"]["containers"]
