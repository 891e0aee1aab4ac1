"""Differences from kube-apiserver that are intended or accepted. ``docs/explanation/robustness.md`` lists each by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from moorage.testing.attacks.differences import AnswerDifference
from moorage.testing.attacks.making import Attack
from moorage.testing.attacks.routes import METHODS

__all__ = ["KNOWN", "known_difference"]

_Matches = Callable[[Attack, AnswerDifference], bool]
#: What the embedded server answers beyond its limits, and to browsers.
_LIMITS: Final = re.compile(
    "is not HTTP/1.1|more than 128 headers|more than 1000 parameters|nested deeper than|bodies are not read compressed"
    "|requests from pages of other origins|too large|the request has no valid host"
)
_DENIED: Final = frozenset(["401", "403"])
#: Fields that kube-apiserver fills in, or that it describes in its own sentences.
_OWN_FIELDS: Final = re.compile(r"columnDefinitions|serviceAccount(Name)?$|\.status\.userInfo")
_OWN_MANAGED: Final = re.compile(r"managedFields|^\.metadata$")
_WRITTEN_VALUE: Final = re.compile(r"Invalid value: |map\[|Duplicate value: |Unsupported value: ")


def _breaks_http(attack: Attack, difference: AnswerDifference) -> bool:
    return bool(attack.framing) or attack.method not in METHODS or "#" in attack.target or bool(_LIMITS.search(difference.here))


def _is_of_own_fields(_: Attack, difference: AnswerDifference) -> bool:
    return bool(_OWN_FIELDS.search(difference.at))


def _is_of_managers(attack: Attack, difference: AnswerDifference) -> bool:
    return bool(_OWN_MANAGED.search(difference.at))


def _is_of_first_fault(_: Attack, difference: AnswerDifference) -> bool:
    """Return whether both servers reject a request, for reasons that do not concern rights."""
    codes = {difference.here[:3], difference.there[:3]}
    return difference.aspect == "code" and not codes & _DENIED


def _is_of_shown_value(_: Attack, difference: AnswerDifference) -> bool:
    is_text = difference.aspect in {"causes", "message"}
    return is_text and bool(_WRITTEN_VALUE.search(difference.here) or _WRITTEN_VALUE.search(difference.there))


def _is_applied_scale(attack: Attack, _: AnswerDifference) -> bool:
    return attack.what.route.subresource == "scale" and attack.what.method in {"PATCH", "PUT"}


def _is_head(attack: Attack, _: AnswerDifference) -> bool:
    return attack.method == "HEAD"


def _is_document(attack: Attack, _: AnswerDifference) -> bool:
    return attack.what.route.about is None


#: What is known to differ, by the name under which the documentation has it.
KNOWN: Final[Mapping[str, _Matches]] = {
    "broken HTTP and exceeded limits": _breaks_http,
    "documents without objects": _is_document,
    "HEAD": _is_head,
    "the first of several faults": _is_of_first_fault,
    "values shown in messages": _is_of_shown_value,
    "fields that Kubernetes fills in": _is_of_own_fields,
    "managed fields of events, reviews and daemon sets": _is_of_managers,
    "scales": _is_applied_scale,
}


def known_difference(attack: Attack, difference: AnswerDifference) -> str:
    """Return the name of a known difference, "" if it is not known."""
    return next((name for name, matches in KNOWN.items() if matches(attack, difference)), "")
