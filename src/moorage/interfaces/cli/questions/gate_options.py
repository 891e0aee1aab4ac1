"""Gates on the command line: ``--fail-on``, ``--strict``, ``--baseline`` and ``--across``, and the formats for pipelines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from moorage.basis.inputs.files import open_sources
from moorage.basis.inputs.object_lines import FileLine, ObjectKey, find_positions
from moorage.errors import InputError
from moorage.interfaces.cli.bounded_files import STDIN, read_file
from moorage.report.gate_outputs import (
    MOST_SUMMARY_BYTES,
    GateReport,
    PendingFinding,
    SourceLine,
    as_github,
    as_junit,
    as_sarif,
    github_summary,
)
from moorage.report.gates import UnplacedPod
from moorage.report.run_document import StoredReport, read_stored

__all__ = ["PIPELINE_OUTPUTS", "ManifestLines", "gate_options", "pending_findings", "print_gate_report", "read_baseline"]

#: The output formats for CI pipelines.
PIPELINE_OUTPUTS: Final = ("junit", "sarif", "github")
_BASELINE_LIMIT: Final = 1 << 30
_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--fail-on", "gates", multiple=True, metavar="GATE",
        help="Exit with 2 if this holds: 'pending > +0', 'wait.p99 > +10%', 'nodesUsed > 40', 'moved > 5%', new-pending."
        " With a sign, the threshold is relative to A. May be repeated.",
    ),
    click.option("--strict", is_flag=True, help="Gates fail if any part of the interval is beyond the threshold."),
    click.option("--baseline", metavar="REPORT", help="Compare with a stored report of simulate or compare, in JSON or YAML."),
    click.option("--across", is_flag=True, help="Accept a baseline of another input."),
)  # fmt: skip


def gate_options(command: _Command) -> _Command:
    """Add the options of gates to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_baseline(given: Mapping[str, Any], digest: Callable[[], str]) -> StoredReport | None:
    """Return the stored report of --baseline, None without it. ``digest`` computes the digest of the current input.

    Raises  InputError for a report of another input, unless ``--across`` is given
    """
    path = given["baseline"]
    if path is None:
        if given["across"]:
            raise click.UsageError("--across needs --baseline")
        return None
    if path == STDIN and STDIN in given["paths"]:
        raise click.UsageError("standard input can be read only once: use - for either --baseline or -f")
    stored = read_stored(read_file(path, _BASELINE_LIMIT), path)
    if not given["across"] and stored.digest != digest():
        what = "was made from another input" if stored.digest else "does not say which input it was made from"
        raise InputError(f"{path}: the baseline {what}; give --across to compare with it anyway")
    return stored


# -- where things are ----------------------------------------------------------------------------------------------------


class ManifestLines:
    """The file and line of each object in the input files. Standard input and live clusters have none."""

    def __init__(self, paths: Sequence[str], recursive: bool) -> None:
        files = [path for path in paths if path != STDIN]
        self._found: Mapping[ObjectKey, FileLine] = find_positions(open_sources(files, recursive=recursive))

    def of_pod(self, pod: UnplacedPod) -> SourceLine | None:
        """Return the file and line of a pod's manifest or, without one, of its workload's; None if neither is in a file."""
        namespace, _, name = pod.pod.partition("/")
        kind, _, owner = pod.workload.partition("/")
        found = self._found.get(ObjectKey("Pod", namespace, name)) or self._found.get(ObjectKey(kind, namespace, owner))
        return None if found is None else SourceLine(found.file, found.line)

    def first(self) -> SourceLine | None:
        """Return the file and line of the first object."""
        return next((SourceLine(one.file, one.line) for one in self._found.values()), None)


def pending_findings(
    pending: Iterable[UnplacedPod], new: Iterable[UnplacedPod], lines: ManifestLines, *, compared: bool = True
) -> tuple[PendingFinding, ...]:
    """Return the pending pods with the lines of their manifests, new ones first. ``compared``: there is an earlier run."""
    names = {one.pod for one in new}
    found = [PendingFinding(one, lines.of_pod(one), one.pod in names, compared) for one in pending]
    return tuple(sorted(found, key=lambda one: not one.is_new))


# -- what pipelines read -------------------------------------------------------------------------------------------------


def print_gate_report(report: GateReport, output: str) -> None:
    """Print a report as JUnit, SARIF or workflow commands; the latter also append to GitHub's step summary."""
    formats = {"junit": as_junit, "sarif": as_sarif, "github": as_github}
    sys.stdout.write(formats[output](report))
    if output == "github":
        _append_summary(github_summary(report))


def _append_summary(text: str) -> None:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    with open(path, "ab") as file:
        if file.tell() + len(text.encode()) < MOST_SUMMARY_BYTES:
            file.write(text.encode())
