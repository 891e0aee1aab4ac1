"""Which release a cluster runs, by the versions that its kubelets report.

A kubelet is never newer than the control plane, and that of a control-plane node is as new. The version of a node may carry a
suffix of the distribution: ``v1.34.1-gke.12``, ``v1.33.3+k3s1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from moorage.releases import RELEASES, Release, find_release

__all__ = ["DetectedRelease", "detect_release"]

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class DetectedRelease(NamedTuple):
    """The newest version that the kubelets report, as ``1.34.5``, and the release that is nearest to it in its series.

    ``release`` is None if no release of the series is known.
    """

    version: str
    release: Release | None


def detect_release(kubelets: Iterable[str], control_plane: Iterable[str] = ()) -> DetectedRelease | None:
    """Return the release of a cluster; None if no kubelet reports a version. ``control_plane``: kubelets of such nodes."""
    numbers = [found for version in control_plane if (found := _number(version))]
    numbers = numbers or [found for version in kubelets if (found := _number(version))]
    if not numbers:
        return None
    newest = max(numbers)
    version = ".".join(map(str, newest))
    return DetectedRelease(version, find_release(version) or _nearest(newest))


def _number(version: str) -> tuple[int, ...] | None:
    found = _VERSION.match(version)
    return tuple(map(int, found.groups())) if found else None


def _nearest(version: tuple[int, ...]) -> Release | None:
    """Return the patch release of the series that is nearest; of two, the older one."""
    series = [one for one in RELEASES.values() if one.series == f"{version[0]}.{version[1]}"]
    return min(series, key=lambda one: abs(_patch(one.name) - version[2]), default=None)


def _patch(name: str) -> int:
    number = _number(name)
    return number[2] if number is not None else 3
