"""Drop repeated owner references of written objects, with a warning.

Source  apiserver, pkg/endpoints/handlers/rest.go, dedupOwnerReferences
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.apiserver.vocabulary.records import Document

__all__ = ["drop_repeated_owners"]


def drop_repeated_owners(document: Document, *, is_patch: bool = False) -> tuple[str, ...]:
    """Drop the owner references that occur again, in place. Return the warning about them."""
    kept: dict[bytes, Any] = {}
    repeated = []
    for owner in document["metadata"].get("ownerReferences") or ():
        key = msgspec.json.encode(owner, order="deterministic")
        if key in kept:
            repeated.append(str(owner.get("uid") or ""))
        kept.setdefault(key, owner)
    if not repeated:
        return ()
    document["metadata"]["ownerReferences"] = [*kept.values()]
    when = " after mutating admission happens" if is_patch else ""
    why = (
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may "
        f"reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {', '.join(repeated)}"
    )
    return (why,)
