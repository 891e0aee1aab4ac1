"""The C library keeps freed memory where it has the setting, and nothing breaks where it has not."""

from __future__ import annotations

import ctypes
import gc
import platform
import subprocess
import sys

import pytest

from moorage.interfaces.cli.given_back_memory import collect_seldom, keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_glibc_takes_the_settings():
    assert keep_freed_memory()


@pytest.mark.parametrize("broken", [AttributeError("no mallopt"), OSError("no C library"), TypeError("no name")])
def test_another_c_library_is_left_alone(broken, monkeypatch):
    def load(name):
        raise broken

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert not keep_freed_memory()


def test_long_running_commands_collect_garbage_rarely():
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)  # another test of this process may have run a command
        collect_seldom()
        assert gc.isenabled()
        assert gc.get_threshold() > (700, 10, 10)
    finally:
        gc.set_threshold(*before)


def printed(script: str) -> str:
    """Return what a process prints that runs the script. The process of the tests has frozen objects of its own."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


AGED = """
import gc
from moorage.api.gc_pause import age_after_pauses, collector_paused
gc.collect()
{before}
age_after_pauses()
with collector_paused():
    made = [[] for _ in range(5000)]
print(sum(map(len, map(gc.get_objects, (0, 1)))) < 5000, gc.get_freeze_count() > 1000)
"""


@pytest.mark.parametrize(
    ("before", "printed_then"), [("", "True False"), ("gc.freeze()", "False True")], ids=["alone", "beside frozen objects"]
)
def test_what_a_pause_made_is_old(before, printed_then):
    assert printed(AGED.format(before=before)) == printed_then


@pytest.mark.slow
def test_a_pod_unlike_all_others_costs_a_bounded_amount_of_memory():
    script = """
import tracemalloc
import moorage

def pod(at, rules):
    requests = {"cpu": f"{1 + at}m"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if rules:
        term = {"labelSelector": {"matchLabels": {"app": f"a{at}"}}, "topologyKey": "topology.kubernetes.io/zone"}
        spec["topologySpreadConstraints"] = [{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **term}]
        preferred = [{"weight": 1, "podAffinityTerm": term}]
        spec["affinity"] = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "", "labels": {"app": f"a{at}"}}, "spec": spec}

def held(count, unlike, rules=False):
    room = {"cpu": "9k", "pods": "9k"}
    labels = {"topology.kubernetes.io/zone": "z"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}, "status": {"allocatable": room}}
    pods = [pod(at * unlike, rules) for at in range(count)]
    for at, one in enumerate(pods):
        one["metadata"]["name"] = f"p{at}"
    tracemalloc.start()
    cluster = moorage.Cluster.from_objects(node, *pods)
    cluster.run()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size

held(10, 1)
for what in ((0,), (1,), (1, True)):
    print((held(350, *what) - held(100, *what)) // 250)
"""
    alike, unlike, with_rules = map(int, printed(script).split())
    assert alike < 3_000  # bytes for each pod
    assert unlike < 16_000
    assert with_rules < 26_000


def test_objects_made_in_a_pause_are_ignored_until_the_block_ends():
    script = """
import gc
from moorage.api.gc_pause import collector_paused, frozen_after_pauses
at_start = gc.get_freeze_count()
with frozen_after_pauses():
    with collector_paused():
        kept = [[at] for at in range(1000)]
        print(gc.get_freeze_count() == at_start)
    print(gc.get_freeze_count() > 1000, gc.isenabled())
print(gc.get_freeze_count())
with collector_paused():
    pass
print(gc.get_freeze_count())
gc.freeze()
with frozen_after_pauses(), collector_paused():
    pass
print(gc.get_freeze_count() > 1000)
"""
    assert printed(script).splitlines() == ["True", "True True", "0", "0", "True"]


@pytest.mark.parametrize(("leave", "found"), [("leave_memory_at_exit()", ""), ("pass", "collected")])
def test_a_process_may_end_without_a_last_collection(leave, found):
    script = f"""
from moorage.interfaces.cli.given_back_memory import leave_memory_at_exit
class Node:
    def __del__(self, say=print):
        say("collected")
def make():
    node = Node()
    node.own = node
make()
{leave}
"""
    assert printed(script) == found
