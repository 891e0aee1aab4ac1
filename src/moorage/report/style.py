"""How reports look on a terminal: lines as wide as the terminal, signs, and colours that are never the only cue.

Text is first composed of words and signs; ``Style.finished`` then replaces the signs by ASCII, or colours them. Text from input
is escaped before, so the only escape sequences are those of ``COLOURS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Final

from moorage.basis.printable import one_line

#: The width of texts for files and pipes, and in a wider terminal.
WIDTH: Final = 100
_width: Final = ContextVar("width", default=WIDTH)
#: Whether tables are made as narrow as the lines, and the end that all names of nodes share, which tables leave out.
_fits: Final = ContextVar("fits", default=False)
_end: Final = ContextVar("end", default="")
#: A cell is not cut shorter than this, and the gaps between the columns of a narrow table: the first with which it fits.
_LEAST_CELL: Final = 12
_NARROW_GAPS: Final = ("  ", " ")
#: The least width of the last column.
_LEAST: Final = 24
#: Sign → how it is written in ASCII. Each is one character in both, so columns stay aligned; "→" and "…" are free text.
_ASCII: Final[Mapping[str, str]] = {
    "✗": "x", "✓": "+", "→": ">", "·": "-", "×": "x", "…": "...", "≤": "<=", "≥": ">=", "─": "-", "┬": "+",  # noqa: RUF001
}  # fmt: skip
_RED, _GREEN, _YELLOW, _CYAN, _DIM, _BOLD, _PLAIN = (f"\x1b[{n}m" for n in ("31", "32", "33", "36", "2", "1", "0"))
#: The escape sequences that ``Style`` adds to a text, and no others.
COLOURS: Final = frozenset({_RED, _GREEN, _YELLOW, _CYAN, _DIM, _BOLD, _PLAIN})
_SIGNS: Final[Mapping[str, str]] = {"✗": _RED, "✓": _GREEN, "→": _CYAN, "!": _YELLOW}
_COMMAND: Final = re.compile(r"kubectl .*?(?= {2,}| →|$)")
_SIGN: Final = re.compile(r"(?<!\S)[✗✓→!](?!\S)")


@dataclass(frozen=True, slots=True)
class Style:
    """Whether to use ASCII alone, whether to colour, the width of lines of text, and whether tables have to fit into it."""

    ascii_only: bool = False
    colour: bool = False
    width: int = WIDTH
    fits: bool = False

    def bold(self, text: str) -> str:
        return self._painted(_BOLD, text)

    def dim(self, text: str) -> str:
        return self._painted(_DIM, text)

    def red(self, text: str) -> str:
        return self._painted(_RED, text)

    def green(self, text: str) -> str:
        return self._painted(_GREEN, text)

    def yellow(self, text: str) -> str:
        return self._painted(_YELLOW, text)

    def _painted(self, code: str, text: str) -> str:
        return f"{code}{text}{_PLAIN}" if self.colour and text else text

    def finished(self, text: str) -> str:
        """Return the text with its first line emphasised and its signs and commands coloured, or with signs in ASCII."""
        if self.colour:
            head, newline, rest = text.partition("\n")
            rest = _SIGN.sub(lambda found: f"{_SIGNS[found[0]]}{found[0]}{_PLAIN}", rest)
            rest = _COMMAND.sub(lambda found: f"{_CYAN}{found[0]}{_PLAIN}", rest)
            text = f"{_BOLD}{head}{_PLAIN}{newline}{rest}"
        if self.ascii_only:
            for sign, plain in _ASCII.items():
                text = text.replace(sign, plain)
        return text


#: No colours, 100 columns: the style for files and pipes.
PLAIN: Final = Style()


_for_agents: ContextVar[bool] = ContextVar("for agents", default=False)


def write_for_agents() -> None:
    """Write texts of this process for agents: with commands, and with the changes in the form in which tools take them."""
    _for_agents.set(True)


def is_for_agents() -> bool:
    """Return whether texts are for agents."""
    return _for_agents.get()


def text_width() -> int:
    """Return the width of lines."""
    return _width.get()


def are_tables_fitted() -> bool:
    """Return whether tables are made as narrow as the lines."""
    return _fits.get()


@contextmanager
def lines_of(width: int | None, end: str = "") -> Iterator[None]:
    """Lay out texts in lines of this width while the block runs, and tables without the ``end`` that names of nodes share.

    None is for files and pipes, where tables are as wide as they need.
    """
    layout: dict[ContextVar[Any], Any] = {_width: WIDTH if width is None else width, _fits: width is not None, _end: end}
    before = [(held, held.set(value)) for held, value in layout.items()]
    try:
        yield
    finally:
        for held, token in before:
            held.reset(token)


def fitted(text: str, *, indent: str = "", hanging: str | None = None) -> str:
    """Return a text wrapped at words if it is for a terminal, or else in one line."""
    return paragraph(text, indent=indent, hanging=hanging) if _fits.get() else f"{indent}{text}"


def paragraph(text: str, *, indent: str = "", hanging: str | None = None, width: int | None = None) -> str:
    """Return a text wrapped at words; a word that is longer than a line stays whole."""
    lines = wrap(
        text, text_width() if width is None else width, initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines) or indent.rstrip()


def item(text: str, indent: str = "  ") -> str:
    """Return a text from input as an entry of a list, escaped and wrapped at words."""
    return paragraph(one_line(text), indent=indent, hanging=f"{indent}  ")


def cells(rows: Iterable[Sequence[str]], most: Sequence[int], *, indent: str = "  ", gap: str = "  ") -> str:
    """Lay out rows in columns of at most ``most`` characters each, the last one up to the end of the line.

    A cell that is longer continues on the next line. A word that is longer than its column stays whole, and the rest of its row
    starts on the next line.
    """
    table = [list(row) for row in rows]
    narrow = min(1.0, text_width() / WIDTH)
    limits = [int(limit * narrow) if limit > _LEAST else limit for limit in most]
    widths = [min(limit, max((len(row[at]) for row in table), default=0)) for at, limit in enumerate(limits)]
    left = text_width() - len(indent) - sum(widths[:-1]) - len(gap) * (len(widths) - 1)
    if left < _LEAST and len(widths) > 1:
        widest = max(range(len(widths) - 1), key=widths.__getitem__)
        widths[widest] = max(_LEAST, widths[widest] - (_LEAST - left))
    widths[-1] = max(_LEAST, left)
    over = len(indent) + sum(widths) + len(gap) * (len(widths) - 1) - text_width()
    while over > 0 and max(widths) > _LEAST_CELL:
        widths[widths.index(max(widths))] -= 1
        over -= 1
    lines: list[str] = []
    for row in table:
        lines += _row(row, widths, indent, gap)
    return "\n".join(lines)


def _row(row: Sequence[str], widths: Sequence[int], indent: str, gap: str) -> list[str]:
    parts = [
        wrap(cell, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
        for cell, width in zip(row, widths, strict=True)
    ]
    lines: list[str] = []
    while any(parts):
        line, at = indent, len(indent)
        for column, part in enumerate(parts):
            if len(line.rstrip(" ")) > at and line.strip():
                break  # the cell before is too long: this one starts on the next line
            line = line.ljust(at) + (part.pop(0) if part else "")
            at += widths[column] + len(gap)
        lines.append(line.rstrip())
    return lines


# -- columns -----------------------------------------------------------------------------------------------------------
# Plain columns, as kubectl prints them, and human-readable amounts.

_BINARY = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def columns(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[int] = (),
    gap: str = "   ",
    style: Style = PLAIN,
    paint: Mapping[int, Callable[[str], str]] | None = None,
    indent: int = 0,
) -> str:
    """Lay out rows under a header, each column as wide as it needs; ``right`` names the columns aligned to the right.

    ``paint`` colours the padded cells of a column. Line breaks in a cell are escaped.
    """
    end = _end.get()
    table = [list(header), *([one_line(cell).replace(end, "") if end else one_line(cell) for cell in row] for row in rows)]
    to_right = set(right)
    widths = [max(len(row[at]) for row in table) for at in range(len(header))]
    room = text_width() - indent
    if _fits.get() and sum(widths) + len(gap) * (len(widths) - 1) > room:
        gaps = (one for one in _NARROW_GAPS if sum(_narrowed(widths, to_right, 0)) + len(one) * (len(widths) - 1) <= room)
        gap = next(gaps, _NARROW_GAPS[-1])
        widths = _narrowed(widths, to_right, room - len(gap) * (len(widths) - 1))
        table = [[cut(cell, width) for cell, width in zip(row, widths, strict=True)] for row in table]
    first, *lines = (
        [
            cell.rjust(width) if at in to_right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in table
    )
    painted = (_painted(line, paint or {}) for line in lines)
    return "\n".join([style.dim(gap.join(first).rstrip()), *(gap.join(line).rstrip() for line in painted)])


def _narrowed(widths: list[int], fixed: set[int], room: int) -> list[int]:
    """Return widths that fit into the room, if they can: the widest columns are cut, but not those aligned to the right."""
    found = list(widths)
    while sum(found) > room:
        at = max((at for at in range(len(found)) if at not in fixed), key=found.__getitem__, default=None)
        if at is None or found[at] <= _LEAST_CELL:
            return found
        found[at] -= 1
    return found


def cut(cell: str, width: int) -> str:
    """Return a cell without its middle, if it is too wide."""
    if len(cell) <= width:
        return cell
    last = (width - 1) // 2
    return f"{cell[: width - 1 - last]}…{cell[len(cell) - last :]}"


def _painted(line: list[str], paint: Mapping[int, Callable[[str], str]]) -> list[str]:
    return [paint[at](cell) if at in paint else cell for at, cell in enumerate(line)]


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Write amounts of resources: ``500m cpu, 1Gi memory``."""
    return ", ".join(f"{human(name, amount)} {name}" for name, amount in amounts.items())


def human(resource: str, amount: int) -> str:
    """Write an amount of a resource: ``1500m``, ``2``, ``12.5Gi``, ``3``."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount / 1000:.1f}" if amount >= 10_000 else f"{amount}m"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for unit, size in _BINARY:
            if abs(amount) >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)
