"""What fields mean, in a sentence each, for ``kubectl explain``: those that scheduling reads, and the best known of the rest.

The sentences are our own and stand in ``field_descriptions.json``, by struct and field; a struct's own sentence has no field.
``*Condition`` stands for all structs whose names end so, and ``*`` for all, where there is nothing nearer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

__all__ = ["describe", "descriptions"]


@cache
def descriptions() -> Mapping[str, Mapping[str, str]]:
    """Return all sentences, by struct and field."""
    text = resources.files("moorage.apiserver.schema").joinpath("field_descriptions.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, str]] = json.loads(text)
    return found


def describe(struct: str, field: str = "") -> str:
    """Return what a struct such as ``core.PodSpec`` is, or what one of its fields means; nothing where that is not said."""
    table = descriptions()
    places = (struct, "*Condition" if struct.endswith("Condition") else "", "*")
    return next((table[place][field] for place in places if field in table.get(place, {})), "")
