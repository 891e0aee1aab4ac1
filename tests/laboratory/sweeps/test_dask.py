"""A sweep on a Dask cluster, one of whose workers is killed, gives the same table."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from pathlib import Path

import pytest
from msgspec.structs import replace

import moorage
from moorage.laboratory.sweeps.jobs import dask_executor
from moorage.laboratory.sweeps.store import open_store
from moorage.laboratory.sweeps.sweep import _plan_of, run_sweep
from moorage.testing.builders import a_node, a_pod
from tests.laboratory.sweeps import functions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from distributed import LocalCluster

        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as found:
            yield found


def test_what_if_questions_are_answered_there_too(cluster):
    asked = {"requests": {"cpu": "900m"}}
    pods = [a_pod(name, containers=[{"name": "c", "resources": asked}]).pod for name in ("a", "b")]
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "10"}
    small = moorage.Cluster.from_objects(a_node("n0", allocatable=amounts), a_node("n1", allocatable=amounts), *pods)
    empty = moorage.Cluster.from_objects(*pods)
    types = [{"name": "large", "price": 1.0, "node": {"status": {"allocatable": amounts}}}]
    packed = moorage.Options(config=Path("examples/config/most-allocated.yaml").read_bytes())
    still = {"clock": lambda: 0.0}
    with dask_executor(cluster.scheduler_address) as executor:
        survived = small.survive("node", fix_probes=0, executor=executor)
        compared = moorage.compare(small, b=packed, seeds=[3], executor=executor)
        planned = empty.plan(types, executor=executor, **still)
    assert survived == small.survive("node", fix_probes=0)
    assert compared.to_dict() == moorage.compare(small, b=packed, seeds=[3]).to_dict()
    expected = empty.plan(types, **still)
    assert replace(planned, proof=expected.proof) == expected


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
