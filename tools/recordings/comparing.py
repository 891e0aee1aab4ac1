"""Hold an answer against a recorded one, field by field."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["agrees", "by_reason", "differing", "documents"]

Document = Mapping[str, Any]


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the JSON documents of a file, one a line; of a compressed one if its name ends with ``.gz``."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.decode().splitlines()]


def by_reason(status: Any) -> Any:
    """Return a status with its reasons in order."""
    return {**status, "reasons": sorted(status.get("reasons") or [])} if status else status


def differing(wanted: Document, got: Document) -> list[str]:
    """Name the recorded fields in which an answer differs."""
    return [field for field, expected in wanted.items() if not agrees(field, expected, got.get(field))]


def agrees(field: str, expected: Any, actual: Any) -> bool:
    """Return whether the answer for a field is the recorded one, or one of those recorded."""
    if field == "postFilter":
        actual = actual or {}
        outcome = {k: sorted(v) if k == "victims" else v for k in ("nominated", "victims") if (v := actual.get(k))}
        same = (actual.get("code"), actual.get("message") or "") == (expected["code"], expected["message"])
        return same and outcome in expected["anyOf"]
    if field == "filter":
        there = {n: by_reason(s) for n, s in expected.items()}
        return there == {n: by_reason(s) for n, s in (actual or {}).items()}
    if field == "preFilter":
        return bool(by_reason(expected) == by_reason({k: v for k, v in (actual or {}).items() if k in expected}))
    if field == "feasible":  # an attempt that ends in an error may have no list
        return bool(expected == (actual or []))
    return bool(expected == actual)
