"""``moorage report --serve``: show a cluster in a browser, and answer questions about it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from moorage.basis.ending import Terminated, ask_to_end, is_ending
from moorage.basis.recording.log_reader import log_of
from moorage.interfaces.cli.cluster_files import paths_of, place_of
from moorage.interfaces.cli.question_worker import absolute_plugin, answer_question
from moorage.interfaces.cli.terminal import say
from moorage.interfaces.web.mirror import PriceOf
from moorage.interfaces.web.pod_routes import ClusterSource
from moorage.interfaces.web.question_processes import Answering, Run
from moorage.interfaces.web.report_server import serve_cluster
from moorage.laboratory.cluster import Cluster

#: Parameters of a question command → options: with paths as values, with other values, and without values.
_FILES: Final = {
    "paths": "filename", "config": "config", "replacements": "replace", "kubeconfig": "kubeconfig",
    "instance_types": "instance-types",
}  # fmt: skip
_VALUES: Final = {
    "edits": "edit", "cordoned": "cordon", "removed": "remove-nodes", "added": "add-nodes", "scaled": "scale",
    "treat_as": "treat-as", "validate": "validate", "emulate": "emulate", "algorithm_provider": "algorithm-provider",
    "feature_gates": "feature-gates", "max_disks": "max-pd-vols", "extenders": "extenders", "seed": "seed",
    "context": "context", "as_default": "as-default", "moment": "at",
}  # fmt: skip
_FLAGS: Final = {"recursive": "recursive", "live": "live", "no_quota": "no-quota"}


def input_words(given: Mapping[str, Any]) -> list[str]:
    """Return the options for input, scheduler and changes of a question command, with absolute paths."""
    words = [f"--{option}" for name, option in _FLAGS.items() if given[name]]
    for name, option in _FILES.items():
        words += [f"--{option}={place_of(one)}" for one in _all(given.get(name))]
    for name, option in _VALUES.items():
        words += [f"--{option}={one}" for one in _all(given.get(name))]
    return words + [f"--plugins={absolute_plugin(one)}" for one in given["plugins"]]


def _all(value: Any) -> list[Any]:
    return [] if value in (None, "") else list(value) if isinstance(value, tuple) else [value]


@contextmanager
def inheriting(run: Run = answer_question) -> Iterator[Answering]:
    """Answer questions in forks of this process as it is now, which have read what it has read. ``run``: how one does."""
    answer = Answering(run, inherits=True)
    answer.prepare()
    try:
        yield answer
    finally:
        answer.close()


def serve(cluster: Cluster, given: Mapping[str, Any], answer: Answering) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Raises  Terminated after SIGTERM
    """
    asyncio.run(_serve(cluster, given, answer))
    if is_ending():
        raise Terminated


async def _serve(cluster: Cluster, given: Mapping[str, Any], answer: Answering) -> None:
    logs = [found for path in paths_of(given) if (found := log_of(path)) is not None]
    serving = asyncio.ensure_future(
        serve_cluster(ClusterSource(cluster), given["port"], answer, input_words(given), _announce, logs, _prices(given))
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, serving.cancel)
    loop.add_signal_handler(signal.SIGTERM, _terminate, serving)
    await asyncio.wait({serving})
    if not serving.cancelled():
        await serving


def _terminate(serving: asyncio.Future[None]) -> None:
    ask_to_end()
    serving.cancel()


def _prices(given: Mapping[str, Any]) -> PriceOf | None:
    if not given["instance_types"]:
        return None
    from moorage.simulator.autoscalers.instance_types import read_price_list  # rarely needed

    return read_price_list(given["instance_types"]).price_of


def _announce(link: str) -> None:
    say(f"In a browser, once: {link}")
    say("Ctrl-C stops it.")
