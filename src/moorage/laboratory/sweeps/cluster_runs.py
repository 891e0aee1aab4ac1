"""The function of a sweep over clusters: simulate one, and measure it as ``moorage compare`` does."""

from __future__ import annotations

import copy
import inspect
import json
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from moorage.api.reading.manifests import read_first_yaml
from moorage.errors import InputError
from moorage.framework.registry import load
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.measured_run import RunInput, measure_run
from moorage.laboratory.compare.queue_runs import is_queue_parameter, measure_queued, with_queue_parameters
from moorage.laboratory.compare.run_inputs import input_of_runs, priced
from moorage.laboratory.compare.run_metrics import MeasureSetting, RunMeter
from moorage.laboratory.compare.typical_mix import typical_mix
from moorage.laboratory.sweeps.sources import ClusterFiles, ConfigText, PackedCluster, QueueFile, TraceSource
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.kueue.batch_jobs import KINDS, queued_cluster
from moorage.simulator.kueue.trace_works import works_of_trace
from moorage.simulator.simulate import Options, kinds_named, load_options
from moorage.simulator.simulation import SimulatedCluster
from moorage.simulator.trace import Trace, simulate_trace

# -- parameters --------------------------------------------------------------------------------------------------------
# Parameters of plugins, and other fields of a scheduler configuration, set by name.
#
# ``NodeResourcesFit.scoringStrategy.type`` is an argument of a plugin, ``NodeResourcesFit.weight`` its weight as a score
# plugin; both are set in every profile. A name that starts in lower case is a field of the configuration:
# ``percentageOfNodesToScore``.

_EMPTY: Final = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def with_parameters(text: bytes | None, where: str, parameters: Mapping[str, Any]) -> bytes | None:
    """Return a configuration with some of its fields set.

    Raises  InputError for a document that is no KubeSchedulerConfiguration, and for a name that leads to no field of it
    """
    if not parameters:
        return text
    found = copy.deepcopy(_EMPTY) if text is None else read_first_yaml(text, where)
    if not isinstance(found, dict) or found.get("kind") != _EMPTY["kind"]:
        raise InputError(f"{where}: parameters can only be set in a {_EMPTY['kind']}")
    document: dict[str, Any] = found
    for name, value in parameters.items():
        first, *rest = name.split(".")
        if not all((first, *rest)):
            raise InputError(f"{name}: expected PLUGIN.ARGUMENT, PLUGIN.weight or a field of the configuration")
        if first[0].islower():
            _set(document, [first, *rest], value, name)
        elif not rest:
            raise InputError(f"{name}: expected {name}.ARGUMENT or {name}.weight")
        else:
            for profile in _profiles(document, name):
                _set_in_profile(profile, first, rest, value, name)
    return json.dumps(document).encode()


def _profiles(document: MutableMapping[str, Any], name: str) -> list[dict[str, Any]]:
    profiles = document.get("profiles") or [{"schedulerName": "default-scheduler"}]
    document["profiles"] = profiles
    return [_mapping(profile, name) for profile in profiles]


def _set_in_profile(profile: dict[str, Any], plugin: str, rest: list[str], value: Any, name: str) -> None:
    if rest == ["weight"]:
        plugins = _mapping(profile.setdefault("plugins", {}), name)
        for point in ("score", "multiPoint"):
            held = _mapping(plugins.get(point) or {}, name)
            entry = next((one for one in held.get("enabled") or () if one.get("name") == plugin), None)
            if entry is not None:
                entry["weight"] = value
                return
        score = _mapping(plugins.setdefault("score", {}), name)
        score["enabled"] = [*(score.get("enabled") or ()), {"name": plugin, "weight": value}]
        return
    configs = profile["pluginConfig"] = list(profile.get("pluginConfig") or ())
    entry = next((one for one in configs if isinstance(one, dict) and one.get("name") == plugin), None)
    if entry is None:
        entry = {"name": plugin}
        configs.append(entry)
    if entry.get("args") is None:
        entry["args"] = {}
    _set(_mapping(entry["args"], name), rest, value, name)


def _set(held: MutableMapping[str, Any], path: list[str], value: Any, name: str) -> None:
    for step in path[:-1]:
        if held.get(step) is None:
            held[step] = {}
        held = _mapping(held[step], name)
    held[path[-1]] = value


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{name}: cannot be set: the configuration has {json.dumps(value)[:40]} in its path")
    return value


# -- cluster runs ------------------------------------------------------------------------------------------------------

_DEFAULT: Final = ConfigText()
ClusterSource = ClusterFiles | PackedCluster


@dataclass(frozen=True)
class ClusterRuns:
    """The settings shared by all runs of a grid. Calling it executes one run and returns its metrics.

    ``plugins``  references such as ``module:Class``, or classes
    """

    plugins: tuple[str | type[Any], ...] = ()
    feature_gates: str = ""
    replace_all: bool = False
    all_nodes: bool = False
    prices: tuple[tuple[str, float], ...] = ()
    quota: bool = True
    skip_extenders: bool = False

    @property
    def digest(self) -> str:
        """The digest of these settings and of the plugins' source code."""
        sources = [_source_of(cls) for cls in self.classes()]
        settings = (self.feature_gates, self.replace_all, self.all_nodes, self.prices, self.quota, sources)
        return blake2b(repr(settings).encode(), digest_size=16).hexdigest()

    def classes(self) -> tuple[type[Any], ...]:
        """Return the plugins.

        Raises  InputError if one cannot be imported
        """
        return tuple(_loaded(one) if isinstance(one, str) else one for one in self.plugins)

    def options(self, config: ConfigText, release: str | None, parameters: Mapping[str, Any], seed: int = 0) -> Options:
        """Return the options of one run.

        Raises  InputError for a parameter that cannot be set
        """
        suffix = "".join(f" with {name}={value}" for name, value in parameters.items())
        return Options(
            config=with_parameters(config.text, config.where, parameters), where=config.where + suffix,
            emulate=release, plugins=self.classes(), feature_gates=self.feature_gates, seed=seed, quota=self.quota,
            skip_extenders=self.skip_extenders,
        )  # fmt: skip

    def __call__(
        self, *, cluster: ClusterSource | None = None, trace: TraceSource | None = None, seed: int = 0,
        config: ConfigText = _DEFAULT, release: str | None = None, queues: QueueFile | None = None, **parameters: Any,
    ) -> Mapping[str, Any]:  # fmt: skip
        of_queues = {name: value for name, value in parameters.items() if is_queue_parameter(name)}
        options = self.options(config, release, {k: v for k, v in parameters.items() if k not in of_queues}, seed)
        if queues is not None:
            return self._queued(cluster, trace, with_queue_parameters(queues.read(), of_queues), options)
        given = None if cluster is None else self._input(cluster, options)
        if trace is not None:
            return self._replayed(trace.trace(seed), given, options)
        assert given is not None, "a grid has clusters or traces"
        return measure_run(given, options).metrics

    def _queued(
        self, cluster: ClusterSource | None, trace: TraceSource | None, documents: Sequence[Mapping[str, Any]], options: Options
    ) -> Mapping[str, float]:
        """Let the jobs of a cluster, or the pods of a trace on its nodes, wait in queues, and measure that."""
        given = ClusterInput()
        if isinstance(cluster, PackedCluster):
            given = cluster.cluster().input()
        elif cluster is not None:
            given = cluster.read((*kinds_named(options), *KINDS))
        if trace is None:
            queued = queued_cluster(given, documents)
            mix = tuple(typical_mix(given.pods))
        else:
            played = trace.trace(options.seed)
            queued = queued_cluster(
                ClusterInput(nodes=given.nodes or played.nodes), documents,
                lambda objects: works_of_trace(played, objects, documents, seed=options.seed),
            )  # fmt: skip
            mix = tuple(typical_mix(arrival.pod for arrival in played.arrivals))
        setting = MeasureSetting(mix, priced(list(queued.cluster.nodes), dict(self.prices)), self.all_nodes)
        return measure_queued(queued, options, setting).metrics

    def _replayed(self, trace: Trace, given: RunInput | None, options: Options) -> Mapping[str, float]:
        """Replay a trace, on the nodes of a cluster if there is one, and measure it."""
        if given is not None:
            trace = trace.with_nodes(given.nodes)
        meter, ended = RunMeter(), list[SimulatedCluster]()
        run = simulate_trace(trace, options, on_attempt=meter.hear, on_end=ended.append)
        mix = tuple(typical_mix(arrival.pod for arrival in trace.arrivals))
        setting = MeasureSetting(mix, priced(list(trace.nodes), dict(self.prices)), self.all_nodes)
        return meter.measured(ended[0], run, setting).metrics

    def _input(self, source: ClusterSource, options: Options) -> RunInput:
        profiles = load_options(options).profiles if self.replace_all else ()
        again = tuple(profile.scheduler_name for profile in profiles)
        return _input(source, kinds_named(options), again, self.all_nodes, self.prices, self.quota)


@lru_cache(maxsize=4)
def _input(
    source: ClusterSource, kinds: tuple[str, ...], again: tuple[str, ...], all_nodes: bool,
    prices: tuple[tuple[str, float], ...], quota: bool,
) -> RunInput:  # fmt: skip
    cluster = source.cluster() if isinstance(source, PackedCluster) else Cluster(source.read(kinds), Options(quota=quota))
    return input_of_runs(cluster, again=again, prices=dict(prices), all_nodes=all_nodes)


@lru_cache(maxsize=64)
def _loaded(reference: str) -> type[Any]:
    """Load a plugin, also from the current directory, as ``--plugins`` does."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    found = load(reference)
    if not isinstance(found, type):
        raise InputError(f"plugins {reference}: expected a class")
    return found


def _source_of(cls: type[Any]) -> str:
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return f"{cls.__module__}:{cls.__qualname__}"
