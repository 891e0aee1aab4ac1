"""``/debug/explain`` of ``moorage run``: the answers of ``moorage explain`` from the scheduler's own state.

Each answer is computed on the event loop between two scheduling attempts. So that answers take a small part of its time, they
run one at a time, and the next one starts only after ten times as long as the last one took. Another thread imports modules and
encodes documents. With ``changes=1`` it also makes a copy of the cluster and searches for the least change there, for a limited
time; the next answer then waits as long as that took. Answers without the search say so.
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
from moorage.config.scheduler_document import Loaded
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
#: How long a search for changes may take, with the copy of the cluster.
_SEARCH_S: Final = 20.0


class LiveExplainer:
    """Answers requests.

    ``profiles`` are those of the scheduler, by name, without measurements; ``loaded`` is its configuration.
    """

    def __init__(
        self, live: Live, profiles: Mapping[str, Profile], loaded: Loaded, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._live, self._profiles, self._loaded, self._clock = live, profiles, loaded, clock
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._free_at = 0.0

    async def answer(self, query: Mapping[str, str]) -> Page:
        """Return the page for the parameters ``pod``, ``output`` and ``changes``."""
        fault = _fault(query)
        if fault:
            return Page(fault, status=400)
        if self._waiting >= _MOST_WAITING:
            return Page("too many requests for explanations; try again later\n", status=429)
        self._waiting += 1
        try:
            async with self._turn:
                found = await self._explained(query["pod"])
                if not isinstance(found, Page):
                    searches = query.get("changes") == "1"
                    found = await self._with_changes(found) if searches else _unsearched()(found)
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

    async def _with_changes(self, found: Explanation) -> Explanation:
        """Search for changes in another thread, with the objects as they are now."""
        search = await asyncio.to_thread(_search)
        scheduler, began = self._live.loop.scheduler, self._clock()
        objects = [obj for one in self._live.reflectors if isinstance(one, Reflector) for obj in one.objects()]
        assumed, until = dict(scheduler.cluster.assumed), began + _SEARCH_S
        explained: Explanation = await asyncio.to_thread(
            search, found, objects, assumed, self._loaded, scheduler.cycle.seed, lambda: self._clock() > until
        )
        ended = self._clock()
        self._free_at = max(self._free_at, ended + (ended - began))
        return explained

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
    return "" if query.get("changes", "0") in {"0", "1", ""} else "changes is 0 or 1\n"


def _explain() -> Callable[..., Explanation]:
    from moorage.laboratory.live_explanation import explain_live  # loaded at the first request

    return explain_live


def _unsearched() -> Callable[..., Explanation]:
    from moorage.laboratory.live_explanation import unsearched

    return unsearched


def _search() -> Callable[..., Explanation]:
    from moorage.laboratory.live_changes import with_live_changes  # loaded at the first request

    return with_live_changes


def _page(found: Explanation, output: str) -> Page:
    if output == "json":
        return Page(escape_json(json.dumps(found.to_dict(), sort_keys=True, ensure_ascii=False)) + "\n", "application/json")
    from moorage.report.style import paragraph

    notes = (paragraph(f"Note: {one_line(note)}", hanging="  ") + "\n" for note in found.request.notes)
    return Page(found.text(wide=output == "wide") + "".join(notes))
