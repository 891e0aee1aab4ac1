"""The cluster that questions ask, and the request that their answers repeat.

``AskedCluster`` is what questions need of ``Cluster``, which stands above them: it has their answers as methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from moorage.api.core import Object, Pod
from moorage.core.config.scheduler_document import Loaded
from moorage.framework.changes import Change
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.inventory import PresentObjects
from moorage.laboratory.placements import PodPlacement
from moorage.report.answer import AnswerRequest
from moorage.report.outcome import InputNote, Run
from moorage.simulator.simulate import Options

if TYPE_CHECKING:
    from moorage.laboratory.trial.history import History, Step
    from moorage.laboratory.trial.recorded_simulation import RecordedSimulation


class AskedCluster(Protocol):
    """The methods of a cluster that questions need; ``Cluster`` describes them."""

    options: Options
    notes: tuple[InputNote, ...]
    _aside: Mapping[str, Object]
    _history: History

    @property
    def simulation(self) -> RecordedSimulation: ...
    @property
    def loaded(self) -> Loaded: ...
    def digest(self) -> str: ...
    def get(self, ref: str | Object) -> Object: ...
    def pod(self, ref: str | Pod) -> Pod: ...
    def objects(self) -> list[Object]: ...
    def present(self) -> PresentObjects: ...
    def transaction(self) -> AbstractContextManager[Any]: ...
    def within(self, budget: TimeBudget) -> AbstractContextManager[None]: ...
    def apply(self, *changes: Change) -> None: ...
    def run(self, until_s: float | None = None) -> Run: ...
    def schedule(
        self, pods: Iterable[str | Pod] | None = None, *, nodes: Sequence[str] | None = None, dry_run: bool = False
    ) -> list[PodPlacement]: ...
    def _step(self, step: Step) -> None: ...


def request_of(cluster: AskedCluster, question: Mapping[str, Any], seeds: tuple[int, ...] = ()) -> AnswerRequest:
    """Return the request for an answer about a cluster as it is; ``seeds``: those that count, if not the cluster's own."""
    return AnswerRequest(
        release=cluster.simulation.scheduler.gates.release,
        seeds=seeds or (cluster.options.seed,),
        digest=cluster.digest(),
        notes=tuple(note.text for note in cluster.notes),
        question=question,
    )
