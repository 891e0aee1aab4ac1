"""Restrict the pods that a report lists by namespace, labels or names. Counts remain those of the whole run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from moorage.api.selectors import EVERYTHING, Selector
from moorage.basis.printable import one_line
from moorage.report.outcome import PodOutcome, Run


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The pods to list. An empty ``namespace`` and no ``names`` mean all.

    ``names``  names, or patterns such as ``web-*``, with their namespace (``namespace/name``) or without
    """

    namespace: str = ""
    selector: Selector = EVERYTHING
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != EVERY

    def keeps(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        if self.namespace and namespace != self.namespace:
            return False
        if self.names and not any(_is_called(namespace, name, wanted) for wanted in self.names):
            return False
        return self.selector.matches(labels)

    def narrowed(self, run: Run) -> Run:
        """Return the run with only the pods to list, and the groups, volumes and devices that belong to them."""
        if not self:
            return run
        pods = tuple(pod for pod in run.pods if self.keeps(pod.namespace, pod.name, pod.labels))
        keys = {f"{pod.namespace}/{pod.name}" for pod in pods}
        spaces = {pod.namespace for pod in pods}
        return replace(
            run,
            pods=pods,
            volumes=tuple(one for one in run.volumes if keys.intersection(one.pods)),
            devices=tuple(one for one in run.devices if keys.intersection(one.pods)),
            groups=tuple(one for one in run.groups if one.namespace in spaces),
            refused=tuple(one for one in run.refused if any(self.keeps(one.namespace, name, one.labels) for name in one.names)),
        )

    def unmatched(self, pods: Iterable[PodOutcome]) -> list[str]:
        """Return the names and patterns that no pod has."""
        known = [(pod.namespace, pod.name) for pod in pods]
        return [wanted for wanted in self.names if not any(_is_called(*pod, wanted) for pod in known)]

    def __str__(self) -> str:
        parts = [
            *([f"namespace {self.namespace}"] if self.namespace else []),
            *([f"selector {self.selector}"] if self.selector != EVERYTHING else []),
            *([f"pod {', '.join(self.names)}"] if self.names else []),
        ]
        return one_line("; ".join(parts))


EVERY = Narrowing()


def _is_called(namespace: str, name: str, wanted: str) -> bool:
    return fnmatchcase(f"{namespace}/{name}" if "/" in wanted else name, wanted)
