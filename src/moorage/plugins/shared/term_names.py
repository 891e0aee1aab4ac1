"""Names of the terms that plugins reject nodes by, as explanations print them and as remedies refer to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.core import Taint
from moorage.api.selectors import Selector

PODS: Final = "pods"
CORDON: Final = "cordon"
NODE_AFFINITY: Final = "nodeAffinity"
ADDED_AFFINITY: Final = "addedAffinity"

_TOPOLOGIES: Final[Mapping[str, str]] = {
    "kubernetes.io/hostname": "host",
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
}


def topology_name(key: str) -> str:
    """Return the word for the domains of a topology key: ``host``, ``zone``, ``region``, or the key itself."""
    return _TOPOLOGIES.get(key, key)


def selector_text(selector: Selector) -> str:
    """Return a label selector as ``kubectl -l`` takes it."""
    return str(selector) or ("no pods" if selector.matches_nothing else "any pod")


def taint_text(taint: Taint) -> str:
    """Return a taint as ``kubectl taint`` takes it, without its effect."""
    return f"{taint.key}={taint.value}" if taint.value else taint.key


def taint_name(taint: Taint) -> str:
    """Name a taint: ``taint gpu=yes:NoSchedule``."""
    return f"taint {taint_text(taint)}:{taint.effect}"


def selector_name(key: str, value: str) -> str:
    """Name one label of the node selector: ``nodeSelector disk=ssd``."""
    return f"nodeSelector {key}={value}"


def expression_name(expression: object) -> str:
    """Name one expression of the only required node affinity term."""
    return f"{NODE_AFFINITY} {expression}"


def affinity_name(selector: Selector, key: str, *, anti: bool = False) -> str:
    """Name an affinity term of the pod: ``podAntiAffinity app=search per host``."""
    return f"pod{'Anti' if anti else ''}Affinity {selector_text(selector)} per {topology_name(key)}"


def others_name(key: str) -> str:
    """Name the anti-affinity terms of placed pods over a topology."""
    return f"podAntiAffinity of other pods per {topology_name(key)}"


def spread_name(key: str, selector: Selector) -> str:
    """Name a spread constraint: ``topologySpread zone app=web``."""
    return f"topologySpread {topology_name(key)} {selector_text(selector)}"


def port_name(protocol: str, port: int) -> str:
    """Name a host port: ``hostPort 80/TCP``."""
    return f"hostPort {port}/{protocol}"
