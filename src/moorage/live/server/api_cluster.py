"""Write the scheduler's effects to an API server, with the requests that kube-scheduler sends.

Statuses of pods and groups are patched, with the changed fields alone. Other objects are updated as a whole. Moorage's values
hold only what scheduling reads, so the text that the API server sent is changed and sent back, byte for byte where it does not
change (see ``raw_json``), with the resource version that the decision was based on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from moorage.api.core import Object, Pod
from moorage.api.custom_objects import CustomObject, read_custom
from moorage.api.decode import decode
from moorage.api.devices import DeviceClass, ResourceClaim
from moorage.api.pod_groups import CompositePodGroup, Condition, PodGroup
from moorage.basis.client import raw_json
from moorage.basis.client.raw_objects import RawObjects
from moorage.basis.client.raw_protobuf import PROTOBUF, with_finalizers
from moorage.basis.client.rest import BINDING, STRATEGIC_MERGE_PATCH, Rest
from moorage.basis.client.watched_resources import WatchedResource, resource_of
from moorage.errors import ClusterError
from moorage.live.runtime.ports import EventRecord, RequestsEnded, StatusChange
from moorage.live.server.status_patches import group_patch, pod_patch

_PODS = resource_of(Pod)
_GROUPS = resource_of(PodGroup)
#: Metadata that the API server sets on a created object.
_GIVEN = frozenset({"uid", "resourceVersion", "creationTimestamp"})
#: Attempts at a change that conflicts with concurrent ones, and the pause after each (client-go's RetryOnConflict).
_CONFLICT_TRIES = 5
_CONFLICT_PAUSE_S = 0.01
#: The status of an update that changes what must not change.
_INVALID = 422
#: What a request to delete an object says: nothing but its kind, as kube-scheduler's.
_DELETE: Final = b'{"kind":"DeleteOptions","apiVersion":"v1"}'
_ANSWER: Final = "the API server's answer"
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
    ``groups``: pod groups in the version that is written. ``texts``: the latest JSON of objects that may be written; an object
    that is not there is read before it is changed.
    """

    def __init__(
        self, rest: Rest, reporter: str, instance: str, groups: WatchedResource[Object] = _GROUPS,
        texts: RawObjects | None = None,
    ) -> None:  # fmt: skip
        self._rest, self._groups = rest, groups
        self._texts = RawObjects() if texts is None else texts
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
        return decode(body, Pod, _ANSWER)

    async def patch_status(self, pod: Pod, change: StatusChange) -> Pod:
        patch = pod_patch(pod, change.condition, change.nominated)
        return await self._patch_pod(pod, patch) if patch else pod

    async def _patch_pod(self, pod: Pod, patch: dict[str, Any]) -> Pod:
        path = _PODS.path_of(pod.namespace, pod.name, "status")
        body = await self._rest.send("PATCH", path, msgspec.json.encode(patch), content_type=STRATEGIC_MERGE_PATCH)
        return decode(body, Pod, _ANSWER)

    async def patch_group(self, group: PodGroup, condition: Condition) -> PodGroup:
        """Patch only the changed fields, merged by the condition's type, so that concurrent changes of others survive."""
        patch = group_patch(group, condition)
        if not patch:
            return group
        path = self._groups.path_of(group.metadata.namespace, group.metadata.name, "status")
        body = await self._rest.send("PATCH", path, msgspec.json.encode(patch), content_type=STRATEGIC_MERGE_PATCH)
        return decode(body, PodGroup, _ANSWER)

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
        await self._rest.send("DELETE", _PODS.path_of(pod.namespace, pod.name), _DELETE)

    async def write(
        self, old: Object | None, new: Object, subresource: str, made: Callable[[Object], None] | None = None
    ) -> Object:
        resource = resource_of(type(new))
        if old is None:
            return await self._create(resource, new, subresource, made or (lambda created: None))
        parts, before = _parts(raw_json.change_between(_plain(old), _plain(new)), subresource), old.metadata
        path = resource.path_of(before.namespace, before.name)
        text = self._texts.json_of(old)
        if text is None or _identity_of(text) != (before.uid, before.resource_version):
            text = await self._held(path)
        if _identity_of(text) != (before.uid, before.resource_version):
            raise _unsent(ClusterError(f"{resource.plural} {before.name}: it was modified meanwhile", 409, "Conflict"))
        return await self._put_parts(new, path, text, parts)

    async def _create(
        self, resource: WatchedResource[Any], new: Object, subresource: str, made: Callable[[Object], None]
    ) -> Object:
        """Create an object; then, as kube-scheduler does, set its finalizers and its status, which the API server would drop.

        The API server chooses the name of an object with a ``generateName``.
        """
        document = {"apiVersion": resource.api_version, "kind": resource.kind, **_plain(new)}
        later = {key: document.pop(key) for key in (subresource,) if key in document}
        given = _GIVEN | {"name"} if new.metadata.generate_name else _GIVEN
        metadata = document["metadata"] = {key: value for key, value in document["metadata"].items() if key not in given}
        parts = [(key, {key: value}) for key, value in later.items()]
        if later and "finalizers" in metadata:
            parts.insert(0, ("", {"metadata": {"finalizers": metadata.pop("finalizers")}}))
        text = await self._rest.send("POST", resource.path_in(new.metadata.namespace), msgspec.json.encode(document))
        created = _same_kind(new, text)
        made(created)
        path = resource.path_of(created.metadata.namespace, created.metadata.name)
        return await self._put_parts(created, path, text, parts)

    async def _put_parts(self, obj: Object, path: str, text: bytes, parts: list[tuple[str, dict[str, Any]]]) -> Object:
        """Send the parts of a change, each based on the server's response to the one before. Return the last response."""
        for subresource, change in parts:
            if isinstance(obj, ResourceClaim):
                self._write_parameters(text, change)
            target = f"{path}/{subresource}" if subresource else path
            try:
                text = await self._rest.send("PUT", target, raw_json.merged(text, change))
            except ClusterError as error:
                finalizers = (change.get("metadata") or {}).get("finalizers")
                if error.status != _INVALID or not isinstance(obj, ResourceClaim) or finalizers is None:
                    raise
                text = await self._put_finalizers(path, text, finalizers)
        return _same_kind(obj, text)

    async def _put_finalizers(self, path: str, text: bytes, finalizers: Sequence[str]) -> bytes:
        """Set the finalizers of a claim in protobuf: its parameters may be stored with bytes that JSON does not show."""
        held = await self._rest.send("GET", path, accept=PROTOBUF)
        changed, version = with_finalizers(held, finalizers)
        if version != _identity_of(text)[1]:
            raise ClusterError(f"PUT {path}: it was modified meanwhile", 409, "Conflict")
        return await self._rest.send("PUT", path, changed, content_type=PROTOBUF)

    def _write_parameters(self, claim: bytes, change: dict[str, Any]) -> None:
        """Let a new allocation have the opaque parameters as they are written in the claim and in the device classes."""
        allocation = (change.get("status") or {}).get("allocation") or {}
        for config in (allocation.get("devices") or {}).get("config") or ():
            sources = self._texts.of_kind(DeviceClass) if config.get("source") == "FromClass" else [claim]
            config["opaque"] = _as_written(config.get("opaque"), sources)

    async def _held(self, path: str) -> bytes:
        """Return the current object before a change is sent."""
        try:
            return await self._rest.send("GET", path)
        except ClusterError as error:
            raise _unsent(error) from None

    async def amend(self, obj: Object, change: Callable[[Any], Object], subresource: str) -> Object:
        if isinstance(obj, Pod) and subresource == "status":
            patch = raw_json.change_between(_plain(obj), _plain(change(obj)))
            return await self._patch_pod(obj, patch) if patch else obj
        tries, text = 0, self._texts.json_of(obj)
        while True:
            tries += 1
            try:
                return await self._amend(obj, change, subresource, text)
            except ClusterError as error:
                error.sent = error.sent or tries > 1
                if error.status != 409 or tries == _CONFLICT_TRIES:
                    raise
            text = None
            await asyncio.sleep(_CONFLICT_PAUSE_S)

    async def _amend(self, obj: Object, change: Callable[[Any], Object], subresource: str, text: bytes | None) -> Object:
        resource, metadata = resource_of(type(obj)), obj.metadata
        path = resource.path_of(metadata.namespace, metadata.name)
        text = await self._held(path) if text is None else text
        if metadata.uid and _identity_of(text)[0] != metadata.uid:
            found = f'{resource.plural} "{metadata.name}" not found: another has its name'
            raise _unsent(ClusterError(found, 404, "NotFound"))
        now = _same_kind(obj, text)
        new = change(now)
        wanted = raw_json.change_between(_plain(now), _plain(new))
        if (users := _released(now, new)) and list(wanted) == ["status"] and list(wanted["status"]) == ["reservedFor"]:
            left = [{"$patch": "delete", "uid": uid} for uid in users]
            patch = {"metadata": {"uid": now.metadata.uid}, "status": {"reservedFor": left}}
            body = msgspec.json.encode(patch)
            answer = await self._rest.send("PATCH", f"{path}/status", body, content_type=STRATEGIC_MERGE_PATCH)
            return _same_kind(obj, answer)
        return await self._put_parts(obj, path, text, _parts(wanted, subresource))

    async def read(self, obj: Object) -> Object | None:
        metadata = obj.metadata
        path = resource_of(type(obj)).path_of(metadata.namespace, metadata.name)
        try:
            text = await self._rest.send("GET", path)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise
        is_another = metadata.uid and _identity_of(text)[0] != metadata.uid
        return None if is_another else _same_kind(obj, text)

    async def delete(self, obj: Object) -> None:
        metadata = obj.metadata
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if metadata.uid:
            options["preconditions"] = {"uid": metadata.uid}
        path = resource_of(type(obj)).path_of(metadata.namespace, metadata.name)
        await self._rest.send("DELETE", path, msgspec.json.encode(options))

    async def record(self, event: EventRecord) -> None:
        folder = _folder_of(event)
        if event.count > 1:
            body = msgspec.json.encode(_recount(event) if event.core else {"series": _series(event)})
            try:
                await self._rest.send("PATCH", f"{folder}/{event.name}", body, content_type=STRATEGIC_MERGE_PATCH)
                return
            except ClusterError as error:
                if error.status != 404:
                    raise
        await self._rest.send("POST", folder, msgspec.json.encode(self._as_event(event)))

    async def serves_events_api(self) -> bool:
        """Return whether the API server answers for ``events.k8s.io/v1``; if not, kube-scheduler writes Events of core/v1."""
        try:
            await self._rest.get("/apis/events.k8s.io/v1")
        except ClusterError:
            return False
        return True

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
        if event.core or note.related is not None or event.count > 1 or not _is_plain("".join([*given, note.text])):
            return msgspec.json.encode(self._as_event(event))
        return (_PLAIN_EVENT % (*given[:8], note.text, *given[8:])).encode()

    def _as_event(self, event: EventRecord) -> dict[str, Any]:
        note = event.note
        pod, reporter = note.regarding, note.reporter or self._reporter
        if event.core:
            return {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": event.name, "namespace": pod.namespace or "default"},
                "involvedObject": self._reference(pod),
                "reason": note.reason,
                "message": note.text,
                "type": note.kind,
                "source": {"component": reporter},
                **({} if event.combined else {"reportingComponent": reporter}),
                "firstTimestamp": _second_of(event.at),
                "lastTimestamp": _second_of(event.last or event.at),
                "count": event.count,
            }
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
    root = "/api/v1" if event.core else "/apis/events.k8s.io/v1"
    return f"{root}/namespaces/{event.note.regarding.namespace or 'default'}/events"


def _unsent(error: ClusterError) -> ClusterError:
    """Return the error, marked as raised before anything was written."""
    error.sent = False
    return error


def _plain(obj: Object) -> dict[str, Any]:
    """Return an object as JSON, as far as its fields are known."""
    plain: dict[str, Any] = dict(obj.document) if isinstance(obj, CustomObject) else msgspec.to_builtins(obj)
    return plain


def _same_kind(obj: Object, held: bytes) -> Object:
    return read_custom(held, obj.resource, _ANSWER) if isinstance(obj, CustomObject) else decode(held, type(obj), _ANSWER)


class _OnlyIdentity(Object):
    """An object of any kind, without its fields."""


def _identity_of(text: bytes) -> tuple[str, str]:
    """Return the UID and the resource version of an object."""
    metadata = decode(text, _OnlyIdentity, _ANSWER).metadata
    return metadata.uid, metadata.resource_version


def _released(old: Object, new: Object) -> list[str]:
    """Return the UIDs of the consumers that a change of a claim takes away, if it adds none."""
    if not isinstance(old, ResourceClaim) or not isinstance(new, ResourceClaim):
        return []
    before, after = ({user.uid for user in claim.status.reserved_for} for claim in (old, new))
    return [] if after - before else sorted(before - after)


def _as_written(opaque: Any, sources: Iterable[bytes]) -> Any:
    """Return opaque parameters as the text of a configuration that has equal ones, or as they are if none has."""
    for source in sources:
        devices = raw_json.at(source, "spec", "devices")
        configs = raw_json.at(source, "spec", "config") if devices is None else raw_json.at(devices, "config")
        for config in raw_json.items_of(configs) if configs is not None else ():
            text = raw_json.fields_of(config).get("opaque")
            if text is not None and msgspec.json.decode(text) == opaque:
                return text
    return opaque


def _parts(change: dict[str, Any], subresource: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the parts of a change for the object itself and for its subresource, in this order."""
    if not subresource:
        return [("", change)] if change else []
    inside = {key: value for key, value in change.items() if key == subresource}
    outside = {key: value for key, value in change.items() if key != subresource}
    return [part for part in (("", outside), (subresource, inside)) if part[1]]


def _series(event: EventRecord) -> dict[str, Any]:
    return {"count": event.count, "lastObservedTime": event.last}


def _recount(event: EventRecord) -> dict[str, Any]:
    """Return what changes in an Event of core/v1 that occurred again."""
    return {"count": event.count, "lastTimestamp": _second_of(event.last), "message": event.note.text}


def _second_of(moment: str) -> str:
    """Return a time without its fraction of a second."""
    return f"{moment.partition('.')[0].rstrip('Z')}Z"
