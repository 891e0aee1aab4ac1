"""Run tests on copies of a project in which one file is another text."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue

__all__ = ["Copies"]


class Copies:
    """Copies of what git tracks in ``root``, in folders of ``scratch``: one for each test run at a time."""

    def __init__(self, root: Path, scratch: Path, number: int, arguments: Sequence[str], timeout_s: float) -> None:
        """``arguments``: those of each pytest run, besides its tests. ``timeout_s``: a run that takes longer has failed."""
        self.root, self.arguments, self.timeout_s = root, arguments, timeout_s
        names = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True).stdout.decode()  # noqa: S607
        self._free: SimpleQueue[Path] = SimpleQueue()
        for tree in (scratch / str(at) for at in range(number)):
            for name in filter(None, names.split("\0")):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, tree / name)
            self._free.put(tree)

    def passes(self, file: str, text: str, tests: Sequence[str]) -> bool:
        """Return whether the tests pass where a file has this text; waits for a copy that is free."""
        tree = self._free.get()
        try:
            self._write(tree / file, text)
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *self.arguments, *tests]
            environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
            ended = subprocess.run(  # noqa: S603
                command, cwd=tree, env=environment, capture_output=True, timeout=self.timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        else:
            return ended.returncode == 0
        finally:
            self._write(tree / file, (self.root / file).read_text("utf-8"))
            self._free.put(tree)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        for compiled in path.parent.glob(
            f"__pycache__/{path.stem}.*"
        ):  # it may be of another text with the same time and length
            compiled.unlink()
