"""The audit log: an event of ``audit.k8s.io/v1`` as a line of JSON for each stage of a request that the policy records.

A line that cannot be written is lost and counted; the request goes on. The first loss is reported when it happens, the number
of all losses when the log is closed. Nothing rotates the file.

Source  apiserver, pkg/audit/context.go and request.go, pkg/endpoints/filters/audit.go, plugin/pkg/audit/log
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from aiohttp import web

from moorage.api.documents.audit_notes import AuditNotes
from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.cluster.apiserver.access.rbac import Verdict
from moorage.cluster.apiserver.http.audit_policy import AuditPolicy, Recording
from moorage.cluster.apiserver.http.audited_requests import AuditedRequest, audited_request
from moorage.errors import ConfigError
from moorage.rules.store.policy_requests import user_info

__all__ = ["AuditEvent", "AuditLog"]

#: The header with which a client names its request, and which the response repeats.
_AUDIT_ID: Final = "Audit-ID"
_STDOUT: Final = "-"
_DECISION: Final = "authorization.k8s.io/decision"
_REASON: Final = "authorization.k8s.io/reason"
_DEPRECATED: Final = "k8s.io/deprecated"
_MAX_AGENT: Final = 1024
_RECEIVED, _STARTED, _COMPLETE = "RequestReceived", "ResponseStarted", "ResponseComplete"
_CLOSED: Final = {"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200}
#: The user of requests that need no credential.
_ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


class AuditLog:
    """Writes the events of the requests that a policy records."""

    def __init__(
        self, policy: AuditPolicy, write: Callable[[bytes], int], warn: Callable[[str], None],
        clock: Callable[[], float] = time.time, *, where: str = _STDOUT, close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Make a log. ``write`` writes some bytes and returns their number; it may raise OSError. ``where`` names its file."""
        self.policy, self.clock = policy, clock
        #: How many events could not be written.
        self.lost = 0
        self._write, self._warn, self._where, self._close = write, warn, where, close
        self._is_torn = False

    @classmethod
    def opened(cls, path: str, policy: AuditPolicy, warn: Callable[[str], None]) -> AuditLog:
        """Return a log that appends to a file, which it creates with its folder; ``-`` is standard output.

        Raises  ConfigError if the file cannot be written
        """
        if path == _STDOUT:
            return cls(policy, lambda line: os.write(sys.stdout.fileno(), line), warn)
        file = Path(path).expanduser()
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"--audit-log-path: {path} cannot be written: {error.strerror}") from None
        return cls(
            policy, lambda line: os.write(descriptor, line), warn, where=path, close=lambda: os.close(descriptor)
        )  # fmt: skip

    def close(self) -> None:
        """Close the file, and report how many events are lost."""
        if self.lost:
            self._warn(f"--audit-log-path: {self.lost} audit events could not be written to {self._where}")
        self._close()

    def received(self, request: web.BaseRequest) -> AuditEvent:
        """Return the event of a request that has arrived."""
        headers = request.headers
        seen = audited_request(request.method, request.path, request.query)
        event = AuditEvent(self, seen, request.raw_path, headers.get("User-Agent", ""), _source_ips(request))
        if given := headers.get(_AUDIT_ID):
            event.id = _clean(given)
        return event

    def of_page(self, request: HTTPRequest) -> AuditEvent:
        """Return the event of a request that a page of the web site makes in a user's name."""
        uri = f"{request.path}?{request.raw_query}" if request.raw_query else request.path
        return AuditEvent(
            self, audited_request(request.method, unquote(request.path), request.query), uri, request.user_agent, []
        )

    def record(self, event: Mapping[str, Any]) -> None:
        """Write an event."""
        try:
            line = msgspec.json.encode(event)
        except UnicodeEncodeError:
            line = msgspec.json.encode(_cleaned(event))
        self._put((b"\n" if self._is_torn else b"") + line + b"\n")

    def _put(self, line: bytes) -> None:
        """Write a line. After one that was written in part, the next one begins on a new line."""
        left = line
        try:
            while left:
                left = left[self._write(left) :]
            self._is_torn = False
        except OSError as error:
            self._is_torn = self._is_torn or len(left) < len(line)
            self.lost += 1
            if self.lost == 1:
                why = error.strerror or str(error)
                self._warn(f"--audit-log-path: an audit event could not be written to {self._where}: {why}; the server goes on")


class AuditEvent:
    """The event of a request. The order of calls: ``begin``, ``impersonating``, ``authorized``, ``started``, ``complete``.

    One that never begins was not authenticated. It is recorded when it is complete.
    """

    def __init__(self, log: AuditLog, request: AuditedRequest, uri: str, agent: str, sources: list[str]) -> None:
        self.id = str(uuid.uuid4())
        self.notes = AuditNotes()
        #: The code of the response; 0 while there is none.
        self.code = 0
        self._log, self._request, self._uri, self._sources = log, request, uri, sources
        self._agent = agent if len(agent) <= _MAX_AGENT else f"{agent[:_MAX_AGENT]}...TRUNCATED"
        self._at = log.clock()
        self._recording: Recording | None = None
        self._user: User | None = None
        self._impersonated: User | None = None
        self._constraint = ""
        self._annotations: dict[str, str] = {}
        self._has_started = False

    @property
    def user(self) -> User:
        """The user who makes the request."""
        return self._user or _ANONYMOUS

    def begin(self, user: User | None) -> None:
        """Record that an authenticated request was received; None is anonymous."""
        self._user = user or _ANONYMOUS
        self._evaluate()
        self._stage(_RECEIVED, self._at)

    def _evaluate(self) -> Recording:
        recording = self._recording = self._log.policy.recording(self._user, self._request)
        self.notes.keeps_request = recording.level in {"Request", "RequestResponse"}
        self.notes.keeps_response = recording.level == "RequestResponse"
        self.notes.omits_managed_fields = recording.omits_managed_fields
        return recording

    def impersonating(self, user: User, constraint: str) -> None:
        """Note as whom the user makes the request, and the verb of the limited right to it, "" for ``impersonate``."""
        self._impersonated, self._constraint = user, constraint

    def authorized(self, verdict: Verdict) -> None:
        """Note whether the request is allowed, and why."""
        self._annotations.setdefault(_DECISION, "allow" if verdict.allowed else "forbid")
        self._annotations.setdefault(_REASON, verdict.reason)

    def answered(self, code: int) -> Mapping[str, str]:
        """Note the code of the response, and return the header that it gets."""
        self.code = code
        return {_AUDIT_ID: self.id}

    def started(self, code: int) -> None:
        """Record that the response begins."""
        self.code = code
        if not self._has_started:
            self._has_started = True
            self._stage(_STARTED)

    def complete(self, *, is_deprecated: bool = False) -> None:
        """Record that the response is complete, or its connection lost. ``is_deprecated``: clients are warned about the API."""
        if self._recording is None:
            self._evaluate()
            self._stage(_STARTED)
            return
        if self._request.is_long_running and not self._has_started:
            self.started(self.code)
        if is_deprecated and self._annotations.get(_DECISION) == "allow":
            self._annotations[_DEPRECATED] = "true"
        self._stage(_COMPLETE)

    def _stage(self, stage: str, at: float | None = None) -> None:
        recording = self._recording
        if recording is None or recording.level == "None" or stage in recording.omitted:
            return
        self._log.record(self._document(recording.level, stage, self._log.clock() if at is None else at))

    def _document(self, level: str, stage: str, at: float) -> dict[str, Any]:
        notes, annotations = self.notes, {**self._annotations, **self.notes.annotations}
        document: dict[str, Any] = {
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": level, "auditID": self.id, "stage": stage,
            "requestURI": self._uri, "verb": self._request.verb, "user": {} if self._user is None else user_info(self._user),
        }  # fmt: skip
        if self._impersonated is not None:
            document["impersonatedUser"] = user_info(self._impersonated)
        if self._constraint:
            document["authenticationMetadata"] = {"impersonationConstraint": self._constraint}
        more = {
            "sourceIPs": self._sources, "userAgent": self._agent, "objectRef": self._object_ref(),
            "responseStatus": self._status() if stage != _RECEIVED else None,
            "requestObject": msgspec.Raw(notes.request) if notes.request else None,
            "responseObject": msgspec.Raw(notes.response) if notes.response and stage == _COMPLETE else None,
            "requestReceivedTimestamp": _time(self._at), "stageTimestamp": _time(at),
            "annotations": dict(sorted(annotations.items())),
        }  # fmt: skip
        return document | {name: value for name, value in more.items() if value}

    def _object_ref(self) -> dict[str, str]:
        request, sent = self._request, self.notes.metadata
        if not request.is_resource:
            return {}
        reference = {
            "resource": request.resource, "namespace": request.namespace or sent.get("namespace"),
            "name": request.name or sent.get("name"), "uid": sent.get("uid"), "apiGroup": request.group,
            "apiVersion": request.version, "resourceVersion": sent.get("resourceVersion"), "subresource": request.subresource,
        }  # fmt: skip
        return {name: str(value) for name, value in reference.items() if value}

    def _status(self) -> dict[str, Any]:
        status = self.notes.status
        if status is not None:
            return {**status, "code": self.code or status.get("code", 0)}
        return {"metadata": {}, "code": self.code} if self.code else _CLOSED


def _source_ips(request: web.BaseRequest) -> list[str]:
    """Return the addresses that a request comes from: those of proxies as the headers name them, then the connection's.

    Source  apimachinery, pkg/util/net/http.go (SourceIPs)
    """
    forwarded = request.headers.get("X-Forwarded-For", "").split(",")
    found = [address for text in forwarded if (address := _address(text))]
    real = _address(request.headers.get("X-Real-Ip", ""))
    if real and real not in found:
        found.append(real)
    remote = _address(request.remote or "")
    return [*found, remote] if remote and found[-1:] != [remote] else found


def _address(text: str) -> str:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _clean(text: str) -> str:
    """Return a text with U+FFFD for the bytes that are not UTF-8, as Go writes it."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {_cleaned(name): _cleaned(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(one) for one in value]
    return _clean(value) if isinstance(value, str) else value
