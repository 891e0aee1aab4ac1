"""``moorage record cut``: the smallest input that repeats a decision, cut out of a log or a dump."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from moorage.api.core import Pod
from moorage.basis.printable import counted
from moorage.basis.recording.log_reader import ClusterLog, is_log, moment_text, parse_moment
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import emulating, read_cluster, reading_options, rules_of, simulation_options
from moorage.interfaces.cli.command_help import DescribedCommand
from moorage.interfaces.cli.progress import Progress
from moorage.interfaces.cli.questions.dump import write_parts
from moorage.interfaces.cli.questions.redact import read_key
from moorage.interfaces.cli.release_options import AUTO, emulated_cluster_option
from moorage.interfaces.cli.terminal import collect_seldom, say
from moorage.laboratory.present import read_given
from moorage.laboratory.recording.capsule import Capsule, cut_capsule, decide_alone
from moorage.laboratory.recording.decisions import decision_moment
from moorage.laboratory.redact.redaction import redact
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulate import Options, kinds_named

__all__ = ["cut"]

EPILOG: Final = """Examples:

\b
    moorage record cut -f log/ --pod shop/web-0 --at 14:03 -o case.json.gz
    moorage explain shop/web-0 -f case.json.gz
"""


@click.command(cls=DescribedCommand, epilog=EPILOG, short_help="Cut the smallest input that repeats a decision.")
@click.option("-f", "--filename", "paths", multiple=True, metavar="PATH", help="The log, or a dump. May be repeated.")
@click.option("-R", "--recursive", is_flag=True, help="Read directories recursively.")
@reading_options
@click.option("--pod", "pod_name", required=True, metavar="[NAMESPACE/]POD", help="The pod that the decision was about.")
@click.option("--beside", default="", metavar="NODE", help="The node to compare with, such as the one that it really went to.")
@click.option("-o", "--output", "path", metavar="FILE", help="Where to write; compressed if the name ends in .gz.  [stdout]")
@click.option("--redact", "key_file", metavar="KEY", help="Replace names by tokens, made with the key in this file.")
@click.option("--config", metavar="FILE", help="The configuration of the scheduler; kube-scheduler's defaults without.")
@emulated_cluster_option
@click.option("--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates, in kube-scheduler's format.")
@click.option("--plugins", multiple=True, metavar="MODULE:CLASS", help="A custom plugin. May be repeated.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for breaking ties between equally scored nodes.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing to standard error, unless something is wrong.")
def cut(**given: Any) -> None:
    """Cut the smallest input that repeats the decision on a pod: it fits nowhere, or goes to a node, for the same reasons.

    Of a pod that has a node at that moment, the decision before its binding is repeated. Objects are left out as long as the
    decision stays; the result is verified.
    """
    if not given["paths"]:
        raise click.UsageError("nothing to read: give -f LOG")
    collect_seldom()
    options = simulation_options({**given, "algorithm_provider": "", "max_disks": None, "extenders": "skip", "no_quota": True})
    key = given["pod_name"] if "/" in given["pod_name"] else f"default/{given['pod_name']}"
    with Progress(quiet=given["quiet"]) as progress:
        progress.say("reading the input …")
        paths = tuple(_at_decision(path, key, given["moment"] or "") for path in given["paths"])
        cluster = read_cluster(paths, given["recursive"], kinds_named(options), rules_of(given), progress)
        options = emulating(options, given, cluster)
        pod = next((one for one in cluster.pods if one.key == key), None)
        if pod is None:
            raise InputError(f"pod {key} not found at {cluster.report.taken_at or 'that moment'}")
        found = cut_capsule(
            cluster, _unbound(pod), options, given["beside"],
            lambda made, left: progress.say(f"{counted(made, 'trial')}, {counted(left, 'object')} left …"),
        )  # fmt: skip
    documents = found.documents()
    name = found.pod.key
    if given["key_file"] is not None:
        documents, name = _redacted(found, read_key(given["key_file"], quiet=given["quiet"]), options)
    emulated = "" if given["emulate"] in {None, AUTO} and options.emulate is None else options.emulate or ""
    config = "" if options.config is None or given["key_file"] else options.config.decode(errors="replace")
    settings = {"pod": name, "seed": options.seed, "emulate": emulated, "featureGates": options.feature_gates, "config": config}
    record = found.record(cluster.report.taken_at, {name: value for name, value in settings.items() if value})
    if given["key_file"] is not None:
        record["capsule"].pop("outcome", None)
    write_parts(given["path"], _parts([record, *documents]))
    if not given["quiet"]:
        where = given["path"] or "standard output"
        say(
            f"{where}: {counted(len(documents), 'object')} of {found.of_objects + 1:,}, {counted(found.trials, 'trial')}",
            err=True,
        )
        say(f"{found.pod.key} {found.outcome.sentence()}", err=True)


def _at_decision(path: str, key: str, moment: str) -> str:
    """Return a path that reads a log right before the decision on a pod; other paths as they are."""
    if not os.path.isdir(path) or not is_log(path):
        if moment:
            raise InputError(f"{path}: --at needs a log of moorage record; this is none")
        return path
    log = ClusterLog(path)
    return f"{path}@{moment_text(decision_moment(log, key, parse_moment(moment, *log.span())))}"


def _unbound(pod: Pod) -> Pod:
    """Return a pod as it waits for a node."""
    if not pod.spec.node_name:
        return pod
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, spec=spec, status=msgspec.structs.replace(pod.status, phase="Pending", conditions=()))


def _redacted(found: Capsule, key: bytes, options: Options) -> tuple[list[dict[str, Any]], str]:
    """Return the documents with tokens, and the token of the pod, whose decision must be the same one.

    Raises  InputError
    """
    made = redact([*found.objects, found.pod], key).objects
    read = read_given(made)
    pod = read.pods[-1]  # objects of a kind keep their order
    decision, _ = decide_alone([one for one in objects_of(read) if one is not pod], pod, options)
    if bool(decision.node) != bool(found.outcome.node) or (not decision.node and decision.rejected_by != found.outcome.plugins):
        raise InputError("without its names the capsule does not repeat the decision; leave --redact out")
    return made, pod.key


def _parts(documents: list[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the file in parts: one line for each object."""
    yield b'{"apiVersion":"v1","kind":"List","items":['
    for number, one in enumerate(documents):
        yield b",\n" if number else b"\n"
        yield json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode()
    yield b"\n]}\n"
