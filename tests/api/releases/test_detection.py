"""The release of a cluster, by what its kubelets report."""

from __future__ import annotations

import pytest

from moorage.api.releases.detection import detect_release


@pytest.mark.parametrize(
    ("kubelets", "control_plane", "version", "release"),
    [
        (["v1.34.1"], [], "1.34.1", "1.34.1"),
        (["v1.34.5-gke.12", "v1.33.2"], [], "1.34.5", "1.34.7"),
        (["v1.34.2+k3s1"], [], "1.34.2", "1.34.1"),
        (["v1.36.9", ""], [], "1.36.9", "1.36"),
        (["v1.33.1", "v1.32.0"], ["v1.32.0"], "1.32.0", "1.32.5"),
        (["v1.29.3"], [], "1.29.3", "1.29.14"),
        (["v1.18.3"], [], "1.18.3", None),
        (["v1.37.0"], [], "1.37.0", "1.37"),
        (["v1.38.0"], [], "1.38.0", None),
    ],
)
def test_the_newest_kubelet_decides_and_the_control_plane_s_first(kubelets, control_plane, version, release):
    found = detect_release(kubelets, control_plane)
    assert found.version == version
    assert (found.release and found.release.name) == release


def test_without_a_version_there_is_none():
    assert detect_release(["", "unknown"]) is None
