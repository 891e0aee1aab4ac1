"""How cases are played that ask which pending pods an event wakes."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.core.queue.queued_pod import QueuePlace
from tests.regressions import cluster_objects as on
from tools.simtest.oracle import Terms
from tools.simtest.stage import on_stage

#: Longer than any backoff, so that a pod that is woken is ready at once.
PAST_BACKOFF_S = 12.0


@dataclass(frozen=True)
class Case:
    """``plugins`` are all there are, but for those that every profile needs. ``woken``: names of pods, in order."""

    plugins: str
    before: Callable[[Any], Any]
    pods: Mapping[str, Mapping[str, Any]]
    then: Callable[[Any], Any]
    woken: str
    opened: Mapping[str, bool] = field(default_factory=dict)


def profile(plugins):
    """Return a profile of these plugins alone, in YAML."""
    enabled = ", ".join(f"{{name: {name}}}" for name in ("PrioritySort", "DefaultBinder", *plugins.split()))
    return f"profiles:\n- plugins: {{multiPoint: {{disabled: [{{name: '*'}}], enabled: [{enabled}]}}}}\n"


def play(case):
    """Play a case, and see that those pods are woken, and no others."""

    async def main(stage):
        case.before(stage.world)
        await asyncio.sleep(1)
        uids = {name: on.pod(stage.world, name, **spec)["metadata"]["uid"] for name, spec in case.pods.items()}
        await asyncio.sleep(PAST_BACKOFF_S)
        queue = stage.scheduler.queue
        assert {name: queue.get(uid).place for name, uid in uids.items()} == dict.fromkeys(uids, QueuePlace.UNSCHEDULABLE)
        assert all(queue.get(uid).attempts == 1 for uid in uids.values())
        stage.scheduler.step = lambda now: False
        case.then(stage.world)
        await asyncio.sleep(1)
        assert [name for name, uid in uids.items() if queue.get(uid).place is QueuePlace.ACTIVE] == case.woken.split()

    # Few plugins make bad decisions, and here the world is left as it is.
    on_stage(main, profiles=profile(case.plugins), opened=case.opened, terms=Terms(settled=False), settle_s=0.0)
