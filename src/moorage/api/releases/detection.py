"""Which release a cluster runs, by the versions that its API server and its kubelets report.

A kubelet is never newer than the control plane, and the kubelet of a control-plane node has the same version. A version may
have a suffix of the distribution: ``v1.34.1-gke.12``, ``v1.33.3+k3s1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from moorage.api.releases import RELEASES, Release, find_release

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class DetectedRelease(NamedTuple):
    """The version that the API server reports, or the newest that kubelets report, and the nearest release of its series.

    ``version``  such as ``1.34.5``
    ``release``  None if no release of the series is known
    ``source``   what reports the version: ``the API server reports`` or ``the kubelets report``
    """

    version: str
    release: Release | None
    source: str

    @property
    def is_known(self) -> bool:
        """True if ``release`` is exactly the release of ``version``, not the nearest one."""
        return find_release(self.version) is not None


def detect_release(
    kubelets: Iterable[str] = (), control_plane: Iterable[str] = (), *, server: str = ""
) -> DetectedRelease | None:
    """Return the release of a cluster; None if nothing reports a version.

    ``server``         the version of the API server, if it is known
    ``control_plane``  the versions of the kubelets on control-plane nodes
    """
    for source, versions in (
        ("the API server reports", [server]),
        ("the kubelets report", control_plane),
        ("the kubelets report", kubelets),
    ):
        if numbers := [found for version in versions if (found := _number(version))]:
            newest = max(numbers)
            version = ".".join(map(str, newest))
            return DetectedRelease(version, find_release(version) or _nearest(newest), source)
    return None


def _number(version: str) -> tuple[int, ...] | None:
    found = _VERSION.match(version)
    return tuple(map(int, found.groups())) if found else None


def _nearest(version: tuple[int, ...]) -> Release | None:
    """Return the nearest patch release of the version's series; the older one of two; None if no release is known."""
    series = [one for one in RELEASES.values() if one.series == f"{version[0]}.{version[1]}"]
    return min(series, key=lambda one: abs(_patch(one.name) - version[2]), default=None)


def _patch(name: str) -> int:
    number = _number(name)
    return number[2] if number is not None else 3
