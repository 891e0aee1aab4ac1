"""Why jobs and gangs wait.

A job waits in its queue: its place, what it lacks, who borrows, what would start it, and when it starts by itself. A gang waits
for enough of its pods to fit together: how many fit in each topology domain, what stops the next one, and what makes room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct

from moorage.basis.printable import counted, one_line, some
from moorage.report.answer import Answer, plain
from moorage.report.queue_report import amount_text, time_text
from moorage.report.short_names import together
from moorage.report.style import cells, columns, item, paragraph

_STATES: Final = {
    "started": "runs", "nodes": "has quota and waits for nodes", "checks": "has quota and waits for admission checks",
    "quota": "waits for quota",
    "topology": "waits for room in the topology of its nodes",
    "turn": "waits behind others of its queue",
    "preemption": "waits for the end of jobs that it preempts",
    "pods ready": "waits until the pods of other jobs are ready",
    "queue": "waits for a queue that cannot admit it",
    "given up": "was given up",
}  # fmt: skip


class NeededQuota(Struct, frozen=True, rename="camel"):
    """What a workload needs of one flavor and resource, and what there is. ``why`` says if the flavor is not for its pods."""

    flavor: str
    resource: str
    needed: int
    quota: int
    used: int
    free: int
    why: str = ""

    @property
    def missing(self) -> int:
        return max(0, self.needed - self.free)


class Borrower(Struct, frozen=True, rename="camel"):
    """A queue of the tree that uses more than its quota, and its workloads that hold it."""

    queue: str
    flavor: str
    resource: str
    borrowed: int
    workloads: tuple[str, ...]


class KeptQuota(Struct, frozen=True, rename="camel"):
    """Quota that is kept free for the head of a queue, which has nothing to preempt: others do not get it.

    ``strategy``  the queue's; the head of a StrictFIFO queue stays there, so its quota is kept as long as it waits
    ``reclaim``   the queue's ``reclaimWithinCohort``: with Any nothing is kept
    """

    queue: str
    strategy: str
    reclaim: str
    head: str
    flavor: str
    resource: str
    amount: int


class PreemptedWork(Struct, frozen=True, rename="camel"):
    """A workload that loses its quota to the one in question. ``reason`` and ``message`` are those of Kueue's conditions."""

    object: str
    queue: str
    at: float
    reason: str
    message: str


class WrittenCondition(Struct, frozen=True, rename="camel"):
    """A condition of the Workload as the input has it: what Kueue itself wrote."""

    type: str
    status: str
    reason: str
    message: str


class StartingChange(Struct, frozen=True, rename="camel"):
    """A change with which the workload starts at once.

    ``kind`` is gang, flavor, priority, stop, weight, limit, preemption or quota
    """

    kind: str
    text: str


class WorkloadExplanation(Answer, frozen=True, kw_only=True):
    """``waits_for`` is one of ``quota``, ``nodes``, ``checks``, ``turn`` and so on; ``started`` if the job runs.

    ``position``  its place among the ``waiting`` workloads of its queue, from 1 on; None if it does not wait there
    ``starts_s``  when all its pods have a node, in seconds of simulated time; None: never, as far as can be seen
    """

    KIND: ClassVar[str] = "WorkloadExplanation"

    namespace: str
    object: str
    local_queue: str
    cluster_queue: str
    cohort: str
    priority: int
    pods: int
    waits_for: str
    reason: str
    position: int | None = None
    waiting: int = 0
    without_node: int = 0
    now_s: float = 0.0
    starts_s: float | None = None
    ends: bool = True
    needed: tuple[NeededQuota, ...] = ()
    borrowers: tuple[Borrower, ...] = ()
    kept: tuple[KeptQuota, ...] = ()
    preempts: tuple[PreemptedWork, ...] = ()
    written: tuple[WrittenCondition, ...] = ()
    changes: tuple[StartingChange, ...] = ()
    tried: bool = True

    @property
    def holds(self) -> bool:
        return self.waits_for == "started"

    def _answer(self) -> dict[str, Any]:
        needed = [{**plain(one), "missing": one.missing} for one in self.needed]
        return self._known(
            "namespace", "object", "local_queue", "cluster_queue", "cohort", "priority", "pods", "waits_for", "reason",
            "position", "waiting", "without_node", "borrowers", "kept", "preempts", "written", "changes",
            startsSeconds=self.starts_s, needed=needed,
        )  # fmt: skip

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        yield "\n".join(self._facts())
        if self.needed:
            head = ["FLAVOR", "RESOURCE", "NEEDED", "QUOTA", "USED", "FREE", "MISSING"]
            rows = [[one.flavor, one.resource, *(amount_text(one.resource, n) for n in _numbers(one))] for one in self.needed]
            yield columns(head, rows, right=(2, 3, 4, 5, 6), gap="  ")
            whys = dict.fromkeys(one.why for one in self.needed if one.why)
            yield "\n".join(paragraph(one_line(why), hanging="  ") for why in whys)
        if self.borrowers:
            yield "\n".join(["Who borrows:", *map(_borrower_line, self.borrowers)])
        if self.kept and not self.holds:
            yield "\n".join(["Whose quota is kept free:", *map(_kept_line, self.kept)])
        if self.preempts:
            lines = (f"{one.object} of ClusterQueue {one.queue} ({one.reason}): {one.message}" for one in self.preempts)
            yield "\n".join(["Whom it preempts:", *map(item, lines)])
        if self.written:
            texts = (f"{one.type}={one.status} ({one.reason}): {one.message}".rstrip(": ") for one in self.written)
            yield "\n".join(["What Kueue wrote into the Workload:", *map(item, texts)])
        if not self.holds:
            yield "\n".join(self._change_lines())

    def _facts(self) -> Iterator[str]:
        where = self.cluster_queue or "none"
        cohort = f", cohort {self.cohort}" if self.cohort else ""
        place = "" if self.position is None else f"; place {self.position} of {self.waiting}"
        yield paragraph(f"queue     {where} (LocalQueue {self.local_queue}{cohort}){place}", indent="  ", hanging=" " * 12)
        yield f"  asks for  {counted(self.pods, 'pod')} at priority {self.priority}"
        if self.reason:
            yield paragraph(one_line(f"because   {self.reason}"), indent="  ", hanging=" " * 12)
        if self.holds:
            return
        if self.starts_s is not None:
            soon = time_text(self.starts_s - self.now_s)
            yield f"  starts    in {soon}, if nothing else comes"
        else:
            why = "" if self.ends else ": no job before it has an end"
            yield f"  starts    never, if nothing else changes{why}"

    def _change_lines(self) -> Iterator[str]:
        if not self.changes:
            nothing = "No single change was found" if self.stopped is None else "No change was found yet"
            yield f"{nothing} that starts it now." if self.tried else "Changes were not searched for."
            return
        yield "What would start it now (any one of these):"
        for one in self.changes:
            yield item(f"→ {one.text}")


def _numbers(one: NeededQuota) -> tuple[int, int, int, int, int]:
    return one.needed, one.quota, one.used, one.free, one.missing


def _borrower_line(one: Borrower) -> str:
    names = some(one.workloads) if one.workloads else "nothing"
    return item(
        f"{one.queue} borrows {amount_text(one.resource, one.borrowed)} {one.resource} in {one.flavor}; it admitted {names}"
    )


def _kept_line(one: KeptQuota) -> str:
    amount = f"{amount_text(one.resource, one.amount)} {one.resource} in {one.flavor}"
    return item(
        f"{amount} for {one.head}, the head of {one.strategy} queue {one.queue}: with reclaimWithinCohort: {one.reclaim} it "
        "may not get it back from others, so they do not get it; with reclaimWithinCohort: Any nothing is kept"
    )


def headline(namespace: str, title: str, waits_for: str, preempts: Sequence[str] = ()) -> str:
    """Return the first line. ``preempts``: those that lose their quota to it."""
    if waits_for == "started" and preempts:
        return f"{namespace}/{title} runs once it has preempted {some(preempts)}"
    return f"{namespace}/{title} {_STATES[waits_for]}"


# -- gangs ---------------------------------------------------------------------------------------------------------------

#: How many domains the text lists.
_MOST_DOMAINS: Final = 8


class GangPart(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods of a group in one state: ``placed``, ``fits``, ``blocked``, ``held`` or ``absent``; ``why`` in words.

    ``tree`` and ``group`` stand for the groups of the tree that the group is part of, with all their pods.
    """

    state: str
    count: int
    pods: tuple[str, ...] = ()
    why: str = ""


class GangDomain(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The room of a topology domain for the pods of a group that have no node.

    ``nodes``   how many nodes it has; ``accepting``: how many of them accept a pod of the group, resources aside
    ``fits``    how many pods fit together now; no more than ``at_most`` fit in any order and on any nodes
    ``ever``    no more than that fit even if all other pods left but those of DaemonSets and mirror pods
    ``stops``   why the next one does not fit: each reason with the number of nodes
    ``closed``  why the group cannot use it
    """

    name: str
    nodes: int
    accepting: int
    fits: int
    at_most: int
    ever: int
    stops: dict[str, int] = {}
    closed: str = ""


class GangWay(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Changes with which the group starts, tried by the engine. ``kind``: create, release, wait, room, fewer or grow.

    ``placed``   how many pods of the group get a node
    ``moved``    pods that make room and find another node; ``evicted``: those that then wait
    ``at_least`` no fewer pods have to make room; equal to their number: proven
    """

    kind: str
    text: str
    placed: int = 0
    domain: str = ""
    moved: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    at_least: int = 0
    commands: tuple[str, ...] = ()


class GangExplanation(Answer, frozen=True, kw_only=True):
    """Why a pod group waits.

    ``state``    scheduled, fits (there is room since it was tried), tree (it fits, but not with its tree), waiting (too few of
                 its pods fit), never (no domain can hold it), incomplete (too few of its pods exist or are released),
                 preempting or missing (there is no group)
    ``needed``   how many further pods must fit together; ``largest``: how many do; no more than ``at_most`` do
    ``message``  the result of the latest attempt, in kube-scheduler's words
    """

    KIND: ClassVar[str] = "PodGroupExplanation"

    namespace: str
    name: str
    state: str
    min_count: int | None = None
    pods: int = 0
    placed: int = 0
    needed: int = 0
    priority: int = 0
    topology_key: str = ""
    largest: int = 0
    at_most: int = 0
    domain: str = ""
    message: str = ""
    parts: tuple[GangPart, ...] = ()
    domains: tuple[GangDomain, ...] = ()
    ways: tuple[GangWay, ...] = ()
    nodes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return self.state == "scheduled"

    def _node_names(self) -> tuple[str, ...]:
        return self.nodes

    def _answer(self) -> dict[str, Any]:
        return self._known(
            "namespace", "name", "state", "min_count", "pods", "placed", "needed", "priority", "largest", "at_most", "parts",
            "domains", "ways", topologyKey=self.topology_key or None, domain=self.domain or None,
            message=self.message or None,
        )  # fmt: skip

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        yield "\n".join(self._facts(wide))
        if self.domains and not self.holds:
            yield self._table(wide)
        if self.ways:
            yield "\n".join(["What starts it (any one of these):", *self._way_lines(wide)])
        elif self.state in {"waiting", "never"}:
            yield "No change that starts it was found."
        has_room = any(one.kind == "room" for one in self.ways)
        equal = f"All of its pods are equal: these hold by arithmetic{'; the engine placed the others' if has_room else ''}. "
        tried = "The engine tried each of these. " if self.proof.runs else equal
        if self.state == "waiting" and not has_room:
            tried = "No set of other pods was found that may leave, by budgets and priorities, and makes room. "
        if self.ways and self.state != "incomplete":
            yield paragraph(f"{tried}{'' if wide else 'Commands and all names: -o wide'}".rstrip())

    def _facts(self, wide: bool) -> Iterator[str]:
        policy = "each pod by itself" if self.min_count is None else f"at least {self.min_count} together"
        facts = [("group", f"{policy}; {counted(self.pods, 'pod')} exist{'s' if self.pods == 1 else ''}, {self.placed} placed")]
        if self.topology_key:
            facts.append(("stays", f"within one {self.topology_key}"))
        facts += [(one.state, _part_text(one, wide)) for one in self.parts]
        if self.domains and not self.holds:
            total = self.needed if self.state != "scheduled" else 0
            bound = "no more in any order, on any nodes" if self.largest == self.at_most else f"at most {self.at_most}"
            where = f" in {self.domain}" if self.topology_key and self.domain else ""
            facts.append(("largest", f"{self.largest} of {total} fit together now{where}; {bound}"))
        if self.message:
            facts.append(("message", self.message))
        width = max(len(name) for name, _ in facts)
        for name, text in facts:
            head = f"  {name.ljust(width)}  "
            yield paragraph(one_line(text), indent=head, hanging=" " * len(head))

    def _table(self, wide: bool) -> str:
        shown = self.domains if wide else self.domains[:_MOST_DOMAINS]
        rows = [
            [one.name, f"{one.accepting}/{one.nodes}", _count(one.fits, one.at_most), self._ever(one), _stops(one)]
            for one in shown
        ]
        head = [self.topology_key.rpartition("/")[2].upper() or "DOMAIN", "NODES", "FIT NOW", "EVER", "WHAT STOPS THE NEXT ONE"]
        left = len(self.domains) - len(shown)
        more = [f"  and {left} more (-o wide)"] if left else []
        return "\n".join([cells([head, *rows], (24, 11, 9, 6, 200)), *more])

    def _ever(self, one: GangDomain) -> str:
        return str(one.ever) if one.ever < self.needed else "all"

    def _way_lines(self, wide: bool) -> Iterator[str]:
        width = max(len(one.kind) for one in self.ways)
        for one in self.ways:
            head = f"  → {one.kind.ljust(width)}  "
            yield paragraph(one_line(one.text), indent=head, hanging=" " * len(head))
            if wide:
                for what, pods in (("moved", one.moved), ("evicted", one.evicted)):
                    yield from [paragraph(f"{what}: {', '.join(pods)}", indent=" " * len(head))] if pods else []
                yield from (f"{' ' * len(head)}{one_line(command)}" for command in one.commands)


def _count(fits: int, at_most: int) -> str:
    return str(fits) if fits == at_most else f"{fits}-{at_most}" if fits else f"up to {at_most}"


def _stops(one: GangDomain) -> str:
    if one.closed:
        return one.closed
    return ", ".join(f"{count} {reason}" for reason, count in one.stops.items()) or "-"


def _part_text(one: GangPart, wide: bool) -> str:
    names = (", ".join(one.pods) if wide else some(together(one.pods))) if one.pods else ""
    head = names if one.count == 1 and names else f"{counted(one.count, 'pod')}{f' ({names})' if names else ''}"
    return f"{head}{': ' if one.why else ''}{one.why}"
