"""The setup of the scheduler: profiles with their plugins and weights, feature gates, and how long plugins took.

Where no scheduler runs, the document has only the notes about the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from moorage.core.engine.scheduler import Scheduler
from moorage.framework.profile import Profile
from moorage.interfaces.web.site import Site, Visitor, json_response

#: Returns how long plugins took, as documents with ``plugin``, ``extensionPoint``, ``calls`` and ``seconds``.
Measured = Callable[[], Sequence[Mapping[str, Any]]]


def setup_document(scheduler: Scheduler | None, notes: Sequence[str], measured: Measured = list) -> dict[str, Any]:
    """Return the document of a scheduler's setup; with None, only the notes."""
    head: dict[str, Any] = {"apiVersion": "moorage.dev/v1", "kind": "Setup", "notes": list(notes)}
    if scheduler is None:
        return {**head, "scheduler": False, "profiles": [], "featureGates": [], "metrics": []}
    gates = scheduler.gates
    return {
        **head,
        "scheduler": True,
        "release": gates.release,
        "seed": scheduler.cycle.seed,
        "percentageOfNodesToScore": scheduler.cycle.percentage_of_nodes_to_score,
        "profiles": [_profile(profile) for profile in scheduler.profiles.values()],
        "featureGates": [{"name": name, "enabled": gates[name]} for name in gates.names],
        "metrics": list(measured()),
    }


def _profile(profile: Profile) -> dict[str, Any]:
    points = {point: [step.name for step in steps] for point, steps in profile.steps.items() if steps}
    return {
        "schedulerName": profile.scheduler_name,
        "percentageOfNodesToScore": profile.percentage_of_nodes_to_score,
        "points": points,
        "weights": {name: profile.weights.get(name, 1) for name in points.get("score", [])},
    }


class SetupRoute:
    """Adds the route to a site."""

    def __init__(
        self, site: Site, scheduler: Scheduler | None, notes: Sequence[str], measured: Measured = list,
        recorded: Measured = list,
    ) -> None:  # fmt: skip
        self.scheduler, self._notes, self._measured, self._recorded = scheduler, notes, measured, recorded
        site.route("GET", "/lab/v1/setup", self._setup)

    async def _setup(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        await visitor.check("list", "nodes")
        document = setup_document(self.scheduler, self._notes, self._measured)
        return json_response({**document, "recordings": list(self._recorded())})
