"""What kube-scheduler's integration tests look at is played on a real API server, too, where one is named."""

import os

import pytest

from tests.regressions.real_ground import NAMED, RealApi, run_hurriedly
from tools.simtest import stage


def pytest_generate_tests(metafunc):
    name = metafunc.module.__name__.rpartition(".")[2]
    if name.startswith("test_integration") and name != "test_integration_page" and NAMED in os.environ:
        metafunc.parametrize("ground", ["virtual", "real"], indirect=True)


@pytest.fixture(autouse=True)
def ground(request, monkeypatch):
    if getattr(request, "param", "virtual") == "real":
        monkeypatch.setattr(stage, "VirtualApi", RealApi)
        monkeypatch.setattr(stage, "run_virtually", run_hurriedly)
