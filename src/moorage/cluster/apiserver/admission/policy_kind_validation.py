"""Validation and defaults of network and admission policies and horizontal pod autoscalers that cross fields.

What one field allows is in ``field_rules.json``.

Source  kubernetes, pkg/apis/{admissionregistration,autoscaling,networking}: validation/validation.go, v1 and v2/defaults.go
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from moorage.api.meta import LabelSelector
from moorage.api.validation.faults import Faults, forbidden, in_range, invalid, label_selector, required
from moorage.cluster.apiserver.vocabulary.records import Document

_PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9]|-(?!-)){0,13}[a-z0-9]|[a-z]")
_PORT_NAME_FAULT: Final = (
    "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    "must contain at least one letter (a-z)",
)


# -- admission policies -------------------------------------------------------------------------------------------------


def admission_policy_faults(policy: Document) -> Faults:
    """Yield the faults of the label selectors of an admission policy, or of its binding."""
    spec = policy.get("spec") or {}
    for part, names in _SELECTORS.items():
        for name in names:
            given = (spec.get(part) or {}).get(name)
            if given:
                yield from label_selector(f"spec.{part}.{name}", msgspec.convert(given, LabelSelector))


_SELECTORS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("matchConstraints", "matchResources"), ("namespaceSelector", "objectSelector")),
    "paramRef": ("selector",),
}


# -- network policies ---------------------------------------------------------------------------------------------------


def set_policy_types(policy: Document) -> None:
    """Let a policy without types be about incoming traffic, and about outgoing traffic if it has rules for it."""
    if policy.get("spec") is None:
        policy["spec"] = {}
    spec = policy["spec"]
    if isinstance(spec, dict) and not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def network_policy_faults(policy: Document) -> Faults:
    """Yield the faults of the ports and peers of a network policy."""
    spec = policy.get("spec") or {}
    for part, side in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(spec.get(part) or ()):
            at = f"spec.{part}[{i}]"
            for k, port in enumerate(rule.get("ports") or ()):
                yield from _port_faults(f"{at}.ports[{k}]", port)
            for k, peer in enumerate(rule.get(side) or ()):
                yield from _peer_faults(f"{at}.{side}[{k}]", peer)


def _port_faults(path: str, given: Document) -> Faults:
    port, end = given.get("port"), given.get("endPort")
    if isinstance(port, int):
        yield from in_range(f"{path}.port", port, 1, 65535)
        if end is not None and end < port:
            yield invalid(f"{path}.endPort", port, "must be greater than or equal to `port`")
        yield from in_range(f"{path}.endPort", end, 1, 65535)
    elif end is not None:
        yield invalid(
            f"{path}.endPort", end, f"may not be specified when `port` is {'not specified' if port is None else 'non-numeric'}"
        )
    if isinstance(port, str) and not _PORT_NAME.fullmatch(port):
        yield invalid(f"{path}.port", port, _PORT_NAME_FAULT[not re.search("[a-z]", port)])


def _peer_faults(path: str, peer: Document) -> Faults:
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    if not given:
        yield required(path, "must specify a peer")
    elif len(given) > 1 and "ipBlock" in given:
        yield forbidden(path, "may not specify both ipBlock and another peer")


# -- autoscalers --------------------------------------------------------------------------------------------------------

_PERIOD_S: Final = 15
_SCALE_UP: Final[Document] = {
    "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": _PERIOD_S}, {"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S},
    ],
}  # fmt: skip
_SCALE_DOWN: Final[Document] = {
    "selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S}],
}  # fmt: skip
#: Type of a metric → the field with its source, in the order in which they are checked.
_SOURCES: Final[Mapping[str, str]] = {
    "Object": "object", "External": "external", "Pods": "pods", "Resource": "resource",
    "ContainerResource": "containerResource",
}  # fmt: skip
#: Source → the fields of its target of which one must be set, and the text for none.
_TARGETS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "object": (("averageValue", "value"), "must set either a target value or averageValue"),
    "external": (("averageValue", "value"), "must set either a target value for metric or a per-pod target"),
    "pods": (("averageValue",), "must specify a positive target averageValue"),
    "resource": (("averageUtilization", "averageValue"), "must set either a target raw value or a target utilization"),
    "containerResource": (("averageUtilization", "averageValue"), "must set either a target raw value or a target utilization"),
}


def set_autoscaler_defaults(autoscaler: Document) -> None:
    """Complete the scaling rules of an autoscaler that has a behavior."""
    spec = autoscaler.get("spec")
    behavior = spec.get("behavior") if isinstance(spec, dict) else None
    if isinstance(behavior, dict):
        for name, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            behavior[name] = {**copy.deepcopy(rules), **(behavior.get(name) or {})}


def autoscaler_faults(autoscaler: Document) -> Faults:
    """Yield the faults of an autoscaler's bounds and metrics."""
    spec = autoscaler.get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and most < least:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    for i, metric in enumerate(spec.get("metrics") or ()):
        yield from _metric_faults(f"spec.metrics[{i}]", metric)


def _metric_faults(path: str, metric: Document) -> Faults:
    wanted = _SOURCES.get(metric.get("type") or "")
    given = [name for name in _SOURCES.values() if metric.get(name) is not None]
    if wanted is not None and wanted not in given:
        yield required(f"{path}.{wanted}", "must populate information for the given metric source")
    for name in given:
        if name != wanted and (len(given) > 1 or wanted is not None):
            yield forbidden(f"{path}.{name}", "must populate the given metric source only")
    for name in given[:1]:
        yield from _target_faults(f"{path}.{name}.target", metric[name].get("target") or {}, *_TARGETS[name])


def _target_faults(path: str, target: Mapping[str, Any], names: tuple[str, ...], none: str) -> Faults:
    given = [name for name in names if target.get(name) is not None]
    if not given:
        yield required(f"{path}.{names[0]}", none)
    elif len(given) == 2 and "averageUtilization" in given:
        yield forbidden(f"{path}.averageValue", "may not set both a target raw value and a target utilization")
