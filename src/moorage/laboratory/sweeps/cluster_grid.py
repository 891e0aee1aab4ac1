"""Grids of clusters and configurations, from a YAML file or from a program.

    clusters: {now: dump.json, bigger: [dump.json, more-nodes.yaml]}
    configs: {default: , packed: packed.yaml}
    queues: {now: queues.yaml}
    parameters:
      NodeResourcesFit.weight: [1, 5]
    seeds: 0-9
    metrics: [pending, utilisation.cpu]

Paths are relative to the grid's file. Errors in a file name the line.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, Final

from moorage.api.reading.manifests import read_first_yaml
from moorage.basis.files import note_named, read_file
from moorage.basis.inputs.files import InputFile
from moorage.errors import InputError, MoorageError
from moorage.framework.registry import load
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.measured_run import RunInput, measure_run
from moorage.laboratory.compare.queue_runs import is_queue_parameter, measure_queued, with_queue_parameters
from moorage.laboratory.compare.run_inputs import input_of_runs, priced
from moorage.laboratory.compare.run_metrics import MeasureSetting, RunMeter
from moorage.laboratory.compare.typical_mix import typical_mix
from moorage.laboratory.job_frames import PowerModel, jobs_frame, pods_frame, read_power
from moorage.laboratory.sweeps.grid import SEED, AxisValue, Label, SweepAxis, SweepGrid, axis_of
from moorage.laboratory.sweeps.grid_document import GridField
from moorage.laboratory.sweeps.sources import ClusterFiles, ConfigText, PackedCluster, QueueFile
from moorage.laboratory.sweeps.trace_sources import TraceSource, read_trace_source
from moorage.report.job_tables import TableSetting
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.job_kinds import KINDS
from moorage.simulator.kueue.batch_jobs import queued_cluster
from moorage.simulator.kueue.integrations import works_of_trace
from moorage.simulator.simulate import Options, kinds_named, load_options
from moorage.simulator.simulation import SimulatedCluster
from moorage.simulator.trace import Trace, simulate_trace

#: The metrics to summarise if the grid does not name any.
DEFAULT_METRICS: Final = ("pending", "nodesUsed", "utilisation.cpu", "utilisation.memory", "fragmentation", "wait.p99")
_FIELDS: Final = (
    "clusters", "traces", "configs", "releases", "parameters", "seeds", "metrics", "against", "plugins", "featureGates",
    "replaceAll", "allNodes", "prices", "quota", "extenders", "queues",
    "tables", "power",
)  # fmt: skip
#: The largest grid file, and the largest configuration, in bytes.
_MOST_BYTES: Final = 4 << 20
_SEEDS: Final = re.compile(r"(\d{1,9})-(\d{1,9})")
_MOST_SEEDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ClusterGrid:
    """A grid that was read, and the function that runs at its points. ``size``: bytes in the files of its clusters."""

    grid: SweepGrid
    function: ClusterRuns
    metrics: tuple[str, ...]
    against: str | None
    size: int = 0


def read_grid(given: Mapping[str, Any] | str | os.PathLike[str], defaults: Mapping[str, Any] = {}) -> ClusterGrid:
    """Read a grid from a file, or from a mapping of the same form, which may contain ``Cluster`` objects.

    ``defaults``  the fields that the grid does not have
    Raises  InputError, ConfigError for a fault in the grid or in a file that it names
    """
    if isinstance(given, Mapping):
        return _Reader(GridField({**defaults, **given}), Path()).grid()
    where = os.fspath(given)
    source = InputFile(where, read_file(where, _MOST_BYTES))
    read = read_first_yaml(source.data, where, strict=True)
    if isinstance(read, dict):
        read = {**defaults, **read}
    return _Reader(GridField(read, (), source), Path(where).parent).grid()


ClusterSource = ClusterFiles | PackedCluster
_Source = ClusterSource | TraceSource | QueueFile | ConfigText


class _Reader:
    def __init__(self, root: GridField, folder: Path) -> None:
        self._root = root
        self._fields = {name: one for name, one in root.fields(_FIELDS).items() if one.value is not None}
        self._folder = folder

    def grid(self) -> ClusterGrid:
        function = self._function()
        axes = [*self._sources(), *self._releases(), *self._parameters()]
        self._check(function, axes)
        seeds = axis_of(SEED, self._seeds())
        metrics = self._fields.get("metrics")
        against = self._fields.get("against")
        return ClusterGrid(
            SweepGrid((*axes, seeds), function.digest), function,
            DEFAULT_METRICS if metrics is None else tuple(metrics.texts()), None if against is None else against.text(),
            sum(one.value.size for axis in axes for one in axis.values if isinstance(one.value, ClusterFiles)),
        )  # fmt: skip

    def _function(self) -> ClusterRuns:
        fields = self._fields
        gates, plugins, extenders = (fields.get(name) for name in ("featureGates", "plugins", "extenders"))
        if extenders is not None and extenders.value != "skip":
            raise extenders.fault("a sweep asks no extenders; write skip to leave them out")
        return ClusterRuns(
            plugins=() if plugins is None else tuple(self._plugin(one) for one in plugins.items()),
            feature_gates="" if gates is None else gates.text(),
            replace_all="replaceAll" in fields and fields["replaceAll"].flag(),
            all_nodes="allNodes" in fields and fields["allNodes"].flag(),
            prices=self._prices(),
            quota="quota" not in fields or fields["quota"].flag(),
            skip_extenders=extenders is not None,
            tables=self._tables(),
            power=read_power(fields["power"].value, "power") if "power" in fields else None,
        )

    def _tables(self) -> str:
        tables = self._fields.get("tables")
        if tables is None:
            return ""
        if tables.value not in _TABLES:
            raise tables.fault(f"expected {' or '.join(_TABLES)}")
        return tables.text()

    def _plugin(self, given: GridField) -> str | type[Any]:
        if isinstance(given.value, type):
            return given.value
        name, colon, attribute = given.text().rpartition(":")
        return f"{self._path(name)}{colon}{attribute}" if name.endswith(".py") else given.text()

    def _path(self, text: str) -> str:
        """Return the absolute path of a file that the grid names; errors quote none outside of its folder."""
        path = os.path.abspath(self._folder / text)
        for shown in (path, text):
            note_named(path, str(self._folder / "grid"), shown)
        return path

    def _prices(self) -> tuple[tuple[str, float], ...]:
        prices = self._fields.get("prices")
        if prices is None:
            return ()
        found = []
        for name, one in prices.fields().items():
            if isinstance(one.value, bool) or not isinstance(one.value, (int, float)) or one.value < 0:
                raise one.fault("expected a price of at least 0")
            found.append((name, float(one.value)))
        return tuple(found)

    # -- axes ------------------------------------------------------------------------------------------------------------

    def _sources(self) -> Iterator[SweepAxis]:
        """Yield the axes whose values are read from files or from objects of the program."""
        if not {"clusters", "traces"} & self._fields.keys():
            raise self._root.fault("clusters or traces: required; for example clusters: {now: dump.json}")
        readers: Mapping[str, tuple[str, Callable[[GridField], _Source]]] = {
            "clusters": ("cluster", self._cluster), "traces": ("trace", lambda one: read_trace_source(one, self._path)),
            "queues": ("queues", self._queue), "configs": ("config", self._config),
        }  # fmt: skip
        for field, (name, read) in readers.items():
            if field in self._fields:
                sources = {label: read(one) for label, one in self._fields[field].fields().items()}
                yield SweepAxis(name, tuple(AxisValue(label, one, one.digest) for label, one in sources.items()))

    def _cluster(self, given: GridField) -> ClusterSource:
        return PackedCluster.of(given.value) if isinstance(given.value, Cluster) else self._files(given)

    def _files(self, given: GridField) -> ClusterFiles:
        paths = [self._path(text) for text in given.texts()]
        try:
            return ClusterFiles.of(paths)
        except MoorageError as error:
            raise given.fault(str(error)) from None

    def _queue(self, given: GridField) -> QueueFile:
        file = QueueFile(self._files(given))
        try:
            file.read()
        except MoorageError as error:
            raise given.fault(str(error)) from None
        return file

    def _config(self, given: GridField) -> ConfigText:
        if given.value is None:
            return ConfigText()
        if isinstance(given.value, bytes):
            return ConfigText(given.value, str(given.path[-1]))
        where = given.text()
        try:
            return ConfigText(read_file(self._path(where), _MOST_BYTES), where)
        except InputError as error:
            raise given.fault(str(error)) from None

    def _releases(self) -> list[SweepAxis]:
        releases = self._fields.get("releases")
        return [] if releases is None else [axis_of("release", releases.texts())]

    def _parameters(self) -> list[SweepAxis]:
        parameters = self._fields.get("parameters")
        if parameters is None:
            return []
        return [axis_of(name, [value.value for value in one.items()]) for name, one in parameters.fields().items()]

    def _seeds(self) -> list[int]:
        given = self._fields.get("seeds")
        if given is None:
            return [0]
        value = given.value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_SEEDS:
            return list(range(value))
        if isinstance(value, str):
            found = _SEEDS.fullmatch(value)
            if found and 0 <= int(found[2]) - int(found[1]) < _MOST_SEEDS:
                return list(range(int(found[1]), int(found[2]) + 1))
        if isinstance(value, (list, tuple, range)) and value and all(type(one) is int for one in value):
            return list(value)
        raise given.fault("expected a number of seeds, a range such as 42-51, or a list of whole numbers")

    def _check(self, function: ClusterRuns, axes: list[SweepAxis]) -> None:
        """Load every configuration once, so that a fault is found before the first run.

        Raises  InputError, ConfigError
        """
        varied = [axis for axis in axes if axis.name not in {"cluster", "trace"}]
        for chosen in product(*(axis.values for axis in varied)):
            values = {axis.name: one.value for axis, one in zip(varied, chosen, strict=True)}
            labels: dict[str, Label] = {axis.name: one.label for axis, one in zip(varied, chosen, strict=True)}
            config, release, queues = (
                values.pop("config", ConfigText()),
                values.pop("release", None),
                values.pop("queues", None),
            )
            of_queues = {name: values.pop(name) for name in list(values) if is_queue_parameter(name)}
            if queues is not None:
                with_queue_parameters(queues.read(), of_queues)
            elif of_queues:
                raise self._root.fault(f"parameters: {next(iter(of_queues))} needs queues, the files of Kueue's objects")
            options = function.options(config, release, values)
            loaded = load_options(options)
            if loaded.configuration.extenders and not function.skip_extenders:
                name = labels.get("config", config.where)
                raise self._root.fault(f"configs: {name} has extenders, and a sweep asks none; extenders: skip leaves them out")


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


#: The tables that runs of traces can have.
_TABLES: Final = ("jobs", "pods")

# -- cluster runs ------------------------------------------------------------------------------------------------------

_DEFAULT: Final = ConfigText()


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
    #: ``jobs`` or ``pods``: the columns that each run of a trace has.
    tables: str = ""
    power: PowerModel | None = None

    @property
    def digest(self) -> str:
        """The digest of these settings and of the plugins' source code."""
        sources = [_source_of(cls) for cls in self.classes()]
        settings = (self.feature_gates, self.replace_all, self.all_nodes, self.prices, self.quota, sources)
        if self.tables or self.power is not None:
            settings = (*settings, repr((self.tables, self.power)))  # type: ignore[assignment]
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

    def _replayed(self, trace: Trace, given: RunInput | None, options: Options) -> Mapping[str, Any]:
        """Replay a trace, on the nodes of a cluster if there is one, and measure it."""
        if given is not None:
            trace = trace.with_nodes(given.nodes)
        meter, ended = RunMeter(), list[SimulatedCluster]()
        run = simulate_trace(trace, options, on_result=meter.count, on_repeats=meter.repeat, on_end=ended.append)
        mix = tuple(typical_mix(arrival.pod for arrival in trace.arrivals))
        setting = MeasureSetting(mix, priced(list(trace.nodes), dict(self.prices)), self.all_nodes)
        metrics = meter.measured(ended[0], run, setting).metrics
        if not self.tables:
            return metrics
        with_power = None if self.power is None else self.power.on(trace.nodes)
        shown = TableSetting(prices=setting.prices or None, power=with_power)
        frame = jobs_frame(run, shown) if self.tables == "jobs" else pods_frame(run, shown)
        # A metric and a column of one name are both kept: the column is ``jobs.attempts`` then.
        columns = {f"{self.tables}.{name}" if name in metrics else name: one for name, one in frame.columns().items()}
        return {**metrics, **columns}

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
