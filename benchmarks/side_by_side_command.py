"""``python -m benchmarks side-by-side``: kube-scheduler and Moorage on the same workloads, in process and on an API server."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.in_process import IN_PROCESS, LEFT_OUT, DisagreementError, in_process_table, measure_in_process, progress
from benchmarks.side_by_side import NO_LIMIT, ON_A_SERVER, Setting, measure_on_a_server, table
from benchmarks.workloads import WORKLOADS
from tools.oracles import BuildError, OracleMissingError
from tools.real_cluster import ClusterError

__all__ = ["put_in", "side_by_side"]

_SKIPPED: Final = 77
_PAGE: Final = Path(__file__).resolve().parents[1] / "docs/project/speed.md"


@click.command("side-by-side")
@click.argument("names", nargs=-1)
@click.option("--in-process", "halves", flag_value="in process", help="Compare in one process each alone.")
@click.option("--on-a-server", "halves", flag_value="on a server", help="Compare on a real API server alone.")
@click.option("--nodes", type=click.IntRange(1), help="Number of nodes; default: 5000 in process, 2500 on a server.")
@click.option("--pods", type=click.IntRange(1), help="Number of pods; default: 1000 in process, 2000 on a server.")
@click.option("--rounds", default=3, type=click.IntRange(1), help="Number of runs of each.")
@click.option("--limit", default=120.0, help="Seconds that kube-scheduler has in process; then what it has placed counts.")
@click.option("--qps", default=NO_LIMIT, help="Requests a second that a scheduler may send to a server; default: no limit.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Append each run to a file, one JSON object per line.")
@click.option("--write", "to_page", is_flag=True, help=f"Put the tables into {_PAGE.name}.")
def side_by_side(
    names: tuple[str, ...], halves: str | None, nodes: int | None, pods: int | None, rounds: int, limit: float, qps: int,
    out: Path | None, to_page: bool,
) -> None:  # fmt: skip
    """Compare kube-scheduler's own code with Moorage on the workloads NAMES of `list`, or on some of each kind.

    In process both place the same pods without an API server; on a server both bind them through one kube-apiserver. Fails
    if they do not place as many pods, or as many on a node where that is settled; ends with 77 where Go or a module cannot be
    had.
    """
    if unknown := [name for name in names if name not in WORKLOADS]:
        raise click.UsageError(f"unknown workload {unknown[0]}; use one of {', '.join(WORKLOADS)}")
    if halves != "on a server" and (left_out := [name for name in names if name in LEFT_OUT]):
        raise click.UsageError(f"{left_out[0]} is not compared in process: {LEFT_OUT[left_out[0]]}")
    try:
        if halves != "on a server":
            _in_process(names or IN_PROCESS, nodes or 5000, pods or 1000, rounds, limit, out, to_page=to_page)
        if halves != "in process":
            _on_a_server(names or ON_A_SERVER, Setting(nodes or 2500, pods or 2000, rounds, qps), out, to_page=to_page)
    except OracleMissingError as error:
        click.echo(f"skipped: {error}", err=True)
        sys.exit(_SKIPPED)
    except (BuildError, ClusterError, DisagreementError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def _in_process(
    names: Sequence[str], nodes: int, pods: int, rounds: int, limit_s: float, out: Path | None, *, to_page: bool
) -> None:
    found = []
    for name in names:
        for one in measure_in_process(name, nodes, pods, rounds, limit_s):
            click.echo(progress(one))
            found.append(one)
    _end("in process", in_process_table(found, nodes), found, out, to_page=to_page)


def _on_a_server(names: Sequence[str], given: Setting, out: Path | None, *, to_page: bool) -> None:
    found = [one for name in names for one in measure_on_a_server(name, given)]
    _end("side by side", table(found, given), found, out, to_page=to_page)


def _end(marker: str, text: str, found: Sequence[Mapping[str, Any]], out: Path | None, *, to_page: bool) -> None:
    if out is not None:
        with out.open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in found)
    click.echo(f"\n{text}\n")
    if to_page:
        _PAGE.write_text(put_in(_PAGE.read_text(encoding="utf-8"), marker, text), encoding="utf-8")


def put_in(page: str, marker: str, text: str) -> str:
    """Return a page with this text between the lines ``<!-- marker: begin -->`` and ``<!-- marker: end -->``.

    Raises  ValueError if the page lacks them
    """
    begin, end = f"<!-- {marker}: begin -->\n", f"<!-- {marker}: end -->\n"
    head, opens, rest = page.partition(begin)
    _, closes, tail = rest.partition(end)
    if not opens or not closes:
        raise ValueError(f"the page has no lines {begin.strip()} and {end.strip()}; put them where the table belongs")
    return f"{head}{begin}{text}\n{end}{tail}"
