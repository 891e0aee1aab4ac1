"""The clusters that the tests run on. Each is started for its tests and gone after them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tools.real_cluster import NONE, THEIRS, ClusterError, Wanted, real_cluster

__all__ = ["CLUSTERS", "RELEASE", "Started"]

RELEASE: Final = "1.37"
#: What tests of pod groups need, which are off by default; the other gates have their defaults.
GATES: Final = "GenericWorkload=true"
RUNTIME: Final = "scheduling.k8s.io/v1beta1=true"
NODES: Final = 4
_SOURCES: Final = Path(__file__).resolve().parents[2] / "src"
_READY_S, _END_S = 60.0, 30.0


class Started:
    """A running cluster: how tests reach it, and what its scheduler says."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.kubeconfig, self.log = kubeconfig, log


@contextmanager
def _with_kube_scheduler() -> Iterator[Started]:
    with real_cluster(Wanted(NODES, THEIRS, feature_gates=GATES, runtime_config=RUNTIME)) as plane:
        yield Started(plane.kubeconfig, plane.folder / "kube-scheduler.log")


@contextmanager
def _with_run() -> Iterator[Started]:
    with real_cluster(Wanted(NODES, NONE, feature_gates=GATES, runtime_config=RUNTIME)) as plane:
        log = plane.folder / "moorage.log"
        command = [
            sys.executable, "-m", "moorage", "run", "--emulate", RELEASE, "--kubeconfig", str(plane.scheduler_kubeconfig),
            "--secure-port=0", "--leader-elect=false", "--feature-gates", GATES,
        ]  # fmt: skip
        with _process(command, log, {}, lambda: '"Scheduling"' in log.read_text(errors="replace")):
            yield Started(plane.kubeconfig, log)


@contextmanager
def _embedded() -> Iterator[Started]:
    with tempfile.TemporaryDirectory(prefix="embedded-cluster-") as folder:
        home, log = Path(folder) / "home", Path(folder) / "moorage.log"
        command = [
            sys.executable, "-m", "moorage", "up", "--emulate", RELEASE, "--nodes", str(NODES), "--home", str(home), "--no-ui",
            "--feature-gates", GATES,
        ]  # fmt: skip
        with _process(command, log, {}, lambda: "Ctrl-C" in log.read_text(errors="replace")):
            yield Started(home / "kubeconfig", log)


@contextmanager
def _process(command: list[str], log: Path, more: Mapping[str, str], is_ready: Callable[[], bool]) -> Iterator[None]:
    environment = {**os.environ, "PYTHONPATH": str(_SOURCES), "PYTHONUNBUFFERED": "1", **more}
    with log.open("wb") as into:
        process = subprocess.Popen(command, stdout=into, stderr=into, env=environment)  # noqa: S603  the command is ours
    try:
        ends = time.monotonic() + _READY_S
        while not is_ready():
            if process.poll() is not None or time.monotonic() > ends:
                raise ClusterError(f"{' '.join(command[1:4])} is not ready; its last lines:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


#: Name → how it is started.
CLUSTERS: Final[Mapping[str, Callable[[], AbstractContextManager[Started]]]] = {
    "kube-scheduler": _with_kube_scheduler,
    "moorage run": _with_run,
    "moorage up": _embedded,
}
