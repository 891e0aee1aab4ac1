"""What the handling of a request adds to its event in the audit log: bodies, the status of the response, annotations.

Source  apiserver, pkg/audit/request.go (LogRequestObject, LogResponseObject)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

__all__ = ["AuditNotes"]

_STATUS: Final = b'{"kind":"Status"'
_STATUS_FIELDS: Final = ("status", "message", "reason", "details", "code")


@dataclass(slots=True)
class AuditNotes:
    """The notes about one request. The level of its event says which bodies are kept, as JSON.

    ``metadata`` is that of the object in the request's body; ``status`` is that of the event, None while there is none.
    ``annotations`` are those of admission.
    """

    keeps_request: bool = False
    keeps_response: bool = False
    omits_managed_fields: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    request: bytes = b""
    response: bytes = b""
    status: dict[str, Any] | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    def sent(
        self, document: Mapping[str, Any], api_version: str, kind: str, complete: Callable[[Any], object] | None = None
    ) -> None:
        """Note the object in the body of a request. ``complete`` sets the defaults of a copy in place, if it can."""
        metadata = document.get("metadata")
        self.metadata = dict(metadata) if isinstance(metadata, dict) else {}
        if not self.keeps_request:
            return
        shown = {**document, "kind": kind, "apiVersion": api_version}
        shown = {"kind": kind, "apiVersion": api_version, **msgspec.json.decode(msgspec.json.encode(shown))}
        if complete is not None:
            with suppress(Exception):  # the object is refused, and logged as it was sent
                complete(shown)
        self.request = self._kept(msgspec.json.encode(shown))

    def answered(self, body: Callable[[], bytes], head: bytes) -> None:
        """Note the JSON of a response, which begins with ``head``; ``body`` makes it."""
        is_status = head.startswith(_STATUS)
        if not is_status and not self.keeps_response:
            return
        made = body()
        if is_status:
            self.concluded(msgspec.json.decode(made))
        elif made:
            self.response = self._kept(made)

    def concluded(self, status: dict[str, Any]) -> None:
        """Note the ``Status`` that a request is answered with."""
        self.status = {"metadata": {}, **{name: status[name] for name in _STATUS_FIELDS if name in status}}
        if self.keeps_response:
            self.response = msgspec.json.encode(status)

    def _kept(self, body: bytes) -> bytes:
        """Return an object, a list or a table, without managed fields if they are to be omitted."""
        if not self.omits_managed_fields or b'"managedFields"' not in body:
            return body
        document = msgspec.json.decode(body)
        _drop_managed_fields(document)
        for item in document.get("items") or ():
            _drop_managed_fields(item)
        for row in document.get("rows") or ():
            _drop_managed_fields(row.get("object") if isinstance(row, dict) else None)
        return msgspec.json.encode(document)


def _drop_managed_fields(document: Any) -> None:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
