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

from moorage.api.releases import RELEASES, TODAY, Release, find_release, why_unknown
from moorage.core.config.api_versions import V1BETA1
from moorage.core.config.decoder import KIND, read_text
from moorage.core.config.scheduler_document import POLICY
from moorage.errors import MoorageError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, read_file
from moorage.interfaces.cli.live.removed_flags import flags_since_1_23
from moorage.interfaces.cli.live.run_flags import FLAGS, GONE, flags_of
from moorage.interfaces.cli.live.run_serving import live_release, run_endpoint
from moorage.interfaces.cli.option_tables import AUTO
from moorage.interfaces.cli.pflag import ASKS_HELP, SHOWN, Flag, FlagCommand, FlagError, Given, read_flags
from moorage.interfaces.cli.terminal import say

_ERA: Final = "moorage.era"
#: Flags that only earlier releases have.
ALGORITHM: Final = ("policy-config-file", "policy-configmap", "use-legacy-policy-config", "algorithm-provider")
_EVERY: Final = (*FLAGS, *(flag for flag in GONE.values()))
#: A flag that releases up to 1.23 do not have: seconds before an unschedulable pod is retried. Its default, and their constant.
_RETRY: Final = "pod-max-in-unschedulable-pods-duration"
_RETRIED_S: Final = 300.0
_RETRIED_OLD_S: Final = 60.0


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
        return self.emulated.policy_flags

    @property
    def asked(self) -> str | None:
        """The release that --emulate names; None without it."""
        return self.release if self.chosen == "--emulate" else None

    @property
    def flags(self) -> tuple[Flag, ...]:
        if self.is_old:
            return flags_of(self.release)
        return flags_since_1_23(self.emulated)

    @property
    def retried_s(self) -> float:
        """Return after how many seconds an unschedulable pod is retried by default."""
        return _RETRIED_OLD_S if self.is_old or _RETRY in self.emulated.lacks_flags else _RETRIED_S

    def with_text(self, path: str) -> Era:
        """Return the Era with the text of the configuration file at ``path``; unchanged if ``path`` is empty.

        Raises  InputError if it cannot be read
        """
        return replace(self, config=read_file(path, CONFIG_LIMIT)) if path and self.config is None else self

    def completed(self, given: Given) -> Given:
        """Return the flags, completed with those that only other releases have, at their values for this release."""
        if not self.is_old and not self.emulated.lacks_flags:
            return given
        flags = (*GONE.values(), *FLAGS) if self.is_old else FLAGS
        values: dict[str, Any] = {flag.key: flag.default for flag in flags}
        return Given({**values, _RETRY: self.retried_s, **given.values}, given.changed)


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


def releases_with(flag: str) -> list[str]:
    """Return the releases that have a flag; for a flag of the current release, this one and those of 1.19 to 1.22."""
    if all(one.name != flag for one in FLAGS):
        return [one.name for one in RELEASES.values() if flag in one.own_flags]
    return [*(one.name for one in RELEASES.values() if one.policy_flags and flag not in one.lacks_flags), TODAY]


def _with_release(error: FlagError, era: Era) -> FlagError:
    """Return the error for an unknown flag, completed with the releases that have the flag."""
    has = releases_with(error.unknown)
    if not has:
        return error
    why = f", which {era.chosen} chose," if era.chosen else ""
    hint = f"not a flag of {era.release}{why} but of {', '.join(has)}; choose the release with --emulate"
    return FlagError(f"{error.message}: {hint}", error.unknown)
