"""The arrivals of a trace as columns: many pods share few templates and differ in name.

A pod is created when it is read, so that a million arrivals take some 80 MB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from moorage.api.core import Pod, PodSpec, PodStatus
from moorage.api.meta import ObjectMeta
from moorage.cluster.controllers.machinery.object_fields import stable_uid

__all__ = ["Arrival", "ArrivalColumns", "PodTemplate"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_PENDING: Final = PodStatus(phase="Pending")
_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that arrives ``time_s`` seconds after the start and runs ``duration_s`` seconds once placed (None: forever)."""

    time_s: float
    pod: Pod
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod of a trace without its name and the values of its labels ``own``; many pods share a template."""

    spec: PodSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    namespace: str = _NAMESPACE
    own: tuple[str, ...] = ()

    def pod(self, name: str, own: str = "") -> Pod:
        """Return a pod of this template with this name.

        ``own`` has the values of its own labels, separated by newlines; the pod lacks labels with an empty value.
        """
        labels = dict(self.labels)
        if own:
            labels.update((key, value) for key, value in zip(self.own, own.split("\n"), strict=True) if value)
        metadata = ObjectMeta(
            name=name, namespace=self.namespace, uid=stable_uid("Pod", self.namespace, name), labels=labels,
            annotations=dict(self.annotations),
        )  # fmt: skip
        return Pod(metadata=metadata, spec=self.spec, status=_PENDING)


@dataclass(frozen=True, eq=False)
class ArrivalColumns(Sequence[Arrival]):
    """Arrivals as columns, by time.

    ``names``, ``shape_of``  the name and the template's index of each row of the files
    ``labels``               the values of each row's own labels, as ``PodTemplate.pod`` takes them; empty if no row has any
    ``row``, ``copy``        the row of each arrival, and the number of the copy: 0 for the pod itself
    ``duration_s``           NaN for pods that never end
    """

    templates: tuple[PodTemplate, ...]
    names: Sequence[str]
    shape_of: Ints
    row: Ints
    copy: Ints
    time_s: Floats
    duration_s: Floats
    labels: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, at: int) -> Arrival: ...
    @overload
    def __getitem__(self, at: slice) -> ArrivalColumns: ...
    def __getitem__(self, at: int | slice) -> Arrival | ArrivalColumns:
        if isinstance(at, slice):
            return self.at(np.arange(len(self))[at])
        if not -len(self) <= at < len(self):
            raise IndexError(f"arrival {at} of {len(self)}")
        row, copy, duration = int(self.row[at]), int(self.copy[at]), float(self.duration_s[at])
        name = f"{self.names[row]}.copy-{copy}" if copy else self.names[row]
        pod = self.templates[int(self.shape_of[row])].pod(name, self.labels[row] if self.labels else "")
        return Arrival(float(self.time_s[at]), pod, None if math.isnan(duration) else duration)

    def __iter__(self) -> Iterator[Arrival]:
        return (self[at] for at in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def at(self, which: Ints) -> ArrivalColumns:
        """Return the arrivals at these indexes, in this order."""
        return replace(
            self, row=self.row[which], copy=self.copy[which], time_s=self.time_s[which], duration_s=self.duration_s[which]
        )

    @property
    def shapes(self) -> Ints:
        """The index in ``templates`` of each arrival's template."""
        return self.shape_of[self.row]
