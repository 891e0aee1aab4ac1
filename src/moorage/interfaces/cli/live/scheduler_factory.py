"""Build a scheduler from command-line options and a loaded configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from moorage.core.building import builder as engine_builder
from moorage.core.config.configuration import extenders_of
from moorage.core.config.scheduler_document import Loaded
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.verifying import Verification
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.framework.effects import Question
from moorage.framework.profile import Profile
from moorage.live.client.extenders import ExtenderClient
from moorage.simulator.simulate import Options, load_options


def build_scheduler(
    loaded: Loaded, seed: int, max_unschedulable_s: float, *, max_disks: int | None = None,
    watched: Callable[[Profile], Profile] | None = None, verified: float = 0.0,
) -> Scheduler:  # fmt: skip
    """Return a scheduler with the profiles of a configuration, each replaced by the result of ``watched``.

    ``verified``: the share of decisions to repeat without caches

    Raises  InputError if an enabled plugin does not exist
    """
    configuration = loaded.configuration
    cycle = Cycle(
        seed=seed,
        percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score or 0,
        extenders=extenders_of(configuration.extenders, loaded.release),
        verification=Verification(verified) if verified else None,
    )
    scheduler, missing = engine_builder.build_scheduler(
        loaded, cycle, max_unschedulable_s=max_unschedulable_s, max_disks=max_disks, wrap=watched
    )
    if missing:
        raise InputError(f"enabled plugins do not exist: {', '.join(missing)}")
    return scheduler


# -- extender client ---------------------------------------------------------------------------------------------------
# Call scheduler extenders over HTTP in a simulation: synchronously, one request at a time.


@contextmanager
def extenders_connected(options: Options) -> Iterator[Options]:
    """Return the options with a client for the configured extenders; the connections close when the block ends.

    Raises  ConfigError, InputError
    """
    client = ExtenderClient(load_options(options).configuration.extenders)
    with asyncio.Runner() as runner:
        runner.run(client.__aenter__())

        def ask(question: Question) -> bytes:
            return runner.run(client.ask(question))

        try:
            yield replace(options, ask=ask)
        finally:
            runner.run(client.__aexit__())
