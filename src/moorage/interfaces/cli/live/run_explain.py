"""``/debug/explain`` of ``moorage run``: the answers of ``moorage explain`` from the scheduler's own state.

The event loop computes what an answer needs of the scheduler's state, between two scheduling attempts. So that answers take a
small part of its time, they run one at a time, and the next one starts only after ten times as long as the loop was held up.
Another thread does the rest: it imports modules, puts the answer into words and encodes it. It also searches for the least
change, for a limited time, in a copy of the cluster that it makes for the first search and then keeps up to date
(``moorage.laboratory.explain.live_changes``); the next answer waits as long as that took. With ``changes=0`` the search is
left out. Answers whose search was left out or cut say so.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from moorage.api.core import Pod
from moorage.basis.client.reflector import Reflector
from moorage.basis.printable import one_line
from moorage.core.config.scheduler_document import Loaded
from moorage.framework.profile import Profile
from moorage.live.server.endpoints import Page
from moorage.live.server.live_scheduler import Live

if TYPE_CHECKING:
    from moorage.laboratory.budget import TimeBudget

if TYPE_CHECKING:
    from moorage.laboratory.explain.explanation import Findings
    from moorage.laboratory.explain.live_changes import LiveCopy
    from moorage.report.explanation import Explanation

    #: What explains a pod, what returns whether changes may be searched for and what notes that none were, and the copy of the
    #: cluster for searches.
    _Laboratory: TypeAlias = tuple[
        Callable[..., Findings], Callable[[Findings], bool], Callable[[Explanation], Explanation], type[LiveCopy]
    ]

#: How many requests may wait for their turn.
_MOST_WAITING: Final = 8
#: The pause after an answer, as a multiple of the time that it took.
_REST: Final = 10.0
_STANDBY: Final = "this replica does not lead, so it schedules no pod"
#: How long a search for changes may take, with the copy of the cluster.
_SEARCH_S: Final = 20.0
#: How long the copy is kept after a search.
_KEPT_S: Final = 600.0


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
        self._laboratory: _Laboratory | None = None
        self._copy: LiveCopy | None = None
        self._ending: asyncio.TimerHandle | None = None

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
                return await self._answered(query)
        finally:
            self._waiting -= 1

    async def _answered(self, query: Mapping[str, str]) -> Page:
        """Compute the answer after the pause that follows the last one."""
        await asyncio.sleep(max(0.0, self._free_at - self._clock()))
        if self._laboratory is None:
            self._laboratory = await asyncio.to_thread(_loaded)
        explain, may_change, unsearched, copy = self._laboratory
        if self._live.not_synced:
            return Page(f"not all kinds are listed yet: {', '.join(self._live.not_synced)}\n", status=503)
        key, output = query["pod"], query.get("output", "json")
        pod = self._pod(key if "/" in key else f"default/{key}")
        if pod is None:
            return Page(f"pod {one_line(key)} not found\n", status=404)
        began = self._clock()
        notes = () if self._live.leads else (_STANDBY,)
        taken_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        scheduler = self._live.loop.scheduler
        found = explain(scheduler, self._profiles, pod, taken_at=taken_at, notes=notes)
        if query.get("changes") == "0" or not may_change(found):
            self._rest(began)
            return await asyncio.to_thread(lambda: _page(unsearched(found.finished()), output))
        if self._copy is None:
            self._copy = copy(self._loaded, scheduler.cycle.seed, gc.freeze)
        self._copy.report([one.changes() for one in self._reflectors()])
        search = partial(self._copy.with_changes, assumed=dict(scheduler.cluster.assumed))
        self._rest(began)
        return await self._searched(lambda budget: _page(search(found.finished(), budget=budget), output))

    def _rest(self, began: float) -> None:
        """Let the next answer wait for a multiple of the time that this one has held up the loop."""
        ended = self._clock()
        self._free_at = ended + _REST * (ended - began)

    async def _searched(self, page: Callable[[TimeBudget], Page]) -> Page:
        """Compute a page with changes in another thread, with the objects as they were when the pod was explained."""
        if self._ending is not None:
            self._ending.cancel()
        from moorage.laboratory.budget import TimeBudget  # with the rest of the laboratory, loaded when it is first asked

        began = self._clock()
        try:
            return await asyncio.to_thread(page, TimeBudget(_SEARCH_S, self._clock))
        finally:
            ended = self._clock()
            self._free_at = max(self._free_at, ended + (ended - began))
            self._ending = asyncio.get_running_loop().call_later(_KEPT_S, self._end_copy)

    def _end_copy(self) -> None:
        """Release the copy if no one has asked for changes for a while."""
        copy, self._copy = self._copy, None
        for one in self._reflectors():
            one.forget_changes()
        if copy is not None:
            asyncio.get_running_loop().run_in_executor(None, _released, copy)

    def _reflectors(self) -> Iterator[Reflector[Any]]:
        return (one for one in self._live.reflectors if isinstance(one, Reflector))

    def _pod(self, key: str) -> Pod | None:
        pods: Reflector[Any] | None = next((one for one in self._reflectors() if one.resource.type is Pod), None)
        return None if pods is None else pods.get(key)


def _fault(query: Mapping[str, str]) -> str:
    if not query.get("pod"):
        return "give a pod: /debug/explain?pod=NAMESPACE/NAME\n"
    if query.get("output", "json") not in {"json", "text", "wide"}:
        return "output is json, text or wide\n"
    return "" if query.get("changes", "1") in {"0", "1", ""} else "changes is 0 or 1\n"


def _loaded() -> _Laboratory:
    """Load the laboratory, which scheduling does without."""
    from moorage.laboratory.explain.live_changes import LiveCopy, explain_live, may_change, unsearched

    return explain_live, may_change, unsearched, LiveCopy


def _released(copy: LiveCopy) -> None:
    copy.drop()
    gc.unfreeze()


def _page(found: Explanation, output: str) -> Page:
    if output == "json":
        return Page(found.to_json() + "\n", "application/json")
    from moorage.report.style import paragraph

    notes = (paragraph(f"Note: {one_line(note)}", hanging="  ") + "\n" for note in found.request.notes)
    return Page(found.text(wide=output == "wide") + "".join(notes))
