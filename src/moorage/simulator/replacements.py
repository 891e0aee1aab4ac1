"""Replacements: the pod that a controller creates after one of its pods was evicted or deleted with its node."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.simulator.owners import controller_of

#: Controllers that replace an evicted pod.
REPLACING: Final = frozenset(["ReplicaSet", "ReplicationController", "StatefulSet", "Job", "DaemonSet"])
#: Controllers that replace a pod whose node is deleted; a daemon set needs no pod for that node any more.
REPLACING_ELSEWHERE: Final = REPLACING - {"DaemonSet"}
#: Controllers whose replacement has the old pod's name.
_SAME_NAME: Final = frozenset(["StatefulSet"])
#: The characters of generated names.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def replacement(pod: Pod, kinds: Collection[str] = REPLACING) -> Pod | None:
    """Return the pod that a controller of one of these kinds creates instead; None if no such controller owns the pod."""
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
    """Return a five-character suffix like Kubernetes', from the hexadecimal digits of ``uid``."""
    return "".join(_ALPHABET[int(uid[i : i + 2], 16) % len(_ALPHABET)] for i in range(0, 10, 2))
