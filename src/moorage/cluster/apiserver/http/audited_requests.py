"""What an audit policy sees of a request.

Source  apiserver, pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from moorage.api.documents.http_messages import is_true
from moorage.cluster.apiserver.access.request_attributes import VERBS
from moorage.cluster.apiserver.http.streams import STREAMS

__all__ = ["AuditedRequest", "audited_request"]

_PREFIXES: Final = frozenset(["api", "apis"])
_NAME: Final = re.compile(r"metadata\.name==?([^=!,\\]*)")


class AuditedRequest(NamedTuple):
    """What a policy sees of a request, from its method, path and parameters alone: its resource need not exist."""

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def is_long_running(self) -> bool:
        """True for watches and streams, whose responses do not end by themselves."""
        return self.verb in {"watch", "proxy"} or (self.is_resource and self.subresource in STREAMS)


def audited_request(method: str, path: str, query: Mapping[str, str]) -> AuditedRequest:
    """Return the attributes of a request. ``path`` is decoded."""
    parts = path.strip("/").split("/")
    other = AuditedRequest(method.lower(), path)
    if len(parts) < 3 or parts[0] not in _PREFIXES or (parts[0] == "apis" and len(parts) < 4):
        return other
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    verb = VERBS.get(method, "")
    if rest[0] in {"proxy", "watch"}:
        if len(rest) < 2:
            return other
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        rest = rest[2:] if len(rest) > 2 and rest[2] not in {"finalize", "status"} else rest
    resource, name, subresource = [*rest[:3], "", ""][:3]
    if verb == "proxy":
        subresource = ""
    if not name and verb == "get":
        verb = "watch" if "watch" in query and is_true(query["watch"]) else "list"
        found = [_NAME.fullmatch(term) for term in query.get("fieldSelector", "").split(",")]
        name = next((one[1] for one in found if one is not None), "")
        name = "" if name in {".", ".."} or "/" in name or "%" in name else name
    elif not name and verb == "delete":
        verb = "deletecollection"
    return AuditedRequest(verb, path, True, group, version, namespace, resource, name, subresource)
