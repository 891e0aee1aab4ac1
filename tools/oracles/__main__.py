"""``python -m tools.oracles``: build the programs of ``oracles/``, and say which cannot be had here, and why."""

from __future__ import annotations

import argparse
import sys
import time

from moorage.basis.printable import some_lines
from tools.oracles import BuildError, OracleMissingError, programs


def main() -> int:
    """Build; exit with 1 if the sources of one do not compile. One that cannot be had is skipped."""
    parser = argparse.ArgumentParser(prog="python -m tools.oracles", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the folders of oracles/ to build [all]")
    parser.add_argument("--limit", type=float, default=1800.0, metavar="SECONDS", help="how long one may take [1800]")
    parser.add_argument("--default", action="store_true", help="only the default release of each")
    given = parser.parse_args()
    failed = False
    for program in programs(*given.names):
        if given.default and program.release:
            continue
        begin = time.monotonic()
        try:
            path = program.build(given.limit)
            line = f"ready    {program}: {path} ({time.monotonic() - begin:.0f} s)"
        except OracleMissingError as error:
            line = f"skipped  {program}: {error}"
        except BuildError as error:
            line, failed = f"FAILED   {program}: {error}", True
        sys.stdout.write(some_lines(line) + "\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
