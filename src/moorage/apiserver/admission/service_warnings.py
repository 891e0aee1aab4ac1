"""Warnings about fields of a service that have no effect.

Source  kubernetes, pkg/api/service/warnings.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.apiserver.vocabulary.records import Document

__all__ = ["service_warnings"]


def service_warnings(service: Document) -> Iterator[str]:
    """Yield the warnings about a valid service."""
    spec = service.get("spec") or {}
    kind, is_headless = spec.get("type", "ClusterIP"), spec.get("clusterIP") == "None"
    if kind == "ClusterIP" and is_headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("externalIPs"):
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity", "None") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    elif spec.get("externalIPs") and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if kind == "ExternalName" and spec.get("externalIPs"):
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
