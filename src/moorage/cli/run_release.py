"""Select the release of kube-scheduler that ``moorage run`` emulates, which determines its flags.

``--emulate`` names the release, or ``auto`` for that of the live cluster. Without it, a Policy, an algorithm provider and a
v1beta1 configuration select 1.21, and everything else selects the current release. The release decides which flags exist, their
defaults and their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from moorage.cli.bounded_files import CONFIG_LIMIT, read_file
from moorage.cli.legacy_flags import GONE, flags_of
from moorage.cli.pflag import ASKS_HELP, SHOWN, Flag, FlagCommand, FlagError, Given, read_flags
from moorage.cli.release_options import AUTO
from moorage.cli.run_connection import live_release, run_endpoint
from moorage.cli.run_flags import FLAGS
from moorage.cli.terminal import say
from moorage.config.api_versions import V1BETA1
from moorage.config.document_reader import KIND, read_text
from moorage.config.scheduler_document import POLICY
from moorage.errors import MoorageError
from moorage.releases import LEGACY, RELEASES, TODAY, Release, find_release, why_unknown

__all__ = ["ALGORITHM", "Era", "ReleaseCommand", "era_of"]

_ERA: Final = "moorage.era"
#: Flags that only earlier releases have.
ALGORITHM: Final = ("policy-config-file", "policy-configmap", "use-legacy-policy-config", "algorithm-provider")
_EVERY: Final = (*FLAGS, *(flag for flag in GONE.values()))
#: A flag that 1.19 to 1.21 do not have, with their constant: seconds before an unschedulable pod is retried.
_OLD_DEFAULTS: Final = {"pod-max-in-unschedulable-pods-duration": 60.0}


@dataclass(frozen=True, slots=True)
class Era:
    """A release and its flags. ``chosen`` names the flag or file that selected it; "" for the default.

    ``config`` is the text of the configuration, if it was read to select the release: standard input can be read once.
    """

    release: str = TODAY
    chosen: str = ""
    config: bytes | None = None

    @property
    def emulated(self) -> Release:
        return RELEASES[self.release]

    @property
    def is_old(self) -> bool:
        return self.emulated.legacy_flags

    @property
    def asked(self) -> str | None:
        """The release that --emulate names; None without it."""
        return self.release if self.chosen == "--emulate" else None

    @property
    def flags(self) -> tuple[Flag, ...]:
        if self.is_old:
            return flags_of(self.release)
        return tuple(flag for flag in FLAGS if flag.name not in self.emulated.lacks_flags)

    def with_text(self, path: str) -> Era:
        """Return the Era with the text of the configuration file at ``path``; unchanged if ``path`` is empty.

        Raises  InputError if it cannot be read
        """
        return replace(self, config=read_file(path, CONFIG_LIMIT)) if path and self.config is None else self

    def completed(self, given: Given) -> Given:
        """Return the flags, completed with those that only the current release has, at their values for this release."""
        if not self.is_old and not self.emulated.lacks_flags:
            return given
        values: dict[str, Any] = {flag.name: flag.default for flag in FLAGS}
        fixed = _OLD_DEFAULTS if self.is_old else {}
        return Given({**values, **fixed, **given.values}, given.changed)


class ReleaseCommand(FlagCommand):
    """A command that takes the flags of the release that it emulates. Its callback receives ``given`` and ``era``."""

    flags = FLAGS

    def read(self, ctx: click.Context, args: Sequence[str]) -> tuple[Given, list[str]]:
        era = _asked(args, connects=not ctx.resilient_parsing) or (Era() if ctx.resilient_parsing else _chosen(args))
        ctx.meta[SHOWN] = era.flags
        try:
            given, rest = read_flags([*era.flags, ASKS_HELP], args)
        except FlagError as error:
            raise _with_release(error, era) from None
        ctx.meta[_ERA] = era
        return era.completed(given), rest

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        ctx.params["era"] = ctx.meta[_ERA]
        return rest


def _asked(args: Sequence[str], *, connects: bool) -> Era | None:
    """Return the release that --emulate names; the last occurrence wins. None without it.

    ``connects``  whether to ask the cluster for its release, if --emulate says so
    """
    found: str | None = None
    for i, word in enumerate(args):
        if word == "--":
            break
        if word == "--emulate" and i + 1 < len(args):
            found = args[i + 1]
        elif word.startswith("--emulate="):
            found = word.partition("=")[2]
    if found is None:
        return None
    if found == AUTO:
        return _live(args) if connects else Era()
    release = find_release(found)
    if release is None:
        raise FlagError(f'invalid argument "{found}" for "--emulate" flag: {why_unknown(found)}')
    return Era(release.name, "--emulate")


def _live(args: Sequence[str]) -> Era:
    """Return the release of the cluster that the flags name; the current one if they only ask for help or the version.

    Raises  InputError
    """
    given = _leniently(args)
    if given is None or given["help"] or given["version"] != "false":
        return Era()
    era = Era().with_text(given["config"])
    kubeconfig = given["kubeconfig"] if era.config is None else _connection(era.config)
    endpoint = run_endpoint(kubeconfig, given["master"], lambda warning: say(f"warning: {warning}", err=True))
    release = live_release(endpoint, lambda note: say(f"note: {note}", err=True))
    return replace(era, release=release.name, chosen="--emulate")


def _connection(config: bytes) -> str:
    """Return the kubeconfig that a configuration names; "" without one. Its faults are reported later."""
    try:
        found = read_text(config, "", "").body.get("clientConnection")
    except MoorageError:
        return ""
    kubeconfig = found.get("kubeconfig") if isinstance(found, dict) else None
    return kubeconfig if isinstance(kubeconfig, str) else ""


def _chosen(args: Sequence[str]) -> Era:
    """Return the release that other flags or the configuration select. Faults in either are reported later."""
    given = _leniently(args)
    if given is None or given["help"]:
        return Era()
    return era_of(given["config"], [name for name in ALGORITHM if name in given.changed])


def era_of(config: str, named: Sequence[str]) -> Era:
    """Return the release that a configuration file and the given flags of ``ALGORITHM`` select."""
    if named:
        return Era(V1BETA1.rules, f"--{named[0]}")
    try:
        era = Era().with_text(config)
    except MoorageError:
        return Era()
    return replace(era, release=V1BETA1.rules, chosen=config) if era.config and _is_old(era.config) else era


def _leniently(args: Sequence[str]) -> Given | None:
    """Parse flags of any release; return None if that fails."""
    try:
        return read_flags([*_EVERY, ASKS_HELP], args)[0]
    except FlagError:
        return None


def _is_old(text: bytes) -> bool:
    try:
        found = read_text(text, "", "")
    except MoorageError:
        return False
    return (found.kind, found.version) in {(KIND, V1BETA1.name), (POLICY, "v1")}


def _with_release(error: FlagError, era: Era) -> FlagError:
    """Return the error for an unknown flag, completed with the releases that have the flag."""
    has = [one.name for one in LEGACY if any(flag.name == error.unknown for flag in flags_of(one.name))]
    if any(flag.name == error.unknown for flag in FLAGS):
        has.append(TODAY)
    if not has:
        return error
    why = f", which {era.chosen} chose," if era.chosen else ""
    hint = f"not a flag of {era.release}{why} but of {', '.join(has)}; choose the release with --emulate"
    return FlagError(f"{error.message}: {hint}", error.unknown)
