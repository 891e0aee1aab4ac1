"""What a pod template asks for once its pods exist: overhead, defaults of limit ranges, limits that stand for requests.

The API server sets these fields on pods, and not on the templates of jobs. So Kueue sets them on its copy of a template before
it counts quota: the overhead of the RuntimeClass, then the defaults for containers of the namespace's limit ranges, then limits
where a request is missing. A template that limit ranges refuse gets no quota.

Source  Kueue, pkg/workload/resources.go; pkg/util/limitrange
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Container, LimitRange, LimitRangeItem, PodSpec, Quantity, ResourceList
from moorage.api.pod_requests import amount as amount_of
from moorage.api.pod_requests import every_request
from moorage.api.quantity import parse
from moorage.simulator.cluster_input import ClusterInput

_ABOVE: Final = "requests must not be above the limitRange max"
_BELOW: Final = "requests must not be below the limitRange min"


class RequestDefaults:
    """The overheads and limit ranges of a cluster."""

    def __init__(self, cluster: ClusterInput) -> None:
        self._overheads: dict[str, ResourceList] = {
            one.name: one.overhead.pod_fixed for one in cluster.runtime_classes if one.overhead is not None
        }
        ranges: dict[str, list[LimitRange]] = {}
        for one in sorted(cluster.limit_ranges, key=lambda each: each.name):
            ranges.setdefault(one.namespace, []).append(one)
        self._limits = {namespace: _summary(found) for namespace, found in ranges.items()}

    def complete(self, namespace: str, spec: PodSpec) -> PodSpec:
        """Return the spec with all that its pods will ask for."""
        overhead = spec.overhead or self._overheads.get(spec.runtime_class_name or "", {})
        limits = self._limits.get(namespace, {}).get("Container", LimitRangeItem())
        containers, inits = (
            tuple(_completed(one, limits) for one in given) for given in (spec.containers, spec.init_containers)
        )
        if (overhead, containers, inits) == (spec.overhead, spec.containers, spec.init_containers):
            return spec
        return replace(spec, overhead=overhead, containers=containers, init_containers=inits)

    def faults(self, namespace: str, spec: PodSpec, path: str) -> Iterator[str]:
        """Yield what the limit ranges of the namespace refuse of a complete spec that stands at ``path``."""
        summary = self._limits.get(namespace, {})
        if (bounds := summary.get("Container")) is not None:
            for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
                for index, one in enumerate(containers):
                    asked = (one.resources.requests, one.resources.limits)
                    yield from _beyond(f"{path}.{kind}[{index}]", bounds, _merged(asked, max), _merged(asked, min))
        if (bounds := summary.get("Pod")) is not None:
            total = every_request(spec)
            yield from _beyond(path, bounds, total, total)


def _completed(container: Container, limits: LimitRangeItem) -> Container:
    given = container.resources
    most = {**limits.default, **given.limits}
    asked = {**most, **limits.default_request, **given.requests}
    if (most, asked) == (given.limits, given.requests):
        return container
    return replace(container, resources=replace(given, limits=most, requests=asked))


def _summary(ranges: Iterable[LimitRange]) -> dict[str, LimitRangeItem]:
    """Return what limit ranges say together, by type: the tightest bounds, and the first default."""
    found: dict[str, LimitRangeItem] = {}
    for item in (one for each in ranges for one in each.spec.limits):
        known = found.get(item.type, LimitRangeItem(type=item.type))
        found[item.type] = replace(
            known, default={**item.default, **known.default}, default_request={**item.default_request, **known.default_request},
            max=_tightest(known.max, item.max, lower=True), min=_tightest(known.min, item.min, lower=False),
        )  # fmt: skip
    return found


def _tightest(one: ResourceList, other: ResourceList, *, lower: bool) -> ResourceList:
    def tighter(a: Quantity, b: Quantity) -> Quantity:
        return a if (parse(a) <= parse(b)) is lower else b

    return {**one, **other, **{name: tighter(one[name], other[name]) for name in one.keys() & other.keys()}}


def _merged(lists: Iterable[ResourceList], choose: Callable[[list[int]], int]) -> dict[str, int]:
    found: dict[str, list[int]] = {}
    for each in lists:
        for name, quantity in each.items():
            found.setdefault(name, []).append(amount_of(name, quantity))
    return {name: choose(amounts) for name, amounts in found.items()}


def _beyond(path: str, bounds: LimitRangeItem, most: Mapping[str, int], least: Mapping[str, int]) -> Iterator[str]:
    above = [name for name in sorted(most) if name in bounds.max and most[name] > amount_of(name, bounds.max[name])]
    below = [name for name in sorted(least) if name in bounds.min and least[name] < amount_of(name, bounds.min[name])]
    for names, text in ((above, _ABOVE), (below, _BELOW)):
        if names:
            yield f"{path}: Invalid value: {json.dumps(names)}: {text}"
