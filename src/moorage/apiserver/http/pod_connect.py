"""Connections to containers: logs, exec, attach and port forwarding. No containers run here.

The server performs kube-apiserver's checks first: the pod and the container must exist, and the pod must have a node. Then
it returns 501 with the reason, rather than an empty log that could be mistaken for a real one.

Source  kubernetes, pkg/registry/core/pod/strategy.go: LogLocation, ExecLocation, streamLocation; pkg/kubelet/kubelet_pods.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.core import ENDED_PHASES
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.statuses import ApiError, bad_request

__all__ = ["STREAMS", "check_stream"]

#: Streaming subresources, with the reason why they are not available.
STREAMS: Final = {
    "attach": "there is nothing to attach to",
    "exec": "no program can be run in it",
    "log": "it has no log",
    "portforward": "it listens on no port",
}
_CONTAINER_FIELDS: Final = ("containers", "initContainers", "ephemeralContainers")


def check_stream(pod: Document, subresource: str, container: str) -> None:
    """Check a streaming request. Returns only for the log of a pod without a node, which is empty.

    Raises  ApiError 400 for an unknown container or for a pod that no cluster could serve; 501 where a cluster with
            containers could
    """
    name = pod["metadata"]["name"]
    if subresource != "portforward":
        container = _container(pod, name, container)
    if not pod["spec"].get("nodeName"):
        if subresource == "log":
            return
        raise bad_request(f"pod {name} does not have a host assigned")
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    if subresource == "exec" and phase in ENDED_PHASES:
        raise bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
    if subresource == "log" and phase == "Pending":
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
    subject = f'container "{container}" of pod "{name}"' if container else f'pod "{name}"'
    raise ApiError(501, "", f"{subject} is only pretended to run in this cluster: {STREAMS[subresource]}")


def _container(pod: Document, name: str, container: str) -> str:
    """Return the requested container, or the only one."""
    names = [[str(one.get("name")) for one in pod["spec"].get(part) or ()] for part in _CONTAINER_FIELDS]
    if container:
        if not any(container in some for some in names):
            raise bad_request(f"container {container} is not valid for pod {name}")
        return container
    containers, inits, _ = names
    if len(containers) == 1:
        return containers[0]
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]"
    raise bad_request(f"{text} or one of the init containers: [{' '.join(inits)}]" if inits else text)
