"""Write the scheduler's effects to an API server, with the requests that kube-scheduler sends.

Requests contain only the changed fields. Moorage's objects hold only what scheduling reads, so an object is never sent
complete: it is read, changed, and written back with the resource version that the decision was based on.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from moorage.api.core import Object, Pod
from moorage.api.custom_objects import CustomObject, read_custom
from moorage.api.decode import decode
from moorage.api.pod_groups import CompositePodGroup, Condition, PodGroup, find_condition
from moorage.cluster.apiserver.fields.patches import merge_patch
from moorage.errors import ClusterError
from moorage.live.client.rest import BINDING, STRATEGIC_MERGE_PATCH, Rest
from moorage.live.client.watched_resources import WatchedResource, resource_of
from moorage.live.runtime.ports import EventRecord, RequestsEnded, StatusChange

_PODS = resource_of(Pod)
_GROUPS = resource_of(PodGroup)
#: Metadata that the API server sets on a created object.
_GIVEN = frozenset({"uid", "resourceVersion", "creationTimestamp"})
#: Attempts at a change that conflicts with concurrent ones, and the pause after each (client-go's RetryOnConflict).
_CONFLICT_TRIES = 5
_CONFLICT_PAUSE_S = 0.01
#: Maximum length of the API's reportingInstance.
_MOST_INSTANCE = 128
#: Matches texts that JSON does not escape; and requests in the form that msgspec writes, for such texts.
_is_plain: Final = re.compile(r"[A-Za-z0-9 ._:/-]*").fullmatch
_PLAIN_BINDING: Final = (
    '{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%s","namespace":"%s","uid":"%s"},'
    '"target":{"kind":"Node","name":"%s"}}'
)
_PLAIN_EVENT: Final = (
    '{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"%s","namespace":"%s"},"eventTime":"%s",'
    '"reportingController":"%s","reportingInstance":"%s","action":"%s","reason":"%s","type":"%s","note":"%s",'
    '"regarding":{"apiVersion":"v1","kind":"Pod","namespace":"%s","name":"%s","uid":"%s","resourceVersion":"%s"}}'
)


class ApiCluster:
    """Implements ``moorage.live.runtime.ports.ClusterWriter``.

    ``reporter``: the scheduler's name, for events without a reporter; ``instance``: the name of the machine that it runs on.
    ``groups``: pod groups in the version that is written.
    """

    def __init__(self, rest: Rest, reporter: str, instance: str, groups: WatchedResource[Object] = _GROUPS) -> None:
        self._rest, self._groups = rest, groups
        self._reporter, self._instance = reporter, instance

    async def bind(self, pod: Pod, node: str, check: Callable[[], None]) -> None:
        path, body = _binding(pod, node)
        await self._rest.send("POST", path, body, lane=BINDING, check=check)

    def bind_soon(self, binds: Sequence[tuple[Pod, str]], check: Callable[[], None], done: RequestsEnded) -> bool:
        posts = [_binding(pod, node) for pod, node in binds]
        return self._rest.post_soon(posts, done, lane=BINDING, check=check, apart=True)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        try:
            body = await self._rest.send("GET", _PODS.path_of(namespace, name), lane=BINDING)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise
        return decode(body, Pod, "the API server's answer")

    async def patch_status(self, pod: Pod, change: StatusChange) -> None:
        status: dict[str, Any] = {}
        if change.condition is not None:
            status["conditions"] = [{**msgspec.to_builtins(change.condition), "lastProbeTime": None}]
        if change.nominated is not None:
            status["nominatedNodeName"] = change.nominated or None
        # A UID in a patch is a precondition: a pod recreated under the same name is not changed.
        body = msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": status})
        path = _PODS.path_of(pod.namespace, pod.name, "status")
        await self._rest.send("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)

    async def patch_group(self, group: PodGroup, condition: Condition) -> None:
        """Patch only the changed fields, merged by the condition's type, so that concurrent changes of others survive."""
        held = find_condition(group, condition.type)
        before = _group_condition(held) if held is not None else {}
        change = {name: value for name, value in _group_condition(condition).items() if before.get(name) != value}
        types = [one.type for one in group.status.conditions]
        order = [{"type": name} for name in (types if held is not None else [*types, condition.type])]
        status = {"$setElementOrder/conditions": order, "conditions": [{**change, "type": condition.type}]}
        body = msgspec.json.encode({"status": status})
        path = self._groups.path_of(group.metadata.namespace, group.metadata.name, "status")
        await self._rest.send("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)

    def _reference(self, obj: Pod | PodGroup | CompositePodGroup) -> dict[str, str]:
        versions = {PodGroup: self._groups.api_version, CompositePodGroup: "scheduling.k8s.io/v1alpha3"}
        return {
            "apiVersion": versions.get(type(obj), "v1"),
            "kind": type(obj).__name__,
            "namespace": obj.metadata.namespace,
            "name": obj.metadata.name,
            "uid": obj.metadata.uid,
            "resourceVersion": obj.metadata.resource_version,
        }

    async def delete_pod(self, pod: Pod) -> None:
        await self._delete(_PODS.path_of(pod.namespace, pod.name), pod.uid)

    async def write(self, old: Object | None, new: Object, subresource: str) -> Object:
        resource = resource_of(type(new))
        metadata = new.metadata
        if old is None:
            document = {"apiVersion": resource.api_version, "kind": resource.kind, **_plain(new)}
            document["metadata"] = {key: value for key, value in document["metadata"].items() if key not in _GIVEN}
            body = await self._rest.send("POST", resource.path_in(metadata.namespace), msgspec.json.encode(document))
            made = json.loads(body)
            if subresource:  # the API server drops the status of a created object
                path = resource.path_of(made["metadata"].get("namespace", ""), made["metadata"]["name"])
                made = await self._put_parts(path, made, [(subresource, {subresource: document[subresource]})])
            return _same_kind(new, made)
        parts, before = _parts(change_between(_plain(old), _plain(new)), subresource), old.metadata
        path = resource.path_of(before.namespace, before.name)
        held = await self._held(path)
        if (held["metadata"].get("uid"), held["metadata"].get("resourceVersion")) != (before.uid, before.resource_version):
            raise _unsent(ClusterError(f"{resource.plural} {before.name}: it was modified meanwhile", 409, "Conflict"))
        return _same_kind(new, await self._put_parts(path, held, parts))

    async def _put_parts(self, path: str, held: dict[str, Any], parts: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        """Send the parts of a change, each based on the server's response to the one before."""
        for subresource, change in parts:
            target = f"{path}/{subresource}" if subresource else path
            held = json.loads(await self._rest.send("PUT", target, json.dumps(merge_patch(held, change)).encode()))
        return held

    async def _held(self, path: str) -> dict[str, Any]:
        """Return the current object before a change is sent."""
        try:
            held: dict[str, Any] = json.loads(await self._rest.send("GET", path))
        except ClusterError as error:
            raise _unsent(error) from None
        return held

    async def amend(self, obj: Object, change: Callable[[Any], Object], subresource: str) -> Object:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._amend(obj, change, subresource)
            except ClusterError as error:
                error.sent = error.sent or tries > 1
                if error.status != 409 or tries == _CONFLICT_TRIES:
                    raise
            await asyncio.sleep(_CONFLICT_PAUSE_S)

    async def _amend(self, obj: Object, change: Callable[[Any], Object], subresource: str) -> Object:
        resource, metadata = resource_of(type(obj)), obj.metadata
        path = resource.path_of(metadata.namespace, metadata.name)
        held = await self._held(path)
        if metadata.uid and held["metadata"].get("uid") != metadata.uid:
            text = f'{resource.plural} "{metadata.name}" not found: another has its name'
            raise _unsent(ClusterError(text, 404, "NotFound"))
        now = _same_kind(obj, held)
        wanted = change_between(_plain(now), _plain(change(now)))
        return _same_kind(obj, await self._put_parts(path, held, _parts(wanted, subresource)))

    async def read(self, obj: Object) -> Object | None:
        metadata = obj.metadata
        path = resource_of(type(obj)).path_of(metadata.namespace, metadata.name)
        try:
            held = json.loads(await self._rest.send("GET", path))
        except ClusterError as error:
            if error.status == 404:
                return None
            raise
        is_another = metadata.uid and held["metadata"].get("uid") != metadata.uid
        return None if is_another else _same_kind(obj, held)

    async def delete(self, obj: Object) -> None:
        metadata = obj.metadata
        await self._delete(resource_of(type(obj)).path_of(metadata.namespace, metadata.name), metadata.uid)

    async def _delete(self, path: str, uid: str) -> None:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        await self._rest.send("DELETE", path, msgspec.json.encode(options))

    async def record(self, event: EventRecord) -> None:
        folder = _folder_of(event)
        if event.count > 1:
            body = msgspec.json.encode({"series": _series(event)})
            try:
                await self._rest.send("PATCH", f"{folder}/{event.name}", body, content_type=STRATEGIC_MERGE_PATCH)
                return
            except ClusterError as error:
                if error.status != 404:
                    raise
        await self._rest.send("POST", folder, msgspec.json.encode(self._as_event(event)))

    def record_soon(self, events: Sequence[EventRecord], done: RequestsEnded) -> bool:
        return self._rest.post_soon([(_folder_of(one), self._event_json(one)) for one in events], done)

    def _event_json(self, event: EventRecord) -> bytes:
        """Return an Event in JSON; a plain one, as most are, by filling in a text."""
        note = event.note
        pod, reporter = note.regarding, note.reporter or self._reporter
        meta = pod.metadata
        instance = f"{reporter}-{self._instance}"[:_MOST_INSTANCE]
        given = (
            event.name, meta.namespace or "default", event.at, reporter, instance, note.action, note.reason, note.kind,
            meta.namespace, meta.name, meta.uid, meta.resource_version,
        )  # fmt: skip
        if note.related is not None or event.count > 1 or not _is_plain("".join([*given, note.text])):
            return msgspec.json.encode(self._as_event(event))
        return (_PLAIN_EVENT % (*given[:8], note.text, *given[8:])).encode()

    def _as_event(self, event: EventRecord) -> dict[str, Any]:
        note = event.note
        pod, reporter = note.regarding, note.reporter or self._reporter
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": pod.namespace or "default"},
            "eventTime": event.at,
            "reportingController": reporter,
            "reportingInstance": f"{reporter}-{self._instance}"[:_MOST_INSTANCE],
            "action": note.action,
            "reason": note.reason,
            "type": note.kind,
            "note": note.text,
            "regarding": self._reference(pod),
            **({"related": self._reference(note.related)} if note.related is not None else {}),
            **({"series": _series(event)} if event.count > 1 else {}),
        }


def _binding(pod: Pod, node: str) -> tuple[str, bytes]:
    """Return the path and the body of a binding."""
    metadata = pod.metadata
    namespace, name, uid = metadata.namespace, metadata.name, metadata.uid
    if namespace and _is_plain(f"{namespace}{name}{uid}{node}"):
        return f"/api/v1/namespaces/{namespace}/pods/{name}/binding", (_PLAIN_BINDING % (name, namespace, uid, node)).encode()
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "target": {"kind": "Node", "name": node},
    }
    return _PODS.path_of(metadata.namespace, metadata.name, "binding"), msgspec.json.encode(body)


def _folder_of(event: EventRecord) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{event.note.regarding.namespace or 'default'}/events"


def _unsent(error: ClusterError) -> ClusterError:
    """Return the error, marked as raised before anything was written."""
    error.sent = False
    return error


def _plain(obj: Object) -> dict[str, Any]:
    """Return an object as JSON, as far as its fields are known."""
    plain: dict[str, Any] = dict(obj.document) if isinstance(obj, CustomObject) else msgspec.to_builtins(obj)
    return plain


def _same_kind(obj: Object, held: dict[str, Any]) -> Object:
    where = "the API server's answer"
    return read_custom(held, obj.resource, where) if isinstance(obj, CustomObject) else decode(held, type(obj), where)


def change_between(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that turns one object into the other; lists are replaced as a whole."""
    change: dict[str, Any] = dict.fromkeys(key for key in old if key not in new)
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := change_between(before, value):
                change[key] = inner
        elif value != before or key not in old:
            change[key] = value
    return change


def _parts(change: dict[str, Any], subresource: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the parts of a change for the object itself and for its subresource, in this order."""
    if not subresource:
        return [("", change)] if change else []
    inside = {key: value for key, value in change.items() if key == subresource}
    outside = {key: value for key, value in change.items() if key != subresource}
    return [part for part in (("", outside), (subresource, inside)) if part[1]]


def _series(event: EventRecord) -> dict[str, Any]:
    return {"count": event.count, "lastObservedTime": event.last}


def _group_condition(condition: Condition) -> dict[str, Any]:
    """Return a condition as JSON, including empty fields: an omitted field would keep another writer's value."""
    return {
        "lastTransitionTime": condition.last_transition_time, "message": condition.message,
        "observedGeneration": condition.observed_generation or None, "reason": condition.reason, "status": condition.status,
        "type": condition.type,
    }  # fmt: skip
