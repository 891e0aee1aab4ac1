"""``moorage config``: check a scheduler configuration, show what it comes to, or bring it up to date."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import yaml

from moorage.api.yaml_writing import PrintableDumper
from moorage.cli.bounded_files import CONFIG_LIMIT, STDIN, read_file
from moorage.cli.command_groups import CommandGroup
from moorage.cli.release_options import emulate_options
from moorage.cli.terminal import say
from moorage.config.convert import convert as to_v1
from moorage.config.scheduler_document import Loaded, from_provider, load_any, load_default
from moorage.config.show import as_document, as_table
from moorage.engine.release_plugins import ReleasePlugins
from moorage.errors import ConfigError, InputError, MoorageError
from moorage.framework import registry as plugin_registry
from moorage.framework.registry import Registry
from moorage.plugins import builtin_registry
from moorage.printable import escape_json

__all__ = ["config"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _common(command: _Command) -> _Command:
    gates = click.option(
        "--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates, as kube-scheduler takes them."
    )
    plugins = click.option("--plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin of your own. May be repeated.")
    return emulate_options(gates(plugins(command)))


@dataclass(frozen=True, slots=True)
class _Given:
    """What the command line says, file and output form aside."""

    feature_gates: str
    plugins: tuple[str, ...]
    emulate: str | None
    algorithm_provider: str


@click.group(cls=CommandGroup)
def config() -> None:
    """Check a scheduler configuration, show what it comes to, or bring it up to date."""


@config.command(short_help="Check a configuration as the kube-scheduler would that reads it.")
@click.argument("file")
@_common
def validate(file: str, **given: Any) -> None:
    """Check FILE (- for standard input) as the kube-scheduler would that reads its version: 1.36, or one of before.

    Exits with 1 and one line for each fault on standard error where it would be refused.
    """
    loaded = _or_refuse(file, _Given(**given))
    names = ", ".join(profile.scheduler_name for profile in loaded.profiles)
    kind = "profile" if len(loaded.profiles) == 1 else "profiles"
    say(f"{_where(file)}: valid; {kind} {names}; {loaded.heading}")
    for profile in loaded.profiles:
        if profile.missing:
            missing = ", ".join(profile.missing)
            say(f"note: profile {profile.scheduler_name}: not in Moorage, left out when it runs: {missing}", err=True)


@config.command(short_help="Show which plugins run for each profile, with their weights.")
@click.argument("file", required=False)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="How to print it.")
@_common
def show(file: str | None, output: str, **given: Any) -> None:
    """Show the plugins that run for each profile of FILE, in order, with their weights.

    Without FILE, the defaults are shown. As JSON or YAML it is a configuration with nothing left to defaults, which loads to
    the same profiles. A Policy or an algorithm provider is shown as a KubeSchedulerConfiguration v1beta1.
    """
    loaded = _or_refuse(file, _Given(**given))
    if output == "text":
        click.echo(as_table(loaded.profiles, loaded.heading), nl=False)
        return
    if any(profile.run_all_filters for profile in loaded.profiles):
        say("note: alwaysCheckAllPredicates can only be said in a Policy", err=True)
    say(f"note: {loaded.heading}", err=True)
    _print(as_document(loaded.configuration, loaded.profiles, loaded.version), output, loaded.heading)


@config.command(short_help="Write an older configuration or a Policy as v1, and say what has no equivalent.")
@click.argument("file", required=False)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="How to print it.")
@_common
def convert(file: str | None, output: str, **given: Any) -> None:
    """Write FILE, a configuration of an older version or a Policy, as KubeSchedulerConfiguration v1.

    What has no equivalent, or scores otherwise today, is told on standard error, one line each.
    """
    loaded = _or_refuse(file, _Given(**given))
    converted = to_v1(loaded, builtin_registry())
    say(f"note: from {loaded.heading}", err=True)
    for note in converted.notes:
        say(f"note: {note}", err=True)
    _print(converted.document, output, f"from {loaded.heading}")


def _print(document: dict[str, Any], output: str, heading: str) -> None:
    """Print a document. YAML opens with a comment on whose rules these are; JSON has no room for one."""
    if output == "json":
        click.echo(escape_json(json.dumps(document, indent=2, ensure_ascii=False)))
    else:
        say(f"# {heading}")
        click.echo(yaml.dump(document, Dumper=PrintableDumper, sort_keys=False, allow_unicode=True), nl=False)


def _or_refuse(file: str | None, given: _Given) -> Loaded:
    """Return what the document comes to, or end the program with 1 and a line for each fault."""
    try:
        return _loaded(file, given)
    except ConfigError as error:
        place = "" if file is None else f"{_where(file)}: "
        lines = [f"{place}{fault}" for fault in error.faults] or str(error).split("\n")
    except MoorageError as error:
        lines = str(error).split("\n")
    for line in lines:
        say(line, err=True)
    raise click.exceptions.Exit(1)


def _loaded(file: str | None, given: _Given) -> Loaded:
    rules = ReleasePlugins(given.feature_gates, lambda registry: _extended(registry, given.plugins))
    if given.algorithm_provider:
        if file is not None:
            raise InputError("--algorithm-provider takes the place of a file; give one of them")
        return from_provider(given.algorithm_provider, rules, given.emulate)
    if file is None:
        return load_default(rules, given.emulate)
    return load_any(read_file(file, CONFIG_LIMIT), _where(file), rules, given.emulate)


def _extended(registry: Registry, plugins: tuple[str, ...]) -> Registry:
    grown = registry.with_installed()
    for reference in plugins:
        grown.add(plugin_registry.load(reference))
    return grown


def _where(file: str) -> str:
    return "standard input" if file == STDIN else file
