"""Send the same attacks to the embedded server and to a kube-apiserver, and collect what they do differently.

Before each attack both servers hold the same objects. After it, the responses are compared, then the objects of the attacked
kind, and both servers are brought back to where they began.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from moorage.api.documents.served_kinds import MEASURED, ServedKind, served
from tools.attacks.differences import ASPECTS, AnswerDifference, differences_of_answers, differences_of_objects
from tools.attacks.known_differences import UNCHANGED_RIGHTS, known_difference
from tools.attacks.making import Attack, make
from tools.attacks.routes import combinations
from tools.attacks.sides import ComparedServer, ServerAddress, embedded_side, is_own, reference_side
from tools.attacks.wire import AttackResponse, Malformed

__all__ = ["AttackComparison", "DifferenceGroup", "FoundDifference", "compare", "groups_of"]

#: Framings that end with a half-closed connection, which TLS does not have.
_UNFRAMED: Final = frozenset(["too long", "endless chunk"])
#: Kinds whose collections hold what a cluster needs, and cannot be planted again.
_VITAL: Final = frozenset(["clusterroles", "clusterrolebindings"])
_PODS: Final = served("pods")
#: Events of both APIs are the same objects.
_EVENTS: Final = served("events", "events.k8s.io")


@dataclass(frozen=True)
class FoundDifference:
    """A difference with the attack that showed it."""

    seed: int
    attack: Attack
    difference: AnswerDifference

    @property
    def place(self) -> str:
        """The method and the resource of the attack."""
        route = self.attack.what.route
        name = "/".join(filter(None, (route.about.resource, route.subresource))) if route.about else route.path
        return f"{self.attack.what.method} {name}"


@dataclass(frozen=True)
class DifferenceGroup:
    """The same difference in one or more attacks."""

    found: tuple[FoundDifference, ...]

    def __str__(self) -> str:
        first = self.found[0]
        places = [f"{place} ({count})" for place, count in Counter(one.place for one in self.found).most_common(8)]
        example = f"--seed {first.seed} --only {first.attack.number}"
        return f"{len(self.found)} x {first.difference}\n    {', '.join(places)}\n    {example}: {first.attack}"


def groups_of(found: Iterable[FoundDifference]) -> list[DifferenceGroup]:
    """Return the differences in groups, the worst kinds and the most frequent ones first."""
    groups: defaultdict[tuple[str, ...], list[FoundDifference]] = defaultdict(list)
    for one in found:
        what = one.difference
        groups[what.aspect, what.at, what.here[:60], what.there[:60]].append(one)
    ordered = sorted(groups.items(), key=lambda group: (ASPECTS.index(group[0][0]), -len(group[1])))
    return [DifferenceGroup(tuple(members)) for _, members in ordered]


@dataclass
class AttackComparison:
    """What differs in the attacks of one or more seeds, and how many differences are known."""

    seed: int
    attacks: int = 0
    found: list[FoundDifference] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)

    def add(self, attack: Attack, differences: Iterable[AnswerDifference]) -> None:
        """Count the differences of an attack. Those in objects, warnings and details have the cause of the leading one."""
        reason = ""
        for one in sorted(differences, key=lambda one: one.aspect not in _LEADING):
            follows = one.aspect in {"state", "warnings"} or one.at.startswith("details.")
            name = known_difference(attack, one) or (reason if follows else "")
            if name:
                self.known[name] += 1
            else:
                self.found.append(FoundDifference(self.seed, attack, one))
            if one.aspect in _LEADING:
                reason = "" if name == UNCHANGED_RIGHTS else name

    def __iadd__(self, other: AttackComparison) -> AttackComparison:
        self.attacks += other.attacks
        self.found += other.found
        self.known += other.known
        return self


#: Differences that lead to others.
_LEADING: Final = frozenset(["accepted here only", "rejected here only", "no response", "causes", "message"])
Report = Callable[[Attack, AttackResponse | None, AttackResponse | None], None]


def compare(
    seed: int, against: ServerAddress, attacks: int | None = None, only: int | None = None, report: Report | None = None
) -> AttackComparison:
    """Compare the servers' responses to the attacks of a seed. ``report`` receives each attack with both responses."""
    return asyncio.run(compare_servers(AttackComparison(seed), against, attacks, only, report))


async def compare_servers(
    result: AttackComparison,
    against: ServerAddress,
    attacks: int | None = None,
    only: int | None = None,
    report: Report | None = None,
) -> AttackComparison:
    """Do the work of ``compare`` in a running event loop, for the seed of ``result``, and return it."""
    rng = random.Random(result.seed)  # noqa: S311 - chance, not secrecy
    order = combinations()
    rng.shuffle(order)
    async with embedded_side(result.seed) as ours, reference_side(against) as theirs:
        for number, what in enumerate(order[:attacks]):
            attack = make(random.Random(f"{result.seed}/{number}"), number, what)  # noqa: S311
            if (only is None or number == only) and _is_comparable(attack):
                await _attack(result, (ours, theirs), attack, report)
    return result


def _is_comparable(attack: Attack) -> bool:
    about = attack.what.route.about
    is_vital = attack.method == "DELETE" and not attack.what.route.name and about is not None and about.resource in _VITAL
    return attack.framing not in _UNFRAMED and about not in MEASURED and not is_vital


async def _attack(
    result: AttackComparison, sides: tuple[ComparedServer, ComparedServer], attack: Attack, report: Report | None
) -> None:
    ours, theirs = [await _send(side, attack) for side in sides]
    if report is not None:
        report(attack, ours, theirs)
    result.attacks += 1
    about = attack.what.route.about
    kind = about if isinstance(about, ServedKind) else None
    has_body = attack.method != "HEAD" and about is not None
    is_made = (lambda one: is_own(kind, one)) if kind is not None else (lambda _: False)
    differences = differences_of_answers(ours, theirs, has_body=has_body, is_own=is_made)
    for changed in _kinds_of(attack):
        differences += await _differences_of_state(sides, changed)
    result.add(attack, differences)


async def _send(side: ComparedServer, attack: Attack) -> AttackResponse | None:
    answer = None
    for _ in range(2):  # an idle connection may have been closed meanwhile
        try:
            answer = answer or await side.attacked.ask(attack.raw(side.tokens[attack.who]), is_head=attack.method == "HEAD")
        except (Malformed, TimeoutError):
            await side.attacked.close()
            break
    if attack.framing:
        await side.attacked.close()  # what is left of the attack would count as the next request
    return answer


def _kinds_of(attack: Attack) -> Iterator[ServedKind]:
    """Yield the stored kinds that an attack may have changed."""
    about = attack.what.route.about
    if attack.what.method in {"GET", "HEAD"} or about is None:
        return
    if isinstance(about, ServedKind):
        yield _EVENTS if about.kind == "Event" else about
    elif about.kind == "Binding":
        yield _PODS


async def _differences_of_state(sides: tuple[ComparedServer, ComparedServer], kind: ServedKind) -> list[AnswerDifference]:
    found = [await side.objects(kind) for side in sides]
    changed = [side.is_changed(kind, objects) for side, objects in zip(sides, found, strict=True)]
    if not any(changed):
        return []
    here, there = ({"/".join(key): one for key, one in objects.items()} for objects in found)
    differences = [*differences_of_objects("state", here, there)]
    for side, is_changed in zip(sides, changed, strict=True):
        if is_changed:
            await side.restore(kind)
    return differences
