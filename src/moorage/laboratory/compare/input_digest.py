"""The digest of an input: equal for equal objects in equal order, however they are split into files."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b

from moorage.api.custom_objects import CustomObject
from moorage.api.packing import pack
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.simulator.cluster_input import SLOTS, ClusterInput

_SORTED_SLOTS = sorted(kind.slot for kind in KINDS if kind.slot in SLOTS)


def input_digest(cluster: ClusterInput) -> str:
    """Return the digest of a cluster's objects, as 32 hexadecimal digits."""
    encode = partial(pack, ordered=True)
    hasher = blake2b(digest_size=16)
    for slot in _SORTED_SLOTS:
        objects = getattr(cluster, slot)
        if objects:
            hasher.update(encode([slot, len(objects)]))
            for obj in objects:
                hasher.update(encode(obj))
    for other in (*cluster.others, *cluster.custom):
        name = other.resource if isinstance(other, CustomObject) else type(other).__name__
        hasher.update(encode([name, other]))
    return hasher.hexdigest()
