"""The decisions in a log: when the decision on a pod was made, and what was decided."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.core import Pod
from moorage.basis.recording.frames import Dropped, Put
from moorage.basis.recording.log_reader import ClusterLog

__all__ = ["PodHistory", "decision_moment", "history_of"]

_read: Final = msgspec.json.Decoder(Pod).decode
_DAY: Final = 86_400_000_000


class PodHistory(NamedTuple):
    """What a log has of a pod up to a moment: when it came and when it was bound, 0 if it was not; and to which node."""

    came: int = 0
    bound: int = 0
    node: str = ""
    #: The time of the last record before the pod was bound.
    before: int = 0
    #: Whether the pod was bound when it was first seen.
    was_bound: bool = False

    def facts(self) -> dict[str, Any]:
        """Return the history as plain data."""
        return self._asdict()


def history_of(log: ClusterLog, key: str, until: int) -> PodHistory:
    """Return the history of a pod, read backwards as far as a day.

    Raises  InputError where the log is damaged
    """
    first, _ = log.span()
    since = max(first, until - _DAY)
    found, last = PodHistory(), since
    for (kind, name), (_, body) in log.state_at(since).objects.items():
        if kind == "Pod" and name == key:
            found = PodHistory(since, 0, _read(body).spec.node_name, since, was_bound=bool(_read(body).spec.node_name))
    for record in log.records(since, until):
        if isinstance(record, Put) and record.kind == "Pod" and record.key == key:
            node = _read(record.body).spec.node_name
            if not found.came:
                found = PodHistory(record.at, 0, node, last, was_bound=bool(node))
            elif node and not found.node:
                found = found._replace(bound=record.at, node=node, before=last)
        elif isinstance(record, Dropped) and record.kind == "Pod" and record.key == key:
            found = PodHistory()
        last = record.at
    return found


def decision_moment(log: ClusterLog, key: str, until: int) -> int:
    """Return the moment right before a pod was bound, or ``until`` if it was not, or its binding is not in the log.

    Raises  InputError where the log is damaged
    """
    found = history_of(log, key, until)
    return found.before if found.bound else until
