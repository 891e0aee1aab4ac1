"""Differences from kube-apiserver that are intended or accepted. The documentation lists each by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moorage.testing.attacks.differences import AnswerDifference
from moorage.testing.attacks.making import Attack

__all__ = ["KNOWN", "known_difference"]

#: What is known to differ, by the name under which the documentation has it.
KNOWN: Final[Mapping[str, Callable[[Attack, AnswerDifference], bool]]] = {}


def known_difference(attack: Attack, difference: AnswerDifference) -> str:
    """Return the name of a known difference, "" if it is not known."""
    return next((name for name, matches in KNOWN.items() if matches(attack, difference)), "")
