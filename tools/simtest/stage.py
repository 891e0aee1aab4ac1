"""A stage for tests with specific faults: schedulers and a world in virtual time, with all invariants checked at the end.

async def main(stage):
    stage.world.node("n1")
    stage.spoil("POST binding", error=LOST, after=True, times=1)
    stage.world.pod("p")
    assert await stage.placed("p") == "n1"

def test_a_pod_is_bound_when_the_response_is_lost():
    on_stage(main)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import TODAY
from moorage.errors import ClusterError
from moorage.live.runtime.leader_election import Timing
from moorage.live.server.live_scheduler import LeaderSettings
from moorage.testing.virtual_time import run_virtually
from tools.simtest.convergence import differences
from tools.simtest.network import Link, Rule
from tools.simtest.oracle import Terms, judge
from tools.simtest.recording import RequestRecord, WriteRecord
from tools.simtest.scheduler_process import Member, WatchedScheduler, watched_scheduler
from tools.simtest.unruly_plugin import Mood, unruly
from tools.simtest.virtual_api import VirtualApi, wall_time
from tools.simtest.world import World

__all__ = ["LOST", "SimtestStage", "on_stage"]

#: The error of a client whose connection broke.
LOST = ClusterError("connection reset")
_SETTLE_S = 30.0
_TERMS = Terms()
#: A scheduler without a rival renews its lease less often: renewals would be most of what happens on a stage.
_ALONE = Timing(retry_s=5.0)


class SimtestStage:
    """A world and its schedulers, which run as processes would. ``members[0]`` is the first leader."""

    def __init__(
        self, plugins: Iterable[type[Any]], members: int, seed: int, profiles: str, leader: bool, opened: Mapping[str, bool],
        release: str = TODAY,
    ) -> None:  # fmt: skip
        self.api = VirtualApi(seed, gates=FeatureGates(opened, release))
        self.network, self.recording = self.api.network, self.api.recording
        self.world = World(self.api, random.Random(seed), end_after_s=1.0)  # noqa: S311
        self.mood = Mood(random.Random(seed), self.recording)  # noqa: S311
        self.wall_offset_s = 0.0
        given = list(plugins)

        def make(actor: str) -> WatchedScheduler:
            mine = [unruly("Unruly", actor, self.mood), unruly("Unrulier", actor, self.mood), *given]
            plugins = given if profiles else mine
            return watched_scheduler(
                actor, self.recording, plugins, seed=seed, profiles=profiles, opened=opened, release=release
            )

        settings = LeaderSettings(timing=Timing() if members > 1 else _ALONE) if leader else None
        self.members = [
            Member(
                self.api, name, make, leader=settings, rng=random.Random(f"{seed}/{name}"),  # noqa: S311
                wall=lambda: wall_time(self.now + self.wall_offset_s),
            )
            for name in "abc"[:members]
        ]  # fmt: skip

    @property
    def now(self) -> float:
        return self.api.clock()

    @property
    def scheduler(self) -> WatchedScheduler:
        """The engine of the first scheduler."""
        scheduler = self.members[0].scheduler
        assert scheduler is not None
        return scheduler

    def start(self) -> None:
        for member in self.members:
            member.start()

    # -- faults ---------------------------------------------------------------------------------------------------------

    def spoil(self, *whats: str, **how: Any) -> Rule:
        """Inject a fault into the named requests, for example ``POST binding`` or ``GET pods``; ``how`` as in ``Rule``."""
        rule = Rule(lambda sent: sent.what in whats and "/leases" not in sent.path, **how)
        self.network.rules.append(rule)
        return rule

    def mend(self) -> None:
        """Remove all faults."""
        self.network.heal()

    def links(self, plural: str = "") -> list[Link]:
        return self.network.links(plural)

    # -- observing ------------------------------------------------------------------------------------------------------

    def pod(self, name: str) -> dict[str, Any] | None:
        """Return a pod in the API; None if it does not exist."""
        return next((pod for pod in self.world.pods() if pod["metadata"]["name"] == name), None)

    def node_of(self, name: str) -> str:
        """Return the node of a pod; "" for a pod without one, or no pod."""
        pod = self.pod(name)
        return str(pod["spec"].get("nodeName", "")) if pod is not None else ""

    async def placed(self, *names: str, within_s: float = 15.0) -> str:
        """Wait until these pods have nodes, and return the node of the last one.

        Raises  AssertionError if it takes longer
        """
        await self.until(lambda: all(self.node_of(name) for name in names), within_s)
        return self.node_of(names[-1])

    async def until(self, condition: Callable[[], Any], within_s: float = 15.0) -> float:
        """Wait for a condition, and return how many seconds it took. It is checked less often the longer it takes.

        Raises  AssertionError if it takes longer
        """
        begin = self.now
        while not condition():
            waited_s = self.now - begin
            assert waited_s < within_s, f"not within {within_s:g}s:\n" + "\n".join(self.recording.reports[-20:])
            await asyncio.sleep(min(max(0.01, waited_s / 100), 0.2))
        return self.now - begin

    def requests(self, method: str, ending: str) -> list[RequestRecord]:
        """Return the schedulers' requests whose path ends with ``ending``."""
        asked = [entry for entry in self.recording.entries if isinstance(entry, RequestRecord)]
        return [one for one in asked if one.method == method and one.path.endswith(ending)]

    def binds(self, name: str) -> list[RequestRecord]:
        return self.requests("POST", f"/pods/{name}/binding")

    def history(self, name: str) -> list[WriteRecord]:
        """Return every write of a pod."""
        return [entry for entry in self.recording.entries if isinstance(entry, WriteRecord) and entry.key == f"default/{name}"]

    # -- the end --------------------------------------------------------------------------------------------------------

    async def close(self, terms: Terms | None, settle_s: float) -> None:
        """Remove all faults, wait, and check every invariant.

        Raises  AssertionError
        """
        self.mend()
        self.mood.calm()
        await asyncio.sleep(settle_s)
        broken = [*self.recording.broken, *(judge(self.recording.entries, terms) if terms is not None else ())]
        for member in self.members:
            broken += differences(member, self.world, self.recording.entries)
        broken += [f"S10: {who} {how}" for _, who, how in self.recording.exits if how.startswith(("crashed", "returned"))]
        for member in self.members:
            await member.stop()
        assert not broken, "\n".join([*broken, *self.recording.reports[-20:]])


def on_stage(
    main: Callable[[SimtestStage], Awaitable[Any]], *plugins: type[Any], members: int = 1, seed: int = 1, profiles: str = "",
    leader: bool = True, terms: Terms | None = _TERMS, settle_s: float = _SETTLE_S, begun: bool = True,
    opened: Mapping[str, bool] = {}, release: str = TODAY,
) -> Any:  # fmt: skip
    """Run ``main`` on a stage in virtual time, remove its faults, and check all invariants. Return its result.

    ``plugins``   plugins to enable in addition to the defaults; ``profiles`` overrides which are enabled
    ``profiles``  the profiles of the configuration, in YAML
    ``opened``    feature gates that differ from their defaults, of schedulers and of the API server
    ``release``   the release that they emulate
    ``terms``     the conditions for the oracle; None if it does not know the rules in use
    ``begun``     start the schedulers before ``main``; otherwise it calls ``stage.start()``
    """

    async def play() -> Any:
        stage = SimtestStage(plugins, members, seed, profiles, leader, opened, release)
        if begun:
            stage.start()
            await asyncio.sleep(1.0)
        answer = await main(stage)
        await stage.close(terms, settle_s)
        return answer

    return run_virtually(play())
