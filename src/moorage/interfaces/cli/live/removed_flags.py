"""The flags of kube-scheduler since 1.23, for ``moorage run --emulate``: those of 1.36, and those that it no longer has.

Source  kube-scheduler 1.23 to 1.27, cmd/kube-scheduler/app/options; component-base/logs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.api.releases import Release
from moorage.errors import Fault
from moorage.interfaces.cli.live.run_flags import FLAGS, GONE, IDLE, SINCE_1_23
from moorage.interfaces.cli.pflag import Flag, Given

#: Deprecated flags → fields of the configuration's leaderElection that they set if there is no file.
LOCK_FIELDS: Final = {"lock-object-name": "resource_name", "lock-object-namespace": "resource_namespace"}

_SANITIZATION: Final = "experimental-logging-sanitization"
#: Flags of klog.
_KLOG: Final = IDLE - {_SANITIZATION}
_KLOG_REMOVED: Final = (
    "will be removed in a future release, see https://github.com/kubernetes/enhancements/tree/master/keps/"
    "sig-instrumentation/2845-deprecate-klog-specific-flags-in-k8s-components"
)
#: Flag → what differs from 1.22.
_CHANGED: Final[Mapping[str, Mapping[str, Any]]] = {
    **SINCE_1_23,
    **{name: {"sets": ""} for name in LOCK_FIELDS},  # --leader-elect-resource-… wins in any order
    **{name: {"instead": _KLOG_REMOVED} for name in _KLOG},
}


def flags_since_1_23(release: Release) -> tuple[Flag, ...]:
    """Return the flags of a release from 1.23 on, with Moorage's own. Those that 1.36 does not have come last."""
    removed = (replace(GONE[name], **_CHANGED.get(name, {})) for name in sorted(release.own_flags))
    return (*(flag for flag in FLAGS if flag.name not in release.lacks_flags), *removed)


def flag_warnings(given: Given, flags: Iterable[Flag], ignored: Iterable[str]) -> Iterator[str]:
    """Yield a line for each deprecated flag, one for those ``ignored`` beside --config, and one for those without effect."""
    for flag in flags:
        if flag.instead and flag.name in given.changed:
            yield f"Flag --{flag.name} has been deprecated, {flag.instead}"
    if names := sorted(ignored):
        yield f"Ignored, because --config is given: --{', --'.join(names)}; set it in {given['config']}"
    if idle := sorted(given.changed & IDLE):
        yield f"No effect, because logs go to standard error: --{', --'.join(idle)}"


def port_faults(given: Given) -> Iterator[str]:
    """Yield the fault of 1.23's ``--port``, which accepts only 0."""
    if "port" in given.changed and given["port"]:
        yield str(Fault("Required value", "port", f"invalid port value {given['port']}: only zero is allowed"))


def format_faults(given: Given, flags: Iterable[Flag]) -> Iterator[str]:
    """Yield a fault for each flag of klog that the log format does not support."""
    form = given["logging-format"]
    for flag in sorted(flags, key=lambda flag: flag.name) if form != "text" else ():
        if flag.name in _KLOG and given[flag.name] != flag.default:
            yield str(Fault("Invalid value", "format", f"Non-default format doesn't honor flag: {flag.name}", form))
