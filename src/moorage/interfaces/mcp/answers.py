"""Answers for agents: the text of a command, clipped, marked as data, and kept for those who want all of it.

Each answer is that of the command, run on a copy of the cluster in a process of its own, so that no question can change
anything. The first answer is the short text; the wide text and the document are computed when they are read.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.core import Node, Pod
from moorage.api.documents.statuses import ApiError
from moorage.api.pod_requests import every_request
from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.errors import InputError
from moorage.framework.changes import taint_text
from moorage.interfaces.questions.question_tables import tools
from moorage.interfaces.web.question_arguments import Arguments, QuestionBody, arguments_of
from moorage.interfaces.web.question_processes import Answering, ProcessLimits, answered_by_process
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.frames import unit_name
from moorage.simulator.owners import controller_title, deployment_name

#: The forms of an answer → the output of the command.
FORMS: Final[Mapping[str, str]] = {"text": "text", "wide": "wide", "json": "json"}
#: Where a command has another name for a form, or not that form.
_OUTPUTS: Final = {("simulate", "text"): "table", ("sweep", "wide"): "text"}
#: A space of a hint, which may be the end of a wrapped line.
_SPACE: Final = r"(?: |\n *)"
#: Hints about the command line in texts, and what stands for them.
_HINTS: Final = tuple(
    (re.compile(found.replace(" ", _SPACE)), instead)
    for found, instead in (
        (r" ?\((?:use )?-o wide(?: [^)]{0,80})?\)", ""),
        (r" ?More: -o wide", ""),
        (r"(?:Commands and all names)?(?:: | )-o wide", ""),
        (r"A longer --time-limit could find", "A longer search could find"),
        (r" ?More time for the others: --time-limit SECONDS, or 0 for no limit\.", ""),
        (r"\s*Other\s+nodes:\s+--types\s+FILE(\s+\([^)]*\))?", ""),
        (r"\s*\(give\s+--config\s+and\s+--plugins\)", ""),
        (r"; give --seeds 10 for intervals", "; more seeds give intervals"),
        (r"moorage explain --pending", "explain"),
        (r" not counted; --all-nodes counts all\.", " not counted."),
        (r": --probes says how many losses the search may compute\.", "."),
        (
            r"--(?:at|from) needs a log of moorage record: -f LOG",
            "at: this cluster is one moment; only a log of moorage record has others",
        ),
        (r"; give --[a-z-]+[^;.\n]*", ""),
    )
)
_MOST_TIME: Final = 40
#: How many answers can be read again, and how many questions are computed at once.
_KEPT: Final = 64
_AT_ONCE: Final = 2
_OPEN, _CLOSE = "<cluster-data>", "</cluster-data>"
#: The bracket of what could be read as one of the marks, in any case, with anything between its letters.
_BETWEEN: Final = r"[\W_]{0,8}"
_MARK: Final = re.compile(rf"[<\uff1c\ufe64\u2039\u27e8\u3008](?={_BETWEEN}{_BETWEEN.join('clusterdata')})", re.IGNORECASE)


def _silent(_: str) -> None:
    """Show no progress."""


#: What gets the progress of the question that a task asks.
SHOW: Final[ContextVar[Callable[[str], None]]] = ContextVar("SHOW", default=_silent)


class AgentAnswer(NamedTuple):
    """An answer: its number, the first part of its text, and whether there is more."""

    number: int
    text: str
    is_whole: bool


def as_data(text: str) -> str:
    """Return text between marks that say that it is data. No text can end the marks, in whatever letters and spaces."""
    return f"{_OPEN}\n{_MARK.sub('&lt;', text).rstrip()}\n{_CLOSE}"


class AgentAnswers:
    """Answers questions with a command; ``words`` are the options for the command's input and scheduler.

    ``most``: how many characters of a text an agent gets at once
    """

    def __init__(
        self, folder: Path, answering: Answering, words: Sequence[str], most: int, limits: ProcessLimits | None = None
    ) -> None:
        self._folder, self._answering, self._words, self.most = folder, answering, tuple(words), most
        self._limits = limits or ProcessLimits()
        self._asked: OrderedDict[int, Arguments] = OrderedDict()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._number = 0

    async def ask(self, question: Mapping[str, Any], changes: Sequence[str] = (), at: str = "") -> AgentAnswer:
        """Answer a question, whose fields are those of ``question`` in the command's document; ``at``: a moment of a log.

        Raises  InputError with what would work
        """
        arguments = _at(_arguments(question, changes), at)
        text = await self._run(arguments, "text")
        self._number += 1
        self._asked[self._number] = arguments
        while len(self._asked) > _KEPT:
            self._asked.popitem(last=False)
        return AgentAnswer(self._number, clipped(text, self.most), len(text) <= self.most)

    async def text_of(self, question: Mapping[str, Any]) -> str:
        """Return the whole answer to a question, which is not kept.

        Raises  InputError
        """
        return await self._run(_arguments(question, ()), "text")

    async def read(self, number: int, form: str) -> str:
        """Return the whole of an earlier answer in one of ``FORMS``.

        Raises  InputError
        """
        arguments = self._asked.get(number)
        if arguments is None:
            raise InputError(f"no answer {number}: the last {_KEPT} are kept; ask again")
        if form not in FORMS:
            raise InputError(f"no form {form!r}; use one of {', '.join(FORMS)}")
        return await self._run(arguments, form)

    async def _run(self, arguments: Arguments, form: str) -> str:
        command, *rest = arguments.words
        output = _OUTPUTS.get((command, form), FORMS[form])
        async with self._turn:
            folder = self._folder / f"{self._number}-{id(arguments)}-{form}"
            folder.mkdir(mode=0o700)
            try:
                for name, text in arguments.files.items():
                    (folder / name).write_text(text, "utf-8")
                words = (command, *self._words, "-o", output, *rest)
                answer, error = await answered_by_process(self._answering, words, folder, None, self._limits, SHOW.get())
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        if error:
            raise InputError(without_options(error))
        text = answer.decode("utf-8", "replace")
        return text if form == "json" else without_options(text)


def _arguments(question: Mapping[str, Any], changes: Sequence[str]) -> Arguments:
    try:
        return arguments_of(QuestionBody(dict(question), changes=list(changes)))
    except ApiError as error:
        raise InputError(str(error)) from None


def _at(arguments: Arguments, at: str) -> Arguments:
    if not at:
        return arguments
    if not at.isprintable() or len(at) > _MOST_TIME:
        raise InputError("at: expected a time such as 2026-11-24T14:03:00Z, 14:03 or -10m")
    command, *rest = arguments.words
    return arguments._replace(words=(command, f"--at={at}", *rest))


def without_options(text: str) -> str:
    """Return a text of a command without its hints about options of the command line, which agents do not have."""
    for found, instead in _HINTS:
        text = found.sub(instead, text)
    return text


def part_of(text: str, part: int, most: int, address: str, *, is_data: bool = True) -> str:
    """Return a part of a long text, whole lines where it has some, and where the next one is.

    Raises  InputError if there is no such part
    """
    parts, left = [], text
    while left:
        parts.append(clipped(left, most))
        left = left[len(parts[-1]) :]
    marked = as_data if is_data else str
    if len(parts) <= 1 and part == 1:
        return marked(text)
    if not 1 <= part <= len(parts):
        raise InputError(f"no part {part}: there are {len(parts)}")
    following = f"; the next: {address}/{part + 1}" if part < len(parts) and address else ""
    return f"{marked(parts[part - 1])}\nPart {part} of {len(parts)}{following}"


def clipped(text: str, most: int) -> str:
    """Return the first whole lines of a text that have at most ``most`` characters together, and the rest of its last line."""
    if len(text) <= most:
        return text
    end = text.rfind("\n", 0, most)
    return text[: end if end > 0 else most]


# -- look-ups ----------------------------------------------------------------------------------------------------------
# Look up pods, nodes and other objects of a cluster for an agent, one a line or as a document.

#: How long a live cluster that was read is taken as current.
_FRESH_S: Final = 15.0


class ClusterView:
    """Looks objects up. ``read`` returns the cluster with its pending pods placed; with ``live``, it is called now and then."""

    def __init__(self, read: Callable[[], Cluster], *, live: bool) -> None:
        self._read, self._live = read, live
        self._cluster: Cluster | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def find(
        self, kind: str, name: str, namespace: str, selector: str, *, only_pending: bool = False, node: str = "", by: str = ""
    ) -> list[str]:
        """Return a line for each pod or node that is asked for, or with ``by`` sums of pods by namespace, owner or node.

        Raises  InputError for a selector that cannot be parsed
        """
        try:
            wanted = parse_selector(selector)
        except SelectorError as error:
            raise InputError(f"selector: {error}") from None
        cluster = await self._current()
        if kind == "nodes":
            return list(_node_lines(cluster, name, wanted))
        pods = _pods(cluster, name, namespace, wanted, only_pending=only_pending, node=node)
        return list(_sums(pods, by) if by else _pod_lines(cluster, pods))

    async def document(self, ref: str) -> str:
        """Return an object as JSON, with the fields that scheduling reads.

        Raises  InputError if there is none
        """
        return json.dumps(msgspec.to_builtins((await self._current()).get(ref)), indent=1, ensure_ascii=False)

    async def _current(self) -> Cluster:
        async with self._reading:
            if self._cluster is None or (self._live and time.monotonic() - self._read_at > _FRESH_S):
                self._cluster = await asyncio.to_thread(self._read)
                self._read_at = time.monotonic()
            return self._cluster


def _is_called(name: str, wanted: str) -> bool:
    return fnmatchcase(name, wanted) if "*" in wanted else wanted in name


def _pods(
    cluster: Cluster, name: str, namespace: str, selector: Selector, *, only_pending: bool, node: str
) -> Iterator[Pod]:  # fmt: skip
    for pod in (one for one in cluster.objects() if isinstance(one, Pod)):
        is_asked = _is_called(pod.name, name) and namespace in {"", pod.namespace} and selector.matches(pod.labels)
        if is_asked and node in {"", pod.spec.node_name} and not (only_pending and pod.spec.node_name):
            yield pod


def _pod_lines(cluster: Cluster, pods: Iterable[Pod]) -> Iterator[str]:
    records = cluster.simulation.records
    for pod in pods:
        requests: dict[str, Any] = {}
        for one in pod.spec.containers:
            requests |= one.resources.requests
        record = records.get(pod.uid)
        why = "" if pod.spec.node_name or record is None else f" why={record.message!r}"
        yield f"{pod.key} node={pod.spec.node_name or '-'} priority={pod.spec.priority or 0} {_amounts(requests)}{why}"


def _owner(pod: Pod) -> str:
    deployment = deployment_name(pod)
    return f"Deployment/{deployment}" if deployment else controller_title(pod.metadata) or f"Pod/{pod.name}"


def _sums(pods: Iterable[Pod], by: str) -> Iterator[str]:
    """Yield the pods and requests of each namespace, owner or node, the most of CPU first."""
    sums: dict[str, Counter[str]] = {}
    for pod in pods:
        names = {"namespace": pod.namespace, "owner": f"{pod.namespace}/{_owner(pod)}", "node": pod.spec.node_name or "-"}
        total = sums.setdefault(names[by], Counter())
        total.update({"pods": 1, "pending": int(not pod.spec.node_name)})
        total.update(every_request(pod.spec))
    for name, total in sorted(sums.items(), key=lambda one: (-one[1]["cpu"], one[0])):
        counts = f"pods={total.pop('pods')} pending={total.pop('pending')}"
        yield f"{name} {counts} {' '.join(f'{unit_name(key)}={amount}' for key, amount in sorted(total.items()))}"


def _node_lines(cluster: Cluster, name: str, selector: Selector) -> Iterator[str]:
    frame = cluster.nodes
    pods = dict(zip(frame["name"].tolist(), frame["pods"].tolist(), strict=True))
    for node in (one for one in cluster.objects() if isinstance(one, Node)):
        if not _is_called(node.name, name) or not selector.matches(node.labels):
            continue
        taints = ",".join(map(taint_text, node.spec.taints))
        cordoned = " cordoned" if node.spec.unschedulable else ""
        zone = node.labels.get("topology.kubernetes.io/zone", "-")
        yield (
            f"{node.name} zone={zone} pods={pods.get(node.name, 0)} {_amounts(node.status.allocatable)}{cordoned}"
            f"{f' taints={taints}' if taints else ''}"
        )


def _amounts(amounts: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in amounts.items())


def tool_names() -> set[str]:
    """Return the names of all tools, none of which changes anything."""
    return {*(name for name, *_ in tools()), "find"}
