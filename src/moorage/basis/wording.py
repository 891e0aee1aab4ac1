"""Numbers and lists of names in the sentences of reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["counted", "some"]

_SHOWN: Final = 3


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 pod``, ``2 pods``, ``2 classes``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
