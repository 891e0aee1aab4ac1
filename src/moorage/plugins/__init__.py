"""The built-in plugins: one rule a file. To add one, write its file and list its class in ``BUILTIN``."""

from __future__ import annotations

from typing import Any

__all__ = ["BUILTIN"]

#: Every plugin class that ships, in alphabetical order of its name. The order here decides nothing.
BUILTIN: tuple[Any, ...] = ()
