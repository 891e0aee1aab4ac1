"""Whether this process was asked to end: by SIGTERM, which Slurm, ``timeout`` and ``docker stop`` send before SIGKILL.

What searches and sweeps have found is printed then, and nothing that takes long is begun or waited for.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Final

__all__ = ["Terminated", "ask_to_end", "begin_worker", "forget_ending", "is_copy_of", "is_ending"]

_ASKED: Final = threading.Event()
_POLL_S: Final = 1.0


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived while there was nothing to print yet."""


def ask_to_end() -> None:
    """Note that the process is to end."""
    _ASKED.set()


def forget_ending() -> None:
    """Note that the process goes on: for programs and tests that run several commands in one process."""
    _ASKED.clear()


def is_ending() -> bool:
    """Return True once the process was asked to end."""
    return _ASKED.is_set()


def is_copy_of(owner: int) -> bool:
    """End this process if it is a fork of ``owner`` that still has its handler of SIGTERM; otherwise return False.

    A worker may get SIGTERM before ``begin_worker`` runs in it.
    """
    if os.getpid() == owner:
        return False
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    return True


def begin_worker(parent: int) -> None:
    """Prepare a worker process: Ctrl-C is for the parent alone, SIGTERM ends the worker at once, and so does its parent's end.

    ``parent``: the process that started it. A worker whose parent was killed would wait for work for good.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), name="end with the parent", daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)
