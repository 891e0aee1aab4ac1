"""The check that Gymnasium, which is optional, is installed."""

from __future__ import annotations

import importlib.util

from moorage.errors import InputError

__all__ = ["require_gymnasium"]


def require_gymnasium() -> None:
    """Raise InputError, with the extra's name, unless Gymnasium is installed."""
    if importlib.util.find_spec("gymnasium") is None:
        raise InputError("moorage.learning needs Gymnasium: pip install 'moorage[gym]'")
