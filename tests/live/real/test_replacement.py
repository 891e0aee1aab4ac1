"""Moorage takes the place of kube-scheduler and gives it back, as docs/run/replace-kube-scheduler.md says."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.real.test_real_cluster import FOLDER, environment, run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(FOLDER not in os.environ, reason=f"{FOLDER} names no cluster")]

MOORAGE = [sys.executable, "-m", "moorage", "run"]


@contextmanager
def running(home, log, *words):
    """Run a scheduler until the end of the block, and see that SIGTERM ends it in order."""
    with (home / log).open("w") as file:
        process = subprocess.Popen(list(map(str, words)), env=environment(home), stdout=file, stderr=file)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(30)
    assert status == 0, (home / log).read_text()[-2000:]


def flags():
    """Return the flags that kubeadm gives kube-scheduler."""
    account = Path(os.environ[FOLDER]) / "scheduler.kubeconfig"
    return [
        f"--authentication-kubeconfig={account}", f"--authorization-kubeconfig={account}", f"--kubeconfig={account}",
        "--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=true",
    ]  # fmt: skip


def placed(home, name):
    """Create a pod and return its node."""
    run(home, "kubectl", "run", name, "--image=example.com/app")
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        pod = json.loads(run(home, "kubectl", "get", "pod", name, "-o", "json"))
        if pod["spec"].get("nodeName"):
            return pod["spec"]["nodeName"]
        time.sleep(0.1)
    raise AssertionError(f"{name} was not bound within 60 s")


def lease(home):
    spec = json.loads(run(home, "kubectl", "-n", "kube-system", "get", "lease", "kube-scheduler", "-o", "json"))["spec"]
    return spec.get("holderIdentity", ""), spec.get("leaseTransitions", 0)


def test_moorage_takes_the_place_of_kube_scheduler_and_gives_it_back(tmp_path):
    theirs = [Path(os.environ[FOLDER]) / "bin/kube-scheduler", *flags()]
    with running(tmp_path, "before", *theirs):
        assert placed(tmp_path, "replaced-before")
        first = lease(tmp_path)
    assert lease(tmp_path)[0] == ""
    with running(tmp_path, "instead", *MOORAGE, *flags()):
        assert placed(tmp_path, "replaced-instead")
        second = lease(tmp_path)
        assert second[0] not in {"", first[0]}
    assert lease(tmp_path)[0] == ""
    with running(tmp_path, "after", *theirs):
        assert placed(tmp_path, "replaced-after")
        third = lease(tmp_path)
        assert third[0] not in {"", second[0]}
    assert first[1] < second[1] < third[1]
    run(tmp_path, "kubectl", "delete", "pod", "replaced-before", "replaced-instead", "replaced-after", "--wait=false")
