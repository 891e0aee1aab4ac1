"""The admission plugin PodResizeValidator: a bound pod may not be resized beyond what its node can hold.

Source  kubernetes, plugin/pkg/admission/podresize
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moorage.api.core import Node, Pod
from moorage.api.quantity import milli_value, value
from moorage.apiserver.vocabulary.statuses import ApiError, Cause, forbidden, quoted
from moorage.state.pod_requests import RequestOptions, pod_requests

__all__ = ["check_resize"]

_OS: Final = "kubernetes.io/os"
_WANTED: Final = RequestOptions(use_status=False, pod_level_status=False)


def check_resize(pod: Pod, node: Node | None) -> None:
    """Check that the new requests of a bound pod are within what its node can allocate.

    Raises  ApiError 403
    """
    if node is None:
        raise _refused(pod, f"node {quoted(pod.spec.node_name or '')} not found")
    name = node.metadata.name
    if (system := node.metadata.labels.get(_OS, "linux")) != "linux":
        why = f"pod resize is only supported on linux nodes, node {quoted(name)} is {quoted(system)}"
        raise _refused(pod, why, "UnsupportedPlatform")
    if lacking := "; ".join(_lacking(pod, node)):
        raise _refused(pod, f"node didn't have enough allocatable resources: {lacking}", "NodeCapacity")


def _lacking(pod: Pod, node: Node) -> Iterator[str]:
    requests, allocatable = pod_requests(pod, _WANTED).requests, node.status.allocatable
    for resource, amount in (("cpu", milli_value), ("memory", value)):
        wanted, held = requests.get(resource, 0), amount(allocatable.get(resource, "0"))
        if wanted > held:
            yield f"{resource}, requested: {wanted}, allocatable: {held}"


def _refused(pod: Pod, why: str, reason: str = "") -> ApiError:
    return forbidden("pods", "", pod.metadata.name, why, [Cause(reason, "")] if reason else ())
