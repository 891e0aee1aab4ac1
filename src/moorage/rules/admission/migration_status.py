"""Validation of the status of volume attachments and storage version migrations.

Source  kubernetes, pkg/apis/storage/validation, ValidateVolumeAttachment; pkg/apis/storagemigration/validation
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.api.documents.records import is_condition_true
from moorage.api.documents.served_kinds import Document
from moorage.api.validation.faults import invalid, too_long
from moorage.api.validation.rule_tables import Holders, Seen, check
from moorage.errors import Fault
from moorage.rules.admission.status_validation import status_of


@check("size of metadata")
def _size_of_metadata(path: str, held: dict[str, str], most: int) -> Iterable[Fault]:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in held.items())
    return (too_long(path, most),) if size > most else ()


@check("resource version")
def _resource_version(path: str, text: str) -> Iterable[Fault]:
    if text.isascii() and text.isdigit() and not text.startswith("0"):
        return ()
    return (invalid(path, text, f"resource version is not well formed: {text}"),)


@check("end of migration", of_holder=True)
def _end_of_migration(path: str, conditions: Any, status: Document, up: Holders, _: Seen) -> Iterable[Fault]:
    """Yield the faults of a migration that succeeded and failed, or no longer did."""
    old = status_of(up[1][0]) if up is not None and up[1] is not None else {}
    ends = {name: (is_condition_true(old, name), is_condition_true(status, name)) for name in ("Succeeded", "Failed")}
    if all(now for _, now in ends.values()):
        yield invalid(path, conditions, "Both success and failed conditions cannot be true at the same time")
    for title, (before, now) in zip(("Success", "Failed"), ends.values(), strict=True):
        if before and not now:
            yield invalid(path, conditions or [], f"{title} condition cannot be set to false once it is true")
