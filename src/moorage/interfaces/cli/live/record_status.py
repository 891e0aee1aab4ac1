"""``moorage record status``: what a log covers, and how far Moorage decides as the scheduler of its cluster does."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from moorage.basis.printable import counted, one_line
from moorage.basis.recording.log_reader import STARTED, STATE_KEPT_S, ClusterLog, LogFault, moment_text
from moorage.interfaces.cli.command_help import DescribedCommand
from moorage.interfaces.cli.main import OK, PENDING
from moorage.live.recording.agreement import Match
from moorage.live.recording.status import read_status
from moorage.report.style import cells, paragraph

__all__ = ["status"]

_VERDICTS: Final = {
    Match.SAME: "the same node, or the same reasons",
    Match.EQUAL_SCORE: "another node with an equal score",
    Match.SAMPLED: "the best of a possible sample of nodes",
    Match.REORDERED: "the same, with other changes counted earlier or later",
    Match.DIFFERENT: "different",
}


@click.command(cls=DescribedCommand, short_help="Say what a log covers, and whether decisions agree.")
@click.argument("directory", metavar="LOG")
@click.option("--verify", is_flag=True, help="Read the whole log, and name each damaged place.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print it.")
def status(directory: str, verify: bool, output: str) -> int:
    """Say what LOG covers, whether its recorder runs, and how far Moorage decides as the cluster's scheduler does.

    Exits with 2 when decisions differ, when the recorder is behind or cannot write, or when --verify finds damage.
    """
    log = ClusterLog(directory)
    found = _document(log, log.faults() if verify else None)
    if output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    else:
        sys.stdout.write("".join(_text(found)))
    recorder = found["recorder"] or {}
    damaged = any(not one["torn"] for one in found["faults"] or ())
    troubled = recorder.get("writeError") or recorder.get("behindSeconds", 0) >= 5
    different = found["agreement"].get("share") not in {None, 1.0}
    return PENDING if damaged or troubled or different else OK


def _document(log: ClusterLog, faults: list[LogFault] | None) -> dict[str, Any]:
    """Return what is known of a log as plain data."""
    first, last = log.span()
    state = log.state_at(last)
    started = state.marks.get(STARTED)
    agreement = state.marks.get("agreement")
    recorder = _recorder(log.directory)
    return {
        "log": str(log.directory), "from": moment_text(first), "to": moment_text(last), "bytes": log.bytes_on_disk,
        "objects": len(state.objects), "started": {} if started is None else started.facts, "recorder": recorder,
        "agreement": (recorder or {}).get("agreement") or ({} if agreement is None else agreement.facts),
        "faults": None if faults is None else [one._asdict() for one in faults],
    }  # fmt: skip


def _recorder(directory: Path) -> dict[str, Any] | None:
    """Return the last state that the recorder wrote, and whether it runs; None if there is none."""
    read = read_status(directory)
    if read is None:
        return None
    return {**read, "running": time.time() - read.get("at", 0) / 1e6 < STATE_KEPT_S + max(0.0, -read.get("aheadSeconds", 0))}


def _text(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people."""
    started, recorder = found["started"], found["recorder"]
    about = f"{started.get('server') or 'a redacted cluster'}, decisions of {started.get('release', '?')}"
    yield paragraph(one_line(f"{found['log']}: {found['from']} to {found['to']}, {_size(found['bytes'])}"), hanging="  ") + "\n"
    yield paragraph(one_line(f"{counted(found['objects'], 'object')} at its end; {about}"), indent="  ", hanging="    ") + "\n"
    yield from _running(recorder)
    yield from _agreement(found["agreement"])
    yield from _differences(found["log"], (recorder or {}).get("differences") or ())
    if found["faults"] is not None:
        damaged = [one for one in found["faults"] if not one["torn"]]
        torn = [one for one in found["faults"] if one["torn"]]
        yield f"\n{'No damage' if not damaged else counted(len(damaged), 'damaged place')}"
        yield f"; {counted(len(torn), 'file')} ended by a kill.\n" if torn else ".\n"
        for one in damaged:
            yield paragraph(one_line(f"{one['file']}: byte {one['offset']}: {one['why']}"), indent="  ", hanging="    ") + "\n"


def _running(recorder: Mapping[str, Any] | None) -> Iterator[str]:
    if recorder is None:
        yield "  there is no status of moorage record; moorage run --record writes none\n"
        return
    what = "recording" if recorder["running"] else "the recorder does not run"
    if recorder["running"] and recorder.get("behindSeconds", 0) >= 5:
        what = f"BEHIND by {recorder['behindSeconds']:.0f} s, {counted(recorder['waiting'], 'change')} to take"
    if recorder.get("writeError"):
        what = f"CANNOT WRITE: {recorder['writeError']}"
    ahead = recorder.get("aheadSeconds") or 0
    yield paragraph(one_line(what), indent="  ", hanging="    ") + "\n"
    if ahead > 1:
        yield f"  times are {ahead:.0f} s ahead of the time of day, which was set back\n"
    causes = recorder.get("causes") or {}
    if recorder.get("pending"):
        yield f"  {counted(recorder['pending'], 'pod')} pending\n"
        yield "".join(f"    {count:>6}  {one_line(cause)}\n" for cause, count in list(causes.items())[:5])


def _agreement(agreement: Mapping[str, Any]) -> Iterator[str]:
    compared, share = agreement.get("compared", 0), agreement.get("share")
    if share is None:
        yield "\nNo decision was compared yet.\n"
        return
    yield f"\nMoorage agrees with {_percent(share)} of {counted(compared, 'decision')}:\n"
    bindings, failures = agreement.get("bindings", {}), agreement.get("failures", {})
    rows = [("BINDINGS", "FAILURES", "MOORAGE CHOOSES")]
    for verdict, text in _VERDICTS.items():
        if bindings.get(verdict.value) or failures.get(verdict.value):
            rows.append((f"{bindings.get(verdict.value, 0):,}", f"{failures.get(verdict.value, 0):,}", text))
    yield cells(rows, (10, 10, 56)) + "\n"
    plugins = agreement.get("plugins") or {}
    if plugins:
        yield "Differences by plugin: " + ", ".join(f"{name} {count:,}" for name, count in sorted(plugins.items())) + ".\n"
    uncompared = agreement.get("uncompared") or {}
    if uncompared:
        reasons = "; ".join(f"{count:,}: {why}" for why, count in sorted(uncompared.items()))
        yield paragraph(one_line(f"Not compared: {reasons}."), hanging="  ") + "\n"


def _differences(log: str, differences: list[Mapping[str, Any]] | tuple[()]) -> Iterator[str]:
    """Yield the last differences, each with the command that cuts it out of the log."""
    if not differences:
        return
    yield "\nLast differences:\n"
    for one in differences[-5:]:
        at, plugins = moment_text(one["at"]), ", ".join(one.get("plugins") or ())
        theirs = one.get("node") or "pending"
        ours = one.get("ours") or "pending"
        why = f" ({plugins})" if plugins else ""
        line = one_line(f"{at} {one['pod']}: {theirs}, Moorage {ours}{why}")
        yield paragraph(line, indent="  ", hanging="    ") + "\n"
    last = differences[-1]
    beside = f" --beside {last['node']}" if last.get("node") else ""
    yield f"Repeat one:\n  moorage record cut -f {log} --pod {last['pod']} \\\n"
    yield f"    --at {moment_text(last['at'])}{beside} -o case.json.gz\n"


def _percent(share: float) -> str:
    """Return a share; never 100 % for less than all."""
    return "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"


def _size(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return counted(count, "byte")
