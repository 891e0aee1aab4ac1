"""The past of a cluster: its state at a moment, and what happened over time.

Objects contain the times of their creation and binding, so the history of existing pods is complete. Attempts, and pods that
end or are deleted, are recorded from the time when the first browser connects; sums over all pods are known from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from moorage.interfaces.web.mirror import (
    GonePod,
    Mirror,
    NodeLife,
    SeenAttempt,
    SnapshotRows,
    View,
)
from moorage.interfaces.web.rows import BOUND, PodRow

# -- replay ------------------------------------------------------------------------------------------------------------
# The cluster at a time in the past: the pods that existed then, on their nodes of that time. Nodes are those of today.

_PENDING = "pending"


def rows_at(rows: SnapshotRows, gone: Sequence[GonePod], at: float) -> SnapshotRows:
    """Return the rows at a time ``at``, in seconds since 1970, including pods that ended or were deleted later."""
    every = [*(one.row for one in gone if one.at > at), *rows.pods.values()]
    pods = {row.key: _pod_at(row, at) for row in every if row.arrived <= at}
    used: dict[str, Counter[str]] = {}
    causes: Counter[tuple[str, str]] = Counter()
    for row in pods.values():
        if row.node is None:
            causes[row.key.partition("/")[0], row.cause] += 1
        else:
            held = used.setdefault(row.node, Counter())
            held.update(row.requests)
            held["pods"] += 1
    return SnapshotRows(rows.nodes, pods, causes, rows.groups, used, rows.shapes)


def _pod_at(row: PodRow, at: float) -> PodRow:
    """Return the row of a pod at a time. The cause of its wait is only known if it is still pending."""
    if row.node is None:
        return row
    if (row.bound_at or row.arrived) <= at:
        return row if row.state == BOUND else msgspec.structs.replace(row, state=BOUND)
    return msgspec.structs.replace(row, node=None, state=_PENDING, cause="", attempts=0)


# -- timeline ----------------------------------------------------------------------------------------------------------
# The known history of the cluster: numbers of waiting pods and utilisation over time, and a lane for each pod.

#: Number of samples; and maximum number of lanes, of which pending pods come first, then the latest ones.
_SAMPLES: Final = 600
_LANES: Final = 1000
#: Marked is what so many pods do, each within this time after the one before; and at most so many of these.
_SEVERAL: Final = 4
_WHILE_S: Final = 20.0
_MARKS: Final = 40
_SHOWN: Final = ("cpu", "memory", "pods")


class TimelineRows(msgspec.Struct, frozen=True):
    """The data of a mirror at one moment."""

    pods: Sequence[PodRow]
    gone: Sequence[GonePod]
    attempts: Sequence[SeenAttempt]
    #: From when to when there is how much of each resource.
    capacity: Sequence[tuple[float, float, Mapping[str, int]]]
    nodes: Sequence[NodeLife] = ()
    #: The first moment that is known; None: when the first pod was created.
    began: float | None = None
    #: Since when all changes were seen: of earlier times only what still exists is known. None: all of the time.
    observed: float | None = None

    @classmethod
    def of(cls, mirror: Mirror) -> TimelineRows:
        capacity = [(-np.inf, np.inf, row.allocatable) for row in mirror.nodes.values()]
        nodes = [*mirror.node_lives.values(), *mirror.nodes_gone]
        return cls(
            list(mirror.pods.values()), list(mirror.gone), list(mirror.attempts), capacity, nodes, observed=mirror.observed
        )


class Past(Protocol):
    """What is known of the past of a cluster beyond its objects. ``span``: from when to when, in seconds since 1970."""

    span: tuple[float, float]

    def rows(self) -> TimelineRows: ...
    def state(self, at: float) -> SnapshotRows: ...


def timeline_document(rows: TimelineRows, now: float, view: View, span: tuple[float, float] | None = None) -> dict[str, Any]:
    """Return samples and lanes of the pods that ``view`` shows, for a time span in seconds since 1970 (default: all).

    Samples from before the observation are null: pods and nodes that are gone since then are not known.
    """
    lives = [(row, now, False) for row in rows.pods] + [(one.row, one.at, True) for one in rows.gone]
    lives = [one for one in lives if view.shows(one[0].key)]
    began = rows.began or min((row.arrived for row, _, _ in lives if row.arrived), default=now)
    first, last = span or (began, now)
    at = np.linspace(first, max(last, first + 1.0), _SAMPLES)
    met = [one for one in lives if one[0].arrived <= at[-1] and one[1] >= first]
    return {
        "apiVersion": "moorage.dev/v1", "kind": "History", "now": now, "began": began,
        "observed": rows.observed,
        "samples": _known(_samples(lives, at, rows.capacity) | _node_samples(rows.nodes, at), at, rows.observed),
        "lanes": _lanes(met, rows, view),
        "marks": _marks(met, began),
    }  # fmt: skip


def _known(samples: dict[str, Any], at: Any, observed: float | None) -> dict[str, Any]:
    """Return samples in which those from before the observation are None; the times stay."""
    unknown = 0 if observed is None else int(np.searchsorted(at, observed, side="left"))

    def cut(values: Any) -> Any:
        if isinstance(values, dict):
            return {name: cut(one) for name, one in values.items()}
        return [None] * unknown + values[unknown:]

    return {name: values if name == "at" else cut(values) for name, values in samples.items()}


def _marks(lives: Sequence[tuple[PodRow, float, bool]], began: float) -> list[dict[str, Any]]:
    """Return what many pods do at once: pods of a workload that come together, and pods that leave a node together."""
    come: dict[str, list[float]] = {}
    leave: dict[str, list[float]] = {}
    for row, end, gone in lives:
        if row.owner and row.arrived > began:
            come.setdefault(f"{row.owner} in {row.key.partition('/')[0]}", []).append(row.arrived)
        if gone and row.node is not None:
            leave.setdefault(row.node, []).append(end)
    found = [(len(at), at[0], f"{len(at)} pods of {owner} come") for owner, times in come.items() for at in _bursts(times)]
    found += [(len(at), at[0], f"{len(at)} pods leave {node}") for node, times in leave.items() for at in _bursts(times)]
    return [{"at": at, "text": text} for _, at, text in sorted(found, key=lambda one: (-one[0], one[1]))[:_MARKS]]


def _bursts(times: list[float]) -> Iterator[list[float]]:
    """Yield times that follow each other within a while, if they are several."""
    burst: list[float] = []
    for at in [*sorted(times), np.inf]:
        if burst and at - burst[-1] > _WHILE_S:
            if len(burst) >= _SEVERAL:
                yield burst
            burst = []
        burst.append(at)


def _samples(lives: Sequence[tuple[PodRow, float, bool]], at: Any, capacity: Sequence[tuple[float, float, Mapping[str, int]]]
) -> dict[str, Any]:  # fmt: skip
    arrived = np.array([row.arrived for row, _, _ in lives])
    ended = np.array([end if gone else np.inf for _, end, gone in lives])
    bound = np.array([(row.bound_at or row.arrived) if row.node else np.inf for row, _, _ in lives])
    pending = _standing(arrived, np.minimum(bound, ended), np.ones(len(lives)), at)
    there = np.array([part[0] for part in capacity]), np.array([part[1] for part in capacity])
    used = {}
    for name in _SHOWN:
        amounts = [1 if name == "pods" else row.requests.get(name, 0) for row, _, _ in lives]
        held = _standing(bound, np.maximum(bound, ended), np.array(amounts, dtype=float), at)
        offered = _standing(*there, np.array([room.get(name, 0) for _, _, room in capacity], dtype=float), at)
        used[name] = np.round(np.divide(held, offered, out=np.zeros(len(at)), where=offered > 0), 4).tolist()
    return {"at": np.round(at, 3).tolist(), "pending": pending.astype(int).tolist(), "utilisation": used}


def _node_samples(nodes: Sequence[NodeLife], at: Any) -> dict[str, Any]:
    """Return the number of nodes over time, and what they cost in an hour if prices are known."""
    born, end = (np.array([getattr(one, name) for one in nodes], dtype=float) for name in ("born", "end"))
    found = {"nodes": _standing(born, end, np.ones(len(nodes)), at).astype(int).tolist()}
    if any(one.price is not None for one in nodes):
        found["cost"] = np.round(_standing(born, end, np.array([one.price or 0.0 for one in nodes]), at), 4).tolist()
    return found


def _standing(begins: Any, ends: Any, amounts: Any, at: Any) -> Any:
    """Return, for each time in ``at``, the sum of ``amounts`` over all intervals from ``begins`` to ``ends`` around it."""
    total = np.zeros(len(at) + 1)
    np.add.at(total, np.searchsorted(at, begins, side="left"), amounts)
    np.subtract.at(total, np.searchsorted(at, ends, side="left"), amounts)
    return np.cumsum(total)[:-1]


def _lanes(lives: Sequence[tuple[PodRow, float, bool]], rows: TimelineRows, view: View) -> dict[str, Any]:
    chosen = sorted(lives, key=lambda one: (one[0].node is not None or one[2], -one[0].arrived))[:_LANES]
    attempts: dict[str, list[dict[str, Any]]] = {}
    for one in rows.attempts:
        if view.shows(one.pod):
            attempts.setdefault(one.pod, []).append({"at": one.at, "result": one.result})
    return {
        "pod": [row.key for row, _, _ in chosen],
        "owner": [row.owner for row, _, _ in chosen],
        "state": ["gone" if gone else row.state for row, _, gone in chosen],
        "arrived": [row.arrived for row, _, _ in chosen],
        "bound": [(row.bound_at or row.arrived) if row.node else None for row, _, _ in chosen],
        "gone": [end if gone else None for _, end, gone in chosen],
        "node": [row.node for row, _, _ in chosen],
        "tries": [row.attempts for row, _, _ in chosen],
        "attempts": [attempts.get(row.key, []) for row, _, _ in chosen],
    }
