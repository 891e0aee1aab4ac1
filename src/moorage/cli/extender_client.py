"""Call scheduler extenders over HTTP in a simulation: synchronously, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from moorage.client.extenders import ExtenderClient
from moorage.framework.effects import Question
from moorage.simulator.simulate import Options, load_options

__all__ = ["extenders_connected"]


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
