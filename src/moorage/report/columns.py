"""Plain columns, as kubectl prints them, and human-readable amounts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moorage.printable import one_line

__all__ = ["columns", "human"]

_BINARY = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def columns(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), gap: str = "   ") -> str:
    """Lay out rows under a header, each column as wide as it needs; ``right`` names the columns aligned to the right.

    Line breaks in a cell are escaped.
    """
    table = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    to_right = set(right)
    widths = [max(len(row[at]) for row in table) for at in range(len(header))]
    lines = []
    for row in table:
        cells = [c.rjust(w) if at in to_right else c.ljust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append(gap.join(cells).rstrip())
    return "\n".join(lines)


def human(resource: str, amount: int) -> str:
    """Write an amount of a resource: ``1500m``, ``2``, ``12.5Gi``, ``3``."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount / 1000:.1f}" if amount >= 10_000 else f"{amount}m"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for unit, size in _BINARY:
            if abs(amount) >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)
