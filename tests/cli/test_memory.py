"""Freed memory is kept where the C library can be told to, and nothing breaks where it cannot."""

from __future__ import annotations

import ctypes
import platform

import pytest

from moorage.cli.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_glibc_takes_the_settings():
    assert keep_freed_memory()


@pytest.mark.parametrize("broken", [AttributeError("no mallopt"), OSError("no C library"), TypeError("no name")])
def test_another_c_library_is_left_alone(broken, monkeypatch):
    def load(name):
        raise broken

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert not keep_freed_memory()
