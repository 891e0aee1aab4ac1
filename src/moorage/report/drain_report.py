"""``DrainReport``: whether nodes can be drained, and what happens to their pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Struct

from moorage.basis.printable import counted, one_line
from moorage.report.answer import Answer, ending
from moorage.report.short_names import some_pods
from moorage.report.style import columns, item, paragraph

# ``DrainReport`` has the document (``docs/reference/drain.md``) and the text. Times are seconds since the drain began.

#: What happens to a pod. ``never`` waits for a budget that never allows it, ``lost`` is not replaced, ``finished`` had ended.
DrainOutcome: TypeAlias = Literal["moves", "waits", "never", "refused", "stays", "lost", "pending", "finished"]


class RefusedPod(Struct, frozen=True, rename="camel"):
    """A pod that kubectl refuses to evict. ``text`` is kubectl's own."""

    pod: str
    rule: str
    text: str


class DrainedPod(Struct, frozen=True, rename="camel"):
    """What happens to one pod of a drained node.

    ``node``         the final node of the pod or of its replacement
    ``at``           ``waits``: when the eviction is allowed; ``moves``: when its replacement is placed; else when it leaves
    ``budget``       the budgets that refused the eviction at first or for good, as ``namespace/name``
    ``why``          the message of kubectl, of the eviction subresource, or of the scheduler
    ``origin``       the node that it leaves
    ``replacement``  the pod that its controller makes instead
    """

    pod: str
    outcome: DrainOutcome
    node: str | None = None
    at: float | None = None
    budget: str | None = None
    why: str | None = None
    origin: str = ""
    replacement: str | None = None
    evicted_seconds: float | None = None
    gone_seconds: float | None = None
    placed_seconds: float | None = None


class DrainedNode(Struct, frozen=True, rename="camel"):
    """One node: whether it is drained, when kubectl begins and ends, and kubectl's own errors."""

    name: str
    drained: bool
    begin_seconds: float | None = None
    done_seconds: float | None = None
    errors: tuple[str, ...] = ()


class LossInstead(Struct, frozen=True, rename="camel"):
    """The result if the nodes are lost instead: how many pods move, stay pending and are lost for good."""

    moves: int
    pending: tuple[str, ...] = ()
    lost_for_good: tuple[str, ...] = ()


# -- drain text --------------------------------------------------------------------------------------------------------
# A drain as text: whether the nodes can be drained, what happens to the pods, and when.

#: Outcome → its sign and its word, in the order of the text.
_ROWS: Final[dict[DrainOutcome, tuple[str, str]]] = {
    "moves": ("✓", "moves"), "waits": ("!", "waits"), "never": ("!", "never"), "refused": ("✗", "refused"),
    "pending": ("✗", "pending"), "lost": ("✗", "lost"), "finished": ("·", "finished"), "stays": ("·", "stays"),
}  # fmt: skip
#: How many pods and nodes a line names.
_SHOWN: Final = 4
#: Up to so many pods that wait are named.
_NAMED = 2


def drain_summary(nodes: Sequence[DrainedNode], pods: Sequence[DrainedPod], pending: Sequence[str]) -> str:
    """Return the first line: whether the nodes can be drained, and if not, why not."""
    done = sum(node.drained for node in nodes)
    outcomes = Counter(pod.outcome for pod in pods)
    name = nodes[0].name if len(nodes) == 1 else counted(len(nodes), "node")
    if done < len(nodes):
        first = next(node.name for node in nodes if not node.drained)
        head = f"{name} cannot be drained"
        if len(nodes) > 1:
            head = f"{done} of {counted(len(nodes), 'node')} can be drained, {first} cannot"
        return f"{head}: {_obstacle(pods)}. {_moving(outcomes, len(pods))}"
    if not pending:
        is_empty = outcomes.keys() <= {"stays", "refused", "never"}
        return f"{name} is empty already." if is_empty else f"{name} can be drained. {_moving(outcomes, len(pods))}"
    stay = "stays" if len(pending) == 1 else "stay"
    return f"{name} can be drained, but {counted(len(pending), 'pod')} then {stay} pending. {_moving(outcomes, len(pods))}"


def cordon_summary(nodes: Sequence[str], pods: Sequence[DrainedPod], pending: Sequence[str]) -> str:
    """Return the first line for nodes that are only cordoned."""
    stays = sum(pod.outcome == "stays" for pod in pods)
    moves = sum(pod.outcome == "moves" for pod in pods)
    name = nodes[0] if len(nodes) == 1 else counted(len(nodes), "node")
    parts = [f"{counted(stays, 'pod')} {'stays' if stays == 1 else 'stay'} on {name}"]
    parts += [f"{counted(moves, 'pending pod')} {'goes' if moves == 1 else 'go'} elsewhere"] if moves else []
    parts += [f"{counted(len(pending), 'pending pod')} {'finds' if len(pending) == 1 else 'find'} no place"] if pending else []
    return one_line(f"Cordoned: {', '.join(parts)}.")


def _moving(outcomes: Counter[DrainOutcome], total: int) -> str:
    moves, lost = outcomes["moves"] + outcomes["waits"], outcomes["lost"]
    first = f"{moves} of {counted(total, 'pod')} {'moves' if moves == 1 else 'move'}"
    return f"{first}, {lost} {'is' if lost == 1 else 'are'} lost." if lost else f"{first}."


def _obstacle(pods: Sequence[DrainedPod]) -> str:
    refused = sum(pod.outcome == "refused" for pod in pods)
    if refused:
        return f"kubectl refuses {counted(refused, 'pod')}"
    never = [pod for pod in pods if pod.outcome == "never"]
    several = [pod for pod in never if pod.budget and "," in pod.budget]
    if several:
        return f"{counted(len(several), 'pod')} {'has' if len(several) == 1 else 'have'} more than one budget"
    late = [pod for pod in pods if pod.why and "global timeout reached" in pod.why]
    if late:
        return f"kubectl gives up on {counted(len(late), 'pod')} at its timeout"
    return f"{counted(len(never), 'pod')} {'waits' if len(never) == 1 else 'wait'} on a budget that never allows eviction"


def _rows(report: DrainReport) -> Iterator[str]:
    for outcome, (sign, word) in _ROWS.items():
        pods = [pod for pod in report.pods if pod.outcome == outcome]
        if pods:
            head = f"  {sign} {word:<9}{len(pods):>3}   "
            yield paragraph(one_line(_about(outcome, pods)), indent=head, hanging=" " * len(head))
    if report.preempted:
        head = f"  ! {'preempts':<9}{len(report.preempted):>3}   "
        yield paragraph(one_line(some_pods(report.preempted, _SHOWN)), indent=head, hanging=" " * len(head))


def _about(outcome: DrainOutcome, pods: Sequence[DrainedPod]) -> str:
    if outcome == "moves":
        end = max((pod.at or 0.0 for pod in pods), default=0.0)
        return _places(pods) + (f"; the last is placed after {seconds(end)}" if end else "")
    if outcome == "waits":
        if len(pods) <= _NAMED:
            return f"{_places(pods)}; {_some([f'{pod.pod} for {pod.budget} until {seconds(pod.at)}' for pod in pods])}"
        last: dict[str, float] = {}
        for pod in pods:
            last[pod.budget or ""] = max(last.get(pod.budget or "", 0.0), pod.at or 0.0)
        return f"{_places(pods)}; {_some([f'for budget {name} until {seconds(at)}' for name, at in last.items()])}"
    if outcome in {"never", "pending"}:
        held = {why: some_pods(names, _SHOWN) for why, names in _by_why(pods).items()}
        return _some([f"{names}: {why}" if why else names for why, names in held.items()], most=2)
    if outcome in {"refused", "stays", "finished"}:
        held = {why: some_pods(names, _SHOWN) for why, names in _by_why(pods).items()}
        return "; ".join(f"{why}: {names}" if why else names for why, names in held.items())
    return some_pods([pod.pod for pod in pods], _SHOWN)


def _short(why: str) -> str:
    """Return kube-scheduler's message without its sentences about preemption."""
    first, more, _ = why.partition(". ")
    return f"{first}." if more and "nodes are available" in first else why


def _by_why(pods: Sequence[DrainedPod]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod in pods:
        found.setdefault(_short(pod.why or "").rstrip("."), []).append(pod.replacement or pod.pod)
    return found


def _places(pods: Sequence[DrainedPod]) -> str:
    held = Counter(pod.node or "" for pod in pods).most_common()
    return _some([f"{number} → {node}" for node, number in held], most=6)


def _some(names: Sequence[str], most: int = _SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _course(report: DrainReport) -> Iterator[str]:
    """Yield when pods leave and are ready, and what happens if the nodes are lost instead."""
    gone = [pod.gone_seconds for pod in report.pods if pod.gone_seconds is not None]
    if report.evicted:
        times = [(max(gone), "gone")] if gone else []
        times += [(report.ready_seconds, "replacements ready")] if report.ready_seconds is not None else []
        parts = [f"0s ──evict {len(report.evicted)}──", *(f"{seconds(when)} {what}" for when, what in sorted(times))]
        never = sorted({pod.budget or "" for pod in report.pods if pod.outcome == "never"} - {""})
        tail = ""
        if never:
            tail = f" … {_some(never)} never {'allows' if len(never) == 1 else 'allow'} eviction" + (
                ": deadlock" if report.deadlock else ""
            )
        course = f"{parts[0]}┬──{'──┬──'.join(parts[1:])}" if times else parts[0]
        yield item(course + tail)
    if len(report.nodes) > 1 and any(node.begin_seconds is not None for node in report.nodes):
        begun = ", ".join(_turn(node) for node in report.nodes if node.begin_seconds is not None)
        others = _some([node.name for node in report.nodes if node.begin_seconds is None])
        order = f"Order: {begun}{'; not begun: ' if others else ''}{others}"
        yield item(order)
    lost = report.if_lost
    if lost is not None:
        name = report.nodes[0].name if len(report.nodes) == 1 else "they"
        verb = "is" if len(report.nodes) == 1 else "are"
        parts = [f"{counted(lost.moves, 'pod')} {'moves' if lost.moves == 1 else 'move'}"]
        parts += [f"{len(lost.pending)} {'stays' if len(lost.pending) == 1 else 'stay'} pending"] if lost.pending else []
        many = len(lost.lost_for_good)
        parts += [f"{many} {'is' if many == 1 else 'are'} lost for good"] if many else []
        yield paragraph(one_line(f"If {name} {verb} lost instead of drained: {', '.join(parts)}."))


def _turn(node: DrainedNode) -> str:
    times = f"{seconds(node.begin_seconds)} to {seconds(node.done_seconds)}" if node.drained else "not drained"
    return f"{node.name} ({times})"


def _table(report: DrainReport) -> str:
    rows = [
        [pod.pod, pod.outcome, pod.node or "-", seconds(pod.evicted_seconds), seconds(pod.gone_seconds),
         seconds(pod.placed_seconds), pod.replacement or "-"]
        for pod in report.pods
    ]  # fmt: skip
    return columns(["POD", "OUTCOME", "NODE", "EVICTED", "GONE", "PLACED", "REPLACEMENT"], rows) if rows else ""


def _errors(report: DrainReport) -> str:
    lines = [f"{node.name}: {error}" for node in report.nodes for error in node.errors]
    return "\n".join(["kubectl says:", *(item(line) for line in lines)]) if lines else ""


def _certainty(report: DrainReport) -> str:
    ready = next((one.value for one in report.assumptions if one.name == "readyAfter"), "")
    how = "by the engine in virtual time"
    if report.proof.kind == "exhaustive":
        how = f"by the engine; best of all orders ({report.proof.runs} drains)"
    elif report.proof.kind == "bounded":
        how = f"by the engine; best of {report.proof.runs} drains, not of all orders"
    return f"Verified {how}, with pods ready {ready} after they are placed." if ready else "Verified by the engine."


def seconds(time_s: float | None) -> str:
    """Write a time: ``41s``, ``2m5s``, ``-`` for none."""
    if time_s is None:
        return "-"
    whole = round(time_s, 1)
    minutes, rest = divmod(whole, 60)
    if minutes < 1:
        return f"{rest:g}s"
    return f"{int(minutes)}m{round(rest, 1):g}s" if rest else f"{int(minutes)}m"


class DrainReport(Answer, frozen=True, kw_only=True):
    """What ``kubectl drain`` does to nodes and their pods. Times are seconds since the drain began.

    ``possible``       kubectl drains all nodes
    ``refused``        the pods that kubectl refuses to evict
    ``evicted``        the pods that are evicted, in order
    ``pods``           every pod of the nodes
    ``pending``        pods that are pending afterwards and were not before
    ``preempted``      pods that are evicted to make room for replacements
    ``deadlock``       True if evictions wait for budgets that only a pending pod could restore
    ``nodes``          the nodes in the order in which they are drained
    ``ready_seconds``  when the last replacement is ready
    ``if_lost``        what happens if the nodes are lost instead
    """

    KIND: ClassVar[str] = "DrainReport"

    def _node_names(self) -> Collection[str]:
        places = {place for pod in self.pods for place in (pod.node, pod.origin) if place}
        return places | {node.name for node in self.nodes}

    possible: bool
    refused: tuple[RefusedPod, ...] = ()
    evicted: tuple[str, ...] = ()
    pods: tuple[DrainedPod, ...] = ()
    pending: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    deadlock: bool = False
    nodes: tuple[DrainedNode, ...] = ()
    ready_seconds: float | None = None
    if_lost: LossInstead | None = None

    @property
    def holds(self) -> bool | None:
        """True if the nodes can be drained and no pod is pending afterwards; None if another order may make it so."""
        if self.possible and not self.pending:
            return True
        return False if self.stopped is None else None

    def _answer(self) -> dict[str, Any]:
        return self._known(
            "possible", "refused", "evicted", "pods", "pending", "preempted", "deadlock", "nodes", "ready_seconds", "if_lost",
            order=[node.name for node in self.nodes],
        )  # fmt: skip

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        yield "\n".join(_rows(self))
        yield "\n".join(_course(self))
        if wide:
            yield _table(self)
            yield _errors(self)
            yield "\n".join(item(f"Assumed: {one.name}: {one.value}") for one in self.assumptions)
        yield ending(_certainty(self), wide=wide)
