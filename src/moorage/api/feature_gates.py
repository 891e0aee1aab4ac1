"""Feature gates of kube-scheduler 1.37 that change scheduling decisions.

Each release has its own gates (``moorage.api.releases``). The gates of 1.36 and 1.37 that a release lacks are closed for it,
unless its ``fixed_gates`` say otherwise.

A gate has a stage. ``AllAlpha`` and ``AllBeta`` set every gate of that stage that is not set by name. A locked gate keeps its
default. A gate that depends on others cannot be open while they are closed.

Source  kubernetes, pkg/features/kube_features.go and pkg/scheduler/framework/plugins/feature/feature.go;
        component-base, featuregate/feature_gate.go
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from moorage.api.quantity import parse_bool
from moorage.api.releases import ALPHA, BETA, CURRENT, RELEASES, TODAY, Gate, Release
from moorage.api.releases.release_gates import gates_table
from moorage.errors import ConfigError, Fault

__all__ = ["GATES", "TODAY", "FeatureGates", "Gate"]

#: A gate that sets all gates of a stage → the stage.
_STAGES: Final[Mapping[str, str]] = {"AllAlpha": ALPHA, "AllBeta": BETA}

#: Every gate that kube-scheduler's decisions depend on, and ``WorkloadWithJob``, which the embedded controllers use.
GATES: Final = CURRENT.gates


class FeatureGates:
    """Which gates are open. Read one with ``gates["Name"]``; an unknown name raises KeyError, so that typos are found.

    ``release`` is the name of one of ``moorage.api.releases.RELEASES`` and ``emulated`` that release. The gates of ``TODAY``
    can be read for any release.
    """

    def __init__(self, overrides: Mapping[str, bool] | None = None, release: str = TODAY) -> None:
        self.release = release
        self.emulated = RELEASES[release]
        self._open = _opened(overrides, self.emulated) if overrides else _opened_by_default(release)
        self._named = {**dict.fromkeys(self.emulated.serves, True), **(overrides or {})}

    def __getitem__(self, gate: str) -> bool:
        return self._open[gate]

    def serves(self, gate: str) -> bool:
        """Return whether kinds behind a gate are served. A gate that changes no decision is closed unless it was named, or the
        release opens it.
        """
        return self._open.get(gate, self._named.get(gate, False))

    def closes(self, gate: str) -> bool:
        """Return whether a gate was closed by name. This answers for gates that change no decision, too."""
        return self._named.get(gate) is False

    def varied(self, gates: Mapping[str, bool], traits: Mapping[str, Any]) -> FeatureGates:
        """Return these gates with some other values, of a release with some other traits: a mixture that no release is."""
        made = copy(self)
        made.emulated, made._open = replace(self.emulated, **traits), {**self._open, **gates}
        return made

    @property
    def lacking(self) -> list[str]:
        """A line for each open gate that Moorage does not follow."""
        return [
            f"feature gate {gate} is not followed: {text}"
            for gate, text in gates_table()["lacking"].items()
            if self.serves(gate)
        ]

    @property
    def names(self) -> list[str]:
        """The names of all gates, sorted."""
        return sorted(self._open)

    @property
    def value(self) -> Hashable:
        """The release and its open gates, as a key: equal for equal gates."""
        return self.release, frozenset(name for name, is_open in self._open.items() if is_open)

    @staticmethod
    def faults(overrides: Mapping[str, bool], release: str = TODAY) -> list[Fault]:
        """Return a fault for each gate that does not exist, is locked, or is open while a gate it depends on is closed."""
        emulated = RELEASES[release]
        faults = [fault for gate, value in overrides.items() if (fault := _setting_fault(gate, value, emulated))]
        return faults or _dependency_faults(overrides, emulated)

    @classmethod
    def parse(cls, text: str, release: str = TODAY) -> FeatureGates:
        """Read the value of ``--feature-gates``: ``Name=true,Other=false``.

        Raises  ConfigError with every fault found
        """
        overrides: dict[str, bool] = {}
        faults: list[Fault] = []
        for part in filter(None, map(str.strip, text.split(","))):
            name, equals, word = (piece.strip() for piece in part.partition("="))
            if not equals:
                faults.append(
                    Fault("Required value", f"featureGates.{name}", f"missing bool value for {name}; write {name}=true")
                )
                continue
            try:
                overrides[name] = parse_bool(word)
            except ValueError:
                faults.append(Fault("Invalid value", f"featureGates.{name}", "write true or false", word))
        faults += cls.faults(overrides, release)
        if faults:
            raise ConfigError("--feature-gates cannot be used:", faults)
        return cls(overrides, release)


def _opened(overrides: Mapping[str, bool], release: Release) -> Mapping[str, bool]:
    resolved = _resolve(overrides, release.gates)
    return {**release.fixed_gates, **{gate: resolved[own] for gate, own in release.opened_with.items()}, **resolved}


@cache
def _opened_by_default(release: str) -> Mapping[str, bool]:
    return _opened({}, RELEASES[release])


def _resolve(overrides: Mapping[str, bool], gates: Mapping[str, Gate]) -> dict[str, bool]:
    staged = {stage: overrides[name] for name, stage in _STAGES.items() if name in overrides}
    return {
        name: overrides.get(name, gate.default if gate.locked else staged.get(gate.stage, gate.default))
        for name, gate in gates.items()
    }


def _setting_fault(name: str, value: bool, release: Release) -> Fault | None:
    if name in _STAGES or name in release.inert_gates:
        return None
    gate = release.gates.get(name)
    if gate is None:
        known = {one.lower(): one for one in release.gates}
        hint = "".join(f"; did you mean {known[one]}?" for one in get_close_matches(name.lower(), known, n=1, cutoff=0.85))
        return Fault("Not found", f"featureGates.{name}", f"unrecognized feature gate: {name}{hint}", name)
    if gate.locked and value is not gate.default:
        locked = str(gate.default).lower()
        detail = f"cannot set feature gate {name} to {str(value).lower()}, feature is locked to {locked}"
        return Fault("Invalid value", f"featureGates.{name}", detail, value)
    return None


def _dependency_faults(overrides: Mapping[str, bool], release: Release) -> list[Fault]:
    gates = {**release.gates, **release.dependent_gates}
    opened, faults = _resolve(overrides, gates), []
    for name, gate in gates.items():
        closed = [need for need in gate.needs if not opened[need]]
        if opened[name] and closed:
            detail = f"{name} is enabled, but depends on features that are disabled: [{' '.join(closed)}]"
            faults.append(Fault("Invalid value", f"featureGates.{name}", detail, True))
    return faults
