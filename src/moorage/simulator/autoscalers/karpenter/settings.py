"""Settings of Karpenter: feature gates and times, as its Deployment sets them, or as they are given.

Source  karpenter, pkg/operator/options/options.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from moorage.api.durations import DurationError, duration_seconds
from moorage.basis.inputs.components import Component
from moorage.errors import InputError

#: The gates of 1.14 with their defaults.
GATES: Final = {
    "CapacityBuffer": False, "NodeOverlay": False, "NodeRepair": False, "ReservedCapacity": True,
    "SpotToSpotConsolidation": False, "StaticCapacity": False,
}  # fmt: skip
#: Settings with a value of which something is not simulated: the flag, the variable, the value that is.
_ASSUMED: Final = (
    ("preference-policy", "PREFERENCE_POLICY", "Respect"), ("min-values-policy", "MIN_VALUES_POLICY", "Strict"),
    ("ignore-dra-requests", "IGNORE_DRA_REQUESTS", "true"),
)  # fmt: skip
_TRUE: Final = frozenset({"true", "t", "1"})


class KarpenterSettings(NamedTuple):
    """``gates``: those that are set; ``source``: where, empty if nothing says it; ``unlike``: what is not followed."""

    gates: Mapping[str, bool] = {}
    source: str = ""
    idle_s: float = 1.0
    longest_s: float = 10.0
    unlike: tuple[str, ...] = ()

    def has(self, gate: str) -> bool:
        """Return whether a gate is on."""
        return self.gates.get(gate, GATES[gate])

    def applies(self, gate: str) -> bool:
        """Return whether objects for which a gate must be on count: they do if nothing says what Karpenter is set to."""
        return not self.source or self.has(gate)

    def text(self) -> str:
        """Return the gates and where they come from, for people."""
        shown = ", ".join(f"{name}={'true' if is_on else 'false'}" for name, is_on in sorted(self.gates.items()))
        return (
            f"gates {shown or 'as by default'} ({self.source})"
            if self.source
            else "gates as by default (no Deployment of Karpenter)"
        )


def read_settings(components: Iterable[Component], given: str | None = None) -> KarpenterSettings:
    """Return the settings of the container that runs Karpenter. ``given``: gates that replace its own, ``NAME=BOOL,…``.

    Raises  InputError for gates and durations that cannot be read
    """
    found = next((one for one in components if one.name == "karpenter"), None)
    if found is None:
        return (
            KarpenterSettings() if given is None else KarpenterSettings(_gates(given, "--karpenter-gates"), "--karpenter-gates")
        )
    version = ".".join(map(str, found.version))
    where = f"Karpenter's Deployment{f', {version}' if version else ''}"

    def setting(flag: str, variable: str) -> str | None:
        return found.flag(flag) or found.environment.get(variable)

    own = setting("feature-gates", "FEATURE_GATES") or ""
    gates = _known(own) if given is None else _gates(given, "--karpenter-gates")
    try:
        idle_s, longest_s = (
            duration_seconds(setting(f"batch-{name}-duration", f"BATCH_{name.upper()}_DURATION") or default)
            for name, default in (("idle", "1s"), ("max", "10s"))
        )
    except DurationError as error:
        raise InputError(f"{where}: {error}") from None
    unlike = tuple(
        f"what {variable}={value} of {where} changes"
        for flag, variable, simulated in _ASSUMED
        if (value := setting(flag, variable)) and value.lower() != simulated.lower()
    )
    return KarpenterSettings(gates, where if given is None else "--karpenter-gates", idle_s, longest_s, unlike)


def _pairs(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {name.strip(): value.strip().lower() for name, _, value in pairs}


def _known(text: str) -> dict[str, bool]:
    """Return the gates of a Deployment; those of another release are left out."""
    return {name: value in _TRUE for name, value in _pairs(text).items() if name in GATES}


def _gates(text: str, where: str) -> dict[str, bool]:
    found = _pairs(text)
    for name, value in found.items():
        if name not in GATES:
            near = " or ".join(get_close_matches(name, GATES, 2, 0.6))
            raise InputError(f"{where}: {name!r} is no feature gate of Karpenter{f'; did you mean {near}?' if near else ''}")
        if value not in {*_TRUE, "false", "f", "0"}:
            raise InputError(f"{where}: {name}={value}: use true or false")
    return {name: value in _TRUE for name, value in found.items()}
