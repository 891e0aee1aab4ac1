"""Record the content of lists when they reach a scheduler, read from the bytes of the response."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tools.simtest.network import Sent
from tools.simtest.recording import Listed, Recording

__all__ = ["Arrivals"]

#: The annotation of the bookmark that ends the initial list of a watch.
_END = "k8s.io/initial-events-end"


class Arrivals:
    """Records each list of one scheduler when all of it has arrived."""

    def __init__(self, recording: Recording, actor: str) -> None:
        self._recording, self._actor = recording, actor
        #: Path → resource versions by UID, from the pages that have arrived.
        self._pages: dict[str, dict[str, int]] = {}

    def page(self, sent: Sent, body: bytes) -> None:
        """Read a response, if it is a page of a list."""
        query = sent.query
        if sent.method != "GET" or not sent.path.endswith(f"/{sent.plural}") or query.get("limit") == "1":
            return
        found = self._pages.pop(sent.path, {}) if "continue" in query else {}
        page = json.loads(body)
        found.update(_version_of(item) for item in page["items"] or ())
        if page["metadata"].get("continue"):
            self._pages[sent.path] = found
        else:
            lags = query.get("resourceVersionMatch") == "Exact"  # set by the network to simulate a lagging list
            self._add(page["kind"].removesuffix("List"), page["metadata"], found, lags=lags)

    async def lines(self, query: Mapping[str, str], stream: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
        """Pass the lines of a watch on, and read its initial list, if it has one."""
        found: dict[str, tuple[str, int]] | None = {} if "sendInitialEvents" in query else None
        async for lines in stream:
            for line in lines:
                if found is not None and self._read(line, found):
                    found = None
            yield lines

    def _read(self, line: bytes, found: dict[str, tuple[str, int]]) -> bool:
        """Read a line of an initial list. Return True if it is the last."""
        try:
            event = json.loads(line)
        except ValueError:
            return True  # garbled by the network: the scheduler will list again
        obj = event["object"]
        metadata = obj.get("metadata", {})
        key = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        if event["type"] in {"ADDED", "MODIFIED"}:
            found[key] = _version_of(obj)
        elif event["type"] == "DELETED":
            found.pop(key, None)
        elif event["type"] == "BOOKMARK" and metadata.get("annotations", {}).get(_END):
            self._add(obj["kind"], metadata, dict(found.values()))
            return True
        return str(event["type"]) == "ERROR"

    def _add(self, kind: str, metadata: dict[str, Any], versions: dict[str, int], *, lags: bool = False) -> None:
        version = int(metadata["resourceVersion"])
        self._recording.add(Listed(self._recording.clock(), self._actor, kind, version, versions, lags))


def _version_of(obj: dict[str, Any]) -> tuple[str, int]:
    return str(obj["metadata"]["uid"]), int(obj["metadata"]["resourceVersion"])
