"""Settings of the whole test suite: property tests use the same examples each time, collection runs without the garbage
collector, compiled code is kept, and the environment is the same everywhere.

The same code then has the same verdict on any machine, however slow. `make explore` tries other examples; what it finds is
written out as a case beside the property.
"""

import atexit
import gc
import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests import fork_server
from tests.caches import fill_caches
from tests.costs import Costs

_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("same", derandomize=True, **_PATIENT)
settings.register_profile("other", derandomize=False, print_blob=True, **_PATIENT)
settings.load_profile("same")

#: Variables that change what programs print, where they connect and what they write: colours and widths, language and time
#: zone, proxies, clusters, and settings of moorage. Those of Python and of the locale are unwanted, too.
UNWANTED = {
    "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM", "COLUMNS", "LINES", "LANG", "LANGUAGE", "TZ",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
    "KUBE_MAX_PD_VOLS", "GITHUB_STEP_SUMMARY", "MOORAGE_HOME",
}  # fmt: skip

# A container image often forbids bytecode files. Each process that a test starts would then compile the program, which takes
# longer than all the rest that it does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Collecting makes half a million objects that live until the end. The collector visits them while they are made, a quarter of
# the time that collection takes, and then once in each full collection of a test, almost a second each.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    """Clear the environment, before tests are collected, and after pytest has chosen its own colours."""
    for name in list(os.environ):
        of_python = name.startswith("PYTHON") and name not in {"PYTHONPATH", "PYTHONHASHSEED"}
        if of_python or name.startswith("LC_") or name.upper() in UNWANTED:
            del os.environ[name]
    os.environ["MOORAGE_CACHE_DIR"] = ""  # commands keep nothing of one cluster for another


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    fill_caches(session.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt everything collected from garbage collection, and enable the collector for the tests.

    Commands ask whether another has frozen objects. To count these takes a tenth of a second, each time.
    """
    gc.freeze()
    frozen = gc.get_freeze_count()
    gc.get_freeze_count = lambda: frozen
    gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter free everything at its end: extension modules report what is left."""
    gc.unfreeze()
    atexit.unregister(gc.freeze)  # a command may have registered it


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs())
    fork_server.forks()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("fresh_process") is None:
        return (yield)
    with fork_server.fresh_processes():
        return (yield)
