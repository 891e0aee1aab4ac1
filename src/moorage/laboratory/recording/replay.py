"""Replay a part of a log: what came, ended and changed then, comes, ends and changes again, and Moorage places the pods.

The cluster begins as it was. Pods come when they came, without the node that they were given, unless they had one from the
start, as pods of daemons may. A pod that ended by itself runs as long as it did; one that was deleted is deleted when it was.
Nodes and other objects change when they did. Quotas of the input hold, and an autoscaler may take part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import Pod, PodStatus
from moorage.api.kinds import KINDS
from moorage.basis.printable import counted
from moorage.basis.recording.log_reader import ClusterLog, moment_text
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.report.outcome import InputNote, Run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import input_notes
from moorage.simulator.outcome_collector import refused_outcomes
from moorage.simulator.pod_creation import NotCreated
from moorage.simulator.pod_records import SimulatedAttempt, in_turn
from moorage.simulator.quotas import QuotaLedger
from moorage.simulator.simulate import Options
from moorage.simulator.simulation import SimulatedCluster

_DECODERS: Final[Mapping[str, Any]] = {kind.name: msgspec.json.Decoder(kind.type).decode for kind in KINDS}


class LogEvents:
    """The records of a part of a log as events of a simulation, which begins with the cluster at its start.

    ``cluster``: the input at its start. Pods for which its quotas have no room are created when other pods have ended.
    Raises  InputError if the end is not after the start
    """

    def __init__(self, log: ClusterLog, start: int, end: int, cluster: ClusterInput, options: Options) -> None:
        if end <= start:
            raise InputError(f"--to {moment_text(end)} is not after --from {moment_text(start)}")
        self._log, self._start, self._end = log, start, end
        self._quotas = QuotaLedger.of(cluster if options.quota else ClusterInput())
        self.seconds = (end - start) / 1e6
        #: When each pod was bound in the log, in simulated seconds, by UID; and to which node.
        self._bound: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        #: Pods that quotas refuse now, by UID, in the order in which they came.
        self._refused: dict[str, NotCreated] = {}
        self._engine: SimulatedCluster

    def start(self, simulation: Simulation) -> None:
        """Schedule all events.

        Raises  InputError if the log is damaged between the two moments
        """
        self._engine = engine = simulation.engine
        if self._quotas:
            engine.on_end = in_turn(engine.on_end, lambda record: self._free(record.pod))
        for one in self._log.changes_between(self._start, self._end):
            decode = _DECODERS.get(one.kind)
            if decode is None:
                continue  # what is recorded beside the kinds of the scheduler
            at = (one.at - self._start) / 1e6
            before: Any = None if one.before is None else decode(one.before)
            after: Any = None if one.after is None else decode(one.after)
            if one.kind != "Pod":
                self.counts["node" if one.kind == "Node" else "other"] += 1
                self._engine.at(at, Gone(before) if after is None else Seen(after))
            elif after is None:
                self._gone(before, at)
            else:
                self._pod(after, before, at)

    def _gone(self, known: Pod, at: float) -> None:
        uid = known.metadata.uid
        may_end = known.metadata.deletion_timestamp is None and known.spec.restart_policy != "Always"
        if may_end and uid in self._bound:  # a recorder watches only pods that have not ended
            self.counts["ended"] += 1
            self._engine.durations[uid] = at - self._bound[uid]
        else:
            self.counts["deleted"] += 1
            self._engine.at(at, partial(self._delete, known))

    def _pod(self, pod: Pod, known: Pod | None, at: float) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if known is not None and known.metadata.uid != uid:
            self._gone(known, at)
            known = None
        if known is None:
            self.counts["came"] += 1
            self._engine.at(at, Seen(pod) if node else partial(self._create, pod))
        elif node and not known.spec.node_name:
            self._bound[uid], self.nodes[uid] = at, node
        elif not node and pod.spec != known.spec:  # such as scheduling gates that are removed
            self._engine.at(at, partial(self._create, pod))

    # -- quotas --------------------------------------------------------------------------------------------------------

    def _create(self, pod: Pod) -> None:
        """Create a pod, or change one that is there, unless a quota refuses it."""
        uid = pod.metadata.uid
        refused = self._quotas.charge(pod) if self._quotas and uid not in self._engine.records else None
        if refused is None:
            self._refused.pop(uid, None)
            self._engine.at(self._engine.now, Seen(replace(pod, status=PodStatus(phase="Pending"))))
        else:
            self.counts["refused"] += uid not in self._refused
            self._refused[uid] = NotCreated(pod, refused)

    def _delete(self, pod: Pod) -> None:
        if self._refused.pop(pod.metadata.uid, None) is None:
            self._engine.at(self._engine.now, Gone(pod))
            if self._quotas and pod.metadata.uid not in self._engine.records:  # it was there from the start
                self._free(pod)

    def _free(self, ended: Pod) -> None:
        self._quotas.release(ended)
        for one in [one for one in self._refused.values() if one.pod.namespace == ended.namespace]:
            self._create(one.pod)

    # -- notes ---------------------------------------------------------------------------------------------------------

    def completed(self, run: Run) -> Run:
        """Return the run with what was replayed, how many pods went where they really went, and the pods that quotas refuse."""
        found, records = self.counts, self._engine.records
        parts = [
            f"{counted(found['came'], 'pod')} came", f"{found['ended']:,} ended", f"{found['deleted']:,} were deleted",
            f"{counted(found['node'], 'change')} of nodes",
        ]  # fmt: skip
        texts = [f"replayed {moment_text(self._start)} to {moment_text(self._end)}: {', '.join(parts)}"]
        placed = [(records[uid].node, node) for uid, node in self.nodes.items() if uid in records]
        if placed:
            same = sum(1 for ours, theirs in placed if ours == theirs)
            pending = sum(1 for ours, _ in placed if not ours)
            went = f"{same:,} went to the same node and {pending:,} stayed pending"
            texts.append(f"bound then: {counted(len(placed), 'pod')}, of which {went}")
        if found["refused"]:
            texts.append(f"quotas refused {counted(found['refused'], 'pod')} at first; {len(self._refused):,} wait at the end")
        notes = (*(InputNote("Remark", text) for text in texts), *run.notes)
        return with_fields(run, notes=notes, refused=(*run.refused, *refused_outcomes(self._refused.values(), (), {})))


def replay(
    log: ClusterLog, start: int, end: int, cluster: ClusterInput, options: Options,
    on_attempt: Callable[[SimulatedAttempt], None] | None = None,
) -> Run:  # fmt: skip
    """Simulate what happened from one moment to another. ``cluster``: the input at the first.

    Raises  InputError if the end is not after the start, or the log is damaged between them
    """
    events, simulation = LogEvents(log, start, end, cluster, options), Simulation(cluster, options, keep_records=True)
    simulation.engine.on_attempt = in_turn(simulation.engine.on_attempt, on_attempt)
    simulation.use(events)
    simulation.run(events.seconds)
    run = simulation.outcome()
    return events.completed(with_fields(run, notes=(*input_notes(cluster), *run.notes)))
