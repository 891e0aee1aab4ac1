"""The C library keeps freed memory where it has the setting, and nothing breaks where it has not."""

from __future__ import annotations

import ctypes
import gc
import platform

import pytest

from moorage.cli.memory import collect_seldom, keep_freed_memory


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
