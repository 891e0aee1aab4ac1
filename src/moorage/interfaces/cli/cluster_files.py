"""Read the cluster and the scheduler options of a command, and connect its extenders."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click

from moorage.api.core import Node
from moorage.api.reading.manifests import read_first_yaml
from moorage.api.releases import Release, find_release, why_unknown
from moorage.api.releases.detection import DetectedRelease, detect_release
from moorage.basis import files, folder_of
from moorage.basis.inputs.files import PROJECT_FILE, InputFile
from moorage.basis.inputs.objects import SERVER_VERSION, find_objects
from moorage.errors import InputError
from moorage.framework.registry import load
from moorage.interfaces.cli.option_tables import AUTO
from moorage.interfaces.cli.terminal import Progress, say
from moorage.simulator.cluster_input import DUMP_RECORD, ClusterInput
from moorage.simulator.cluster_reader import (
    USUAL_RULES,
    WORKLOAD_SLOTS,
    LeavesOut,
    ReadRules,
    parse_treat_as,
    read,
    read_objects,
    unwatched,
)
from moorage.simulator.simulate import Options, load_options
from moorage.simulator.unknown_fields import Validation

# -- bounded files -----------------------------------------------------------------------------------------------------
# Files of commands: those that users name, up to a size limit, the project's file, and what travels with the package.

STDIN = "-"
#: The largest configuration file that is read, in bytes. A typical one has a few kilobytes.
CONFIG_LIMIT = 4 * 2**20


def read_file(path: str, limit: int, stdin: BinaryIO | None = None) -> bytes:
    """Return the whole content of a regular file, or of standard input for ``-``.

    Raises  InputError if the file is unreadable, not a regular file, larger than ``limit`` bytes or changes while it is read
    """
    if path != STDIN:
        return files.read_file(path, limit, pipe_hint="; use - to read standard input")
    data = (stdin or sys.stdin.buffer).read(limit + 1)
    if len(data) > limit:
        raise InputError(f"standard input: larger than the limit of {limit} bytes")
    return data


_SETTINGS = ("costs", "types")
#: Whether this process answers a question that came with a request.
_answers_a_request = False


def answer_a_request() -> None:
    """Take what files contain as data from here on: they came with a request, and nothing in them names a file."""
    global _answers_a_request  # noqa: PLW0603
    _answers_a_request = True


def file_named_in(path: str, name: str, field: str) -> Path:
    """Return the file that a field of a file of the command line names, relative to it. Errors quote none outside its folder.

    Raises  InputError if the file came with a request
    """
    if _answers_a_request:
        raise InputError(f"{field}: expected the content, found a text; a question names no file of the server")
    found = Path(path).parent / name
    files.note_named(str(found), path)
    return found


def project_setting(name: str) -> tuple[Any, str]:
    """Return a setting of the file ``.moorage.yaml`` in this folder or the nearest one above it, and where it is from.

    Folders above a repository are not searched. A text is a path relative to the file. None if there is no such setting.

    Raises  InputError
    """
    if _answers_a_request:
        return None, ""
    here = Path.cwd()
    above = [here, *here.parents]
    repository = next((at for at, folder in enumerate(above) if (folder / ".git").exists()), len(above))
    path = next((file for folder in above[: repository + 1] if (file := folder / PROJECT_FILE).is_file()), None)
    if path is None:
        return None, ""
    given = read_first_yaml(read_file(str(path), CONFIG_LIMIT), str(path))
    unknown = [str(key) for key in given if key not in _SETTINGS] if isinstance(given, dict) else ["no mapping"]
    if unknown:
        raise InputError(f"{path}: {unknown[0]}: no such setting; use {' and '.join(_SETTINGS)}")
    found = given.get(name)
    return (str(file_named_in(str(path), found, name)) if isinstance(found, str) else found), f"{path}: {name}"


def bundled_folder(name: str, mark: str, what: str) -> Path:
    """Return a folder that travels with the package: in it, or in the project that an editable install points to.

    ``mark`` is a file or folder in it by which it is recognized; ``what`` describes its content in an error.

    Raises  InputError if there is neither
    """
    package = folder_of("moorage")
    for folder in (package / name, package.parents[1] / name):
        if (folder / mark).exists():
            return folder
    raise InputError(f"the {what} are not installed: install moorage from its wheel, or run this in the project's folder")


# -- detected release --------------------------------------------------------------------------------------------------
# Find the release for ``--emulate auto``: that of the cluster, from the versions that its objects contain.

_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
#: Kinds whose objects contain versions of the cluster's components.
_TELLING: Final = frozenset(["Node", DUMP_RECORD.kind, SERVER_VERSION])
#: ``(labels, kubelet's version)`` of a node.
_Kubelet = tuple[Mapping[str, str], str]


def release_of_nodes(nodes: Iterable[Node], server: str, note: Callable[[str], None]) -> Release:
    """Return the release of a cluster with these nodes; ``server`` is the version of its API server, "" if not known.

    ``note`` receives a message if the patch release is not known and the nearest one is used.
    Raises  InputError if nothing reports a version, or the release is not known
    """
    kubelets: list[_Kubelet] = [(node.metadata.labels, node.status.node_info.kubelet_version) for node in nodes]
    leading = [version for labels, version in kubelets if any(label in labels for label in _CONTROL_PLANE)]
    found = detect_release((version for _, version in kubelets), leading, server=server)
    if found is None:
        raise InputError("--emulate auto: no node has status.nodeInfo.kubeletVersion; name the release")
    return known_release(found, note)


def release_of_files(sources: Iterable[InputFile], note: Callable[[str], None]) -> Release:
    """Return the release of the cluster whose objects are in files; see ``release_of_nodes``."""
    objects = (found for source in sources for found in find_objects(source) if found.kind in _TELLING)
    cluster = read_objects(objects, validated=False, rules=USUAL_RULES)
    return release_of_nodes(cluster.nodes, cluster.report.server_version, note)


def known_release(found: DetectedRelease, note: Callable[[str], None]) -> Release:
    """Return the detected release, or the nearest known patch release; ``note`` receives a message in the latter case.

    Raises  InputError if its minor release is not known
    """
    if found.release is None:
        raise InputError(f"--emulate auto: {why_unknown(found.version)}")
    if not found.is_known:
        note(f"{found.source} {found.version}; {found.release} is the nearest release that is known")
    return found.release


_Read = TypeVar("_Read")
#: What was read, by what was asked for; None if nothing is kept.
_kept: dict[tuple[Any, ...], Any] | None = None


@contextmanager
def keeping_what_is_read() -> Iterator[None]:
    """Read each input and configuration once in this block, also in processes that are forked in it."""
    global _kept  # noqa: PLW0603
    _kept = {}
    try:
        yield
    finally:
        _kept = None


def read_once(
    key: tuple[Any, ...], read: Callable[[], _Read], serves: Callable[[tuple[Any, ...]], bool] = lambda _: False
) -> _Read:
    """Return what ``read`` returns, or what it returned earlier in ``keeping_what_is_read``.

    ``serves``: whether what was read for another key, as with other kinds, serves as well; the place may be gone
    """
    if _kept is None:
        return read()
    key = next(filter(serves, _kept), key)
    if key not in _kept:
        _kept[key] = read()
    found: _Read = _kept[key]
    return found


def is_kept() -> bool:
    """Return whether something was read that is kept."""
    return bool(_kept)


def place_of(path: str | None) -> str:
    """Return the absolute path of a file, as questions name it; "" for None."""
    return path if path == STDIN else "" if path is None else str(Path(path).absolute())


@contextmanager
def asking(options: Options) -> Iterator[Options]:
    """Yield the options with a client for the configured extenders, one request at a time; connections end with the block.

    Raises  ConfigError, InputError
    """
    import asyncio

    from moorage.live.runtime.extender_client import ExtenderClient  # an HTTP client, which is rarely needed

    client = ExtenderClient(load_options(options).configuration.extenders)
    with asyncio.Runner() as runner:
        runner.run(client.__aenter__())
        try:
            yield replace(options, ask=lambda question: runner.run(client.ask(question)))
        finally:
            runner.run(client.__aexit__())


def simulation_options(given: Mapping[str, Any]) -> Options:
    """Return the scheduler options in a command's parameters.

    Raises  InputError if the configuration cannot be read, or a plugin cannot be imported
    """
    config = given["config"]
    if given["plugins"]:
        # Like `python -m`, find modules in the current directory, but never in place of an installed module.
        sys.path.append(os.getcwd())
    return Options(
        config=None if config is None else read_once(("config", place_of(config)), lambda: read_file(config, CONFIG_LIMIT)),
        where=config or "the default configuration",
        plugins=tuple(load(reference) for reference in given["plugins"]),
        emulate=None if given["emulate"] == AUTO else given["emulate"],
        provider=given["algorithm_provider"],
        feature_gates=given["feature_gates"],
        max_disks=given["max_disks"],
        seed=given["seed"],
        skip_extenders=given["extenders"] == "skip",
        quota=not given["no_quota"],
        as_default=tuple(given.get("as_default") or ()),
    )


def rules_of(given: Mapping[str, Any], leaves_out: LeavesOut = LeavesOut.DUMPED) -> ReadRules:
    """Return the rules for reading input that a command's parameters state. Of a change to the input nothing is left out.

    Raises  InputError
    """
    named = None if given.get("a_release") or given.get("b_release") else given.get("emulate")
    release = None if named in {None, AUTO} else find_release(named)
    return ReadRules(Validation(given["validate"]), parse_treat_as(given["treat_as"]), release=release, leaves_out=leaves_out)


def paths_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of ``-f``, those of logs with the moment of ``--at``.

    Raises  UsageError if there is a moment, but no log, and no autoscaler whose answer is for that time
    """
    paths: tuple[str, ...] = given["paths"]
    moment = given.get("moment") or ""
    if not moment:
        return paths
    from moorage.basis.recording.log_reader import is_log  # rarely needed

    logs = [path for path in paths if is_log(path)]
    if not logs and not (given.get("autoscaler") or given.get("instance_types")):
        raise click.UsageError("--at needs a log of moorage record: -f LOG")
    return tuple(f"{path}@{moment}" if path in logs else path for path in paths)


def read_cluster(
    paths: tuple[str, ...], recursive: bool, custom: tuple[str, ...], rules: ReadRules, progress: Progress | None = None
) -> ClusterInput:
    """Read a cluster from files. A warning for each object that is left out goes to standard error.

    Raises  InputError if there is no object in them
    """
    on_read = unwatched if progress is None else progress.reading

    def read_files() -> ClusterInput:
        found = read(paths, recursive, stdin=sys.stdin.buffer, custom=custom, rules=rules, on_read=on_read)
        warn_of(found)
        return found

    places = tuple(map(place_of, paths))
    cluster = read_once(
        (places, recursive, custom, rules),
        read_files,
        lambda key: (key[0], key[1:2], key[3:]) == (places, (recursive,), (rules,)),
    )
    if not cluster.report.read and not cluster.report.unused:
        where = "standard input" if paths == (STDIN,) else ", ".join(paths)
        raise InputError(f"{where}: no Kubernetes object found; expected the output of kubectl get -o yaml, or manifests")
    return cluster


def warn_of(cluster: ClusterInput) -> None:
    """Name each object of the input that cannot be read on standard error."""
    for line in cluster.report.left_out:
        say(f"warning: {line}", err=True)


def answers_a_request() -> bool:
    """Return whether this process answers a question that came with a request: its standard error is not shown then."""
    return _answers_a_request


def emulating(options: Options, given: Mapping[str, Any], cluster: ClusterInput) -> Options:
    """Return the options with the release of the cluster, if ``--emulate auto`` asks for it.

    Raises  InputError if the version of neither the API server nor a kubelet is known, or there is no such release
    """
    if given["emulate"] != AUTO:
        return options
    found = release_of_nodes(cluster.nodes, cluster.report.server_version, lambda note: click.echo(f"note: {note}", err=True))
    return replace(options, emulate=found.name)


def refuse_nothing_to_place(cluster: ClusterInput) -> None:
    """Refuse an input without pods and workloads if it has objects of unknown kinds, which may be its workloads.

    Raises  InputError that names the kinds that were not read
    """
    unknown = [one for one in cluster.report.unused if one.unknown]
    if unknown and not cluster.pods and not any(getattr(cluster, slot) for slot in WORKLOAD_SLOTS):
        left_out = "; ".join(map(str, unknown))
        raise InputError(f"nothing to place; not read: {left_out}. --allow-unknown accepts such input")
