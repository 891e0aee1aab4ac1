"""One scheduler of a run, as a process: it starts, may lose its lease and exit, may be killed, and is restarted.

``WatchedScheduler`` is the engine with recording: it records what it observes and tries, and checks after each step that every
pod is in exactly one place.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from moorage.api.core import Pod
from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import TODAY
from moorage.basis.inputs.scheduler_config import registry_with
from moorage.core.binding.binding import Binding
from moorage.core.building.builder import build_profiles
from moorage.core.config.configuration_loader import load
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.engine.engine_state import EngineSettings
from moorage.core.engine.event_handlers import Answers
from moorage.core.engine.facts import BindsDone, Done, Fact, Gone, Phase, Seen, Work, WriteLost, Wrote
from moorage.core.engine.outbox import Decided, Output
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue import QueueTimes
from moorage.core.queue.queued_pod import QueuePlace
from moorage.framework.effects import Evict
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.runtime.leader_election import LeadershipLostError
from moorage.live.runtime.loop import USUAL, LoopLimits
from moorage.live.server.live_scheduler import LeaderSettings, Live, LiveSettings
from tools.simtest.recording import AttemptRecord, Observed, Recording
from tools.simtest.virtual_api import VirtualApi, VirtualRest, wall_time

__all__ = ["Member", "WatchedScheduler", "watched_scheduler"]

_HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class WatchedScheduler(Scheduler):
    """The engine of scheduler ``actor``, with its observations and attempts recorded."""

    actor = ""
    recording: Recording

    def watch_over(self, actor: str, recording: Recording) -> None:
        self.actor, self.recording = actor, recording
        self._known: dict[str, Pod] = {}

    def observe(self, fact: Fact, now: float) -> None:
        answers = self.event_handlers.answers
        if isinstance(fact, Wrote | WriteLost):
            self._note_answer(fact)
        elif not isinstance(fact, Done | BindsDone) and not (isinstance(fact, Seen) and answers.is_outdated(fact.obj)):
            self._note(fact)
        super().observe(fact, now)

    def observe_waiting(self, pods: Sequence[Pod], now: float) -> bool:
        taken = super().observe_waiting(pods, now)
        for pod in pods if taken else ():
            self._note(Seen(pod))
        return taken

    def observe_confirmed(self, facts: Sequence[Seen], start: int, now: float) -> int:
        count = super().observe_confirmed(facts, start, now)
        for fact in facts[start : start + count]:
            self._note(fact)
        return count

    def _note_answer(self, fact: Wrote | WriteLost) -> None:
        """Record the result of a write, as far as it is news."""
        if isinstance(fact, WriteLost):
            if self.is_unconfirmed(fact.obj):
                self._note(Gone(fact.obj) if fact.found is None else Seen(fact.found))
        elif fact.obj is not None:
            known = self.cluster.objects(type(fact.obj)).get(fact.obj.key)
            if Answers().take(fact.obj, known, made=fact.made):
                self._note(Seen(fact.obj))

    def _note(self, fact: Any) -> None:
        obj: Any = fact.obj
        metadata = obj.metadata
        gone = isinstance(fact, Gone)
        kind, uid = type(obj).__name__, metadata.uid
        key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        version = int(metadata.resource_version or 0)
        self.recording.add(Observed(self.recording.clock(), self.actor, gone, kind, key, uid, version))
        if isinstance(obj, Pod):
            if gone or obj.status.phase in {"Succeeded", "Failed"}:
                self._known.pop(uid, None)
            else:
                for other in [one for one, held in self._known.items() if held.key == obj.key and one != uid]:
                    del self._known[other]
                self._known[uid] = obj

    def step(self, now: float) -> bool:
        ready = self._ready()
        attempted = super().step(now)
        decisions = [output.decision for output in self.state.outbox if isinstance(output, Decided)]
        for decision in decisions[:1]:
            self._check_order(decision, ready)
        self._record_attempts(decisions)
        return attempted

    def place_run(self, now: float, most: int) -> list[Binding]:
        ready = self._ready()
        run = super().place_run(now, most)
        for one, after in pairwise(run):
            if after.pod.priority > one.pod.priority:
                self._broken(f"L5: {one.pod.key} was placed before {after.pod.key}, a ready pod of higher priority")
        for one in run[-1:]:
            self._check_order(one.decision, ready)
        self._record_attempts([one.decision for one in run])
        return run

    def _ready(self) -> dict[str, int]:
        """Return the priorities of the ready pods."""
        return {one.pod.uid: one.pod.priority for one in self.queue.pending() if one.place is QueuePlace.ACTIVE}

    def _record_attempts(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            outcome = decision.post_filter
            victims = tuple(victim.uid for victim in outcome.victims) if outcome is not None else ()
            tried = AttemptRecord(self.recording.clock(), self.actor, decision.pod.uid, decision.node or "", victims)
            self.recording.add(tried)
        self.check_conservation()

    def _check_order(self, decision: Decision, ready: dict[str, int]) -> None:
        """Check L5: no pod is tried before a ready pod of higher priority."""
        for uid, priority in ready.items():
            queued = self.queue.get(uid)
            if priority > decision.pod.priority and queued is not None and queued.place is QueuePlace.ACTIVE:
                self._broken(f"L5: {decision.pod.key} was tried before {queued.pod.key}, a ready pod of higher priority")

    def check_conservation(self) -> None:
        """Check L1: every pod of this scheduler is in exactly one place."""
        for uid, pod in self._known.items():
            if pod.spec.node_name or pod.spec.scheduler_name not in self.profiles or pod.metadata.deletion_timestamp:
                continue
            queued = self.queue.get(uid)
            place = None if queued is None else queued.place
            bound, binding = self.cluster.node_of(uid) is not None, uid in self.state.bindings.by_uid
            if place is None and not binding and not bound:
                self._broken(f"L1: {pod.key} ({uid}) is in no place")
            if place not in {None, QueuePlace.IN_FLIGHT} and binding and not self.state.bindings.by_uid[uid].withdrawn:
                self._broken(f"L1: {pod.key} ({uid}) is being bound and {place.value if place else ''} at once")

    def _broken(self, text: str) -> None:
        line = f"{self.actor}: {text}"
        if line not in self.recording.broken:
            self.recording.broken.append(line)

    def take(self) -> list[Output]:
        outputs = super().take()
        for one in outputs:
            if (
                isinstance(one, Work)
                and one.phase is Phase.PREEMPT
                and any(isinstance(effect, Evict) for effect in one.effects)
            ):
                uids = tuple(effect.victim.uid for effect in one.effects if isinstance(effect, Evict))
                self.recording.add(AttemptRecord(self.recording.clock(), self.actor, one.pod.uid, "", uids))
        return outputs


def watched_scheduler(
    actor: str, recording: Recording, plugins: Iterable[type[Any]] = (), *, seed: int = 0, profiles: str = "",
    opened: Mapping[str, bool] = {}, release: str = TODAY,
) -> WatchedScheduler:  # fmt: skip
    """Return an engine with the default plugins and the given ones.

    ``profiles``  the profiles of the configuration, in YAML, instead of one that enables these plugins
    ``opened``    feature gates that differ from their defaults
    ``release``   the release to emulate
    """
    gates = FeatureGates(opened, release)
    given = list(plugins)
    registry = registry_with(given, release=release)
    names = ", ".join(f"{{name: {plugin.name}}}" for plugin in given)
    text = _HEAD + (profiles or f"profiles:\n- plugins: {{multiPoint: {{enabled: [{names}]}}}}\n")
    configuration = load(text.encode(), "simtest", registry, gates)
    scheduler = WatchedScheduler(
        Cycle(seed=seed, percentage_of_nodes_to_score=0),
        gates,
        lambda handle: build_profiles(configuration, registry, gates, handle).profiles,
        EngineSettings(
            QueueTimes(float(configuration.pod_initial_backoff_seconds), float(configuration.pod_max_backoff_seconds))
        ),
    )
    scheduler.watch_over(actor, recording)
    return scheduler


class Member:
    """A scheduler process that is restarted when it ends. ``make`` builds its engine; ``wall`` is its clock."""

    def __init__(
        self, api: VirtualApi, name: str, make: Callable[[str], WatchedScheduler], *, leader: LeaderSettings | None = None,
        rng: random.Random, wall: Callable[[], str] | None = None, restart_s: float = 1.0, limits: LoopLimits = USUAL,
    ) -> None:  # fmt: skip
        self.name, self._api, self._make = name, api, make
        self._leader, self._rng, self._restart_s = leader, rng, restart_s
        self._limits = limits
        self._wall = wall or (lambda: wall_time(api.clock()))
        self.starts = 0
        self.live: Live | None = None
        self.scheduler: WatchedScheduler | None = None
        self._running: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def actor(self) -> str:
        """The name of the current process."""
        return f"{self.name}-{self.starts}"

    def start(self) -> None:
        self._keeping = asyncio.ensure_future(self._keep())

    async def stop(self) -> None:
        """Stop for good, as after SIGTERM."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping

    async def terminate(self) -> None:
        """Stop the current process with SIGTERM; it is restarted."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def kill(self) -> None:
        """Stop the current process with SIGKILL: none of its later requests arrive. It is restarted."""
        if self._running is not None:
            self._api.network.cut_off(self.actor)
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _keep(self) -> None:
        while True:
            self.starts += 1
            self._running = asyncio.ensure_future(self._run(self.actor))
            try:
                await asyncio.wait({self._running})
            finally:
                self._running.cancel()
                await asyncio.wait({self._running})
            await asyncio.sleep(self._restart_s)

    async def _run(self, actor: str) -> None:
        recording, api = self._api.recording, self._api
        self.scheduler = self._make(actor)
        try:
            async with VirtualRest(api, actor) as rest:
                self.live = Live(
                    self.scheduler, rest, LiveSettings(self._leader, limits=self._limits),
                    identity=actor, wall=self._wall, chance=self._rng,
                    observers=Observers(lambda line: recording.report(actor, line)),
                )  # fmt: skip
                await self.live.run()
            recording.exits.append((api.clock(), actor, "returned"))
        except asyncio.CancelledError:
            recording.exits.append((api.clock(), actor, "ended"))
        except LeadershipLostError:
            recording.exits.append((api.clock(), actor, "lost its lease"))
        except BaseException as error:
            recording.exits.append((api.clock(), actor, f"crashed: {type(error).__name__}: {error}"))
