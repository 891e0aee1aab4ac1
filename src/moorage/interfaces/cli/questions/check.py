"""``moorage check``: whether a cluster, or a change of it, keeps to a policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from moorage import __version__
from moorage.basis.files import files_close_to
from moorage.basis.printable import counted, one_line
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, STDIN, file_named_in, read_cluster, read_file, rules_of
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.gate_options import PIPELINE_OUTPUTS, ManifestLines, pending_findings, print_gate_report
from moorage.interfaces.cli.questions.question import Asked, exit_status, open_question, print_answer
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.policy import check_policy, read_policy
from moorage.laboratory.edit.object_edits import replaced, without
from moorage.report.gate_outputs import GateReport, PendingFinding
from moorage.report.policy_report import PolicyReport
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import LeavesOut
from moorage.simulator.simulate import kinds_named

DEFAULT_POLICY = "moorage-policy.yaml"


@described("check")
def check(**given: Any) -> int:
    """Run ``moorage check``."""
    if given["policy"] == DEFAULT_POLICY and not Path(DEFAULT_POLICY).exists():
        raise InputError(
            f"no policy: there is no {DEFAULT_POLICY} in this folder; name one with --policy FILE, or write one"
            " (moorage help check); moorage demo --copy . has examples/check/moorage-policy.yaml"
        )
    if given["policy"] != STDIN and not Path(given["policy"]).exists():
        close = files_close_to(given["policy"]) or "; moorage help check says what one holds"
        raise InputError(one_line(f"--policy {given['policy']}: no such file{close}"))
    policy = read_policy(read_file(given["policy"], CONFIG_LIMIT), given["policy"], file_named_in)
    limit = policy.time_limit_s if given["time_limit"] is None else given["time_limit"]
    given, paths = {**given, "time_limit": limit, "effort": policy.effort}, given["paths"]
    first = 0 if given["live"] else 1
    with Progress.of(given) as progress, open_question({**given, "paths": paths[:first]}, progress) as asked:
        after = _changed(asked, given, paths[first:], progress)
        before = asked.given if after is not asked.given else None
        request = asked.request({"check": given["policy"], **({"change": list(paths[first:])} if paths[first:] else {})})
        found = check_policy(policy, given["policy"], before, after, asked.changed_options, request, asked.budget, progress.say)
    if given["output"] in PIPELINE_OUTPUTS:
        print_gate_report(_gates(found, given, paths[first:], asked, after), given["output"])
    else:
        print_answer(found, given, asked)
    return exit_status(found)


def _changed(asked: Asked, given: dict[str, Any], paths: tuple[str, ...], progress: Progress) -> ClusterInput:
    if not paths:
        return without(asked.changed_input, given["gone"]) if given["gone"] else asked.changed_input
    custom = kinds_named(asked.options)
    rules = replace(rules_of(given, LeavesOut.NONE), for_policies=True)
    changed = replaced(asked.changed_input, read_cluster(paths, given["recursive"], custom, rules, progress))
    return without(changed, given["gone"])


def _gates(
    found: PolicyReport, given: dict[str, Any], paths: tuple[str, ...], asked: Asked, after: ClusterInput
) -> GateReport:  # fmt: skip
    lines = ManifestLines(paths, given["recursive"], (asked.given, after))
    pending = pending_findings(found.pending, found.new_pending, lines, compared=bool(paths))
    broken = counted(sum(not gate.passed for gate in found.gates()), "rule")
    return GateReport(
        command="check",
        summary=found.summary,
        gates=found.gates(),
        pending=_advised(pending, asked, after),
        where=lines.first(),
        details=found.text(wide=True) + f"{broken} of {Path(given['policy']).name} broken\n",
        version=__version__,
    )


#: For how many findings the cause and a remedy are looked for, and how long for each.
_ADVISED: Final = 5
_ADVICE_S: Final = 5.0


def _advised(found: tuple[PendingFinding, ...], asked: Asked, after: ClusterInput) -> tuple[PendingFinding, ...]:
    """Return the findings, the first new ones with the cause and the first remedy that an explanation has."""
    if not any(one.is_new for one in found):
        return found
    cluster = Cluster(after, asked.changed_options)
    cluster.run()
    advised = (
        msgspec.structs.replace(one, advice=_advice(cluster, one.pod.pod)) if one.is_new else one for one in found[:_ADVISED]
    )
    return (*advised, *found[_ADVISED:])


def _advice(cluster: Cluster, pod: str) -> str:
    try:
        found = cluster.explain(pod, time_limit_s=_ADVICE_S)
    except InputError:  # the API server does not create the pod; its message says why
        return ""
    _, _, cause = found.summary.partition(": ")
    remedy = next((" + ".join(atom.text for atom in change.atoms) for change in found.changes), "")
    return " ".join([f"Cause: {cause}" if cause else "", f"What to do: {remedy}." if remedy else ""]).strip()
