"""Names and UIDs that a real cluster generates at random, derived from their inputs: equal inputs give equal names.

Suffixes use the API server's alphabet without vowels and look-alike characters, so that they form no words.

Source  apimachinery, pkg/util/rand/rand.go; apiserver, pkg/storage/names/generate.go
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Final

__all__ = ["SAFE_ALPHABET", "generated_name", "stable_suffix", "stable_uid"]

SAFE_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
#: A generated name is truncated so that it fits into a label.
_MAX_BASE: Final = 63 - _SUFFIX_LENGTH
_SPACE: Final = uuid.UUID("5f1ff0f4-6b2c-5b57-9a3c-3a1d7c0c6a55")


def stable_uid(kind: str, namespace: str, name: str) -> str:
    """Return a UID for an object without one: always the same for the same kind, namespace and name."""
    return str(uuid.uuid5(_SPACE, f"{kind}/{namespace}/{name}"))


def stable_suffix(*parts: str, length: int = _SUFFIX_LENGTH) -> str:
    """Return the suffix for ``parts``, instead of a random one."""
    number = int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest(), "big")
    drawn = []
    for _ in range(length):
        number, index = divmod(number, len(SAFE_ALPHABET))
        drawn.append(SAFE_ALPHABET[index])
    return "".join(drawn)


def generated_name(base: str, *parts: str) -> str:
    """Return a name for an object with ``generateName: base``; ``parts`` make it unique."""
    return base[:_MAX_BASE] + stable_suffix(base, *parts)
