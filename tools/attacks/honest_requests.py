"""Honest traffic: what kubectl and other clients send, in one sequence over every kind, with each answer.

Later requests use versions, uids and tokens of earlier answers, so the sequence can run on any server that knows the kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from moorage.api.documents.served_kinds import KINDS, Document, ServedKind, served
from moorage.api.schema.protobuf import PROTOBUF
from moorage.cluster.apiserver.schema.request_bodies import APPLY, JSON, PATCH_TYPES, YAML
from tools.attacks.differences import read_body
from tools.attacks.objects import ATTACKED, valid_object
from tools.attacks.routes import object_path
from tools.attacks.wire import AttackResponse

__all__ = ["HONEST", "Exchange", "HonestClient", "play"]

#: The namespace of the sequence, and the name of the objects in it.
HONEST: Final = "honest"
NAME: Final = "first"
_SECOND: Final = "second"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"
_JSON_PATCH, _MERGE, _STRATEGIC = PATCH_TYPES[:3]
_CREATED: Final = {"fieldManager": "kubectl-create", "fieldValidation": "Strict"}
_SCALED: Final = frozenset(["deployments", "replicasets", "replicationcontrollers", "statefulsets", "things"])
_ROLLED: Final = ("daemonsets", "deployments", "statefulsets")
#: Kinds that change how requests for other kinds are handled; they come last.
_LAST: Final = frozenset(["limitranges", "namespaces", "resourcequotas", "customresourcedefinitions"])
_PODS: Final = served("pods")
_NODES: Final = served("nodes")


class Server(Protocol):
    """A server that answers the requests of an administrator."""

    async def ask(
        self, method: str, path: str, document: Any = None, form: str = JSON, accept: str = JSON
    ) -> AttackResponse: ...  # fmt: skip


@dataclass(frozen=True)
class Exchange:
    """One request and its answer. ``label`` says what a client wants with it."""

    label: str
    kind: ServedKind | None
    answer: AttackResponse


class HonestClient:
    """Sends requests to a server, and keeps the answers."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.exchanges: list[Exchange] = []

    async def ask(
        self, label: str, method: str, kind: ServedKind, name: str = "", body: Any = None, *,
        part: str = "", namespace: str | None = None, form: str = JSON, accept: str = JSON, query: Mapping[str, str] = {},
    ) -> Any:  # fmt: skip
        """Return the decoded body of the answer."""
        home = (HONEST if kind.namespaced else "") if namespace is None else namespace
        path = object_path(kind, home, name, part) + (f"?{urlencode(query)}" if query else "")
        answer = await self._server.ask(method, path, body, form, accept)
        self.exchanges.append(Exchange(f"{label}: {method} {path}", kind, answer))
        return read_body(answer)


async def play(server: Server, resources: Collection[str] = ()) -> list[Exchange]:
    """Run the sequence on a server, and remove what it made. ``resources`` restricts it to these, if there are any."""
    client = HonestClient(server)
    namespaces = served("namespaces")
    await client.ask("create the namespace", "POST", namespaces, body={"metadata": {"name": HONEST}}, query=_CREATED)
    made = [kind for kind in (*KINDS, ATTACKED) if "create" in kind.verbs and (not resources or kind.resource in resources)]
    kinds = sorted(made, key=lambda kind: kind.resource in _LAST)
    for kind in kinds:
        await _create(client, kind)
        await _read(client, kind)
        await _list(client, kind)
        await _change(client, kind)
        await _apply(client, kind)
    await _work(client, kinds)
    for kind in reversed(kinds):
        await _delete(client, kind)
    await client.ask("delete the namespace", "DELETE", namespaces, HONEST)
    await server.ask("PUT", object_path(namespaces, "", HONEST, "finalize"), {"metadata": {"name": HONEST}, "spec": {}})
    return client.exchanges


def _home(kind: ServedKind) -> str:
    return HONEST if kind.namespaced else ""


def _name(kind: ServedKind, name: str) -> str:
    made: str = valid_object(kind, _home(kind), name)["metadata"]["name"]
    return made


async def _create(client: HonestClient, kind: ServedKind) -> None:
    for name in (NAME, _SECOND):
        await client.ask("try to create", "POST", kind, body=valid_object(kind, _home(kind), name), query={"dryRun": "All"})
        await client.ask("create", "POST", kind, body=valid_object(kind, _home(kind), name), query=_CREATED)
    await client.ask("create again", "POST", kind, body=valid_object(kind, _home(kind), NAME), form=YAML)


async def _read(client: HonestClient, kind: ServedKind) -> None:
    name = _name(kind, NAME)
    for label, accept in (
        ("get", JSON), ("get -o yaml", YAML), ("get as a table", _TABLE), ("get metadata", _METADATA.format("")),
        *([] if kind.custom is not None else [("get as protobuf", PROTOBUF)]),
    ):  # fmt: skip
        await client.ask(label, "GET", kind, name, accept=accept)
    await client.ask("get the wide table", "GET", kind, name, accept=_TABLE, query={"includeObject": "Object"})
    await client.ask("get what is not there", "GET", kind, "none")
    for part in ("scale", "status"):
        if part in kind.subresources:
            await client.ask(f"get the {part}", "GET", kind, name, part=part)


async def _list(client: HonestClient, kind: ServedKind) -> None:
    name = _name(kind, NAME)
    for label, query in (
        ("list", {}), ("list the cached", {"resourceVersion": "0"}), ("list by label", {"labelSelector": "app=x"}),
        ("list by the absence of a label", {"labelSelector": "!app"}), ("list by set", {"labelSelector": "app in (y, z)"}),
        ("list by name", {"fieldSelector": f"metadata.name={name}"}),
        ("list by other names", {"fieldSelector": f"metadata.name!={name}"}),
    ):  # fmt: skip
        await client.ask(label, "GET", kind, query=query)
    await client.ask("list as a table", "GET", kind, accept=_TABLE, query={"limit": "500"})
    await client.ask("list all namespaces as a table", "GET", kind, accept=_TABLE, namespace="")
    await client.ask("list metadata", "GET", kind, accept=_METADATA.format("List"))
    page: Any = {"metadata": {"continue": ""}}
    for label in ("list the first page", "list the next page"):
        token = page["metadata"].get("continue") or ""
        if label == "list the first page" or token:
            query = {"limit": "1", "labelSelector": "app=x", **({"continue": token} if token else {})}
            page = await client.ask(label, "GET", kind, query=query)


async def _change(client: HonestClient, kind: ServedKind) -> None:
    """Label, annotate, replace and watch."""
    name = _name(kind, NAME)
    seen = await client.ask("get", "GET", kind, name)
    version = seen["metadata"]["resourceVersion"]
    await client.ask("replace it unchanged", "PUT", kind, name, seen)
    for label, form, patch in _patches(kind):
        await client.ask(label, "PATCH", kind, name, patch, form=form, query={"fieldManager": "kubectl-edit"})
    await client.ask("replace an old version", "PUT", kind, name, seen)
    latest = await client.ask("get", "GET", kind, name)
    latest["metadata"].setdefault("labels", {})["replaced"] = "true"
    await client.ask("replace it", "PUT", kind, name, latest, query={"fieldManager": "kubectl-replace"})
    if "status" in kind.subresources:
        await client.ask("patch the status", "PATCH", kind, name, {"status": {}}, part="status", form=_MERGE)
    watched = {"watch": "1", "resourceVersion": version, "fieldSelector": f"metadata.name={name}", "timeoutSeconds": "5"}
    await client.ask("watch the changes", "GET", kind, query=watched)
    await client.ask("watch the changes as a table", "GET", kind, accept=_TABLE, query=watched)


def _patches(kind: ServedKind) -> Iterable[tuple[str, str, Any]]:
    strategic = _MERGE if kind.custom is not None else _STRATEGIC
    yield "label", _MERGE, {"metadata": {"labels": {"tier": "front"}}}
    yield "annotate", strategic, {"metadata": {"annotations": {"note": "one"}}}
    yield "annotate again", strategic, {"metadata": {"annotations": {"note": "one"}}}
    yield "remove the label", _JSON_PATCH, [{"op": "remove", "path": "/metadata/labels/tier"}]
    yield "remove it again", _JSON_PATCH, [{"op": "remove", "path": "/metadata/labels/tier"}]
    yield "remove the annotation", strategic, {"metadata": {"annotations": {"note": None}}}


async def _apply(client: HonestClient, kind: ServedKind) -> None:
    if kind.kind == "Event":
        return
    name = _name(kind, NAME)
    wanted = {"apiVersion": kind.api_version, "kind": kind.kind, **valid_object(kind, _home(kind), NAME)}
    wanted["metadata"] = {**wanted["metadata"], "labels": {"app": "x", "applied": "yes"}}
    kubectl = {"fieldManager": "kubectl", "force": "false"}
    await client.ask("apply", "PATCH", kind, name, wanted, form=APPLY, query={**kubectl, "force": "true"})
    await client.ask("apply again", "PATCH", kind, name, wanted, form=APPLY, query=kubectl)
    other = {**wanted, "metadata": {**wanted["metadata"], "labels": {"app": "x", "applied": "no"}}}
    await client.ask("apply as another", "PATCH", kind, name, other, form=APPLY, query={"fieldManager": "other"})
    await client.ask("apply a part", "PATCH", kind, name, _head(wanted), form=APPLY, query={"fieldManager": "part"})


def _head(document: Document) -> Document:
    kept = {name: document["metadata"][name] for name in ("name", "namespace") if name in document["metadata"]}
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": {**kept, "labels": {"part": "a"}}}


# -- workloads, pods and nodes ------------------------------------------------------------------------------------------


async def _work(client: HonestClient, kinds: Iterable[ServedKind]) -> None:
    for kind in kinds:
        if kind.resource in _SCALED:
            await _scale(client, kind)
        if kind.resource in _ROLLED:
            await _roll_out(client, kind)
    await _run_pods(client)
    await _drain(client)


async def _scale(client: HonestClient, kind: ServedKind) -> None:
    name = _name(kind, NAME)
    await client.ask("scale", "PATCH", kind, name, {"spec": {"replicas": 3}}, part="scale", form=_MERGE)
    scale = await client.ask("get the scale as a table", "GET", kind, name, part="scale")
    scale["spec"]["replicas"] = 2
    await client.ask("replace the scale", "PUT", kind, name, scale, part="scale")
    await client.ask("get what is scaled", "GET", kind, name)


async def _roll_out(client: HonestClient, kind: ServedKind) -> None:
    name, query = _name(kind, NAME), {"fieldManager": "kubectl-rollout"}
    restarted = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
    await client.ask("restart", "PATCH", kind, name, restarted, form=_STRATEGIC, query=query)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
    await client.ask("set the image", "PATCH", kind, name, image, form=_STRATEGIC, query=query)
    if kind.resource == "deployments":
        await client.ask("pause", "PATCH", kind, name, {"spec": {"paused": True}}, form=_STRATEGIC, query=query)
        await client.ask("resume", "PATCH", kind, name, {"spec": {"paused": None}}, form=_STRATEGIC, query=query)
    undone = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "i"}]
    await client.ask("undo", "PATCH", kind, name, undone, form=_JSON_PATCH, query=query)


async def _run_pods(client: HonestClient) -> None:
    """Bind a pod, report its status, resize it, and add an ephemeral container."""
    target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": NAME}, "target": target}
    for _ in range(2):
        await client.ask("bind", "POST", _PODS, NAME, binding, part="binding")
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await client.ask("report", "PATCH", _PODS, NAME, ready, part="status", form=_STRATEGIC)
    more = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    await client.ask("resize beyond the node", "PATCH", _PODS, NAME, more, part="resize", form=_STRATEGIC)
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    await client.ask("report the node", "PATCH", _NODES, NAME, {"status": {"allocatable": room}}, part="status", form=_MERGE)
    await client.ask("resize", "PATCH", _PODS, NAME, more, part="resize", form=_STRATEGIC)
    await client.ask("change a running pod", "PATCH", _PODS, NAME, more, form=_STRATEGIC)
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i", "targetContainerName": "c"}]}}
    await client.ask("debug", "PATCH", _PODS, NAME, debug, part="ephemeralcontainers", form=_STRATEGIC)
    await client.ask("list the pods of a node", "GET", _PODS, accept=_TABLE, query={"fieldSelector": f"spec.nodeName={NAME}"})
    await client.ask("list running pods", "GET", _PODS, query={"fieldSelector": "status.phase=Running"})
    of_pod = {"fieldSelector": f"involvedObject.name={NAME},involvedObject.kind=Pod", "limit": "500"}
    await client.ask("list a pod's events", "GET", served("events"), query=of_pod)
    await client.ask("read the log", "GET", _PODS, _SECOND, part="log")


async def _drain(client: HonestClient) -> None:
    """Cordon a node, taint it, evict its pod, and uncordon it."""
    query = {"fieldManager": "kubectl-cordon"}
    await client.ask("cordon", "PATCH", _NODES, NAME, {"spec": {"unschedulable": True}}, form=_STRATEGIC, query=query)
    taint = {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}
    await client.ask("taint", "PATCH", _NODES, NAME, taint, form=_MERGE, query={"fieldManager": "kubectl-taint"})
    await client.ask("get the node as a table", "GET", _NODES, NAME, accept=_TABLE)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": NAME, "namespace": HONEST}}
    await client.ask("try to evict", "POST", _PODS, NAME, {**eviction, "deleteOptions": {"dryRun": ["All"]}}, part="eviction")
    await client.ask("evict", "POST", _PODS, NAME, eviction, part="eviction")
    await client.ask("get the evicted pod", "GET", _PODS, NAME)
    await client.ask("uncordon", "PATCH", _NODES, NAME, {"spec": {"unschedulable": None}}, form=_STRATEGIC, query=query)


async def _delete(client: HonestClient, kind: ServedKind) -> None:
    name, now = _name(kind, NAME), {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
    await client.ask("try to delete", "DELETE", kind, name, query={**now, "dryRun": "All"})
    await client.ask("delete", "DELETE", kind, name, query=now)
    unheld = {"metadata": {"finalizers": None}}
    await client.ask("release", "PATCH", kind, name, unheld, form=_MERGE)
    await client.ask("get the deleted", "GET", kind, name)
    second = _name(kind, _SECOND)
    if kind.namespaced:
        await client.ask("delete all", "DELETE", kind, body={"kind": "DeleteOptions", "propagationPolicy": "Background"})
    else:
        await client.ask("delete the other", "DELETE", kind, second, query=now)
    await client.ask("release", "PATCH", kind, second, unheld, form=_MERGE)
    await client.ask("list", "GET", kind)
