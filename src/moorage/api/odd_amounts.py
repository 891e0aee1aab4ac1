"""Amounts of memory whose unit looks wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from moorage.api.core import Container

_THOUSANDTHS: Final = re.compile(r"([0-9]+)m")


def odd_memory(container: Container) -> Iterator[str]:
    """Yield the requests of memory that are in thousandths of a byte, because ``m`` was written for ``Mi``."""
    for name in ("memory", "ephemeral-storage"):
        found = _THOUSANDTHS.fullmatch(str(container.resources.requests.get(name, "")))
        if found is not None:
            written = found[0]
            yield f"container {container.name}: {name}: {written} is {int(found[1]) / 1000:g} bytes; {found[1]}Mi is mebibytes"
