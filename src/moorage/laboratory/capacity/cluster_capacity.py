"""``Cluster.capacity`` and ``Cluster.overview``: how many instances of a pod fit, and how full a cluster is.

What answers a question is imported when it is asked.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

from moorage.api.meta import Object
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.present import ObjectLike
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.report.answer import AnswerRequest
from moorage.report.outcome import InputNote
from moorage.simulator.simulate import Options

if TYPE_CHECKING:
    from moorage.laboratory.capacity.capacity_templates import CapacityTemplate, TemplateSource
    from moorage.laboratory.overview import Overview
    from moorage.report.capacity import Capacity

#: What writes pages stands above this layer; a notebook loads it.
_PAGES: Final = "moorage.interfaces.web.site"
_MAPS: Final = "moorage.interfaces.web.pod_routes"


class AskedCluster(Protocol):
    """The methods of a cluster that these questions need."""

    options: Options
    notes: tuple[InputNote, ...]

    @property
    def simulation(self) -> RecordedSimulation: ...
    def get(self, ref: str | Object) -> Object: ...
    def objects(self) -> list[Object]: ...
    def transaction(self) -> AbstractContextManager[Any]: ...
    def run(self, until_s: float | None = None) -> Any: ...
    def digest(self) -> str: ...


def templates_of(
    cluster: AskedCluster, given: ObjectLike | CapacityTemplate | Mapping[str, Any]
) -> tuple[tuple[CapacityTemplate, int], ...]:
    """Return the templates of a question, each with its number of pods in a unit.

    ``given``: a template in any form, or ``{name: template}`` or ``{name: (template, number)}`` for a mix.
    Raises  InputError
    """
    from moorage.laboratory.capacity.capacity_templates import CapacityTemplate, TemplateSource, read_template

    source = TemplateSource(cluster.get, cluster.objects)
    if isinstance(given, Mapping) and not {"kind", "metadata", "spec"} & set(given):
        return tuple(_part(str(name), one, source) for name, one in given.items())
    return ((given if isinstance(given, CapacityTemplate) else read_template(given, source), 1),)


def _part(name: str, given: Any, source: TemplateSource) -> tuple[CapacityTemplate, int]:
    from moorage.laboratory.capacity.capacity_templates import read_template

    template, number = given if isinstance(given, tuple | list) else (given, 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InputError(f"{name}: {number!r} pods of a template; give a whole number from 1")
    return read_template(template, source, name), number


class CapacityQuestions:
    """The methods of a cluster that say how full it is. A notebook shows a cluster as its overview, with the map."""

    def overview(
        self: AskedCluster, *, all_nodes: bool = False, by_engine: int = 3, time_limit_s: float | None = None
    ) -> Overview:
        """Return an overview of the cluster, once its pending pods have been placed. The cluster itself is unchanged.

        ``all_nodes``     count nodes that are not ready or not schedulable as well
        ``by_engine``     for how many shapes of pods the engine counts how many more fit
        ``time_limit_s``  stop counting after this time
        """
        from moorage.laboratory.overview import OverviewSetting, overview_of

        request = AnswerRequest(
            release=self.simulation.scheduler.gates.release, seeds=(self.options.seed,), digest=self.digest(),
            notes=tuple(note.text for note in self.notes), question={"report": {}},
        )  # fmt: skip
        budget = TimeBudget(time_limit_s, time.monotonic)
        return overview_of(self, request, OverviewSetting(all_nodes=all_nodes, by_engine=by_engine, budget=budget))

    def _repr_mimebundle_(self: Any, **_: Any) -> dict[str, str]:
        pages, maps = importlib.import_module(_PAGES), importlib.import_module(_MAPS)
        overview = self.overview(by_engine=0)
        page: str = pages.framed_page([overview.to_dict()], maps.snapshot_of(self, ""))
        return {"text/plain": overview.text(), "text/html": page}

    def capacity(
        self: AskedCluster,
        template: ObjectLike | Mapping[str, Any],
        limit: int = 0,
        seeds: Iterable[int] = (),
        quota: bool = True,
        *,
        pending: str = "first",
        preempt: bool = False,
        replicas: bool = False,
        gains: bool = True,
        time_limit_s: float | None = None,
    ) -> Capacity:
        """Return how many instances of a pod fit, one after the other, as kube-scheduler places them. Nothing changes.

        ``template``  a pod or a workload as struct, dict, YAML text or path, or the name of one of the cluster:
                      ``deployment/web``; for a mix, ``{"web": (template, 3), "worker": (template, 2)}``: how many units fit
        ``limit``     stop after so many; 0: no limit
        ``seeds``     count once with each seed, because ties can change the number; empty: the cluster's seed
        ``quota``     respect resource quotas
        ``pending``   ``first``: place the pending pods before; ``ignore``: leave them out
        ``preempt``   let instances evict pods of lower priority
        ``replicas``  ask whether the numbers of a mix fit once, instead of how many units fit
        ``time_limit_s``  ends the count and the search for gains: the answer has what was found; None: no limit
        ``gains``     also compute how many more would fit with one more node, or 10% more of a resource

        Raises  InputError
        """
        from moorage.laboratory.capacity.capacity import CapacityQuestion, capacity_of

        if pending not in {"first", "ignore"}:
            raise InputError(f"pending: {pending!r} is neither 'first' nor 'ignore'")
        asked = tuple(seeds) or (self.options.seed,)
        parts = templates_of(self, template)
        names = [one.name for one, _ in parts]
        request = AnswerRequest(
            release=self.simulation.scheduler.gates.release, seeds=asked, digest=self.digest(),
            notes=tuple(note.text for note in self.notes), question={"capacity": names},
        )  # fmt: skip
        what = CapacityQuestion(
            parts,
            replicas=replicas,
            limit=limit,
            seeds=asked,
            pending=pending == "first",
            preempt=preempt,
            gains=gains,
            quota=quota,
            budget=TimeBudget(time_limit_s, time.monotonic),
        )
        return capacity_of(self, request, what)
