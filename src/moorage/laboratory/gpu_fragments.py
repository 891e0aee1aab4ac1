"""Fragments of shared GPUs: what of a node's idle GPUs a kind of pod could not use, and why (Weng et al., ATC'23).

Amounts are thousandths of GPUs (``milli``) and millicores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

#: lacks both · lacks GPU · satisfied · lacks cpu · without GPU: satisfied, lacks cpu · GPUs of another model
FRAGMENT_CLASSES: Final = ("q1", "q2", "q3", "q4", "xl", "xr", "no access")


class GpuNode(NamedTuple):
    """A node: its idle cpu, and what is idle of each of its devices."""

    cpu_milli: int
    devices: Sequence[int]
    model: str = ""


class GpuShape(NamedTuple):
    """What a kind of pod requests: cpu, and ``gpu_milli`` of so many devices each, of one of the models (empty: any)."""

    cpu_milli: int
    gpu_milli: int = 0
    devices: int = 0
    models: Collection[str] = ()
    weight: float = 1.0


def fragment_class(node: GpuNode, shape: GpuShape) -> str:
    """Return how a shape stands to a node, one of ``FRAGMENT_CLASSES``."""
    has_cpu = node.cpu_milli >= shape.cpu_milli
    if not shape.devices or not shape.gpu_milli:
        return "xl" if has_cpu else "xr"
    if shape.models and node.model not in shape.models:
        return "no access"
    has_gpu = sum(left >= shape.gpu_milli for left in node.devices) >= shape.devices
    if has_gpu:
        return "q3" if has_cpu else "q4"
    return "q2" if has_cpu else "q1"


def gpu_fragments(node: GpuNode, shape: GpuShape) -> dict[str, int]:
    """Return the idle thousandths of a node's GPUs by class: what is not ``q3`` is a fragment.

    On a node that can run the shape, devices with less left than it needs are fragments too; they count as ``q2``.
    """
    idle = sum(node.devices)
    found = fragment_class(node, shape)
    if found != "q3":
        return {found: idle}
    lost = sum(left for left in node.devices if left < shape.gpu_milli)
    return {"q2": lost, "q3": idle - lost}


def typical_gpu_fragments(nodes: Iterable[GpuNode], shapes: Sequence[GpuShape]) -> Mapping[str, float]:
    """Return the expected thousandths by class over all nodes, for a pod of the typical mix."""
    whole = sum(shape.weight for shape in shapes) or 1.0
    found = dict.fromkeys(FRAGMENT_CLASSES, 0.0)
    for node in nodes:
        for shape in shapes:
            for name, amount in gpu_fragments(node, shape).items():
                found[name] += shape.weight / whole * amount
    return found
