"""How a package is added to the environment in which Moorage is installed."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["how_to_add"]


def how_to_add(package: str) -> str:
    """Return the command that installs a package beside Moorage: pipx and uv keep programs in environments without pip."""
    home = Path(sys.prefix)
    if (home / "pipx_metadata.json").exists():
        return f"pipx inject {home.name} {package}"
    if (home / "uv-receipt.toml").exists():
        return f"uv tool install --with {package} {home.name}, or the file from which it was installed"
    return f"pip install {package}"
