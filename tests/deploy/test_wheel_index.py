"""``uvx moorage demo`` from an index that has the built wheel."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        del args


@pytest.fixture
def index(tmp_path):
    """Build the wheel and serve an index that has nothing else; return its address."""
    held = tmp_path / "index" / "moorage"
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", held, ROOT],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(held.parent))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("uvx") is None, reason="uv is not installed")
def test_the_demo_runs_from_an_index(index, tmp_path):
    run = subprocess.run(
        ["uvx", "--python", sys.executable, "--index", index, "moorage", "demo"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "UV_TOOL_DIR": str(tmp_path / "tools")},
    )  # fmt: skip
    if run.returncode and "error sending request" in run.stderr:
        pytest.skip("the packages that moorage needs cannot be downloaded here")
    assert run.returncode == 0, run.stderr
    assert "19 placed, 2 pending" in run.stdout
    assert "moorage explain search-2 -f examples/demo" in run.stdout
