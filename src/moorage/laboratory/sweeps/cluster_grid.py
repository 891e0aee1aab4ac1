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

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from moorage.api.reading.manifests import read_first_yaml
from moorage.basis.files import read_file
from moorage.basis.inputs.files import InputFile
from moorage.errors import InputError, MoorageError
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.queue_runs import is_queue_parameter, with_queue_parameters
from moorage.laboratory.sweeps.cluster_runs import ClusterRuns
from moorage.laboratory.sweeps.grid import SEED, AxisValue, GridField, Label, SweepAxis, SweepGrid, axis_of
from moorage.laboratory.sweeps.sources import ClusterFiles, ConfigText, PackedCluster, QueueFile, read_trace_source
from moorage.simulator.simulate import load_options

#: The metrics to summarise if the grid does not name any.
DEFAULT_METRICS: Final = ("pending", "nodesUsed", "utilisation.cpu", "utilisation.memory", "fragmentation", "wait.p99")
_FIELDS: Final = (
    "clusters", "traces", "configs", "releases", "parameters", "seeds", "metrics", "against", "plugins", "featureGates",
    "replaceAll", "allNodes", "prices", "quota", "extenders", "queues",
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


class _Reader:
    def __init__(self, root: GridField, folder: Path) -> None:
        self._root = root
        self._fields = {name: one for name, one in root.fields(_FIELDS).items() if one.value is not None}
        self._folder = folder

    def grid(self) -> ClusterGrid:
        function = self._function()
        found = (self._clusters(), self._traces(), self._queues(), self._configs(), self._releases(), *self._parameters())
        axes = [axis for axis in found if axis is not None]
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
        )

    def _plugin(self, given: GridField) -> str | type[Any]:
        if isinstance(given.value, type):
            return given.value
        name, colon, attribute = given.text().rpartition(":")
        return f"{self._path(name)}{colon}{attribute}" if name.endswith(".py") else given.text()

    def _path(self, text: str) -> str:
        return os.path.abspath(self._folder / text)

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

    def _clusters(self) -> SweepAxis | None:
        clusters = self._fields.get("clusters")
        if clusters is None and "traces" in self._fields:
            return None
        if clusters is None:
            raise self._root.fault("clusters or traces: required; for example clusters: {now: dump.json}")
        return SweepAxis("cluster", tuple(self._cluster(name, one) for name, one in clusters.fields().items()))

    def _cluster(self, name: str, given: GridField) -> AxisValue:
        if isinstance(given.value, Cluster):
            packed = PackedCluster.of(given.value)
            return AxisValue(name, packed, packed.digest)
        try:
            files = ClusterFiles.of([self._path(text) for text in given.texts()])
        except MoorageError as error:
            raise given.fault(str(error)) from None
        return AxisValue(name, files, files.digest)

    def _traces(self) -> SweepAxis | None:
        traces = self._fields.get("traces")
        if traces is None:
            return None
        sources = {name: read_trace_source(one, self._path) for name, one in traces.fields().items()}
        return SweepAxis("trace", tuple(AxisValue(name, source, source.digest) for name, source in sources.items()))

    def _queues(self) -> SweepAxis | None:
        queues = self._fields.get("queues")
        if queues is None:
            return None
        found = []
        for name, one in queues.fields().items():
            try:
                file = QueueFile(ClusterFiles.of([self._path(text) for text in one.texts()]))
                file.read()
            except MoorageError as error:
                raise one.fault(str(error)) from None
            found.append(AxisValue(name, file, file.digest))
        return SweepAxis("queues", tuple(found))

    def _configs(self) -> SweepAxis | None:
        configs = self._fields.get("configs")
        if configs is None:
            return None
        return SweepAxis("config", tuple(self._config(name, one) for name, one in configs.fields().items()))

    def _config(self, name: str, given: GridField) -> AxisValue:
        if given.value is None:
            found = ConfigText()
        elif isinstance(given.value, bytes):
            found = ConfigText(given.value, name)
        else:
            path = self._path(given.text())
            try:
                found = ConfigText(read_file(path, _MOST_BYTES), given.text())
            except InputError as error:
                raise given.fault(str(error)) from None
        return AxisValue(name, found, found.digest)

    def _releases(self) -> SweepAxis | None:
        releases = self._fields.get("releases")
        return None if releases is None else axis_of("release", releases.texts())

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

    # -- checks ----------------------------------------------------------------------------------------------------------

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
