"""What a controller makes in the place of a pod that was taken away: a pod like it, as the owner reference says."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.simulator.owners import controller_of

__all__ = ["REPLACING", "REPLACING_ELSEWHERE", "replacement"]

#: Controllers that make a new pod when one of theirs is taken away.
REPLACING: Final = frozenset(["ReplicaSet", "ReplicationController", "StatefulSet", "Job", "DaemonSet"])
#: Those that do so when the node is gone: a daemon set has nothing to do there any more.
REPLACING_ELSEWHERE: Final = REPLACING - {"DaemonSet"}
#: Controllers whose new pod has the old one's name.
_SAME_NAME: Final = frozenset(["StatefulSet"])
#: What generated names are made of.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def replacement(pod: Pod, kinds: Collection[str] = REPLACING) -> Pod | None:
    """Return the pod that a controller of one of these kinds makes instead; None if no such controller owns it."""
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind not in kinds:
        return None
    uid = blake2b(f"{pod.metadata.uid}/replacement".encode(), digest_size=16).hexdigest()
    name = pod.name if owner.kind in _SAME_NAME else f"{pod.name.rpartition('-')[0] or pod.name}-{_suffix(uid)}"
    return replace(
        pod,
        metadata=replace(pod.metadata, name=name, uid=uid, deletion_timestamp=None),
        spec=replace(pod.spec, node_name=""),
        status=type(pod.status)(),
    )


def _suffix(uid: str) -> str:
    """Return five characters as Kubernetes would make them, from the hexadecimal digits of ``uid``."""
    return "".join(_ALPHABET[int(uid[i : i + 2], 16) % len(_ALPHABET)] for i in range(0, 10, 2))
