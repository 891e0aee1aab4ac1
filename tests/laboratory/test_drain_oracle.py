"""Drains are those of kubectl: a sample of random dumps; ``kubectl_drains`` compares more by hand."""

import shutil

import pytest

from tests.laboratory.kubectl_drains import agree, certificate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("kubectl") is None or shutil.which("openssl") is None, reason="kubectl and openssl are not installed"
    ),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("kubectl")
    certificate(home)
    return home


@pytest.mark.parametrize("seed", [2, 29, 41])
def test_kubectl_evicts_refuses_and_blocks_the_same_pods(seed, home):
    theirs, ours = agree(seed, home)
    assert ours == theirs
