"""``python -m tools.differential NAME``: compare one of our programs with the real one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

#: What can be compared → the module whose `main` does it.
_COMPARED: Final = {"apiserver": "tools.differential.apiserver"}


def main() -> int:
    """Run a comparison with the rest of the arguments."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in _COMPARED:
        sys.stderr.write(f"error: {name!r} is none of {', '.join(_COMPARED)}\n")
        return 2
    run: Callable[[Sequence[str]], int] = import_module(_COMPARED[name]).main
    return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
