"""What came of trying pods: where each one went, or why not; and where one could go."""

from __future__ import annotations

from msgspec import Struct

from moorage.laboratory.frames import ColumnFrame

__all__ = ["Feasibility", "PodPlacement"]


class PodPlacement(Struct, frozen=True):
    """The outcome of one attempt for one pod.

    ``node``       where the pod was placed; None if it was not
    ``message``    why it was not placed, in the words of kube-scheduler's event
    ``nominated``  the node that was nominated for it, where it waits for victims to leave
    ``victims``    the pods that are evicted for it, as ``namespace/name``
    ``feasible``   how many nodes it fitted on; ``evaluated`` how many were looked at
    """

    pod: str
    node: str | None = None
    message: str = ""
    nominated: str = ""
    victims: tuple[str, ...] = ()
    feasible: int = 0
    evaluated: int = 0

    def __bool__(self) -> bool:
        return self.node is not None


class Feasibility(Struct, frozen=True):
    """Where one pod could go now. ``message`` is empty if it fits somewhere.

    ``nodes``     the names of the nodes that no Filter plugin refuses
    ``verdicts``  one row for each refusal: ``node``, ``plugin``, ``reason``, and whether eviction could resolve it
    """

    pod: str
    nodes: list[str]
    verdicts: ColumnFrame
    message: str = ""

    def __bool__(self) -> bool:
        return bool(self.nodes)
