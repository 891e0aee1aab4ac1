"""The known history of the cluster: numbers of waiting pods and utilisation over time, and a lane for each pod.

Objects contain the times of their creation and binding, so the history of existing pods is complete. Attempts, and pods that
end or are deleted, are recorded from the time when the first browser connects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from moorage.web.mirror import GonePod, Mirror, SeenAttempt, View
from moorage.web.rows import PodRow

__all__ = ["TimelineRows", "timeline_document"]

#: Number of samples; and maximum number of lanes, of which pending pods come first, then the latest ones.
_SAMPLES: Final = 600
_LANES: Final = 1000
_SHOWN: Final = ("cpu", "memory", "pods")


class TimelineRows(msgspec.Struct, frozen=True):
    """The data of a mirror at one moment."""

    pods: Sequence[PodRow]
    gone: Sequence[GonePod]
    attempts: Sequence[SeenAttempt]
    capacity: Mapping[str, int]

    @classmethod
    def of(cls, mirror: Mirror) -> TimelineRows:
        capacity = {name: sum(row.allocatable.get(name, 0) for row in mirror.nodes.values()) for name in _SHOWN}
        return cls(list(mirror.pods.values()), list(mirror.gone), list(mirror.attempts), capacity)


def timeline_document(rows: TimelineRows, now: float, view: View, span: tuple[float, float] | None = None) -> dict[str, Any]:
    """Return samples and lanes of the pods that ``view`` shows, for a time span in seconds since 1970 (default: all)."""
    lives = [(row, now, False) for row in rows.pods] + [(one.row, one.at, True) for one in rows.gone]
    lives = [one for one in lives if view.shows(one[0].key)]
    began = min((row.arrived for row, _, _ in lives if row.arrived), default=now)
    first, last = span or (began, now)
    at = np.linspace(first, max(last, first + 1.0), _SAMPLES)
    met = [one for one in lives if one[0].arrived <= at[-1] and one[1] >= first]
    return {
        "apiVersion": "moorage.dev/v1", "kind": "History", "now": now, "began": began,
        "samples": _samples(lives, at, rows.capacity), "lanes": _lanes(met, rows, view),
    }  # fmt: skip


def _samples(lives: Sequence[tuple[PodRow, float, bool]], at: Any, capacity: Mapping[str, int]) -> dict[str, Any]:
    arrived = np.array([row.arrived for row, _, _ in lives])
    ended = np.array([end if gone else np.inf for _, end, gone in lives])
    bound = np.array([(row.bound_at or row.arrived) if row.node else np.inf for row, _, _ in lives])
    pending = _standing(arrived, np.minimum(bound, ended), np.ones(len(lives)), at)
    used = {}
    for name in _SHOWN:
        amounts = [1 if name == "pods" else row.requests.get(name, 0) for row, _, _ in lives]
        held = _standing(bound, np.maximum(bound, ended), np.array(amounts, dtype=float), at)
        used[name] = np.round(held / capacity[name], 4).tolist() if capacity.get(name) else [0.0] * len(at)
    return {"at": np.round(at, 3).tolist(), "pending": pending.astype(int).tolist(), "utilisation": used}


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
