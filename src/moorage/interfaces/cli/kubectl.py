"""``kubectl moorage``: the commands as a plugin of kubectl, about the cluster and the namespace that kubectl uses.

kubectl runs ``kubectl-moorage`` with the arguments after ``kubectl moorage``, and ``kubectl_complete-moorage`` to complete
them. Every question reads the current context; files add objects to it. Pods are looked up in the context's namespace.

Source  k8s.io/kubectl: pkg/cmd/plugin_completion.go; spf13/cobra: completions.go
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import click
from click.shell_completion import ShellComplete

from moorage.api.gc_pause import age_after_pauses, collector_paused
from moorage.interfaces.cli.given_back_memory import collect_seldom
from moorage.interfaces.cli.main import COMMANDS, GROUPS, Commands, run_command
from moorage.interfaces.cli.terminal import Progress, print_styled

_NAME: Final = "kubectl moorage"
#: What a completion asks of the shell: offer nothing else, or files.
_NO_FILES, _FILES = 4, 0
#: The parameters that say which cluster a command reads.
_CLUSTER: Final = ("context", "kubeconfig")
#: Options with which a command reads nothing, or more than the usual kinds.
_OTHERS: Final = ("-h", "--help", "--config", "--plugins")
#: Whether to show the progress.
_QUIET, _PROGRESS = frozenset({"-q", "--quiet"}), "--progress"


class _KubectlCommands(Commands):
    """The commands that read a cluster, with the cluster of kubectl in place of files."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*GROUPS["Ask about a cluster"], "dump", "help"]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        reads = args[0] in GROUPS["Ask about a cluster"] and not any(word.startswith(_OTHERS) for word in args)
        if reads and not ctx.resilient_parsing:
            from moorage.interfaces.cli.live_reading import ClusterToRead, begin_reading  # what loads before the command does

            kubeconfig, context = (_value(args, f"--{name}") or ctx.params[name] for name in ("kubeconfig", "context"))
            kinds = _kinds(ctx, args)
            begun = begin_reading(ClusterToRead(kubeconfig, context, kinds, is_kept=not kinds), sys.argv[1:])
            with Progress(quiet=not _QUIET.isdisjoint(args), everywhere=_PROGRESS in args) as progress:
                progress.say("reading the live cluster …")
                known = begun.known.result()  # as soon as that is known
            if known is not None:
                print_styled(known[0])
                ctx.exit(known[1])
        with collector_paused():  # a command loads hundreds of modules
            return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name) if cmd_name in self.list_commands(ctx) else None
        if command is not None:
            ctx.default_map = {**(ctx.default_map or {}), cmd_name: _defaults(command, ctx.params)}
        return command


def _kinds(ctx: click.Context, args: list[str]) -> tuple[str, ...]:
    """Return the kinds that a command reads because of the names of jobs among its words."""
    if args[0] != "explain" or not any("/" in word for word in args):
        return ()
    from moorage.interfaces.cli.questions.explain import explain, kinds_of_jobs  # only these need the command now

    parser = explain.make_parser(click.Context(explain, ctx))  # a command keeps the -h of the first context
    return kinds_of_jobs(parser.parse_args(args[1:])[0].get("pods") or ())


def _value(words: Sequence[str], option: str) -> str | None:
    """Return the last value of an option among the words of a command; None if there is none."""
    found = None
    for word, after in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if name == option:
            found = value if equals else after
    return found


def _defaults(command: click.Command, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of a command; ``given``: the options before its name."""
    known = {one.name for one in command.params}
    defaults: dict[str, Any] = {name: given[name] for name in _CLUSTER if name in known and given.get(name)}
    if "live" in known:
        defaults["live"] = True
    if "namespace" in known:
        defaults["namespace"] = given.get("namespace") or ("" if "every_namespace" not in known else _namespace_of(defaults))
    if "every_namespace" in known and given.get("every_namespace"):
        defaults["every_namespace"] = True
    return defaults


def _namespace_of(before: Mapping[str, Any]) -> Callable[[], str]:
    """Return a function that returns the namespace of the context, once the options of a command are known."""

    def namespace() -> str:
        from moorage.laboratory.dump.live_dump import endpoint_of  # loaded only where a namespace is needed

        asked = click.get_current_context()
        if asked.resilient_parsing:  # completion asks no cluster
            return ""
        context, kubeconfig = ({**before, **asked.params}.get(name) for name in _CLUSTER)
        return endpoint_of(kubeconfig, context).namespace

    return namespace


@click.group(
    cls=_KubectlCommands,
    invoke_without_command=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace; by default that of the context.")
@click.option("-A", "--all-namespaces", "every_namespace", is_flag=True, help="Look in all namespaces.")
@click.option("--context", metavar="NAME", help="The context of the kubeconfig.")
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig; by default the one that kubectl uses.")
def kubectl(**given: Any) -> None:
    """Ask the scheduler about the cluster of kubectl's context: why a pod is pending, what a drain does, what to buy.

    The cluster is read, never changed. The options may also follow the command, which tells its own with --help.
    """


def main() -> None:
    """Run ``kubectl-moorage`` and exit with its status."""
    collect_seldom()
    age_after_pauses()
    run_command(kubectl, _NAME)


def complete() -> None:
    """Print the completions of the last argument, one on a line, and what the shell may add, as kubectl reads them."""
    *before, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(kubectl, {}, _NAME, "").get_completions(before, incomplete)
    offered = [one for one in found if one.type == "plain"]
    for one in offered:
        known = COMMANDS.get(one.value)
        text = known[1] if known is not None and not before else one.help
        click.echo(f"{one.value}\t{text}" if text else one.value)
    click.echo(f":{_NO_FILES if offered or not found else _FILES}")
