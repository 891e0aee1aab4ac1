"""``python -m tools.attacks``: attack the embedded API server, or compare it with a kube-apiserver under attack."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from moorage.basis.printable import some_lines
from moorage.errors import ConfigError
from tools.attacks.attack_run import run
from tools.attacks.comparing import AttackComparison, compare, groups_of
from tools.attacks.honest_comparison import compare_honest
from tools.attacks.making import Attack
from tools.attacks.sides import ServerAddress
from tools.attacks.wire import AttackResponse


def _show(attack: Attack, *answers: AttackResponse | None) -> None:
    sys.stdout.write("\n    ".join(some_lines(str(one)) for one in (attack, *answers)) + "\n")


def main() -> int:
    """Run rounds; exit with 1 if an invariant was broken, or if the servers differ in an unknown way."""
    given = _parser().parse_args()
    if given.against is None:
        return _run(given)
    compare_servers = _compare_honest if given.honest else _compare
    try:
        return compare_servers(given, ServerAddress.of(given.against, given.token, given.ca))
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"error: {some_lines(str(error))}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.attacks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds of attacks on every route [1]")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first round [0]")
    parser.add_argument("--attacks", type=int, help="number of attacks per round [all]")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="run only this attack of a round and print its response")
    parser.add_argument("--against", metavar="URL", help="also attack this kube-apiserver on this machine, and compare")
    parser.add_argument("--honest", action="store_true", help="compare answers to honest requests instead of attacks")
    parser.add_argument("--token", default="token-of-admin", help="the token of its administrator [token-of-admin]")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="the certificate that verifies it")
    return parser


def _run(given: argparse.Namespace) -> int:
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


def _compare(given: argparse.Namespace, against: ServerAddress) -> int:
    total = AttackComparison(given.seed)
    for seed in range(given.seed, given.seed + given.rounds):
        total += compare(seed, against, given.attacks, given.only, _show if given.only is not None else None)
    for group in groups_of(total.found):
        sys.stdout.write(some_lines(str(group)) + "\n")
    for name, count in sorted(total.known.items()):
        sys.stdout.write(f"known: {name}: {count}\n")
    sys.stdout.write(f"{total.attacks} attacks, {len(total.found)} differences\n")
    return 1 if total.found else 0


def _compare_honest(_: argparse.Namespace, against: ServerAddress) -> int:
    count, differences = compare_honest(against)
    for line in differences:
        sys.stdout.write(some_lines(line) + "\n")
    sys.stdout.write(f"{count} requests, {len(differences)} differences\n")
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
