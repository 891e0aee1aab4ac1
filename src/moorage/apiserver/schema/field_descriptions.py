"""Descriptions of fields for ``kubectl explain``: of fields that scheduling reads, and of the best known others.

The texts are our own, in ``field_descriptions.json``, by struct and field; the empty field name describes the struct.
``*Condition`` matches all structs with that suffix, and ``*`` all structs, where there is no specific entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

__all__ = ["describe", "descriptions"]


@cache
def descriptions() -> Mapping[str, Mapping[str, str]]:
    """Return all descriptions, by struct and field."""
    text = resources.files("moorage.apiserver.schema").joinpath("field_descriptions.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, str]] = json.loads(text)
    return found


def describe(struct: str, field: str = "") -> str:
    """Return the description of a struct such as ``core.PodSpec`` or of one of its fields; "" if there is none."""
    table = descriptions()
    places = (struct, "*Condition" if struct.endswith("Condition") else "", "*")
    return next((table[place][field] for place in places if field in table.get(place, {})), "")
