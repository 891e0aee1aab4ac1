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
from moorage.api.documents.served_kinds import Document, served
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.access.request_attributes import attributes_of
from moorage.errors import Fault
from moorage.rules.store.list_selection import Selection
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


def check_stream(pod: Document, subresource: str, container: str, *, upgrades: bool = True) -> None:
    """Check a streaming request. Returns only for the log of a pod without a node, which is empty.

    ``upgrades``: the client asks for another protocol, as every stream but a log needs.

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
    if subresource != "log" and not upgrades:
        raise statuses.ApiError(400, "", "Upgrade request required")
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
    if part == "proxy":
        raise _unreachable(store, target)
    held = store.get(kind, namespace, target.name).document()
    check_stream(held, part, request.query.get("container", ""), upgrades=request.upgrades)
    return Response(204, b"")


_SCHEMES: Final = frozenset(["", "http", "https"])
_SLICES: Final = served("endpointslices", "discovery.k8s.io")
_SERVICE_NAME: Final = "kubernetes.io/service-name"


def _unreachable(store: Store, target: Target) -> statuses.ApiError:
    """Return why nothing answers for a pod, a node or a service, which may be named with a scheme and a port."""
    namespace, word = target.namespace or "", target.kind.kind.lower()
    *before, name, port = [*target.name.split(":"), ""] if ":" not in target.name else target.name.split(":")
    if len(before) > 1 or not name or "".join(before) not in _SCHEMES:
        return statuses.bad_request(f"invalid {word} request {statuses.quoted(target.name)}")
    if target.kind.native == "Service":
        if unserved := _no_endpoint(store, namespace, name, port):
            return statuses.ApiError(503, "ServiceUnavailable", unserved)
    else:
        held = store.get(target.kind, namespace, name).document()
        if target.kind.native == "Pod" and not (held.get("status") or {}).get("podIP"):
            return statuses.bad_request("address not allowed")
    why = f"{word} {statuses.quoted(name)} is only pretended to run in this cluster"
    return statuses.ApiError(501, "", f"{why}: {STREAMS['proxy']}")


def _no_endpoint(store: Store, namespace: str, name: str, port: str) -> str:
    """Return why a service has no endpoint; "" if it has one.

    Raises  ApiError 404 if there is no such service, which is looked up for the number of a port alone
    """
    if port.isdecimal():
        ports = store.get(served("services"), namespace, name).document()["spec"].get("ports") or ()
        if all(one.get("port") != int(port) for one in ports):
            return f"no service port {int(port)} found for service {statuses.quoted(name)}"
    for record in store.all(_SLICES, Selection(namespace)):
        if record.labels.get(_SERVICE_NAME) == name and any(
            (one.get("conditions") or {}).get("ready") is not False and one.get("targetRef")
            for one in record.document().get("endpoints") or ()
        ):
            return ""
    return f"no endpoints available for service {statuses.quoted(name)}"


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
