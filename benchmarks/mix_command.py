"""``python -m benchmarks mix``: measure the real mix, compare versions on it, and judge mechanisms by it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.mechanisms import MECHANISMS
from benchmarks.mix import MIX, Version, rounds_of, summary, write_workload

__all__ = ["mix", "verdict"]

#: A mechanism is kept if the mix is this much dearer without it, on two workloads or on one …
_EARNS_ON_TWO: Final = 1.15
_EARNS_ON_ONE: Final = 2.0
#: … and on no workload cheaper than this.
_COSTS: Final = 0.95
_HEAD: Final = (
    f"{'workload':24}{'version':18}{'us a pod':>9}{'least-most':>16}{'ratio':>7}{'loop':>6}{'placed':>8}{'kB a pod':>9}"
)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="Use small sizes: some seconds for each run.")
@click.option("--rounds", type=int, help="Number of runs of each version; default: 5 if versions are compared, otherwise 1.")
@click.option(
    "--without", multiple=True, type=click.Choice(list(MECHANISMS)), help="Measure without a mechanism, too. May be repeated."
)
@click.option(
    "--versus",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Another checkout, which is measured in turn with this one.",
)
@click.option("--ablate", is_flag=True, help="Compare this version with each mechanism switched off, and judge the mechanisms.")
@click.option(
    "--write", "into", type=click.Path(file_okay=False, path_type=Path), help="Write the workloads there; run nothing."
)
@click.option("--json", "out", type=click.Path(path_type=Path), help="Append each run to a file, one JSON object per line.")
def mix(
    names: tuple[str, ...], quick: bool, rounds: int | None, without: tuple[str, ...], versus: Path | None, ablate: bool,
    into: Path | None, out: Path | None,
) -> None:  # fmt: skip
    """Measure what a pod costs in the real mix: the workloads NAMES, or all.

    CPU time is that of everything from the first event to the last decision, per pod that is created, scaled to a machine on
    which sum(range(1000)) takes 9 us. Memory is what the process has grown by at the end. Ratios are those to this version.
    Fails if versions decide differently.
    """
    if unknown := [name for name in names if name not in MIX]:
        raise click.UsageError(f"unknown workload {unknown[0]}; use one of {', '.join(MIX)}")
    if ablate and (versus or without):
        raise click.UsageError("--ablate switches off one mechanism after the other; leave out --versus and --without")
    versions = [Version("this")]
    versions += [Version(versus.name, versus)] if versus else []
    versions += [Version(f"without {', '.join(without)}", without=without)] if without else []
    versions += [Version(mechanism, without=(mechanism,)) for mechanism in MECHANISMS] if ablate else []
    rounds = rounds or (5 if len(versions) > 1 else 1)
    ratios: dict[str, dict[str, float]] = {}
    differ = False
    if into is None:
        click.echo(_HEAD)
    for name in names or tuple(MIX):
        with tempfile.TemporaryDirectory() as scratch:
            folder = (into or Path(scratch)) / name
            try:
                write_workload(name, folder, quick=quick)
            except FileNotFoundError as error:
                click.echo(f"{name:24}left out: {error}", err=True)
                continue
            runs = [] if into else [{"workload": name, **run} for run in rounds_of(versions, folder, rounds)]
        found = {one.name: summary([run for run in runs if run["version"] == one.name]) for one in versions if runs}
        for line in _lines(name, found):
            click.echo(line)
        differ = differ or len({figures["decisions"] for figures in found.values()}) > 1
        if found:
            ratios[name] = {version: figures["scaled_us"] / found["this"]["scaled_us"] for version, figures in found.items()}
        if out is not None:
            with out.open("a") as file:
                file.writelines(json.dumps(run) + "\n" for run in runs)
    if ablate:
        for line in _judged(ratios):
            click.echo(line)
    sys.exit(1 if differ else 0)


def _lines(name: str, found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each version of a workload."""
    first = next(iter(found.values()), None)
    for version, figures in found.items():
        assert first is not None
        spread = f"{figures['least_us']:.0f}-{figures['most_us']:.0f}"
        other = "" if figures["decisions"] == first["decisions"] else "  DECIDES DIFFERENTLY"
        ratio = figures["scaled_us"] / first["scaled_us"]
        yield (
            f"{name:24}{version[-17:]:18}{figures['scaled_us']:9.1f}{spread:>16}{ratio:7.2f}{figures['loop_us']:6.1f}"
            f"{figures['placed']:8}{figures['grown_b'] / 1000:9.1f}{other}"
        )


def verdict(ratios: Mapping[str, float]) -> tuple[bool, str]:
    """Return whether a mechanism is kept, and why. ``ratios``: by workload, the cost without it divided by the cost with it."""
    earns = sorted((name for name, ratio in ratios.items() if ratio >= _EARNS_ON_TWO), key=lambda name: -ratios[name])
    costs = sorted((name for name, ratio in ratios.items() if ratio < _COSTS), key=lambda name: ratios[name])
    enough = len(earns) >= 2 or any(ratio >= _EARNS_ON_ONE for ratio in ratios.values())
    return enough and not costs, f"earns on {_named(earns, ratios)}; costs on {_named(costs, ratios)}"


def _named(names: Sequence[str], ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {ratios[name]:.2f}" for name in names) or "none"


def _judged(ratios: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield what the mix says about each mechanism."""
    yield "\nmechanism         keep  the cost without it, divided by the cost with it"
    for mechanism in MECHANISMS:
        keep, why = verdict({name: of[mechanism] for name, of in ratios.items()})
        yield f"{mechanism:18}{'yes' if keep else 'no':6}{why}"
