"""Functions that worker processes import."""

import os
import time
from pathlib import Path


def square(*, number, seed=0):
    return {"square": number * number + seed, "half": number / 2}


def curve(*, number, seed=0):
    return {"total": number + seed, "time_s": [0.0, 1.0], "pending": [number, seed]}


def fail_at_three(*, number, seed=0):
    if number == 3:
        raise ZeroDivisionError("three")
    return {"square": number * number}


def end_once(*, number, seed=0, marker=""):
    """End the worker process the first time that number 2 runs; ``marker`` is the file that remembers it."""
    if number == 2 and not Path(marker).exists():
        Path(marker).touch()
        os._exit(1)
    return {"square": number * number + seed}


def always_end(*, number, seed=0):
    """End the worker process whenever number 2 runs."""
    if number == 2:
        time.sleep(0.05)
        os._exit(1)
    return {"square": number * number + seed}


def wait_for_file(*, number, folder, seed=0):
    """Say which process runs this, wait for the file ``go``, and return."""
    (Path(folder) / f"{number}-{os.getpid()}.pid").touch()
    deadline = time.monotonic() + 60
    while not (Path(folder) / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return {"square": number * number + seed}
