"""The values of a capacity: how many instances of a pod fit, where, and what stops the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from moorage.report.answer import Answer, plain

__all__ = ["CapacityGain", "CapacityGroup", "CapacityPart", "CapacityValues", "StopReason"]


class StopReason(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A reason why nodes take no further instance. ``resource`` is the one that is exhausted, if any.

    ``nodes``  the number of nodes with this reason; ``detail`` describes what was found on the first of them
    """

    plugin: str
    reason: str
    nodes: int = 0
    resource: str = ""
    detail: str = ""


class CapacityGroup(Struct, frozen=True, rename="camel"):
    """Nodes of one group with the same result.

    ``each``      the number of instances on each node, the largest first
    ``left``      the least and the largest free amount on a node, by resource
    ``eligible``  whether these nodes take instances at all
    """

    group: str
    nodes: tuple[str, ...]
    instances: int
    each: tuple[int, ...]
    left: Mapping[str, tuple[int, int]]
    stopped_by: tuple[StopReason, ...]
    eligible: bool


class CapacityGain(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The gain of a change: ``node`` (one more of a group), ``resource`` (10% more on every node) or ``uncordon``.

    ``more``   instances gained
    ``proof``  ``run`` or ``bound``
    """

    change: str
    more: int
    group: str = ""
    resource: str = ""
    nodes: tuple[str, ...] = ()
    proof: str = "run"


class CapacityPart(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One template: ``per_unit`` of its pods are in a unit. ``asked`` pods were to fit, and ``left_over`` of them do not."""

    template: str
    kind: str
    requests: Mapping[str, int]
    placed: int
    per_unit: int
    asked: int | None = None
    left_over: int | None = None


class CapacityValues(Answer, frozen=True, kw_only=True):
    """The values of the answer.

    ``instances``     how many fit; for a mix, how many whole units
    ``per_node``      pods placed, by node
    ``fail_type``     Unschedulable, LimitReached or Quota; Stopped if the count ended early, so that more may fit
    ``message``       the event of the pod that found no node
    ``upper_bound``   the most that fit, however nodes are chosen; None if there is no bound, for the reason ``no_bound``
    ``binding``       why the next instance does not fit on nodes that took the first one
    ``exhausted``     the resources that are too short for one more instance, by node
    ``stranded``      the free amount on eligible nodes that no instance can use, by resource
    ``per_seed``      instances by seed
    ``blocked_by``    the pod that found no node; ``unplaced`` the pods of the unit that was rolled back
    ``preempted``     pods that were evicted for instances
    ``skipped_gains`` why some gains were not computed
    """

    KIND = "Capacity"

    parts: tuple[CapacityPart, ...]
    instances: int
    per_node: Mapping[str, int]
    fail_type: str
    message: str = ""
    per_group: tuple[CapacityGroup, ...] = ()
    upper_bound: int | None = None
    no_bound: str = ""
    binding: tuple[StopReason, ...] = ()
    gains: tuple[CapacityGain, ...] = ()
    exhausted: Mapping[str, tuple[str, ...]] = {}
    stranded: Mapping[str, int] = {}
    per_seed: Mapping[str, int] = {}
    blocked_by: str = ""
    unplaced: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    skipped_gains: str = ""
    pending: tuple[str, ...] = ()

    @property
    def holds(self) -> bool | None:
        """Whether all pods that were asked for fit, or at least one instance; None if that is not known."""
        if any(part.asked is not None for part in self.parts):
            if not any(part.left_over for part in self.parts):
                return True
            return None if self.fail_type == "Stopped" else False
        return self.instances > 0

    def _answer(self) -> dict[str, Any]:
        counts = list(self.per_seed.values())
        return {
            "instances": self.instances,
            "perNode": dict(self.per_node),
            "perGroup": plain(self.per_group),
            "failType": self.fail_type,
            "message": self.message,
            "upperBound": self.upper_bound,
            "binding": plain(self.binding),
            "gains": plain(self.gains),
            "templates": plain(self.parts),
            "exhausted": plain(self.exhausted),
            "stranded": dict(self.stranded),
            "bySeed": {"min": min(counts), "max": max(counts), "instances": dict(self.per_seed)} if counts else {},
            "blockedBy": self.blocked_by,
            "unplaced": list(self.unplaced),
            "preempted": list(self.preempted),
        }
