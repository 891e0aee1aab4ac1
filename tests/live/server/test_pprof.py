"""Profiles in pprof's format: Go's own program reads them."""

import asyncio
import gzip
import shutil
import subprocess
import threading

import pytest

from moorage.live.server.pprof import cpu_profile, encoded, heap_profile, heap_text


def top(profile, tmp_path, *flags):
    """Return what ``go tool pprof -top`` makes of a profile."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    path = tmp_path / "profile"
    path.write_bytes(profile)
    return subprocess.run([go, "tool", "pprof", "-top", *flags, path], capture_output=True, text=True, check=True).stdout


def spins(until):
    while not until.is_set():
        pass


def spinning():
    """Return a profile of half a second in which a thread spins."""
    until = threading.Event()
    thread = threading.Thread(target=spins, args=(until,))
    thread.start()
    try:
        return asyncio.run(cpu_profile(0.5))
    finally:
        until.set()
        thread.join()


@pytest.mark.slow
def test_a_profile_shows_where_the_time_goes(tmp_path):
    said = top(spinning(), tmp_path)
    assert "Type: cpu" in said
    assert any("spins" in line for line in said.splitlines())


@pytest.mark.slow
def test_a_heap_shows_what_is_alive(tmp_path):
    class Planted:
        pass

    planted = [Planted() for _ in range(1234)]
    said = top(heap_profile(), tmp_path, "-sample_index=inuse_objects")
    assert [line.split()[0] for line in said.splitlines() if line.endswith("Planted")] == ["1234"]
    assert len(planted) == 1234


def test_the_text_has_the_largest_types_first():
    sizes = [int(line.split()[1]) for line in heap_text().splitlines()[1:]]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0


def test_names_stand_once_in_the_table_of_texts():
    place, other = ("f", "a.py", 3), ("g", "a.py", 300)
    body = gzip.decompress(encoded([("samples", "count")], {(place, other): [2], (place,): [300]}))
    assert [body.count(one) for one in (b"a.py", b"samples", b"count")] == [1, 1, 1]
