"""The error message for a name that no node has."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from moorage.basis.printable import one_line

__all__ = ["no_such_node"]


def no_such_node(name: str, known: Iterable[str]) -> str:
    """Return the message, with similar names of nodes."""
    close = get_close_matches(name, list(known), 3)
    return one_line(f"no node has the name {name!r}{'; close: ' if close else ''}{', '.join(close)}")
