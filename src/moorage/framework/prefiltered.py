"""What PreFilter leaves behind for Filter, preemption and what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from moorage.framework.verdicts import Status
from moorage.state.pod_info import PodInfo

__all__ = ["PreFiltered"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class PreFiltered(Struct, frozen=True):
    """What PreFilter left behind: each plugin's state, who asked to be skipped, and the nodes it came down to.

    ``refused`` is set when a plugin turned the pod down; ``nodes`` is None when all nodes are to be looked at.
    """

    states: Mapping[str, Any]
    skipped: frozenset[str]
    nodes: frozenset[str] | None = None
    narrowed_by: tuple[str, ...] = ()
    refused: Status | None = None

    def state_of(self, step: _Named, pod: PodInfo) -> Any:
        """What ``filter`` receives: the plugin's PreFilter state, or the pod if it has no PreFilter."""
        return self.states.get(step.name, pod)
