"""The common part of all question commands: options, the cluster that they ask about, output of answers, exit statuses.

@described("capacity")
def capacity(**given: Any) -> int:
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        question = asked.request({"capacity": given["template"]})
        found = asked.answered(lambda cluster: capacity_of(cluster, question, ...))
    print_answer(found, given)
    return exit_status(found)
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import cached_property
from typing import Any, Final, TypeVar

import click
from msgspec.structs import replace

from moorage.api.gc_pause import age_after_pauses
from moorage.basis.ending import Terminated, ask_to_end, is_copy_of, is_ending
from moorage.basis.printable import escape_json, one_line
from moorage.interfaces.cli.cluster_files import (
    STDIN,
    answers_a_request,
    asking,
    emulating,
    paths_of,
    read_cluster,
    read_once,
    rules_of,
    simulation_options,
    warn_of,
)
from moorage.interfaces.cli.given_back_memory import collect_seldom, leave_memory_at_exit
from moorage.interfaces.cli.main import INTERRUPTED, OK, PENDING, UNDECIDED, end_by_sigterm
from moorage.interfaces.cli.terminal import Progress, bare, output_style, print_styled
from moorage.laboratory.budget import TimeBudget, usual_limit_s
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.edit.edits import parse_edit
from moorage.laboratory.edit.object_edits import read_change, replaced
from moorage.laboratory.edit.scaling import parse_scaled
from moorage.laboratory.edit.what_if import InputChanges, Replacement, parse_added_nodes
from moorage.report.answer import Answer, AnswerRequest, LateText
from moorage.report.style import paragraph
from moorage.report.yaml_writing import yaml_text
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import LEFT_OUT, LeavesOut
from moorage.simulator.simulate import Options, kinds_named, load_options

#: The part of a limit that is kept for the answer's end, and the most seconds of it.
_PRINTING: Final = 0.1
_PRINTING_S: Final = 1.0
_Answer = TypeVar("_Answer", bound=Answer)


def what_if(given: Mapping[str, Any], custom: tuple[str, ...] = ()) -> InputChanges:
    """Return the changes that the options describe. ``custom`` are the kinds that plugins read.

    Raises  InputError
    """
    for text in given["edits"]:
        if isinstance(read_change(text), str):
            parse_edit(text)  # no edit: refused with the form of one
    return InputChanges(
        edits=given["edits"],
        cordoned=given["cordoned"],
        removed=given["removed"],
        added=tuple(parse_added_nodes(text) for text in given["added"]),
        scaled=tuple(parse_scaled(text) for text in given["scaled"]),
        replacements=tuple(
            Replacement(path, read_cluster((path,), False, custom, rules_of(given, LeavesOut.NONE)))
            for path in given["replacements"]
        ),
    )


@dataclass
class Asked:
    """The cluster that a question is about, as it is and with the changes of the question.

    ``options``  the scheduler options
    ``given``    the input before the changes
    ``what_if``  the changes
    ``files``    the sources of the input
    ``budget``   for the searches
    """

    options: Options
    given: ClusterInput
    what_if: InputChanges
    files: tuple[str, ...] = ()
    budget: TimeBudget = field(default_factory=TimeBudget)

    @cached_property
    def input(self) -> ClusterInput:
        """The input with all changes except edits of single objects."""
        return self.what_if.changed(self.given) if self.what_if else self.given

    @cached_property
    def changed_options(self) -> Options:
        """The options with the edited configuration."""
        return self.what_if.reconfigured(self.options)

    @cached_property
    def changed_input(self) -> ClusterInput:
        """The input with all changes. If single objects were edited, it contains the pods of workloads, too."""
        if not self.what_if.object_edits:
            return self.input
        return with_fields(self.cluster.input(), report=self.given.report)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster with all changes, before anything is scheduled."""
        cluster = Cluster(self.input, self.changed_options)
        if self.what_if.object_edits:
            cluster.apply(*self.what_if.object_edits)
        return cluster

    @cached_property
    def before(self) -> Cluster | None:
        """The cluster without the changes; None if the question has none."""
        return Cluster(self.given, self.options) if self.what_if else None

    def request(self, question: Mapping[str, Any]) -> AnswerRequest:
        """Return the request for an answer; ``question`` has the command's own parameters."""
        return AnswerRequest(**self.envelope(question))

    def envelope(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of ``AnswerRequest``."""
        changes = self.what_if.texts()
        report = self.given.report
        return {
            "release": load_options(self.options).release,
            "seeds": (self.options.seed,),
            "digest": LateText(lambda: self._digest),  # only documents print it
            "files": self.files,
            "taken_at": report.taken_at,
            "notes": report.notes,
            "question": {**question, **({"changes": list(changes)} if changes else {})},
        }

    @cached_property
    def _digest(self) -> str:
        from moorage.laboratory.compare.input_digest import input_digest

        return input_digest(self.given)

    def answered(self, ask: Callable[[Cluster], _Answer]) -> _Answer:
        """Return the answer for the cluster with all changes; it contains the answer for the cluster before them."""
        after = ask(self.cluster)
        return after if self.before is None else replace(after, before=ask(self.before))


@contextmanager
def open_question(given: Mapping[str, Any], progress: Progress, kinds: tuple[str, ...] = ()) -> Iterator[Asked]:
    """Read the input, with more ``kinds``, and the options of a command. Extenders stay connected until the block ends.

    Raises  InputError, ConfigError; ClusterError with ``--live``
    """
    began_s = time.monotonic()
    collect_seldom()
    age_after_pauses()
    leave_memory_at_exit()
    options = simulation_options(given)
    with asking(options) if given["extenders"] == "ask" else nullcontext(options) as options:
        progress.say("reading the input …")
        asked = asked_of(given, options, progress, kinds)
        asked.budget = budget_of(given, len(asked.given.nodes) + len(asked.given.pods), began_s)
        with ended_by_interrupt(asked.budget, progress):
            yield asked


def budget_of(given: Mapping[str, Any], objects: int, began_s: float) -> TimeBudget:
    """Return the budget of ``--time-limit`` for a question about so many nodes and pods.

    It ends a little before the limit: the answer still has to be put together and printed. Without the option, a question of
    several searches has the usual time for each, its ``effort``.
    """
    limit = given.get("time_limit")
    seconds = usual_limit_s(objects) * given.get("effort", 1) if limit is None else limit
    return TimeBudget(seconds or None, time.monotonic, began_s - min(_PRINTING_S, seconds * _PRINTING))


#: How long searches may take to end after SIGTERM; ``docker stop`` kills after 10 s, Slurm after 30 s.
_GRACE_S: Final = 4.0


@contextmanager
def ended_by_interrupt(budget: TimeBudget, progress: Progress) -> Iterator[None]:
    """Let the first Ctrl-C, or SIGTERM, end the searches of a budget, so that what they found is printed; the second ends the
    command.
    """

    owner = os.getpid()

    def end(number: int, frame: object) -> None:
        if number == signal.SIGTERM and is_copy_of(owner):
            return
        if number == signal.SIGTERM:
            ask_to_end()
        if number == signal.SIGTERM and hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, end)
            signal.setitimer(signal.ITIMER_REAL, _GRACE_S)
        if budget.is_interrupted or not budget.was_asked:
            raise Terminated if is_ending() else KeyboardInterrupt
        budget.interrupt()
        progress.say("stopping …")

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: end_by_sigterm}
    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number, usual in handlers.items() if is_main and signal.getsignal(number) is usual]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        if is_ending() and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number in ours:
            signal.signal(number, handlers[number])


def asked_of(given: Mapping[str, Any], options: Options, progress: Progress, kinds: tuple[str, ...] = ()) -> Asked:
    """Read the files, or the live cluster, and the changes.

    Raises  InputError, ConfigError; ClusterError with ``--live``
    """
    if not given["paths"] and not given["live"]:
        raise click.UsageError("nothing to read: give -f PATH (- for standard input), or --live")
    if [given["config"], *given["paths"], *given["replacements"]].count(STDIN) > 1:
        raise click.UsageError("standard input can be read only once: give another file than -")
    custom = (*kinds_named(options), *kinds)
    changes = what_if(given, custom)
    cluster = _read_input(given, custom, progress)
    return Asked(emulating(options, given, cluster), cluster, changes, paths_of(given))


def _read_input(given: Mapping[str, Any], custom: tuple[str, ...], progress: Progress) -> ClusterInput:
    """Files in addition to a live cluster add objects to it, and replace some."""
    if not given["live"]:
        return read_cluster(paths_of(given), given["recursive"], custom, rules_of(given), progress)
    read = read_cluster(paths_of(given), given["recursive"], custom, rules_of(given), progress) if given["paths"] else None
    progress.say("reading the live cluster …")
    # A custom plugin may read fields that the cache leaves out.
    from moorage.interfaces.cli.live_reading import ClusterToRead, read_live  # a client, which files need not load

    source = ClusterToRead(given["kubeconfig"], given["context"], custom, is_kept=not (custom or given["plugins"]))
    live = read_once(source, lambda: read_live(source), lambda key: isinstance(key, ClusterToRead) and key[:2] == source[:2])
    warn_of(live)
    return live if read is None else replaced(live, read)


# -- the answer -------------------------------------------------------------------------------------------------------


def print_answer(answer: Answer, given: Mapping[str, Any], asked: Asked | None = None) -> None:
    """Print one answer in the format of ``-o``. An HTML page shows maps of the cluster in ``asked``."""
    if given["output"] == "html":
        _print_page([answer], asked)
    else:
        print_answers([answer], given["output"], ascii_only=given["ascii_only"])


def print_answers(found: Sequence[Answer], output: str, *, ascii_only: bool = False, printed: str = "") -> str:
    """Print answers: texts one after the other, which it returns, or a document; a list of documents if there are several.

    ``printed`` is the beginning of the text, if it was printed already.
    """
    if output in {"text", "wide"}:
        texts = [text_of_answer(one, output, ascii_only=ascii_only) for one in found]
        text = "\n".join([*texts, *_source(found[0].request)])
        print_styled(text.removeprefix(printed) if text.startswith(printed) else f"\n{text}")
        return text
    if output == "html":
        _print_page(found)
        return ""
    documents = [one.to_dict() for one in found]
    whole = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
    print_document(whole, output)
    return ""


def text_of_answer(one: Answer, output: str, *, ascii_only: bool = False) -> str:
    """Return the text of an answer, ``text`` or ``wide``, in the style of standard output."""
    style = output_style(ascii_only=ascii_only)
    width = style.width if style.fits else None
    return one.text(wide=output == "wide", ascii_only=ascii_only, colour=style.colour, width=width)


def print_document(document: Any, output: str) -> None:
    """Print plain data as JSON or YAML."""
    if output == "json":
        sys.stdout.write(escape_json(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)) + "\n")
    else:
        sys.stdout.write(yaml_text(document))


def _print_page(found: Sequence[Answer], asked: Asked | None = None) -> None:
    """Print answers as a page for a browser: ASCII but for our own script, so the terminal needs no guard."""
    from moorage.interfaces.web.pod_routes import snapshot_of  # loaded when a page is asked for
    from moorage.interfaces.web.site import report_page

    command = shlex.join(["moorage", *sys.argv[1:]])
    snapshot = None if asked is None else snapshot_of(asked.before or asked.cluster, asked.given.report.taken_at)
    bare(sys.stdout).write(report_page([one.to_dict() for one in found], command, snapshot))


def _source(asked: AnswerRequest) -> Iterator[str]:
    """Yield when and where a live cluster or a dump with a record was read, and what was not.

    An answer to a request names the objects that were left out, as its standard error is not shown.
    """
    if answers_a_request():
        yield from (f"{one_line(note)}\n" for note in asked.notes if note.startswith(LEFT_OUT))
    if asked.taken_at:
        known = [note for note in asked.notes if note.startswith("taken ") or " not read: " in note]
        yield "".join(f"{paragraph(one_line(f'{note[:1].upper()}{note[1:]}.'), hanging='  ')}\n" for note in known)


def exit_status(*found: Answer) -> int:
    """Return the exit status: 0 if every answer is yes, 2 if one is no, 3 if none is no but one is undecided.

    130 if the user interrupted a search: what is printed is what it had found.
    """
    if any(one.stopped is not None and one.stopped.reason == "interrupted" for one in found):
        return INTERRUPTED
    holds = {one.holds for one in found}
    if False in holds:
        return PENDING
    return UNDECIDED if None in holds else OK
