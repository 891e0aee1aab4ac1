"""The results of PreFilter, which Filter, preemption and what-ifs use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from moorage.framework.verdicts import Status
from moorage.state.pod_info import PodInfo

__all__ = ["PreFiltered"]


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


class PreFiltered(Struct, frozen=True):
    """The results of PreFilter: each plugin's state, the plugins that returned ``SKIP``, and the nodes that remain.

    ``refused`` is set when a plugin rejected the pod; ``nodes`` is None when no plugin narrowed the nodes.
    ``narrowing_rejects``: the plugins that narrowed the nodes count as plugins that rejected the pod.
    """

    states: Mapping[str, Any]
    skipped: frozenset[str]
    nodes: frozenset[str] | None = None
    narrowed_by: tuple[str, ...] = ()
    refused: Status | None = None
    narrowing_rejects: bool = True

    def state_of(self, step: _HasName, pod: PodInfo) -> Any:
        """Return what ``filter`` receives: the plugin's PreFilter state, or the pod if it has no PreFilter."""
        return self.states.get(step.name, pod)
