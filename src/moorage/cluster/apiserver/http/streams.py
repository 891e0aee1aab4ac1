"""Connections to containers, nodes and services: logs, exec, attach, port forwarding and proxies. No containers run here.

The server performs kube-apiserver's checks first: the options must be valid, policies must not refuse them, the pod and the
container must exist, and the pod must have a node. Then it returns 501 with the reason, rather than an empty log that could be
mistaken for a real one.

Source  kubernetes, pkg/registry/core/pod/strategy.go: LogLocation, ExecLocation, streamLocation; pkg/registry/core/pod/rest:
        log.go; pkg/kubelet/kubelet_pods.go; apiserver, pkg/endpoints/handlers/rest.go (ConnectResource)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import statuses
from moorage.api.documents.http_messages import HTTPRequest, Response, is_true
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import Document
from moorage.cluster.apiserver.access.rbac import Authorizer, attributes_of
from moorage.errors import Fault
from moorage.rules.store.policy_requests import request_for
from moorage.rules.store.store import Store

#: Streaming subresources, with the reason why they are not available.
STREAMS: Final = {
    "attach": "there is nothing to attach to",
    "exec": "no program can be run in it",
    "log": "it has no log",
    "portforward": "it listens on no port",
    "proxy": "nothing listens there",
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
        raise statuses.bad_request(f"pod {name} does not have a host assigned")
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    if subresource == "exec" and phase in ENDED_PHASES:
        raise statuses.bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
    if subresource == "log" and phase == "Pending":
        raise statuses.bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
    subject = f'container "{container}" of pod "{name}"' if container else f'pod "{name}"'
    raise statuses.ApiError(501, "", f"{subject} is only pretended to run in this cluster: {STREAMS[subresource]}")


def _container(pod: Document, name: str, container: str) -> str:
    """Return the requested container, or the only one."""
    names = [[str(one.get("name")) for one in pod["spec"].get(part) or ()] for part in _CONTAINER_FIELDS]
    if container:
        if not any(container in some for some in names):
            raise statuses.bad_request(f"container {container} is not valid for pod {name}")
        return container
    containers, inits, _ = names
    if len(containers) == 1:
        return containers[0]
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]"
    raise statuses.bad_request(f"{text} or one of the init containers: [{' '.join(inits)}]" if inits else text)


def connect(store: Store, authorizer: Authorizer, request: HTTPRequest, target: Target) -> Response:
    """Answer a request for a stream.

    Raises  ApiError 400, 403, 404, 405, 422, 501 and 503
    """
    part, kind, namespace = target.subresource, target.kind, target.namespace or ""
    methods = {"GET"} if part == "log" else {"GET", "POST", "PUT", "DELETE", "PATCH"} if part == "proxy" else {"GET", "POST"}
    if request.method not in methods:
        raise statuses.not_allowed()
    if part not in {"log", "proxy"}:
        # Opening a stream with GET also requires the right to ``create`` the subresource.
        verdict = authorizer.judge(request.user, attributes_of("POST", target, {}))
        if not verdict.allowed:
            raise statuses.forbidden("pods", "", target.name, verdict.reason)
    if "dryRun" in request.query:
        raise statuses.bad_request("dryRun is not supported")
    options = _options_of(request, part)
    if part == "log":
        if faults := [*_log_faults(options)]:
            raise statuses.invalid("PodLogOptions", "", target.name, faults)
    else:
        asked = request_for(kind, None, options, part, name=target.name, namespace=namespace, operation="CONNECT")
        store.policies.admit_request(asked)
    held = store.get(kind, namespace, target.name).document()
    if part == "proxy":
        raise _unreachable(target)
    check_stream(held, part, request.query.get("container", ""))
    return Response(204, b"")


def _unreachable(target: Target) -> statuses.ApiError:
    if target.kind.native == "Service":
        return statuses.ApiError(503, "ServiceUnavailable", f'no endpoints available for service "{target.name}"')
    why = f"{target.kind.kind.lower()} {statuses.quoted(target.name)} is only pretended to run in this cluster"
    return statuses.ApiError(501, "", f"{why}: {STREAMS['proxy']}")


#: The options of streams: parameter → how it is read.
_FLAGS: Final = ("stdin", "stdout", "stderr", "tty", "follow", "previous", "timestamps", "insecureSkipTLSVerifyBackend")
_NUMBERS: Final = ("tailLines", "limitBytes", "sinceSeconds")
_OF_LOGS: Final = frozenset(
    ["container", "follow", "insecureSkipTLSVerifyBackend", "limitBytes", "previous", "sinceSeconds", "sinceTime", "stream",
     "tailLines", "timestamps"]
)  # fmt: skip
_OF_STREAMS: Final[Mapping[str, frozenset[str]]] = {
    "attach": frozenset(["stdin", "stdout", "stderr", "tty", "container"]),
    "exec": frozenset(["stdin", "stdout", "stderr", "tty", "container", "command"]),
    "log": _OF_LOGS,
    "portforward": frozenset(["ports"]),
    "proxy": frozenset(["path"]),
}


def _options_of(request: HTTPRequest, part: str) -> Document:
    """Return the options in the parameters of a request for a stream.

    Raises  ApiError 400 for a value of the wrong type
    """
    made: Document = {}
    for name, values in parse_qs(request.raw_query, keep_blank_values=True).items():
        if name in _OF_STREAMS[part] and (value := _option(request, name, values)) not in (False, "", []):
            made[name] = value
    return made


def _option(request: HTTPRequest, name: str, values: Sequence[str]) -> Any:
    if name in _FLAGS:
        return is_true(values[0])
    if name in _NUMBERS:
        return request.number(name)
    if name == "ports":
        try:
            return [int(port) for value in values for port in value.split(",") if port]
        except ValueError as error:
            raise statuses.bad_request(str(error)) from None
    return list(values) if name == "command" else values[0]


def _log_faults(options: Document) -> Iterator[Fault]:
    if (lines := options.get("tailLines", 0)) < 0:
        yield Fault("Invalid value", "tailLines", "must be greater than or equal to 0", lines)
    if (size := options.get("limitBytes", 1)) < 1:
        yield Fault("Invalid value", "limitBytes", "must be greater than 0", size)
    if "sinceSeconds" in options and "sinceTime" in options:
        yield Fault("Forbidden", "", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif (seconds := options.get("sinceSeconds", 1)) < 1:
        yield Fault("Invalid value", "sinceSeconds", "must be greater than 0", seconds)
    if "stream" in options:
        yield Fault("Forbidden", "stream", "may not be specified")
