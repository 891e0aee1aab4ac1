"""What all question commands share: their options, the cluster they ask about, how answers are printed, exit statuses.

@click.command()
@click.argument("template")
@question_options()
def capacity(**given: Any) -> int:
    with Progress(quiet=given["quiet"]) as progress, open_question(given, progress) as asked:
        question = asked.request({"capacity": given["template"]})
        found = asked.answered(lambda cluster: capacity_of(cluster, question, ...))
    print_answer(found, given)
    return exit_status(found)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import cached_property
from typing import Any, TypeVar

import click
import yaml
from msgspec.structs import replace

from moorage.api.yaml_writing import PrintableDumper
from moorage.cli.bounded_files import STDIN
from moorage.cli.cluster_files import asking, read_cluster, simulation_options
from moorage.cli.main import OK, PENDING, UNDECIDED
from moorage.cli.memory import collect_seldom
from moorage.cli.progress import Progress
from moorage.cli.release_options import emulate_options, max_disks_option, no_quota_option
from moorage.cli.terminal import bare
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.input_digest import input_digest
from moorage.laboratory.live_dump import endpoint_of, take_dump
from moorage.laboratory.what_if import InputChanges, parse_added_nodes
from moorage.printable import escape_json
from moorage.report.answer import Answer, AnswerRequest
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.simulate import Options, kinds_named, load_options

__all__ = [
    "Asked",
    "exit_status",
    "open_question",
    "print_answer",
    "print_answers",
    "question_options",
    "what_if_options",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Answer = TypeVar("_Answer", bound=Answer)


# -- options ----------------------------------------------------------------------------------------------------------


def question_options(*, outputs: Sequence[str] = ("text", "wide", "json", "yaml")) -> Callable[[_Command], _Command]:
    """Add the options that all questions have to a command; ``outputs`` are the choices of ``-o``."""
    options = (
        *_INPUT,
        *_SCHEDULER,
        click.option(
            "-o", "--output", type=click.Choice(outputs), default=outputs[0], show_default=True, help="How to print the answer."
        ),
        click.option("--ascii", "ascii_only", is_flag=True, help="Print signs in ASCII."),
        click.option("-q", "--quiet", is_flag=True, help="Show no progress."),
    )

    def add(command: _Command) -> _Command:
        command = what_if_options(command)
        for option in reversed(options):
            command = option(command)
        return command

    return add


_INPUT = (
    click.option(
        "-f", "--filename", "paths", multiple=True, metavar="PATH",
        help="A file, a directory, or - for standard input. May be repeated.",
    ),
    click.option("-R", "--recursive", is_flag=True, help="Read directories recursively."),
    click.option("--live", is_flag=True, help="Read the cluster of the kubeconfig now, with read-only requests."),
    click.option("--context", metavar="NAME", help="The context of the kubeconfig for --live."),
    click.option("--kubeconfig", metavar="FILE", help="The kubeconfig for --live; by default the one that kubectl uses."),
)  # fmt: skip
_SCHEDULER = (
    click.option(
        "--config", metavar="FILE", help="A KubeSchedulerConfiguration or a Policy; without it, kube-scheduler's defaults."
    ),
    emulate_options,
    click.option("--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates, in kube-scheduler's format."),
    max_disks_option,
    no_quota_option,
    click.option(
        "--plugins", multiple=True, metavar="MODULE:CLASS",
        help="A custom plugin, in the current directory or on the Python path. May be repeated.",
    ),
    click.option(
        "--extenders", type=click.Choice(["ask", "skip"]), help="Call the extenders of the configuration, or skip them."
    ),
    click.option(
        "--seed", type=int, default=0, show_default=True, help="Seed for breaking ties between equally scored nodes."
    ),
)  # fmt: skip
_CHANGES = (
    click.option(
        "--edit", "edits", multiple=True, metavar="'KIND/NAME FIELD=VALUE'",
        help="Change an object first: 'pod/web requests.cpu=500m', 'node/n1 unschedulable=false'. May be repeated.",
    ),
    click.option(
        "--cordon", "cordoned", multiple=True, metavar="SELECTOR",
        help="Cordon nodes first: a name, or a label selector as for kubectl. May be repeated.",
    ),
    click.option(
        "--remove-nodes", "removed", multiple=True, metavar="SELECTOR",
        help="Remove nodes first; controllers replace the pods there. May be repeated.",
    ),
    click.option(
        "--add-nodes", "added", multiple=True, metavar="like=NODE,count=N",
        help="Add empty nodes like an existing one first. May be repeated.",
    ),
)  # fmt: skip


def what_if_options(command: _Command) -> _Command:
    """Add the options that change the input before the question is asked."""
    for option in reversed(_CHANGES):
        command = option(command)
    return command


def what_if(given: Mapping[str, Any]) -> InputChanges:
    """Return the changes that the options ask for.

    Raises  InputError
    """
    return InputChanges(
        edits=given["edits"],
        cordoned=given["cordoned"],
        removed=given["removed"],
        added=tuple(parse_added_nodes(text) for text in given["added"]),
    )


# -- the question -----------------------------------------------------------------------------------------------------


@dataclass
class Asked:
    """The cluster that a question is about, as it is and with the changes of the question.

    ``options``  how it is scheduled
    ``given``    the input as it was read
    ``what_if``  the changes
    ``files``    where the input came from
    """

    options: Options
    given: ClusterInput
    what_if: InputChanges
    files: tuple[str, ...] = ()

    @cached_property
    def input(self) -> ClusterInput:
        """The input with all changes but the edits."""
        return self.what_if.changed(self.given) if self.what_if else self.given

    @cached_property
    def changed_input(self) -> ClusterInput:
        """The input with all changes but edits of the configuration, with the pods of workloads if anything was edited."""
        if not self.what_if.object_edits:
            return self.input
        edited = Cluster(self.input, self.options)
        edited.apply(*self.what_if.object_edits)
        return with_fields(edited.input(), report=self.given.report)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster with all changes; nothing was scheduled yet."""
        cluster = Cluster(self.input, self.options)
        if self.what_if.edits:
            cluster.apply(*self.what_if.edits)
        return cluster

    @cached_property
    def before(self) -> Cluster | None:
        """The cluster without the changes; None if the question has none."""
        return Cluster(self.given, self.options) if self.what_if else None

    def request(self, question: Mapping[str, Any]) -> AnswerRequest:
        """Return what is asked: ``question`` has the command's own parameters."""
        return AnswerRequest(**self.envelope(question))

    def envelope(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a request."""
        changes = self.what_if.texts()
        report = self.given.report
        return {
            "release": load_options(self.options).release,
            "seeds": (self.options.seed,),
            "digest": self._digest,
            "files": self.files,
            "taken_at": report.taken_at,
            "notes": report.notes,
            "question": {**question, **({"changes": list(changes)} if changes else {})},
        }

    @cached_property
    def _digest(self) -> str:
        return input_digest(self.given)

    def answered(self, ask: Callable[[Cluster], _Answer]) -> _Answer:
        """Return the answer for the cluster with all changes, and with it the one for the cluster before them."""
        after = ask(self.cluster)
        return after if self.before is None else replace(after, before=ask(self.before))


@contextmanager
def open_question(given: Mapping[str, Any], progress: Progress) -> Iterator[Asked]:
    """Read what a command's options name; extenders are connected for the length of the block.

    Raises  InputError, ConfigError; ClusterError with ``--live``
    """
    if not given["paths"] and not given["live"]:
        raise click.UsageError("nothing to read: give -f PATH (- for standard input), or --live")
    if not given["live"] and (given["context"] or given["kubeconfig"]):
        raise click.UsageError("--context and --kubeconfig need --live")
    if given["config"] == STDIN and STDIN in given["paths"]:
        raise click.UsageError("standard input can be read only once: give --config or -f another file than -")
    collect_seldom()
    changes = what_if(given)
    options = simulation_options(given)
    with asking(options) if given["extenders"] == "ask" else nullcontext(options) as options:
        yield Asked(options, read_input(given, options, progress), changes, given["paths"])


def read_input(given: Mapping[str, Any], options: Options, progress: Progress) -> ClusterInput:
    """Read the files, or take a dump of the live cluster.

    Raises  InputError, ClusterError
    """
    if given["live"] and given["paths"]:
        raise click.UsageError("-f and --live exclude each other")
    custom = kinds_named(options)
    if given["live"]:
        progress.say("reading the cluster …")
        return take_dump(endpoint_of(given["kubeconfig"], given["context"]), custom)
    progress.say("reading the input …")
    return read_cluster(given["paths"], given["recursive"], custom)


# -- the answer -------------------------------------------------------------------------------------------------------


def print_answer(answer: Answer, given: Mapping[str, Any]) -> None:
    """Print one answer in the form that ``-o`` asks for."""
    print_answers([answer], given["output"], ascii_only=given["ascii_only"])


def print_answers(found: Sequence[Answer], output: str, *, ascii_only: bool = False) -> None:
    """Print answers: texts one after the other, or a document; a list of documents if there are several."""
    if output in {"text", "wide"}:
        _print_text(found, wide=output == "wide", ascii_only=ascii_only)
        return
    documents = [one.to_dict() for one in found]
    whole = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
    if output == "json":
        sys.stdout.write(escape_json(json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False)) + "\n")
    else:
        sys.stdout.write(yaml.dump(whole, Dumper=PrintableDumper, sort_keys=True, allow_unicode=True, width=100))


def _print_text(found: Sequence[Answer], *, wide: bool, ascii_only: bool) -> None:
    terminal = bare(sys.stdout)
    colour = terminal.isatty() and not os.environ.get("NO_COLOR")
    whole = "\n".join(one.text(wide=wide, ascii_only=ascii_only, colour=colour) for one in found)
    # The text is escaped already; the only escape sequences in it are our own colours.
    (terminal if colour else sys.stdout).write(whole)


def exit_status(*found: Answer) -> int:
    """Return the exit status: 0 every answer is yes, 2 one is no, 3 one is undecided within the limits and none is no."""
    holds = {one.holds for one in found}
    if False in holds:
        return PENDING
    return UNDECIDED if None in holds else OK
