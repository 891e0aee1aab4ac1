"""The metrics of each release: the one truth for ``/metrics`` and for comparisons of releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from moorage.api.releases import RELEASES
from moorage.api.releases.metric_spec import Spec
from moorage.api.releases.metrics_1_36 import METRICS_1_36

__all__ = ["metrics_of"]


@cache
def metrics_of(release: str) -> Mapping[str, Spec]:
    """Return the metrics of a release: those of 1.36 by their name there, hidden where the release lacks them, and those that
    only earlier releases have."""
    changes = RELEASES[release].metrics
    if not changes:
        return METRICS_1_36
    found = {name: replace(spec, **changes.get(name, {})) for name, spec in METRICS_1_36.items()}
    for name, own in changes.items():
        if name not in found:
            base = METRICS_1_36[own["of"]] if "of" in own else Spec(name, "")
            found[name] = replace(base, **{"name": name, **own})
    return found
