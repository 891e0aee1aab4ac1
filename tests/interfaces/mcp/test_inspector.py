"""``moorage mcp`` with a client of others: the command line of the Model Context Protocol inspector, from npm.

It is installed for the test, which MOORAGE_LONG_TESTS=1 therefore selects.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.ports import reserve_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not os.environ.get("MOORAGE_LONG_TESTS"), reason="MOORAGE_LONG_TESTS is not set"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]

SERVER = [sys.executable, "-m", "moorage", "mcp", "-f", "examples/demo"]
PACKAGE = "@modelcontextprotocol/inspector-cli"


@pytest.fixture(scope="module")
def inspect(tmp_path_factory):
    """Return a function that calls a method over one of the transports and returns the document that the inspector prints."""
    home = tmp_path_factory.mktemp("inspector")
    install = ["npm", "install", "--silent", "--no-fund", "--no-audit", f"{PACKAGE}@1.0.3"]
    subprocess.run(install, cwd=home, check=True, env={**os.environ, "HOME": str(home)})
    modules = home / "node_modules" / "@modelcontextprotocol"
    (modules / "package.json").write_text('{"name": "inspector", "version": "1.0.3"}')  # it reads that of its own workspace

    def call(target, method, *more):
        script = modules / "inspector-cli" / "build" / "index.js"
        run = subprocess.run(
            ["node", script, *target, "--method", method, *more], capture_output=True, text=True, check=False, timeout=120
        )
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    return call


@pytest.fixture(params=["standard input", "HTTP"])
def target(request):
    """Yield how the inspector reaches the server."""
    if request.param == "standard input":
        yield SERVER
        return
    port = reserve_port()
    with subprocess.Popen([*SERVER, "--http", str(port)]) as server:
        try:
            for _ in range(300):
                try:
                    urlopen(f"http://127.0.0.1:{port}/mcp", timeout=5).close()
                except HTTPError:  # it wants another method, and so it is there
                    break
                except URLError:
                    time.sleep(0.2)
            yield [f"http://127.0.0.1:{port}/mcp", "--transport", "http"]
        finally:
            server.terminate()


def test_the_inspector_asks(inspect, target):
    tools = {one["name"]: one for one in inspect(target, "tools/list")["tools"]}
    assert {"overview", "explain", "plan", "survive", "check"} <= tools.keys()
    assert all(one["annotations"]["readOnlyHint"] for one in tools.values())
    found = inspect(target, "tools/call", "--tool-name", "explain", "--tool-arg", 'pods=["search-2"]')
    assert not found.get("isError")
    assert "default/search-2 is pending" in found["content"][0]["text"]
    wrong = inspect(target, "tools/call", "--tool-name", "explain", "--tool-arg", "pod=search-2")
    assert wrong["isError"]
    assert wrong["content"][0]["text"] == "explain has no argument pod; it has pods, changes, owners"
    assert [one["uri"] for one in inspect(target, "resources/list")["resources"]] == ["moorage://cluster"]
    pod = inspect(target, "resources/read", "--uri", "moorage://pods/default/search-2")["contents"][0]["text"]
    assert pod.startswith("<cluster-data>\n")
