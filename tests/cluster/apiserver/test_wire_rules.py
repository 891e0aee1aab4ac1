"""What kube-apiserver rejects in writes of schedulers: events, leases, and the status of pods and claims."""

import json

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.rules.store.event_apis import mirror_events

EVENTS, OLD_EVENTS = served("events", "events.k8s.io"), served("events")
LEASES, PODS = served("leases", "coordination.k8s.io"), served("pods")
CLAIMS = served("resourceclaims", "resource.k8s.io")
UID = "0f4a7b36-3c1e-4d52-9c3a-1f1f5c1d7a10"


def refused(call, *arguments, **more):
    with pytest.raises(ApiError) as caught:
        call(*arguments, **more)
    return caught.value


def faults(error):
    return [f"{cause.field}: {cause.message}" for cause in error.causes]


# -- events -------------------------------------------------------------------------------------------------------------


def event(**changed):
    document = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "default"}, "eventTime": "2026-11-21T08:00:00.123456Z",
        "reportingController": "default-scheduler", "reportingInstance": "default-scheduler-host", "action": "Scheduling",
        "reason": "FailedScheduling", "regarding": {"kind": "Pod", "namespace": "default", "name": "web", "uid": UID},
        "note": "0/1 nodes are available", "type": "Warning",
    }  # fmt: skip
    return {key: value for key, value in {**document, **changed}.items() if value is not None}


BROKEN_EVENTS = {
    "no time": (
        {"eventTime": None, "reportingController": None, "reportingInstance": None, "action": None},
        ["eventTime: Required value"],
    ),
    "no reporter": ({"reportingController": None}, ["reportingController: Required value"]),
    "no instance": ({"reportingInstance": None}, ["reportingInstance: Required value"]),
    "a long instance": (
        {"reportingInstance": "x" * 129}, ['reportingInstance: Invalid value: "": can have at most 128 characters'],
    ),
    "no action": ({"action": None}, ["action: Required value"]),
    "a long action": ({"action": "x" * 129}, ['action: Invalid value: "": can have at most 128 characters']),
    "no reason": ({"reason": None}, ["reason: Required value"]),
    "a long reason": ({"reason": "x" * 129}, ['reason: Invalid value: "": can have at most 128 characters']),
    "a long note": ({"note": "x" * 1025}, ['message: Invalid value: "": can have at most 1024 characters']),
    "a note of many bytes": ({"note": "é" * 513}, ['message: Invalid value: "": can have at most 1024 characters']),
    "another type": ({"type": "Grave"}, ['type: Invalid value: "": has invalid value: Grave']),
    "no namespace of its own": (
        {"regarding": {"kind": "Node", "name": "n"}, "metadata": {"name": "n.1", "namespace": "team"}},
        ['involvedObject.namespace: Invalid value: "": does not match event.namespace'],
    ),
    "a series of one": (
        {"series": {"count": 1, "lastObservedTime": "2026-11-21T08:00:00.000000Z"}},
        ['series.count: Invalid value: "": should be at least 2'],
    ),
    "a series without a time": ({"series": {"count": 2}}, ["series.lastObservedTime: Required value"]),
    "what only old ones have": (
        {"deprecatedCount": 1, "deprecatedFirstTimestamp": "2026-11-21T08:00:00Z",
         "deprecatedLastTimestamp": "2026-11-21T08:00:00Z", "deprecatedSource": {"component": "x"}},
        ['firstTimestamp: Invalid value: "": needs to be unset', 'lastTimestamp: Invalid value: "": needs to be unset',
         'count: Invalid value: "": needs to be unset', 'source: Invalid value: "": needs to be unset'],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "wanted"), BROKEN_EVENTS.values(), ids=BROKEN_EVENTS)
def test_rejected_events(new_store, changed, wanted):
    store = new_store()
    store.create(served("namespaces"), "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    document = event(**changed)
    assert faults(refused(store.create, EVENTS, document["metadata"]["namespace"], document)) == wanted


def test_the_name_of_a_reporter_is_validated(new_store):
    (fault,) = faults(refused(new_store().create, EVENTS, "default", event(reportingController="a b")))
    assert fault.startswith('reportingController: Invalid value: "a b": name part must consist of')
    (fault,) = faults(refused(new_store().create, OLD_EVENTS, "default", {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1"}, "eventTime": "2026-11-21T08:00:00.123456Z",
        "reportingComponent": "a b",
        "reportingInstance": "i", "action": "a", "reason": "r", "involvedObject": {"namespace": "default"},
    }))  # fmt: skip
    assert fault.startswith("reportingComponent: ")


FIXED = {
    "regarding": ({"kind": "Pod", "namespace": "default", "name": "other"}, "involvedObject"), "reason": ("Other", "reason"),
    "note": ("Other", "message"), "type": ("Normal", "type"), "eventTime": ("2026-11-21T08:00:01.123456Z", "eventTime"),
    "action": ("Other", "action"), "related": ({"kind": "Pod", "name": "x"}, "related"),
    "reportingController": ("other", "reportingController"), "reportingInstance": ("other", "reportingInstance"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value", "field"), [(name, *more) for name, more in FIXED.items()], ids=FIXED)
def test_only_the_series_of_an_event_can_change(new_store, name, value, field):
    store = new_store()
    mirror_events(store)
    store.create(EVENTS, "default", event())
    found = {
        fault.partition(": ")[0] for fault in faults(refused(store.update, EVENTS, "default", "web.1", event(**{name: value})))
    }
    assert found == {field}
    series = {"count": 2, "lastObservedTime": "2026-11-21T08:00:01.123456Z"}
    store.update(EVENTS, "default", "web.1", event(series=series))
    assert store.get(OLD_EVENTS, "default", "web.1").document()["series"] == series


def test_core_events_count_and_are_mirrored(new_store):
    store = new_store()
    mirror_events(store)
    old = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "o", "namespace": "default"},
        "involvedObject": {"namespace": "default", "kind": "Pod", "name": "p"},
        "reason": "r", "message": "m", "count": 1, "type": "Normal", "firstTimestamp": "2026-11-21T08:00:00Z",
    }  # fmt: skip
    store.create(OLD_EVENTS, "default", json.loads(json.dumps(old)))
    store.update(OLD_EVENTS, "default", "o", {**old, "count": 7, "message": "n"})
    new = store.get(EVENTS, "default", "o").document()
    assert (new["deprecatedCount"], new["note"]) == (7, "n")


# -- leases and times ---------------------------------------------------------------------------------------------------

BROKEN_LEASES = {
    "no time to live": ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]),
    "transitions below none": (
        {"leaseTransitions": -1}, ["spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), BROKEN_LEASES.values(), ids=BROKEN_LEASES)
def test_rejected_leases(new_store, spec, wanted):
    lease = {"metadata": {"name": "l"}, "spec": spec}
    assert faults(refused(new_store().create, LEASES, "kube-system", lease)) == wanted


WRITTEN = {
    "six digits": ("2026-11-21T08:00:00.123456Z", "2026-11-21T08:00:00.123456Z"),
    "another zone": ("2026-11-21T09:00:00.123456+01:00", "2026-11-21T08:00:00.123456Z"),
    "none": ("2026-11-21T08:00:00Z", None),
    "three": ("2026-11-21T08:00:00.123Z", None),
    "nine": ("2026-11-21T08:00:00.123456789Z", None),
    "nothing at all": ("", None),
}


@pytest.mark.parametrize(("sent", "kept"), WRITTEN.values(), ids=WRITTEN)
def test_times_with_microseconds_have_six_digits(against_a_server, sent, kept):
    """Go parses them with a layout of six digits, and no others."""

    async def test(client, store):
        lease = {"metadata": {"name": "l"}, "spec": {"renewTime": sent}}
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        status, document = await client.ask("POST", path, lease)
        if kept is None:
            assert (status, document["reason"]) == (400, "BadRequest")
            assert f'parsing time "{sent}" as "2006-01-02T15:04:05.000000Z07:00"' in document["message"]
        else:
            assert (status, document["spec"]["renewTime"]) == (201, kept)

    against_a_server(test)


# -- status of pods -----------------------------------------------------------------------------------------------------

BROKEN_PODS = {
    "a node of no name": (
        {"nominatedNodeName": "N 1"}, "status.nominatedNodeName: Invalid value",
    ),
    "a condition of no name": (
        {"conditions": [{"type": "a b", "status": "True"}]}, 'status.conditions[0].Type: Invalid value: "a b"',
    ),
    "a generation before the first": (
        {"conditions": [{"type": "PodScheduled", "status": "True", "observedGeneration": -1}]},
        "status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
    ),
    "a class that changes": ({"qosClass": "Guaranteed"}, 'status.qosClass: Invalid value: "Guaranteed": field is immutable'),
    "a claim the pod does not have": (
        {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "x"}]},
        'status.resourceClaimStatuses[0].name: Invalid value: "g": must match the name of an entry in `spec.resourceClaims`',
    ),
    "devices for a container it does not have": (
        {
            "extendedResourceClaimStatus": {
                "resourceClaimName": "x",
                "requestMappings": [{"containerName": "z", "resourceName": "example.com/gpu", "requestName": "r"}],
            },
        },
        'status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: "z": must match the name of',
    ),
}  # fmt: skip


def a_pod(store, **spec):
    containers = [{"name": "c", "image": "i"}]
    return store.create(PODS, "default", {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}).document()


@pytest.mark.parametrize(("status", "wanted"), BROKEN_PODS.values(), ids=BROKEN_PODS)
def test_rejected_pod_statuses(new_store, status, wanted):
    store = new_store()
    pod = a_pod(store)
    pod["status"] |= status
    (fault,) = faults(refused(store.update, PODS, "default", "p", pod, subresource="status"))
    assert fault.startswith(wanted)


def test_an_assigned_pod_is_not_nominated(new_store):
    store = new_store()
    pod = a_pod(store, nodeName="n1")
    pod["status"]["nominatedNodeName"] = "n2"
    why = "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
    assert faults(refused(store.update, PODS, "default", "p", pod, subresource="status")) == [why]


# -- status of claims ---------------------------------------------------------------------------------------------------


def a_claim(store, **status):
    asked = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    either = {"name": "e", "firstAvailable": [{"name": "s", "deviceClassName": "gpu", "allocationMode": "All"}]}
    document = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "g"},
        "spec": {"devices": {"requests": [asked, either]}},
    }  # fmt: skip
    return {**store.create(CLAIMS, "default", document).document(), "status": status}


RESULT = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
USER = {"resource": "pods", "name": "p", "uid": UID}
NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
CONFIG = {"source": "FromClass", "requests": ["r"], "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}


def allocation(*results, **more):
    return {"allocation": {"devices": {"results": list(results), **more}}}


NAMES = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
SOURCES = 'supported values: "FromClaim", "FromClass"'
BROKEN_CLAIMS = {
    "a user of nothing": (
        {"reservedFor": [USER]}, ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
    ),
    "a user of no kind": (
        {**allocation(RESULT), "reservedFor": [{"resource": "", "name": "", "uid": ""}]},
        [f"status.reservedFor[0].{name}: Required value" for name in ("resource", "name", "uid")],
    ),
    "a user twice": (
        {**allocation(RESULT), "reservedFor": [USER, USER]},
        [f'status.reservedFor[1]: Duplicate value: "{UID}"'],
    ),
    "too many users": (
        {**allocation(RESULT), "reservedFor": [{**USER, "uid": f"u{i}"} for i in range(257)]},
        ["status.reservedFor: Too many: 257: must have at most 256 items"],
    ),
    "an invalid request": (
        allocation({**RESULT, "request": "x"}),
        [f'status.allocation.devices.results[0].request: Invalid value: "x": {NAMES}'],
    ),
    "no driver": (
        allocation({**RESULT, "driver": ""}), ["status.allocation.devices.results[0].driver: Required value"],
    ),
    "no pool": (allocation({**RESULT, "pool": ""}), ["status.allocation.devices.results[0].pool: Required value"]),
    "no source": (
        allocation(RESULT, config=[{**CONFIG, "source": "FromNowhere"}]),
        [f'status.allocation.devices.config[0].source: Unsupported value: "FromNowhere": {SOURCES}'],
    ),
    "nothing configured": (
        allocation(RESULT, config=[{"source": "FromClaim"}]),
        ["status.allocation.devices.config[0].opaque: Required value"],
    ),
    "no nodes": (
        {"allocation": {"devices": {"results": [RESULT]}, "nodeSelector": {"nodeSelectorTerms": []}}},
        ["status.allocation.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("status", "wanted"), BROKEN_CLAIMS.values(), ids=BROKEN_CLAIMS)
def test_rejected_claim_statuses(new_store, status, wanted):
    store = new_store()
    assert faults(refused(store.update, CLAIMS, "default", "g", a_claim(store, **status), subresource="status")) == wanted


def test_the_devices_of_a_claim_are_deallocated_completely_or_not_at_all(new_store):
    store = new_store()
    given = allocation(RESULT, {**RESULT, "request": "e/s", "pool": "a/b", "device": "d1"}, config=[CONFIG])
    given["allocation"]["nodeSelector"] = NODE
    held = store.update(CLAIMS, "default", "g", a_claim(store, **given, reservedFor=[USER]), subresource="status").document()
    other = json.loads(json.dumps(held))
    other["status"]["allocation"]["devices"]["results"].pop()
    (fault,) = faults(refused(store.update, CLAIMS, "default", "g", other, subresource="status"))
    assert fault.startswith("status.allocation: Invalid value")
    assert fault.endswith("field is immutable")
    held["status"] = {}
    assert "allocation" not in store.update(CLAIMS, "default", "g", held, subresource="status").document()["status"]


def test_a_terminating_claim_gets_no_more_consumers(new_store):
    store = new_store()
    claim = a_claim(store, **allocation(RESULT), reservedFor=[USER])
    held = store.update(CLAIMS, "default", "g", claim, subresource="status").document()
    held["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    store.update(CLAIMS, "default", "g", held)
    store.delete(CLAIMS, "default", "g")
    held = store.get(CLAIMS, "default", "g").document()
    held["status"]["reservedFor"] = [{**USER, "uid": "other"}]
    why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    error = refused(store.update, CLAIMS, "default", "g", held, subresource="status")
    assert faults(error) == [f"status.reservedFor: Forbidden: {why}"]
    held["status"]["reservedFor"] = []
    store.update(CLAIMS, "default", "g", held, subresource="status")
