"""The signature of plugins that read a pod's volumes."""

from __future__ import annotations

from moorage.framework.reuse import Signature
from moorage.state.pod_info import PodInfo

__all__ = ["volume_signature"]


def volume_signature(pod: PodInfo) -> Signature | None:
    """Sign pods without volumes; a pod with volumes is judged by itself."""
    return {} if pod.volumes is None else None
