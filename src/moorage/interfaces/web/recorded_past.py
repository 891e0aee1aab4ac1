"""The past of a cluster as a log of ``moorage record`` has it: its pods and nodes over time, and its state at any moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.basis.recording.log_reader import ClusterLog
from moorage.errors import InputError
from moorage.interfaces.web.hub import TimelineRows
from moorage.interfaces.web.mirror import Mirror, SnapshotRows
from moorage.interfaces.web.rows import node_row, pod_row

__all__ = ["RecordedPast"]

_DECODERS: Final[Mapping[str, Any]] = {"Node": msgspec.json.Decoder(Node).decode, "Pod": msgspec.json.Decoder(Pod).decode}
#: How many pods that are gone are kept: those of a day of a large cluster.
_MOST_GONE: Final = 500_000


class RecordedPast:
    """The part of a log that ends at a moment, in microseconds since 1970. It is read in another thread when it is asked for.

    ``span``: its first and its last moment, in seconds since 1970
    """

    def __init__(self, log: ClusterLog, until: int) -> None:
        self._log, self._first, self._last = log, log.span()[0], until
        self.span = self._first / 1e6, until / 1e6
        self._reading = Lock()
        self._rows: TimelineRows | None = None
        self._mirror = Mirror()
        #: The nodes that there are, each with the time since when it offers what; and those of before, with its end.
        self._nodes: dict[str, tuple[float, Mapping[str, int]]] = {}
        self._offered: list[tuple[float, float, Mapping[str, int]]] = []

    # -- a moment ------------------------------------------------------------------------------------------------------

    def state(self, at: float) -> SnapshotRows:
        """Return the nodes and pods at a time.

        Raises  InputError if the log is damaged there
        """
        moment = min(max(round(at * 1e6), self._first), self._last)
        mirror = Mirror()
        for (kind, _), (_, body) in self._log.state_at(moment).objects.items():
            if kind == "Node":
                mirror.put_node(_DECODERS[kind](body))
            elif kind == "Pod":
                mirror.put_pod(pod_row(_DECODERS[kind](body)), at)
        mirror.refresh()
        mirror.learn_shapes()
        return SnapshotRows.of(mirror)

    # -- the whole time ------------------------------------------------------------------------------------------------

    def rows(self) -> TimelineRows:
        """Return all pods and nodes of the time, which are read once.

        Raises  InputError if the log is damaged
        """
        with self._reading:
            if self._rows is None:
                self._mirror, self._nodes, self._offered = Mirror(), {}, []
                self._mirror.gone = deque(maxlen=_MOST_GONE)
                self._read()
                offered = [*self._offered, *((since, float("inf"), held) for since, held in self._nodes.values())]
                mirror, began = self._mirror, self.span[0]
                self._rows = TimelineRows(list(mirror.pods.values()), list(mirror.gone), list(mirror.attempts), offered, began)
            return self._rows

    def read_ahead(self) -> None:
        """Read the time before anyone asks for it."""
        with suppress(InputError, OSError):
            self.rows()

    def _read(self) -> None:
        for (kind, key), (_, body) in self._log.state_at(self._first).objects.items():
            self._put(kind, key, body, self.span[0], is_listed=True)
        for one in self._log.changes_between(self._first, self._last):
            if one.after is None:
                self._drop(one.kind, one.key, one.at / 1e6)
            else:
                self._put(one.kind, one.key, one.after, one.at / 1e6)

    def _put(self, kind: str, key: str, body: bytes, at: float, *, is_listed: bool = False) -> None:
        if kind == "Node":
            row, known = node_row(_DECODERS[kind](body)), self._nodes.get(key)
            if known is None or known[1] != row.allocatable:
                self._drop(kind, key, at)
                self._nodes[key] = at, row.allocatable
        elif kind == "Pod":
            waited = self._mirror.pods.get(key)
            if waited is None or waited.node is None:  # later changes of a pod are no news here
                pod = pod_row(_DECODERS[kind](body))
                came = pod.arrived if is_listed else at  # the times in objects are whole seconds
                bound = at if waited is not None and pod.node is not None else pod.bound_at
                self._mirror.put_pod(replace(pod, arrived=came if waited is None else waited.arrived, bound_at=bound), at)

    def _drop(self, kind: str, key: str, at: float) -> None:
        if kind == "Pod":
            self._mirror.drop_pod(key, at)
        elif kind == "Node" and key in self._nodes:
            since, held = self._nodes.pop(key)
            self._offered.append((since, at, held))
