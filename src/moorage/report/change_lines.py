"""What to do so that a pod is placed, as text: what, who does it, what else happens, and where the pod goes then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from moorage.basis.printable import counted, one_line
from moorage.report.explanation_values import AtomReport, ChangeReport, LeftOut
from moorage.report.style import is_for_agents, item, paragraph

#: How many changes are shown, each of another kind, and how many nodes.
_SHOWN, _NAMED = 3, 3


def change_lines(
    changes: Sequence[ChangeReport], nodes: Sequence[str], left_out: Sequence[LeftOut] = (), *, wide: bool
) -> Iterator[str]:
    """Yield the heading and the changes, the cheapest first: the first of each kind, or all that are known."""
    shown = list(changes) if wide else list({one.kind: one for one in reversed(changes)}.values())[::-1]
    shown = shown if wide else sorted(shown, key=changes.index)[:_SHOWN]
    yield "  What to do"
    width = max(len(one.kind) for one in shown)
    for number, one in enumerate(shown, 1):
        head = f"  {number:>3} {one.kind.ljust(width)}  "
        yield paragraph(_text(one), indent=head, hanging=" " * len(head))
        yield from _below(one, nodes, " " * len(head), wide=wide)
    more = [f"{counted(len(changes) - len(shown), 'more change')}: -o wide"] if len(changes) > len(shown) else []
    if wide:
        more += left_out_lines(left_out)
    for text in more:
        yield item(text, "      ")


def left_out_lines(left_out: Sequence[LeftOut]) -> list[str]:
    """Return a line for each reason for which changes are not offered."""
    return [f"not offered, {counted(one.changes, 'change')}: {one.text}" for one in left_out]


def _below(one: ChangeReport, nodes: Sequence[str], indent: str, *, wide: bool) -> Iterator[str]:
    """Yield who makes the change, what else happens, and the nodes; ``wide``: also costs, equal changes and commands."""
    said = "; ".join((f"by {one.who}" if one.who != "no one" else "no action needed", *one.effects))
    yield paragraph(one_line(said), indent=indent, hanging=indent)
    if one.nodes:
        yield paragraph(f"→ {_names(one, nodes)}", indent=indent, hanging=indent + "  ")
    if wide:
        costs = ", ".join(f"{atom.verb} {_cost(atom.cost)}" for atom in one.atoms) if len(one.atoms) > 1 else one.atoms[0].verb
        yield paragraph(one_line(f"cost {_cost(one.cost)} ({costs})"), indent=indent, hanging=indent)
    if one.alike:
        shown = one.alike if wide else one.alike[:1]
        for at, other in enumerate(shown):
            more = f", and {len(one.alike) - 1} more" if not wide and not at and len(one.alike) > 1 else ""
            yield paragraph(f"or {one_line(other)}{more}", indent=indent, hanging=indent + "   ")
    for command in one.commands if wide or is_for_agents() else ():
        if one_line(command) != _text(one):
            yield f"{indent}{one_line(command)}"  # commands are not wrapped: they are there to be pasted
    if is_for_agents():
        yield f"{indent}changes: {_as_changes(one)}"


def _as_changes(one: ChangeReport) -> str:
    """Return the changes as tools take them: texts of edits where they are short, else the change as its document has it."""
    return json.dumps([_as_change(atom) for atom in one.atoms], ensure_ascii=False)


def _as_change(atom: AtomReport) -> str:
    match atom.verb, atom.target.partition("/"):
        case "cordon" | "uncordon", ("node", _, name):
            return f"node/{name} unschedulable={'true' if atom.verb == 'cordon' else 'false'}"
    fields = {name: getattr(atom, name) for name in ("owner", "verb", "target", "path", "old", "new")}
    return json.dumps({name: held for name, held in fields.items() if held not in ("", None)}, ensure_ascii=False)


def _cost(cost: float) -> str:
    return f"{cost:.2f}".rstrip("0").rstrip(".")


def _text(one: ChangeReport) -> str:
    return one_line(" + ".join(atom.text for atom in one.atoms))


def _names(one: ChangeReport, nodes: Sequence[str]) -> str:
    shown = " ".join(one_line(nodes[at]) for at in one.nodes[:_NAMED])
    more = len(one.nodes) - _NAMED
    return shown + (f" and {more} more" if more > 0 else "")
