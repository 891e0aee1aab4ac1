"""A sweep on a Dask cluster, one of whose workers is killed, gives the same table."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import pytest

from moorage.sweeps.executors import dask_executor
from moorage.sweeps.store import open_store
from moorage.sweeps.sweep import _plan_of, run_sweep
from tests.sweeps import functions

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from distributed import LocalCluster

        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as found:
            yield found


def test_a_killed_worker_changes_nothing(cluster, tmp_path):
    started = tmp_path / "started"
    started.mkdir()
    killed = []

    def kill_one():
        deadline = time.monotonic() + 60
        while not (pids := list(started.glob("*.pid"))) and time.monotonic() < deadline:
            time.sleep(0.02)
        killed.append(int(pids[0].stem.split("-")[1]))
        os.kill(killed[0], signal.SIGKILL)
        (started / "go").touch()

    killer = threading.Thread(target=kill_one)
    killer.start()
    plan = _plan_of({"number": [1, 2, 3], "folder": [str(started)], "seed": range(2)}, functions.wait_for_file)
    with dask_executor(cluster.scheduler_address) as executor:
        found = run_sweep(plan, open_store(tmp_path / "store"), executor)
    killer.join()
    assert (len(killed), found.failed) == (1, ())
    assert found.columns()["square"].tolist() == [1, 2, 4, 5, 9, 10]
