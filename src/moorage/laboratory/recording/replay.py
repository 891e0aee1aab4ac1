"""Replay a part of a log: what came, ended and changed then, comes, ends and changes again, and Moorage places the pods.

The cluster begins as it was. Pods come when they came, without the node that they were given, unless they had one from the
start, as pods of daemons may. A pod that ended by itself runs as long as it did; one that was deleted is deleted when it was.
Nodes and other objects change when they did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from moorage.api.core import Node, Pod, PodStatus
from moorage.api.kinds import KINDS
from moorage.api.meta import Object
from moorage.basis.printable import counted
from moorage.basis.recording.frames import Dropped, Mark, Put, Record, Touched
from moorage.basis.recording.log_reader import ClusterLog, LogState, moment_text
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.report.outcome import InputNote, Run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import input_notes, objects_of, workload_names
from moorage.simulator.outcome import collect
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedAttempt, SimulatedCluster

__all__ = ["decision_moment", "history_of", "replay"]


_DECODERS: Final = {kind.name: msgspec.json.Decoder(kind.type).decode for kind in KINDS}


class _Replay:
    """Turns the records of a log into events of a simulation. ``counts``: how many of each sort."""

    def __init__(self, simulation: SimulatedCluster, start: int, before: LogState) -> None:
        self._simulation, self._start = simulation, start
        self._known: dict[tuple[str, str], Object] = {}
        #: When each pod was bound in the log, in simulated seconds, by UID; and to which node.
        self._bound: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        for (kind, key), (_, body) in before.objects.items():
            self._known[kind, key] = _DECODERS[kind](body)

    def take(self, record: Record) -> None:
        """Schedule the event of a record."""
        if isinstance(record, Mark | Touched):
            return
        at, key = (record.at - self._start) / 1e6, (record.kind, record.key)
        known = self._known.pop(key, None)
        if isinstance(record, Dropped):
            self._gone(known, at)
            return
        obj: Any = _DECODERS[record.kind](record.body)
        self._known[key] = obj
        if not isinstance(obj, Pod):
            self.counts["node" if record.kind == "Node" else "other"] += 1
            self._simulation.at(at, Seen(obj))
        else:
            self._pod(obj, known if isinstance(known, Pod) else None, at)

    def _gone(self, known: Object | None, at: float) -> None:
        if not isinstance(known, Pod):
            if known is not None:
                self.counts["node" if isinstance(known, Node) else "other"] += 1
                self._simulation.at(at, Gone(known))
            return
        uid = known.metadata.uid
        if self._ended_by_itself(known):
            self.counts["ended"] += 1
            self._simulation.durations[uid] = at - self._bound[uid]
        else:
            self.counts["deleted"] += 1
            self._simulation.at(at, Gone(known))

    def _ended_by_itself(self, pod: Pod) -> bool:
        """Return whether a pod that is gone ran to its end: a recorder watches only pods that have not ended."""
        return (
            pod.metadata.deletion_timestamp is None and pod.metadata.uid in self._bound and pod.spec.restart_policy != "Always"
        )

    def _pod(self, pod: Pod, known: Pod | None, at: float) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if known is not None and known.metadata.uid != uid:
            self._gone(known, at)
            known = None
        if known is None:
            self.counts["came"] += 1
            self._simulation.at(at, Seen(pod if node else _waiting(pod)))
            return
        if node and not known.spec.node_name:
            self._bound[uid], self.nodes[uid] = at, node
        elif not node and pod.spec != known.spec:  # such as scheduling gates that are removed
            self._simulation.at(at, Seen(_waiting(pod)))


def _waiting(pod: Pod) -> Pod:
    return replace(pod, status=PodStatus(phase="Pending"))


def replay(
    log: ClusterLog, start: int, end: int, cluster: ClusterInput, options: Options,
    on_attempt: Callable[[SimulatedAttempt], None] | None = None,
) -> Run:  # fmt: skip
    """Simulate what happened from one moment to another. ``cluster``: the input at the first.

    Raises  InputError if the end is not after the start, or the log is damaged between them
    """
    if end <= start:
        raise InputError(f"--to {moment_text(end)} is not after --from {moment_text(start)}")
    simulation, notes = prepare(options, on_attempt)
    simulation.load(objects_of(cluster))
    events = _Replay(simulation, start, log.state_at(start))
    for record in log.records(start, end):
        events.take(record)
    simulation.run((end - start) / 1e6)
    pods = [record.pod for record in simulation.records.values()]
    about = [InputNote("Remark", text) for text in _remarks(events, simulation, start, end)]
    return collect(
        simulation, simulation.scheduler.gates.release, notes=[*about, *input_notes(cluster), *notes],
        workloads=workload_names(cluster, pods),
    )  # fmt: skip


def _remarks(events: _Replay, simulation: SimulatedCluster, start: int, end: int) -> list[str]:
    """Return what was replayed, and how many pods went where they really went."""
    found = events.counts
    parts = [
        f"{counted(found['came'], 'pod')} came", f"{found['ended']:,} ended", f"{found['deleted']:,} were deleted",
        f"{counted(found['node'], 'change')} of nodes",
    ]  # fmt: skip
    text = f"replayed {moment_text(start)} to {moment_text(end)}: {', '.join(parts)}"
    records = simulation.records
    placed = [(records[uid].node, node) for uid, node in events.nodes.items() if uid in records]
    same = sum(1 for ours, theirs in placed if ours == theirs)
    pending = sum(1 for ours, _ in placed if not ours)
    if not placed:
        return [text]
    return [
        text,
        f"of {counted(len(placed), 'pod')} that were bound then, {same:,} went to the same node; {pending:,} stayed pending",
    ]


# -- decisions ---------------------------------------------------------------------------------------------------------
# The decisions in a log: when the decision on a pod was made, and what was decided.

_read: Final = msgspec.json.Decoder(Pod).decode
_DAY: Final = 86_400_000_000


class PodHistory(NamedTuple):
    """What a log has of a pod up to a moment: when it came and when it was bound, 0 if it was not; and to which node."""

    came: int = 0
    bound: int = 0
    node: str = ""
    #: The time of the last record before the pod was bound.
    before: int = 0


def history_of(log: ClusterLog, key: str, until: int) -> PodHistory:
    """Return the history of a pod, read backwards as far as a day.

    Raises  InputError where the log is damaged
    """
    first, _ = log.span()
    since = max(first, until - _DAY)
    found, last = PodHistory(), since
    for (kind, name), (_, body) in log.state_at(since).objects.items():
        if kind == "Pod" and name == key:
            found = PodHistory(since, 0, _read(body).spec.node_name, since)
    for record in log.records(since, until):
        if isinstance(record, Put) and record.kind == "Pod" and record.key == key:
            node = _read(record.body).spec.node_name
            if not found.came:
                found = PodHistory(record.at, 0, node, last)
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
