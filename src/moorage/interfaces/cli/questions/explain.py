"""``moorage explain``: why a pod is pending, or why it is on its node."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from dataclasses import replace as with_costs
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec.structs import replace as with_fields

from moorage.basis.printable import close_to, counted, one_line, some
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, project_setting, read_file
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.explain_autoscaled import autoscaler_answers, kinds_of_autoscaler, names_nodes
from moorage.interfaces.cli.questions.question import Asked, exit_status, open_question, print_answers, text_of_answer
from moorage.interfaces.cli.questions.question_options import selector_of
from moorage.interfaces.cli.terminal import Progress, bare, output_style, print_styled, say
from moorage.laboratory.change.least_change import OWNERS, ChangeLimits
from moorage.laboratory.change.untouchable import Untouchable
from moorage.laboratory.costs import Costs, costs_of, read_costs
from moorage.laboratory.explain.explain_run import ExplainOptions, explain_cluster, explain_together
from moorage.laboratory.explain.pending_in_input import refusal_in
from moorage.laboratory.pending_search import grouped
from moorage.laboratory.plan.node_types import read_types
from moorage.report.answer import Answer
from moorage.report.atlas import find_entries, told
from moorage.report.explanation import Explanation
from moorage.report.narrowing import Narrowing
from moorage.report.short_names import some_pods
from moorage.report.style import lines_of, paragraph
from moorage.report.workload_explanation import GangExplanation, WorkloadExplanation
from moorage.report.yaml_writing import yaml_text
from moorage.simulator.job_kinds import KINDS, PLACES, QUEUE_KINDS
from moorage.simulator.simulation import SimulatedAttempt

if TYPE_CHECKING:
    from moorage.simulator.kueue.batch_jobs import QueuedCluster

# ``moorage explain workload/NAME``: why a job waits in Kueue's queues, and what would start it.

_WORKLOADS: Final = frozenset({"workload", "wl"})
_GROUPS: Final = ("podgroup/", "compositepodgroup/")


def kinds_of_jobs(names: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds to read because of the names of jobs; none if another object is named.

    Raises  InputError for pod groups among names of other objects
    """
    kinds = {name.partition("/")[0].lower() for name in names if "/" in name}
    if kinds and all("/" in name for name in names):
        of_queues = {*_WORKLOADS, "job", "podgroup", "compositepodgroup"}
        if kinds <= of_queues | {name.partition(".")[0].removesuffix("s") for name in PLACES}:
            return KINDS
    if group := next((name for name in names if name.lower().startswith(_GROUPS)), None):
        raise InputError(f"{group}: a pod group is explained alone, or with other groups; ask for the pods separately")
    return ()


def queue_kinds(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds of Kueue, by which jobs of named pods may wait, if files are read; a live cluster gives them anyway."""
    return KINDS if given["pods"] and given["paths"] else ()


def explain_groups(given: Mapping[str, Any], asked: Asked) -> list[GangExplanation] | None:
    """Return the explanations of the named pod groups; None if none of the names is that of a pod group.

    Raises  InputError if only some of them are, or if groups are disabled
    """
    from moorage.laboratory.explain.explain_gang import explain_group, group_named

    keys = {name: group_named(asked.cluster, name, given["namespace"]) for name in given["pods"]}
    found = [key for key in keys.values() if key is not None]
    missing = [name for name, key in keys.items() if key is None]
    if not found and not any(name.lower().startswith(_GROUPS) for name in missing):
        return None
    if missing:
        raise InputError(f"{missing[0]}: there is no pod group of this name")
    probes, sides = min(given["probes"], 200), [asked.cluster, *([asked.before] if asked.before is not None else [])]
    for cluster in sides:
        cluster.run()
    answers: list[GangExplanation] = []
    for key in found:
        request = asked.request({"podGroups": [key]})
        after, *before = [explain_group(cluster, key, request, probes=probes, budget=asked.budget) for cluster in sides]
        answers.append(with_fields(after, before=before[0] if before else None))
    return answers


def explain_jobs(given: Mapping[str, Any], asked: Asked) -> Sequence[Answer] | None:
    """Return the explanations of the named jobs; None if no queue admits them, so that their pods are to be explained.

    Raises  InputError for a workload that is not there
    """
    from moorage.laboratory.explain.explain_workload import names_work
    from moorage.simulator.kueue.batch_jobs import queued_cluster, read_queues

    cluster, names = asked.changed_input, given["pods"]
    if not (documents := read_queues(cluster, None)):
        if _WORKLOADS.isdisjoint(name.partition("/")[0].lower() for name in names):
            return None
        raise InputError("the input has no ClusterQueue of Kueue; add its manifests with -f")
    queued = queued_cluster(cluster, documents)
    numbers = [names_work(queued, name, given["namespace"]) for name in names]
    if missing := [name for name, number in zip(names, numbers, strict=True) if number is None]:
        if any(number is not None for number in numbers) or missing[0].partition("/")[0].lower() in _WORKLOADS:
            titles = {one.title.partition("/")[2]: one.title.lower() for one in queued.works}
            close = close_to(missing[0].partition("/")[2], titles) or "; moorage simulate lists them"
            raise InputError(f"{missing[0]}: no queue has or had a job of this name{close}")
        return None
    if given["output"] == "html":
        raise click.UsageError("workloads are explained as text, JSON or YAML")
    return _explained_works(given, asked, queued, names, [number for number in numbers if number is not None])


def _explained_works(
    given: Mapping[str, Any], asked: Asked, queued: QueuedCluster, names: Iterable[str], numbers: Iterable[int]
) -> list[WorkloadExplanation]:
    """Return the explanations of works by their numbers. ``names``: what the answer says was asked."""
    from moorage.laboratory.explain.explain_workload import explain_workload

    request = asked.request({"workloads": list(names)})
    return [
        explain_workload(
            queued, number, asked.changed_options, request, probes=min(given["probes"], 200),
            alternatives=given["alternatives"] + 2, budget=asked.budget,
        )
        for number in numbers
    ]  # fmt: skip


def explain_waiting(given: Mapping[str, Any], asked: Asked) -> Sequence[Answer] | None:
    """Return the explanations of the jobs whose pods are named, if Kueue lets all of these jobs wait; else None.

    Their pods do not exist yet in a cluster, and where they would go is another question than why they wait.
    """
    names = [name.removeprefix("pod/") for name in given["pods"]]
    if not names or any("/" in name for name in names) or given["output"] == "html":
        return None
    cluster = asked.changed_input
    if not any(one.resource in QUEUE_KINDS for one in cluster.custom):
        return None
    from moorage.laboratory.explain.explain_workload import work_of_pods
    from moorage.simulator.kueue.batch_jobs import queued_cluster, read_queues  # Kueue is loaded only where it has queues

    if not (documents := read_queues(cluster, None)):
        return None
    queued = queued_cluster(cluster, documents)
    numbers = dict.fromkeys(work_of_pods(queued, name, given["namespace"]) for name in names)
    named = [number for number in numbers if number is not None]
    if len(named) < len(numbers):
        return None
    found = _explained_works(given, asked, queued, [queued.works[number].title for number in named], named)
    return None if any(one.waits_for in {"started", "nodes"} for one in found) else found


#: Texts of as many pods of a workload are printed; of more, one for each cause.
_MOST_PRINTED: Final = 5


def explain_event(given: Mapping[str, Any]) -> int:
    """Print the situations of the atlas that an event's text stands for.

    Raises  InputError if there is none
    """
    found = find_entries(given["event"])
    if not found:
        raise InputError("no situation of the atlas has a reason of this event; ask for the pod: moorage explain POD -f FILE")
    if given["output"] in {"json", "yaml"}:
        document = {"apiVersion": "moorage.dev/v1", "kind": "AtlasEntries", "entries": msgspec.to_builtins(found)}
        print_styled(
            yaml_text(document) if given["output"] == "yaml" else json.dumps(document, indent=2, sort_keys=True) + "\n"
        )
    else:
        print_styled(told(found) + "\n")
    return 0


@described("explain")
def explain(**given: Any) -> int:
    """Run ``moorage explain``."""
    if given["event"]:
        return explain_event(given)
    asked_for = bool(given["pods"]) + given["every_pending"] + given["together"]
    if not asked_for:
        raise click.UsageError("name a pod or a workload, or give --all or --pending")
    if asked_for > 1:
        named = f"; {given['pods'][0]} is read as a name, and -f reads a file" if given["pods"] else ""
        raise click.UsageError(f"names of pods, --all and --pending exclude each other{named}")
    among = Narrowing("" if given["every_namespace"] else given["namespace"], selector_of(given["selector"]))
    limits = _limits(given)
    given = before_binding(given)
    of_nodes, jobs_named = names_nodes(given), kinds_of_jobs(given["pods"])
    kinds = (*(jobs_named or queue_kinds(given)), *kinds_of_autoscaler(given))
    begun = None
    if given["live"]:
        from moorage.interfaces.cli.live_reading import BEGUN, ClusterToRead  # a client, which files need not load

        begun = BEGUN.get(ClusterToRead(given["kubeconfig"], given["context"]))
    with Progress.of(given) as progress, open_question(given, progress, kinds) as asked:
        progress.say("explaining …")
        jobs = (explain_groups(given, asked) or explain_jobs(given, asked)) if jobs_named else explain_waiting(given, asked)
        limits = with_fields(limits, budget=asked.budget)
        what = ExplainOptions(given["pods"], given["every_pending"], among, asked.envelope({}), limits)
        counts = partial(_count, progress)
        early = _EarlyCause(progress, given)
        found: list[Answer] = (
            []
            if of_nodes
            else [*jobs]
            if jobs is not None
            else [explain_together(asked.changed_input, asked.changed_options, what, on_attempt=counts)]
            if given["together"]
            else [*_explained(asked, what, counts, early)]
        )
        answers = list(autoscaler_answers(given, asked))
        if given["output"] in {"text", "wide"}:  # what is missing is the same for all
            answers[:-1] = [with_fields(one, missing=()) for one in answers[:-1]]
        found += answers
        refused = []
        if not found and given["every_pending"] and not asked.what_if:
            kept = (pod for pod in asked.given.pods if among.keeps(pod.namespace, pod.name, pod.labels))
            refused = [pod.key for pod in kept if refusal_in(pod)]
    status = exit_status(*found)
    folds = given["pods"] and given["output"] == "text"
    heading, found = _folded(found, len(given["pods"]), ascii_only=given["ascii_only"]) if folds else ("", found)
    if given["output"] == "wide" and len(found) > len(given["pods"]) > 0:  # those of a workload that wait are asked about
        found = sorted(found, key=lambda one: bool(one.holds))
    print_styled(heading)
    text = heading + print_explanations(
        found, given["output"], ascii_only=given["ascii_only"], among=among, printed=early.printed, refused=refused
    )  # fmt: skip
    if begun is not None and found and all(one.stopped is None for one in found):
        begun.keep(text, given, status)
    return status


def _folded(found: list[Answer], named: int, *, ascii_only: bool) -> tuple[str, list[Answer]]:
    """Return what many pods have in common, as text, and the explanations to print: of the first pod of each cause.

    If no pod is pending, that is the first pod that has a node. A few pods are all printed, unless they are those of workloads
    and some wait for the same cause or have a node. ``named``: how many names were given.
    """
    pods = [one for one in found if isinstance(one, Explanation)]
    causes, placed = grouped(one for one in pods if not one.holds), [one for one in pods if one.holds]
    exist = all(one.not_created is None for one in pods)  # else the first line says how many do not
    mixed = bool(placed and causes) and exist
    is_said_again = len(pods) > named and (mixed or any(len(those) > 1 for _, those in causes))
    if len(pods) <= _MOST_PRINTED and not is_said_again:
        return "", sorted(found, key=lambda one: bool(one.holds)) if len(pods) > named else found
    style = output_style(ascii_only=ascii_only)
    with lines_of(style.width if style.fits else None, ""):
        why = f", for {counted(len(causes), 'cause')}" if causes else ""
        lines = [f"{len(pods) - len(placed)} of {len(pods)} pods are pending{why}."]
        for sign, cause, those in (*(("✗", *one) for one in causes), *((("✓", "not pending", placed),) if placed else ())):
            names = some_pods([one.pod for one in those])
            lines.append(paragraph(one_line(f"{names}: {cause}"), indent=f"  {sign} ", hanging="    "))
        lines.append(paragraph(f"Below: {'one pod of each cause' if causes else 'one of them'}. All pods: -o wide"))
        pending = len(pods) - len(placed)
        if pending > len(causes):
            shown = f"The changes below are for {len(causes)} of the {pending} pending pods; for all: moorage explain --pending"
            lines.append(paragraph(shown))
    first = [those[0] for _, those in causes] or placed[:1]
    return style.finished("\n".join(lines) + "\n\n"), [*first, *(one for one in found if not isinstance(one, Explanation))]


def before_binding(given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with the moment right before the pod was bound, if a log has that, and say so.

    Raises  InputError where the log is damaged
    """
    if not given["paths"] or len(given["pods"]) != 1:
        return given
    from moorage.basis.recording.log_reader import ClusterLog, is_log, moment_text, parse_moment  # only files need it

    logs = [path for path in given["paths"] if is_log(path)]
    if len(logs) != 1:
        return given
    from moorage.laboratory.recording.logged_decisions import binding_of

    log, (name,) = ClusterLog(logs[0]), given["pods"]
    key = name if "/" in name else f"{given['namespace'] or 'default'}/{name}"
    bound, node = binding_of(log, key, parse_moment(given["moment"] or "", *log.span()))
    if not bound:
        return given
    if not given["quiet"]:
        say(f"note: bound to {node} at {moment_text(bound)}; this is the decision right before", err=True)
    return {**given, "moment": moment_text(bound - 1)}


class _EarlyCause:
    """Prints why a pod is pending before changes are searched for, on a terminal; ``printed`` is what it has printed."""

    def __init__(self, progress: Progress, given: Mapping[str, Any]) -> None:
        self.printed = ""
        self._progress, self._given = progress, given

    def __call__(self, found: Sequence[Explanation]) -> None:
        """Print the first lines of the explanation, if there is one to print and a search follows."""
        output, stream = self._given["output"], self._progress.answers
        is_shown = output in {"text", "wide"} and bare(stream).isatty() and self._given["probes"]
        if len(found) != 1 or not is_shown or found[0].holds:
            return
        text = text_of_answer(found[0], output, ascii_only=self._given["ascii_only"])
        self.printed = text.partition("\n\n")[0]
        print_styled(self.printed, stream)
        bare(stream).flush()


def _explained(
    asked: Asked, what: ExplainOptions, on_attempt: Callable[[SimulatedAttempt], None], on_found: _EarlyCause
) -> list[Explanation]:
    """Return the explanations after the changes of the question, each with the explanation before the changes.

    With --all, pods that were pending before the changes are explained too.
    """
    before = _before(asked, what) if asked.what_if else {}
    also = frozenset(before) if what.every_pending else frozenset()
    after = explain_cluster(
        asked.changed_input, asked.changed_options, replace(what, also=also, is_changed=bool(asked.what_if)),
        on_attempt=on_attempt, on_found=None if asked.what_if else on_found,
    )  # fmt: skip
    return [with_fields(one, before=before.get(_subject(one))) for one in after]


def _before(asked: Asked, what: ExplainOptions) -> dict[str, Explanation]:
    """Return the explanations before the changes, by pod; {} if the named pods exist only after the changes."""
    quick = replace(what, limits=ChangeLimits(probes=0))
    try:
        return {_subject(one): one for one in explain_cluster(asked.given, asked.options, quick)}
    except InputError:
        return {}


def _subject(explanation: Explanation) -> str:
    """Return the subject of an explanation: a pod, or a workload whose pods are not created."""
    missing = explanation.not_created
    return f"{missing.namespace}/{missing.workload}" if missing is not None and missing.workload else explanation.pod


def _limits(given: dict[str, Any]) -> ChangeLimits:
    named = [name.strip() for name in given["may"].split(",") if name.strip()]
    unknown = sorted(set(named) - set(OWNERS))
    if unknown or not named:
        raise click.UsageError(f"--may: {', '.join(unknown) or 'no owner'}; use any of {', '.join(OWNERS)}")
    may = tuple(owner for owner in OWNERS if owner in named)
    return ChangeLimits(
        may, given["alternatives"], given["probes"], _costs(given), given["with_queue"], all_changes=given["all_changes"],
        untouched=Untouchable(tuple(given["untouched"])),
    )  # fmt: skip


def _costs(given: Mapping[str, Any]) -> Costs:
    """Return the costs of the options; those of the project's file where an option is not given."""
    table, where = (given["costs"], given["costs"]) if given["costs"] else project_setting("costs")
    if isinstance(table, str):
        costs = read_costs(read_file(table, CONFIG_LIMIT), table)
    else:
        costs = Costs() if table is None else costs_of(table, where)
    types = given["types"] or project_setting("types")[0]
    usage = {}
    if given["usage"]:
        from moorage.basis.inputs.usage import read_usage  # rarely given

        usage = read_usage(given["usage"]).pods
    known = () if types is None else tuple(read_types(Path(types) if isinstance(types, str) else types))
    return with_costs(costs, types=known, usage=usage)


def _count(progress: Progress, attempt: SimulatedAttempt) -> None:
    progress.count(placed=attempt.decision.node is not None)


def print_explanations(
    found: Sequence[Answer], output: str, *, ascii_only: bool = False, among: Narrowing | None = None, printed: str = "",
    refused: Sequence[str] = (),
) -> str:  # fmt: skip
    """Print explanations, and return the text. If there are none, print a text that says so, except as JSON or YAML.

    ``refused``: pods that are pending in the input, and would be placed
    """
    if found or output in {"json", "yaml"}:
        return print_answers(found, output, ascii_only=ascii_only, printed=printed)
    held = "" if not refused else (
        f"; scheduled now, {counted(len(refused), 'pod')} that a scheduler refused would be placed: {some(refused)}"
    )  # fmt: skip
    sys.stdout.write(one_line(f"No {'selected ' if among else ''}pod {'stays' if held else 'is'} pending{held}") + ".\n")
    return ""
