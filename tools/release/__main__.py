"""``scripts/release``: check that a version can be released, build its files, and tag it.

    scripts/release --check          everything but the tag
    scripts/release                  everything, then the tag vVERSION
    scripts/release --build          the files alone, of the last commit; not a release
    scripts/release --licences       THIRD_PARTY_LICENSES alone, from the installed packages

It runs ``.ci/run``, so it takes as long as CI does. The files are written into ``dist/VERSION``: the wheel and the source
archive, built twice with the same bytes, ``sbom.cdx.json``, and ``SHA256SUMS``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tools.release.building import build, checksums
from tools.release.inventory import inventory
from tools.release.licences import FILE, licences
from tools.release.readiness import faults, version

ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Release; exit with 1 if this version cannot be released."""
    parser = argparse.ArgumentParser(
        prog="scripts/release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="everything but the tag")
    parser.add_argument("--build", action="store_true", help="only build the files of the last commit")
    parser.add_argument("--licences", action="store_true", help="only write THIRD_PARTY_LICENSES")
    given = parser.parse_args(argv)
    if given.licences:
        (ROOT / FILE).write_text(licences(ROOT), encoding="utf-8")
        return 0
    tag = f"v{version(ROOT)}"
    if not given.build:
        found = [*_unclean(tag), *faults(ROOT)]
        for line in found:
            sys.stderr.write(f"error: {line}\n")
        if found:
            return 1
        subprocess.run(["bash", ".ci/run"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)  # noqa: S607
    for path in _files(ROOT / "dist" / version(ROOT)):
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    if not given.check and not given.build:
        _git("tag", "--annotate", tag, "--message", f"Moorage {version(ROOT)}")
        sys.stdout.write(f"tagged {tag}; push it to publish\n")
    return 0


def _unclean(tag: str) -> Sequence[str]:
    lines = ["there are uncommitted changes; commit them first"] if _git("status", "--porcelain") else []
    return [*lines, f"the tag {tag} exists; raise the version"] if _git("tag", "--list", tag) else lines


def _files(out: Path) -> Sequence[Path]:
    epoch = _git("log", "-1", "--format=%ct")
    built = build(ROOT, out, epoch)
    bill = inventory(ROOT, version(ROOT), datetime.fromtimestamp(int(epoch), UTC).isoformat())
    (out / "sbom.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", "utf-8")
    files = [*built, out / "sbom.cdx.json"]
    (out / "SHA256SUMS").write_text(checksums(files), "utf-8")
    return [*files, out / "SHA256SUMS"]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603, S607


if __name__ == "__main__":
    raise SystemExit(main())
