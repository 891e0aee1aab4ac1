"""``check_cluster``: check that an API server behaves as kube-apiserver does, as far as a scheduler depends on it.

The same checks run against a store in memory, the embedded server over HTTP, or a real kube-apiserver. They create a namespace
and a few cluster-scoped objects with unique names, and delete them. All deviations are reported together.

    async with HttpWire(endpoint) as wire:
        await check_cluster(wire)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tools.cluster_checks.wires import ClusterWire, WireAnswer

__all__ = ["CHECKS", "Bench", "check_cluster"]

Document = dict[str, Any]
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_WAIT_S = 10.0


class Bench:
    """A namespace for the checks, and the deviations so far. ``check`` is the name of the running check."""

    def __init__(self, wire: ClusterWire, namespace: str) -> None:
        self.wire, self.namespace = wire, namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.services = f"/api/v1/namespaces/{namespace}/services"
        self.budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        self.broken: list[str] = []
        self.check = ""

    def expect(self, what: str, found: Any, wanted: Any) -> None:
        """Record a deviation if a value differs from the expected one."""
        if found != wanted:
            self.broken.append(f"{self.check}: {what}: expected {wanted!r}, found {found!r}")

    def refused(self, what: str, answer: WireAnswer, code: int, reason: str, *texts: str) -> None:
        """Record a deviation if a response is not this error; its message must contain the texts."""
        self.expect(what, (answer.code, answer.reason), (code, reason))
        for text in texts:
            if text not in answer.message:
                self.broken.append(f"{self.check}: {what}: expected {text!r} in the message, found {answer.message!r}")

    async def make(self, path: str, body: Document) -> WireAnswer:
        answer = await self.wire.ask("POST", path, body)
        if answer.code != 201:
            raise AssertionError(f"POST {path}: {answer.code} {answer.message}")
        return answer

    async def pod(self, name: str, *, labels: Document | None = None, **spec: Any) -> WireAnswer:
        """Create a pod that no scheduler handles."""
        document = {"schedulerName": "no-scheduler", "containers": [{"name": "c", "image": "i"}], **spec}
        metadata = {"name": name, "labels": labels or {}}
        return await self.make(self.pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": document})

    async def pod_of_new_class(self, name: str, priority_class: str) -> WireAnswer:
        """Create a pod whose class was just made.

        The admission of kube-apiserver reads classes from a cache that its own watch fills, so it may refuse the pod at first.
        """
        async with asyncio.timeout(_WAIT_S):
            while True:
                try:
                    return await self.pod(name, priorityClassName=priority_class)
                except AssertionError as error:
                    if f"no PriorityClass with name {priority_class} was found" not in str(error):
                        raise
                    await asyncio.sleep(0.05)

    async def bind(self, name: str, node: str = "no-such-node", *, uid: str = "", said: str = "", **target: Any) -> WireAnswer:
        metadata = {"name": said or name, **({"uid": uid} if uid else {})}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node, **target}}
        return await self.wire.ask("POST", f"{self.pods}/{name}/binding", body)

    async def get(self, path: str) -> WireAnswer:
        return await self.wire.ask("GET", path)

    async def status(self, name: str, **status: Any) -> WireAnswer:
        return await self.wire.ask("PATCH", f"{self.pods}/{name}/status", {"status": status}, form=_STRATEGIC)


def service(name: str, **labels: str) -> Document:
    spec = {"ports": [{"port": 80}], "selector": {"app": name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": spec}


# -- objects ------------------------------------------------------------------------------------------------------------


async def objects_are_created_updated_and_deleted(bench: Bench) -> None:
    ask, path = bench.wire.ask, f"{bench.services}/one"
    made = await bench.make(bench.services, service("one"))
    bench.expect("the path of a new object", made.body["metadata"]["namespace"], bench.namespace)
    bench.expect("a new object has a UID", bool(made.body["metadata"]["uid"]), True)
    bench.refused(
        "the same name again", await ask("POST", bench.services, service("one")), 409, "AlreadyExists", "already exists"
    )
    bench.refused("an invalid name", await ask("POST", bench.services, service("No_Name")), 422, "Invalid", "metadata.name")
    named = await ask("POST", bench.services, {**service(""), "metadata": {"generateName": "made-"}})
    bench.expect("a generated name", named.body["metadata"]["name"][:5], "made-")
    held = await bench.get(path)
    bench.expect("what is read is what was made", held.body["metadata"]["uid"], made.body["metadata"]["uid"])
    other = {**held.body, "metadata": {**held.body["metadata"], "name": "two"}}
    bench.refused("another name in the body", await ask("PUT", path, other), 400, "BadRequest")
    bench.expect("deleting", (await ask("DELETE", path)).code, 200)
    bench.refused("reading what is gone", await bench.get(path), 404, "NotFound", 'services "one" not found')
    bench.refused("deleting what is gone", await ask("DELETE", path), 404, "NotFound")


async def patches_change_what_they_name(bench: Bench) -> None:
    ask, path = bench.wire.ask, f"{bench.services}/patched"
    await bench.make(bench.services, service("patched", a="1"))
    merged = await ask("PATCH", path, {"metadata": {"labels": {"b": "2"}}}, form=_MERGE)
    bench.expect("a merge patch", merged.body["metadata"]["labels"], {"a": "1", "b": "2"})
    removed = await ask("PATCH", path, {"metadata": {"labels": {"a": None}}}, form=_STRATEGIC)
    bench.expect("a strategic patch", removed.body["metadata"]["labels"], {"b": "2"})
    replaced = await ask("PATCH", path, [{"op": "replace", "path": "/metadata/labels/b", "value": "3"}], form=_JSON_PATCH)
    bench.expect("a JSON patch", replaced.body["metadata"]["labels"], {"b": "3"})
    other_uid = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"c": "4"}}}
    bench.expect("a patch meant for another UID", (await ask("PATCH", path, other_uid, form=_MERGE)).code in {409, 422}, True)
    bench.expect("a patch of an unknown form", (await ask("PATCH", path, {}, form="text/plain")).code, 415)


async def versions_grow_and_stale_writes_fail(bench: Bench) -> None:
    ask, path = bench.wire.ask, f"{bench.services}/versioned"
    first = await bench.make(bench.services, service("versioned"))
    labelled = {**first.body, "metadata": {**first.body["metadata"], "labels": {"x": "1"}}}
    second = await ask("PUT", path, labelled)
    bench.expect("a write gives a later version", second.version > first.version, True)
    same = await ask("PUT", path, second.body)
    bench.expect("a write that changes nothing keeps the version", same.version, second.version)
    bench.refused("a stale write", await ask("PUT", path, labelled), 409, "Conflict", "the object has been modified")
    listed = await bench.get(bench.services)
    bench.expect("a list is as new as what is in it", listed.version >= second.version, True)
    with_version = service("versioned-too")
    with_version["metadata"]["resourceVersion"] = "1"
    bench.expect("a new object with a version", (await ask("POST", bench.services, with_version)).code, 500)
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}}
    bench.refused("deleting another UID", await ask("DELETE", path, options), 409, "Conflict", "UID in")
    future = {"resourceVersion": str(listed.version + 1_000_000)}
    bench.refused("a future version", await ask("GET", bench.services, query=future), 504, "Timeout")
    bench.expect("an invalid version", (await ask("GET", bench.services, query={"resourceVersion": "x"})).code, 400)


async def dry_runs_persist_nothing(bench: Bench) -> None:
    answer = await bench.wire.ask("POST", bench.services, service("dry"), query={"dryRun": "All"})
    bench.expect("a dry run", answer.code, 201)
    bench.expect("after a dry run", (await bench.get(f"{bench.services}/dry")).code, 404)


async def lists_are_paginated(bench: Bench) -> None:
    ask = bench.wire.ask
    for number in range(5):
        await bench.make(bench.services, service(f"page-{number}", paged="yes"))
    query = {"limit": "2", "labelSelector": "paged=yes"}
    names, sizes, versions = [], [], set()
    while True:
        page = await ask("GET", bench.services, query=query)
        if page.code != 200:
            raise AssertionError(f"a page: {page.code} {page.message}")
        names += [item["metadata"]["name"] for item in page.body["items"]]
        sizes.append(len(page.body["items"]))
        versions.add(page.version)
        token = page.body["metadata"].get("continue", "")
        if not token:
            break
        query = {**query, "continue": token}
        await bench.make(bench.services, service(f"page-x{len(sizes)}", paged="yes"))
    bench.expect("names of all pages, as of the first", names, [f"page-{number}" for number in range(5)])
    bench.expect("sizes of pages", sizes, [2, 2, 1])
    bench.expect("versions of pages", len(versions), 1)
    bench.expect("a token that was made up", (await ask("GET", bench.services, query={"continue": "bm9uZQ"})).code, 400)


async def selectors_filter(bench: Bench) -> None:
    await bench.pod("chosen", labels={"app": "a", "tier": "x"})
    await bench.pod("other", labels={"app": "b"}, nodeName="no-such-node")

    async def names(**query: str) -> list[str]:
        answer = await bench.wire.ask("GET", bench.pods, query=query)
        return [item["metadata"]["name"] for item in answer.body.get("items", ())]

    for selector, wanted in {
        "app=a": ["chosen"], "app!=a": ["other"], "app in (a,b),tier": ["chosen"], "!tier,app": ["other"],
    }.items():  # fmt: skip
        bench.expect(f"labels {selector}", await names(labelSelector=selector), wanted)
    for selector, wanted in {"spec.nodeName=": ["chosen"], "spec.nodeName=no-such-node,metadata.name!=x": ["other"]}.items():
        bench.expect(f"fields {selector}", await names(fieldSelector=selector), wanted)
    bench.expect("an unknown field", (await bench.wire.ask("GET", bench.pods, query={"fieldSelector": "a.b=c"})).code, 400)


# -- watches ------------------------------------------------------------------------------------------------------------


async def _take(events: Any, count: int) -> list[Document]:
    taken: list[Document] = []
    async with asyncio.timeout(_WAIT_S):
        while len(taken) < count:
            event = await anext(events)
            if event["type"] != "BOOKMARK":
                taken.append(event)
    return taken


def _shown(events: list[Document]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


async def watches_deliver_every_event_in_order(bench: Bench) -> None:
    ask, version = bench.wire.ask, (await bench.get(bench.services)).version
    await bench.make(bench.services, service("before"))
    async with bench.wire.watch(bench.services, {"resourceVersion": str(version)}) as events:
        await ask("PATCH", f"{bench.services}/before", {"metadata": {"labels": {"a": "1"}}}, form=_MERGE)
        await bench.make(bench.services, service("during"))
        await ask("DELETE", f"{bench.services}/before")
        taken = await _take(events, 4)
    wanted = [("ADDED", "before"), ("MODIFIED", "before"), ("ADDED", "during"), ("DELETED", "before")]
    bench.expect("events", _shown(taken), wanted)
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in taken]
    bench.expect("versions grow", versions, sorted(set(versions)))


async def watches_begin_with_existing_objects(bench: Bench) -> None:
    await bench.make(bench.services, service("there", begin="yes"))
    async with bench.wire.watch(bench.services, {"labelSelector": "begin=yes"}) as events:
        bench.expect("a watch of no version", _shown(await _take(events, 1)), [("ADDED", "there")])
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with bench.wire.watch(bench.services, {**query, "labelSelector": "begin=yes"}) as events, asyncio.timeout(_WAIT_S):
        first = await anext(events)
        if first["type"] == "ERROR":  # etcd before 3.5.11
            refusal = first["object"]["code"], "RequestWatchProgress is disabled" in first["object"]["message"]
            bench.expect("a list that cannot be streamed", refusal, (500, True))
            return
        mark = await anext(events)
    bench.expect("what a streamed list begins with", _shown([first]), [("ADDED", "there")])
    ended = mark["object"]["metadata"].get("annotations", {}).get("k8s.io/initial-events-end")
    bench.expect("what ends a streamed list", (mark["type"], ended), ("BOOKMARK", "true"))


async def watches_respect_selectors(bench: Bench) -> None:
    version = (await bench.get(bench.pods)).version
    query = {"resourceVersion": str(version), "fieldSelector": "spec.nodeName="}
    async with bench.wire.watch(bench.pods, query) as events:
        await bench.pod("waiting")
        await bench.bind("waiting")
        taken = await _take(events, 2)
    bench.expect("leaving a selection", _shown(taken), [("ADDED", "waiting"), ("DELETED", "waiting")])


# -- pods ---------------------------------------------------------------------------------------------------------------


async def pods_are_bound_once(bench: Bench) -> None:
    uid = (await bench.pod("bound")).body["metadata"]["uid"]
    await bench.status("bound", nominatedNodeName="elsewhere")
    bench.expect("binding to a node, whether there is one or not", (await bench.bind("bound", uid=uid)).code, 201)
    held = (await bench.get(f"{bench.pods}/bound")).body
    bench.expect("the node", held["spec"].get("nodeName"), "no-such-node")
    conditions = {one["type"]: one["status"] for one in held["status"].get("conditions", ())}
    bench.expect("the condition", conditions.get("PodScheduled"), "True")
    bench.expect("the nomination ends", held["status"].get("nominatedNodeName", ""), "")
    text = 'pod bound is already assigned to node "no-such-node"'
    bench.refused("binding it again", await bench.bind("bound"), 409, "Conflict", text)
    bench.refused("to the same node with its UID", await bench.bind("bound", uid=uid), 409, "Conflict", text)
    moved = {**held, "spec": {**held["spec"], "nodeName": "another"}}
    answer = await bench.wire.ask("PUT", f"{bench.pods}/bound", moved)
    bench.refused("moving it by writing", answer, 422, "Invalid")


async def invalid_bindings_are_rejected(bench: Bench) -> None:
    bench.refused("a pod that is not there", await bench.bind("missing"), 404, "NotFound", 'pods "missing" not found')
    await bench.pod("gated", schedulingGates=[{"name": "example.com/g"}])
    gates = "pod gated has non-empty .spec.schedulingGates"
    bench.refused("a gated pod", await bench.bind("gated"), 409, "Conflict", gates)
    await bench.pod("free")
    bench.refused("another UID", await bench.bind("free", uid="another"), 409, "Conflict", "UID in precondition")
    bench.refused("another name", await bench.bind("free", said="freed"), 400, "BadRequest", "does not match")
    for what, target in {"a target that is no node": {"kind": "Pod"}, "no target": {"name": ""}}.items():
        answer = await bench.bind("free", **({"node": target["name"]} if "name" in target else target))
        bench.expect(what, answer.code, 500)
    ending = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ending", "finalizers": ["example.com/f"]}}
    spec = {"schedulerName": "no-scheduler", "containers": [{"name": "c", "image": "i"}]}
    await bench.make(bench.pods, {**ending, "spec": spec})
    await bench.wire.ask("DELETE", f"{bench.pods}/ending")
    text = "pod ending is being deleted, cannot be assigned to a host"
    bench.refused("a pod that is ending", await bench.bind("ending"), 409, "Conflict", text)
    await bench.wire.ask("PATCH", f"{bench.pods}/ending", {"metadata": {"finalizers": None}}, form=_MERGE)
    bench.expect("gone with its finalizer", (await bench.get(f"{bench.pods}/ending")).code, 404)


async def one_of_many_binds_wins(bench: Bench) -> None:
    await bench.pod("contended")
    answers = await asyncio.gather(*(bench.bind("contended", f"node-{number}") for number in range(20)))
    bench.expect("winners", sum(answer.code == 201 for answer in answers), 1)
    bench.expect("losers", {answer.code for answer in answers} - {201}, {409})


async def conditions_are_merged_by_type(bench: Bench) -> None:
    await bench.pod("told")
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    await bench.status("told", conditions=[scheduled])
    answer = await bench.status("told", conditions=[disrupted], nominatedNodeName="n")
    found = {one["type"]: one["status"] for one in answer.body["status"]["conditions"]}
    bench.expect("both conditions", found, {"PodScheduled": "False", "DisruptionTarget": "True"})
    cleared = await bench.status("told", nominatedNodeName=None)
    bench.expect("a nomination that is cleared", cleared.body["status"].get("nominatedNodeName", ""), "")
    written = cleared
    for _ in range(5):  # controllers of a whole cluster write to the pod, too
        held = (await bench.wire.ask("GET", f"{bench.pods}/told")).body
        written = await bench.wire.ask("PUT", f"{bench.pods}/told", {**held, "status": {"phase": "Running"}})
        if written.code != 409:
            break
    bench.expect("a write of what was read", (written.code, written.body.get("message", "")), (200, ""))
    if written.code != 200:
        return
    bench.expect("a status written past its subresource", written.body["status"].get("phase"), "Pending")
    labelled = {**written.body, "spec": {**written.body["spec"], "nodeName": "n"}, "status": written.body["status"]}
    spec = (await bench.wire.ask("PUT", f"{bench.pods}/told/status", labelled)).body.get("spec", {})
    bench.expect("a spec written through the status", spec.get("nodeName", ""), "")


async def pods_have_a_grace_period(bench: Bench) -> None:
    await bench.pod("waiting-pod")
    await bench.wire.ask("DELETE", f"{bench.pods}/waiting-pod")
    bench.expect("a pod on no node is gone at once", (await bench.get(f"{bench.pods}/waiting-pod")).code, 404)
    await bench.pod("placed-pod", nodeName="no-such-node", terminationGracePeriodSeconds=60)
    deleted = await bench.wire.ask("DELETE", f"{bench.pods}/placed-pod")
    bench.expect("its time to end", deleted.body["metadata"].get("deletionGracePeriodSeconds"), 60)
    bench.expect("until then it is there", (await bench.get(f"{bench.pods}/placed-pod")).code, 200)
    now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    await bench.wire.ask("DELETE", f"{bench.pods}/placed-pod", now)
    bench.expect("without grace it is gone", (await bench.get(f"{bench.pods}/placed-pod")).code, 404)


async def evictions_respect_budgets(bench: Bench) -> None:
    ready = [{"type": "Ready", "status": "True"}]
    for name, app in (("guarded", "guarded"), ("unguarded", "free")):
        await bench.pod(name, labels={"app": app}, nodeName="no-such-node", terminationGracePeriodSeconds=0)
        await bench.status(name, phase="Running", conditions=ready)
    selector = {"matchLabels": {"app": "guarded"}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    made = await bench.make(bench.budgets, {**body, "spec": {"minAvailable": 1, "selector": selector}})
    status = {"observedGeneration": made.body["metadata"].get("generation", 1), "disruptionsAllowed": 0}
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    await bench.wire.ask("PATCH", f"{bench.budgets}/b/status", {"status": {**status, **counts}}, form=_MERGE)

    async def evict(name: str, said: str = "") -> WireAnswer:
        wanted = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": said or name, "namespace": bench.namespace},
        }
        return await bench.wire.ask("POST", f"{bench.pods}/{name}/eviction", wanted)

    denied = "Cannot evict pod as it would violate the pod's disruption budget."
    answer = await evict("guarded")
    bench.refused("a budget without room", answer, 429, "TooManyRequests", denied)
    causes = [cause.get("reason") for cause in answer.body.get("details", {}).get("causes", ())]
    bench.expect("why", causes, ["DisruptionBudget"])
    bench.expect("a pod of no budget", (await evict("unguarded")).code, 201)
    bench.refused("a pod that is not there", await evict("missing"), 404, "NotFound")
    bench.refused("another name", await evict("guarded", "other"), 400, "BadRequest")


async def priorities_are_resolved(bench: Bench) -> None:
    name, path = f"{bench.namespace}-high", "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
    await bench.make(path, body)
    try:
        made = await bench.pod_of_new_class("important", name)
        bench.expect("the priority of a class", made.body["spec"].get("priority"), 7)
        unknown = {
            "metadata": {"name": "x"},
            "spec": {"priorityClassName": "none", "containers": [{"name": "c", "image": "i"}]},
        }
        answer = await bench.wire.ask("POST", bench.pods, {"apiVersion": "v1", "kind": "Pod", **unknown})
        bench.refused("a class that is not there", answer, 403, "Forbidden", "no PriorityClass with name none was found")
        held = (await bench.get(f"{path}/{name}")).body
        bench.refused("another value", await bench.wire.ask("PUT", f"{path}/{name}", {**held, "value": 8}), 422, "Invalid")
    finally:
        await bench.wire.ask("DELETE", f"{path}/{name}")


async def pod_groups_are_immutable(bench: Bench) -> None:
    """Skipped where pod groups are not served: they are alpha, and most clusters do not have them."""
    ask, path = bench.wire.ask, f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{bench.namespace}/podgroups"
    if (await bench.get(path)).code == 404:
        return
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    head = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"}}
    made = (await bench.make(path, {**head, "spec": policy, "status": {"conditions": [{"type": "Made"}]}})).body
    bench.expect("how it may be disrupted", made["spec"].get("disruptionMode"), "Pod")
    bench.expect("what keeps it", made["metadata"].get("finalizers"), ["scheduling.k8s.io/podgroup-protection"])
    bench.expect("its status", made.get("status"), {})
    for what, spec, text in (
        ("no policy", {"schedulingPolicy": {}}, "must specify one of: `basic`, `gang`"),
        ("a gang of none", {"schedulingPolicy": {"gang": {"minCount": 0}}}, "minCount: Required value"),
    ):
        bench.refused(what, await ask("POST", path, {**head, "metadata": {"name": "x"}, "spec": spec}), 422, "Invalid", text)
    origin = {"podGroupTemplateRef": {"workload": {"workloadName": "none", "podGroupTemplateName": "t"}}}
    lost = await ask("POST", path, {**head, "metadata": {"name": "x"}, "spec": {**policy, **origin}})
    bench.refused("a workload that is not there", lost, 403, "Forbidden", 'Workload "none" not found')
    larger = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    bench.refused("another size", await ask("PATCH", f"{path}/g", larger, form=_MERGE), 422, "Invalid", "field is immutable")
    for when, status in (("2026-01-01T00:00:00Z", "False"), ("2026-01-02T00:00:00Z", "True")):
        condition = {"type": "PodGroupScheduled", "status": status, "reason": "Because", "lastTransitionTime": when}
        body = {"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [{**condition, "message": ""}]}}
        answer = await ask("PATCH", f"{path}/g/status", body, form=_STRATEGIC)
        found = [(one["status"], one["lastTransitionTime"]) for one in answer.body["status"]["conditions"]]
        bench.expect("its condition", found, [(status, when)])
        bench.expect("labels through the status path", answer.body["metadata"].get("labels"), None)
    pod = await bench.pod("of-a-group", schedulingGroup={"podGroupName": "g"})
    bench.expect("a pod's group", pod.body["spec"].get("schedulingGroup"), {"podGroupName": "g"})
    await ask("DELETE", f"{path}/g")
    bench.expect("a group that has to wait", (await bench.get(f"{path}/g")).code, 200)
    await ask("PATCH", f"{path}/g", {"metadata": {"finalizers": None}}, form=_MERGE)
    bench.expect("a group that need not wait", (await bench.get(f"{path}/g")).code, 404)


CHECKS: tuple[Callable[[Bench], Awaitable[None]], ...] = (
    objects_are_created_updated_and_deleted, patches_change_what_they_name, versions_grow_and_stale_writes_fail,
    dry_runs_persist_nothing, lists_are_paginated, selectors_filter, watches_deliver_every_event_in_order,
    watches_begin_with_existing_objects, watches_respect_selectors, pods_are_bound_once, invalid_bindings_are_rejected,
    one_of_many_binds_wins, conditions_are_merged_by_type, pods_have_a_grace_period, evictions_respect_budgets,
    priorities_are_resolved, pod_groups_are_immutable,
)  # fmt: skip


async def check_cluster(wire: ClusterWire, namespace: str = "moorage-check") -> None:
    """Raise AssertionError listing every response that deviates from kube-apiserver's, or return.

    ``namespace`` is created, used and deleted; it must not exist yet.
    """
    bench = Bench(wire, namespace)
    await bench.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    # A controller may create it, too; then this request fails.
    await wire.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    try:
        for check in CHECKS:
            bench.check = check.__name__.replace("_", " ")
            try:
                await check(bench)
            except (AssertionError, KeyError, TimeoutError, StopAsyncIteration, json.JSONDecodeError) as error:
                bench.broken.append(f"{bench.check}: ended by {type(error).__name__}: {error}")
    finally:
        await wire.ask("DELETE", f"/api/v1/namespaces/{namespace}")
    if bench.broken:
        raise AssertionError("this cluster deviates from Kubernetes:\n" + "\n".join(f"  {line}" for line in bench.broken))
