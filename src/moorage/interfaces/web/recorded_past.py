"""The past of a cluster as a log of ``moorage record`` has it: its pods and nodes over time, and its state at any moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.basis.recording.log_reader import ClusterLog, LogChange, log_of
from moorage.errors import InputError
from moorage.interfaces.web.history import TimelineRows
from moorage.interfaces.web.mirror import Mirror, PriceOf, SnapshotRows
from moorage.interfaces.web.question_arguments import RUN, TYPES
from moorage.interfaces.web.rows import PodRow, pod_row

_node: Final = msgspec.json.Decoder(Node).decode
_pod: Final = msgspec.json.Decoder(Pod).decode
#: How many pods that are gone are kept: those of a day of a large cluster.
_MOST_GONE: Final = 500_000


class RecordedPast:
    """The part of a log that ends at a moment, in microseconds since 1970.

    ``span``: its first and its last moment, in seconds since 1970; ``price_of`` says what a node costs
    """

    def __init__(self, log: ClusterLog, until: int, price_of: PriceOf | None = None) -> None:
        self._log, self._first, self._last, self._price_of = log, log.span()[0], until, price_of
        self.span = self._first / 1e6, until / 1e6
        self._reading = Lock()
        self._rows: TimelineRows | None = None

    def state(self, at: float) -> SnapshotRows:
        """Return the nodes and pods at a time.

        Raises  InputError if the log is damaged there
        """
        moment = min(max(round(at * 1e6), self._first), self._last)
        mirror = Mirror()
        for (kind, _), (_, body) in self._log.state_at(moment).objects.items():
            if kind == "Node":
                mirror.put_node(_node(body))
            elif kind == "Pod":
                mirror.put_pod(pod_row(_pod(body)), at)
        mirror.refresh()
        mirror.learn_shapes()
        return SnapshotRows.of(mirror)

    def rows(self) -> TimelineRows:
        """Return all pods and nodes of the time, which are read once.

        Raises  InputError if the log is damaged
        """
        with self._reading:
            self._rows = self._rows or self._read()
            return self._rows

    def read_ahead(self) -> None:
        """Read the time before anyone asks for it."""
        with suppress(InputError, OSError):
            self.rows()

    def _read(self) -> TimelineRows:
        mirror = Mirror()
        mirror.gone, mirror.price_of = deque(maxlen=_MOST_GONE), self._price_of
        #: What each node offers now, and since when; and what nodes offered from when to when.
        nodes: dict[str, tuple[float, Mapping[str, int]]] = {}
        offered: list[tuple[float, float, Mapping[str, int]]] = []
        state = self._log.state_at(self._first).objects
        listed = (LogChange(self._first, *key, None, body) for key, (_, body) in state.items())
        for one in chain(listed, self._log.changes_between(self._first, self._last)):
            at = one.at / 1e6
            if one.kind == "Node":
                if one.after is None:
                    mirror.drop_node(one.key, at)
                else:
                    mirror.put_node(_node(one.after))
                amounts = None if one.after is None else mirror.nodes[one.key].allocatable
                since, before = nodes.get(one.key, (at, None))
                if before is not None and before != amounts:
                    offered.append((since, at, before))
                    del nodes[one.key]
                if amounts is not None:
                    nodes.setdefault(one.key, (at, amounts))
            elif one.kind == "Pod" and one.after is None:
                mirror.drop_pod(one.key, at)
            elif one.kind == "Pod" and one.after is not None:
                waited = mirror.pods.get(one.key)
                if waited is None or waited.node is None:  # later changes of a pod are no news here
                    mirror.put_pod(_timed(pod_row(_pod(one.after)), waited, at, is_listed=one.at == self._first), at)
        offered += ((since, float("inf"), amounts) for since, amounts in nodes.values())
        return replace(TimelineRows.of(mirror), capacity=offered, began=self.span[0])


def run_in(folder: Path, price_of: PriceOf | None) -> RecordedPast | None:
    """Return the run that a question recorded in its folder. Nodes cost what instance types that came with it say."""
    from moorage.simulator.autoscalers.instance_types import read_price_list  # rarely needed

    found, types = log_of(str(folder / RUN)), folder / TYPES
    prices = read_price_list(str(types)).price_of if types.exists() else price_of
    return None if found is None else RecordedPast(*found, prices)


def _timed(pod: PodRow, waited: PodRow | None, at: float, *, is_listed: bool) -> PodRow:
    """Return a pod with the times of the log, as those in objects are whole seconds; ``waited``: the pod before."""
    came = waited.arrived if waited is not None else pod.arrived if is_listed else at
    return replace(pod, arrived=came, bound_at=pod.bound_at if is_listed or pod.node is None else at)
