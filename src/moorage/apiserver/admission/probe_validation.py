"""Validation of container probes and of the value sources of environment variables.

Source  kubernetes, pkg/apis/core/validation/validation.go: validateProbe, validateHandler, validateEnvVarValueFrom
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moorage.api.validation.pods import port_name_faults
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["handler_faults", "probe_faults", "source_faults"]

_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_HEADER_NAME: Final = re.compile(r"[-A-Za-z0-9]+")
_HEADER_TEXT: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is "
    "'[-A-Za-z0-9]+')"
)
_NUMBERS: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NO_SOURCE: Final = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"


def probe_faults(path: str, container: Document, *, is_init: bool = False) -> Iterator[Fault]:
    """Yield the faults of the probes of a defaulted container.

    ``is_init`` marks init containers, which may have probes only as sidecars (restartPolicy Always).
    """
    no_probes = is_init and container.get("restartPolicy") != "Always"
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is None:
            continue
        if no_probes:
            yield Fault("Forbidden", f"{path}.{name}", "may not be set for init containers without restartPolicy=Always")
        else:
            yield from _probe(f"{path}.{name}", probe, succeeds_once=name != "readinessProbe")


def _probe(path: str, probe: Document, *, succeeds_once: bool) -> Iterator[Fault]:
    given = [handler_type for handler_type in _HANDLERS if probe.get(handler_type) is not None]
    if not given:
        yield Fault("Required value", path, "must specify a handler type")
    for i, handler_type in enumerate(given):
        if i:
            yield Fault("Forbidden", f"{path}.{handler_type}", "may not specify more than 1 handler type")
        else:
            yield from handler_faults(f"{path}.{handler_type}", handler_type, probe[handler_type])
    for name in _NUMBERS:
        if (probe.get(name) or 0) < 0:
            yield Fault("Invalid value", f"{path}.{name}", "must be greater than or equal to 0", probe[name])
    grace_s, successes = probe.get("terminationGracePeriodSeconds"), probe.get("successThreshold", 1)
    if grace_s is not None and grace_s <= 0:
        yield Fault("Invalid value", f"{path}.terminationGracePeriodSeconds", "must be greater than 0", grace_s)
    if succeeds_once and successes != 1:
        yield Fault("Invalid value", f"{path}.successThreshold", "must be 1", successes)
    if not succeeds_once and grace_s is not None:
        why = "must not be set for readinessProbes"
        yield Fault("Invalid value", f"{path}.terminationGracePeriodSeconds", why, grace_s)


def handler_faults(path: str, handler_type: str, handler: Document) -> Iterator[Fault]:
    """Yield the faults of a probe's or a hook's handler."""
    if handler_type == "exec":
        if not handler.get("command"):
            yield Fault("Required value", f"{path}.command")
        return
    yield from _port(f"{path}.port", handler.get("port") or 0)
    scheme = handler.get("scheme", "HTTP")
    if handler_type == "httpGet" and scheme not in {"HTTP", "HTTPS"}:
        yield Fault("Unsupported value", f"{path}.scheme", 'supported values: "HTTP", "HTTPS"', scheme)
    for header in handler.get("httpHeaders") or () if handler_type == "httpGet" else ():
        if not _HEADER_NAME.fullmatch(header.get("name") or ""):
            yield Fault("Invalid value", f"{path}.httpHeaders", _HEADER_TEXT, header.get("name") or "")


def _port(path: str, port: Any) -> Iterator[Fault]:
    if isinstance(port, str):
        yield from (Fault("Invalid value", path, why, port) for why in port_name_faults(port))
    elif not 1 <= port <= 65535:
        yield Fault("Invalid value", path, "must be between 1 and 65535, inclusive", port)


def source_faults(path: str, variable: Document) -> Iterator[Fault]:
    """Yield the faults of a variable's ``valueFrom``."""
    if (source := variable.get("valueFrom")) is None:
        return
    count = sum(source.get(name) is not None for name in _SOURCES)
    if not count:
        yield Fault("Invalid value", path, _NO_SOURCE, "")
    elif variable.get("value"):
        yield Fault("Invalid value", path, "may not be specified when `value` is not empty", "")
    elif count > 1:
        yield Fault("Invalid value", path, "may not have more than one field specified at a time", "")
