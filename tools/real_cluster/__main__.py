"""``python -m tools.real_cluster``: start a real Kubernetes control plane on this machine, and stop it without a trace."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

from tools.oracles import BuildError, OracleMissingError
from tools.real_cluster import NONE, THEIRS, ClusterError, ControlPlane, Wanted, real_cluster

#: The exit status where the programs cannot be had, for callers that skip then.
SKIPPED = 77
_START_S, _STOP_S = 2400.0, 90.0


def main() -> int:
    """Run one command; exit with 1 if a program fails, with 77 if the programs cannot be had."""
    given = _parser().parse_args()
    commands = {"run": _run, "start": _start, "stop": _stop}
    return commands[given.command](given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.real_cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("run", "start a cluster, and stop it at Ctrl-C, or after the command that follows --"),
        ("start", "start a cluster in the background, print its folder, and return"),
    ):
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--nodes", type=int, default=3, help="how many nodes to play [3]")
        one.add_argument("--scheduler", choices=(THEIRS, NONE), default=NONE, help="who schedules [none]")
        one.add_argument("--no-controllers", action="store_true", help="start no kube-controller-manager")
        one.add_argument("--feature-gates", default="", metavar="NAME=BOOL,...", help="for all programs")
        one.add_argument("--runtime-config", default="", metavar="API=BOOL,...", help="for kube-apiserver")
        one.add_argument("--audit-policy", type=Path, metavar="FILE", help="write audit.log by this policy")
        one.add_argument("--scheduler-config", type=Path, metavar="FILE", help="for kube-scheduler")
        one.add_argument(
            "--argument", action="append", default=[], metavar="PROGRAM:ARGUMENT",
            help="another argument of a program, such as kube-apiserver:--v=4 or nodes:--cpu=8; can be repeated",
        )  # fmt: skip
        one.add_argument("--directory", type=Path, metavar="FOLDER", help="where its files are, and are deleted [a new one]")
    commands.choices["run"].add_argument("then", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run this in the cluster")
    stop = commands.add_parser("stop", help="stop a cluster that start began, and delete its files")
    stop.add_argument("--directory", type=Path, required=True, metavar="FOLDER", help="the folder that start printed")
    return parser


def _wanted(given: argparse.Namespace) -> Wanted:
    more: dict[str, list[str]] = {}
    for one in given.argument:
        program, _, argument = one.partition(":")
        more.setdefault(program, []).append(argument)
    return Wanted(
        given.nodes, given.scheduler, not given.no_controllers, given.feature_gates, given.runtime_config, given.audit_policy,
        given.scheduler_config, more,
    )  # fmt: skip


def _run(given: argparse.Namespace) -> int:
    asked = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            return
        asked.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        with real_cluster(_wanted(given), given.directory) as plane:
            _tell(plane)
            if command := [one for one in given.then if one != "--"]:
                return subprocess.run(command, env=_environment(plane), check=False).returncode  # noqa: S603  the user's own
            sys.stdout.write("Ctrl-C stops it and deletes its files.\n")
            sys.stdout.flush()
            while True:
                time.sleep(1)
                plane.check()
    except KeyboardInterrupt:
        return 0
    except OracleMissingError as error:
        sys.stderr.write(f"skipped: {error}\n")
        return SKIPPED
    except (BuildError, ClusterError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _environment(plane: ControlPlane) -> dict[str, str]:
    path = os.pathsep.join([str(plane.kubectl.parent), os.environ.get("PATH", "")])
    return {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": path}


def _tell(plane: ControlPlane) -> None:
    lines = [
        f"server      {plane.server}", f"folder      {plane.folder}", f"kubeconfig  {plane.kubeconfig}",
        f"kubectl     {plane.kubectl}",
    ]  # fmt: skip
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    state = {"pid": os.getpid(), "server": plane.server, "token": plane.token, "ca": str(plane.ca)}
    fresh = plane.folder / "ready.json.new"
    fresh.touch(0o600)
    fresh.write_text(json.dumps(state))
    fresh.replace(plane.folder / "ready.json")


def _start(given: argparse.Namespace) -> int:
    """Run ``run`` in a process that outlives this one."""
    folder = given.directory or Path(tempfile.mkdtemp(prefix="real-cluster-"))
    folder.mkdir(parents=True, exist_ok=True)
    said = folder.with_name(f"{folder.name}.log")
    arguments = [one for one in sys.argv[2:] if not one.startswith("--directory=")]
    if given.directory is None:
        arguments += ["--directory", str(folder)]
    with said.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  the command is ours
            [sys.executable, "-m", "tools.real_cluster", "run", *arguments, f"--directory={folder}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    ends = time.monotonic() + _START_S
    while not (folder / "ready.json").exists():
        if process.poll() is not None or time.monotonic() > ends:
            process.terminate()
            process.wait()
            sys.stderr.write(said.read_text(errors="replace"))
            said.unlink(missing_ok=True)
            return process.returncode or 1
        time.sleep(0.1)
    sys.stdout.write(said.read_text().rpartition("Ctrl-C")[0] or said.read_text())
    sys.stdout.write(f"stop it:    python -m tools.real_cluster stop --directory {folder}\n")
    return 0


def _stop(given: argparse.Namespace) -> int:
    try:
        process = int(json.loads((given.directory / "ready.json").read_text())["pid"])
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"error: {given.directory} is no folder of a running cluster: {error}\n")
        return 1
    ends = time.monotonic() + _STOP_S
    try:
        os.kill(process, signal.SIGTERM)
        while given.directory.exists() and time.monotonic() < ends:
            os.kill(process, 0)
            time.sleep(0.1)
    except ProcessLookupError:
        pass
    given.directory.with_name(f"{given.directory.name}.log").unlink(missing_ok=True)
    if given.directory.exists():
        sys.stderr.write(f"error: {given.directory} is still there; process {process} does not end\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
