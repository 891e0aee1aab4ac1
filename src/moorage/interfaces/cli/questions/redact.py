"""``moorage redact``: replace the names in a dump, so that it can be shared and schedules as before."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml

from moorage.basis.files import read_file
from moorage.basis.inputs.components import COMPANION_KINDS
from moorage.basis.inputs.simulated_kinds import list_parts
from moorage.basis.printable import counted
from moorage.interfaces.cli import cluster_files
from moorage.interfaces.cli.given_back_memory import collect_seldom
from moorage.interfaces.cli.main import OK, PENDING
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.dump import write_parts
from moorage.interfaces.cli.terminal import Progress, say
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.redact.redaction import Redacted, read_configuration, redact_cluster
from moorage.laboratory.redact.redaction_check import RedactionCheck, check_redacted
from moorage.simulator.simulate import Options, load_options

#: The values of scheduler options that this command does not offer.
_UNASKED: Final[Mapping[str, Any]] = {"max_disks": None, "seed": 0, "extenders": "skip", "no_quota": False}
#: The size of a new key, in bytes.
_KEY_SIZE: Final = 32


@described("redact")
def redact(**given: Any) -> int:
    """Run ``moorage redact``."""
    collect_seldom()
    options = cluster_files.simulation_options({**given, **_UNASKED})
    key = read_key(given["key_file"], quiet=given["quiet"])
    with Progress(quiet=given["quiet"]) as progress:
        progress.say("reading the input …")
        cluster = cluster_files.read_cluster(
            cluster_files.paths_of(given), given["recursive"], COMPANION_KINDS, cluster_files.rules_of(given), progress
        )
        options = cluster_files.emulating(options, given, cluster)
        progress.say("replacing names …")
        configurations = [] if options.config is None else [read_configuration(options.config, options.where)]
        load_options(options)  # what cannot be loaded is refused here, in its own words
        redacted = redact_cluster(cluster, key, configurations)
        check = None
        if given["verify"]:
            progress.say("comparing the schedules …")
            check = check_redacted(cluster, read_given(redacted.objects), options, _reconfigured(options, redacted))
    if check is not None and check.differences:
        say("error: the result schedules differently; nothing is written", err=True)
        for line in check.differences:
            say(f"  {line}", err=True)
        return PENDING
    write_parts(given["path"], list_parts(map(msgspec.json.encode, redacted.objects)))
    for one in redacted.configurations:
        write_parts(given["config_output"], [_configuration(one, given["config_output"])])
    if given["map_file"] is not None:
        write_parts(given["map_file"], [_document(redacted.mapping)])
    if not given["quiet"]:
        _report(given["path"], redacted, check)
    return OK


def _reconfigured(options: Options, redacted: Redacted) -> Options:
    """Return the options with the redacted configuration."""
    if not redacted.configurations:
        return options
    return with_fields(options, config=_configuration(redacted.configurations[0], ".json"))


def _configuration(document: Mapping[str, Any], path: str) -> bytes:
    """Return the text of a configuration: JSON if the name of its file says so, else YAML."""
    if path.endswith(".json"):
        return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text.encode()


def read_key(path: str, *, quiet: bool) -> bytes:
    """Return the key in a file; create the file with a new key if it does not exist.

    Raises  InputError, OSError
    """
    if path == cluster_files.STDIN:
        raise click.UsageError("--key names a file, not standard input")
    if not Path(path).exists():
        made = secrets.token_hex(_KEY_SIZE).encode() + b"\n"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made)
        if not quiet:
            say(f"{path}: a new key; keep it to yourself", err=True)
    return read_file(path).strip()


def _document(mapping: Mapping[str, str]) -> bytes:
    return json.dumps(mapping, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def _report(path: str | None, redacted: Redacted, check: RedactionCheck | None) -> None:
    tokens, objects = counted(len(redacted.mapping), "token"), counted(len(redacted.objects), "object")
    say(f"{path or 'standard output'}: {tokens} in {objects}", err=True)
    if check is not None:
        ties = f"; {counted(check.ties, 'tie')} may be broken in another way" if check.ties else ""
        say(f"verified: {counted(check.attempts, 'attempt')} with equal outcomes{ties}", err=True)
