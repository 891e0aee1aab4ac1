"""Options of a cluster, from the arguments that programs give."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypedDict

from moorage.api.releases import find_release
from moorage.errors import CopyError, InputError
from moorage.framework.effects import Question
from moorage.laboratory.cluster_objects import text_of
from moorage.simulator.cluster_reader import ReadRules
from moorage.simulator.simulate import Options

#: A KubeSchedulerConfiguration or a Policy: a path, or its text.
ConfigLike = str | PathLike[str] | bytes | None

_CALLABLES: Final = ("ask", "clock", "timer", "scores")


class ClusterOptions(TypedDict, total=False):
    """The options of ``Cluster.read``, ``from_objects`` and ``live``; all may be left out.

    ``config``         a KubeSchedulerConfiguration or a Policy: a path, or its text; None: kube-scheduler's defaults
    ``release``        the release whose rules apply, such as 1.34 or 1.34.1; None: the one of the configuration's apiVersion
    ``seed``           breaks ties between equally scored nodes; by default 0
    ``feature_gates``  in the format of kube-scheduler's flag
    ``plugins``        plugin classes in addition to the built-in ones
    ``ask``            sends a request to an extender; None: configured extenders are skipped
    """

    config: ConfigLike
    release: str | None
    seed: int
    feature_gates: str
    plugins: Iterable[type[Any]]
    ask: Callable[[Question], bytes] | None


def cluster_options(given: ClusterOptions) -> Options:
    """Return the options.

    Raises  InputError for an option that does not exist, and if the configuration's file cannot be read
    """
    if unknown := given.keys() - ClusterOptions.__annotations__.keys():
        raise InputError(
            f"no option of a cluster: {', '.join(sorted(unknown))}; use {', '.join(ClusterOptions.__annotations__)}"
        )
    text, where = _configuration(given.get("config"))
    ask = given.get("ask")
    return Options(
        config=text, where=where, emulate=given.get("release"), seed=given.get("seed", 0),
        feature_gates=given.get("feature_gates", ""), plugins=tuple(given.get("plugins", ())), ask=ask,
        skip_extenders=ask is None,
    )  # fmt: skip


def _configuration(config: ConfigLike) -> tuple[bytes | None, str]:
    if config is None:
        return None, "the default configuration"
    if isinstance(config, bytes):
        return config, "the configuration"
    text = text_of(config)
    if text is not None:
        return text.encode(), "the configuration"
    try:
        return Path(config).read_bytes(), str(config)
    except OSError as error:
        raise InputError(f"{config}: {error.strerror or error}") from None


def rules_for(options: Options) -> ReadRules:
    """Return the rules for reading the objects of a cluster with these options."""
    return ReadRules(release=find_release(options.emulate) if options.emulate else None)


def refuse_unpicklable(options: Options) -> None:
    """Raise CopyError for options that cannot be pickled."""
    for name in _CALLABLES:
        if getattr(options, name) is not None:
            raise CopyError(f"a cluster with the option {name!r} cannot be pickled; make it in each process")
    for plugin in options.plugins:
        if "<locals>" in plugin.__qualname__:
            name = plugin.name
            raise CopyError(f"plugin {name} is defined in a function, so the cluster cannot be pickled; move it to a module")
