"""``moorage config``: validate a scheduler configuration, show the resulting profiles, or convert it to v1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import click

from moorage.basis.files import without_content
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.basis.printable import escape_json, one_line
from moorage.core.config.convert import convert as to_v1
from moorage.core.config.scheduler_document import Loaded
from moorage.core.config.show import as_document, as_table
from moorage.errors import ConfigError, InputError, MoorageError
from moorage.framework.mistakes import mistakes_of
from moorage.framework.registry import load
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, STDIN, read_file
from moorage.interfaces.cli.main import CommandGroup
from moorage.interfaces.cli.option_tables import examples_of, parameters_of
from moorage.interfaces.cli.terminal import say
from moorage.plugins import builtin_registry
from moorage.report.yaml_writing import yaml_text


@click.group(cls=CommandGroup)
def config() -> None:
    """Validate a scheduler configuration, show the resulting profiles, or convert it to v1."""


@config.command(
    short_help="Validate a configuration as kube-scheduler does.",
    params=parameters_of("config-validate"),
    epilog=examples_of("config-validate"),
)
def validate(file: str, **given: Any) -> None:
    """Validate FILE (- for standard input) as the kube-scheduler release that reads its apiVersion does.

    Exits with 1 for an invalid configuration and prints one line per fault on standard error.
    """
    loaded = _or_refuse(file, given)
    names = ", ".join(profile.scheduler_name for profile in loaded.profiles)
    kind = "profile" if len(loaded.profiles) == 1 else "profiles"
    say(f"{_where(file)}: valid; {kind} {names}; {loaded.heading}")
    if loaded.note:
        say(f"note: {loaded.note}", err=True)
    for line in (*loaded.warnings, *_mistakes(loaded)):
        say(f"note: {line}", err=True)
    for profile in loaded.profiles:
        if profile.missing:
            missing = ", ".join(profile.missing)
            say(f"note: profile {profile.scheduler_name}: not in Moorage, left out when it runs: {missing}", err=True)


def _mistakes(loaded: Loaded) -> Iterator[str]:
    """Yield the likely mistakes in the classes of custom plugins that a profile runs."""
    names = sorted({name for profile in loaded.profiles for running in profile.points.values() for name in running})
    shipped = builtin_registry(loaded.release)
    for name in (name for name in names if name in loaded.registry and name not in shipped):
        yield from (f"plugin {name}: {line}" for line in mistakes_of(loaded.registry[name]))


@config.command(
    short_help="Show which plugins run for each profile, with their weights.",
    params=parameters_of("config-show"),
    epilog=examples_of("config-show"),
)
def show(file: str | None, output: str, **given: Any) -> None:
    """Show the plugins that run for each profile of FILE, in order, with their weights.

    Without FILE, show the defaults. The JSON and YAML output is a complete configuration, with every default filled in, that
    loads to the same profiles. A Policy or an algorithm provider is shown as a KubeSchedulerConfiguration v1beta1.
    """
    loaded = _or_refuse(file, given)
    if output == "text":
        click.echo(as_table(loaded.profiles, loaded.heading, loaded.version), nl=False)
        return
    if any(profile.run_all_filters for profile in loaded.profiles):
        say("note: only a Policy can set alwaysCheckAllPredicates", err=True)
    say(f"note: {loaded.heading}", err=True)
    _print(as_document(loaded.configuration, loaded.profiles, loaded.version), output, loaded.heading)


@config.command(
    short_help="Convert an older configuration or a Policy to v1.",
    params=parameters_of("config-convert"),
    epilog=examples_of("config-convert"),
)
def convert(file: str | None, output: str, **given: Any) -> None:
    """Convert FILE, a configuration of an older version or a Policy, to KubeSchedulerConfiguration v1.

    Settings that have no equivalent in v1, or score differently there, are listed on standard error, one a line.
    """
    loaded = _or_refuse(file, given)
    converted = to_v1(loaded, builtin_registry())
    say(f"note: from {loaded.heading}", err=True)
    for note in converted.notes:
        say(f"note: {note}", err=True)
    _print(converted.document, output, f"from {loaded.heading}")


def _print(document: dict[str, Any], output: str, heading: str) -> None:
    """Print a document. YAML starts with a comment that names the release whose rules apply; JSON has no comments."""
    if output == "json":
        click.echo(escape_json(json.dumps(document, indent=2, ensure_ascii=False)))
    else:
        say(f"# {heading}")
        click.echo(yaml_text(document, sort_keys=False, width=80), nl=False)


def _or_refuse(file: str | None, given: Mapping[str, Any]) -> Loaded:
    """Return the loaded configuration, given the options that all subcommands share, or exit with 1 and one line per fault."""
    try:
        if given["algorithm_provider"] and file is not None:
            raise InputError("--algorithm-provider replaces a file; give one of them")
        source = ConfigSource(
            emulate=given["emulate"],
            provider=given["algorithm_provider"],
            feature_gates=given["feature_gates"],
            plugins=tuple(map(load, given["plugins"])),
        )
        if file is not None:
            source = replace(source, config=read_file(file, CONFIG_LIMIT), where=_where(file))
        return load_source(source)
    except ConfigError as error:
        place = "" if file is None else f"{_where(file)}: "
        lines = [one_line(f"{place}{fault}") for fault in error.faults] or str(error).split("\n")
    except MoorageError as error:
        lines = str(error).split("\n")
    for line in without_content("\n".join(lines)).split("\n"):
        say(line, err=True)
    raise click.exceptions.Exit(1)


def _where(file: str) -> str:
    return "standard input" if file == STDIN else file
