"""Build the files of a release twice, and see that both times give the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["build", "checksums"]


def build(root: Path, out: Path, epoch: str) -> Sequence[Path]:
    """Return the wheel and the source archive of the last commit, built into ``out``.

    ``epoch`` is the time of the commit, in seconds since 1970.

    Raises  SystemExit if two builds differ
    """
    with tempfile.TemporaryDirectory() as scratch:
        trees = [Path(scratch) / name for name in ("one", "two")]
        for tree in trees:
            subprocess.run(["git", "clone", "-q", "--depth=1", root.as_uri(), str(tree)], check=True)  # noqa: S603, S607
            _build(tree, tree / "dist", epoch)
        first, second = ({path.name: path.read_bytes() for path in (tree / "dist").iterdir()} for tree in trees)
        if differing := sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name)):
            raise SystemExit(f"two builds of the same source differ: {', '.join(differing)}")
        out.mkdir(parents=True, exist_ok=True)
        for name, data in first.items():
            (out / name).write_bytes(data)
    return sorted(out / name for name in first)


def _build(tree: Path, out: Path, epoch: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), "."]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        raise SystemExit(f"the build failed:\n{ended.stdout}{ended.stderr}")


def checksums(paths: Sequence[Path]) -> str:
    """Return a line for each file, as ``sha256sum --check`` reads it."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)
