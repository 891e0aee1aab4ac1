"""Quotas and limit ranges of an input: which pods are not created, and why. The embedded API server is the oracle."""

from __future__ import annotations

import copy
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Pod
from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.api.fields.managed_fields import FieldManager
from moorage.laboratory.cluster_objects import read_given
from moorage.rules.store.store import Store
from moorage.simulator.pod_creation import create_pods
from moorage.simulator.quotas import QuotaLedger, QuotaRoom, without_usage

QUOTAS = served("resourcequotas")
SERVICE_ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}
MANAGER = FieldManager("tests", version="v1", subresource="status")


def cluster(*documents):
    return create_pods(given_input(documents))


def given_input(documents):
    return read_given(copy.deepcopy(list(documents)))


def quota(name="q", status=None, hard=None, **spec):
    document = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "namespace": "default"}}
    return document | {"spec": {"hard": hard or {"cpu": "4"}, **spec}} | ({"status": status} if status else {})


def pod(name, cpu="1", created=None, node="", **spec):
    metadata = {"name": name, "namespace": "default", **({"creationTimestamp": created} if created else {})}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}} if cpu else {}}
    placed = {"nodeName": node} if node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **placed, **spec}}


def deployment(replicas, cpu="1"):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", cpu)["spec"]}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }  # fmt: skip


LONG_AGO = "2025-01-01T00:00:00Z"
BEST_EFFORT = {"scopes": ["BestEffort"]}
IN_CLASS = {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}]}}
LIMITS = {
    "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "default"},
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}]},
}  # fmt: skip
LOW = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": 5}
NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
}  # fmt: skip

CASES = {  # the input; how many pods are not created
    "no quota": ([deployment(9)], 0),
    "a deployment gets as many as fit": ([quota(), deployment(6)], 2),
    "pods that exist count": ([NODE, quota(), pod("a", created=LONG_AGO), pod("b", node="n1"), deployment(6)], 4),
    "the status counts what the input lacks": ([quota(status={"hard": {"cpu": "4"}, "used": {"cpu": "3"}}), deployment(6)], 5),
    "the larger usage counts": ([quota(status={"used": {"cpu": "1"}}), pod("a", "3", LONG_AGO), deployment(6)], 5),
    "limits are those of the spec": ([quota(status={"hard": {"cpu": "1"}, "used": {"cpu": "0"}}), deployment(4)], 0),
    "a later, smaller pod still fits": ([quota(), pod("a", "3"), pod("b", "2"), pod("c", "1")], 1),
    "pods must say what is limited": ([quota(), pod("a", "")], 1),
    "a limit range says it for them": ([quota(), LIMITS, pod("a", "")], 0),
    "other namespaces are free": ([quota() | {"metadata": {"name": "q", "namespace": "other"}}, deployment(9)], 0),
    "a scope": ([quota(hard={"pods": "1"}, **BEST_EFFORT), pod("a", ""), pod("b", ""), pod("c")], 1),
    "a scope selector": (
        [LOW, quota(hard={"pods": "0"}, **IN_CLASS), pod("a"), pod("b", priorityClassName="low")], 1,
    ),
    "pods with a deadline": (
        [quota(hard={"pods": "0"}, scopes=["Terminating"]), pod("a"), pod("b", activeDeadlineSeconds=60)], 1,
    ),
    "two quotas": ([quota(), quota("r", hard={"pods": "3"}), deployment(9)], 6),
    "a bound of a limit range": ([LIMITS, pod("a", "3"), pod("b", "2")], 1),
}  # fmt: skip


@pytest.mark.parametrize(("documents", "refused"), CASES.values(), ids=CASES)
def test_pods_that_are_not_created(documents, refused):
    created = cluster(*documents)
    assert len(created.refused) == refused
    assert not {one.pod.uid for one in created.refused} & {held.uid for held in created.cluster.pods}
    everything = create_pods(given_input(documents), quota=False)
    assert len(everything.cluster.pods) == len(created.cluster.pods) + refused
    assert everything.refused == ()


def test_the_message_is_that_of_the_api_server():
    (one,) = cluster(quota(), pod("a", "3"), pod("b", "2")).refused
    assert one.refused.message == 'pods "b" is forbidden: exceeded quota: q, requested: cpu=2, used: cpu=3, limited: cpu=4'
    (shortage,) = one.refused.shortages
    assert (shortage.resource, shortage.requested, shortage.used, shortage.hard) == ("cpu", "2", "3", "4")
    (one,) = cluster(LIMITS, pod("a", "3")).refused
    assert one.refused.message == (  # the maximum is the default limit, and validation comes before the bounds
        'Pod "a" is invalid: spec.containers[0].resources.requests: Invalid value: "3": '
        "must be less than or equal to cpu limit of 2"
    )
    assert (one.refused.by, one.refused.quota) == ("LimitRange", "")


def test_a_stateful_set_stops_where_its_claims_are_refused():
    claim = {
        "metadata": {"name": "data"},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]},
    }
    held = deployment(3) | {"kind": "StatefulSet"}
    held["spec"] = held["spec"] | {"serviceName": "web", "volumeClaimTemplates": [claim]}
    created = cluster(quota(hard={"requests.storage": "2Gi"}), held)
    assert [one.refused.resource for one in created.refused] == ["persistentvolumeclaims"]
    assert [claim.metadata.name for claim in created.cluster.persistent_volume_claims] == ["data-web-0", "data-web-1"]
    assert [held.name for held in created.cluster.pods] == ["web-0", "web-1"]


def test_room():
    ledger = QuotaLedger.of(given_input([quota(hard={"cpu": "10", "pods": "20"}), pod("a", "1", LONG_AGO)]))
    one = msgspec.convert(pod("b", "2"), Pod)
    found = ledger.room(one)
    assert found.count == 4
    assert found.refused is not None
    assert found.refused.shortages[0].used == "9"
    assert ledger.room(one) == found
    assert [ledger.charge(one) is None for _ in range(5)] == [True] * 4 + [False]
    assert ledger.room(msgspec.convert(pod("b") | {"metadata": {"name": "b", "namespace": "free"}}, Pod)) == QuotaRoom(None)
    assert ledger.room(msgspec.convert(pod("b", ""), Pod)).count == 0


def test_pods_that_go_are_not_charged():
    status = {"hard": {"cpu": "4"}, "used": {"cpu": "4"}}
    left = given_input([quota(status=status), pod("a", "1", LONG_AGO)])
    gone = given_input([pod("b", "3", LONG_AGO)]).pods
    assert QuotaLedger.of(left).room(gone[0]).count == 0
    assert QuotaLedger.of(without_usage(left, gone)).room(gone[0]).count == 1


# -- the oracle ----------------------------------------------------------------------------------------------------------

CPU = st.sampled_from(["", "250m", "1", "2"])
PODS = st.lists(st.tuples(CPU, st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=8)
HARD = st.dictionaries(
    st.sampled_from(["cpu", "requests.cpu", "limits.memory", "pods", "count/pods", "memory"]),
    st.sampled_from(["0", "1", "2", "3"]), min_size=1, max_size=3,
)  # fmt: skip
LIMITED = st.one_of(
    st.tuples(HARD, st.sampled_from([{}, {"scopes": ["NotBestEffort"]}, {"scopes": ["NotTerminating"]}, IN_CLASS])),
    st.tuples(st.sampled_from([{"pods": "0"}, {"pods": "1"}]), st.just(BEST_EFFORT)),
)


@given(pods=PODS, quotas=st.lists(LIMITED, min_size=1, max_size=2))
@settings(max_examples=30, deadline=None)
def test_the_same_pods_are_refused_as_by_the_embedded_api_server(pods, quotas):
    documents = [
        pod(
            f"p{number}", cpu, None,
            **({"priorityClassName": "low"} if low else {}), **({"activeDeadlineSeconds": 9} if ends else {}),
        )
        for number, (cpu, low, ends, _) in enumerate(pods)
    ]  # fmt: skip
    for document, (*_, memory) in zip(documents, pods, strict=True):
        if memory:
            document["spec"]["containers"][0]["resources"]["limits"] = {"memory": "1"}
    limits = [quota(f"q{number}", hard=hard, **scope) for number, (hard, scope) in enumerate(quotas)]
    refused = {one.pod.name: one.refused.message for one in cluster(LOW, *limits, *documents).refused}
    assert refused == _refused_by_the_store(limits, documents)


def _refused_by_the_store(quotas, documents):
    store = Store(lambda: 1_750_000_000.0, random.Random(5), b"k")
    store.create(served("priorityclasses", "scheduling.k8s.io"), "", copy.deepcopy(LOW))
    store.create(served("serviceaccounts"), "default", copy.deepcopy(SERVICE_ACCOUNT))
    for document in quotas:
        hard, name = document["spec"]["hard"], document["metadata"]["name"]
        store.create(QUOTAS, "default", copy.deepcopy(document))
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        store.change(
            QUOTAS,
            "default",
            name,
            lambda held, status=status: {**held, "status": status},
            subresource="status",
            manager=MANAGER,
        )
    refused = {}
    for document in documents:
        try:
            store.create(served("pods"), "default", copy.deepcopy(document))
        except ApiError as error:
            refused[document["metadata"]["name"]] = str(error)
    return refused
