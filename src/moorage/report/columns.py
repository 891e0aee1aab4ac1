"""Plain columns, as kubectl prints them, and human-readable amounts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from moorage.printable import one_line
from moorage.report.style import PLAIN, Style

__all__ = ["columns", "human"]

_BINARY = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def columns(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[int] = (),
    gap: str = "   ",
    style: Style = PLAIN,
    paint: Mapping[int, Callable[[str], str]] | None = None,
) -> str:
    """Lay out rows under a header, each column as wide as it needs; ``right`` names the columns aligned to the right.

    ``paint`` colours the padded cells of a column. Line breaks in a cell are escaped.
    """
    table = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    to_right = set(right)
    widths = [max(len(row[at]) for row in table) for at in range(len(header))]
    first, *lines = (
        [
            cell.rjust(width) if at in to_right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in table
    )
    painted = (_painted(line, paint or {}) for line in lines)
    return "\n".join([style.dim(gap.join(first).rstrip()), *(gap.join(line).rstrip() for line in painted)])


def _painted(line: list[str], paint: Mapping[int, Callable[[str], str]]) -> list[str]:
    return [paint[at](cell) if at in paint else cell for at, cell in enumerate(line)]


def human(resource: str, amount: int) -> str:
    """Write an amount of a resource: ``1500m``, ``2``, ``12.5Gi``, ``3``."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount / 1000:.1f}" if amount >= 10_000 else f"{amount}m"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for unit, size in _BINARY:
            if abs(amount) >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)
