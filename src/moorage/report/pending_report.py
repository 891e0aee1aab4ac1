"""``PendingReport``: all pending pods by their causes, what to do about each cause, and what places them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from moorage.basis.printable import counted, one_line, some
from moorage.report.answer import Answer, ending
from moorage.report.explanation_values import AtomReport
from moorage.report.short_names import together
from moorage.report.style import item, paragraph

#: How many names and changes a line has.
_SHOWN: Final = 4


class PendingWay(Struct, frozen=True, rename="camel"):
    """Changes of one kind for all pods of a group. ``placed``: how many of them get a node; ``chosen``: part of the answer.

    ``effects``  what else happens, in words
    """

    kind: str
    cost: float
    who: str
    atoms: tuple[AtomReport, ...]
    commands: tuple[str, ...]
    placed: int
    chosen: bool = False
    effects: tuple[str, ...] = ()


class PendingGroup(Struct, frozen=True, rename="camel"):
    """Pods that are pending for one cause, and what to do about it: up to three ways, the cheapest first.

    ``waiting``: those that earlier changes do not place, for which the ways were tried. ``searched``: False if the time was
    over before. ``created``: False for pods that a quota refused; what makes room in the quota is not tried.
    """

    cause: str
    pods: tuple[str, ...]
    waiting: int
    ways: tuple[PendingWay, ...] = ()
    searched: bool = True
    created: bool = True


class PendingReport(Answer, frozen=True, kw_only=True):
    """The answer of ``moorage explain --pending``. ``placed`` pods get a node with what ``together`` does, by who does it."""

    KIND: ClassVar[str] = "PendingReport"

    groups: tuple[PendingGroup, ...] = ()
    together: tuple[PendingWay, ...] = ()
    nodes: tuple[str, ...] = ()
    pending: int = 0
    placed: int = 0

    @property
    def holds(self) -> bool | None:
        """Whether no pod is pending."""
        return not self.pending

    def _node_names(self) -> Collection[str]:
        return self.nodes

    def _question(self) -> Mapping[str, Any]:
        return {"explain": "pending", **self.request.question}

    def _answer(self) -> dict[str, Any]:
        parts = {"groups": self.groups, "together": self.together}
        return {**msgspec.to_builtins(parts), "pending": self.pending, "placed": self.placed}

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        yield from ("\n".join(_group_lines(one, wide=wide)) for one in self.groups)
        if self.together:
            yield "\n".join(_all_lines(self.together, self.placed, self.pending))
        last = self._certain() if any(one.ways and one.created for one in self.groups) else ""
        if not all(one.searched for one in self.groups):
            last = f"More time for the others: --time-limit SECONDS, or 0 for no limit. {last}"
        if not all(one.created for one in self.groups):
            last += "Quotas are enforced as kube-apiserver does; what makes room in them was not run. "
        yield ending(last.rstrip(), wide=wide)

    def _certain(self) -> str:
        """Return how certain it is that nothing cheaper places the pods."""
        cost, least = round(sum(way.cost for way in self.together), 2), self.proof.lower_bound
        run = "Every way was run by the engine, for the groups one after another with what was chosen before. "
        if self.placed < self.pending:  # what is proven is of sets that place all
            return f"{run}Together they cost {cost:g}. "
        if self.proof.kind == "exhaustive":
            return f"{run}No set of the known changes that places all costs less than these: {cost:g} by the table of costs. "
        return (
            run if not least else f"{run}Together they cost {cost:g}; no set costs less than {least:g}, and one may cost less. "
        )


def _group_lines(group: PendingGroup, *, wide: bool) -> Iterator[str]:
    names = list(group.pods) if wide else together(group.pods)
    shown = ", ".join(names) if wide else some(names)
    yield paragraph(one_line(f"{shown}: {group.cause}"), indent="  ✗ ", hanging="    ")
    if not group.waiting:
        yield "      placed by the changes above"
    elif not group.ways and not group.searched:
        yield "      not searched in time"
    elif not group.ways:
        yield "      no change is known that makes sense"
    width = max((len(way.kind) for way in group.ways), default=0)
    for way in group.ways:
        head = f"    {'✓' if way.chosen else ' '} {way.kind.ljust(width)}  "
        placed = "all" if way.placed == group.waiting else f"{way.placed} of {group.waiting}"
        result = "" if group.waiting == 1 or not group.created else f": places {placed}"
        yield paragraph(one_line(f"{_words(way.atoms)}{result}"), indent=head, hanging=" " * len(head))
        if wide:
            said = "; ".join(
                (f"by {way.who}" if way.who != "no one" else "no action needed", *way.effects, f"cost {round(way.cost, 2):g}")
            )
            yield paragraph(one_line(said), indent=" " * len(head), hanging=" " * len(head))
            yield from (f"{' ' * len(head)}{one_line(command)}" for command in way.commands)


def _words(atoms: Sequence[AtomReport]) -> str:
    """Return changes in words: equal ones once, with their number. Different ones of several pods have their names."""
    pods = {one.target for one in atoms if one.owner == "pod"}
    same = len({one.text for one in atoms if one.owner == "pod"}) * len(pods) == sum(one.owner == "pod" for one in atoms)
    named = len(pods) > 1 and not same
    said = Counter((one.target.rpartition("/")[2] if named and one.target in pods else "", one.text) for one in atoms)
    texts, before = [], ""
    for name, text in [*said][:_SHOWN]:
        count = f" ×{said[name, text]}" if said[name, text] > 1 else ""  # noqa: RUF001
        texts.append(f"{f'{name}: ' if name and name != before else ''}{text}{count}")
        before = name
    more = f", and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return " + ".join(texts) + more


def _all_lines(chosen: Sequence[PendingWay], placed: int, pending: int) -> Iterator[str]:
    """Yield everything that was chosen, by who makes it."""
    result = f"all {pending}" if placed == pending else f"{placed} of {pending}"
    yield f"  What places {result}"
    held: dict[str, list[AtomReport]] = {}
    for way in chosen:
        held.setdefault(way.who, []).extend(way.atoms)
    for who, atoms in held.items():
        yield item(f"{who}: {_words(atoms)}", "    ")


def summary_of(groups: Sequence[PendingGroup], together: Sequence[PendingWay], placed: int) -> str:
    """Return the first line."""
    pending, causes = sum(len(one.pods) for one in groups), len(groups)
    changes = sum(len(way.atoms) for way in together)
    if not pending:
        return "No pod is pending."
    head = f"{counted(pending, 'pod')} {'is' if pending == 1 else 'are'} pending, for {counted(causes, 'cause')}"
    if not placed:
        missing = "" if any(one.ways or not one.searched for one in groups) else "; no change is known that makes sense"
        return f"{head}{missing}."
    makes = "places" if changes == 1 else "place"
    return f"{head}; {counted(changes, 'change')} {makes} {'all' if placed == pending else placed} of them."
