"""Gymnasium is optional: say which extra installs it where it is missing."""

from __future__ import annotations

import importlib.util

from moorage.errors import InputError

__all__ = ["require_gymnasium"]


def require_gymnasium() -> None:
    """Raise InputError, with the extra's name, unless Gymnasium is installed."""
    if importlib.util.find_spec("gymnasium") is None:
        raise InputError("moorage.learning needs Gymnasium: pip install 'moorage[gym]'")
