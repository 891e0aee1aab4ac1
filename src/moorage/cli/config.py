"""``moorage config``: check a KubeSchedulerConfiguration, or show what it comes to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
import yaml

from moorage.cli.reading import CONFIG_LIMIT, STDIN, read_file
from moorage.config.document import Configuration
from moorage.config.loading import default_configuration, load
from moorage.config.profiles import ResolvedProfile, resolve
from moorage.config.show import as_document, as_table
from moorage.errors import ConfigError, MoorageError
from moorage.framework import registry as plugin_registry
from moorage.framework.features import FeatureGates
from moorage.framework.registry import Registry
from moorage.plugins import builtin_registry

__all__ = ["config"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _common(command: _Command) -> _Command:
    gates = click.option(
        "--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates, as kube-scheduler takes them."
    )
    plugins = click.option("--plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin of your own. May be repeated.")
    return gates(plugins(command))


@click.group()
def config() -> None:
    """Check a scheduler configuration, or show what it comes to."""


@config.command()
@click.argument("file")
@_common
def validate(file: str, feature_gates: str, plugins: tuple[str, ...]) -> None:
    """Check FILE (- for standard input) as kube-scheduler 1.36 would.

    Exits with 1 and one line for each fault on standard error where it would be refused.
    """
    _, profiles = _or_refuse(file, feature_gates, plugins)
    names = ", ".join(profile.scheduler_name for profile in profiles)
    click.echo(f"{_where(file)}: valid; {'profile' if len(profiles) == 1 else 'profiles'} {names}")
    for profile in profiles:
        if profile.missing:
            missing = ", ".join(profile.missing)
            click.echo(f"note: profile {profile.scheduler_name}: not in Moorage, left out when it runs: {missing}", err=True)


@config.command()
@click.argument("file", required=False)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="How to print it.")
@_common
def show(file: str | None, output: str, feature_gates: str, plugins: tuple[str, ...]) -> None:
    """Show the plugins that run for each profile of FILE, in order, with their weights.

    Without FILE, the defaults are shown. As JSON or YAML it is a configuration with nothing left to defaults, which loads to
    the same profiles.
    """
    configuration, profiles = _or_refuse(file, feature_gates, plugins)
    if output == "text":
        click.echo(as_table(profiles), nl=False)
    elif output == "json":
        click.echo(json.dumps(as_document(configuration, profiles), indent=2, ensure_ascii=False))
    else:
        document = as_document(configuration, profiles)
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


def _or_refuse(
    file: str | None, feature_gates: str, plugins: tuple[str, ...]
) -> tuple[Configuration, tuple[ResolvedProfile, ...]]:
    """Return the configuration and its profiles, or end the program with 1 and a line for each fault."""
    try:
        gates = FeatureGates.parse(feature_gates)
        registry = _registry(plugins)
        if file is None:
            configuration = default_configuration()
        else:
            configuration = load(read_file(file, CONFIG_LIMIT), _where(file), registry, gates)
        return configuration, resolve(configuration, registry, gates)
    except ConfigError as error:
        place = "" if file is None else f"{_where(file)}: "
        lines = [f"{place}{fault}" for fault in error.faults] or [str(error)]
    except MoorageError as error:
        lines = [str(error)]
    for line in lines:
        click.echo(line, err=True)
    raise click.exceptions.Exit(1)


def _registry(plugins: tuple[str, ...]) -> Registry:
    registry = builtin_registry().with_installed()
    for reference in plugins:
        registry.add(plugin_registry.load(reference))
    return registry


def _where(file: str) -> str:
    return "standard input" if file == STDIN else file
