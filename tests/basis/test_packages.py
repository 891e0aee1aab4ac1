"""A missing package is added where Moorage is installed: with pip, pipx or uv."""

from __future__ import annotations

import pytest

from moorage.basis.packages import how_to_add

ADDED = {
    "pip": (None, "pip install mcp"),
    "pipx": ("pipx_metadata.json", "pipx inject moorage mcp"),
    "uv": ("uv-receipt.toml", "uv tool install --with mcp moorage, or the file from which it was installed"),
}


@pytest.mark.parametrize(("file", "command"), ADDED.values(), ids=ADDED)
def test_how_a_package_is_added(file, command, tmp_path, monkeypatch):
    home = tmp_path / "moorage"
    home.mkdir()
    if file:
        (home / file).touch()
    monkeypatch.setattr("sys.prefix", str(home))
    assert how_to_add("mcp") == command
