"""``moorage demo``: schedule the bundled example, or copy all examples into a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import bundled_folder
from moorage.interfaces.cli.main import OK
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.terminal import output_style, print_styled
from moorage.simulator.cluster_reader import read
from moorage.simulator.simulate import Options


@described("demo")
def demo(target: str | None) -> int:
    """Run ``moorage demo``."""
    folder = bundled_folder("examples", "demo", "examples")
    if target is not None:
        return _copy(folder, Path(target) / "examples")
    from moorage.report.tables import render
    from moorage.simulator.cluster_run import simulate_cluster

    _, run = simulate_cluster(read([str(folder / "demo")]), Options())
    click.echo("$ moorage simulate -f examples/demo")
    print_styled(render(run, style=output_style()) + "\n")
    click.echo("Two pods stay pending on purpose. To go on, copy the examples and ask why:\n")
    click.echo("    moorage demo --copy .\n    moorage explain search-2 -f examples/demo")
    return OK


def _copy(folder: Path, target: Path) -> int:
    if target.exists():
        raise InputError(f"{target}: exists already; name another folder")
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__"))
    click.echo(f"copied to {target}; next: moorage simulate -f {target / 'demo'}")
    return OK
