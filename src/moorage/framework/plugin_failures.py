"""Describe an exception of a plugin: its text, the plugin's line that raised it, and the nearest name for a misspelt one."""

from __future__ import annotations

import builtins
import traceback
from difflib import get_close_matches
from pathlib import Path, PurePath
from types import FrameType
from typing import Final

from moorage.basis.printable import clip

__all__ = ["failure_text"]

#: Longer texts of exceptions are cut, so that the place stays within the message.
_MOST_TEXT: Final = 768
_OURS: Final = str(Path(__file__).parents[1])


def failure_text(error: BaseException) -> str:
    """Return ``KeyError: 'gpu' (my_rules.py, line 12)``, with a suggestion for a misspelt attribute or name.

    There is no place if only Moorage's own code ran: the exceptions of built-in plugins describe the input.
    """
    text = f"{type(error).__name__}: {error}"
    place = _place(error)
    return f"{clip(text, _MOST_TEXT)}{place}{_nearest(error)}" if place else text


def _place(error: BaseException) -> str:
    """Return the innermost line in the plugin's folder. Lines of libraries are skipped: the author cannot change them."""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(_OURS)
    ]
    if not frames:
        return ""
    folder = PurePath(frames[0][0]).parent
    file, line = [(file, line) for file, line in frames if PurePath(file).is_relative_to(folder)][-1]
    return f" ({PurePath(file).name}, line {line})"


def _nearest(error: BaseException) -> str:
    if not isinstance(error, (AttributeError, NameError)) or not isinstance(error.name, str):
        return ""
    try:
        known = dir(error.obj) if isinstance(error, AttributeError) else _visible(error)
    except Exception:  # an object of the plugin may refuse to list its attributes
        return ""
    near = get_close_matches(error.name, [name for name in known if not name.startswith("_")])
    swapped = [name for name in near if sorted(name) == sorted(error.name)]  # lable is label, not table
    return f"; did you mean {(swapped or near)[0]}?" if near else ""


def _visible(error: NameError) -> list[str]:
    """Return the names that the raising line can see."""
    frames: list[FrameType] = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [*frames[-1].f_locals, *frames[-1].f_globals, *dir(builtins)] if frames else []
