"""Run attacks against a server and report what went wrong. The same seed gives the same attacks.

After each request: no server error, no leaked internals, a well-formed response, no write by a rejected request, no exceeded
rights, and a connection that stays in sync. After a run: the server is ready, every stored object is valid, no user has gained
rights, and no memory or descriptor is leaked.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tools.attacks.ground import Ground, a_ground
from tools.attacks.judging import faults_of
from tools.attacks.making import Attack, make
from tools.attacks.rights import Rights, faults_of_rights, held_rights
from tools.attacks.routes import combinations
from tools.attacks.settled import faults_of_store, faults_of_written
from tools.attacks.wire import AttackConnection, AttackResponse, Malformed

__all__ = ["AttackRun", "run"]

#: The CPU time that one request may take, in seconds. Includes pauses of the garbage collector.
_MOST_CPU_S: Final = 2.0
_READY: Final = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: Check readiness after this many attacks without a suspicion.
_EVERY: Final = 50


@dataclass
class AttackRun:
    """The result of one seed: each broken invariant with its attack, and the response codes."""

    seed: int
    attacks: int = 0
    broken: list[str] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    met: set[str] = field(default_factory=set)

    def blame(self, faults: list[str], what: object) -> None:
        self.broken += [f"{fault}\n        {what}" for fault in faults]


def run(
    seed: int,
    attacks: int | None = None,
    only: int | None = None,
    report: Callable[[Attack, AttackResponse | None], None] | None = None,
) -> AttackRun:
    """Run a seed's attacks: one for each route, method and media type in a random order, or the first ``attacks`` of them.

    ``only`` runs a single one. ``report`` receives each attack with its response.
    """
    result = AttackRun(seed)
    before = _leaks()
    asyncio.run(_play(result, attacks, only, report))
    gc.collect()
    after = _leaks()
    result.blame(
        [f"{more} more {name} than before are still alive" for name, more in (after - before).items()], "the whole run"
    )
    return result


def _leaks() -> Counter[str]:
    """Count the objects that must not outlive a server, and open descriptors."""
    names = {"Store", "Front", "Connection", "Stream", "Watch", "AttackConnection", "Task"}
    kept = Counter(type(one).__name__ for one in gc.get_objects() if type(one).__name__ in names and _is_ours(type(one)))
    kept["open descriptors"] = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    return kept


def _is_ours(of: type) -> bool:
    return of.__module__.startswith(("moorage.", "asyncio", "_asyncio"))


async def _play(
    result: AttackRun, attacks: int | None, only: int | None, report: Callable[[Attack, AttackResponse | None], None] | None
) -> None:
    rng = random.Random(result.seed)  # noqa: S311 - chance, not secrecy
    order = combinations()
    rng.shuffle(order)
    async with a_ground(result.seed) as ground:
        lines = AttackConnection(ground.port), AttackConnection(ground.port)
        rights = held_rights(ground)
        for number, what in enumerate(order[:attacks]):
            attack = make(random.Random(f"{result.seed}/{number}"), number, what)  # noqa: S311
            if only is None or number == only:
                answer = await _attack(result, ground, lines, attack, rights)
                if report is not None:
                    report(attack, answer)
        gained = held_rights(ground) - rights
        result.blame([f"{who} has gained the right {one}" for who, one in sorted(gained)], "the whole run")
        result.blame(await faults_of_store(ground, lines[1]), "the whole run")
        result.blame([f"logged: {line}" for line in ground.logged()], "while the store was looked at")
        for line in lines:
            await line.close()


async def _attack(
    result: AttackRun, ground: Ground, lines: tuple[AttackConnection, AttackConnection], attack: Attack, rights: Rights
) -> AttackResponse | None:
    ground.restore(attack.what.route.about)
    version, spent = ground.store.version, time.process_time()
    faults, answer = [], None
    ends = attack.framing in {"too long", "endless chunk", "bad chunk", "none", "negative"}
    try:
        answer = await lines[0].ask(attack.raw(ground.tokens[attack.who]), is_head=attack.method == "HEAD", ends=ends)
    except Malformed as fault:
        faults.append(f"the response is not valid HTTP: {fault}")
        await lines[0].close()
    except TimeoutError:
        faults.append("no response in time")
        await lines[0].close()
    if (spent := time.process_time() - spent) > _MOST_CPU_S:
        faults.append(f"took {spent:.1f} s of CPU time")
    result.attacks += 1
    result.codes[answer.code if answer is not None else 0] += 1
    faults += [f"logged: {line}" for line in ground.logged()]
    faults += _faults_of_version(ground, attack, answer, version)
    faults += faults_of(attack, answer) if answer is not None else _faults_of_silence(attack)
    written = ground.written()
    faults += await faults_of_rights(ground, lines[1], attack, answer, written, rights)
    faults += await faults_of_written(ground, lines[1], written)
    ground.written()
    if faults or attack.framing or attack.number % _EVERY == 0:
        faults += await _faults_of_step(lines)
    result.blame(faults, attack)
    return answer


def _faults_of_version(ground: Ground, attack: Attack, answer: AttackResponse | None, before: int) -> Iterator[str]:
    """Yield invalid changes of the store's version."""
    now = ground.store.version
    if now < before:
        yield f"the store's version decreased from {before} to {now}"
    elif now > before:
        # Like kube-apiserver, the server deletes a collection object by object: a failure keeps the earlier deletions.
        of_many = attack.method == "DELETE" and not attack.what.route.name
        if answer is not None and answer.code >= 400 and not (of_many and answer.code != 406):
            yield f"was rejected with {answer.code}, but wrote: {answer.body[:300]!r}"
        elif attack.method in {"GET", "HEAD"}:
            yield "a read request wrote"
        elif attack.is_dry:
            yield "a dry run wrote"


def _faults_of_silence(attack: Attack) -> Iterator[str]:
    """Yield a fault if a well-formed request got no response."""
    if not attack.framing and attack.is_plain:
        yield "got no response"


async def _faults_of_step(lines: tuple[AttackConnection, AttackConnection]) -> list[str]:
    """Return faults of the next request: on the attack's connection, if it is still open, and on another one."""
    faults = []
    for line, which in zip(lines, ("the same", "another"), strict=True):
        try:
            answer = await line.ask(_READY) or await line.ask(_READY)  # an idle connection may have been closed meanwhile
            if answer is None or (answer.code, answer.body) != (200, b"ok"):
                faults.append(f"/readyz over {which} connection returns {answer}")
        except (Malformed, TimeoutError) as fault:
            faults.append(f"/readyz over {which} connection: {type(fault).__name__} {fault}")
            await line.close()
    return faults
