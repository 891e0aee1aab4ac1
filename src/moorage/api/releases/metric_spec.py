"""A metric as a release documents it: name, help, labels, buckets and stability."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Spec", "exponential"]


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of buckets as Prometheus' Go client computes them: each is the previous one times the factor."""
    bounds = []
    for _ in range(count):
        bounds.append(start)
        start *= factor
    return tuple(bounds)


@dataclass(frozen=True, slots=True)
class Spec:
    """Name, help, labels and buckets of a metric. ``stability``: ``ALPHA``, ``BETA`` or ``STABLE``; "" for Moorage's own.

    ``hidden``      counted but not shown: the emulated release does not have it, or hides it because it is ``deprecated``
    ``deprecated``  the release that deprecated it, such as ``1.23.0``
    ``gate``        the feature gate that must be open for it to be shown
    ``of``          the metric whose values it shows under an earlier name
    """

    name: str
    help: str
    stability: str = "ALPHA"
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    hidden: bool = False
    deprecated: str = ""
    gate: str = ""
    of: str = ""

    @property
    def text(self) -> str:
        since = f"(Deprecated since {self.deprecated}) " if self.deprecated else ""
        return f"[{self.stability}] {since}{self.help}" if self.stability else self.help
