"""The least changes as text: one line for each, with the command to paste and the nodes that it opens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.printable import one_line
from moorage.report.change_values import ChangeReport
from moorage.report.style import WIDTH, paragraph

__all__ = ["change_lines"]

#: The width of the change, in columns, beyond which the nodes follow on the next line.
_WORDS = 50
_NODES = 3


def change_lines(changes: Sequence[ChangeReport], nodes: Sequence[str], *, wide: bool) -> Iterator[str]:
    """Yield the heading and the changes, the cheapest first."""
    yield "  Least change"
    width = min(_WORDS, max(len(_text(one)) for one in changes))
    owners = max(len(one.owner) for one in changes)
    for number, one in enumerate(changes, 1):
        yield from _lines(number, one, nodes, (owners, width), wide=wide)


def _lines(number: int, one: ChangeReport, nodes: Sequence[str], widths: tuple[int, int], *, wide: bool) -> Iterator[str]:
    owners, width = widths
    head = f"  {number:>3} {one.owner.ljust(owners)}  "
    names = _names(one, nodes)
    text, where = _text(one), f"→ {names}  cost {_cost(one.cost)}" if names else f"cost {_cost(one.cost)}"
    if len(text) <= width and len(head) + width + 2 + len(where) <= WIDTH:
        yield f"{head}{text.ljust(width)}  {where}"
    else:
        yield paragraph(text, indent=head, hanging=" " * len(head))
        yield " " * len(head) + where
    indent = " " * len(head)
    if one.displaced or one.stranded:
        yield paragraph(_moved(one), indent=indent)
    if one.alike and not wide:
        more = f", and {len(one.alike) - 1} more" if len(one.alike) > 1 else ""
        yield paragraph(f"or {one_line(one.alike[0])}{more}", indent=indent, hanging=indent + "   ")
    for other in one.alike if wide else ():
        yield paragraph(f"or {one_line(other)}", indent=indent, hanging=indent + "   ")
    if wide:
        for atom in one.atoms:
            yield paragraph(f"{atom.owner} {_cost(atom.cost)}: {one_line(atom.text)}", indent=indent, hanging=indent + "  ")
        shown = [command for command in one.commands if one_line(command) != text]
        for command in shown:
            yield f"{indent}{one_line(command)}"  # commands are not wrapped: they are there to be pasted


def _cost(cost: float) -> str:
    return f"{cost:.2f}".rstrip("0").rstrip(".")


def _text(one: ChangeReport) -> str:
    return one_line(" + ".join(atom.text for atom in one.atoms))


def _names(one: ChangeReport, nodes: Sequence[str]) -> str:
    shown = " ".join(one_line(nodes[at]) for at in one.nodes[:_NODES])
    more = len(one.nodes) - _NODES
    return shown + (f" and {more} more" if more > 0 else "")


def _moved(one: ChangeReport) -> str:
    gone = f"displaces {', '.join(one.displaced)}" if one.displaced else ""
    left = f"{', '.join(one.stranded)} then {'stays' if len(one.stranded) == 1 else 'stay'} pending" if one.stranded else ""
    return one_line("; ".join(part for part in (gone, left) if part))
