"""Build the Go programs of ``oracles/``, which run the real code of Kubernetes and its kin beside ours.

A folder of ``oracles/`` is one program: ``go.mod`` and ``go.sum`` name the modules of its default release, ``v1.36.mod`` and
``v1.36.sum`` those of another one, and ``ldflags``, if there, what the linker sets. Programs are kept in a cache outside the
tree, named after the sources they were built from, so a second build takes no time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["ORACLES", "BuildError", "OracleMissingError", "Program", "built", "cache_folder", "programs"]

ORACLES: Final = Path(__file__).resolve().parents[2] / "oracles"
#: Names the folder of built programs; without it, ``moorage-oracles`` in the user's cache.
NAMED: Final = "MOORAGE_ORACLES"
#: Names the seconds that a build may take if its caller sets no limit.
LIMIT: Final = "MOORAGE_ORACLES_SECONDS"
#: How long a program of other sources stays: other work trees may use it.
_KEPT_S: Final = 7 * 86400.0


class OracleMissingError(Exception):
    """The program cannot be had on this machine; the text says why."""


class BuildError(Exception):
    """The program's own sources do not compile: a fault of ours."""


class Program:
    """A program of ``oracles/`` for one release; ``release`` is empty for the default."""

    def __init__(self, name: str, release: str = "") -> None:
        self.name, self.release = name, release
        self.folder = ORACLES / name
        self.modules = self.folder / (f"v{release}.mod" if release else "go.mod")

    def __str__(self) -> str:
        return f"{self.name} {self.release}".strip()

    def kubernetes(self) -> str:
        """Return the version of Kubernetes whose code the program runs, as the file of its modules names it; without the ``v``.

        Raises  OracleMissingError if there is no such file
        """
        if not self.modules.exists():
            raise OracleMissingError(f"there is no {self.modules.name} in oracles/{self.name}")
        found = re.search(r"^(?:require)?\s+k8s\.io/kubernetes v(\S+)", self.modules.read_text(), re.MULTILINE)
        return found[1] if found else ""

    def path(self) -> Path:
        """Return where the program of the present sources is, built or not."""
        digest = hashlib.sha256()
        for file in sorted(
            [
                *self.folder.rglob("*.go"),
                *self.folder.rglob("*.s"),
                self.modules,
                self.modules.with_suffix(".sum"),
                self.folder / "ldflags",
            ]
        ):
            if file.is_file():
                digest.update(f"{file.relative_to(self.folder)}\0".encode() + file.read_bytes() + b"\0")
        return cache_folder() / self.name / f"{self.release or 'default'}-{digest.hexdigest()[:16]}" / self.name

    def build(self, limit_s: float) -> Path:
        """Build the program if its sources have changed, and return its path. ``limit_s`` bounds it in seconds.

        Raises  OracleMissingError if Go or a module cannot be had, or if time is up; BuildError
        """
        path = self.path()
        if path.exists():
            return path
        go = shutil.which("go")
        if go is None:
            raise OracleMissingError("Go is not on this machine")
        self.kubernetes()
        ends = time.monotonic() + limit_s
        modules = f"-modfile={self.modules}"
        listed = self._go([go, "list", modules, "-deps", "-f", "{{.ImportPath}}", "."], ends)
        if listed.returncode and _is_untidy(listed.stderr):
            tidy = f"go mod tidy -modfile={self.modules.name}"
            raise BuildError(
                f"oracles/{self.name}: {self.modules.name} and its .sum are not tidy, run `{tidy}` there:\n{listed.stderr}"
            )
        if listed.returncode:
            raise OracleMissingError(f"a module cannot be had: {_gist(listed.stderr)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        flags = " ".join((self.folder / "ldflags").read_text().split()) if (self.folder / "ldflags").exists() else "-s -w"
        done = self._go([go, "build", modules, "-ldflags", flags, "-o", str(fresh), "."], ends)
        if done.returncode:
            raise BuildError(f"oracles/{self.name} does not compile:\n{done.stderr}")
        fresh.replace(path)
        for older in path.parent.parent.glob(f"{self.release or 'default'}-*"):
            if older != path.parent and time.time() - older.stat().st_mtime > _KEPT_S:
                shutil.rmtree(older, ignore_errors=True)
        return path

    def _go(self, command: list[str], ends: float) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "GOTOOLCHAIN": "local",
            "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -buildvcs=false".strip(),
        }
        try:
            return subprocess.run(  # noqa: S603  the command is ours
                command, cwd=self.folder, env=environment, text=True, capture_output=True, check=False,
                timeout=max(ends - time.monotonic(), 0.1),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise OracleMissingError(f"{self} was not built in time; what was compiled is kept for the next try") from None


def _is_untidy(said: str) -> bool:
    """Return whether the file of modules, or the one with their sums, lacks a line: a fault of ours, not of the machine."""
    return any(text in said for text in ("missing go.sum entry", "updates to go.mod needed", "updates to go.sum needed"))


def _gist(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("go: downloading")]
    return "; ".join(lines[:3])[:600] or "go list fails without a word"


def cache_folder() -> Path:
    """Return the folder of built programs."""
    if named := os.environ.get(NAMED):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moorage-oracles"


def programs(*names: str) -> Iterator[Program]:
    """Yield the programs of ``oracles/``, each release of it; of the names alone, if some are given."""
    for folder in sorted(one for one in ORACLES.iterdir() if (one / "go.mod").exists() and (not names or one.name in names)):
        yield Program(folder.name)
        for modules in sorted(folder.glob("v*.mod")):
            yield Program(folder.name, modules.stem.removeprefix("v"))


def built(name: str, release: str = "", *, limit_s: float | None = None) -> Path:
    """Return the path of a program, which is built first if need be, within ``limit_s`` or MOORAGE_ORACLES_SECONDS seconds.

    Raises  OracleMissingError, BuildError
    """
    return Program(name, release).build(float(os.environ.get(LIMIT, "1800")) if limit_s is None else limit_s)
