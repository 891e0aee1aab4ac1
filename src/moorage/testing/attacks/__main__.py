"""``python -m moorage.testing.attacks``: run many rounds of attacks on the embedded API server, or repeat one attack."""

from __future__ import annotations

import argparse
import sys
import time

from moorage.printable import some_lines
from moorage.testing.attacks.attack_run import run
from moorage.testing.attacks.making import Attack
from moorage.testing.attacks.wire import AttackResponse


def _show(attack: Attack, answer: AttackResponse | None) -> None:
    sys.stdout.write(some_lines(f"{attack}\n    {answer}") + "\n")


def main() -> int:
    """Run rounds; exit with 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m moorage.testing.attacks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds of attacks on every route [1]")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first round [0]")
    parser.add_argument("--attacks", type=int, help="number of attacks per round [all]")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="run only this attack of a round and print its response")
    given = parser.parse_args()
    start, broken, played = time.process_time(), 0, 0
    for seed in range(given.seed, given.seed + given.rounds):
        result = run(seed, given.attacks, given.only, _show if given.only is not None else None)
        played += result.attacks
        broken += len(result.broken)
        for line in result.broken:
            sys.stdout.write(f"seed {seed}: {some_lines(line)}\n")
        codes = ", ".join(f"{code or 'no response'}: {count}" for code, count in sorted(result.codes.items()))
        sys.stdout.write(f"seed {seed}: {codes}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{played} attacks, {broken} broken invariants, {time.process_time() - start:.1f} s CPU\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
