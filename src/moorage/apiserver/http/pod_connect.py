"""What a pod of containers would do over a connection: show its log, run a program, forward a port. Here no container runs.

The questions that kube-apiserver asks first are asked: is there such a pod, such a container, has it a node. Then it is told
plainly that nothing runs, with 501, rather than an empty log that might be taken for the truth.

Source  kubernetes, pkg/registry/core/pod/strategy.go: LogLocation, ExecLocation, streamLocation; pkg/kubelet/kubelet_pods.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.core import ENDED_PHASES
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.statuses import ApiError, bad_request

__all__ = ["STREAMS", "check_stream"]

#: Subresources, each with what cannot be done.
STREAMS: Final = {
    "attach": "there is nothing to attach to",
    "exec": "no program can be run in it",
    "log": "it has no log",
    "portforward": "it listens on no port",
}
_PARTS: Final = ("containers", "initContainers", "ephemeralContainers")


def check_stream(pod: Document, subresource: str, container: str) -> None:
    """Check that there is nothing to show yet, as the pod has no node: its log is empty then.

    Raises  ApiError 400 for a container that is not there, or for a pod where this could not be done in any cluster; 501 for
            one where it could, if pods ran
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
    """Return the container that is meant: the one that is named, or the only one."""
    names = [[str(one.get("name")) for one in pod["spec"].get(part) or ()] for part in _PARTS]
    if container:
        if not any(container in some for some in names):
            raise bad_request(f"container {container} is not valid for pod {name}")
        return container
    containers, inits, _ = names
    if len(containers) == 1:
        return containers[0]
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]"
    raise bad_request(f"{text} or one of the init containers: [{' '.join(inits)}]" if inits else text)
