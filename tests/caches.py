"""Fill the caches of a new checkout together: the processes that run tests would otherwise each compile everything.

Compiled sources, rewritten tests and the constants that Hypothesis tries take 25 s of CPU, once. Each process does its share
before it collects, and finds the rest.
"""

import contextlib
import importlib
import importlib.util
import pkgutil
import py_compile
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from hypothesis.internal.constants_ast import constants_from_module

import moorage

__all__ = ["fill_caches"]

TESTS = Path(__file__).resolve().parent
#: Hypothesis keeps its constants here.
CONSTANTS = TESTS.parent / ".hypothesis" / "constants"


def fill_caches(config: pytest.Config) -> None:
    """Fill this process's share of the caches, if there are other processes and the caches are empty."""
    worker = getattr(config, "workerinput", None)
    if worker is None or CONSTANTS.exists():
        return
    at, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    sources = Path(moorage.__file__).parent
    for path in sorted(sources.rglob("*.py"))[at::count]:
        if not Path(importlib.util.cache_from_source(str(path))).exists():
            py_compile.compile(str(path), doraise=True)
    for path in sorted(TESTS.rglob("test_*.py"))[at::count]:
        _rewrite(config, path)
    for found in list(pkgutil.walk_packages(moorage.__path__, "moorage."))[at::count]:
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                constants_from_module(importlib.import_module(found.name))


def _rewrite(config: pytest.Config, path: Path) -> None:
    """Rewrite the assertions of a test module as pytest does when it imports the module."""
    folder = rewrite.get_cache_dir(path)
    compiled = folder / (path.name.removesuffix(".py") + rewrite.PYC_TAIL)
    if not compiled.exists() and rewrite.try_makedirs(folder):
        stat, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, compiled)
