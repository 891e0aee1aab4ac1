"""What containers use, or should request: PodMetrics, ``kubectl top``, Prometheus, the VerticalPodAutoscaler, KRR.

Amounts are in the scheduler's units: millicores of CPU, bytes of memory. A file in another form is refused; what a source does
not name (a namespace, a container) is not guessed.

Source  metrics.k8s.io/v1beta1; kubectl top pod; prometheus.io/docs, HTTP API; autoscaling.k8s.io/v1; robusta-dev/krr, -f json
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from moorage.api.quantity import QuantityError, milli_value, value
from moorage.api.reading.manifests import read_documents
from moorage.basis.files import read_file
from moorage.errors import InputError

#: A pod or workload and a container; "" for all containers of a pod together.
_Key = tuple[str, str]
_Amounts = dict[str, int]
_K = TypeVar("_K")
_LIMIT: Final = 1 << 30
_ROUND: Final = 1e-6
#: Names of series that say which resource they measure.
_SERIES: Final = {"cpu": "cpu", "memory": "memory"}


@dataclass
class MeasuredUsage:
    """``measured``: the most that a container of a pod uses, by ``namespace/pod`` and container.

    ``advised``  the request that a tool recommends, by ``namespace/Kind/name`` of a workload, or by ``namespace/pod``
    """

    measured: dict[_Key, _Amounts] = field(default_factory=dict)
    advised: dict[_Key, _Amounts] = field(default_factory=dict)
    nodes: dict[str, _Amounts] = field(default_factory=dict)

    @property
    def pods(self) -> dict[str, _Amounts]:
        """The measured amounts of each ``namespace/pod``: the sum of its containers, or the figure of the whole pod."""
        found: dict[str, _Amounts] = {}
        for (pod, container), used in self.measured.items():
            total = found.setdefault(pod, {})
            whole = self.measured.get((pod, ""), {})
            for name, amount in used.items():
                if not container or name not in whole:
                    total[name] = total.get(name, 0) + amount
        return found


def _note(book: dict[_K, _Amounts], key: _K, amounts: Mapping[str, int]) -> None:
    """Keep the larger amount of a resource that is noted twice."""
    held = book.setdefault(key, {})
    for name, amount in amounts.items():
        held[name] = max(amount, held.get(name, 0))


def usage_of(objects: Iterable[Mapping[str, Any]]) -> dict[str, _Amounts]:
    """Return what each ``namespace/pod`` uses, from PodMetrics and lists of them, as plain data.

    Raises  InputError
    """
    usage = MeasuredUsage()
    for one in objects:
        _take_object(usage, one, "PodMetrics")
    return usage.pods


def read_usage(paths: Sequence[str], percentile: float = 95.0) -> MeasuredUsage:
    """Read files of usage. ``cpu=PATH`` or ``memory=PATH`` names the resource of a Prometheus result that does not say it.

    ``percentile``  of the values of a range query for CPU; of memory the largest counts

    Raises  InputError
    """
    usage = MeasuredUsage()
    for path in paths:
        resource, sign, rest = path.partition("=")
        name = rest if sign and resource in _SERIES else path
        _take_text(usage, read_file(name, _LIMIT), name, resource if sign and resource in _SERIES else "", percentile)
    if not usage.measured and not usage.advised:
        raise InputError(f"{', '.join(paths)}: no pod's usage and no recommendation found")
    return usage


def _take_text(usage: MeasuredUsage, data: bytes, where: str, resource: str, percentile: float) -> None:
    if data.lstrip()[:1] not in (b"{", b"[") and _take_top(usage, data.decode("utf-8", "replace").splitlines(), where):
        return
    for document in read_documents(data, where):
        tree = document.data
        if isinstance(tree, Mapping) and "scans" in tree:
            _take_krr(usage, tree["scans"], where)
        elif isinstance(tree, Mapping) and isinstance(tree.get("data"), Mapping) and "result" in tree["data"]:
            _take_prometheus(usage, tree["data"], where, resource, percentile)
        elif isinstance(tree, Mapping):
            _take_object(usage, tree, where)
        else:
            raise InputError(
                f"{where}: expected PodMetrics, kubectl top's table, a Prometheus result, VPA objects or KRR's JSON"
            )


def _take_object(usage: MeasuredUsage, tree: Mapping[str, Any], where: str) -> None:
    """Take an object of the API or a list of such; others than metrics and recommendations are left out."""
    kind, metadata = tree.get("kind", ""), tree.get("metadata") or {}
    for one in tree.get("items") or ():
        implied = kind.removesuffix("List")
        _take_object(usage, {"kind": implied, **one} if implied else one, where)
    at = f"{where}: {kind} {metadata.get('name', '')}"
    if kind == "PodMetrics":
        pod = f"{metadata.get('namespace', 'default')}/{metadata.get('name', '')}"
        for one in tree.get("containers") or ():
            _note(usage.measured, (pod, one.get("name", "")), _amounts(one.get("usage") or {}, at))
    elif kind == "NodeMetrics":
        _note(usage.nodes, metadata.get("name", ""), _amounts(tree.get("usage") or {}, at))
    elif kind == "VerticalPodAutoscaler":
        target = (tree.get("spec") or {}).get("targetRef") or {}
        workload = f"{metadata.get('namespace', 'default')}/{target.get('kind', '')}/{target.get('name', '')}"
        advice = (tree.get("status") or {}).get("recommendation") or {}
        for one in advice.get("containerRecommendations") or ():
            _note(usage.advised, (workload, one.get("containerName", "")), _amounts(one.get("target") or {}, at))


def _amounts(given: Mapping[str, Any], where: str) -> _Amounts:
    units: Mapping[str, Callable[[Any], int]] = {"cpu": milli_value, "memory": value}
    try:
        return {name: read(given[name]) for name, read in units.items() if name in given}
    except QuantityError as error:
        raise InputError(f"{where}: {error}") from None


def _take_top(usage: MeasuredUsage, lines: Sequence[str], where: str) -> bool:
    """Take the table of ``kubectl top pod``, with or without ``-A`` and ``--containers``; return False for another text."""
    head = lines[0].split() if lines else []
    if not any(column.startswith("CPU") for column in head):
        return False
    for number, line in enumerate(lines[1:], 2):
        row = dict(zip(head, line.split(), strict=False))
        cpu, memory = (next((text for name, text in row.items() if name.startswith(one)), "") for one in ("CPU", "MEMORY"))
        if not line.strip():
            continue
        if not cpu or not memory or not cpu[0].isdigit() or not memory[0].isdigit():
            raise InputError(f"{where}:{number}: expected kubectl top's CPU and memory, found {line.strip()[:60]!r}")
        if "NAMESPACE" not in row:
            raise InputError(f"{where}: the table has no column NAMESPACE; take it with kubectl top pod -A --containers")
        pod, container = (row["POD"], row["NAME"]) if "POD" in row else (row["NAME"], "")
        _note(usage.measured, (f"{row['NAMESPACE']}/{pod}", container), _amounts({"cpu": cpu, "memory": memory}, where))
    return True


def _take_prometheus(usage: MeasuredUsage, data: Mapping[str, Any], where: str, resource: str, percentile: float) -> None:
    """Take a vector or a matrix; each series needs the labels ``namespace`` and ``pod``, and may have ``container``."""
    for at, one in enumerate(data.get("result") or ()):
        labels = one.get("metric") or {}
        measured = resource or labels.get("resource") or _resource_of(labels.get("__name__", ""))
        if measured not in _SERIES:
            raise InputError(
                f"{where}: result[{at}] does not say whether it is cpu or memory; give cpu={where} or memory={where}"
            )
        if "namespace" not in labels or "pod" not in labels:
            raise InputError(f"{where}: result[{at}] needs the labels namespace and pod; it has {', '.join(labels) or 'none'}")
        if labels.get("container") == "POD":
            continue
        values = sorted(_numbers(one.get("values") or [one.get("value")], f"{where}: result[{at}]"))
        rank = math.ceil(len(values) * percentile / 100) if measured == "cpu" else len(values)
        amount = math.ceil(values[max(rank, 1) - 1] * (1000 if measured == "cpu" else 1) - _ROUND)
        _note(usage.measured, (f"{labels['namespace']}/{labels['pod']}", labels.get("container", "")), {measured: amount})


def _resource_of(series: str) -> str:
    return next((name for name in _SERIES if name in series), "")


def _numbers(pairs: Iterable[Any], where: str) -> Iterator[float]:
    for pair in pairs:
        try:
            number = float(pair[1])
        except (TypeError, ValueError, IndexError):
            raise InputError(f"{where}: expected [time, value] with a number, found {str(pair)[:40]!r}") from None
        if math.isfinite(number):
            yield number
        else:
            raise InputError(f"{where}: the value {pair[1]} is no amount")


def _take_krr(usage: MeasuredUsage, scans: Any, where: str) -> None:
    for at, scan in enumerate(scans if isinstance(scans, list) else ()):
        held, wanted = scan.get("object") or {}, ((scan.get("recommended") or {}).get("requests")) or {}
        if not all(held.get(name) for name in ("namespace", "kind", "name", "container")):
            raise InputError(f"{where}: scans[{at}].object needs namespace, kind, name and container")
        amounts = {}
        for name, factor in (("cpu", 1000), ("memory", 1)):
            figure = (wanted.get(name) or {}).get("value")
            if isinstance(figure, int | float) and math.isfinite(figure):
                amounts[name] = math.ceil(figure * factor - _ROUND)
        _note(usage.advised, (f"{held['namespace']}/{held['kind']}/{held['name']}", held["container"]), amounts)
