"""Find the release for ``--emulate auto``: that of the cluster, from the versions that its objects contain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from moorage.api.core import Node
from moorage.api.releases import Release, why_unknown
from moorage.api.releases.detection import DetectedRelease, detect_release
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import SERVER_VERSION, find_objects
from moorage.errors import InputError
from moorage.simulator.cluster_input import DUMP_RECORD
from moorage.simulator.cluster_reader import read_objects

__all__ = ["known_release", "release_of_files", "release_of_nodes"]

_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
#: Kinds whose objects contain versions of the cluster's components.
_TELLING: Final = frozenset(["Node", DUMP_RECORD.kind, SERVER_VERSION])
#: ``(labels, kubelet's version)`` of a node.
_Kubelet = tuple[Mapping[str, str], str]


def release_of_nodes(nodes: Iterable[Node], server: str, note: Callable[[str], None]) -> Release:
    """Return the release of a cluster with these nodes; ``server`` is the version of its API server, "" if not known.

    ``note`` receives a message if the patch release is not known and the nearest one is used.
    Raises  InputError if nothing reports a version, or the release is not known
    """
    kubelets: list[_Kubelet] = [(node.metadata.labels, node.status.node_info.kubelet_version) for node in nodes]
    leading = [version for labels, version in kubelets if any(label in labels for label in _CONTROL_PLANE)]
    found = detect_release((version for _, version in kubelets), leading, server=server)
    if found is None:
        raise InputError("--emulate auto: no node has status.nodeInfo.kubeletVersion; name the release")
    return known_release(found, note)


def release_of_files(sources: Iterable[InputFile], note: Callable[[str], None]) -> Release:
    """Return the release of the cluster whose objects are in files; see ``release_of_nodes``."""
    objects = (found for source in sources for found in find_objects(source) if found.kind in _TELLING)
    cluster = read_objects(objects, validated=False)
    return release_of_nodes(cluster.nodes, cluster.report.server_version, note)


def known_release(found: DetectedRelease, note: Callable[[str], None]) -> Release:
    """Return the detected release, or the nearest known patch release; ``note`` receives a message in the latter case.

    Raises  InputError if its minor release is not known
    """
    if found.release is None:
        raise InputError(f"--emulate auto: {why_unknown(found.version)}")
    if not found.is_known:
        note(f"{found.source} {found.version}; {found.release} is the nearest release that is known")
    return found.release
