"""``moorage mcp`` without the package that it needs."""

from __future__ import annotations

import sys

from tests.interfaces.cli.conftest import ROOT


def test_without_the_package(moorage, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "moorage.interfaces.mcp.server", raising=False)
    ran = moorage("mcp", "-f", ROOT / "examples/demo")
    assert ran.status == 1
    assert "moorage mcp needs the package mcp" in ran.err
    assert ran.err.endswith("pip install mcp\n")
