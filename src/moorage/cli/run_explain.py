"""``/debug/explain`` of ``moorage run``: the answers of ``moorage explain`` from the scheduler's own state.

Each answer is computed on the event loop between two scheduling attempts. So that answers take a small part of its time, they
run one at a time, and the next one starts only after ten times as long as the last one took. Another thread imports modules and
encodes documents.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from moorage.api.core import Pod
from moorage.client.reflector import Reflector
from moorage.framework.profile import Profile
from moorage.printable import escape_json, one_line
from moorage.server.endpoints import Page
from moorage.server.live import Live

if TYPE_CHECKING:
    from moorage.report.explanation import Explanation

__all__ = ["LiveExplainer"]

#: How many requests may wait for their turn.
_MOST_WAITING: Final = 8
#: The pause after an answer, as a multiple of the time that it took.
_REST: Final = 10.0
_STANDBY: Final = "this replica does not lead, so it schedules no pod"
_NO_CHANGES: Final = "changes are not searched for here, because that would hold up scheduling: use moorage explain --live\n"


class LiveExplainer:
    """Answers requests. ``profiles`` are those of the scheduler, by name, without measurements."""

    def __init__(self, live: Live, profiles: Mapping[str, Profile], clock: Callable[[], float] = time.monotonic) -> None:
        self._live, self._profiles, self._clock = live, profiles, clock
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._free_at = 0.0

    async def answer(self, query: Mapping[str, str]) -> Page:
        """Return the page for the parameters ``pod`` and ``output``."""
        fault = _fault(query)
        if fault:
            return Page(fault, status=400)
        if self._waiting >= _MOST_WAITING:
            return Page("too many requests for explanations; try again later\n", status=429)
        self._waiting += 1
        try:
            async with self._turn:
                found = await self._explained(query["pod"])
        finally:
            self._waiting -= 1
        if isinstance(found, Page):
            return found
        return await asyncio.to_thread(_page, found, query.get("output", "json"))

    async def _explained(self, key: str) -> Explanation | Page:
        """Compute the answer after the pause that follows the last one."""
        await asyncio.sleep(max(0.0, self._free_at - self._clock()))
        explain = await asyncio.to_thread(_explain)
        if self._live.not_synced:
            return Page(f"not all kinds are listed yet: {', '.join(self._live.not_synced)}\n", status=503)
        pod = self._pod(key if "/" in key else f"default/{key}")
        if pod is None:
            return Page(f"pod {one_line(key)} not found\n", status=404)
        began = self._clock()
        notes = () if self._live.leads else (_STANDBY,)
        taken_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found: Explanation = explain(self._live.loop.scheduler, self._profiles, pod, taken_at=taken_at, notes=notes)
        ended = self._clock()
        self._free_at = ended + _REST * (ended - began)
        return found

    def _pod(self, key: str) -> Pod | None:
        pods: Any = next(
            (one for one in self._live.reflectors if isinstance(one, Reflector) and one.resource.type is Pod), None
        )
        return None if pods is None else pods.get(key)


def _fault(query: Mapping[str, str]) -> str:
    if not query.get("pod"):
        return "give a pod: /debug/explain?pod=NAMESPACE/NAME\n"
    if query.get("output", "json") not in {"json", "text", "wide"}:
        return "output is json, text or wide\n"
    return _NO_CHANGES if query.get("changes", "0") not in {"0", ""} else ""


def _explain() -> Callable[..., Explanation]:
    from moorage.laboratory.live_explanation import explain_live  # loaded at the first request

    return explain_live


def _page(found: Explanation, output: str) -> Page:
    if output == "json":
        return Page(escape_json(json.dumps(found.to_dict(), sort_keys=True, ensure_ascii=False)) + "\n", "application/json")
    return Page(found.text(wide=output == "wide"))
